"""Evaluation and calibration of trained models: what `hf-focal evaluate` and `hf-focal calibrate` do."""

from ..validation import InputError
from .model_calibration import calibrate_model
from .model_evaluation import evaluate_model
from .output_folder import NotPublishedError

__all__ = ["InputError", "NotPublishedError", "calibrate_model", "evaluate_model"]
