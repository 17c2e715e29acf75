"""Large tables, read in batches: the same figures as of the whole, whatever they come in."""

import subprocess
import sys
from functools import partial

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from datasets import ClassLabel, Dataset, Features, List, Value
from slow_variants import some_slow

from hf_focal import InputError, calibrate_scores, evaluate_scores, fit_temperature, measure, read_scores
from hf_focal.cli.main import main
from hf_focal.reports import RunResult
from hf_focal.scores.reading import large_tables, table_batches
from hf_focal.scores.sets import measuring, score_statistics
from hf_focal.scores.sets.streamed_scores import StreamedScores

NAMES = ["bird", "cat", "dog", "max", "owl"]  # max may be a statistic, but a label names it
EXACT = ("ece", "mce", "ace", "rmsce", "nll", "brier", "classwise_ece", "accuracy", "entropy", "confidence")


@pytest.fixture
def small(monkeypatch):
    """Tables of more than 1,000 rows count as large, and their batches have 128 rows."""
    monkeypatch.setattr(table_batches, "MOST_ROWS", 1000)
    monkeypatch.setattr(large_tables, "_MOST_TEXT", 1000)
    monkeypatch.setattr(table_batches, "_MOST", 128)


def table(size=3000, seed=0, sort=False, dtype=np.float32):
    random = np.random.default_rng(seed)
    logits = (3 * random.standard_normal((size, len(NAMES)))).astype(dtype)
    labels = (logits / 1.7 + [0, 0.5, 0, 0, 0] + random.gumbel(size=logits.shape)).argmax(1)
    if sort:
        order = np.argsort(labels, kind="stable")
        logits, labels = logits[order], labels[order]
    columns = {f"logit_{name}": logits[:, i] for i, name in enumerate(NAMES)}
    return pd.DataFrame({"text": [f"row {i}" for i in range(size)], **columns, "label": np.array(NAMES)[labels]})


def whole(monkeypatch, measure, *args, **options):
    with monkeypatch.context() as patch:
        patch.setattr(table_batches, "MOST_ROWS", 10**9)
        patch.setattr(large_tables, "_MOST_TEXT", 10**9)
        return measure(*args, **options)


def assert_same(streamed, result):
    for side in ("pre", "post"):
        ours, theirs = getattr(streamed, side), getattr(result, side)
        assert {name: ours[name] for name in EXACT} == pytest.approx({name: theirs[name] for name in EXACT}, abs=1e-9)
        assert abs(ours["adaece"] - theirs["adaece"]) <= ours["adaece_error"]
        for name in ("smooth_ece", "aurc"):
            assert ours[name] == pytest.approx(theirs[name], abs=1e-4)
    assert streamed.pre_intervals["ece"] == pytest.approx(result.pre_intervals["ece"], abs=1e-9)
    assert streamed.subsets.confusion == result.subsets.confusion
    assert streamed.subsets.class_balance == result.subsets.class_balance


