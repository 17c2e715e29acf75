"""Calibration corrections: temperature, vector, and matrix scaling; folding into weights; calibrated generation."""

from .affine_scaling import fit_matrix_scaling, fit_vector_scaling
from .calibrated_generation import apply_calibrated_generation, calibrated_generation
from .corrections import (
    AffineScaling,
    Correction,
    LabelTemperatures,
    Temperature,
    correction_from_dict,
    fold_calibration,
    fold_temperature,
)
from .cross_fitting import CalibrationFit, fit_calibration
from .temperature import fit_temperature
from .temperature_grid import TemperatureCurves, TemperatureStream

__all__ = [
    "AffineScaling",
    "CalibrationFit",
    "Correction",
    "LabelTemperatures",
    "Temperature",
    "TemperatureCurves",
    "TemperatureStream",
    "apply_calibrated_generation",
    "calibrated_generation",
    "correction_from_dict",
    "fit_calibration",
    "fit_matrix_scaling",
    "fit_temperature",
    "fit_vector_scaling",
    "fold_calibration",
    "fold_temperature",
]
