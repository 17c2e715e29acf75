"""AdaFocal in FocalTrainer: when γ moves, by what, and where it is kept."""

import json
import logging

import pytest
import torch
from datasets import Dataset, DatasetDict
from tiny_models import BagOfWords, StopAt, logits_of, rows, settings, tensors, weights
from torch.utils.data import IterableDataset
from transformers import TrainerCallback
from transformers.trainer_jit_checkpoint import JITCheckpointCallback

from hf_focal import FocalTrainer, FocalTrainingArguments, build_loss, fit_temperature
from hf_focal.losses import adafocal_update
from hf_focal.trainer import gamma_history

LOSS = "adafocal:bins=3"
CALIBRATION = rows(33, seed=2)


def trainer_of(folder, train=None, callbacks=None, other=None, **options):
    # 5 steps an epoch, the last one of 3 rows.
    args = FocalTrainingArguments(
        **settings(folder, loss=LOSS, num_train_epochs=3, train_sampling_strategy="sequential") | options
    )
    return FocalTrainer(
        model=BagOfWords(),
        args=args,
        train_dataset=rows(35) if train is None else train,
        callbacks=callbacks,
        **{"eval_dataset": rows(21, seed=1), "calibration_dataset": CALIBRATION} | (other or {}),
    )


def history(trainer):
    return gamma_history(trainer.state.log_history)


def samples(logits, labels):
    confidence, prediction = logits.softmax(-1).max(-1)
    return confidence, prediction == labels


def by_hand(steps_of_updates, num_steps):
    """Weights and γ of the plain loop: SGD over the rows in order, γ moved behind the given steps."""
    model, loss = BagOfWords(), build_loss(LOSS)
    ids, labels = tensors(rows(35))
    updates = []
    for step in range(num_steps):
        batch = slice(step % 5 * 8, min(step % 5 * 8 + 8, 35))
        loss(model(ids[batch])["logits"], labels[batch]).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.5 * parameter.grad
                parameter.grad = None
        if step + 1 in steps_of_updates:
            loss.policy.update(*samples(logits_of(model, CALIBRATION), tensors(CALIBRATION)[1]))
            updates.append({"gammas": loss.policy.gammas, "edges": loss.policy.edges})
    return weights(model), updates


@pytest.mark.parametrize(
    ("options", "steps"),
    [({}, [5, 10]), ({"gamma_update_steps": 4}, [4, 8, 12]), ({"gamma_update_steps": 5}, [5, 10])],
    ids=["epochs", "4 steps", "5 steps"],
)
def test_training_is_that_of_the_plain_loop(options, steps, tmp_path):
    trainer = trainer_of(tmp_path, **options)
    trainer.train()
    expected, updates = by_hand(steps, 15)
    torch.testing.assert_close(weights(trainer.model), expected, rtol=0, atol=1e-12)
    found = history(trainer)
    assert [entry["step"] for entry in found] == steps
    assert [entry["epoch"] for entry in found] == [step / 5 for step in steps]
    for entry, update in zip(found, updates, strict=True):
        assert entry["gammas"] == pytest.approx(update["gammas"], rel=0, abs=1e-12)
        assert entry["edges"] == pytest.approx(update["edges"], rel=0, abs=1e-12)
    assert max(abs(gamma - 1) for gamma in found[-1]["gammas"]) > 0.1


class CountsForwards(TrainerCallback):
    """How many batches were predicted, by global step."""

    def __init__(self):
        self.batches = {}

    def on_prediction_step(self, args, state, control, **kwargs):
        self.batches[state.global_step] = self.batches.get(state.global_step, 0) + 1


@pytest.mark.parametrize("when", [{"eval_strategy": "epoch"}, {"eval_strategy": "steps", "eval_steps": 5}])
def test_an_evaluation_of_the_same_data_serves_the_update(when, tmp_path):
    counts = CountsForwards()
    other = {"eval_dataset": {"near": rows(21, seed=1), "held_out": CALIBRATION}, "calibration_dataset": "held_out"}
    shared = trainer_of(tmp_path, callbacks=[counts], other=other, **when)
    shared.train()
    assert counts.batches == {5: 3 + 5, 10: 3 + 5, 15: 3 + 5}
    alone = trainer_of(tmp_path)
    alone.train()
    # The evaluation behind the last step serves an update too, which costs nothing.
    assert [entry["gammas"] for entry in history(shared)][:2] == [entry["gammas"] for entry in history(alone)]
    assert [entry["step"] for entry in history(shared)] == [5, 10, 15]
    assert torch.equal(weights(shared.model), weights(alone.model))


