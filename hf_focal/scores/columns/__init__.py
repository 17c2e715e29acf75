"""Which columns of a table hold scores and labels: by their names, by the user's choice, and by the labels."""
