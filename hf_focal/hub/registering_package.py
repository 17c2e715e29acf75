"""Which package must be imported before a model can be loaded."""

from typing import Any


def registering_package(model: Any) -> str | None:
    """Return the package whose import registers a model's class with the Auto classes, or None if none is needed."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    config = getattr(model, "config", None)
    module = type(config).__module__
    if module.split(".")[0] in ("transformers", "transformers_modules", "__main__", "builtins"):
        return None
    return None if getattr(config, "model_type", None) in CONFIG_MAPPING_NAMES else module.rpartition(".")[0] or module
