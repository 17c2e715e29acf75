"""Run folders, comparisons of losses, and what the recipes share."""
