"""Figures that Matplotlib draws, for reports and cards."""
