"""Corrections of logits: fitting, choosing, and folding them into weights; thresholds; calibrated generation."""

from .calibrated_generation import apply_calibrated_generation, calibrated_generation
from .calibration_fit import CalibrationFit
from .corrections import Correction
from .cross_fitting import fit_correction
from .fitted_temperature import Temperature
from .folding import fold_correction
from .prior_shift import match_shares, shift_prior
from .temperature_scaling import fit_temperature
from .temperature_stream import TemperatureCurves, TemperatureStream
from .threshold_decisions import apply_thresholds
from .thresholds import Thresholds, fit_thresholds

__all__ = [
    "CalibrationFit",
    "Correction",
    "Temperature",
    "TemperatureCurves",
    "TemperatureStream",
    "Thresholds",
    "apply_calibrated_generation",
    "apply_thresholds",
    "calibrated_generation",
    "fit_correction",
    "fit_temperature",
    "fit_thresholds",
    "fold_correction",
    "match_shares",
    "shift_prior",
]
