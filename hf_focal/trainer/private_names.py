"""Private names of Transformers that `FocalTrainer` depends on; docs/architecture.md says why."""

import inspect

import transformers
from transformers import Trainer


def check_private_names(trainer: Trainer) -> None:
    """Check that the installed release of Transformers has all of them.

    Raises:
        RuntimeError: it lacks one, so that a training or a push would differ silently.
    """
    missing = [name for name in ("callback_handler", "gather_function") if not hasattr(trainer, name)]
    if not hasattr(Trainer, "_push_from_checkpoint"):
        missing.append("_push_from_checkpoint")
    if "_internal_call" not in inspect.signature(Trainer.save_model).parameters:
        missing.append("save_model(_internal_call=...)")
    if missing:
        raise RuntimeError(
            f"transformers {transformers.__version__} must have Trainer.{missing[0]}, which it lacks: install another "
            "release, or a newer hf_focal"
        )
