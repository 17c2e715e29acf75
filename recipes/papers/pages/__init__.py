"""The scripts that write the tables of docs/results from recipes/papers/records; the prose is written by hand.

- `reproduction`: newsgroups, sst, cifar10_overfit, multi30k, dynamics, and reproduction (tests over seeds)
- `fine_tuning`: fine_tuning, fine_tuning_appendix, and text_ood
- `multi_label`, `sft`, `corrections`: the page of the same name
- `without_records`: cifar10, goemotions, imbalance, newsgroups_by_date, and reranker
- `yes_or_no`: new tables of goemotions and reranker
- `analyses`: the figures of analyses, which need no runs

`python -m papers.pages` writes all of them, and `python -m papers.pages.NAME RUNS` first adds finished runs to the
records. `tables`, `records`, `paper_tables`, and `seed_statistics` are what these scripts share.
"""
