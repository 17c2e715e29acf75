"""Temperature, vector, matrix, and Platt scaling; folding of corrections into weights; calibrated generation."""

from .affine_scaling import fit_matrix_scaling, fit_vector_scaling
from .calibrated_generation import apply_calibrated_generation, calibrated_generation
from .corrections import (
    AffineScaling,
    Correction,
    LabelTemperatures,
    PlattScaling,
    Temperature,
    correction_from_dict,
    fold_calibration,
    fold_temperature,
)
from .cross_fitting import CalibrationFit, fit_calibration
from .platt_scaling import fit_platt_scaling
from .prior_shift import estimate_prior, shift_prior
from .temperature_grid import TemperatureCurves, TemperatureStream
from .temperature_scaling import fit_temperature
from .thresholds import Thresholds, apply_thresholds, fit_thresholds

__all__ = [
    "AffineScaling",
    "CalibrationFit",
    "Correction",
    "LabelTemperatures",
    "PlattScaling",
    "Temperature",
    "TemperatureCurves",
    "TemperatureStream",
    "Thresholds",
    "apply_calibrated_generation",
    "apply_thresholds",
    "calibrated_generation",
    "correction_from_dict",
    "estimate_prior",
    "fit_calibration",
    "fit_matrix_scaling",
    "fit_platt_scaling",
    "fit_temperature",
    "fit_thresholds",
    "fit_vector_scaling",
    "fold_calibration",
    "fold_temperature",
    "shift_prior",
]
