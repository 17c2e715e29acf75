"""Alias of `hf_focal.experiments.models`, for code and models from earlier versions."""

from ..experiments.models import *  # noqa: F403
from ..experiments.models import __all__ as __all__
