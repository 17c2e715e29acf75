"""Calibrated classifiers with Hugging Face: train with focal-family losses, measure, correct, ship.

The names below are loaded when they are first used: a loss needs no Transformers, a metric no plotting library.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0.dev0"

_MODULES = {
    "CalibrationMetrics": "metrics",
    "FocalSeq2SeqTrainer": "trainer",
    "FocalSeq2SeqTrainingArguments": "trainer",
    "FocalTrainer": "trainer",
    "FocalTrainingArguments": "trainer",
    "LossConfig": "losses",
    "Temperature": "temperature",
    "TemperatureStream": "temperature_stream",
    "apply_calibrated_generation": "generation",
    "build_loss": "losses",
    "calibrated_generation": "generation",
    "fit_temperature": "temperature",
    "fold_temperature": "fold",
    "gamma_for_threshold": "losses",
    "loss_func": "trainer",
    "reliability_diagram": "reports",
}

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
