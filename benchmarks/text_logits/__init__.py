"""Logits and labels of text classifiers, to compare corrections on, and how they were made."""
