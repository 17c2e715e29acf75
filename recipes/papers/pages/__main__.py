"""Write all pages: ``python -m papers.pages``."""

from . import fine_tuning, multi_label, printed_tables, reproduction, sft

for page in (fine_tuning, multi_label, printed_tables, reproduction, sft):
    page.write_page()
