"""Atomic writes and folder locks."""
