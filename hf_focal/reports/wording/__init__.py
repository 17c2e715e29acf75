"""What is said of results: verdicts, warnings, next steps, summaries, and tables in Markdown."""
