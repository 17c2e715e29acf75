"""Models that answer in other shapes than a `ModelOutput` whose first key is `logits`, and batches of other shapes."""

import pytest
import torch
from test_focal_trainer import assert_has, reference_metrics
from tiny_models import EVAL, BagOfWords, logits_of, tensors, tiny_bert, trainer_of
from torch.nn import functional as F

from hf_focal import fit_temperature


class Answers(BagOfWords):
    """A `BagOfWords` that takes no labels and wraps its logits as told."""

    def __init__(self, wrap):
        super().__init__()
        self.wrap = wrap

    def forward(self, input_ids):
        features = self.embeddings(input_ids).mean(1)
        return self.wrap(self.classifier(features), features)


WRAPS = {
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


def test_soft_targets_are_measured_by_their_largest_class(tmp_path):
    soft = [{**row, "labels": 0.7 * F.one_hot(torch.tensor(row["labels"]), 4).double() + 0.075} for row in EVAL]
    trainer = trainer_of(tmp_path, BagOfWords(), loss="focal:gamma=1", train_dataset=soft, eval_dataset=soft)
    trainer.train()
    logits = logits_of(trainer.model, EVAL)
    assert_has(trainer.evaluate(), reference_metrics(logits, EVAL))
    assert trainer.fit_temperature([*soft]).value == fit_temperature(logits, tensors(EVAL)[1], "nll").value
