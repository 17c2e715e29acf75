"""What the tasks of models need: their heads, and their data as inputs and labels."""
