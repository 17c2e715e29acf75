"""The HTML pages of a run and of a comparison, with their charts."""
