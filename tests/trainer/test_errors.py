"""What the trainer refuses, and that it says what to do instead."""

from inspect import signature

import pytest
import tiny_models
import torch
from tiny_models import BagOfWords, rows, settings, tiny_bert, weights
from torch import nn
from transformers import Trainer, TrainingArguments

from hf_focal import FocalTrainer, FocalTrainingArguments
from hf_focal.losses import checks
from hf_focal.tasks.heads import Head

UNLABELED = [{"input_ids": row["input_ids"]} for row in rows(4)]


def arguments(folder, **options):
    return FocalTrainingArguments(**settings(folder, **options))


def trainer_of(folder, model=None, **options):
    return tiny_models.trainer_of(folder, model, **{"train_dataset": rows(8), "eval_dataset": rows(5, 1)} | options)


# Arguments


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"label_smoothing_factor": 0.1}, "label_smoothing_factor must be 0.*loss='label_smoothing:alpha=0.1'"),
        ({"loss": "focl"}, r"loss must be one of .*got 'focl': did you mean 'focal'\?"),
        ({"loss": "focal:gama=3"}, r"got 'gama': did you mean 'gamma'\?"),
        ({"loss_reduction": "none"}, "loss_reduction must be 'mean' or 'sum', got 'none'"),
        ({"linear_loss": "yes"}, "linear_loss must be 'auto', 'on' or 'off', got 'yes'"),
        ({"calibration_bins": 0}, "calibration_bins must be a whole number of at least 1, got 0"),
        ({"gamma_update_steps": 2.5}, "gamma_update_steps must be a whole number of at least 1, got 2.5"),
        ({"label_names": ["target"]}, r"label_names must be \['labels'\], got \['target'\]"),
        ({"hub_strategy": "checkpoint"}, "hub_strategy must be 'end' or 'every_save', .* got 'checkpoint'"),
        ({"metric_for_best_model": "eval_ece_corrected"}, "metric_for_best_model must be .*: T is fitted afterwards"),
        ({"metric_for_best_model": "nll_incorrect"}, "metric_for_best_model must be .* got 'nll_incorrect'"),
        ({"metric_for_best_model": "eval_s99_accuracy"}, "metric_for_best_model must be .* got 'eval_s99_accuracy'"),
    ],
)
def test_arguments(options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        arguments(tmp_path, **options)


def test_what_several_gpus_and_processes_need(tmp_path, monkeypatch):
    args = arguments(tmp_path)
    args._n_gpu = 2
    with pytest.raises(ValueError, match=r"n_gpu must be at most 1.*got 2.*accelerate launch --num_processes 2"):
        FocalTrainer(model=tiny_bert(), args=args)
    gathered = {"loss": "mmce:gather=true", "train_sampling_strategy": "batch_rebalance"}
    arguments(tmp_path, **gathered)  # one process gathers nothing
    args = arguments(tmp_path, average_tokens_across_devices=False, loss_reduction="sum")
    FocalTrainer(model=tiny_bert(), args=args)  # one process has them all
    monkeypatch.setattr(FocalTrainingArguments, "world_size", 2)
    with pytest.raises(ValueError, match=r"average_tokens_across_devices must be True with loss_reduction='sum'"):
        FocalTrainer(model=tiny_bert(), args=args)
    with pytest.raises(ValueError, match=r"must not be 'batch_rebalance' with loss mmce:gather=true"):
        arguments(tmp_path, **gathered)
    arguments(tmp_path, **gathered | {"loss": "mmce"})


def test_other_arguments_and_a_loss_beside_the_argument(tmp_path):
    with pytest.raises(TypeError, match="args must be FocalTrainingArguments, got TrainingArguments"):
        FocalTrainer(model=tiny_bert(), args=TrainingArguments(**settings(tmp_path)))
    with pytest.raises(ValueError, match=r"compute_loss_func must be None, got one: the loss is args.loss"):
        trainer_of(tmp_path, compute_loss_func=print)
    position = list(signature(Trainer.__init__).parameters).index("compute_loss_func") - 1
    with pytest.raises(ValueError, match=r"compute_loss_func must be None, got one: the loss is args.loss"):
        FocalTrainer(tiny_bert(), arguments(tmp_path), *[None] * (position - 2), print)


# Data


def with_labels(*labels):
    return [row | {"labels": label} for row, label in zip(rows(len(labels)), labels, strict=True)]


@pytest.mark.parametrize(
    ("data", "name"),
    [
        ({"train_dataset": []}, "train_dataset"),
        ({"eval_dataset": []}, "eval_dataset"),
        ({"eval_dataset": {"near": rows(2), "far": []}}, r"eval_dataset\['far'\]"),
    ],
)
def test_empty_datasets(data, name, tmp_path):
    with pytest.raises(ValueError, match=f"{name} must hold at least one sample, got an empty dataset"):
        trainer_of(tmp_path, **data)


@pytest.mark.parametrize("epochs", [1, 3])
def test_labels_that_all_count_for_nothing(epochs, tmp_path):
    options = {"num_train_epochs": epochs, "logging_steps": 100}
    with pytest.raises(ValueError, match="train_dataset must have labels other than -100, got none in a whole epoch"):
        trainer_of(tmp_path, train_dataset=with_labels(-100), **options).train()
    # A step without labels is none of that.
    some = [*with_labels(-100), *rows(1)]
    trainer_of(tmp_path, train_dataset=some, per_device_train_batch_size=1, **options).train()


@pytest.mark.parametrize("build", [tiny_bert, BagOfWords])
def test_labels_out_of_range(build, tmp_path):
    trainer = trainer_of(tmp_path, build(), train_dataset=with_labels(0, 4), eval_dataset=with_labels(-1, 2))
    for method, label in ((trainer.train, 4), (trainer.evaluate, -1)):
        with pytest.raises((ValueError, IndexError), match=rf"labels must be within \[0, 4\) for 4 .*got .*{label}"):
            method()


@pytest.mark.parametrize(
    ("train", "message"),
    [
        (with_labels(torch.tensor(1.0), torch.tensor(2.0)), "labels must be integer class indices, got torch.float32"),
        (UNLABELED, r"labels must be in the batch, got None: .*column 'label' or 'labels'"),
    ],
)
def test_labels_of_a_wrong_kind_or_none(train, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        trainer_of(tmp_path, train_dataset=train).train()


def test_data_that_nothing_is_measured_or_fitted_on(tmp_path):
    trainer = trainer_of(tmp_path)
    for measure, data, message in (
        (trainer.evaluate, [], "the dataset to measure must hold at least one sample"),
        (trainer.evaluate, UNLABELED, "the dataset to measure must have a column 'label' or 'labels'"),
        (trainer.fit_temperature, trainer.train_dataset, "dataset must be held out, got the training set"),
        (trainer.fit_temperature, [], "dataset must hold at least one sample, got an empty dataset"),
        (trainer.fit_temperature, UNLABELED, "the dataset to measure must have a column 'label' or 'labels', got"),
    ):
        with pytest.raises(ValueError, match=message):
            measure(data)
    with pytest.raises(ValueError, match="objective must be 'ece' or 'adaece' or 'nll', got 'nlll'"):
        trainer.fit_temperature(objective="nlll")
    with pytest.raises(ValueError, match="per_label must be False for a model with a softmax, got True"):
        trainer.fit_temperature(per_label=True)
    with pytest.raises(ValueError, match="dataset must be given, got None: there is no calibration_dataset or"):
        trainer_of(tmp_path, eval_dataset=None).fit_temperature()
    with pytest.raises(ValueError, match="must be one of the evaluation sets, got all of them: near, far"):
        trainer_of(tmp_path, eval_dataset={"near": rows(2), "far": rows(3)}).fit_temperature()
    assert trainer.fit is None


# Models


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_labels": 1}, "num_labels must be at least 2, got 1: set .*problem_type = 'multi_label_classification'"),
        ({"problem_type": "regression"}, "problem_type must be 'single_label_classification' or 'multi_label"),
    ],
)
def test_models_that_are_no_classifiers(options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        trainer_of(tmp_path, tiny_bert(**options))


class Spans(nn.Module):
    """A head of two rows of logits, of a class that says nothing."""

    def __init__(self):
        super().__init__()
        self.embeddings = nn.Embedding(30, 2)

    def forward(self, input_ids):
        start, end = self.embeddings(input_ids).unbind(-1)
        return {"start_logits": start, "end_logits": end}


def test_outputs_without_logits(tmp_path):
    message = r"model must have logits of the labels' classes.*got start_logits, end_logits"
    with pytest.raises(ValueError, match=message):
        trainer_of(tmp_path, Spans()).train()


def test_a_forward_that_requires_labels(tmp_path):
    class NeedsLabels(BagOfWords):
        def forward(self, input_ids, labels):
            return super().forward(input_ids, labels)

    message = r"model must have a forward pass without labels \(labels=None\), got NeedsLabels, which requires them"
    with pytest.raises(ValueError, match=message):
        trainer_of(tmp_path, NeedsLabels())


@pytest.mark.parametrize(
    "name", ["BertForSequenceClassification", "OwnForCausalLM", "OwnForMaskedLM", "ForCTC", "OwnForPrediction"]
)
def test_the_class_of_a_module_that_is_not_of_transformers_may_have_any_name(name, tmp_path):
    trainer = trainer_of(tmp_path, type(name, (BagOfWords,), {})())
    assert trainer.head is Head.CLASSES
    trainer.train()
    assert trainer.evaluate()["eval_num_samples"] == 5


MULTI_HOT = [[1, 0, 1, 0], [0, 1, 0, 0]]
ONE_HOT = [[1, 0, 0, 0], [0, 1, 0, 0]]


@pytest.mark.parametrize("build", [tiny_bert, BagOfWords])
@pytest.mark.parametrize(
    ("labels", "dtype"),
    [(MULTI_HOT, torch.float32), (MULTI_HOT, torch.int64), (ONE_HOT, torch.int64), (ONE_HOT, bool)],
)
def test_several_labels_per_sample_need_a_problem_type(labels, dtype, build, tmp_path):
    dtype = torch.bool if dtype is bool else dtype
    data = with_labels(*torch.tensor(labels, dtype=dtype))
    trainer = trainer_of(tmp_path, build(), train_dataset=data, eval_dataset=data[:1])
    for method in (trainer.train, trainer.evaluate):
        with pytest.raises(ValueError, match="problem_type = 'multi_label_classification'"):
            method()


def test_one_hot_rows_are_soft_targets_and_it_is_said_once(tmp_path, caplog):
    data = with_labels(*torch.tensor(ONE_HOT, dtype=torch.float64))
    message = (
        "they are soft targets of one softmax. If a sample can have several labels, set model.config.problem_type"
    )
    for options in ({}, {"problem_type": "single_label_classification"}):
        caplog.clear()
        trainer = trainer_of(tmp_path, tiny_bert(**options), train_dataset=data, num_train_epochs=2)
        trainer.train()
        assert caplog.text.count(message) == (not options)
    indices = trainer_of(tmp_path, tiny_bert(), train_dataset=with_labels(0, 1), num_train_epochs=2)
    indices.train()
    assert torch.allclose(weights(trainer.model), weights(indices.model), rtol=0, atol=1e-12)


def test_a_compute_loss_that_measures_nothing(tmp_path):
    class Own(FocalTrainer):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            outputs = model(**inputs)
            return (outputs["loss"], outputs) if return_outputs else outputs["loss"]

    trainer = trainer_of(tmp_path, trainer_class=Own)
    for measure in (trainer.evaluate, trainer.fit_temperature):
        with pytest.raises(TypeError, match=r"compute_loss of Own must call super\(\).compute_loss for metrics"):
            measure()


# Releases of PyTorch and Transformers that drop a private name: an error or a slower path, never another number


def test_checks_on_an_accelerator_wait_without_the_asynchronous_assertion(monkeypatch):
    class OnDevice:
        device = torch.device("cuda")
        untyped_storage = print

        def __bool__(self):
            return False

    seen = []
    monkeypatch.setattr(checks, "_assert_async", lambda *arguments: seen.append(arguments))
    checks.raise_unless(OnDevice(), "labels", "must be classes")
    assert len(seen) == 1
    monkeypatch.setattr(checks, "_assert_async", None)
    with pytest.raises(ValueError, match="labels must be classes"):
        checks.raise_unless(OnDevice(), "labels", "must be classes")


@pytest.mark.parametrize("name", ["_push_from_checkpoint", "save_model(_internal_call=...)"])
def test_a_trainer_needs_its_private_names(name, monkeypatch, tmp_path):
    if name.startswith("save_model"):
        monkeypatch.setattr(Trainer, "save_model", lambda self, output_dir=None: None)
    else:
        monkeypatch.delattr(Trainer, name)
    with pytest.raises(RuntimeError, match=r"transformers .* has no Trainer\.") as raised:
        trainer_of(tmp_path)
    assert name in str(raised.value)
