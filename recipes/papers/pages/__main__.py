"""Write all pages: ``python -m papers.pages``."""

from . import corrections, fine_tuning, multi_label, reproduction, sft, without_records

for page in (corrections, fine_tuning, multi_label, reproduction, sft, without_records):
    page.write_page()
