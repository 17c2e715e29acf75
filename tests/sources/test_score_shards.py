"""A killed evaluation goes on from the shards of scores that it has, and from no others."""

import errno
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import trained_models
from datasets import Dataset, concatenate_datasets
from processes import output_of, start
from transformers import AutoModelForSequenceClassification

from hf_focal import evaluate_model, evaluate_scores, fold_correction
from hf_focal.errors import InputError
from hf_focal.sources import score_shards
from hf_focal.trainer import FocalTrainer
from hf_focal.utils.folder_lock import LOCK


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    kinds = ("texts", "images", "words")
    return {kind: trained_models.build(kind, tmp_path_factory.mktemp(kind)) for kind in kinds}


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(score_shards, "_BATCHES", 1)  # 16 rows


@pytest.fixture
def passes(monkeypatch):
    """The numbers of rows that the model took."""
    found, collect = [], FocalTrainer.collect

    def counted(trainer, dataset, accumulator):
        found.append(len(dataset))
        return collect(trainer, dataset, accumulator)

    monkeypatch.setattr(FocalTrainer, "collect", counted)
    return found


def interrupted(monkeypatch, after, evaluation):
    written, write = [], score_shards.ScoreShards.write

    def stops(*given):
        write(*given)
        written.append(given)
        if len(written) == after:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(score_shards.ScoreShards, "write", stops)
        evaluation()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["texts", "images", "words"])
def test_an_interrupted_evaluation_goes_on(cases, kind, tmp_path, monkeypatch, passes):
    case, folder = cases[kind], tmp_path / "scores"

    def evaluation(folder=folder):
        return evaluate_model(case.folder, str(case.test), save_scores=folder, **case.options)

    whole = evaluation(tmp_path / "whole")
    assert set(passes[:-1]) == {16} and sum(passes) == 100
    interrupted(monkeypatch, 2, evaluation)
    assert len([*folder.glob("*.parquet")]) == 2 and not (folder / LOCK).exists()
    passes.clear()
    result = evaluation()
    assert sum(passes) == 100 - 32
    assert result.pre == pytest.approx(whole.pre, rel=0, abs=0, nan_ok=True)
    plain = evaluate_model(case.folder, str(case.test), **case.options)
    assert result.pre == pytest.approx(plain.pre, rel=1e-6, nan_ok=True)
    assert evaluate_scores(folder).pre == pytest.approx(plain.pre, rel=1e-6, nan_ok=True)
    rows = np.sort(pq.read_table(folder).column("row"))
    assert {*rows.tolist()} == {*range(100)} and (len(rows) > 100) == (kind == "words")
    passes.clear()
    assert evaluation().pre == pytest.approx(whole.pre, rel=0, abs=0, nan_ok=True) and not passes  # all is there


@pytest.mark.slow
def test_a_full_disk_is_an_error_of_the_folder_and_the_evaluation_goes_on(cases, tmp_path, monkeypatch, passes):
    case, folder, write = cases["texts"], tmp_path / "scores", score_shards.write_whole

    def fills_the_disk(path, content):
        if len([*folder.glob("*.parquet")]) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        write(path, content)

    with monkeypatch.context() as patch:
        patch.setattr(score_shards, "write_whole", fills_the_disk)
        expected = "save_scores must be a folder with room for the scores, got .*: No space left on device; repeat"
        with pytest.raises(InputError, match=expected):
            evaluate_model(case.folder, str(case.test), save_scores=folder, **case.options)
    assert sum(passes) == 48 and not (folder / LOCK).exists()
    passes.clear()
    evaluate_model(case.folder, str(case.test), save_scores=folder, **case.options)
    assert sum(passes) == 100 - 32


def test_other_contents_are_refused_and_other_names_are_not(cases, tmp_path, passes):
    case, folder = cases["texts"], tmp_path / "scores"
    shutil.copytree(case.folder, tmp_path / "copy")
    shutil.copyfile(case.test, tmp_path / "copy.parquet")
    evaluate_model(case.folder, str(case.test), save_scores=folder, **case.options)
    passes.clear()
    evaluate_model(tmp_path / "copy", str(tmp_path / "copy.parquet"), save_scores=folder, batch_size=5, **case.options)
    assert not passes
    rows = Dataset.from_parquet(str(case.test))
    rows.select([*range(99), 0]).to_parquet(tmp_path / "copy.parquet")
    labels = rows["label"][:]
    flipped = rows.remove_columns("label").add_column("label", [(labels[0] + 1) % 3, *labels[1:]])
    flipped.cast_column("label", rows.features["label"]).to_parquet(tmp_path / "labels.parquet")
    concatenate_datasets([rows, rows.select([0])]).to_parquet(tmp_path / "longer.parquet")
    model = AutoModelForSequenceClassification.from_pretrained(case.folder)
    fold_correction(model, 1.001).save_pretrained(tmp_path / "copy")
    line = "save_scores must be a new folder, or have scores of the same model and data, got .* with others"
    for given in (
        (case.folder, tmp_path / "copy.parquet"),
        (case.folder, tmp_path / "labels.parquet"),
        (case.folder, tmp_path / "longer.parquet"),
        (tmp_path / "copy", case.test),
    ):
        with pytest.raises(InputError, match=line):
            evaluate_model(given[0], str(given[1]), save_scores=folder, **case.options)
    with pytest.raises(InputError, match=line):
        evaluate_model(case.folder, str(case.test), save_scores=folder, max_length=3, **case.options)
    assert not passes


