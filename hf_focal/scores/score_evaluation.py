"""Measurement, correction, and comparison of tables of scores: `hf-focal evaluate --scores` and the like."""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from pyarrow import csv
from tqdm.auto import tqdm

from ..calibration import Correction, Temperature, fit_correction
from ..calibration.prior_shift import check_new_prior, check_shares, shares_of, shift_fit
from ..calibration.thresholds import check_goals, choose_thresholds, threshold_details
from ..hub.model_card import model_card
from ..metrics import CalibrationMetrics
from ..metrics.kernel_smoothing import smooth_error
from ..reports import RunResult
from ..reports.output_folder import arguments_of, check_new_file, disk_errors, new_folder, write_results
from ..reports.report_folder import diagrams_of
from ..reports.run_results import write_json
from ..utils.atomic_write import write_whole
from ..validation import InputError
from .column_names import KINDS
from .schema import LINKS, Schema
from .score_table import Scores, read_scores
from .table_files import score_batches

FORMAT, VERSION = "hf_focal correction", 2  # version 1 had other names for A and b
_ROWS = 100_000  # samples in a batch
_MOST_CLASSES = 1000  # with more, no classwise ECE
_MOST_GROUPS = 50
_COMPARED, _PERMUTATIONS = 20_000, 999  # samples of each table at most, and permutations, when two tables are compared


def evaluate_scores(
    scores: Any,
    *,
    reference: Any = None,
    num_bins: int = 15,
    output: str | Path | None = None,
    on_result: Callable[[RunResult], None] | None = None,
    **columns: Any,
) -> RunResult:
    """Measure the calibration of scores with labels, whatever model they come from.

    Args:
        scores: a file or a table, as for `read_scores`.
        reference: an earlier table of the same model; the result then says whether the calibration has changed since,
            and the page shows both in one diagram. The subfolder ``reference`` has the earlier one's report.
        num_bins: bins of the calibration errors.
        output: a new or empty folder; the report is written to its subfolder ``report``, and its page to
            ``report.html``.
        on_result: a function that is called with the result before anything is written.
        **columns: arguments of `read_scores`: names of columns, and what they hold. With `group`, the result has the
            calibration of each group in `details["groups"]`.

    Raises:
        InputError: the table or an argument is wrong; the message is one line.
    """
    arguments = arguments_of(evaluate_scores, locals())
    with new_folder(output):
        table = read_scores(scores, **columns)
        details: dict[str, Any] = {"notes": [*table.notes], "groups": _by_group(table, num_bins)}
        earlier = None
        if reference is not None:
            compared = read_scores(reference, name="reference", schema=table.schema)
            earlier = _result(
                compared, None, _measured(compared, num_bins), None, {"notes": [*compared.notes]}, columns
            )
            details["drift"] = _drift(table, compared) | {"bins": asdict(earlier.pre_bins)}
        metrics = _measured(table, num_bins)
        result = _result(table, None, metrics, None, {k: v for k, v in details.items() if v or k == "notes"}, columns)
        if on_result is not None:
            on_result(result)
        if output is not None:
            write_results(output, result, earlier, arguments)
    return result


