"""The scripts that write the tables of docs/results from recipes/papers/records; the prose is written by hand.

- `reproduction`: newsgroups, sst, cifar10, multi30k, dynamics, claims, and reproduction (tests over seeds)
- `fine_tuning`: fine_tuning and fine_tuning_appendix
- `multi_label`, `yes_or_no`: yes_or_no
- `sft`: the page of the same name
- `printed_tables`: cifar10, imbalance, newsgroups_by_date, and yes_or_no
- `analyses`: the figures of analyses, which need no runs

`python -m papers.pages` writes all of them but the figures of `analyses`, and `python -m papers.pages.NAME RUNS` first
adds finished runs to the records. `tables`, `records`, `paper_tables`, and `seed_statistics` are what these scripts
share.
"""
