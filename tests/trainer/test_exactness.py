"""A step's gradient, the logged losses and γ do not depend on how its rows are cut up; two real processes.

docs/exactness.md says so; what it says is not exact is tested here, too.
"""

import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers
from exactness_cases import CASES, ROW_LOSSES, batch_of, by_hand, results, steps_of, training_set
from processes import results_of_two_and_one
from tiny_models import BagOfWords, rows, trainer_of, weights

from hf_focal import CalibrationMetrics
from hf_focal.losses import LOSSES, LossConfig
from hf_focal.trainer import accumulators, streamed_evaluation

pytestmark = pytest.mark.slow
EXACT = 1e-12


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """The results of each of two processes, and of one."""
    return results_of_two_and_one("exactness_cases.py", tmp_path_factory.mktemp("exactness"), results)


@pytest.fixture(scope="module")
def outcome_of(both):
    """case -> what came out of its training."""
    first, _, one = both
    return lambda case: (first if case.split[2] == 2 else one)[repr(case)]


def distance(a, b):
    """The largest difference of two trainings' weights after any of their steps."""
    assert len(a["weights"]) == len(b["weights"])
    return np.abs(np.array(a["weights"]) - np.array(b["weights"])).max()


def assert_equal(trained, expected, case):
    """Weights after each step, γ and edges after each update, and what was logged."""
    assert distance(trained, expected) <= EXACT, case
    assert len(trained["gammas"]) == len(expected["gammas"]), case
    np.testing.assert_allclose(trained["gammas"], expected["gammas"], rtol=0, atol=EXACT, err_msg=str(case))
    # Logged losses are means over the steps since the last log; Trainer adds them up in float32.
    losses, begin = expected["losses"], 0
    for step, loss in trained["losses"]:
        assert loss == pytest.approx(np.mean(losses[begin:step]), rel=1e-6), (case, step)
        begin = step
    assert trained["train_loss"] == pytest.approx(np.mean(losses), rel=1e-6), case


def test_both_processes_end_alike(both):
    first, second, _ = both
    assert first.keys() == second.keys()
    for name in first.keys() - {"evaluation", "labels", "few"}:
        for what in ("weights", "gammas", "losses", "train_loss", "orders", "loss_state"):
            assert first[name][what] == second[name][what], (name, what)
    assert first["evaluation"]["metrics"] == second["evaluation"]["metrics"]


def test_several_labels_and_unused_parameters(both):
    first, second, one = (results["labels"] for results in both)
    assert first == second and {"eval_ece", "eval_macro_ece", "eval_auroc", "eval_ece_corrected"} <= first.keys()
    assert first == pytest.approx(one, rel=EXACT, abs=EXACT)  # T is large


def test_a_process_with_repeats_only_or_without_labels(both):
    first, second, one = (results["few"] for results in both)
    assert first == second
    for kind, metrics in one.items():
        assert first[kind] == pytest.approx(metrics, rel=0, abs=EXACT), kind
    assert one["spans"]["eval_9_num_samples"] == 18 and one["spans"]["eval_1_num_samples"] == 2


@pytest.mark.parametrize(
    "group",
    [
        *("losses", "splits", "sums", "soft targets", "mixed targets", "several labels", "BERT", "repeats", "loaders"),
        "streams",
    ],
)
def test_the_split_of_a_step_changes_nothing(group, outcome_of):
    for case in CASES[group]:
        assert_equal(outcome_of(case), by_hand(case), case)


def test_every_loss_of_single_samples_is_split():
    product = {name for name, loss in LOSSES.items() if loss.__module__.startswith("hf_focal.losses.")}
    # MMCE, of pairs of samples, has cases of its own.
    assert {LossConfig.parse(config).name for config in ROW_LOSSES} == product - {"mmce"}


def test_losses_that_change_do_change(outcome_of):
    def outcomes(name):
        return [outcome_of(case) for case in CASES["losses"] if name in case.loss]

    for run in outcomes("adafocal"):
        assert max(abs(gamma - 1) for gamma in run["gammas"][-1][:3]) > 0.1
    assert {tuple(run["scheduled"]) for run in outcomes("schedule")} == {(5, 3, 3)}
    whole, *others = (case for case in CASES["losses"] if "recall" in case.loss and case.labels == "tokens")
    for case in (whole, *others):  # counted alike, it is the same to the last bit
        assert outcome_of(case)["loss_state"] == by_hand(whole)["loss_state"]


