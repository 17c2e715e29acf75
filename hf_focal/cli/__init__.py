"""The `hf-focal` command, and its evaluation and calibration of trained models."""
