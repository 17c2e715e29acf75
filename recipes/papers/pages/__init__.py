"""The scripts that fill numbers, tables, and figures into docs/results; the prose is written by hand in the pages.

- `reproduction`: newsgroups, sst, cifar10, multi30k, dynamics, claims, and reproduction, from our runs of the papers'
  experiments, `paper_runs`
- `fine_tuning`: fine_tuning and its appendix, from `fine_tuning_records`, by the statistics of `fine_tuning_evidence`
- `multi_label`: the posts with several labels in yes_or_no, from records/multi_label.csv
- `sft`: the page of the same name, from records/sft.csv
- `finished_tables`: tables of cifar10, imbalance, newsgroups_by_date, and yes_or_no whose runs are not kept, from
  their cells in records/finished_tables
- `yes_or_no`: the rest of yes_or_no, from new runs, whose tables become finished tables
- `guide_figures`: the figures of two guides, from records/calibrate_existing and records/csv_to_hub

`python -m papers.pages` runs all but `yes_or_no`. `python -m papers.pages.NAME RUNS` first adds finished runs.

What they share: `records` reads and writes records, `page` fills in what it is given, `paper_tables` has the papers'
printed values and sets ours beside them, and `seed_statistics` has tests and intervals over seeds.
"""
