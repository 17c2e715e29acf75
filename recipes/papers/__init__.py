"""The experiments of the papers: their models, data, runs, figures, and results."""
