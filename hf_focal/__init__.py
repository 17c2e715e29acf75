"""Calibrated classifiers with Hugging Face: train with focal-family losses, measure, correct, ship.

The names below are imported on first use: losses do not need Transformers, and metrics need no plotting library.
"""

__version__ = "0.3.0"

# No imports here: until the command line takes care of Ctrl-C, which comes next, Python answers it with a traceback.
TYPE_CHECKING = False
if TYPE_CHECKING:  # type checkers, for which this is true, read these imports instead of `_MODULES`
    from typing import Any

    from .calibration import Correction as Correction
    from .calibration import Temperature as Temperature
    from .calibration import apply_thresholds as apply_thresholds
    from .calibration import calibrated_generation as calibrated_generation
    from .calibration import fit_correction as fit_correction
    from .calibration import fit_temperature as fit_temperature
    from .calibration import fit_thresholds as fit_thresholds
    from .calibration import fold_correction as fold_correction
    from .calibration import shift_prior as shift_prior
    from .errors import AfterMeasurementError as AfterMeasurementError
    from .errors import GoalNotReachedError as GoalNotReachedError
    from .errors import InputError as InputError
    from .errors import NotPublishedError as NotPublishedError
    from .losses import LossConfig as LossConfig
    from .losses import build_loss as build_loss
    from .losses import gamma_for_threshold as gamma_for_threshold
    from .metrics import CalibrationMetrics as CalibrationMetrics
    from .metrics import expected_calibration_error as expected_calibration_error
    from .recommendation import recommend as recommend
    from .reports import RunResult as RunResult
    from .reports import reliability_diagram as reliability_diagram
    from .scores import Scores as Scores
    from .scores import measure as measure
    from .scores import read_scores as read_scores
    from .sources.source import Source as Source
    from .tasks.splits import load_splits as load_splits
    from .trainer import FocalSeq2SeqTrainer as FocalSeq2SeqTrainer
    from .trainer import FocalSeq2SeqTrainingArguments as FocalSeq2SeqTrainingArguments
    from .trainer import FocalTrainer as FocalTrainer
    from .trainer import FocalTrainingArguments as FocalTrainingArguments
    from .trainer import loss_func as loss_func
    from .trainer.recipe_arguments import parse_recipe as parse_recipe
    from .trainer.sft_trainer import FocalSFTConfig as FocalSFTConfig
    from .trainer.sft_trainer import FocalSFTTrainer as FocalSFTTrainer
    from .workflow import calibrate as calibrate
    from .workflow import calibrate_model as calibrate_model
    from .workflow import calibrate_scores as calibrate_scores
    from .workflow import evaluate as evaluate
    from .workflow import evaluate_model as evaluate_model
    from .workflow import evaluate_scores as evaluate_scores

_MODULES = {
    "Correction": "calibration",
    "Temperature": "calibration",
    "apply_thresholds": "calibration",
    "calibrated_generation": "calibration",
    "fit_correction": "calibration",
    "fit_temperature": "calibration",
    "fit_thresholds": "calibration",
    "fold_correction": "calibration",
    "shift_prior": "calibration",
    "parse_recipe": "trainer.recipe_arguments",
    "AfterMeasurementError": "errors",
    "InputError": "errors",
    "GoalNotReachedError": "errors",
    "NotPublishedError": "errors",
    "LossConfig": "losses",
    "build_loss": "losses",
    "gamma_for_threshold": "losses",
    "CalibrationMetrics": "metrics",
    "expected_calibration_error": "metrics",
    "recommend": "recommendation",
    "RunResult": "reports",
    "reliability_diagram": "reports",
    "Scores": "scores",
    "measure": "scores",
    "read_scores": "scores",
    "Source": "sources.source",
    "load_splits": "tasks.splits",
    "FocalSeq2SeqTrainer": "trainer",
    "FocalSeq2SeqTrainingArguments": "trainer",
    "FocalTrainer": "trainer",
    "FocalTrainingArguments": "trainer",
    "loss_func": "trainer",
    "FocalSFTConfig": "trainer.sft_trainer",
    "FocalSFTTrainer": "trainer.sft_trainer",
    "calibrate": "workflow",
    "calibrate_model": "workflow",
    "calibrate_scores": "workflow",
    "evaluate": "workflow",
    "evaluate_model": "workflow",
    "evaluate_scores": "workflow",
}
__all__ = sorted(name for name, module in _MODULES.items() if module != "trainer.sft_trainer")  # which needs TRL


def __getattr__(name: str) -> "Any":
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *_MODULES]
