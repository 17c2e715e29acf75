"""Models that answer in other shapes than a `ModelOutput` whose first key is `logits`, and batches of other shapes."""

import pytest
import torch
from test_focal_trainer import EVAL, assert_has, reference_metrics, trainer_of
from tiny_models import BagOfWords, logits_of, rows, settings, tensors, tiny_bert
from torch.nn import functional as F
from transformers import PrinterCallback, Trainer

from hf_focal import FocalTrainer, FocalTrainingArguments, fit_temperature, fold_temperature


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
    trainer = trainer_of(tmp_path, Answers(wrap), "flsd53", num_train_epochs=3)
    reference = trainer_of(tmp_path, BagOfWords(), "flsd53", num_train_epochs=3)
    trainer.train()
    reference.train()
    logits = logits_of(reference.model, EVAL)
    metrics = trainer.evaluate()
    assert_has(metrics, reference_metrics(logits, EVAL))
    assert trainer.fit_temperature(objective="nll").value == pytest.approx(
        fit_temperature(logits, tensors(EVAL)[1], objective="nll").value, rel=1e-9
    )
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

    trainer = trainer_of(tmp_path, BagOfWords(), other={"data_collator": one_row_a_token})
    assert trainer.evaluate()["eval_num_samples"] == 21 * 6
    assert trainer.fit_temperature().num_samples == 21 * 6


def test_soft_targets_are_measured_by_their_largest_class(tmp_path):
    soft = [{**row, "labels": 0.7 * F.one_hot(torch.tensor(row["labels"]), 4).double() + 0.075} for row in EVAL]
    trainer = trainer_of(tmp_path, BagOfWords(), "focal:gamma=1", train=soft, other={"eval_dataset": soft})
    trainer.train()
    logits = logits_of(trainer.model, EVAL)
    assert_has(trainer.evaluate(), reference_metrics(logits, EVAL))
    assert trainer.fit_temperature([*soft]).value == fit_temperature(logits, tensors(EVAL)[1], "nll").value


def test_a_temperature_ends_when_it_is_folded_or_the_model_trains_on(tmp_path):
    trainer = trainer_of(tmp_path)
    temperature = trainer.fit_temperature(objective="nll")
    after = trainer.evaluate()["eval_nll_post_t"]
    fold_temperature(trainer.model, temperature)
    folded = trainer.evaluate()
    assert folded["eval_nll"] == pytest.approx(after, rel=1e-12)
    assert "eval_nll_post_t" not in folded
    trainer.fit_temperature(objective="nll")
    assert "eval_nll_post_t" in trainer.evaluate()
    trainer.train()
    assert "eval_nll_post_t" not in trainer.evaluate()


def test_a_temperature_is_fitted_on_logits_whatever_predict_would_keep(tmp_path):
    options = {"preprocess_logits_for_metrics": lambda logits, labels: logits.argmax(-1)}
    plain = trainer_of(tmp_path).fit_temperature()
    assert trainer_of(tmp_path, other=options).fit_temperature() == plain
    assert trainer_of(tmp_path, prediction_loss_only=True).fit_temperature() == plain
    several = trainer_of(tmp_path, other={"eval_dataset": {"near": EVAL, "far": rows(9, seed=5)}})
    assert several.fit_temperature("near") == plain


def test_a_diverged_run_shows_it(tmp_path):
    model = BagOfWords()
    with torch.no_grad():
        model.classifier.bias.fill_(float("nan"))
    trained = trainer_of(tmp_path, model).train()
    assert trained.training_loss != trained.training_loss


def test_the_best_epoch_under_a_schedule_is_that_of_the_smallest_nll(tmp_path):
    options = {"eval_strategy": "epoch", "save_strategy": "epoch", "load_best_model_at_end": True}
    trainer = trainer_of(tmp_path, BagOfWords(), "focal:schedule=5/3/2", num_train_epochs=4, **options)
    trainer.train()
    measured = [logs["eval_nll"] for logs in trainer.state.log_history if "eval_nll" in logs]
    assert trainer.state.best_metric == min(measured)


def test_a_loss_that_a_search_sets_is_the_loss_that_trains(tmp_path):
    trainer = trainer_of(tmp_path, BagOfWords())
    trainer.args.loss = "brier"
    trainer.train()
    other = trainer_of(tmp_path, BagOfWords(), "brier")
    other.train()
    assert str(trainer.loss_config) == "brier"
    assert torch.equal(trainer.model.classifier.weight, other.model.classifier.weight)


