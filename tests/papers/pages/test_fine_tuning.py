"""The runs on many tasks: their records, the pages that are written from them, and the advice that rests on them."""

import json

import numpy as np
import pytest
import yaml
from papers.pages import fine_tuning as page
from papers.pages import fine_tuning_records as records
from papers.pages.fine_tuning_evidence import best_strategy, class_group
from papers.pages.records import add_records, read_records
from written_pages import empty_copy

from hf_focal import fit_temperature, recommend
from hf_focal.cli.main import main
from hf_focal.recommendation import default_correction

PAGES = ("fine_tuning.md", "fine_tuning_appendix.md")
FILES = [f"fine_tuning_{name}.csv" for name in ("by_task", "older", "selection", "settings")]


@pytest.fixture(scope="module")
def evidence():
    return page.Evidence(page.load_records())


def test_the_pages_are_those_of_the_committed_runs(tmp_path, monkeypatch):
    results = page.DOCS
    committed = {name: (results / name).read_text(encoding="utf-8") for name in PAGES}
    for name in PAGES:
        empty_copy(results / name, tmp_path)
    monkeypatch.setattr(page, "DOCS", tmp_path)
    page.write_page()
    assert {name: (tmp_path / name).read_text(encoding="utf-8") for name in PAGES} == committed
    assert (tmp_path / "fine_tuning_regret.png").stat().st_size > 10_000
    for name in FILES:
        assert (tmp_path / name).read_bytes() == (results / name).read_bytes(), name


def test_the_recommendation_is_what_the_runs_say(evidence):
    everywhere, with_auto = evidence.loss_regrets, evidence.auto_regrets
    gain = everywhere.loc["flsd53", "temperature"] - everywhere.loc["cross_entropy", "temperature"]
    with_t = f"lower NLL than cross_entropy on {page.count_below_zero(gain)} tasks"
    two = recommend(num_classes=2, train_samples=500, epochs=3, held_out_samples=200)
    assert (two.loss, two.correction) == ("flsd53", "auto") and with_t in two.evidence
    assert best_strategy(everywhere, page.among(gain, "two").index) == ("flsd53", "temperature")
    auto = with_auto.loc["flsd53", "auto"] - with_auto.loc["flsd53", "temperature"]
    assert abs(page.among(auto, "two").mean()) < 0.01

    more = recommend(num_classes=77, train_samples=5000, epochs=3, held_out_samples=100)
    assert (more.loss, more.correction) == ("flsd53", "auto")
    runs = [run for run in evidence.with_logits if class_group(run["task"]) == "more" and "vector" in run]
    for size in page.SIZES[1:]:
        gains = page.by_task(runs, lambda run, n=size: page.nll(run, "auto", n) - page.nll(run, "temperature", n))
        assert gains.max() < 0
    # No rule is better than the fixed strategy by more than the interval of the difference.
    for groups in (False, True):
        regret = page.rule_on_new_tasks(with_auto, groups)
        assert page.interval(with_auto.loc["flsd53", "auto"] - regret)[1] <= 0

    none = recommend(num_classes=2, train_samples=500, epochs=3, held_out_samples=0)
    uncorrected = everywhere.xs("none", level=1)
    gain = uncorrected.loc[none.loss] - uncorrected.loc["cross_entropy"]
    assert none.correction == "none"
    assert f"{page.count_below_zero(page.among(gain, 'two'))} tasks" in none.evidence
    assert best_strategy(uncorrected, page.among(gain, "two").index) == none.loss
    assert page.interval(page.among(gain, "more"))[1] < 0 < page.interval(page.among(gain, "more"))[2]

    longer = page.uncorrected_after_long_training(evidence.records)
    none = recommend(num_classes=4, train_samples=500, epochs=10, held_out_samples=0)
    assert (none.loss, none.correction) == ("flsd53", "none")
    assert f"on {page.count_below_zero(longer)} tasks" in none.evidence and len(longer) >= 5
    assert page.interval(longer)[2] < 0
    assert recommend(num_classes=5, train_samples=500, epochs=10, held_out_samples=0).loss == "focal:gamma=1"


def test_the_recipe_selects_the_epoch_by_what_was_best(evidence):
    runs = [run for run in evidence.records if "epochs_figures" in run]
    nlls = {name: page.selected(runs, at)[1].mean() for name, at in page.SELECTIONS.items()}
    assert min(nlls, key=nlls.__getitem__) == "`nll_refined`"
    config = yaml.safe_load((page.DOCS.parents[1] / "recipes" / "configs" / "own_texts.yaml").read_text())
    assert config["metric_for_best_model"] == "nll_refined"


