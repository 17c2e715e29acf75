"""AdaFocal in FocalTrainer: when γ moves, by what, and where it is kept."""

import json
import logging

import pytest
import tiny_models
import torch
from datasets import Dataset, DatasetDict
from tiny_models import BagOfWords, StopAt, Stream, assert_exact, logits_of, rows, sgd_step, tensors, untimed, weights
from transformers import TrainerCallback
from transformers.trainer_jit_checkpoint import JITCheckpointCallback

from hf_focal import build_loss, fit_temperature
from hf_focal.trainer import gamma_history

LOSS = "adafocal:bins=3"
CALIBRATION = rows(33, seed=2)
# The NLL falls, so its largest value is that of the first epoch.
BEST_IS_FIRST = {"eval_strategy": "epoch", "save_strategy": "epoch", "load_best_model_at_end": True}
BEST_IS_FIRST |= {"eval_dataset": CALIBRATION, "metric_for_best_model": "nll", "greater_is_better": True}


def trainer_of(folder, **options):
    # 5 steps an epoch, the last one of 3 rows.
    defaults = {"loss": LOSS, "num_train_epochs": 3, "train_sampling_strategy": "sequential"}
    defaults |= {"train_dataset": rows(35), "calibration_dataset": CALIBRATION}
    return tiny_models.trainer_of(folder, BagOfWords(), **defaults | options)


def trained(folder, **options):
    trainer = trainer_of(folder, **options)
    trainer.train()
    return trainer


def history(trainer):
    return gamma_history(trainer.state.log_history)


def steps_of_updates(trainer):
    return [entry["step"] for entry in history(trainer)]


def samples(logits, labels):
    confidence, prediction = logits.softmax(-1).max(-1)
    return confidence, prediction == labels


def by_hand(steps_of_updates, num_steps=15):
    """Weights and γ of the plain loop: SGD over the rows in order, γ moved behind the given steps."""
    model, loss = BagOfWords(), build_loss(LOSS)
    ids, labels = tensors(rows(35))
    updates = []
    for step in range(num_steps):
        batch = slice(step % 5 * 8, min(step % 5 * 8 + 8, 35))
        loss(model(ids[batch])["logits"], labels[batch]).backward()
        sgd_step(model)
        if step + 1 in steps_of_updates:
            loss.policy.update(*samples(logits_of(model, CALIBRATION), tensors(CALIBRATION)[1]))
            updates.append({"gammas": loss.policy.gammas, "edges": loss.policy.edges})
    return weights(model), updates


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        ({}, [5, 10]),
        ({"gamma_update_steps": 4}, [4, 8, 12]),
        ({"train_dataset": Stream(rows(35)), "max_steps": 15, "gamma_update_steps": 5}, [5, 10]),
        ({"dataloader_persistent_workers": True, "dataloader_num_workers": 1, "eval_strategy": "epoch"}, [5, 10]),
    ],
    ids=["epochs", "4 steps", "stream", "persistent workers"],
)
def test_training_is_that_of_the_plain_loop(options, steps, tmp_path):
    trainer = trained(tmp_path, **options)
    expected, updates = by_hand(steps)
    assert_exact(weights(trainer.model), expected)
    actual = history(trainer)
    assert steps_of_updates(trainer) == steps
    if "max_steps" not in options:
        assert [entry["epoch"] for entry in actual] == [step / 5 for step in steps]
    for entry, update in zip(actual, updates, strict=True):
        assert entry["gammas"] == pytest.approx(update["gammas"], rel=0, abs=1e-12)
        assert entry["edges"] == pytest.approx(update["edges"], rel=0, abs=1e-12)
    assert max(abs(gamma - 1) for gamma in actual[-1]["gammas"]) > 0.1
    # Each set is measured by itself, also where workers keep a set from one evaluation to the next.
    assert trainer.fit_temperature().num_samples == 33
    assert [trainer.evaluate(*data)["eval_num_samples"] for data in ([], [rows(7)], [])] == [21, 7, 21]


class CountsForwards(TrainerCallback):
    """How many batches were predicted, by global step."""

    def __init__(self):
        self.batches = {}

    def on_prediction_step(self, args, state, control, **kwargs):
        self.batches[state.global_step] = self.batches.get(state.global_step, 0) + 1


