"""The model card of a trained model: measured results, task and training settings."""

import json
from enum import Enum
from pathlib import Path
from typing import Any

from transformers import Trainer

from ..calibration.folding import folded_temperature
from ..hub.hub_publishing import repository_of
from ..hub.model_card import model_card
from ..hub.pipeline_tasks import PIPELINES, classifier_task
from ..reports import RunResult, TranslationResult, write_report
from .gamma_updates import gamma_history
from .model_heads import Head
from .training_arguments import FocalTrainingArguments

_GENERATIVE = {Head.NEXT_TOKENS: PIPELINES["causal-lm"], Head.TARGET_TOKENS: PIPELINES["seq2seq-lm"]}
# Training arguments that a card lists if they are set, and their names there.
_SETTINGS = {
    "num_train_epochs": "epochs",
    "per_device_train_batch_size": "batch size a device",
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


def write_model_card(
    trainer: Trainer,
    result: RunResult | TranslationResult | None,
    test_dataset: Any,
    *,
    task: str | None,
    model_name: str | None,
    base_model: str | None,
    dataset_config: str | None,
    tags: list[str],
    **options: Any,
) -> None:
    """Write the card of a `FocalTrainer`'s model, as `FocalTrainer.create_model_card` says."""
    trainer.forget_folded_temperature()
    args, model = trainer.args, trainer.accelerator.unwrap_model(trainer.model)
    task = task or _hub_task(model, trainer.head)
    measured_on, same_data = "test", False
    named = test_dataset if result is not None and isinstance(test_dataset, str) else None
    if result is None:
        if test_dataset is None:
            fitted_on = trainer.eval_dataset if trainer.calibration_dataset is None else trainer.calibration_dataset
            measured_on, same_data = "validation", fitted_on is trainer.eval_dataset
            test_dataset = trainer.held_out_dataset(trainer.eval_dataset, "test_dataset")
        result = _measured_result(trainer, test_dataset)
    if not trainer.is_world_process_zero():
        return
    folder, fitted = Path(args.output_dir), result.temperature.is_fitted
    card = model_card(
        result,
        task=task,
        model_name=model_name or trainer.hub_model_id or repository_of(args),
        base_model=base_model or getattr(getattr(model, "config", None), "name_or_path", None) or None,
        settings=_settings(args, dataset_config),
        figures=[f"report/reliability_{when}.png" for when in (("before", "after") if fitted else ("before",))],
        folded=_is_folded(folder, trainer.head.generates),
        earlier=None if fitted else trainer.folded_temperature(),
        own_code=type(model).__module__.startswith("hf_focal."),
        measured_on=measured_on,
        test_dataset=named,
        same_rows=same_data,
        **options,
    )
    card.data.tags += tags
    card.save(folder / "README.md")


def _measured_result(trainer: Trainer, dataset: Any) -> RunResult:
    """The result on a dataset; the main process writes its report."""
    before, after = trainer.measure(dataset)
    details = {"gamma_history": gamma_history(trainer.state.log_history)}
    samples = trainer.head is Head.CLASSES and trainer.confusion is None
    result = RunResult.of(
        str(trainer.loss_config), trainer.temperature, before, after, details=details, intervals=samples
    )
    if trainer.is_world_process_zero():
        write_report(Path(trainer.args.output_dir) / "report", result)
    return result


def _is_folded(folder: Path, generates: bool) -> bool:
    """Whether the saved weights contain a temperature."""
    config = folder / "config.json"
    if not config.is_file():
        return False
    calibration = json.loads(config.read_text(encoding="utf-8")).get("calibration")
    return folded_temperature(calibration, generates) is not None


def _hub_task(model: Any, head: Head) -> str:
    """The Hub's name of the model's task."""
    if head in _GENERATIVE:
        return _GENERATIVE[head]
    name = type(model).__name__
    if name.endswith("ForSequenceClassification") and model.main_input_name in ("input_values", "input_features"):
        return "audio-classification"
    task = classifier_task(name)
    if task is None:
        raise ValueError(f"tasks must be given, the Hub's name of what a {name} is for, got None")
    return task


def _settings(args: FocalTrainingArguments, dataset_config: str | None) -> dict[str, Any]:
    """The training settings, name -> value."""
    values = {title: getattr(args, name) for name, title in _SETTINGS.items()}
    values["configuration of the dataset"] = dataset_config
    if args.max_steps > 0:
        values = {"steps": args.max_steps, **values}
        del values["epochs"]
    return {title: value.value if isinstance(value, Enum) else value for title, value in values.items() if value}
