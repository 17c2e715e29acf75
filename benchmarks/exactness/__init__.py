"""How exact results are, beside other implementations."""
