"""The tables of the pages, from the files of figures in `results`."""
