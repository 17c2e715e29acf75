"""Fine-tune an encoder to classify texts or pairs of texts, correct its probabilities, and measure their calibration.

    python text_classification.py --config own_texts.yaml --model_name_or_path org/encoder \\
        --train_file train.csv --test_file test.csv --losses cross_entropy,flsd53 --output_dir out/texts
    hf-focal report out/texts

To try it without a download, on generated messages and a small encoder with random weights:

    python -m hf_focal.demo.data out/demo
    python text_classification.py --config demo.yaml --output_dir out/demo/model

Without --losses, the recipe trains once, with --loss. Several labels for each text: --label_column names a column of
lists (of names, of numbers, or of a 0 or 1 for each label), or one column of 0 and 1 for each label: toxic,insult.
With --resume_from_checkpoint true, each run goes on from its last checkpoint. On several GPUs: accelerate launch.
"""

from dataclasses import dataclass, field

import torch
from datasets import List
from transformers import AutoModelForSequenceClassification, AutoTokenizer, DataCollatorWithPadding, set_seed

from hf_focal import FocalTrainer, FocalTrainingArguments, load_splits, parse_recipe
from hf_focal.tasks import DataArguments, input_length


@dataclass(kw_only=True)
class RecipeArguments(DataArguments):
    model_name_or_path: str = field(metadata={"help": "a Hub id or a folder"})
    revision: str = field(default="main", metadata={"help": "branch, tag or commit of the model on the Hub"})
    trust_remote_code: bool = field(default=False, metadata={"help": "run code that comes with the model"})
    max_length: int | None = field(default=None, metadata={"help": "tokens to keep of a text; default: the model's"})
    text_column: str = field(default="text", metadata={"help": "the column of texts"})
    text_pair_column: str | None = field(default=None, metadata={"help": "the column of second texts, for pairs"})
    label_column: str = field(default="label", metadata={"help": "the column, or columns, of labels"})
    label_format: str | None = field(default=None, metadata={"help": "what lists of integers are: multi_hot or ids"})
    method: str | None = field(
        default=None,
        metadata={"help": "none, temperature, bias, vector, matrix, platt, auto [auto; temperature below 10 samples]"},
    )


def main() -> None:
    recipe, runs = parse_recipe(RecipeArguments, FocalTrainingArguments, __doc__)
    name = recipe.model_name_or_path
    source = {"revision": recipe.revision, "trust_remote_code": recipe.trust_remote_code}

    with runs[0].main_process_first(desc="loading the data"):
        splits, labels = load_splits(
            "text-classification",
            **recipe.location(),
            text_column=recipe.text_column,
            text_pair_column=recipe.text_pair_column,
            label_column=recipe.label_column,
            label_format=recipe.label_format,
            seed=runs[0].seed,
        )
        tokenizer = AutoTokenizer.from_pretrained(name, **source)
        if tokenizer.pad_token is None:  # GPT-2, Llama
            tokenizer.pad_token = tokenizer.eos_token
        max_length = input_length(name, tokenizer, recipe.max_length, **source)

        def encode(rows: dict) -> dict:
            return tokenizer(rows["text"], rows.get("text_pair"), truncation=True, max_length=max_length)

        inputs = [column for column in splits["train"].column_names if column != "labels"]
        encoded = splits.map(encode, batched=True, remove_columns=inputs, desc="tokenizing")

    several = isinstance(encoded["train"].features["labels"], List)
    head = {"id2label": dict(enumerate(labels)), "label2id": {label: number for number, label in enumerate(labels)}}
    head["problem_type"] = "multi_label_classification" if several else "single_label_classification"

    for args in runs:
        set_seed(args.seed)
        # Weights in full precision, whatever they were saved in; --bf16 and --fp16 compute in half. A pretrained model
        # without a head, or with the head of another task, gets a new one: Transformers lists the new weights.
        model = AutoModelForSequenceClassification.from_pretrained(
            name, dtype=torch.float32, ignore_mismatched_sizes=True, **head, **source
        )
        model.config.pad_token_id = tokenizer.pad_token_id
        trainer = FocalTrainer(
            model=model,
            args=args,
            train_dataset=encoded["train"],
            eval_dataset=encoded["validation"],
            calibration_dataset=encoded["validation"],
            processing_class=tokenizer,
            data_collator=DataCollatorWithPadding(tokenizer),
        )
        trainer.accelerator.print(
            f"\n{args.loss}: training on {len(encoded['train']):,} texts; processes: {args.world_size}"
        )
        trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
        trainer.save_state()

        # Fits a correction to the validation data, writes report.html, and saves or publishes the model with its card.
        trainer.finish(encoded["test"], method=recipe.method, dataset=recipe.data_name)


if __name__ == "__main__":
    main()
