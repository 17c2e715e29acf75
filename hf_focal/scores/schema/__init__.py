"""What the columns of a table mean: inferred for the first table, remembered, and used for others."""
