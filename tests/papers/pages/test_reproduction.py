"""The committed runs, and the pages that are written from them."""

import csv
import json
import shutil
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from papers.pages import guide_figures, paper_runs
from papers.pages import reproduction as results
from papers.pages.page import PAPERS
from papers.pages.paper_tables import TABLES, read_paper_tables, read_rows, row_entry
from papers.pages.records import add_records, read_records
from papers.runs.translation_results import TranslationResult

from hf_focal import fit_temperature
from hf_focal.metrics import adaptive_calibration_error
from hf_focal.reports import RunResult

ROOT = Path(__file__).parents[3]
PAGES = ["docs/results/newsgroups.md", "docs/results/sst.md", "docs/results/cifar10.md"]
PAGES += ["docs/results/multi30k.md", "docs/results/reproduction.md", "docs/results/claims.md"]


@pytest.fixture
def copy(tmp_path, monkeypatch):
    """A copy of the pages for the script to write into."""
    for page in PAGES:
        (tmp_path / page).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / page, tmp_path / page)
    monkeypatch.setattr(results, "DOCS", tmp_path / "docs" / "results")
    return tmp_path


@pytest.mark.slow
def test_the_pages_are_those_of_the_committed_runs(copy):
    results.main([])
    for page in PAGES:
        assert (copy / page).read_text(encoding="utf-8") == (ROOT / page).read_text(encoding="utf-8"), page
    for name in ("20_newsgroups", "20_newsgroups_encoder", "cifar10_overfit", "sst_binary"):
        written = copy / "docs" / "results" / f"{name}.csv"
        assert written.read_bytes() == (ROOT / "docs" / "results" / f"{name}.csv").read_bytes(), name
    drawn = (
        "results/20_newsgroups.png",
        "results/sst_binary.png",
        "results/cifar10_dynamics/dynamics_gaps.png",
        "results/cifar10_dynamics/cross_entropy_train.png",
    )
    for figure in drawn:
        assert (copy / "docs" / figure).stat().st_size > 10_000


@pytest.mark.slow
def test_a_network_s_section_fills_with_its_first_run(copy, monkeypatch):
    records = copy / "records"
    records.mkdir()
    for suffix in (".csv", ".settings.json"):
        shutil.copy(paper_runs.RECORDS / f"cifar10_dynamics{suffix}", records)
    posts = read_records(paper_runs.RECORDS / "20_newsgroups.csv")
    (first,) = [record for record in posts if (record["loss"], record["seed"]) == ("cross_entropy", 1)]
    add_records(records / "20_newsgroups.csv", [first], str)
    monkeypatch.setattr(paper_runs, "RECORDS", records)
    results.main([])
    text = (copy / "docs" / "results" / "newsgroups.md").read_text(encoding="utf-8")
    section = text.split("<!-- 20_newsgroups -->")[1].split("<!-- /20_newsgroups -->")[0]
    assert f"| cross-entropy | {100 * first['before']['ece']:.2f} | 17.92° | 3.70 | 3.4 |" in section
    assert (copy / "docs" / "results" / "20_newsgroups_errors.png").stat().st_size > 10_000
    assert "There are no runs yet." in (copy / "docs" / "results" / "sst.md").read_text(encoding="utf-8")


def write_run(folder, network, loss, translates=False):
    """The folder of a finished run with made-up figures: of the network, and of the papers' T by ECE."""
    rng = np.random.default_rng(0)
    logits, labels = 4 * rng.normal(size=(2, 400, 10)), rng.integers(10, size=(2, 400))
    labels = np.where(rng.random((2, 400)) < 0.6, logits.argmax(-1), labels)
    temperature = fit_temperature(logits[0], labels[0], "ece")
    result = RunResult.measure(loss, temperature, *map(torch.from_numpy, (logits[1], labels[1])))
    if translates:
        bleu, curve = {1.0: 26.3, temperature.value: 26.1}, {1.0: 0.1, temperature.value: 0.02}
        values = {field.name: getattr(result, field.name) for field in fields(result)}
        values |= {"pre": result.pre | {"bleu": 26.3}, "post": result.post | {"bleu": 26.1}}
        result = TranslationResult(**values, bleu=bleu, signature="tok:13a", validation_ece=curve)
    else:
        arrays = {"validation_logits": logits[0], "validation_labels": labels[0]}
        np.savez(folder / "logits.npz", **arrays, test_logits=logits[1], test_labels=labels[1])
    (folder / "report").mkdir()
    result.save(folder / "report" / "metrics.json")
    (folder / "run.json").write_text(json.dumps({"seed": 1, "model_name_or_path": network}))
    return result, adaptive_calibration_error(logits[1], labels[1])


