"""The demo of `hf-focal demo`: generated messages, and the training of a small classifier on them."""