def test_an_update_between_evaluations_takes_a_pass_of_its_own(tmp_path):
    counts = CountsForwards()
    options = {"eval_strategy": "steps", "eval_steps": 6, "gamma_update_steps": 3}
    trainer = trainer_of(tmp_path, callbacks=[counts], other={"eval_dataset": CALIBRATION}, **options)
    trainer.train()
    assert [entry["step"] for entry in history(trainer)] == [3, 6, 9, 12, 15]
    assert counts.batches == {3: 5, 6: 5, 9: 5, 12: 5, 15: 5}
    expected, _ = by_hand([3, 6, 9, 12], 15)
    torch.testing.assert_close(weights(trainer.model), expected, rtol=0, atol=1e-12)


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
    trainer = trainer_of(tmp_path, other={"eval_dataset": CALIBRATION})
    trainer.train()
    before = list(trainer.loss.policy.gammas)
    trainer.evaluate()
    trainer.evaluate(rows(33, seed=4))
    assert trainer.loss.policy.gammas == before
    assert len(history(trainer)) == 2


def test_an_interrupted_training_owes_nothing(tmp_path):
    class Interrupt(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == 10:
                raise KeyboardInterrupt

    trainer = trainer_of(tmp_path, other={"eval_dataset": CALIBRATION})
    trainer.add_callback(Interrupt)
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    before = list(trainer.loss.policy.gammas)
    trainer.evaluate()
    assert trainer.loss.policy.gammas == before != [1, 1, 1]


def test_an_epoch_that_is_ended_early_moves_gamma_too(tmp_path):
    class EndEpoch(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            control.should_epoch_stop = True

    trainer = trainer_of(tmp_path, callbacks=[EndEpoch()], max_steps=-1, num_train_epochs=4)
    trainer.train()
    assert [entry["step"] for entry in history(trainer)] == [1, 2, 3]


@pytest.mark.parametrize(("options", "every"), [({"num_train_epochs": 1}, 5), ({"gamma_update_steps": 15}, 15)])
def test_gamma_that_never_moves(options, every, tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        trainer_of(tmp_path, **options).train()
    assert f"γ stays 1: AdaFocal updates it every {every} steps" in caplog.text
    caplog.clear()
    trainer_of(tmp_path, gamma_update_steps=14).train()
    assert "γ stays 1" not in caplog.text


def test_persistent_workers_measure_what_they_should(tmp_path):
    options = {"dataloader_persistent_workers": True, "dataloader_num_workers": 1, "eval_strategy": "epoch"}
    trainer = trainer_of(tmp_path, num_train_epochs=2, **options)
    trainer.train()
    expected, updates = by_hand([5], 10)
    torch.testing.assert_close(weights(trainer.model), expected, rtol=0, atol=1e-12)
    assert history(trainer)[0]["gammas"] == pytest.approx(updates[0]["gammas"], rel=0, abs=1e-12)
    sizes = [entry["eval_num_samples"] for entry in trainer.state.log_history if "eval_num_samples" in entry]
    assert sizes == [21, 21]
    assert trainer.fit_temperature().num_samples == 33
    assert trainer.evaluate(rows(7))["eval_num_samples"] == 7
    assert trainer.evaluate()["eval_num_samples"] == 21


def test_a_second_training_begins_with_gamma_1(tmp_path):
    trainer = trainer_of(tmp_path, num_train_epochs=1, eval_strategy="epoch", other={"eval_dataset": CALIBRATION})
    trainer.train()
    first = history(trainer)
    trainer.model.load_state_dict(BagOfWords().state_dict())
    trainer.train()
    assert history(trainer) == first


def test_nothing_is_logged_where_nothing_shall_be_but_the_history_is_kept(tmp_path):
    logged = []

    class Logs(TrainerCallback):
        def on_log(self, args, state, control, logs, **kwargs):
            logged.append(logs)

    trainer = trainer_of(tmp_path, callbacks=[Logs()], logging_strategy="no")
    trainer.train()
    assert [entry["step"] for entry in history(trainer)] == [5, 10]
    assert [name for logs in logged for name in logs if name.startswith("gamma")] == []


def test_the_data_of_the_update_is_also_that_of_the_temperature(tmp_path):
    trainer = trainer_of(tmp_path)
    expected = fit_temperature(logits_of(BagOfWords(), CALIBRATION), tensors(CALIBRATION)[1])
    assert trainer.fit_temperature().nll_before == pytest.approx(expected.nll_before, rel=0, abs=1e-12)
    assert trainer.fit_temperature(rows(21, seed=1)).num_samples == 21


# Checkpoints


def test_the_history_of_a_checkpoint_has_its_bins_in_order(tmp_path):
    trainer = trainer_of(tmp_path, loss="adafocal:bins=12", save_strategy="epoch")
    trainer.train()
    state = json.loads((tmp_path / "checkpoint-15" / "trainer_state.json").read_text(encoding="utf-8"))
    assert gamma_history(state["log_history"]) == history(trainer)
    assert history(trainer)[-1]["gammas"] == trainer.loss.policy.gammas
    assert history(trainer)[-1]["edges"] == trainer.loss.policy.edges


def test_checkpoints_have_gamma_and_what_is_due(tmp_path):
    trainer = trainer_of(tmp_path, save_strategy="steps", save_steps=1, logging_steps=3)
    trainer.train()
    states = {}
    for step in (4, 5, 6):
        path = tmp_path / f"checkpoint-{step}" / "focal_state.json"
        states[step] = json.loads(path.read_text(encoding="utf-8"))
    gammas = {step: state["loss_state"]["_extra_state"]["gammas"] for step, state in states.items()}
    assert gammas == {4: [1, 1, 1], 5: [1, 1, 1], 6: history(trainer)[0]["gammas"]}
    assert {step: state["gamma_update_due"] for step, state in states.items()} == {4: False, 5: True, 6: False}
    assert {state["loss"] for state in states.values()} == {LOSS}


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
def test_a_resumed_training_is_the_same(step, options, tmp_path):
    options = {"optim": "adamw_torch", "learning_rate": 0.01, "save_strategy": "steps", "save_steps": 1} | options
    whole = trainer_of(tmp_path, **options)
    whole.train()
    resumed = trainer_of(tmp_path, **options)
    output = resumed.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{step}"))
    assert torch.equal(weights(resumed.model), weights(whole.model))
    assert untimed(resumed.state.log_history) == untimed(whole.state.log_history)
    assert resumed.loss.state_dict() == whole.loss.state_dict()
    assert output.training_loss == whole.state.log_history[-1]["train_loss"]


def untimed(logs):
    return [
        {name: value for name, value in entry.items() if "runtime" not in name and "per_second" not in name}
        for entry in logs
    ]


def test_a_stopped_training_can_be_made_longer(tmp_path):
    options = {"lr_scheduler_type": "constant", "save_strategy": "steps", "save_steps": 5}
    trainer_of(tmp_path, num_train_epochs=2, **options).train()
    longer = trainer_of(tmp_path, **options)
    longer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-10"))
    torch.testing.assert_close(weights(longer.model), by_hand([5, 10], 15)[0], rtol=0, atol=1e-12)


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
    whole, resumed = trainer_of(tmp_path, **options), trainer_of(tmp_path, **options)
    whole.train()
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-5"))
    assert torch.equal(weights(resumed.model), weights(whole.model))
    assert resumed.loss.state_dict() == whole.loss.state_dict()


def test_restored_callbacks_are_not_warned_about(tmp_path, caplog):
    options = {"save_strategy": "steps", "save_steps": 5, "restore_callback_states_from_checkpoint": True}
    trainer_of(tmp_path, **options).train()
    trainer = trainer_of(tmp_path, **options)
    with caplog.at_level(logging.WARNING):
        trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-10"))
    assert "FocalTrainer" not in caplog.text and "Ignoring" not in caplog.text
    assert [entry["step"] for entry in history(trainer)] == [5, 10]


def test_a_checkpoint_of_another_loss(tmp_path, caplog):
    options = {"save_strategy": "steps", "save_steps": 5}
    trainer_of(tmp_path, loss="flsd53", callbacks=[StopAt(5)], **options).train()
    trainer = trainer_of(tmp_path, **options)
    with caplog.at_level(logging.WARNING):
        trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-5"))
    assert "training goes on with loss adafocal:bins=3 instead of flsd53" in caplog.text
    assert [entry["step"] for entry in history(trainer)] == [10]


# The calibration set


def test_the_evaluation_set_serves_with_a_warning(tmp_path, caplog):
    trainer = trainer_of(tmp_path, other={"eval_dataset": CALIBRATION, "calibration_dataset": None})
    with caplog.at_level(logging.WARNING):
        trainer.train()
    assert "calibration_dataset is not given: AdaFocal updates γ by the calibration of eval_dataset" in caplog.text
    torch.testing.assert_close(weights(trainer.model), by_hand([5, 10], 15)[0], rtol=0, atol=1e-12)
    caplog.clear()
    trainer_of(tmp_path, num_train_epochs=1).train()
    trainer_of(tmp_path, loss="flsd53", num_train_epochs=1, other={"calibration_dataset": None}).train()
    assert "calibration_dataset" not in caplog.text


def unlabelled(count):
    return [{"input_ids": row["input_ids"]} for row in rows(count)]


@pytest.mark.parametrize(
    ("calibration", "message"),
    [
        (rows(2), "must hold at least one labeled sample for each of the 3 bins, got 2"),
        ([row | {"labels": -100} for row in rows(9)], "for each of the 3 bins, got 0"),
        (unlabelled(9), "must have a column 'label' or 'labels', got"),
        (None, "must be given, got None: there is no calibration_dataset or eval_dataset"),
    ],
)
def test_calibration_sets_that_are_refused_before_anything_is_trained(calibration, message, tmp_path):
    trainer = trainer_of(tmp_path, other={"calibration_dataset": calibration, "eval_dataset": None})
    with pytest.raises(ValueError, match=f"calibration_dataset .*{message}"):
        trainer.train()
    assert trainer.state.global_step == 0


def test_calibration_sets_that_are_refused_at_once(tmp_path):
    train = rows(16)
    with pytest.raises(ValueError, match="calibration_dataset must be held out, got the training set"):
        trainer_of(tmp_path, train, other={"calibration_dataset": train})
    columns = {"input_ids": [row["input_ids"].tolist() for row in train], "labels": [row["labels"] for row in train]}
    twice = [Dataset.from_dict(columns) for _ in range(2)]
    with pytest.raises(ValueError, match="calibration_dataset must be held out, got the training set"):
        trainer_of(tmp_path, twice[0], other={"calibration_dataset": twice[1]})
    trainer_of(tmp_path, twice[0], other={"calibration_dataset": twice[1].select(range(8))})
    with pytest.raises(ValueError, match="calibration_dataset must hold at least one sample"):
        trainer_of(tmp_path, other={"calibration_dataset": []})
    sets = {"near": CALIBRATION, "far": rows(9)}
    with pytest.raises(ValueError, match=r"calibration_dataset must be .* evaluation sets \(near, far\), got 'fra'"):
        trainer_of(tmp_path, other={"eval_dataset": sets, "calibration_dataset": "fra"})


def test_the_training_set_as_the_evaluation_set(tmp_path):
    train = rows(16)
    trainer = trainer_of(tmp_path, train, other={"eval_dataset": train, "calibration_dataset": None})
    with pytest.raises(ValueError, match="calibration_dataset must be held out, got the training set"):
        trainer.train()


def test_a_dataset_dict_has_its_sets_too(tmp_path):
    def split(samples):
        return Dataset.from_dict(
            {name: [torch.as_tensor(row[name]).tolist() for row in samples] for name in samples[0]}
        )

    sets = DatasetDict({"near": split(rows(21, seed=1)), "far": split(CALIBRATION)})
    other = {"eval_dataset": sets, "calibration_dataset": "far"}
    trainer = trainer_of(tmp_path, split(rows(35)), other=other, eval_strategy="epoch")
    trainer.train()
    torch.testing.assert_close(weights(trainer.model), by_hand([5, 10], 15)[0], rtol=0, atol=1e-12)
    assert trainer.evaluate()["eval_far_num_samples"] == 33


def test_one_of_several_evaluation_sets_has_to_be_named(tmp_path):
    sets = {"near": CALIBRATION, "far": rows(9)}
    trainer = trainer_of(tmp_path, other={"eval_dataset": sets, "calibration_dataset": None})
    with pytest.raises(ValueError, match=r"calibration_dataset must be one of the evaluation sets.*near, far"):
        trainer.train()


class Stream(IterableDataset):
    def __iter__(self):
        return iter(rows(35))


def test_a_stream_has_no_ends_of_epochs_to_wait_for(tmp_path):
    with pytest.raises(ValueError, match="gamma_update_steps must be given for a train_dataset without a length"):
        trainer_of(tmp_path, Stream(), max_steps=8).train()
    trainer = trainer_of(tmp_path, Stream(), max_steps=15, gamma_update_steps=5)
    trainer.train()
    assert [entry["step"] for entry in history(trainer)] == [5, 10]
    torch.testing.assert_close(weights(trainer.model), by_hand([5, 10], 15)[0], rtol=0, atol=1e-12)


def test_labels_that_are_ignored_count_for_nothing(tmp_path):
    calibration = [row | {"labels": -100 if index < 5 else row["labels"]} for index, row in enumerate(CALIBRATION)]
    trainer = trainer_of(tmp_path, num_train_epochs=2, other={"calibration_dataset": calibration})
    snapshots = {}

    class Snapshot(TrainerCallback):
        def on_epoch_end(self, args, state, control, model, **kwargs):
            snapshots[state.global_step] = logits_of(model, CALIBRATION[5:])

    trainer.add_callback(Snapshot)
    trainer.train()
    gammas, edges = adafocal_update([1.0] * 3, *samples(snapshots[5], tensors(CALIBRATION[5:])[1]))
    assert history(trainer)[0]["gammas"] == pytest.approx(gammas, rel=0, abs=1e-12)
    assert history(trainer)[0]["edges"] == pytest.approx(edges, rel=0, abs=1e-12)
