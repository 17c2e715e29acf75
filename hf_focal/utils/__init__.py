"""What several folders share: atomic writes, folder locks, JSON and Arrow values, model wrappers, and constants."""
