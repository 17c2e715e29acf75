"""Where the documentation is published."""

WEBSITE = "https://hf-focal.github.io/hf_focal/"
