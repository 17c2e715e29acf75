"""What the trainer refuses, and that it says what to do instead."""

from inspect import signature

import pytest
import torch
import transformers
from tiny_models import BagOfWords, rows, settings, tiny_bert
from torch import nn
from transformers import Trainer, TrainingArguments

from hf_focal import FocalTrainer, FocalTrainingArguments
from hf_focal.tasks.heads import check_model


def arguments(folder, **options):
    return FocalTrainingArguments(**settings(folder, **options))


def trainer_of(folder, model=None, options=None, **kwargs):
    data = {"train_dataset": rows(8), "eval_dataset": rows(5, seed=1)} | kwargs
    return FocalTrainer(model=model or tiny_bert(), args=arguments(folder, **options or {}), **data)


def test_several_gpus_without_a_launcher(tmp_path):
    args = arguments(tmp_path)
    args._n_gpu = 2
    with pytest.raises(ValueError, match=r"n_gpu must be at most 1.*got 2.*accelerate launch --num_processes 2"):
        FocalTrainer(model=tiny_bert(), args=args)


def test_a_sum_without_the_other_processes(tmp_path, monkeypatch):
    args = arguments(tmp_path, average_tokens_across_devices=False, loss_reduction="sum")
    FocalTrainer(model=tiny_bert(), args=args)  # one process has them all
    monkeypatch.setattr(FocalTrainingArguments, "world_size", 2)
    with pytest.raises(ValueError, match=r"average_tokens_across_devices must be True with loss_reduction='sum'"):
        FocalTrainer(model=tiny_bert(), args=args)


def test_a_gathered_loss_of_unequal_batches(tmp_path, monkeypatch):
    options = {"loss": "mmce:gather=true", "train_sampling_strategy": "batch_rebalance"}
    arguments(tmp_path, **options)  # one process gathers nothing
    monkeypatch.setattr(FocalTrainingArguments, "world_size", 2)
    with pytest.raises(ValueError, match=r"must not be 'batch_rebalance' with loss mmce:gather=true"):
        arguments(tmp_path, **options)
    arguments(tmp_path, **options | {"loss": "mmce"})


