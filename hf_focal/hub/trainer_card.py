"""The card of a model that a trainer trained: what it says of the model and of its training."""

from enum import Enum
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, TrainerState, TrainingArguments

from ..reports import RunResult
from ..tasks.heads import without_adapter
from ..utils.model_wrappers import unwrap
from .card_contents import CardData, CardModel, Training, registering_package
from .card_metadata import read_base_metadata
from .model_card import model_card

# Training arguments that are listed if they are set, and the names under which they are.
_TITLES = {
    "max_steps": "steps",
    "num_train_epochs": "epochs",
    "per_device_train_batch_size": "batch size per device",
    "gradient_accumulation_steps": "accumulated batches",
    "world_size": "processes",
    "optim": "optimizer",
    "learning_rate": "learning rate",
    "lr_scheduler_type": "learning rate schedule",
    "warmup_steps": "warm-up steps",
    "weight_decay": "weight decay",
    "max_grad_norm": "largest gradient norm",
    "loss_reduction": "reduction of the loss",
    "seed": "seed",
}


def training_settings(args: TrainingArguments, state: TrainerState, **others: Any) -> dict[str, Any]:
    """Return title -> value of the settings of a run that are set, with the steps or epochs that it took.

    `others` are settings that are no arguments of the training, by their titles.
    """
    length = "max_steps" if args.max_steps > 0 else "num_train_epochs"
    unused = {"max_steps", "num_train_epochs"} - {length}
    settings = {title: getattr(args, name) for name, title in _TITLES.items() if name not in unused}
    if state.global_step:  # training may have stopped early
        settings[_TITLES[length]] = state.global_step if args.max_steps > 0 else f"{state.epoch:.4g}"
    settings |= others
    return {title: value.value if isinstance(value, Enum) else value for title, value in settings.items() if value}


def trained_model(model: Any, name: str, task: str, base: str | None, **others: Any) -> CardModel:
    """Return what a card says of a trained model, perhaps in a wrapper and with an adapter.

    `base` is the model that was fine-tuned; by default, the one that the model was loaded from. `name`, `task`, and
    `others` are attributes of `CardModel`.
    """
    inner = without_adapter(model)
    config = getattr(inner, "config", None)
    return CardModel(
        name,
        task,
        base=base or getattr(config, "name_or_path", None) or None,
        package=registering_package(inner),
        is_loadable=isinstance(inner, PreTrainedModel),
        is_adapter=inner is not unwrap(model),
        num_labels=getattr(config, "num_labels", None),
        **others,
    )


def write_card(
    folder: Path,
    result: RunResult,
    model: CardModel,
    data: CardData,
    training: Training,
    *,
    language: str | list[str] | None = None,
    license: str | None = None,
    tags: str | list[str] | None = None,
) -> None:
    """Write ``README.md``, the card that `model_card` returns, with more `tags` in its metadata."""
    base = read_base_metadata(model.base)
    card = model_card(result, model, data, training, base_metadata=base, language=language, license=license)
    card.data.tags += [tags] if isinstance(tags, str) else tags or []
    card.save(folder / "README.md")