def test_auto_loses_to_a_temperature_on_no_task_once_there_are_500_samples(evidence):
    for size in ("500", "1000"):
        runs = [run for run in evidence.with_logits if "vector" in run]
        loss = page.by_task(runs, lambda run, n=size: page.nll(run, "auto", n) - page.nll(run, "temperature", n))
        assert loss.max() < 0.003


def test_calibrate_takes_auto_where_it_can_cross_fit():
    arguments = [(True, 9), (True, 10), (True, 1000), (False, 1000)]
    assert [default_correction(*numbers) for numbers in arguments] == ["temperature", "auto", "auto", "temperature"]


def test_the_command_prints_the_recommendation(capsys):
    options = {"num_classes": 77, "train_samples": 1000, "epochs": 3, "held_out_samples": 500}
    assert main(["recommend", *(f"--{name}={value}" for name, value in options.items())]) == 0
    printed = capsys.readouterr().out
    assert printed == f"{recommend(**options)}\n" and printed.startswith("loss: flsd53\ncorrection: auto\n")
    assert "train longer" in printed
    with pytest.raises(ValueError, match="num_classes must be at least 2, got 1"):
        recommend(**options | {"num_classes": 1})


def finished_run(folder, seconds):
    """A run of `fine_tuning.py` with 60 samples of three classes, in four epochs."""
    rng, folder = np.random.default_rng(0), folder / "main_task_flsd53_s1"
    folder.mkdir(parents=True)
    arrays = {f"{split}_labels": rng.integers(0, 3, 60) for split in ("pool", "test")}
    for name in [
        f"{split}_logits{epoch}" for split in ("pool", "test") for epoch in ("", *(f"_epoch{i}" for i in range(1, 5)))
    ]:
        labels = arrays[f"{name.partition('_')[0]}_labels"]
        arrays[name] = (rng.normal(size=(60, 3)) + 2 * np.eye(3)[labels]).astype(np.float16)
    np.savez(folder / "logits.npz", **arrays)
    run = {"task": "task", "loss": "flsd53", "seed": 1, "size": "few", "encoder": "minilm", "epochs": 4, "noise": 0.0}
    run |= {"seconds": {"training": seconds}}
    (folder / "run.json").write_text(json.dumps(run))
    return run, {name: array.astype(np.float32) if "logits" in name else array for name, array in arrays.items()}


@pytest.mark.filterwarnings("ignore")
def test_new_runs_join_the_records_and_replace_their_own(tmp_path, monkeypatch):
    run, arrays = finished_run(tmp_path / "out", 1.5)
    monkeypatch.setattr(records, "RUNS", tmp_path / "records.csv")
    monkeypatch.setattr(records, "DRAWS", {50: 2, 1000: 1})
    main_figures = {"none": {"error": 0.5, "nll": 2.0}, "temperature": {"nll": 1.5}, "seconds": {"training": 9}}
    known = [{**run, **main_figures, "seed": seed} for seed in (1, 2)]
    add_records(records.RUNS, known, records.setting)
    records.add_runs([tmp_path / "out"])
    joined = read_records(records.RUNS)
    assert joined[1] == known[1] and [entry["seed"] for entry in joined] == [1, 2]
    new = joined[0]
    assert new["earlier"] == {"error": 0.5, "nll": 2.0, "nll_after_t": 1.5}
    fitted = fit_temperature(arrays["pool_logits"], arrays["pool_labels"])
    expected = records.rounded_metrics(fitted.correction.apply(arrays["test_logits"]), arrays["test_labels"])
    assert new["temperature"] == {**expected, "T": pytest.approx(fitted.value, rel=1e-4)}
    assert {name: len(rows) for name, rows in new["draws"].items()} == {"50": 2, "1000": 1}
    row = new["draws"]["1000"][0]  # all samples, in another order
    assert row["nll"]["temperature"] == pytest.approx(expected["nll"], rel=1e-3)
    assert min(row["excess"].values()) == [0, 0]
    assert row["excess"].keys() == {"none", "temperature", "bias", "vector", "matrix"}
    assert len(new["epochs_figures"]) == 4 and len(new["epochs_figures"][0]["pool"]) == 3

    records.add_runs([tmp_path / "out"])  # the same run again
    assert read_records(records.RUNS) == joined