def test_images_in_files_are_told_apart_by_their_contents(cases, tmp_path, passes):
    case, folder = cases["images"], tmp_path / "pictures"
    rows = Dataset.from_parquet(str(case.test)).select(range(40))
    for number, (image, label) in enumerate(zip(rows["image"], rows["label"], strict=True)):
        place = folder / "test" / trained_models.COLORS[label]
        place.mkdir(parents=True, exist_ok=True)
        image.save(place / f"{number}.png")
    given = {"save_scores": tmp_path / "scores", **case.options}
    evaluate_model(case.folder, str(folder), **given)
    passes.clear()
    evaluate_model(case.folder, str(folder), **given)
    assert not passes
    rows["image"][0].rotate(90).save(next((folder / "test").glob("*/0.png")))
    with pytest.raises(InputError, match="with others"):
        evaluate_model(case.folder, str(folder), **given)


def test_a_damaged_shard_is_an_error_of_the_folder(cases, tmp_path):
    case, folder = cases["texts"], tmp_path / "scores"
    evaluate_model(case.folder, str(case.test), save_scores=folder, **case.options)
    shard = next(folder.glob("*.parquet"))
    shard.write_bytes(shard.read_bytes()[:-9])
    with pytest.raises(InputError, match=f"save_scores must be a folder of scores, got .*{shard.name}.*damaged"):
        evaluate_model(case.folder, str(case.test), save_scores=folder, **case.options)


def test_what_is_no_folder_of_scores_is_refused(cases, tmp_path):
    case = cases["texts"]
    (tmp_path / "file.csv").touch()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").touch()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "_scores.json").write_text("[]")
    with pytest.raises(InputError, match="save_scores must be the name of a file or a folder, got ''"):
        evaluate_model(case.folder, str(case.test), save_scores="", **case.options)
    for name, line in (
        ("file.csv", r"must end in \.parquet, or be a folder"),
        ("other", "must be a new folder, got .* which is not empty"),
        ("broken", "must be a folder of scores"),
    ):
        with pytest.raises(InputError, match=f"save_scores {line}"):
            evaluate_model(case.folder, str(case.test), save_scores=tmp_path / name, **case.options)
        assert not (tmp_path / name / LOCK).exists()
    with pytest.raises(InputError, match="save_scores must not be the folder of another output"):
        evaluate_model(
            case.folder, str(case.test), save_scores=tmp_path / "out", output=tmp_path / "out", **case.options
        )


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 2])
def test_killed_processes_go_on(cases, tmp_path, number):
    """Blocks have two batches of seven rows in each process; one process is killed in the middle."""
    case, script = cases["texts"], Path(__file__).parent / "launched_shards.py"
    size, options = 14 * number, json.dumps(case.options)

    def run(folder, result, kill_after, processes=number):
        given = (case.folder, case.test, tmp_path / folder, tmp_path / result, kill_after, options)
        output_of(start(script, processes, *given), fails=kill_after > 0)
        return None if kill_after else json.loads((tmp_path / result).read_text(encoding="utf-8"))

    whole = run("whole", "whole.json", 0)
    assert whole["processes"] == number and len(whole["written"]) == -(-100 // size)
    run("scores", "killed.json", 2)
    shutil.copytree(tmp_path / "scores", tmp_path / "others")
    done = len([*(tmp_path / "scores").glob(f"*of-{number}.parquet")]) // number
    assert 1 <= done <= 2
    found = run("scores", "again.json", 0)
    assert found["pre"] == whole["pre"]
    assert len(found["written"]) == -(-100 // size) - done
    # Another number of processes goes on from the blocks that all processes had finished.
    other = run("others", "others.json", 0, 3 - number)
    assert other["processes"] == 3 - number and len(other["written"]) == len(whole["written"]) - done
    assert other["pre"] == pytest.approx(whole["pre"], rel=1e-5)
    assert evaluate_scores(tmp_path / "others").pre == pytest.approx(whole["pre"], rel=1e-5)