@pytest.mark.parametrize("sort", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("suffix", some_slow(["parquet", "csv", "jsonl"], quick=["csv"]))
@pytest.mark.usefixtures("small")
def test_figures_are_those_of_the_whole(tmp_path, monkeypatch, suffix, sort):
    path, rows = tmp_path / f"scores.{suffix}", table(sort=sort)
    {
        "parquet": partial(rows.to_parquet, row_group_size=700),
        "csv": partial(rows.to_csv, index=False),
        "jsonl": partial(rows.to_json, orient="records", lines=True),
    }[suffix](path)
    result = evaluate_scores(path)
    assert_same(result, whole(monkeypatch, evaluate_scores, path))
    assert any("is measured in batches" in note for note in result.notes)
    fitted = calibrate_scores(path, method="temperature", output=tmp_path / "out")
    of_whole = whole(monkeypatch, calibrate_scores, path, method="temperature")
    assert fitted.temperature.value == pytest.approx(of_whole.temperature.value, rel=1e-6)
    assert fitted.post["nll"] == pytest.approx(of_whole.post["nll"], abs=1e-9)
    assert (tmp_path / "out" / "correction.json").is_file()


@pytest.mark.usefixtures("small")
def test_t_of_all_rows_is_exact_with_a_small_sample(tmp_path, monkeypatch):
    monkeypatch.setattr(score_statistics, "_SAMPLED_ROWS", 300)
    table().to_parquet(tmp_path / "scores.parquet")
    result = calibrate_scores(tmp_path / "scores.parquet", method="temperature")
    of_whole = whole(monkeypatch, calibrate_scores, tmp_path / "scores.parquet", method="temperature")
    assert result.temperature.value == pytest.approx(of_whole.temperature.value, rel=1e-6)
    assert result.post["ece"] == pytest.approx(of_whole.post["ece"], abs=1e-6)
    assert any("uniform sample of 300 of the 3,000 rows" in note for note in result.notes)
    bias = calibrate_scores(tmp_path / "scores.parquet", method="bias")
    assert bias.fit.cross_fit.num_samples == 300
    assert bias.pre["num_samples"] == 3000


@pytest.mark.usefixtures("small")
def test_a_shrunk_t_of_all_rows_tells_what_it_is_shrunk_from(tmp_path, monkeypatch):
    monkeypatch.setattr(score_statistics, "_SAMPLED_ROWS", 100)
    rows = table(seed=1)[["logit_bird", "logit_dog"]]
    labels = (rows.to_numpy() / 1.7 + np.random.default_rng(1).gumbel(size=rows.shape)).argmax(1)
    rows.assign(label=np.array(["bird", "dog"])[labels]).to_parquet(tmp_path / "scores.parquet")
    result = calibrate_scores(tmp_path / "scores.parquet")
    T, strength = fit_temperature(rows.to_numpy(), labels).value, result.fit.cross_fit.strength
    assert strength < 1 and result.temperature.shrunk_from == pytest.approx(T, rel=1e-6)
    assert result.temperature.value == pytest.approx(1 / (strength / T + 1 - strength), rel=1e-6)
    result.save(tmp_path / "result.json")
    assert RunResult.load(tmp_path / "result.json").temperature == result.temperature


def inputs(rows, folder):
    """One table in whatever can hold it; the files in parts."""
    for i in range(3):
        rows[i * 1000 : (i + 1) * 1000].to_parquet(folder / f"part-{i}.parquet")
    (folder / "_SUCCESS").touch()
    arrow = pa.Table.from_pandas(rows)
    dataset = Dataset.from_pandas(rows)
    return {
        "folder": folder,
        "pattern": str(folder / "part-*.parquet"),
        "list": sorted(folder.glob("part-*.parquet")),
        "table": arrow,
        "frame": rows,
        "columns": {name: rows[name].to_numpy() for name in rows},
        "arrow_dataset": pyarrow.dataset.dataset(sorted(map(str, folder.glob("part-*.parquet")))),
        "reader": pa.RecordBatchReader.from_batches(arrow.schema, arrow.to_batches(500)),
        "dataset": dataset,
        "iterable": dataset.to_iterable_dataset(),
    }


@pytest.mark.parametrize("limit", [1000, pytest.param(10**6, marks=pytest.mark.slow)])
def test_every_kind_of_input_gives_the_same(tmp_path, monkeypatch, limit):
    monkeypatch.setattr(table_batches, "MOST_ROWS", limit)
    rows = table()
    expected = whole(monkeypatch, evaluate_scores, rows)
    for name, value in inputs(rows, tmp_path).items():
        result = evaluate_scores(value)
        assert {key: result.pre[key] for key in EXACT} == pytest.approx(
            {key: expected.pre[key] for key in EXACT}, abs=1e-9
        ), name
        assert ("adaece_error" in result.pre) == (limit < len(rows)), name


@pytest.mark.usefixtures("small")
def test_a_stream_is_read_once(tmp_path):
    arrow = pa.Table.from_pandas(table())
    reader = pa.RecordBatchReader.from_batches(arrow.schema, arrow.to_batches(500))
    result = calibrate_scores(reader, method="temperature")
    assert result.post["num_samples"] == 3000
    assert result.temperature.value == pytest.approx(1.7, abs=0.2)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("in_batches", [True, False])
def test_the_prior_of_a_large_table_is_that_of_all_rows(in_batches, monkeypatch):
    monkeypatch.setattr(score_statistics, "_SAMPLED_ROWS", 300)
    rows = table()
    counts = rows.label.value_counts()
    scores = rows if in_batches else measure(rows[:2000]).merge(measure(rows[2000:]))
    result = calibrate_scores(scores, method="temperature", new_prior=[0.2] * 5)
    assert result.prior.train_prior == [counts[name] / 3000 for name in NAMES]
    multi_label = rows.drop(columns="label").assign(**{f"label_{name}": rows.label == name for name in NAMES})
    result = calibrate_scores(multi_label, method="temperature", new_prior=[0.2] * 5, link="sigmoid")
    assert result.prior.train_prior == [counts[name] / 3000 for name in NAMES]


@pytest.mark.usefixtures("small")
def test_groups_of_a_stream_are_measured_with_any_number_of_bins():
    rows = table(1200).assign(group=["a", "b"] * 600)
    arrow = pa.Table.from_pandas(rows)
    for function in (evaluate_scores, partial(calibrate_scores, method="temperature")):
        result = function(arrow.to_reader(max_chunksize=500), group="group", num_bins=10)
        assert len(result.pre_bins.count) == 10 and sorted(result.subsets.groups.name) == ["a", "b"]


@pytest.mark.usefixtures("small")
def test_class_labels_keep_their_names():
    rows = table()
    features = Features({"logits": List(Value("float32")), "label": ClassLabel(names=NAMES)})
    logits = rows[[f"logit_{name}" for name in NAMES]].to_numpy()
    data = Dataset.from_dict(
        {"logits": [*logits], "label": [NAMES.index(name) for name in rows.label]}, features=features
    )
    expected = evaluate_scores(rows)
    for given in (data, data.to_iterable_dataset()):
        result = evaluate_scores(given)
        assert result.pre["nll"] == pytest.approx(expected.pre["nll"], abs=1e-9)
        assert result.subsets.confusion.names == NAMES


@pytest.mark.usefixtures("small")
def test_only_the_needed_columns_are_read(tmp_path, monkeypatch):
    table().to_parquet(tmp_path / "scores.parquet")
    read = []
    original = pq.ParquetFile.iter_batches
    monkeypatch.setattr(
        pq.ParquetFile,
        "iter_batches",
        lambda self, size=1, columns=None, **other: (
            read.append(columns) or original(self, size, columns=columns, **other)
        ),
    )
    evaluate_scores(tmp_path / "scores.parquet")
    assert read[-1] == [*(f"logit_{name}" for name in NAMES), "label"]


@pytest.mark.usefixtures("small")
def test_the_only_positive_label_may_come_first(tmp_path):
    """In the first batches all labels are spam, which one column of scores names, and in the last ones none is."""
    random = np.random.default_rng(0)
    p = np.sort(random.random(3000))[::-1]
    rows = pd.DataFrame({"prob_spam": p, "label": np.where(np.arange(3000) < 1400, "spam", "ham")})
    rows.to_parquet(tmp_path / "scores.parquet")
    with pytest.raises(
        InputError, match=r"kind must be given for 'prob_spam' in scores\.parquet: all scores are from"
    ):
        evaluate_scores(tmp_path / "scores.parquet")  # the first ones are
    result = evaluate_scores(tmp_path / "scores.parquet", kind="probabilities")
    expected = evaluate_scores(rows[::3])
    assert result.pre["num_samples"] == 3000
    assert result.pre["ece"] == pytest.approx(expected.pre["ece"], abs=0.01)
    assert result.subsets.confusion.names == expected.subsets.confusion.names


@pytest.mark.usefixtures("small")
def test_predictions_of_a_batch_may_all_be_wrong(tmp_path):
    random = np.random.default_rng(0)
    labels = np.array(["a", "b", "c"])[random.integers(3, size=2000)]
    predictions = np.where(random.random(2000) < 0.8, labels, "a")
    labels[-80:], predictions[-80:] = "c", "b"
    rows = pd.DataFrame({"confidence": 0.5 + random.random(2000) / 2, "label": labels, "prediction": predictions})
    rows.to_parquet(tmp_path / "scores.parquet")
    assert evaluate_scores(tmp_path / "scores.parquet").pre["accuracy"] == pytest.approx(
        (labels == predictions).mean()
    )


def break_row(rows, row, **values):
    rows = rows.copy()
    for name, value in values.items():
        rows.loc[row, name] = value
    return rows


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"label": "emu"}, "must hold names of classes, got 'emu' in 'label' in line 2502 of scores.csv"),
        ({"logit_cat": np.nan}, "must hold numbers, not NaN in each row, got .* in line 2502 of scores.csv"),
    ],
)
def test_an_error_names_the_line_of_a_later_batch(tmp_path, values, message):
    break_row(table(), 2500, **values).to_csv(tmp_path / "scores.csv", index=False)
    with pytest.raises(InputError, match=message):
        evaluate_scores(tmp_path / "scores.csv")


