"""Scores of labeled samples, and what keeps them: memory, a large table in batches, or statistics of shards."""
