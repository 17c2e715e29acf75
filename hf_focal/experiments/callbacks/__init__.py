"""Trainer callbacks that record the papers' training dynamics."""
