"""What the benchmarks share: data, networks, peers, timing, and files of figures. No script imports another script.

PyTorch is imported where it is used in `figures`, `memory`, `processes`, and `timing`, because scripts that measure
whole processes import them, too.
"""
