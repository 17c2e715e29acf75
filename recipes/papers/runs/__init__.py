"""Run folders, comparisons of losses, and code that the recipes share."""
