"""Statistics of shards: they pickle, merge in any order, and stand for a table; interrupted ones go on."""

import itertools
import os
import pickle
import signal
import subprocess
import sys
import time
from functools import reduce

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_focal import InputError, calibrate, calibrate_scores, evaluate, evaluate_scores, fit_temperature, measure
from hf_focal.scores import ScoreStatistics
from hf_focal.scores.sets import score_statistics
from hf_focal.scores.sets.row_sample import RowSample, keys_of
from hf_focal.scores.sets.statistics_in_use import StatisticsInUse

CLASSES = ["a", "b", "c", "d"]


def shard(number, size=200):
    random = np.random.default_rng(number)
    logits = (3 * random.standard_normal((size, 4))).astype(np.float32)
    labels = (logits / 1.6 + random.gumbel(size=logits.shape)).argmax(1)
    columns = {f"logit_{name}": logits[:, i] for i, name in enumerate(CLASSES)}
    return pd.DataFrame({**columns, "label": np.array(CLASSES)[labels]})


def merged(parts):
    return reduce(ScoreStatistics.merge, [pickle.loads(pickle.dumps(part)) for part in parts])


@pytest.fixture(scope="module")
def parts():
    return [measure(shard(number)) for number in range(64)]


@pytest.fixture(scope="module")
def in_order(parts):
    return merged(parts)


@pytest.fixture(scope="module")
def figures_in_order(in_order):
    return figures(in_order)


def figures(statistics):
    """What is merged: metrics, the sums for T, and the sample."""
    metrics = statistics.metrics.compute()
    return metrics | {"T": statistics.nll.temperature()[0]}, statistics.sample.columns()


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(st.permutations(range(64)), st.lists(st.integers(1, 63), max_size=6))
def test_sixty_four_shards_merge_in_any_order_and_grouping(parts, figures_in_order, order, cuts):
    bounds = [0, *sorted(set(cuts)), 64]
    groups = [merged([parts[i] for i in order[a:b]]) for a, b in itertools.pairwise(bounds)]
    found, sample = figures(merged(groups))
    expected, expected_sample = figures_in_order
    assert found == pytest.approx(expected, rel=1e-12, abs=1e-12, nan_ok=True)
    for name, values in expected_sample.items():
        np.testing.assert_array_equal(sample[name], values)


def test_statistics_do_not_count_their_own_rows_twice(parts):
    with pytest.raises(InputError, match="other must be statistics of other rows, got this object"):
        parts[0].merge(parts[0])


def test_merged_shards_are_the_whole(parts, in_order):
    whole = pd.concat([shard(number) for number in range(64)])
    expected, found = evaluate_scores(whole), evaluate(scores=in_order)
    for name in ("ece", "mce", "nll", "brier", "classwise_ece", "accuracy", "num_samples"):
        assert found.pre[name] == pytest.approx(expected.pre[name], abs=1e-9)
    logits = whole[[f"logit_{name}" for name in CLASSES]].to_numpy()
    labels = np.array([CLASSES.index(name) for name in whole.label])
    assert in_order.nll.temperature()[0] == pytest.approx(fit_temperature(logits, labels).value, rel=1e-6)
    assert len(in_order) == len(whole)


def test_statistics_are_fitted_and_corrected_scores_are_measured_in_a_second_round(tmp_path, monkeypatch):
    monkeypatch.setattr(score_statistics, "_SAMPLED_ROWS", 500)
    statistics = merged([measure(shard(number)) for number in range(10)])
    fit = statistics.fit("temperature")
    tested = merged([measure(shard(number), correction=fit.correction) for number in range(10, 20)])
    result = calibrate(scores=statistics, test=tested, method="temperature", output=tmp_path / "out")
    assert (tmp_path / "out" / "correction.json").is_file()
    assert (tmp_path / "out" / "report.html").is_file()
    fitted, test = (pd.concat([shard(i) for i in range(a, a + 10)]) for a in (0, 10))
    expected = calibrate_scores(fitted, test_scores=test, method="temperature")
    assert result.temperature.value == pytest.approx(expected.temperature.value, rel=1e-6)
    for name in ("ece", "nll", "brier", "classwise_ece"):
        assert result.pre[name] == pytest.approx(expected.pre[name], abs=1e-9)
        assert result.post[name] == pytest.approx(expected.post[name], abs=1e-6)


def test_without_corrected_scores_both_sides_are_those_of_the_sample(monkeypatch):
    monkeypatch.setattr(score_statistics, "_SAMPLED_ROWS", 500)
    result = calibrate(scores=merged([measure(shard(number)) for number in range(10)]), method="temperature")
    assert result.pre["num_samples"] == result.post["num_samples"] == 500
    assert any("before and after the correction are measured on a uniform sample of 500" in n for n in result.notes)


def test_without_a_sample_statistics_are_small_and_are_only_reported():
    statistics = measure(shard(0), sample_size=0)
    assert len(pickle.dumps(statistics)) < 2e6
    assert evaluate(scores=statistics).pre["num_samples"] == 200
    with pytest.raises(InputError, match="sample_size must be above 0 for what needs rows"):
        statistics.fit()
    with pytest.raises(InputError, match="sample_size must be an integer of at least 0, got -1"):
        measure(shard(0), sample_size=-1)


