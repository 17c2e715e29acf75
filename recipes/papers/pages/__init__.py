"""The pages of docs/results: each file writes the tables of one page, or of a few, from recipes/papers/records.

`python -m papers.pages` writes all of them, and `python -m papers.pages.NAME RUNS` first adds finished runs.
"""
