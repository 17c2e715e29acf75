"""Measurements of speed, of exactness, and of what methods are worth; README.md lists them."""
