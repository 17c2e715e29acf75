"""Write all pages: ``python -m papers.pages``."""

from . import fine_tuning, multi_label, reproduction, sft, without_records

for page in (fine_tuning, multi_label, reproduction, sft, without_records):
    page.write_page()
