"""The file ``correction.json``."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ...calibration import CalibrationFit, Correction
from ...calibration.corrections import FILE_VERSIONS
from ...errors import InputError
from ...utils.json_values import write_json
from ..meanings import KINDS, LINKS, Link, ScoreKind
from ..schema.schema import Schema
from ..values.logits import Floor

FORMAT, VERSION = "hf_focal correction", FILE_VERSIONS[-1]


@dataclass(frozen=True)
class SavedCorrection:
    """What ``correction.json`` holds.

    Attributes:
        correction: the correction.
        link: "softmax" or "sigmoid".
        classes: the names of the classes or labels in the order of the scores; [] if they have none.
        kind: the kind of scores that the correction was fitted to, such as "logits".
        floor: what replaced a probability of 0; 0 if nothing did.
        schema: of the table that the correction was fitted to; None without one, as in files before version 0.3.
        thresholds: the record of thresholds, which may not be one of these classes; None without any.
    """

    correction: Correction
    link: Link
    classes: list[str]
    kind: ScoreKind
    floor: float
    schema: Schema | None
    thresholds: Any

    @property
    def meaning_without_schema(self) -> dict[str, Any]:
        """Arguments of `read_scores` for the first rows, if there is no schema."""
        floor = Floor(self.floor) if self.floor else None
        return {"kind": self.kind, "classes": self.classes, "link": self.link, "floor": floor}


def write_correction(
    path: str | Path,
    fit: CalibrationFit,
    classes: Sequence[str] = (),
    schema: Schema | None = None,
    thresholds: dict[str, Any] | None = None,
    source_entries: Mapping[str, Any] | None = None,
) -> None:
    """Write ``correction.json``: the correction, of which scores it is, and the record of thresholds.

    Without a `schema`, the scores are logits. `source_entries` is what else a source keeps, such as its prompt.
    """
    saved: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "link": fit.link,
        "classes": [*classes],
        "scores": "logits" if schema is None else schema.kind,
        "floor": 0.0 if schema is None else schema.floor,
    }
    if schema is not None:
        saved["schema"] = schema.to_dict()
    saved |= {"num_samples": fit.num_samples, "correction": fit.correction.to_dict()}
    if thresholds is not None:
        saved["thresholds"] = thresholds
    write_json(Path(path), saved | dict(source_entries or {}))


def read_correction(path: str | Path) -> SavedCorrection:
    """Read what `write_correction` wrote, or the ``calibration.json`` of Platt scaling by a trainer of version 0.2.

    Raises:
        InputError: the file is missing, or holds something else.
    """
    record = _read_record(path)
    _check_entries(path, record)
    try:
        correction = Correction.from_dict(record)
        schema = Schema.from_dict(record["schema"]) if "schema" in record else None
    except (TypeError, ValueError) as error:
        raise _wrong_file(path, f": {error}") from error
    if schema is not None:
        stated = {"scores": schema.kind, "link": schema.link, "classes": [*schema.classes], "floor": schema.floor}
        if any(record[name] != value for name, value in stated.items()):
            raise _wrong_file(path, "", "a schema of other scores in ")
    _check_link(path, correction, record["link"])
    thresholds = (record["thresholds"] or {}) if "thresholds" in record else None  # null is a wrong record, not none
    return SavedCorrection(
        correction, record["link"], record["classes"], record["scores"], record["floor"], schema, thresholds
    )


def _read_record(path: str | Path) -> dict[str, Any]:
    """Return the entries of a file of a known version, all of which it must have."""
    try:
        record = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _wrong_file(path, f": {error}") from error
    if isinstance(record, dict) and {"chosen", "decomposition"} <= record.keys():  # calibration.json of version 0.2
        meaning = {"link": "sigmoid", "classes": [], "scores": "logits", "floor": 0.0}
        record = {"format": FORMAT, "version": 1, **meaning, "correction": record.get("correction", record)}
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise _wrong_file(path, " without its format")
    if (version := record.get("version")) not in FILE_VERSIONS:
        raise InputError("correction", f"must have version 1 or {VERSION}, got {version!r} in {str(path)!r}")
    if missing := {"link", "classes", "scores", "floor", "correction"} - record.keys():
        raise InputError("correction", f"must have {', '.join(sorted(missing))}, got {str(path)!r} without it")
    return record


def _check_entries(path: str | Path, record: Mapping[str, Any]) -> None:
    """Raise `InputError` for an entry that says what the scores are, and cannot."""
    classes, floor = record["classes"], record["floor"]
    are_names = isinstance(classes, list) and all(isinstance(name, str) for name in classes)
    checks = {
        "link": record["link"] in LINKS,
        "scores": record["scores"] in KINDS and record["scores"] != "confidence",
        "classes": are_names and len(set(classes)) == len(classes),
        "floor": isinstance(floor, int | float) and 0 <= floor < 0.5,
    }
    for name, is_valid in checks.items():
        if not is_valid:
            raise InputError(
                "correction", f"must be a file that calibrate wrote, got {name} {record[name]!r} in {path}"
            )


def _check_link(path: str | Path, correction: Correction, link: str) -> None:
    """Raise `InputError` for a correction that the link cannot have, such as a shift that no softmax feels."""
    is_shared_shift = not isinstance(correction.b, torch.Tensor) and correction.b != 0
    if is_shared_shift if link == "softmax" else correction.method in ("vector", "matrix"):
        raise InputError("correction", f"must not have {correction.method} with a {link}, got {str(path)!r}")


def _wrong_file(path: str | Path, problem: str, part: str = "") -> InputError:
    return InputError("correction", f"must be a file that calibrate wrote, got {part}{str(path)!r}{problem}")
