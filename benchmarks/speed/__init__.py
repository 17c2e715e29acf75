"""Times and memory, beside other implementations."""
