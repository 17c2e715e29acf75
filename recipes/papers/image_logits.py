"""Save the logits of finished runs of the image classification recipe, for the tables that need logits.

    python recipes/papers/image_logits.py --config recipes/papers/configs/cifar10/resnet20_overfit.yaml \
        --train_file train.parquet --test_file test.parquet --seed 1 --output_dir out/cifar10_overfit

Give the arguments of the runs. The script writes `logits.npz` into each run's folder, which has the labels and the
logits before T of the validation and test images. From this file, `results.py` computes equal-mass errors, and
`corrections.py` fits corrections.
"""

from pathlib import Path

from transformers import AutoModelForImageClassification

from hf_focal import Temperature
from papers import image_classification as recipe
from papers.runs.classifier_results import save_logits
from papers.runs.image_training import ImageClassifierTrainer
from papers.runs.recipe_arguments import parse_recipe, runs_of
from papers.runs.recipe_command import run_recipe


def main(argv: list[str]) -> None:
    data_args, model_args, optimizer_args, recipe_args, args = parse_recipe(recipe.ARGUMENTS, argv, __doc__)
    args.remove_unused_columns = False
    splits, pixels = recipe.load_data(data_args, args.seed), model_args.pixel_format()
    images = recipe.decode(data_args, splits, pixels, args.seed)
    for run in runs_of(args, recipe_args.compare):
        folder = Path(run.output_dir)
        temperature = Temperature.load(folder / "temperature.json")
        trainer = ImageClassifierTrainer(
            model=AutoModelForImageClassification.from_pretrained(folder),
            args=run,
            eval_dataset=images["validation"],
            pixels=pixels,
            optimizer_arguments=optimizer_args,
        )
        predictions = {name: trainer.predict(images[name]) for name in ("validation", "test")}
        # Undo T, which is folded into the saved model.
        unscaled = {
            name: output._replace(predictions=output.predictions * temperature.value)
            for name, output in predictions.items()
        }
        save_logits(folder / "logits.npz", unscaled)


if __name__ == "__main__":
    run_recipe(main)