def test_nor_does_the_split_of_a_micro_batch_over_processes_change_its_recall(outcome_of):
    for case in CASES["recall"]:
        assert_equal(outcome_of(case), by_hand(case), case)
        whole = outcome_of(replace(case, split=(8, 1, 1)))["class_weights"]
        assert len(whole) == -(-case.num_rows // 8)
        for mine, other in zip(outcome_of(case)["class_weights"], whole, strict=True):
            assert mine["focal"] == [weight and pytest.approx(weight, rel=1e-12) for weight in other["focal"]]
            assert mine["recall"] == other["recall"]
    (accumulated,) = CASES["recall, accumulated"]
    assert distance(outcome_of(accumulated), by_hand(accumulated)) > 1e-3


def test_nor_beyond_rounding_in_float32(outcome_of):
    for case in CASES["float32"]:
        trained, expected = (np.array(run["weights"][-1]) for run in (outcome_of(case), by_hand(case)))
        assert np.linalg.norm(trained - expected) <= 1e-6 * np.linalg.norm(expected)


def test_rows_by_length_come_in_one_order_on_all_processes(outcome_of):
    for case in CASES["by length"]:
        orders = outcome_of(case)["orders"]
        assert [sorted(order) for order in orders] == [list(range(case.num_rows))] * 2
        assert orders[0] != orders[1]
        assert_equal(outcome_of(case), by_hand(case, steps_of(case, orders)), case)
    # What is sorted together is a process's rows of a step, so another number of processes brings another order.
    rows_of_8, _, rows_of_4, _ = (outcome_of(case)["orders"] for case in CASES["by length"])
    assert rows_of_8 != rows_of_4


def test_shuffled_rows_come_in_one_order_however_split(outcome_of):
    first, *others = (outcome_of(case) for case in CASES["shuffled"])
    assert distance(first, by_hand(CASES["shuffled"][0])) > 1e-2
    for other in others:
        assert distance(first, other) <= EXACT
        assert other["losses"] == [[step, pytest.approx(loss, rel=1e-6)] for step, loss in first["losses"]]


def test_logged_losses(outcome_of):
    for case in CASES["logging"]:
        trained, expected = outcome_of(case), by_hand(case)
        assert_equal(trained, expected, case)
        steps = [step for step, _ in trained["losses"]]
        options, num_steps = case.options, len(expected["losses"])
        if "logging_first_step" in options:
            assert steps[:2] == [1, 3]
        elif "logging_steps" in options:
            assert steps == ([5] if num_steps == 6 else [])
        else:
            assert steps == ([] if options["logging_strategy"] == "no" else [num_steps // 2, num_steps])


def test_an_evaluation_serves_the_update_of_gamma_as_a_pass_of_its_own(outcome_of):
    passes, serves = (outcome_of(case) for case in CASES["a pass, an evaluation"])
    assert len(passes["gammas"]) == 2
    assert serves["gammas"][:2] == passes["gammas"]  # behind the last step, the evaluation costs nothing more
    assert distance(passes, serves) == 0


# What is not exact


def parts(*values, size):
    """The values of each micro-batch of `size` rows."""
    return [tuple(value[start : start + size] for value in values) for start in range(0, len(values[0]), size)]


def test_without_averaging_each_process_weighs_the_same(outcome_of):
    for case in CASES["without averaging"]:

        def step_loss(loss, logits, labels, size=case.split[0]):
            batches = parts(logits, labels, size=size)
            processes = [batches[rank::2] for rank in range(2)]
            # A process without rows brings a gradient of 0, and is averaged all the same.
            return sum(loss(*map(torch.cat, zip(*own, strict=True))) for own in processes if own) / 2

        assert_equal(outcome_of(case), by_hand(case, step_loss=step_loss), case)
        assert distance(outcome_of(case), by_hand(case)) > 1e-2


def mmce_of_parts(case, size):
    """The plain loop where each `size` rows have an MMCE of their own, weighted by their labels."""

    def step_loss(loss, logits, labels):
        sums = [loss(*part, reduction="sum") for part in parts(logits, labels, size=size)]
        return sum(sums) / (labels != -100).sum()

    return by_hand(case, step_loss=step_loss)


def test_mmce_is_that_of_a_micro_batch_gathered_or_not(outcome_of):
    for case in CASES["MMCE"]:
        assert_equal(outcome_of(case), mmce_of_parts(case, case.split[0]), case)
        assert distance(outcome_of(case), by_hand(case)) > 1e-2
    for case in CASES["MMCE, gathered"]:
        assert_equal(outcome_of(case), mmce_of_parts(case, case.rows_of_batch), case)
        whole = distance(outcome_of(case), by_hand(case))
        assert whole <= EXACT if case.split[1] == 1 else whole > 1e-2


def test_batch_norm_sees_each_processs_own_rows_repeats_included(outcome_of):
    (case,) = CASES["batch norm"]
    first_row = batch_of(training_set(case)[:1])[0]

    def forward(model, ids):
        halves = [ids[:2], torch.cat([ids[2:], first_row])[:2]]
        return torch.cat([model(half)["logits"] for half in halves])[: len(ids)]

    assert_equal(outcome_of(case), by_hand(case, forward=forward), case)
    assert distance(outcome_of(case), by_hand(case)) > 1e-2


def test_dropout_draws_differently_on_several_processes(outcome_of):
    one, two = (outcome_of(case) for case in CASES["dropout"])
    assert distance(one, two) > 1e-2


@pytest.mark.skipif(
    not hasattr(transformers.trainer_pt_utils, "BatchRebalanceSampler"), reason="Transformers 5.15 has no such sampler"
)
def test_batch_rebalance_counts_its_repeats(outcome_of):
    for case in CASES["rebalanced"]:
        order = torch.randperm(case.num_rows, generator=torch.Generator().manual_seed(42)).tolist()
        if case.num_rows == 17:  # one row is left for the last step, and it wants one for each of 2 × 2 micro-batches
            assert distance(outcome_of(case), by_hand(case, steps_of(case, [order]))) > 1e-3
            order += order[:3]
        assert_equal(outcome_of(case), by_hand(case, steps_of(case, [order])), case)


def test_a_stream_that_each_process_reads_for_itself_counts_its_repeats(outcome_of):
    even, uneven = CASES["not dispatched"]
    assert_equal(outcome_of(even), by_hand(even), even)
    steps = steps_of(uneven)
    assert distance(outcome_of(uneven), by_hand(uneven)) > 1e-2
    steps[-1] = steps[-1] + steps[0][:3]
    assert_equal(outcome_of(uneven), by_hand(uneven, steps), uneven)


class Noisy(torch.utils.data.Dataset):
    """Rows of which each look draws a token anew, from PyTorch's global generator."""

    def __len__(self):
        return 24

    def __getitem__(self, index):
        row = dict(rows(24)[index])
        row["input_ids"] = row["input_ids"].index_fill(0, torch.randint(6, (1,)), 3)
        return row


@pytest.mark.parametrize(("random", "step"), [(False, 2), (True, 2), (True, 3)])
def test_resuming_within_an_epoch_draws_a_random_pipeline_differently(random, step, tmp_path):
    options = {"save_strategy": "steps", "save_steps": 1, "num_train_epochs": 2}
    options["train_dataset"] = Noisy() if random else rows(24)
    whole, resumed = (trainer_of(tmp_path, BagOfWords(), **options) for _ in range(2))
    whole.train()
    resumed.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{step}"))
    # The third step is the last of its epoch.
    assert torch.equal(weights(whole.model), weights(resumed.model)) == (not random or step == 3)


# Evaluation


def test_metrics_temperature_and_predictions_are_those_of_one_process(both):
    two, _, one = (results["evaluation"] for results in both)
    np.testing.assert_allclose(two["logits"], one["logits"], rtol=0, atol=EXACT)
    assert len(two["logits"]) == 21
    assert two["temperature"]["value"] == pytest.approx(one["temperature"]["value"], rel=1e-12)
    assert two["temperature"]["num_samples"] == two["streamed"]["num_samples"] == 21
    assert two["streamed"]["value"] == one["streamed"]["value"] == pytest.approx(one["temperature"]["value"], abs=0.1)
    sizes = {name: value for name, value in one["metrics"].items() if "num_samples" in name}
    assert sizes == {"eval_21_num_samples": 21, "eval_9_num_samples": 9, "eval_3_num_samples": 3}
    assert two["metrics"].keys() == one["metrics"].keys()
    for name, value in one["metrics"].items():
        assert two["metrics"][name] == pytest.approx(value, rel=0, abs=EXACT), name


@pytest.mark.parametrize(
    ("dtype", "sizes"),
    [
        # A confidence whose last bit is the hit; with a temperature another; a confidence and a byte for the hit.
        (torch.float32, {"evaluation": 4, "evaluation with temperature": 8, "calibration pass": 5}),
        (torch.float64, {"evaluation": 8, "evaluation with temperature": 16, "calibration pass": 9}),
    ],
)
def test_bytes_that_a_process_gives_to_the_others(dtype, sizes, tmp_path, monkeypatch):
    def sent(num_rows):
        trainer, objects, actual = trainer_of(tmp_path, BagOfWords().to(dtype), eval_dataset=rows(num_rows)), [], {}
        for module in (accumulators, streamed_evaluation):
            monkeypatch.setattr(
                module, "gather_object", lambda value: objects.append(len(pickle.dumps(value))) or value
            )

        def measure(name, action):
            objects.clear()
            action()
            actual[name] = sum(objects)

        measure("evaluation", trainer.evaluate)
        measure("calibration pass", trainer.measure_confidences)
        trainer.fit_temperature()
        measure("evaluation with temperature", trainer.evaluate)
        return actual

    less, more = sent(200), sent(1000)
    for name, size in sizes.items():
        assert (more[name] - less[name]) / 800 == pytest.approx(size, abs=0.05), name
        assert 0 < less[name] - 200 * size <= 4000 * (1 + name.endswith("temperature")), name


def test_bytes_sent_for_each_class():
    def size(num_classes):
        metrics = CalibrationMetrics(15)
        metrics.update(torch.randn(20, num_classes), torch.arange(20) % num_classes)
        return len(pickle.dumps(metrics))

    # The gaps and the count of a class, and count, confidence, and hits in the bins of its predictions.
    each = 15 * 8 + 8 + 3 * 15 * 8
    # Above the number of classes up to which confusions are counted.
    assert size(800) - size(300) == pytest.approx(500 * each, abs=50)
    assert size(200) - size(100) == pytest.approx(100 * each + (200**2 - 100**2) * 8, abs=50)
