"""The result of any run, whatever it was trained for."""

import json
from pathlib import Path

from .result_json import mapping
from .run_report import RunResult
from .translation_report import TranslationResult


def read_result(path: str | Path) -> RunResult | TranslationResult:
    """The result of a run's report/metrics.json."""
    fields = mapping("it", json.loads(Path(path).read_text(encoding="utf-8")))
    return (TranslationResult if "bleu" in fields else RunResult).load(path)
