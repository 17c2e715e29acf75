"""The `hf-focal` command."""