@pytest.mark.slow
def test_every_row_of_the_papers_tables_has_a_table_beside_the_paper(copy, monkeypatch):
    records, drawn = copy / "records", []
    monkeypatch.setattr(paper_runs, "RECORDS", records)
    monkeypatch.setattr(results, "calibration_error_bars", lambda runs, titles, path: drawn.append(path.name))
    rows, figures = read_rows(), {}
    for dataset, model in [experiment.row for experiment in paper_runs.OTHER_ROWS.values()]:
        entry = row_entry(rows, dataset, model)
        configured = yaml.safe_load((PAPERS / "configs" / entry["config"]).read_text()) | entry["model"]
        folder = copy / "out" / dataset / model
        folder.mkdir(parents=True)
        loss = entry["losses"]["cross_entropy"]
        translates = dataset == "wmt14_en_de"
        figures[dataset, model] = write_run(folder, configured.get("model_name_or_path", model), loss, translates)
    for dataset in {dataset for dataset, _ in figures}:
        paper_runs.record_runs(dataset, copy / "out" / dataset)
    text = results.other_rows()
    assert len(figures) == 15 and len(drawn) == 14
    cells = [cell for path in TABLES.glob("*.csv") for table in read_paper_tables(path).values() for cell in table]
    for row, (result, equal_mass) in figures.items():
        section = text.split(f"### {'/'.join(row)}\n")[1].split("\n### ")[0]
        ours = rows_of(section)
        assert ours[0][1] == f"{100 * result.pre['ece']:.2f}"
        printed = {cell.metric: f"{cell.value:.2f}" for cell in cells if cell.name == (*row, "cross_entropy")}
        if row[0] == "wmt14_en_de":
            assert "26.30" in ours[0] and "No claim has runs of both of its losses." in section
            continue
        with (copy / "docs" / "results" / f"{'_'.join(row)}.csv").open(encoding="utf-8", newline="") as file:
            table = [line for line in csv.DictReader(file) if line["loss"] == "cross-entropy"]
        before, after = [line for line in table if line["metric"] == "ECE of equal mass %"]
        assert before["mean"] == f"{100 * equal_mass:.2f}"
        assert after["mean"] == f"{100 * fit_of(records, row)['after']:.2f}"
        theirs = [cell for cell in cells if cell.name == (*row, "cross_entropy") and cell.metric == "ece_em"]
        assert float(before["paper"]) == theirs[0].value and "ece_em" in printed
        if row == ("cifar10", "resnet50"):
            assert {"S99 %", "accuracy of S99 %"} <= {line["metric"] for line in table}


def rows_of(tables):
    return [line.split(" | ") for line in tables.splitlines() if line.startswith("| cross-entropy | ")]


def fit_of(records, row):
    (record,) = read_records(records / f"{'_'.join(row)}.csv")
    return record["equal_mass"]


def test_runs_are_recorded_under_the_row_of_their_network(tmp_path):
    experiment_of = paper_runs.experiment_of
    assert experiment_of("20_newsgroups", {"settings": {"model_name_or_path": "gp_cnn"}}) == "20_newsgroups"
    assert (
        experiment_of("20_newsgroups", {"settings": {"model_name_or_path": "bert-base-uncased"}})
        == "20_newsgroups_bert"
    )
    assert experiment_of("sst_binary", {"settings": {"model_name_or_path": "tree_lstm"}}) == "sst_binary"
    assert (
        experiment_of("cifar10_overfit", {"settings": {"model_name_or_path": "cifar_resnet20"}}) == "cifar10_overfit"
    )
    with pytest.raises(ValueError, match=r"runs of cifar10 must be of cifar_resnet50, .*, got .* 'cifar_resnet20'"):
        experiment_of("cifar10", {"settings": {"model_name_or_path": "cifar_resnet20"}})
    with pytest.raises(ValueError, match=r"record must be one of .*got 'cifar'; did you mean 'cifar10'\?"):
        experiment_of("cifar", {"settings": {}})


def test_every_committed_run_has_a_name_of_its_own():
    experiments = paper_runs.EXPERIMENTS | paper_runs.DYNAMICS
    for experiment in experiments:
        names = [
            paper_runs.run_name(experiment, record)
            for record in read_records(paper_runs.RECORDS / f"{experiment}.csv")
        ]
        assert names == sorted(set(names))
    # Their pages have scripts of their own.
    others = {
        "fine_tuning",
        "corrections",
        "multi_label",
        "calibrate_existing",
        "csv_to_hub",
        "sft",
        "fine_tuning_earlier",
        "finished_tables",
    }
    assert {path.name.partition(".")[0] for path in paper_runs.RECORDS.iterdir()} <= {*experiments, *others}


def test_the_figures_of_the_guides_are_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr(guide_figures, "GUIDES", tmp_path)
    guide_figures.write_page()
    for name in ("calibrate_existing.png", "csv_to_hub.png"):
        assert (tmp_path / name).stat().st_size > 10_000