@pytest.mark.parametrize("has_metrics", [False, True])
def test_a_search_minimizes_what_any_two_losses_have_in_common(has_metrics, tmp_path, monkeypatch):
    monkeypatch.setattr(Trainer, "hyperparameter_search", lambda self, *given, **options: (*given, options))
    other = {"compute_metrics": dict} if has_metrics else None
    trainer = trainer_of(tmp_path, BagOfWords(), "focal:gamma=5", other=other)
    own = [len, {"n_trials": 3}]
    assert [*trainer.hyperparameter_search(compute_objective=len, n_trials=3)][1:] == own
    if has_metrics:
        with pytest.raises(ValueError, match="compute_objective must be given with compute_metrics or several eval"):
            trainer.hyperparameter_search()
    else:  # the loss of a trial with another γ has another scale
        metrics = trainer.evaluate()
        assert trainer.hyperparameter_search()[1](metrics) == metrics["eval_nll"]


def test_positional_arguments_are_those_of_trainer(tmp_path):
    args = trainer_of(tmp_path).args
    collator = object()
    trainer = type(trainer_of(tmp_path))(BagOfWords(), args, collator, rows(4), EVAL)
    assert trainer.data_collator is collator and trainer.eval_dataset is EVAL


def test_sets_that_cannot_be_measured_are_refused(tmp_path):
    trainer = trainer_of(tmp_path)
    with pytest.raises(ValueError, match="the dataset to measure must hold at least one sample"):
        trainer.evaluate([])
    with pytest.raises(ValueError, match="the dataset to measure must have a column 'label' or 'labels'"):
        trainer.evaluate([{"input_ids": row["input_ids"]} for row in rows(4)])
    with pytest.raises(ValueError, match="objective must be 'ece' or 'adaece' or 'nll', got 'nlll'"):
        trainer.fit_temperature(objective="nlll")


@pytest.mark.parametrize("disable_tqdm", [True, False])
def test_training_prints_a_line_an_evaluation(disable_tqdm, tmp_path, capsys):
    options = {"num_train_epochs": 3, "logging_strategy": "epoch", "disable_tqdm": disable_tqdm}
    trainer = trainer_of(tmp_path, eval_strategy="epoch", **options)
    trainer.train()
    *lines, end = [line for line in capsys.readouterr().out.splitlines() if line.strip()]
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    figures = [entry for entry in trainer.state.log_history if "eval_ece" in entry]
    assert lines == [
        f"epoch {number}: training loss {loss:.4f}, eval NLL {entry['eval_nll']:.4f}, error "
        f"{100 * entry['eval_error']:.2f}%, ECE {100 * entry['eval_ece']:.2f}%, "
        f"AdaECE {100 * entry['eval_adaece']:.2f}%"
        for number, loss, entry in zip((1, 2, 3), losses, figures, strict=True)
    ]
    assert end.startswith("epoch 3: trained in ")
    alone = trainer_of(tmp_path, **options)
    alone.train()
    lines = [line for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert lines[0].startswith("epoch 1: training loss ") and len(lines) == 4


def test_a_printer_of_the_user_still_prints(tmp_path, capsys):
    trainer = trainer_of(tmp_path, logging_strategy="epoch", num_train_epochs=1)
    trainer.add_callback(PrinterCallback)
    trainer.train()
    assert "'learning_rate'" in capsys.readouterr().out


def test_the_progress_bar_of_a_fit_does_not_go_on_in_the_next_pass(tmp_path, capsys):
    trainer = trainer_of(tmp_path, disable_tqdm=False)
    trainer.fit_temperature()
    trainer.predict(rows(40))
    printed = capsys.readouterr().err
    assert "5/5" in printed and "it [" not in printed  # tqdm drops a total that is overrun


def test_a_loader_of_the_user(tmp_path):
    class WithLoader(FocalTrainer):
        def get_train_dataloader(self):
            return torch.utils.data.DataLoader(self.train_dataset, batch_size=4, collate_fn=self.data_collator)

    args = FocalTrainingArguments(**settings(tmp_path, num_train_epochs=2))
    trainer = WithLoader(model=tiny_bert(), args=args, train_dataset=rows(10))
    assert trainer.train().global_step == 6