@pytest.mark.parametrize("sizes", [(0, 100), (100, 0)])
def test_statistics_without_a_sample_merge_with_others(sizes):
    statistics = merged([measure(shard(number), sample_size=size) for number, size in enumerate(sizes)])
    assert evaluate(scores=statistics).pre["num_samples"] == 400


def test_shards_that_differ_are_refused(parts):
    other = measure(shard(0).rename(columns={"logit_d": "logit_e"}).replace({"label": {"d": "e"}}))
    with pytest.raises(
        InputError, match=r"other must have the classes of the first table, \('a', 'b', 'c', 'd'\), got"
    ):
        merged(parts[:1]).merge(other)
    with pytest.raises(InputError, match="num_bins must be the same to merge, got 10 for 15"):
        merged(parts[:1]).merge(measure(shard(0), num_bins=10))
    correction = parts[0].fit("temperature").correction
    with pytest.raises(InputError, match="correction must be the same to merge, got another one"):
        merged(parts[:1]).merge(measure(shard(0), correction=correction))
    with pytest.raises(InputError, match="num_bins must be 15, with which scores was measured"):
        evaluate(scores=parts[0], num_bins=10)
    with pytest.raises(InputError, match="group must be given to measure"):
        evaluate(scores=parts[0], group="label")
    with pytest.raises(InputError, match="must not be given to measure, got 3"):
        measure(shard(0), batch=3)


def test_a_note_on_all_shards_is_told_once(tmp_path):
    parts = []
    for number in range(3):
        rows = shard(number).rename(columns=lambda name: name.replace("logit", "score"))
        rows.to_parquet(tmp_path / f"part-{number}.parquet")
        parts.append(measure(tmp_path / f"part-{number}.parquet"))
    (note,) = merged(parts).notes
    assert note == "the scores of part-0.parquet and others are taken as logits: some are negative"


def test_a_note_of_merged_tables_names_both_and_keeps_its_words(tmp_path):
    rows = shard(0).rename(columns=lambda name: name.replace("logit", "score"))
    rows.to_parquet(tmp_path / "part.parquet")
    (note,) = measure(rows).merge(measure(tmp_path / "part.parquet")).notes
    assert note == "the scores of part.parquet and others are taken as logits: some are negative"


def test_notes_do_not_depend_on_the_order_of_uses_and_hold_for_the_merged_rows(monkeypatch):
    monkeypatch.setattr(score_statistics, "_SAMPLED_ROWS", 100)
    statistics = measure(shard(0))
    first, second = StatisticsInUse(statistics), StatisticsInUse(statistics)
    first.fit("temperature")
    first.measure()
    second.measure()
    second.fit("temperature")
    assert first.notes == second.notes
    assert any("uniform sample of 100 of the 200 rows" in note for note in first.notes)
    assert not any("sample" in note for note in statistics.notes)
    both = StatisticsInUse(statistics.merge(measure(shard(1))))
    assert not any("sample" in note for note in both.notes)
    both.collected()
    assert any("uniform sample of 100 of the 400 rows" in note for note in both.notes)
    assert not any("of the 200 rows" in note for note in both.notes)


def test_a_result_does_not_say_what_another_made_of_the_statistics(monkeypatch):
    monkeypatch.setattr(score_statistics, "_SAMPLED_ROWS", 100)
    statistics = measure(shard(0))
    before = evaluate(scores=statistics).notes
    assert any("uniform sample of 100" in note for note in calibrate(scores=statistics).notes)
    assert evaluate(scores=statistics).notes == before and not any("uniform sample" in note for note in before)


def test_the_sample_is_uniform_and_does_not_depend_on_the_order():
    counts = np.zeros(40)
    for seed in range(300):
        random = np.random.default_rng(seed)
        batches = [random.standard_normal((10, 2)) for _ in range(4)]
        found = []
        for order in (range(4), (2, 0, 3, 1)):
            sample = RowSample(8)
            for i in order:
                keys = keys_of(batches[i], np.zeros(10))
                rows = sample.wanted(keys)
                sample.add(keys[rows], {"row": 10 * i + rows})
            found.append(sample.columns()["row"])
        np.testing.assert_array_equal(*found)
        assert len(found[0]) == 8
        counts[found[0]] += 1
    assert counts.min() > 30  # 60 on average
    assert counts.max() < 95