def test_plain_training_arguments(tmp_path):
    with pytest.raises(TypeError, match="args must be FocalTrainingArguments, got TrainingArguments"):
        FocalTrainer(model=tiny_bert(), args=TrainingArguments(**settings(tmp_path)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"label_smoothing_factor": 0.1}, "label_smoothing_factor must be 0.*loss='label_smoothing:alpha=0.1'"),
        ({"loss": "focl"}, r"loss must be one of .*got 'focl': did you mean 'focal'\?"),
        ({"loss": "focal:gama=3"}, r"got 'gama': did you mean 'gamma'\?"),
        ({"loss_reduction": "none"}, "loss_reduction must be 'mean' or 'sum', got 'none'"),
        ({"calibration_bins": 0}, "calibration_bins must be a whole number of at least 1, got 0"),
        ({"gamma_update_steps": 0}, "gamma_update_steps must be a whole number of at least 1, got 0"),
        ({"gamma_update_steps": 2.5}, "gamma_update_steps must be a whole number of at least 1, got 2.5"),
        ({"calibration_bins": 15.5}, "calibration_bins must be a whole number of at least 1, got 15.5"),
        ({"label_names": ["target"]}, r"label_names must be \['labels'\], got \['target'\]"),
        (
            {"loss": "focal:schedule=5/3/2", "load_best_model_at_end": True, "metric_for_best_model": "loss"},
            "metric_for_best_model must not be the loss, got 'loss'",
        ),
        *(
            ({"metric_for_best_model": name}, f"metric_for_best_model must be .* got '{name}': T is fitted afterwards")
            for name in ("eval_ece_post_t", "nll_incorrect")
        ),
    ],
)
def test_arguments(options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        arguments(tmp_path, **options)


def test_a_loss_beside_the_argument(tmp_path):
    def mean(outputs, labels, num_items_in_batch=None):
        return None

    with pytest.raises(ValueError, match=r"compute_loss_func must be None, got one: the loss is args.loss"):
        trainer_of(tmp_path, compute_loss_func=mean)
    position = list(signature(Trainer.__init__).parameters).index("compute_loss_func") - 1
    with pytest.raises(ValueError, match=r"compute_loss_func must be None, got one: the loss is args.loss"):
        FocalTrainer(tiny_bert(), arguments(tmp_path), *[None] * (position - 2), mean)


@pytest.mark.parametrize(
    ("datasets", "name"),
    [
        ({"train_dataset": []}, "train_dataset"),
        ({"eval_dataset": []}, "eval_dataset"),
        ({"eval_dataset": {"near": rows(2), "far": []}}, r"eval_dataset\['far'\]"),
    ],
)
def test_empty_datasets(datasets, name, tmp_path):
    with pytest.raises(ValueError, match=f"{name} must hold at least one sample, got an empty dataset"):
        trainer_of(tmp_path, **datasets)


def with_labels(*labels):
    return [row | {"labels": label} for row, label in zip(rows(len(labels)), labels, strict=True)]


@pytest.mark.parametrize("epochs", [1, 3])
def test_labels_that_all_count_for_nothing(epochs, tmp_path):
    options = {"num_train_epochs": epochs, "logging_steps": 100}
    with pytest.raises(ValueError, match="train_dataset must have labels other than -100, got none in a whole epoch"):
        trainer_of(tmp_path, options=options, train_dataset=with_labels(-100)).train()
    # A step without labels is none of that.
    some = [*with_labels(-100), *rows(1)]
    trainer_of(tmp_path, options=options | {"per_device_train_batch_size": 1}, train_dataset=some).train()


@pytest.mark.parametrize("build", [tiny_bert, BagOfWords])
def test_labels_out_of_range(build, tmp_path):
    trainer = trainer_of(tmp_path, build(), train_dataset=with_labels(0, 4), eval_dataset=with_labels(-1, 2))
    with pytest.raises((ValueError, IndexError), match=r"labels must be within \[0, 4\) for 4 classes.*got .*4"):
        trainer.train()
    with pytest.raises((ValueError, IndexError), match=r"labels must be within \[0, 4\) for 4 classes.*got .*-1"):
        trainer.evaluate()


def test_labels_of_a_wrong_kind_or_none(tmp_path):
    floats = with_labels(torch.tensor(1.0), torch.tensor(2.0))
    with pytest.raises(ValueError, match=r"labels must be integer class indices, got torch.float32"):
        trainer_of(tmp_path, train_dataset=floats).train()
    unlabelled = [{"input_ids": row["input_ids"]} for row in rows(4)]
    with pytest.raises(ValueError, match=r"labels must be in the batch, got None: .*column 'label' or 'labels'"):
        trainer_of(tmp_path, train_dataset=unlabelled).train()


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


SMALL = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
SMALL["num_conv_pos_embedding_groups"] = 2


def head_without_softmax(name):
    model = getattr(transformers, name)
    return model(model.config_class(**SMALL, vocab_size=30))


@pytest.mark.parametrize(
    "name", ["LxmertForQuestionAnswering", "YolosForObjectDetection", "HubertForCTC", "ViltForQuestionAnswering"]
)
def test_heads_without_a_softmax(name, tmp_path):
    with torch.device("meta"):
        model = head_without_softmax(name)
    with pytest.raises(
        ValueError, match=f"model must be a classifier.*, got {name}: its head has no softmax over the la"
    ):
        check_model(model)


def test_regression_of_tokens():
    model = transformers.BertForTokenClassification(transformers.BertConfig(**SMALL, num_labels=1))
    with pytest.raises(ValueError, match="num_labels must be at least 2, got 1: set model"):
        check_model(model)


class Spans(nn.Module):
    """A head of two rows of logits, of a class that says nothing."""

    def __init__(self):
        super().__init__()
        self.embeddings = nn.Embedding(30, 2)

    def forward(self, input_ids):
        start, end = self.embeddings(input_ids).unbind(-1)
        return {"start_logits": start, "end_logits": end}


def test_outputs_without_logits(tmp_path):
    with pytest.raises(
        ValueError, match=r"model must have logits of the labels' classes.*got start_logits, end_logits"
    ):
        trainer_of(tmp_path, Spans()).train()


def test_a_compute_loss_that_measures_nothing(tmp_path):
    class Own(FocalTrainer):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            outputs = model(**inputs)
            return (outputs["loss"], outputs) if return_outputs else outputs["loss"]

    trainer = Own(model=tiny_bert(), args=arguments(tmp_path), train_dataset=rows(8), eval_dataset=rows(5, seed=1))
    for measure in (trainer.evaluate, trainer.fit_temperature):
        with pytest.raises(TypeError, match=r"compute_loss of Own must call super\(\).compute_loss for metrics"):
            measure()


def test_data_that_no_temperature_is_fitted_on(tmp_path):
    trainer = trainer_of(tmp_path)
    with pytest.raises(ValueError, match="dataset must be held out, got the training set"):
        trainer.fit_temperature(trainer.train_dataset)
    with pytest.raises(ValueError, match="dataset must hold at least one sample, got an empty dataset"):
        trainer.fit_temperature([])
    with pytest.raises(ValueError, match="the dataset to measure must have a column 'label' or 'labels', got"):
        trainer.fit_temperature([{"input_ids": row["input_ids"]} for row in rows(4)])
    with pytest.raises(ValueError, match="dataset must be given, got None: there is no calibration_dataset or"):
        trainer_of(tmp_path, eval_dataset=None).fit_temperature()
    with pytest.raises(ValueError, match="must be one of the evaluation sets, got all of them: near, far"):
        trainer_of(tmp_path, eval_dataset={"near": rows(2), "far": rows(3)}).fit_temperature()
    assert trainer.temperature is None
