"""The loss as an argument: from Python, from JSON and from the command line."""

import json

import pytest
from tiny_models import trainer_of
from transformers import HfArgumentParser

from hf_focal import FocalSeq2SeqTrainingArguments, FocalTrainingArguments, LossConfig
from hf_focal.trainer import LossFunction


@pytest.mark.parametrize(
    "loss",
    [LossConfig.parse("focal:gamma=2.5"), {"name": "focal", "gamma": 2.5}, "focal:gamma=2.5"],
    ids=["config", "dict", "str"],
)
def test_a_loss_in_any_form_builds_and_survives_json(loss, tmp_path):
    trainer = trainer_of(tmp_path, loss=loss)
    assert trainer.loss_config == LossConfig.parse("focal:gamma=2.5")
    assert trainer.loss.policy.gamma == 2.5
    assert isinstance(trainer.compute_loss_func, LossFunction)
    for values in (trainer.args.to_dict(), json.loads(trainer.args.to_json_string())):
        assert LossConfig.parse(values["loss"]) == LossConfig.parse("focal:gamma=2.5")


def parse(*argv):
    return HfArgumentParser(FocalTrainingArguments).parse_args_into_dataclasses(["--use_cpu", *argv])[0]


def test_the_command_line_takes_text_and_json():
    args = parse("--loss", "flsd:thresholds=0.2/0.5,gammas=5/3/2", "--loss_reduction", "sum")
    assert LossConfig.parse(args.loss).options["gammas"] == (5, 3, 2)
    assert args.loss_reduction == "sum"
    args = parse("--loss", '{"name": "focal", "gamma": 2}', "--calibration_bins", "20", "--learning_rate", "5e-5")
    assert LossConfig.parse(args.loss) == LossConfig.parse("focal:gamma=2")
    assert args.calibration_bins == 20
    assert parse().loss == "cross_entropy"
    values = {key: value for key, value in args.to_dict().items() if key in ("loss", "learning_rate", "use_cpu")}
    again = HfArgumentParser(FocalTrainingArguments).parse_dict(json.loads(json.dumps(values)))[0]
    assert (again.loss, again.learning_rate) == (args.loss, 5e-5)


@pytest.mark.parametrize(
    ("metric", "greater"),
    [
        *(
            (name, False)
            for name in ("ece", "eval_adaece", "eval_near_nll", "error", "nll_refined", "loss", "macro_ece")
        ),
        *((name, True) for name in ("accuracy", "eval_top5_accuracy")),
        (None, None),
    ],
)
def test_the_best_model_is_the_best_calibrated(metric, greater):
    assert FocalTrainingArguments(metric_for_best_model=metric, use_cpu=True).greater_is_better is greater
    args = FocalTrainingArguments(metric_for_best_model="ece", greater_is_better=True, use_cpu=True)
    assert args.greater_is_better is True  # as it was given


@pytest.mark.parametrize(
    ("loss", "options"),
    [
        ("adafocal", {"load_best_model_at_end": True, "save_strategy": "epoch"}),
        ("focal:schedule=5/3/2", {"save_strategy": "best"}),
        ("recall:ema=0.1", {"lr_scheduler_type": "reduce_lr_on_plateau"}),
    ],
)
def test_a_loss_that_moves_is_not_what_epochs_are_compared_by(loss, options):
    options |= {"eval_strategy": "epoch", "use_cpu": True}
    args = FocalTrainingArguments(loss=loss, **options)
    assert (args.metric_for_best_model, args.greater_is_better) == ("nll", False)
    with pytest.raises(ValueError, match="metric_for_best_model must not be the loss, got 'eval_loss'"):
        FocalTrainingArguments(loss=loss, metric_for_best_model="eval_loss", **options)
    assert FocalTrainingArguments(loss="flsd53", metric_for_best_model="loss", **options).greater_is_better is False


def test_batches_by_tokens(tmp_path):
    args = FocalSeq2SeqTrainingArguments(str(tmp_path), max_tokens_per_batch=100, loss="focal:gamma=1")
    assert args.max_tokens_per_batch == 100
    with pytest.raises(ValueError, match="max_tokens_per_batch must be a whole number of at least 1, got 0"):
        FocalSeq2SeqTrainingArguments(str(tmp_path), max_tokens_per_batch=0)
    with pytest.raises(ValueError, match="train_sampling_strategy must be 'random' with max_tokens_per_batch"):
        options = {"max_tokens_per_batch": 100, "train_sampling_strategy": "group_by_length"}
        FocalSeq2SeqTrainingArguments(str(tmp_path), **options)