def test_a_cache_is_read_back_and_belongs_to_its_file(tmp_path, monkeypatch):
    path, cache = tmp_path / "scores.parquet", tmp_path / "scores.statistics"
    shard(0).to_parquet(path)
    first = measure(path, cache=cache)
    with monkeypatch.context() as patch:
        patch.setattr(ScoreStatistics, "add", None)  # nothing is measured again
        again = measure(path, cache=cache, num_bins=15, kind=None)
    assert again.metrics.compute() == pytest.approx(first.metrics.compute(), nan_ok=True)
    with pytest.raises(InputError, match="cache must be a file of the same scores and arguments"):
        measure(path, cache=cache, num_bins=10)
    shard(1).to_parquet(path)
    with pytest.raises(InputError, match="cache must be a file of the same scores and arguments"):
        measure(path, cache=cache)
    for damaged in (b"broken", pickle.dumps(3), b"", pickle.dumps(first)[:-20]):
        cache.write_bytes(damaged)
        with pytest.raises(InputError, match=r"^cache must be a file that measure wrote, got "):
            measure(path, cache=cache)
        with pytest.raises(InputError, match=r"^path must be a file that save wrote, got "):
            ScoreStatistics.load(cache)
    with pytest.raises(InputError, match="cache must come with scores in files, got a DataFrame"):
        measure(shard(0), cache=tmp_path / "other")


def test_options_that_the_schema_decides_are_refused_not_ignored():
    schema = measure(shard(0)).schema
    for name, value in (("kind", "logits"), ("link", "softmax"), ("classes", ["a", "b", "c", "d"]), ("floor", 0.1)):
        with pytest.raises(InputError, match=rf"^{name} must not be given with schema, got "):
            measure(shard(1), schema=schema, **{name: value})
    table = shard(1)
    table = table.assign(**{f"other_{name}": table[f"logit_{name}"] for name in "abcd"})
    with pytest.raises(
        InputError, match=r"^score_column must name the columns of the schema, .* in batches, got 'oth"
    ):
        measure(table, schema=schema, score_column="other_")
    same = measure(table, schema=schema, score_column="logit_")
    assert same.metrics.compute() == pytest.approx(measure(shard(1)).metrics.compute(), nan_ok=True)


@pytest.mark.slow
def test_a_killed_measurement_goes_on_with_the_shards_that_it_lacks(tmp_path):
    for number in range(6):
        shard(number).to_parquet(tmp_path / f"part-{number}.parquet")
    script = (
        "import sys, time, pathlib, functools\n"
        "from hf_focal import measure\n"
        "from hf_focal.scores import ScoreStatistics\n"
        "folder, parts = pathlib.Path(sys.argv[1]), []\n"
        "original = ScoreStatistics.add\n"
        "def add(self, *args, **options):\n"
        "    print('measures', self.data_name, flush=True)\n"
        "    time.sleep(float(sys.argv[2]))\n"
        "    original(self, *args, **options)\n"
        "ScoreStatistics.add = add\n"
        "for path in sorted(folder.glob('*.parquet')):\n"
        "    parts.append(measure(path, cache=path.with_suffix('.statistics')))\n"
        "merged = functools.reduce(ScoreStatistics.merge, parts)\n"
        "print(sorted(merged.metrics.compute().items()))\n"
    )
    start = [sys.executable, "-c", script, str(tmp_path)]
    killed = subprocess.Popen([*start, "1"], stdout=subprocess.PIPE, text=True)
    while len(list(tmp_path.glob("*.statistics"))) < 3:
        assert killed.poll() is None
        time.sleep(0.05)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    finished = {path.stem for path in tmp_path.glob("*.statistics")}
    lines = subprocess.run([*start, "0"], capture_output=True, text=True, check=True).stdout.splitlines()
    again = {line.split()[1].removesuffix(".parquet") for line in lines[:-1]}
    assert again == {f"part-{number}" for number in range(6)} - finished
    expected = merged([measure(tmp_path / f"part-{number}.parquet") for number in range(6)])
    assert lines[-1] == str(sorted(expected.metrics.compute().items()))


def with_questions(number, missing=0):
    """A shard whose rows come in groups of four with one question; some of the questions are missing."""
    table = shard(number)
    questions = pd.Series([f"{number}, question {row // 4}" for row in range(len(table))])
    return table.assign(question=questions.where(questions.index >= missing))


def clusters_of(statistics):
    samples = statistics.threshold_samples()
    return None if samples.clusters is None else len(np.unique(samples.clusters[0]))


def test_rows_are_draws_of_their_own_if_some_have_no_cluster():
    assert clusters_of(measure(with_questions(1))) == 50
    in_batches = measure(with_questions(1, missing=100))
    assert clusters_of(in_batches) is None and not any("question" in note for note in in_batches.collected().notes)


@pytest.mark.parametrize("order", [1, -1])
def test_shards_without_clusters_merge_with_those_that_have_some(order):
    both = reduce(ScoreStatistics.merge, [measure(with_questions(1)), measure(shard(2))][::order])
    assert len(both.collected()) == 400 and clusters_of(both) is None
    assert clusters_of(measure(with_questions(1)).merge(measure(with_questions(2)))) == 100


def test_shards_with_other_groups_or_named_clusters_do_not_merge():
    table = with_questions(1)
    with pytest.raises(InputError, match="group must be given to measure for all statistics"):
        measure(table, group="question").merge(measure(shard(2)))
    named = measure(table.assign(name=table["question"]), cluster_column="name")
    with pytest.raises(InputError, match="cluster_column must be the same to merge, got 'question' for 'name'"):
        named.merge(measure(with_questions(2)))