@pytest.mark.usefixtures("small")
def test_shards_must_have_the_columns_of_the_first(tmp_path):
    rows = table()
    rows[:1500].to_parquet(tmp_path / "part-0.parquet")
    rows[1500:].assign(logit_emu=1.0).to_parquet(tmp_path / "part-1.parquet")
    with pytest.raises(InputError, match=r"got also 'logit_emu' in part-1\.parquet"):
        evaluate_scores(tmp_path)
    rows[1500:].drop(columns="logit_cat").to_parquet(tmp_path / "part-1.parquet")
    with pytest.raises(InputError, match=r"must have the column 'logit_cat' of the first table, got part-1\.parquet"):
        evaluate_scores(tmp_path)
    rows[1500:].to_csv(tmp_path / "part-1.csv")
    with pytest.raises(InputError, match=r"must have files of one format, got \.csv, \.parquet in"):
        evaluate_scores(tmp_path)
    with pytest.raises(InputError, match=r"must have files that end in .*, got none in"):
        evaluate_scores(str(tmp_path / "nothing-*.parquet"))


def test_small_shards_must_have_all_columns_of_scores_and_labels(tmp_path):
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(rng.normal(size=(200, 2)), columns=["logit_x", "logit_y"])
    rows = rows.assign(label_x=rng.integers(0, 2, 200), label_y=rng.integers(0, 2, 200))
    rows[:100].assign(comment="a").to_csv(tmp_path / "part-0.csv", index=False)
    rows[100:].to_csv(tmp_path / "part-1.csv", index=False)
    assert evaluate_scores(tmp_path).pre == evaluate_scores(rows).pre
    for column in ("label_y", "logit_y"):  # labels would be unknown without a word
        rows[100:].drop(columns=column).to_csv(tmp_path / "part-1.csv", index=False)
        with pytest.raises(
            InputError, match=rf"must have the column '{column}' in each file, got part-1\.csv without it"
        ):
            evaluate_scores(tmp_path)


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_groups_thresholds_and_drift_come_from_the_sample(tmp_path, monkeypatch):
    monkeypatch.setattr(score_statistics, "_SAMPLED_ROWS", 2000)
    rows = table().assign(language=["de", "en", "fr"] * 1000)
    rows.to_parquet(tmp_path / "scores.parquet")
    table(seed=1).to_parquet(tmp_path / "reference.parquet")
    result = evaluate_scores(
        tmp_path / "scores.parquet",
        group="language",
        reference=tmp_path / "reference.parquet",
        threshold_scores=tmp_path / "reference.parquet",
        coverage=0.5,
    )
    assert sum(result.subsets.groups.num_samples) == 2000
    assert result.drift.p_value > 0.01
    assert result.thresholds.labels[0].value is not None
    fitted = calibrate_scores(
        tmp_path / "scores.parquet", test_scores=tmp_path / "reference.parquet", method="bias", precision=0.6
    )
    assert fitted.thresholds.labels[0].value is not None
    with pytest.raises(InputError, match="save_scores must not be given for a large table"):
        calibrate_scores(tmp_path / "scores.parquet", save_scores=tmp_path / "saved.parquet")


