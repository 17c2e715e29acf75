"""Atomic writes."""