def calibrate_scores(
    scores: Any,
    *,
    test_scores: Any = None,
    calibration: str = "auto",
    per_label: bool = False,
    precision: float | None = None,
    recall: float | None = None,
    confidence: float = 0.95,
    simultaneous: bool = False,
    new_prior: float | Sequence[float] | None = None,
    num_bins: int = 15,
    output: str | Path | None = None,
    on_result: Callable[[RunResult], None] | None = None,
    **columns: Any,
) -> RunResult:
    """Fit a correction to scores with labels, measure it, and save it as ``correction.json``.

    Args:
        scores, num_bins, on_result, **columns: as in `evaluate_scores`.
        test_scores: the table to measure on; by default `scores`, so the results are optimistic. Only this table needs
            the column of `group`.
        calibration, per_label: the `method` and `per_label` of `fit_correction`.
        precision, recall, confidence, simultaneous: as for `calibrate_model`. The thresholds are in
            ``correction.json``, for `apply_thresholds`.
        new_prior: as for `calibrate_model`.
        output: a new or empty folder for ``correction.json``, which `Correction.load` and `apply_correction` read, the
            report, and the card, ``README.md``.

    Raises:
        InputError: as in `evaluate_scores`; or the scores are confidences, without the other classes'
            probabilities.
    """
    arguments = arguments_of(calibrate_scores, locals())
    goal = check_goals(confidence, simultaneous, precision=precision, recall=recall)
    check_new_prior(new_prior, "nll", precision)
    with new_folder(output):
        # Groups are measured, not fitted.
        table = read_scores(scores, **columns | ({} if test_scores is None else {"group": None}))
        columns.pop("cluster_column", None)  # of the table of the fit alone
        if table.confidence is not None:
            raise InputError("scores", f"must have the scores of all classes, got confidences in {table.source}")
        test = table
        if test_scores is not None:
            test = read_scores(test_scores, name="test_scores", schema=table.schema, group=columns.get("group"))
        size = table.logits.shape[1]
        if recall is not None and table.link != "sigmoid":
            raise InputError("recall", f"must not be given for scores with a softmax, got {recall}")
        if new_prior is not None:
            check_shares("new_prior", new_prior, size, table.link)
            train_prior = shares_of(table.known_labels, size, table.link, "scores", table.score_names)
        options: Any = {"link": table.link, "per_label": per_label, "num_bins": num_bins, "clusters": table.clusters}
        fit = fit_correction(table.logits, table.known_labels, calibration, **options)
        details: dict[str, Any] = {}
        if new_prior is not None:
            fit, details["prior_shift"] = shift_fit(fit, train_prior, new_prior, table.link, table.score_names)
        correction = fit.correction
        after = _measured(test, num_bins, correction)
        details |= {
            "notes": [*dict.fromkeys([*table.notes, *test.notes, *fit.notes(table.score_names)])],
            "calibration": fit.to_dict(),
            "fitted_on": table.source,
        }
        if groups := _by_group(test, num_bins, correction):
            details["groups"] = groups
        thresholds = None
        if goal:
            thresholds = choose_thresholds(
                fit.threshold_samples(table.are_independent), goal, confidence, simultaneous, table.link
            )
            names = [*table.score_names] or [str(number) for number in range(size)]
            details["thresholds"] = threshold_details(
                thresholds, names, table.source, None if test is table else after
            )
        result = _result(test, fit.temperature, _measured(test, num_bins), after, details, columns)
        if on_result is not None:
            on_result(result)
        if output is not None:
            write_results(output, result, arguments=arguments)
            schema = table.schema
            assert schema is not None  # the scores were read from a table
            saved = {
                "format": FORMAT,
                "version": VERSION,
                "link": table.link,
                "classes": [*table.classes],
                "scores": schema.kind,
                "floor": schema.floor,
                "schema": schema.to_dict(),
                "num_samples": fit.num_samples,
                "correction": correction.to_dict(),
            }
            if thresholds is not None:
                saved["thresholds"] = thresholds.record(names)
            files = [of.source if Path(of.source).suffix else None for of in (table, test)]
            card = model_card(
                result,
                model_name=Path(output).resolve().name,
                task="tabular-classification",
                dataset=files[0],
                figures=[f"report/{name}" for name in diagrams_of(result)],
                fine_tuned=False,
                of_scores=True,
                fitted_on=files[0] or "calibration",
                measured_on="calibration" if test is table else "test",
                test_dataset=files[1],
                same_rows=test is table,
            )
            with disk_errors(output, result):
                write_json(Path(output) / "correction.json", saved)
                write_whole(Path(output) / "README.md", str(card))
    return result


def apply_correction(
    correction: str | Path, scores: str | Path, output: str | Path, score_column: str | Sequence[str] | None = None
) -> int:
    """Correct the scores in a file, in batches, and write the file with the calibrated probabilities added.

    The new columns are ``calibrated_<class>``, or one column ``calibrated`` for one score or unnamed classes.

    Args:
        correction: the file ``correction.json``.
        scores: a csv, tsv, json, jsonl, or parquet file; labels are not needed.
        output: the file to write, which ends in .csv, .tsv, .jsonl, or .parquet, and must not exist. From csv to csv,
            other columns keep their texts, such as 007.
        score_column: the columns of the scores, as for `read_scores`, if they are called otherwise than in the table
            that the correction was fitted to. They must be scores of the same kind and classes.

    Returns:
        The number of rows.

    Raises:
        InputError: a file or a row is wrong, or does not fit the schema in ``correction.json``.
    """
    saved, source, target = read_correction(correction), Path(scores), Path(output)
    schema = Schema.from_dict(saved["schema"]) if "schema" in saved else None
    fitted = Correction.from_dict(saved)
    suffix = target.suffix.lower()
    if suffix not in (".csv", ".tsv", ".jsonl", ".parquet"):
        raise InputError("output", f"must end in .csv, .tsv, .jsonl or .parquet, got {str(target)!r}")
    check_new_file("output", target)
    if not source.is_file():
        raise InputError("scores", f"must be an existing file, got {str(source)!r}")
    # Each process writes to a file of its own, so that two processes do not mix their rows.
    count, writer, part = 0, None, target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with tqdm(unit=" rows", unit_scale=True, disable=None) as progress:  # on a terminal only
            columns_of_scores = () if score_column or schema is None else schema.columns
            for batch in score_batches(source, _ROWS, columns_of_scores, suffix in (".csv", ".tsv")):
                if suffix in (".csv", ".tsv") and any(map(pa.types.is_nested, batch.table.schema.types)):
                    raise InputError(
                        "output", f"must end in .jsonl or .parquet: {source.name} has lists, got {target.name!r}"
                    )
                given = _without_schema(saved) if schema is None else {"schema": schema}
                table = read_scores(batch, needs_labels=False, score_column=score_column, **given)
                schema = table.schema
                if fitted.size not in (None, size := table.logits.shape[1]):
                    raise InputError(
                        "correction", f"must be for {size} classes like scores, got one for {fitted.size}"
                    )
                if fitted.method in ("vector", "matrix") and (infinite := ~np.isfinite(table.logits).all(1)).any():
                    where = batch.where(int(infinite.argmax()))
                    raise InputError("scores", f"must be finite for {fitted.method} scaling, got -inf in {where}")
                logits = torch.from_numpy(fitted.apply(table.logits))
                probabilities = logits.sigmoid() if saved["link"] == "sigmoid" else logits.softmax(1)
                corrected = _with_columns(batch.table, probabilities.numpy(), saved["classes"], suffix)
                writer = _writer(part, suffix, corrected.schema) if writer is None else writer
                writer(corrected)
                count += len(corrected)
                progress.update(len(corrected))
        if writer is None:
            raise InputError("scores", f"must have rows, got none in {str(source)!r}")
        writer(None)
        part.rename(target)
    finally:
        part.unlink(missing_ok=True)
    return count


