"""The recipe for texts with several labels, from command line to report, and the page of its runs."""

import json

import numpy as np
import pytest
from datasets import Dataset
from papers.data import newsgroups
from papers.data.generated_topic_sets import generate_topic_sets
from papers.pages import multi_label as page
from papers.pages.records import read_records
from recipe_modules import ON_CPU, TINY_TEXTS, flags, import_recipe
from transformers import AutoConfig, AutoTokenizer, pipeline
from written_pages import empty_copy

from hf_focal import Temperature
from hf_focal.reports import RunResult

pytestmark = pytest.mark.slow

recipe = import_recipe("text_classification")


def run(folder, **options):
    """The recipe with a tiny network; an option that is None is left out."""
    training = {"multi_label": "true", "num_train_epochs": 1, "save_strategy": "no"}
    return recipe.main(flags({"output_dir": folder} | TINY_TEXTS | training | ON_CPU | options))


def test_a_run_reports_what_each_temperature_changes(tmp_path):
    (result,) = run(tmp_path / "out", loss="class_balanced")
    report = tmp_path / "out" / "report"
    assert RunResult.load(report / "metrics.json").temperature == result.temperature
    assert Temperature.load(tmp_path / "out" / "temperature.json") == result.temperature
    assert len(result.temperature.values) == 8 and result.pre["num_entries"] == 960
    before, _, by_label = result.details["true_errors"]
    assert result.true_calibration_error == (before["ece"], by_label["ece"])
    assert result.details["one_temperature"]["nll"] != result.post["nll"]
    assert "| topic 7 |" in (report / "table.md").read_text(encoding="utf-8")
    config = AutoConfig.from_pretrained(tmp_path / "out")
    assert config.problem_type == "multi_label_classification" and config.id2label[7] == "topic 7"


def test_files_with_unknown_labels_and_no_known_posterior(tmp_path):
    for seed, name in enumerate(("train", "test")):
        texts = generate_topic_sets(90, num_topics=2, seed=seed)
        columns = {"text": texts["text"][:]} | {f"t{k}": [row[k] for row in texts["label"]] for k in (0, 1)}
        columns["t1"][::10] = [None] * 9
        Dataset.from_dict(columns).to_parquet(tmp_path / f"{name}.parquet")
    files = {f"{name}_file": tmp_path / f"{name}.parquet" for name in ("train", "test")}
    (result,) = run(tmp_path / "out", **files, label_column="t0,t1", temperature_objective="ece", max_length=120)
    assert result.true_calibration_error is None and result.pre["num_entries"] == 90 + 81
    assert result.temperature.objective == "ece" and result.temperature.values == ()
    assert result.subsets.labels.name == ["t0", "t1"]
    scores = pipeline("text-classification", model=str(tmp_path / "out"), top_k=None)("ba be")[0]
    assert {score["label"] for score in scores} == {"t0", "t1"}
    assert AutoTokenizer.from_pretrained(tmp_path / "out").model_max_length == 120


def test_from_posts_to_the_page(tmp_path, monkeypatch):
    groups, rng = ["rec.autos", "rec.sport.hockey", "sci.space", "talk.religion.misc"], np.random.default_rng(0)
    words = np.array(["engine", "goal", "orbit", "faith"])
    for name, count in (("train", 160), ("test", 80)):
        drawn = rng.integers(4, size=count)
        posts = [f"From: me\n\n{words[k]} {words[rng.integers(4)]} {number}\n" for number, k in enumerate(drawn)]
        columns = {"text": posts, "group": [groups[k] for k in drawn]}
        Dataset.from_dict(columns).to_parquet(tmp_path / f"{name}_posts.parquet")
    files = [str(tmp_path / f"{name}_posts.parquet") for name in ("train", "test")]
    newsgroups.main(["label", *files, "--output_dir", str(tmp_path / "labels")])
    options = {f"{name}_file": tmp_path / "labels" / f"{name}.parquet" for name in ("train", "test")}
    for seed in (1, 2):
        run(tmp_path / "runs" / f"s{seed}", **options, label_column="labels", seed=seed, loss="focal:gamma=2")
    monkeypatch.setattr(page, "RUNS", tmp_path / "records.csv")
    monkeypatch.setattr(page, "PAGE", empty_copy(page.PAGE, tmp_path, r"multi_label\w*"))
    page.add_runs([tmp_path / "runs"])
    page.write_page()
    records = read_records(page.RUNS)
    assert [(record["loss"], record["seed"]) for record in records] == [("focal:gamma=2", 1), ("focal:gamma=2", 2)]
    assert records[0]["before"]["macro_ece"] > 0 and str(tmp_path) not in json.dumps(records)
    text = page.PAGE.read_text(encoding="utf-8")
    assert "-->focal:gamma=2: 2<!--" in text and "rec or sci" in json.dumps(records)
    mean = np.mean([100 * record["after"]["macro_ece"] for record in records])
    assert f"{mean:.2f} ± " in text
