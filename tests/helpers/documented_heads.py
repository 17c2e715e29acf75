"""The heads that docs/heads.md says work, and those that are refused."""

import csv
import re
from functools import cache

import pytest
import transformers
from documented import ROOT
from torch import nn

WORKS = (ROOT / "docs" / "heads.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `(AutoModelFor\w+)` \| `(\w+)` \| (.+?) \|", re.MULTILINE)
with (ROOT / "docs" / "refused_heads.csv").open(encoding="utf-8", newline="") as file:
    REFUSED = list(csv.reader(file))[1:]


@cache
def shell(name):
    """A model of a class with its default configuration, and without its layers."""
    model_class = getattr(transformers, name, None)
    if model_class is None:
        pytest.skip(f"this release of Transformers has no {name}")
    model = model_class.__new__(model_class)
    nn.Module.__init__(model)
    model.config = model_class.config_class()
    return model