def read_correction(path: str | Path) -> dict[str, Any]:
    try:
        saved = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError("correction", f"must be a file that calibrate wrote, got {str(path)!r}: {error}") from error
    if not isinstance(saved, dict) or saved.get("format") != FORMAT:
        raise InputError("correction", f"must be a file that calibrate wrote, got {str(path)!r} without its format")
    if (version := saved.get("version")) not in (1, VERSION):
        raise InputError("correction", f"must have version 1 or {VERSION}, got {version!r} in {str(path)!r}")
    if missing := {"link", "classes", "scores", "floor", "correction"} - saved.keys():
        raise InputError("correction", f"must have {', '.join(sorted(missing))}, got {str(path)!r} without it")
    classes, floor = saved["classes"], saved["floor"]
    names = isinstance(classes, list) and all(isinstance(name, str) for name in classes)
    checks = {
        "link": saved["link"] in LINKS,
        "scores": saved["scores"] in KINDS and saved["scores"] != "confidence",
        "classes": names and len(set(classes)) == len(classes),
        "floor": isinstance(floor, int | float) and 0 <= floor < 0.5,
    }
    for name, is_valid in checks.items():
        if not is_valid:
            raise InputError(
                "correction", f"must be a file that calibrate wrote, got {name} {saved[name]!r} in {path}"
            )
    try:
        fitted = Correction.from_dict(saved)
        schema = Schema.from_dict(saved["schema"]) if "schema" in saved else None
    except (TypeError, ValueError) as error:
        raise InputError("correction", f"must be a file that calibrate wrote, got {str(path)!r}: {error}") from error
    if schema is not None:
        stated = (schema.kind, schema.link, [*schema.classes], schema.floor)
        if stated != (saved["scores"], saved["link"], classes, floor):
            raise InputError(
                "correction", f"must be a file that calibrate wrote, got a schema of other scores in {str(path)!r}"
            )
    links = {"platt": "sigmoid", "bias": "softmax", "vector": "softmax", "matrix": "softmax"}
    links["temperature"] = saved["link"] if fitted.T is not None else "sigmoid"
    if saved["link"] != links[fitted.method]:
        raise InputError("correction", f"must not have {fitted.method} with a {saved['link']}, got {str(path)!r}")
    return saved


def _without_schema(saved: dict[str, Any]) -> dict[str, Any]:
    """Return arguments of `read_scores` for the first rows, if a correction was saved before version 0.3."""
    return {
        "kind": saved["scores"],
        "classes": saved["classes"],
        "link": saved["link"],
        "floor": saved["floor"] or None,
    }


def _with_columns(batch: pa.Table, probabilities: np.ndarray, classes: list[str], suffix: str) -> pa.Table:
    names = ["calibrated", *(f"calibrated_{name}" for name in classes or range(probabilities.shape[1]))]
    if taken := {*names} & {*batch.column_names}:
        raise InputError("scores", f"must have no calibrated probabilities yet, got a column {min(taken)!r}")
    if probabilities.shape[1] == 1:
        return batch.append_column("calibrated", pa.array(probabilities[:, 0]))
    if not classes and suffix in (".parquet", ".jsonl"):
        flat = pa.array(np.ascontiguousarray(probabilities).reshape(-1))
        lists = pa.FixedSizeListArray.from_arrays(flat, probabilities.shape[1]).cast(pa.list_(pa.float64()))
        return batch.append_column("calibrated", lists)
    for number, column in enumerate(probabilities.T):
        name = classes[number] if classes else str(number)
        batch = batch.append_column(f"calibrated_{name}", pa.array(np.ascontiguousarray(column)))
    return batch