@pytest.mark.usefixtures("small")
def test_labels_of_a_sigmoid_are_streamed(tmp_path, monkeypatch):
    random = np.random.default_rng(0)
    logits = 2 * random.standard_normal((3000, 3))
    ones = (random.random((3000, 3)) < 1 / (1 + np.exp(-logits / 1.5))).astype(float)
    ones[random.random((3000, 3)) < 0.1] = np.nan
    columns = {f"logit_{name}": logits[:, i] for i, name in enumerate("abc")}
    columns |= {f"label_{name}": ones[:, i] for i, name in enumerate("abc")}
    pd.DataFrame(columns).to_parquet(tmp_path / "scores.parquet")
    result = calibrate_scores(tmp_path / "scores.parquet", method="temperature", output=tmp_path / "out")
    expected = whole(monkeypatch, calibrate_scores, tmp_path / "scores.parquet", method="temperature")
    assert result.temperature.value == pytest.approx(expected.temperature.value, rel=1e-6)
    for name in ("ece", "macro_ece", "nll", "brier", "accuracy", "macro_f1", "num_entries"):
        assert result.pre[name] == pytest.approx(expected.pre[name], abs=1e-9)
        assert result.post[name] == pytest.approx(expected.post[name], abs=1e-6)
    assert result.pre_intervals == {}


