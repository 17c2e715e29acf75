"""Models that answer in other shapes than a `ModelOutput` whose first key is `logits`, and batches of other shapes."""

import pytest
import torch
from test_focal_trainer import assert_has, reference_metrics
from tiny_models import EVAL, BagOfWords, assert_exact, logits_of, tensors, tiny_bert, trainer_of, weights
from torch.nn import functional as F

from hf_focal import FocalTrainer, fit_temperature


class Answers(BagOfWords):
    """A `BagOfWords` that takes no labels and wraps its logits as told."""

    def __init__(self, wrap):
        super().__init__()
        self.wrap = wrap

    def forward(self, input_ids):
        features = self.embeddings(input_ids).mean(1)
        return self.wrap(self.classifier(features), features)


WRAPS = {
    "a tuple after an empty place for the loss": lambda logits, features: (None, logits),
    "a tuple after a constant loss": lambda logits, features: (logits.new_zeros(()), logits, features[:, :4]),
    "a mapping with an empty place for the loss": lambda logits, features: {"loss": None, "logits": logits},
    "a tuple of one": lambda logits, features: (logits,),
    "a tuple with features": lambda logits, features: (logits, features[:, :4]),
    "a mapping with logits last": lambda logits, features: {"features": features[:, :4], "logits": logits},
    "the logits themselves": lambda logits, features: logits,
}


@pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS)
def test_any_answer_is_trained_and_measured_by_its_logits(wrap, tmp_path):
    trainer, reference = (trainer_of(tmp_path, model, loss="flsd53") for model in (Answers(wrap), BagOfWords()))
    trainer.train()
    reference.train()
    logits = logits_of(reference.model, EVAL)
    assert_has(trainer.evaluate(), reference_metrics(logits, EVAL))
    assert trainer.fit_temperature().value == pytest.approx(reference.fit_temperature().value, rel=1e-9)
    predictions = trainer.predict(EVAL).predictions
    predictions = predictions if isinstance(predictions, tuple) else (predictions,)
    assert any(
        part.shape == logits.shape and (torch.tensor(part) - logits).abs().max() < 1e-12 for part in predictions
    )


@pytest.mark.parametrize("name", [name for name in WRAPS if "loss" in name])
def test_unlabeled_samples_are_predicted_without_the_place_for_the_loss(name, tmp_path):
    trainer = trainer_of(tmp_path, Answers(WRAPS[name]))
    predictions = trainer.predict([{"input_ids": row["input_ids"]} for row in EVAL]).predictions
    first = predictions[0] if isinstance(predictions, tuple) else predictions
    assert_exact(torch.tensor(first), logits_of(BagOfWords(), EVAL))


def test_a_bert_that_answers_with_tuples_is_measured(tmp_path):
    metrics = trainer_of(tmp_path, tiny_bert(return_dict=False)).evaluate()
    assert_has(metrics, reference_metrics(logits_of(tiny_bert(), EVAL), EVAL))


def test_every_row_of_a_collator_that_makes_more_rows_than_samples_counts(tmp_path):
    def one_row_a_token(samples):
        ids, labels = tensors(samples)
        return {"input_ids": ids.reshape(-1, 1), "labels": labels.repeat_interleave(ids.shape[1])}

    trainer = trainer_of(tmp_path, BagOfWords(), data_collator=one_row_a_token)
    assert trainer.evaluate()["eval_num_samples"] == 21 * 6
    assert trainer.fit_temperature().num_samples == 21 * 6


class TwoPasses(FocalTrainer):
    """R-Drop: two passes over each batch, and their difference in the loss."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        first, outputs = super().compute_loss(model, inputs, True, num_items_in_batch)
        second, _ = super().compute_loss(model, inputs, True, num_items_in_batch)
        return ((first + second) / 2, outputs) if return_outputs else (first + second) / 2


class DoubledBatch(FocalTrainer):
    """R-Drop with one pass over each batch and its copy."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        doubled = {name: torch.cat([value, value]) for name, value in inputs.items()}
        loss, outputs = super().compute_loss(model, doubled, True, num_items_in_batch)
        return (loss / 2, outputs) if return_outputs else loss / 2


class WithTeacher(FocalTrainer):
    """Another model runs first."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        super().compute_loss(TEACHER, inputs, True, num_items_in_batch)
        return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)


TEACHER = BagOfWords()
with torch.no_grad():
    TEACHER.classifier.weight.neg_()


@pytest.mark.parametrize("trainer_class", [TwoPasses, DoubledBatch, WithTeacher])
def test_several_passes_over_a_batch_measure_it_once(trainer_class, tmp_path):
    trainer, reference = (trainer_of(tmp_path, BagOfWords(), kind) for kind in (trainer_class, FocalTrainer))
    trainer.train()
    reference.train()
    assert_exact(weights(trainer.model), weights(reference.model))
    metrics = trainer.evaluate()
    assert metrics["eval_num_samples"] == len(EVAL)
    assert_has(metrics, reference_metrics(logits_of(reference.model, EVAL), EVAL))
    assert trainer.fit_temperature().to_dict() == reference.fit_temperature().to_dict()


def test_a_pass_over_other_samples_is_not_measured(tmp_path):
    class Shuffled(FocalTrainer):
        def compute_loss(self, model, inputs, *args, **kwargs):
            more = {name: value.repeat_interleave(2, 0) for name, value in inputs.items()}
            return super().compute_loss(model, more, *args, **kwargs)

    message = "compute_loss must get the 8 samples of an evaluation's batch, or inputs that begin with them, got 16"
    with pytest.raises(ValueError, match=message):
        trainer_of(tmp_path, BagOfWords(), Shuffled).evaluate()


def test_soft_targets_are_measured_by_their_largest_class(tmp_path):
    soft = [{**row, "labels": 0.7 * F.one_hot(torch.tensor(row["labels"]), 4).double() + 0.075} for row in EVAL]
    trainer = trainer_of(tmp_path, BagOfWords(), loss="focal:gamma=1", train_dataset=soft, eval_dataset=soft)
    trainer.train()
    logits = logits_of(trainer.model, EVAL)
    assert_has(trainer.evaluate(), reference_metrics(logits, EVAL))
    assert trainer.fit_temperature([*soft]).value == fit_temperature(logits, tensors(EVAL)[1], "nll").value
