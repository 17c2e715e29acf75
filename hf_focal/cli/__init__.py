"""The `hf-focal` command, including evaluation and calibration of trained models."""