@pytest.mark.slow
@pytest.mark.parametrize("when", [{"eval_strategy": "epoch"}, {"eval_strategy": "steps", "eval_steps": 5}])
def test_an_evaluation_of_the_same_data_serves_the_update(when, tmp_path):
    counts = CountsForwards()
    sets = {"eval_dataset": {"near": rows(21, seed=1), "held_out": CALIBRATION}, "calibration_dataset": "held_out"}
    shared, alone = trained(tmp_path, callbacks=[counts], **sets, **when), trained(tmp_path)
    assert counts.batches == {5: 3 + 5, 10: 3 + 5, 15: 3 + 5}
    # The evaluation behind the last step serves an update too, which costs nothing.
    assert [entry["gammas"] for entry in history(shared)][:2] == [entry["gammas"] for entry in history(alone)]
    assert steps_of_updates(shared) == [5, 10, 15]
    assert torch.equal(weights(shared.model), weights(alone.model))


def test_an_update_between_evaluations_takes_a_pass_of_its_own(tmp_path):
    counts = CountsForwards()
    options = {"eval_strategy": "steps", "eval_steps": 6, "gamma_update_steps": 3}
    trainer = trained(tmp_path, callbacks=[counts], eval_dataset=CALIBRATION, **options)
    assert steps_of_updates(trainer) == [3, 6, 9, 12, 15]
    assert counts.batches == {3: 5, 6: 5, 9: 5, 12: 5, 15: 5}
    assert_exact(weights(trainer.model), by_hand([3, 6, 9, 12])[0])


def test_gamma_is_measured_without_dropout_and_training_goes_on_with_it(tmp_path):
    class Dropout(BagOfWords):
        modes = ()

        def forward(self, input_ids, labels=None):
            self.modes += (self.training,)
            return super().forward(input_ids, labels)

    trainer = trainer_of(tmp_path)
    trainer.model = trainer.model_wrapped = Dropout()
    trainer.train()
    epoch, update = (True,) * 5, (False,) * 5
    assert trainer.model.modes == epoch + update + epoch + update + epoch


