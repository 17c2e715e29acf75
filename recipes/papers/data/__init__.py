"""Datasets of the papers' experiments, real and generated."""
