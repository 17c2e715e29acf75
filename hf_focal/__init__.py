"""Calibrated classifiers with Hugging Face: train with focal-family losses, measure, correct, ship."""

__version__ = "0.1.0.dev0"