@pytest.mark.usefixtures("small")
def test_rounded_probabilities_keep_their_floor_and_count_it(tmp_path, monkeypatch):
    logits = table()[[f"logit_{name}" for name in NAMES]].to_numpy(np.float64)
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    rows = pd.DataFrame(p.round(2), columns=[f"prob_{name}" for name in NAMES]).assign(label=table().label)
    rows.to_parquet(tmp_path / "scores.parquet")
    result = evaluate_scores(tmp_path / "scores.parquet")
    expected = whole(monkeypatch, evaluate_scores, tmp_path / "scores.parquet")
    assert result.pre["nll"] == pytest.approx(expected.pre["nll"], abs=1e-9)
    low = next(note for note in expected.notes if "have probabilities below" in note)
    assert low in result.notes


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("percent", [False, True])
def test_probabilities_that_are_rounded_in_the_first_rows_only_leave_the_floor_open(tmp_path, percent):
    random = np.random.default_rng(0)
    p = random.dirichlet([0.3] * 3, 3000)
    p[:2000] = p[:2000].round(2)
    rows = pd.DataFrame(p * (100 if percent else 1), columns=["prob_a", "prob_b", "prob_c"])
    rows = rows.assign(label=random.choice(["a", "b", "c"], 3000))
    rows.to_parquet(tmp_path / "scores.parquet")
    with pytest.raises(
        InputError, match="floor must be given, to replace a probability of 0: the first rows are rounded"
    ):
        evaluate_scores(tmp_path / "scores.parquet")
    assert evaluate_scores(tmp_path / "scores.parquet", floor=1e-6).pre["num_samples"] == 3000


def test_the_command_refuses_a_launcher(tmp_path, monkeypatch, capsys):
    table(100).to_parquet(tmp_path / "scores.parquet")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main(["evaluate", "--scores", str(tmp_path / "scores.parquet")]) == 2
    assert "scores must be measured by one process, got 2 of a launcher" in capsys.readouterr().err


@pytest.mark.slow
def test_memory_does_not_grow_with_the_rows(tmp_path):
    """Peak memory of two tables, of which one has four times the rows, beyond that of the imports."""
    peaks = []
    for size in (300_000, 1_000_000):
        path = tmp_path / f"{size}.parquet"
        table(size).drop(columns="text").to_parquet(path, row_group_size=size)
        code = (
            "import sys\n"
            "from hf_focal.scores.reading import large_tables, table_batches\n"
            "table_batches.MOST_ROWS, table_batches._MOST = 1000, 8192\n"
            "from hf_focal.scores.sets.streamed_scores import StreamedScores\n"
            "table = large_tables.open_table('scores', sys.argv[1])\n"
            "StreamedScores(table).statistics(fits=False)\n"
            "print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))\n"
        )
        done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
        peaks.append(int(done.stdout) / 1024)
    assert peaks[1] < peaks[0] + 8  # MB; the additional rows have 20 MB


def test_the_meaning_of_a_table_is_checked_by_the_first_one():
    first = measure(table(200))
    other = table(200).rename(columns={"logit_cat": "logit_cow"}).replace({"label": {"cat": "cow"}})
    with pytest.raises(InputError, match="must have the columns of logits of the first table"):
        measure(other, schema=first.schema)
    assert isinstance(read_scores(table(200)).logits, np.ndarray)
    assert StreamedScores(large_tables.in_batches("scores", table(200)), first.schema).schema == first.schema
    assert measuring.measure is measure


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("form", ["mappings", "lists"])
def test_scores_of_an_api_in_a_column_that_the_user_names(form, tmp_path, monkeypatch):
    rows = table(2500)
    logits = rows[[f"logit_{name}" for name in NAMES]].to_numpy()
    values = [dict(zip(NAMES, row, strict=True)) for row in logits.tolist()]
    if form == "lists":
        values = [[{"label": name, "score": value} for name, value in row.items()] for row in values]
    path = tmp_path / "api.parquet"
    pd.DataFrame({"answers": values, "label": rows.label}).to_parquet(path)
    options = {"score_column": "answers", "kind": "logits"}
    result = evaluate_scores(path, **options)
    assert_same(result, whole(monkeypatch, evaluate_scores, path, **options))
