"""How many training labels of each class there are, from whatever the trainer is given."""

import datasets
import numpy as np
import pytest
import tiny_models
import torch
from tiny_models import NUM_LABELS, BagOfWords, Stream, logits_of, rows, tensors, tiny_bert
from torch.nn import functional as F
from torch.utils.data import Dataset
from transformers import default_data_collator

from hf_focal.losses import class_balanced_weights
from hf_focal.trainer import class_counts as module

DATA = rows(45)
EXPECTED = np.bincount([row["labels"] for row in DATA], minlength=NUM_LABELS).tolist()


def trainer_of(folder, dataset, model=BagOfWords, **options):
    options = {"loss": "class_balanced:beta=0.9", "train_dataset": dataset, "eval_dataset": None} | options
    return tiny_models.trainer_of(folder, model(), **options)


def counts(folder, dataset, **options):
    trainer = trainer_of(folder, dataset, **options)
    return trainer.class_counts(trainer.get_train_dataloader())


class Plain(Dataset):
    """`DATA`, without a column."""

    def __len__(self):
        return len(DATA)

    def __getitem__(self, index):
        return DATA[index]


class WithLabels(Plain):
    """What says its labels, and would not be asked for rows."""

    def __init__(self):
        self.labels = torch.tensor([row["labels"] for row in DATA])

    def __getitem__(self, index):
        raise AssertionError("the labels are known")


def as_columns(name="labels", labels=None):
    labels = [row["labels"] for row in DATA] if labels is None else labels
    return datasets.Dataset.from_dict({"input_ids": [row["input_ids"].tolist() for row in DATA], name: labels})


@pytest.mark.parametrize(
    "dataset",
    [DATA, Plain(), WithLabels(), as_columns("label"), as_columns().with_format("torch")],
    ids=["list", "dataset", "labels known", "column label", "tensors"],
)
def test_each_label_is_counted_once_and_nothing_is_drawn_from_the_global_generator(dataset, tmp_path):
    trainer = trainer_of(tmp_path, dataset)
    loader, before = trainer.get_train_dataloader(), torch.get_rng_state()
    assert trainer.class_counts(loader) == EXPECTED
    assert torch.equal(torch.get_rng_state(), before)


def test_a_column_is_read_as_it_was_selected_and_nothing_is_collated(tmp_path, monkeypatch):
    dataset = as_columns().cast_column("labels", datasets.ClassLabel(num_classes=NUM_LABELS)).shuffle(seed=0)
    dataset = dataset.select(range(20))
    trainer = trainer_of(tmp_path, dataset)
    loader = trainer.get_train_dataloader()
    monkeypatch.setattr(module, "DataLoader", None)
    assert trainer.class_counts(loader) == np.bincount(dataset["labels"][:], minlength=NUM_LABELS).tolist()


def test_labels_of_tokens_are_counted_but_for_those_to_be_ignored(tmp_path):
    labels = [[-100, row["labels"], 1, 1, -100, 0] for row in DATA]
    expected = np.bincount([label for row in labels for label in row if label >= 0])
    assert counts(tmp_path, as_columns(labels=labels)) == expected.tolist()
    pixels = [[row, row] for row in labels]
    assert counts(tmp_path, as_columns(labels=pixels)) == (2 * expected).tolist()


def takes_label(samples):
    """As `DataCollatorWithPadding` does; the default collator takes "labels"."""
    return default_data_collator([{"input_ids": row["input_ids"], "label": row["label"]} for row in samples])


def test_what_batches_show_is_counted(tmp_path):
    both = as_columns().add_column("label", [3 - row["labels"] for row in DATA])
    assert counts(tmp_path, both) == EXPECTED
    assert counts(tmp_path, both, data_collator=takes_label) == EXPECTED[::-1]
    turned = as_columns().with_transform(lambda batch: {**batch, "labels": [3 - y for y in batch["labels"]]})
    assert counts(tmp_path, turned) == EXPECTED[::-1]


@pytest.mark.parametrize("dataset", [None, Stream(DATA), DATA])
def test_evaluations_and_trainings_weigh_classes_by_the_training_set_if_there_is_one(dataset, tmp_path):
    data, trainer = rows(5, seed=1), trainer_of(tmp_path, dataset, tiny_bert, max_steps=1)
    assert trainer.loss.weights is None
    logits, labels = logits_of(trainer.model, data), tensors(data)[1]
    weight = torch.tensor(class_balanced_weights(EXPECTED, 0.9) if dataset is DATA else [1.0] * NUM_LABELS)[labels]
    expected = (weight * F.cross_entropy(logits, labels, reduction="none")).mean()
    assert trainer.evaluate(data)["eval_loss"] == pytest.approx(float(expected), rel=1e-6)
    if dataset is DATA:
        trainer.train()
        assert trainer.loss.weights == class_balanced_weights(EXPECTED, 0.9)


def test_given_weights_need_no_counts(tmp_path):
    trainer = trainer_of(tmp_path, Stream(DATA), loss="class_balanced:weights=1/2/3/4", max_steps=2)
    trainer.train()
    assert trainer.loss.weights == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        (Stream(DATA), "train_dataset must have a length with loss class_balanced:beta=0.9, .*, got Stream, a stream"),
        ([{"input_ids": DATA[0]["input_ids"]}], "train_dataset must have a column 'label' or 'labels', got input_ids"),
        (
            as_columns(labels=[[0.25] * NUM_LABELS for _ in DATA]),
            r"labels must be class indices to be counted, got torch\.float32",
        ),
        (as_columns(labels=[-1] * len(DATA)), "labels must be class indices, or -100 to be ignored, got -1"),
    ],
    ids=["stream", "no labels", "soft targets", "negative"],
)
def test_what_cannot_be_counted_is_refused(dataset, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        trainer_of(tmp_path, dataset, max_steps=2).train()
