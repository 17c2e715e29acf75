"""Every config file holds arguments of its recipe only, and `--help` shows those of the recipe first."""

import numpy as np
import pytest
import torch
from recipe_modules import FOLDER, import_recipe
from transformers import get_scheduler

from hf_focal import FocalTrainingArguments
from hf_focal.trainer.recipe_arguments import parse_arguments, parse_recipe

CONFIGS = {
    "image_classification": ["digits", "own_images", "cifar10/paper", "cifar10/resnet20_overfit"],
    "sst_trees": ["sst/tree_lstm", "sst/paper"],
    "text_classification": ["demo", "own_texts_cnn", "newsgroups/bert", "newsgroups/multi_label", "sst/encoder"],
    "translation": ["translation_demo", "multi30k/transformer_small", "wmt14/transformer_base"],
}
CONFIGS["text_classification"] += ["multi_label_demo", "newsgroups/gp_cnn", "newsgroups/paper"]
CONFIGS["image_classification"] += [
    "cifar10/resnet20_small",
    "cifar10/resnet20_whole",
    "cifar100/paper",
    "tiny_imagenet/paper",
]
CONFIGS["image_classification"] += ["cifar10/resnet20_whole", "places_lt/resnet152"]


@pytest.mark.parametrize(("name", "config"), [(name, config) for name in CONFIGS for config in CONFIGS[name]])
def test_every_config_holds_arguments_of_its_recipe(name, config):
    argv = ["--config", str(FOLDER / "configs" / f"{config}.yaml"), "--use_cpu", "true"]
    recipe = import_recipe(name)
    data_args, model_args, *_, args = parse_arguments(recipe.ARGUMENTS, argv)
    assert args.use_cpu
    if config == "cifar10/paper":  # as Mukhoti et al. 2020 trained
        assert (args.loss_reduction, args.max_grad_norm, args.num_train_epochs) == ("sum", 2, 350)
    if config == "sst/paper":
        assert (data_args.text_column, model_args.memory_size, args.optim) == ("tree", 150, "adagrad")


@pytest.mark.parametrize("config", ["tags_demo", "conll2003/encoder"])
def test_configs_of_tags_hold_arguments_of_the_recipe_for_tags(config):
    recipe = import_recipe("../token_classification")
    argv = ["--config", str(FOLDER / "configs" / f"{config}.yaml"), "--use_cpu", "true", "--output_dir", "out"]
    argv += ["--model_name_or_path", "encoder"]
    parsed, (args,) = parse_recipe(recipe.RecipeArguments, FocalTrainingArguments, None, argv)
    assert parsed.tag_column == ("tags" if config == "tags_demo" else "ner_tags") and args.learning_rate < 0.01


@pytest.mark.parametrize("config", ["segmentation_demo", "cityscapes/segformer_b0", "synthia/segformer_b0"])
def test_configs_of_pixels_hold_arguments_of_the_recipe_for_pixels(config):
    recipe = import_recipe("../semantic_segmentation")
    argv = ["--config", str(FOLDER / "configs" / f"{config}.yaml"), "--use_cpu", "true", "--output_dir", "out"]
    parsed, (args,) = parse_recipe(recipe.RecipeArguments, FocalTrainingArguments, None, argv)
    sizes = {"cityscapes/segformer_b0": (19, [769, 769]), "synthia/segformer_b0": (13, [384, 768])}
    assert (len(parsed.class_names.split(",")), parsed.image_size) == sizes.get(config, (6, None))
    assert parsed.smallest_crop == 1 and args.weight_decay == 0


def test_wmt14_is_trained_with_the_learning_rate_of_the_transformer():
    argv = ["--config", str(FOLDER / "configs" / "wmt14" / "transformer_base.yaml"), "--use_cpu", "true"]
    *_, args = parse_arguments(import_recipe("translation").ARGUMENTS, argv)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=args.learning_rate)
    scheduler = get_scheduler(args.lr_scheduler_type, optimizer, args.get_warmup_steps(args.max_steps), args.max_steps)
    rates = []
    for _ in range(20_000):
        optimizer.step()
        rates.append(scheduler.get_last_lr()[0])
        scheduler.step()
    # Vaswani et al. 2017, equation 3, with d_model = 512; Transformers counts from the step before.
    steps = np.arange(1, len(rates))
    formula = 512**-0.5 * np.minimum(steps**-0.5, steps * 4000**-1.5)
    np.testing.assert_allclose(rates[1:], formula, rtol=2e-3)  # 7e-4 is the rounded peak, 6.988e-4


def test_help_hides_the_training_arguments(capsys):
    shown = []
    for option in ("--help", "--help-all"):
        with pytest.raises(SystemExit, match="0"):
            parse_arguments(import_recipe("translation").ARGUMENTS, [option], "What it does.")
        shown.append(capsys.readouterr().out)
    assert "--train_file" in shown[0] and "--adam_beta1" not in shown[0] and "--adam_beta1" in shown[1]


@pytest.mark.parametrize("available", [False, True])
def test_the_config_trains_in_bfloat16_where_the_device_has_it(available, monkeypatch):
    monkeypatch.setattr("hf_focal.trainer.recipe_arguments.is_torch_bf16_gpu_available", lambda: available)
    argv = ["--config", str(FOLDER.parent / "configs" / "own_texts.yaml"), "--use_cpu", "true"]
    assert parse_arguments(import_recipe("text_classification").ARGUMENTS, argv)[-1].bf16 is available
