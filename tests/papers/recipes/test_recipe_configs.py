"""Every config file holds arguments of its recipe only, and `--help` shows those of the recipe first."""

import pytest
from papers.runs.yaml_arguments import parse_arguments
from recipe_modules import FOLDER, import_recipe

CONFIGS = {
    "image_classification": ["digits", "own_images", "cifar10/paper", "cifar10/resnet20_overfit"],
    "newsgroups": ["newsgroups/gp_cnn", "newsgroups/paper"],
    "semantic_segmentation": ["segmentation_demo", "cityscapes/segformer_b0", "synthia/segformer_b0"],
    "sst_trees": ["sst/tree_lstm", "sst/paper"],
    "text_classification": ["demo", "own_texts_cnn", "newsgroups/bert", "newsgroups/multi_label", "sst/encoder"],
    "token_classification": ["tags_demo", "conll2003/encoder"],
    "translation": ["translation_demo", "multi30k/transformer_small", "wmt14/transformer_base"],
}
CONFIGS["text_classification"] += ["multi_label_demo", "../../configs/own_texts"]
CONFIGS["image_classification"] += ["cifar10/resnet20_small", "cifar100/paper", "tiny_imagenet/paper"]
CONFIGS["image_classification"] += ["places_lt/resnet152"]


@pytest.mark.parametrize(("name", "config"), [(name, config) for name in CONFIGS for config in CONFIGS[name]])
def test_every_config_holds_arguments_of_its_recipe(name, config):
    argv = ["--config", str(FOLDER / "configs" / f"{config}.yaml"), "--use_cpu", "true"]
    if name == "semantic_segmentation" and "/" in config:
        argv += ["--train_file", "train.parquet", "--test_file", "test.parquet"]
    recipe = import_recipe(name)
    data_args, model_args, *_, args = parse_arguments(recipe.ARGUMENTS, argv)
    assert args.use_cpu
    if config == "cifar10/paper":  # as Mukhoti et al. 2020 trained
        assert (args.loss_reduction, args.max_grad_norm, args.num_train_epochs) == ("sum", 2, 350)
    if config == "sst/paper":
        assert (data_args.text_column, model_args.memory_size, args.optim) == ("tree", 150, "adagrad")


def test_help_hides_the_training_arguments(capsys):
    shown = []
    for option in ("--help", "--help-all"):
        with pytest.raises(SystemExit, match="0"):
            parse_arguments(import_recipe("translation").ARGUMENTS, [option], "What it does.")
        shown.append(capsys.readouterr().out)
    assert "--train_file" in shown[0] and "--adam_beta1" not in shown[0] and "--adam_beta1" in shown[1]


@pytest.mark.parametrize("available", [False, True])
def test_the_config_trains_in_bfloat16_where_the_device_has_it(available, monkeypatch):
    monkeypatch.setattr("papers.runs.yaml_arguments.is_torch_bf16_gpu_available", lambda: available)
    argv = ["--config", str(FOLDER.parent / "configs" / "own_texts.yaml"), "--use_cpu", "true"]
    assert parse_arguments(import_recipe("text_classification").ARGUMENTS, argv)[-1].bf16 is available
