"""Write all pages: ``python -m papers.pages``."""

from papers.pages import fine_tuning, finished_tables, guide_figures, multi_label, reproduction, sft

for page in (fine_tuning, finished_tables, guide_figures, multi_label, reproduction, sft):
    page.write_page()
