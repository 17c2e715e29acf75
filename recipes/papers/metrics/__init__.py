"""Metrics of the papers that the library does not have."""
