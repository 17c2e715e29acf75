"""What methods are worth, by simulation and on real logits."""
