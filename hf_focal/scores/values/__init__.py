"""What the cells of columns hold: labels as numbers of classes, scores as numbers, and these as logits."""
