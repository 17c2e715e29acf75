"""Temperature scaling: fitting, folding into the weights, generation."""

from .calibrated_generation import apply_calibrated_generation, calibrated_generation
from .folding import fold_temperature
from .streaming_temperature import TemperatureCurves, TemperatureStream
from .temperature import Temperature, fit_temperature

__all__ = [
    "Temperature",
    "TemperatureCurves",
    "TemperatureStream",
    "apply_calibrated_generation",
    "calibrated_generation",
    "fit_temperature",
    "fold_temperature",
]