def _writer(path: Path, suffix: str, schema: pa.Schema) -> Callable[[pa.Table | None], None]:
    """Return a function that writes a batch, or closes the file if it is given None."""
    if suffix == ".jsonl":
        file = path.open("w", encoding="utf-8")

        def write_lines(batch: pa.Table | None) -> None:
            if batch is None:
                file.close()
            else:
                # Arrow reads texts of dates as dates.
                file.writelines(json.dumps(row, default=str) + "\n" for row in batch.to_pylist())

        return write_lines
    options = csv.WriteOptions(delimiter="\t" if suffix == ".tsv" else ",")
    made = (
        pq.ParquetWriter(path, schema) if suffix == ".parquet" else csv.CSVWriter(path, schema, write_options=options)
    )
    return lambda batch: made.close() if batch is None else made.write_table(batch)


def _measured(table: Scores, num_bins: int, correction: Correction | None = None) -> CalibrationMetrics:
    if table.confidence is not None:
        metrics = CalibrationMetrics(num_bins, classwise=False)
        metrics.update_from_confidences(table.confidence, table.known_labels)
        return metrics
    metrics = CalibrationMetrics(num_bins, classwise=table.logits.shape[1] <= _MOST_CLASSES, link=table.link)
    for start in range(0, len(table.logits), _ROWS):
        logits = table.logits[start : start + _ROWS]
        logits = logits if correction is None else correction.apply(logits)
        metrics.update(logits, table.known_labels[start : start + _ROWS])
    return metrics


def _result(
    table: Scores,
    temperature: Temperature | None,
    before: CalibrationMetrics,
    after: CalibrationMetrics | None,
    details: dict[str, Any],
    columns: dict[str, Any],
) -> RunResult:
    name = Path(table.source).stem
    options = {key: value for key, value in columns.items() if key != "floor"}  # those of the command
    details = {"model": name, "task": "scores", "options": options, "measured_on": table.source, **details}
    result = RunResult.of(name, temperature, before, after, details=details, label_names=table.score_names)
    if table.confidence is not None:
        result.details["notes"].append("confidences alone give no NLL, Brier score, or classwise error")
        result = replace(result, pre=_known(result.pre), post=_known(result.post))
    return result


def _known(metrics: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in metrics.items() if not np.isnan(value)}


def _by_group(table: Scores, num_bins: int, correction: Correction | None = None) -> dict[str, Any]:
    """Return lists of the groups' "name", "num_samples", "error", and ECE with its interval, the worst group first."""
    if table.groups is None:
        return {}
    names = np.unique(table.groups)
    if len(names) > _MOST_GROUPS:
        raise InputError("group", f"must have at most {_MOST_GROUPS} different values, got {len(names)}")
    rows = []
    for name in names:
        metrics = _measured(table.select(table.groups == name), num_bins, correction)
        values, (low, high) = metrics.compute(), metrics.bootstrap().get("ece", (np.nan, np.nan))
        gap = values.get("confidence", np.nan) - values.get("accuracy", np.nan)
        rows.append(
            (str(name), int(values["num_samples"]), values.get("error", np.nan), gap, values["ece"], low, high)
        )
    rows.sort(key=lambda row: -row[4])
    columns = ("name", "num_samples", "error", "gap", "ece", "ece_low", "ece_high")
    return {column: [row[i] for row in rows] for i, column in enumerate(columns)}


def _drift(table: Scores, reference: Scores) -> dict[str, Any]:
    """Compare the smooth ECE of two tables by a permutation test, which assigns the samples to tables at random."""
    rng, samples = np.random.default_rng(0), []
    for part in (table, reference):
        confidence, correct = (of.numpy().astype(float) for of in _measured(part, 15).samples())
        rows = rng.permutation(len(confidence))[:_COMPARED]
        samples.append((confidence[rows], correct[rows]))
    size = len(samples[0][0])
    confidence, correct = (np.concatenate([part[i] for part in samples]) for i in (0, 1))

    def error(rows: np.ndarray) -> float:
        return smooth_error(np.stack([np.ones(len(rows)), confidence[rows], correct[rows]]))

    def difference(order: np.ndarray) -> float:
        return abs(error(order[:size]) - error(order[size:]))

    rows = np.arange(len(confidence))
    seen = difference(rows)
    larger = sum(difference(rng.permutation(rows)) >= seen for _ in range(_PERMUTATIONS))
    return {
        "reference": reference.source,
        "before": error(rows[size:]),
        "now": error(rows[:size]),
        "p_value": (larger + 1) / (_PERMUTATIONS + 1),
    }