def test_an_evaluation_outside_of_training_moves_nothing(tmp_path):
    class Interrupt(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == 10:
                raise KeyboardInterrupt

    whole = trained(tmp_path, eval_dataset=CALIBRATION)
    interrupted = trainer_of(tmp_path, eval_dataset=CALIBRATION)
    interrupted.add_callback(Interrupt)  # when an update is due
    with pytest.raises(KeyboardInterrupt):
        interrupted.train()
    for trainer in (whole, interrupted):
        before = list(trainer.loss.policy.gammas)
        trainer.evaluate()
        trainer.evaluate(rows(33, seed=4))
        assert trainer.loss.policy.gammas == before != [1, 1, 1]
    assert len(history(whole)) == 2


def test_an_epoch_that_is_ended_early_moves_gamma_too(tmp_path):
    class EndEpoch(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            control.should_epoch_stop = True

    trainer = trained(tmp_path, callbacks=[EndEpoch()], max_steps=-1, num_train_epochs=4)
    assert steps_of_updates(trainer) == [1, 2, 3]


@pytest.mark.parametrize(("options", "every"), [({"num_train_epochs": 1}, 5), ({"gamma_update_steps": 15}, 15)])
def test_gamma_that_never_moves(options, every, tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        trained(tmp_path, **options)
    assert f"γ stays 1: AdaFocal updates it every {every} steps" in caplog.text
    caplog.clear()
    trained(tmp_path, gamma_update_steps=14)
    assert "γ stays 1" not in caplog.text


def test_a_second_training_begins_with_gamma_1(tmp_path):
    trainer = trained(tmp_path, num_train_epochs=1, eval_strategy="epoch", eval_dataset=CALIBRATION)
    first = history(trainer)
    trainer.model.load_state_dict(BagOfWords().state_dict())
    trainer.train()
    assert history(trainer) == first


def test_nothing_is_logged_where_nothing_shall_be_but_the_history_is_kept(tmp_path):
    names = []

    class Logs(TrainerCallback):
        def on_log(self, args, state, control, logs, **kwargs):
            names.extend(logs)

    trainer = trained(tmp_path, callbacks=[Logs()], logging_strategy="no")
    assert steps_of_updates(trainer) == [5, 10]
    assert [name for name in names if name.startswith("gamma")] == []


def test_the_data_of_the_update_is_also_that_of_the_temperature(tmp_path):
    expected = fit_temperature(logits_of(BagOfWords(), CALIBRATION), tensors(CALIBRATION)[1])
    assert trainer_of(tmp_path).fit_temperature().nll_before == pytest.approx(expected.nll_before, rel=0, abs=1e-12)


# Checkpoints


def test_the_history_of_a_checkpoint_has_its_bins_in_order(tmp_path):
    trainer = trained(tmp_path, loss="adafocal:bins=12", save_strategy="epoch")
    state = json.loads((tmp_path / "checkpoint-15" / "trainer_state.json").read_text(encoding="utf-8"))
    assert gamma_history(state["log_history"]) == history(trainer)
    assert history(trainer)[-1]["gammas"] == trainer.loss.policy.gammas
    assert history(trainer)[-1]["edges"] == trainer.loss.policy.edges


def test_checkpoints_have_gamma_and_what_is_due(tmp_path):
    trainer = trained(tmp_path, save_strategy="steps", save_steps=1, logging_steps=3)
    states = {}
    for step in (4, 5, 6):
        path = tmp_path / f"checkpoint-{step}" / "focal_state.json"
        states[step] = json.loads(path.read_text(encoding="utf-8"))
    gammas = {step: state["loss_state"]["_extra_state"]["gammas"] for step, state in states.items()}
    assert gammas == {4: [1, 1, 1], 5: [1, 1, 1], 6: history(trainer)[0]["gammas"]}
    assert {step: state["gamma_update_due"] for step, state in states.items()} == {4: False, 5: True, 6: False}
    assert {state["loss"] for state in states.values()} == {LOSS}


def assert_same_training(resumed, whole):
    assert torch.equal(weights(resumed.model), weights(whole.model))
    assert resumed.loss.state_dict() == whole.loss.state_dict()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "options"),
    [
        *((step, {}) for step in (3, 5, 10)),
        (7, {"restore_callback_states_from_checkpoint": True}),
        (5, {"eval_strategy": "epoch", "logging_strategy": "epoch"}),
        (7, {"eval_strategy": "steps", "eval_steps": 5, "gamma_update_steps": 4, "logging_steps": 4}),
        (7, {"loss": "focal:schedule=5/3/2", "logging_steps": 4}),
        (7, {"train_sampling_strategy": "random", "logging_steps": 2}),
        (3, {"train_sampling_strategy": "group_by_length"}),
    ],
)
def test_a_resumed_training_is_the_same(step, options, tmp_path, caplog):
    options = {"optim": "adamw_torch", "learning_rate": 0.01, "save_strategy": "steps", "save_steps": 1} | options
    whole, resumed = trained(tmp_path, **options), trainer_of(tmp_path, **options)
    with caplog.at_level(logging.WARNING):
        output = resumed.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{step}"))
    assert_same_training(resumed, whole)
    assert list(map(untimed, resumed.state.log_history)) == list(map(untimed, whole.state.log_history))
    assert output.training_loss == whole.state.log_history[-1]["train_loss"]
    assert "FocalTrainer" not in caplog.text and "Ignoring" not in caplog.text  # of restored callbacks


def test_a_stopped_training_can_be_made_longer(tmp_path):
    options = {"lr_scheduler_type": "constant", "save_strategy": "steps", "save_steps": 5}
    trained(tmp_path, num_train_epochs=2, **options)
    longer = trainer_of(tmp_path, **options)
    longer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-10"))
    assert_exact(weights(longer.model), by_hand([5, 10])[0])


@pytest.mark.parametrize("loss", [LOSS, "recall:ema=0.3"])
def test_what_is_saved_on_sigterm_has_what_the_end_of_the_step_changes(loss, tmp_path):
    class InStep5(TrainerCallback):
        def on_optimizer_step(self, args, state, control, **kwargs):
            if state.global_step == 4:
                callbacks = stopped.callback_handler.callbacks
                (saving,) = [callback for callback in callbacks if isinstance(callback, JITCheckpointCallback)]
                saving.jit_manager.is_checkpoint_requested = True

    options = {"loss": loss, "enable_jit_checkpoint": True}
    stopped = trainer_of(tmp_path, callbacks=[InStep5()], **options)
    stopped.train()
    assert stopped.state.global_step == 5
    whole, resumed = trained(tmp_path, **options), trainer_of(tmp_path, **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-5"))
    assert_same_training(resumed, whole)


def test_a_checkpoint_of_another_loss(tmp_path, caplog):
    options = {"save_strategy": "steps", "save_steps": 5}
    trained(tmp_path, loss="flsd53", callbacks=[StopAt(5)], **options)
    trainer = trainer_of(tmp_path, **options)
    with caplog.at_level(logging.WARNING):
        trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-5"))
    assert "training goes on with loss adafocal:bins=3 instead of flsd53" in caplog.text
    assert steps_of_updates(trainer) == [10]


@pytest.mark.parametrize("loss", [LOSS, "focal:schedule=5/3/2"])
def test_the_best_model_has_the_gamma_of_its_checkpoint(loss, tmp_path):
    trainer = trained(tmp_path, loss=loss, **BEST_IS_FIRST)
    assert trainer.state.best_model_checkpoint == str(tmp_path / "checkpoint-5")
    state = json.loads((tmp_path / "checkpoint-5" / "focal_state.json").read_text(encoding="utf-8"))["loss_state"]
    last = json.loads((tmp_path / "checkpoint-15" / "focal_state.json").read_text(encoding="utf-8"))["loss_state"]
    assert dict(trainer.loss.state_dict()) == state != last


def test_the_best_model_may_be_that_of_another_loss(tmp_path):
    trained(tmp_path, loss="flsd53", callbacks=[StopAt(5)], **BEST_IS_FIRST)
    trainer = trainer_of(tmp_path, **BEST_IS_FIRST)
    trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-5"))
    assert trainer.state.best_model_checkpoint == str(tmp_path / "checkpoint-5")
    assert trainer.loss.policy.gammas == history(trainer)[-1]["gammas"]


# The calibration set


def test_the_evaluation_set_serves_with_a_warning(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        trainer = trained(tmp_path, eval_dataset=CALIBRATION, calibration_dataset=None)
    assert "calibration_dataset is not given: AdaFocal updates γ by the calibration of eval_dataset" in caplog.text
    assert_exact(weights(trainer.model), by_hand([5, 10])[0])
    caplog.clear()
    trained(tmp_path, num_train_epochs=1)
    trained(tmp_path, loss="flsd53", num_train_epochs=1, calibration_dataset=None)
    assert "calibration_dataset" not in caplog.text


TRAIN, SETS = rows(16), {"near": CALIBRATION, "far": rows(9)}
REFUSED = [
    ({"calibration_dataset": rows(2)}, "must hold at least one labeled sample for each of the 3 bins, got 2"),
    ({"calibration_dataset": [row | {"labels": -100} for row in rows(9)]}, "for each of the 3 bins, got 0"),
    (
        {"calibration_dataset": [{"input_ids": row["input_ids"]} for row in rows(9)]},
        "must have a column 'label' or 'labels', got",
    ),
    (
        {"calibration_dataset": None, "eval_dataset": None},
        "must be given, got None: there is no calibration_dataset or eval_dataset",
    ),
    (
        {"calibration_dataset": None, "train_dataset": TRAIN, "eval_dataset": TRAIN},
        "must be held out, got the training set",
    ),
    ({"calibration_dataset": None, "eval_dataset": SETS}, "must be one of the evaluation sets.*near, far"),
]


@pytest.mark.parametrize(("data", "message"), REFUSED)
def test_calibration_sets_that_are_refused_before_anything_is_trained(data, message, tmp_path):
    trainer = trainer_of(tmp_path, **data)
    with pytest.raises(ValueError, match=f"calibration_dataset .*{message}"):
        trainer.train()
    assert trainer.state.global_step == 0


def dataset_of(samples):
    return Dataset.from_dict({name: [torch.as_tensor(row[name]).tolist() for row in samples] for name in samples[0]})


def test_calibration_sets_that_are_refused_at_once(tmp_path):
    twice = [dataset_of(rows(16)) for _ in range(2)]
    for data, message in (
        ({"train_dataset": TRAIN, "calibration_dataset": TRAIN}, "must be held out, got the training set"),
        ({"train_dataset": twice[0], "calibration_dataset": twice[1]}, "must be held out, got the training set"),
        ({"calibration_dataset": []}, "must hold at least one sample"),
        ({"eval_dataset": SETS, "calibration_dataset": "fra"}, r"must be .* evaluation sets \(near, far\), got 'fra'"),
    ):
        with pytest.raises(ValueError, match=f"calibration_dataset {message}"):
            trainer_of(tmp_path, **data)
    trainer_of(tmp_path, train_dataset=twice[0], calibration_dataset=twice[1].select(range(8)))
    with pytest.raises(ValueError, match="gamma_update_steps must be given for a train_dataset without a length"):
        trained(tmp_path, train_dataset=Stream(rows(35)), max_steps=8)


def test_a_dataset_dict_has_its_sets_too(tmp_path):
    sets = DatasetDict({"near": dataset_of(rows(21, seed=1)), "far": dataset_of(CALIBRATION)})
    data = {"train_dataset": dataset_of(rows(35)), "eval_dataset": sets, "calibration_dataset": "far"}
    trainer = trained(tmp_path, eval_strategy="epoch", **data)
    assert_exact(weights(trainer.model), by_hand([5, 10])[0])
    assert trainer.evaluate()["eval_far_num_samples"] == 33


def test_labels_that_are_ignored_count_for_nothing(tmp_path):
    calibration = [row | {"labels": -100 if index < 5 else row["labels"]} for index, row in enumerate(CALIBRATION)]
    ignoring = trained(tmp_path, num_train_epochs=2, calibration_dataset=calibration)
    without = trained(tmp_path, num_train_epochs=2, calibration_dataset=CALIBRATION[5:])
    for name in ("gammas", "edges"):
        assert history(ignoring)[0][name] == pytest.approx(history(without)[0][name], rel=0, abs=1e-12)
