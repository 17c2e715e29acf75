"""Calibration corrections: temperature, vector, and matrix scaling; folding into weights; calibrated generation."""

from .affine_scaling import AffineScaling, fit_matrix_scaling, fit_vector_scaling
from .calibrated_generation import apply_calibrated_generation, calibrated_generation
from .correction_choice import CalibrationFit, fit_calibration
from .fitted_temperature import Temperature
from .folding import fold_calibration, fold_temperature
from .streaming_temperature import TemperatureCurves, TemperatureStream
from .temperature import fit_temperature

__all__ = [
    "AffineScaling",
    "CalibrationFit",
    "Temperature",
    "TemperatureCurves",
    "TemperatureStream",
    "apply_calibrated_generation",
    "calibrated_generation",
    "fit_calibration",
    "fit_matrix_scaling",
    "fit_temperature",
    "fit_vector_scaling",
    "fold_calibration",
    "fold_temperature",
]
