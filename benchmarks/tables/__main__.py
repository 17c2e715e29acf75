"""Write the tables of all pages from the files of figures: ``python -m benchmarks.tables``.

These are README.md and peers.md here and, below docs, exactness.md, guides/large_data.md, research/scaling.md,
research/thresholds.md, results/text_corrections.md, and results/zero_shot.md.
"""

from benchmarks.tables.pages import write_pages

write_pages()
