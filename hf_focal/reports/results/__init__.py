"""Results of runs, in typed sections, and their form in metrics.json."""
