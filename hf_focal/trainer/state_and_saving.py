"""Checkpoints of `FocalTrainer` and checks that they are complete; saving, cards, and uploads of trained models."""

import copy
import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from shutil import copy2
from tempfile import TemporaryDirectory
from typing import Any
from zipfile import is_zipfile

from accelerate import Accelerator
from huggingface_hub import run_as_future
from safetensors import SafetensorError, safe_open
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase, Trainer, TrainerCallback
from transformers.integrations import is_deepspeed_zero3_enabled
from transformers.trainer_callback import ExportableState
from transformers.trainer_utils import HubStrategy

from ..calibration import Correction, fold_correction
from ..calibration.adapter_folding import adapter_calibration, fold_saved_adapter
from ..calibration.corrections import calibration_record, is_folded
from ..calibration.promises import drop_promises
from ..hub.hub_publishing import HubError, published_files, upload
from ..hub.model_card import model_card, registering_package
from ..reports import RunResult, write_report
from ..reports.report_folder import diagrams_of
from ..reports.result_sections import CrossFit, DataSection, FitSection, PartsSection
from ..reports.verdicts import warnings_of
from ..tasks.heads import Head, head_of, label_names_of, task_of_model, without_adapter
from ..utils.atomic_write import write_whole
from ..utils.model_wrappers import unwrap
from ..validation import InputError, require
from .deferred_logits import is_sharded_class
from .evaluation_and_correction import evaluation_set, same_data
from .training_callbacks import gamma_history

STATE_FILE = "focal_state.json"
_logger = logging.getLogger(__name__)
# Files that training needs to resume -> patterns of their names, which differ with adapters, FSDP, and TPUs.
_NEEDED: dict[str, tuple[str, ...]] = {
    "the model": ("model*.safetensors", "pytorch_model*", "adapter_model*", "*/adapter_model*"),
    "optimizer.pt": ("*optimizer*",),
    "scheduler.pt": ("scheduler.pt",),
}
# Training arguments that a model card lists if they are set, and the names under which it lists them.
_SETTINGS = {
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


class FocalCheckpoint(TrainerCallback, ExportableState):
    """An idle callback, whose name in ``trainer_state.json`` marks a checkpoint as written by `FocalTrainer`."""

    def state(self) -> dict[str, Any]:
        return {"args": {}, "attributes": {}}


def write_state(checkpoint: str | Path, state: dict[str, Any]) -> None:
    write_whole(Path(checkpoint, STATE_FILE), json.dumps(state, indent=2) + "\n")


def read_state(checkpoint: str | Path) -> dict[str, Any] | None:
    """Return the state that `FocalTrainer` saved in a checkpoint, or None if a different trainer saved the checkpoint.

    Raises InputError if `FocalTrainer` saved the checkpoint, but the file with the state is missing or not valid JSON.
    """
    file, trainer_state = Path(checkpoint, STATE_FILE), Path(checkpoint, "trainer_state.json")
    if file.is_file():
        try:
            return json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise InputError(str(file), f"is not valid JSON ({error}): resume from another checkpoint") from error
    if trainer_state.is_file():  # or else it is not a checkpoint, and Trainer raises the error
        marks = json.loads(trainer_state.read_text(encoding="utf-8")).get("stateful_callbacks") or {}
        # Earlier versions kept their state in trainer_state.json, under the name "FocalTrainer".
        if FocalCheckpoint.__name__ in marks or "FocalTrainer" in marks:
            needed = f"{STATE_FILE}, the state of its loss, which FocalTrainer saves: resume from another checkpoint"
            raise InputError("checkpoint", f"{str(checkpoint)!r} must contain {needed}")
    return None


def step_size(trainer: Trainer) -> dict[str, int]:
    """Return the number of samples or, for batches of a number of tokens, of tokens in a step of all processes."""
    args: Any = trainer.args
    tokens = getattr(args, "max_tokens_per_batch", None)
    if tokens is None:
        return {"samples_per_step": trainer.get_total_train_batch_size(args)}
    return {"tokens_per_step": tokens * args.gradient_accumulation_steps * args.world_size}


def check_step_size(saved: Mapping[str, Any] | None, trainer: Trainer) -> None:
    """Raise InputError if training for epochs would resume with larger or smaller steps than those of `saved`.

    Trainer finds the epoch by counting steps, so it would skip or repeat data: with twice the processes, it would stop
    in the middle of the training. With `max_steps`, another size is allowed.
    """
    ((unit, now),), args = step_size(trainer).items(), trainer.args
    before = now if saved is None else saved.get(unit, now)
    of_batch = "max_tokens_per_batch" if unit == "tokens_per_step" else "per_device_train_batch_size"
    require(
        before == now or args.max_steps > 0 or args.auto_find_batch_size,
        f"{of_batch} × gradient_accumulation_steps × number of processes",
        f"must be that of the checkpoint, {before}, got {now}: Trainer counts steps, so it would skip or repeat data; "
        "to resume anyway, set max_steps instead of num_train_epochs",
    )


def last_complete_checkpoint(output_dir: str | Path) -> str | None:
    """Return the path of the newest checkpoint in `output_dir` from which training can resume, or None.

    A killed process or a full disk can leave a checkpoint in which a file is missing or cut off: the model; the state
    of the optimizer, the scheduler, or the trainer; or the random state of a process. Such checkpoints are skipped,
    and so are checkpoints that hold only the model (`save_only_model`). Each skipped checkpoint causes a warning.
    """
    for path in _newest_first(output_dir):
        problem = _problem(path)
        if problem is None:
            return str(path)
        _logger.warning("%s %s, so it is skipped", path, problem)
    return None


def complete_checkpoints(output_dir: str | Path) -> list[str]:
    """Return the paths of the checkpoints in `output_dir` from which training can resume, newest first."""
    return [str(path) for path in _newest_first(output_dir) if _problem(path) is None]


def _newest_first(output_dir: str | Path) -> list[Path]:
    found = Path(output_dir).glob("checkpoint-*")
    checkpoints = [path for path in found if re.fullmatch(r"checkpoint-\d+", path.name)]
    return sorted(checkpoints, key=lambda path: int(path.name.split("-")[1]), reverse=True)


def _problem(checkpoint: Path) -> str | None:
    """Return why training cannot resume from a checkpoint, or None if it can."""
    try:
        json.loads((checkpoint / "trainer_state.json").read_text(encoding="utf-8"))
        # The stock Trainer does not record the number of its processes.
        num_processes = (read_state(checkpoint) or {"num_processes": 1})["num_processes"]
        indices = [json.loads(path.read_text(encoding="utf-8")) for path in checkpoint.glob("*.index.json")]
        shards = {shard for index in indices for shard in index["weight_map"].values()}
    except (AttributeError, FileNotFoundError, KeyError, TypeError, ValueError):
        return "is incomplete"
    num_random_states = len(list(checkpoint.glob("rng_state*.pth")))
    if not num_random_states:
        return "holds only the model"
    if num_random_states < num_processes:
        return "is incomplete (random states are missing)"
    needed: dict[str, tuple[str, ...]] = {shard: (shard,) for shard in shards}
    if not (checkpoint / "latest").exists():  # DeepSpeed writes this file, and saves _NEEDED in its own folders
        needed |= _NEEDED
    for name, patterns in needed.items():
        if not any(any(checkpoint.glob(pattern)) for pattern in patterns):
            return f"is incomplete ({name} is missing)"
    cut_off = next((path.name for path in checkpoint.iterdir() if _is_cut_off(path)), None)
    return None if cut_off is None else f"is incomplete ({cut_off} is cut off)"


def _is_cut_off(path: Path) -> bool:
    try:
        if path.suffix == ".json":
            json.loads(path.read_text(encoding="utf-8"))
        elif path.suffix == ".safetensors":
            with safe_open(path, framework="pt"):  # the header holds the length of the file
                pass
    except (SafetensorError, OSError, ValueError):
        return True
    # torch.save writes a zip archive, whose directory comes last.
    return path.suffix in (".pt", ".pth") and not is_zipfile(path)


@dataclass
class LoggedLoss:
    """Sums of the losses of all steps, kept because Trainer's own sums restart at 0 in a resumed run. All processes
    must call each method."""

    first_step: int  # the number of steps before the first one that is summed
    last_log: int  # the step of the last log
    total: float = 0.0  # up to the last log
    pending: Tensor | float = 0.0  # since the last log

    def reduce(self, accelerator: Accelerator) -> float:
        """Replace `pending` by its average over all processes, a float, and return this average."""
        if isinstance(self.pending, Tensor):
            self.pending = float(accelerator.reduce(self.pending, "mean"))
        return self.pending

    def mean_since_last_log(self, step: int, accelerator: Accelerator) -> float:
        """Return the mean loss of the steps since the last log, and record `step` as the step of the last log."""
        pending, steps = self.reduce(accelerator), step - self.last_log
        self.total, self.pending, self.last_log = self.total + pending, 0.0, step
        return pending / steps

    def mean(self, step: int, accelerator: Accelerator) -> float:
        """Return the mean loss of all steps after `first_step`, up to `step`."""
        return (self.total + self.reduce(accelerator)) / max(step - self.first_step, 1)


def weight_files(folder: Path) -> dict[Path, tuple[int, int]]:
    """Return the safetensors files in a folder, each with two numbers that change when the file is rewritten."""
    found = {path: path.stat() for path in folder.glob("*.safetensors")}
    # The time alone may stay the same: clocks tick every few milliseconds, on some file systems every second.
    return {path: (stat.st_ino, stat.st_mtime_ns) for path, stat in found.items()}


def fold_saved(
    model: Any,
    folder: Path,
    correction: Correction,
    earlier: dict[Path, tuple[int, int]],
    example: Mapping[str, Any] | None = None,
) -> None:
    """Fold a correction into a saved model. If that fails, record the correction in the saved configuration, and warn.

    Only the saved files change. `model` does not, because FSDP2 and ZeRO-3 may keep only shards of it in memory.
    `earlier` is what `weight_files` returned before the model was saved, and `example` is a batch for the trial of
    `fold_correction`. If the model has an adapter, only the adapter is saved. An adapter cannot hold the temperature
    of a language model, so this temperature is recorded in the saved generation configuration instead.
    """
    model_class, adapter = type(model), without_adapter(model) is not model
    try:
        if adapter and model.active_adapters != ["default"]:  # PEFT saves other adapters in subfolders
            raise TypeError(f"the active adapter must be 'default', got {model.active_adapters}")
        # FSDP's sharded state dicts and ZeRO-3's checkpoints are saved in other kinds of files.
        if weight_files(folder) == earlier:
            raise TypeError("the model must be saved unsharded, got an FSDP or ZeRO-3 plugin that shards it")
        if adapter:
            return fold_saved_adapter(model, folder, correction, example)
        # FSDP2 replaces the class of a model by one that derives from it.
        model_class = next(kind for kind in model_class.__mro__ if not is_sharded_class(kind))
        if not issubclass(model_class, PreTrainedModel):
            raise TypeError(f"the model must be one of Transformers, got {model_class.__name__}")
        if is_deepspeed_zero3_enabled():  # then from_pretrained would shard the model again
            from transformers.integrations import HfDeepSpeedConfig

            unsharded = HfDeepSpeedConfig({"zero_optimization": {"stage": 0}})  # noqa: F841 (in force while referenced)
        fold_correction(model_class.from_pretrained(folder), correction, example).save_pretrained(folder)
    except Exception as error:  # a model's own code raises anything
        config = folder / "config.json"
        if config.is_file():  # as JSON, which works for the configuration of any class
            values = json.loads(config.read_text(encoding="utf-8"))
            drop_promises(values)
            values["calibration"] = calibration_record(correction, folded=False)
            write_whole(config, json.dumps(values, indent=2, sort_keys=True) + "\n")
        elif adapter and head_of(model).generates and correction.T is not None:
            generation = copy.deepcopy(model.generation_config)
            generation.update(do_sample=True, temperature=correction.T)
            generation.save_pretrained(folder)
        _logger.warning(
            "%s is not in the saved weights, so it must be applied to their logits, as the model card says: %s",
            correction,
            error,
        )


def write_model_card(
    trainer: Trainer, result: RunResult | None, test_dataset: Any, dataset_config: str | None, **named: Any
) -> None:
    """Write the card of a `FocalTrainer`'s saved model, as `FocalTrainer.create_model_card` does.

    `named` are arguments of `model_card`, and the card's `tags`.
    """
    trainer.forget_folded_temperature()
    args, state, model, tags = trainer.args, trainer.state, without_adapter(trainer.model), named.pop("tags") or []
    model_config = getattr(model, "config", None)
    named["task"] = named["task"] or task_of_model(model, trainer.head).pipeline
    named["base_model"] = named["base_model"] or getattr(model_config, "name_or_path", None) or None
    if result is not None:
        named["test_dataset"] = test_dataset if isinstance(test_dataset, str) else None
    else:
        test_dataset = trainer.eval_dataset if test_dataset is None else test_dataset
        test_dataset = trainer.held_out_dataset(test_dataset, "test_dataset")
        named["measured_on"] = _split(trainer, test_dataset, "test")
        named["same_rows"] = same_data(trainer.fitted_on, test_dataset)
        result = measured_result(trainer, test_dataset)
    if not trainer.is_world_process_zero():
        return
    if trainer.fitted_on is not None:
        named["fitted_on"] = _split(trainer, trainer.fitted_on, "calibration")
    folder = Path(args.output_dir)
    config = folder / "config.json"
    saved = json.loads(config.read_text(encoding="utf-8")) if config.is_file() else {"calibration": {"folded": False}}
    unused = "num_train_epochs" if args.max_steps > 0 else "max_steps"
    settings = {title: getattr(args, name) for name, title in _SETTINGS.items() if name != unused}
    if state.global_step:  # training may have stopped early
        settings |= {"steps": state.global_step} if args.max_steps > 0 else {"epochs": f"{state.epoch:.4g}"}
    settings["configuration of the dataset"] = dataset_config
    card = model_card(
        result,
        settings={
            name: value.value if isinstance(value, Enum) else value for name, value in settings.items() if value
        },
        figures=[f"report/{name}" for name in diagrams_of(result)],
        folded=is_folded(saved.get("calibration"), trainer.head.generates) or adapter_calibration(folder) is not None,
        earlier=None if result.temperature.is_fitted else trainer.folded_temperature(),
        own_code=registering_package(model),
        loadable=isinstance(model, PreTrainedModel),
        adapter=model is not unwrap(trainer.model),
        sft=trainer._arguments.__name__ == "FocalSFTConfig",
        num_labels=getattr(model_config, "num_labels", None),
        pairs=_takes_pairs(trainer),
        **named,
    )
    card.data.tags += [tags] if isinstance(tags, str) else tags
    card.save(folder / "README.md")


def _takes_pairs(trainer: Trainer) -> bool:
    """Return whether the first sample holds as many separators as the tokenizer adds to two texts, and not to one."""
    data, tokenizer = trainer.train_dataset, trainer.processing_class
    data = trainer.eval_dataset if data is None else data
    data = next(iter(data.values()), None) if isinstance(data, dict) else data
    if not isinstance(tokenizer, PreTrainedTokenizerBase) or data is None:
        return False
    sample: Any = next(iter(data), None)
    ids = sample.get("input_ids", []) if isinstance(sample, Mapping) else []
    separators = {tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id}
    count, (one, two) = sum(int(i) in separators for i in ids), map(tokenizer.num_special_tokens_to_add, (False, True))
    return one < two == count


def _split(trainer: Trainer, dataset: Any, other: str) -> str:
    """Return a dataset's key if it is one of several evaluation sets, "validation" if it is the only, or `other`."""
    sets = trainer.eval_dataset if isinstance(trainer.eval_dataset, dict) else {"validation": trainer.eval_dataset}
    return next((key for key, part in sets.items() if same_data(part, dataset)), other)


def measured_result(trainer: Trainer, dataset: Any) -> RunResult:
    """Measure a dataset, and return the result. The main process also writes the report of this result."""
    before, after = trainer.measure(dataset)
    measured_on, fitted_on, fit = dataset if isinstance(dataset, str) else None, None, trainer.calibration_fit
    if after is not None and same_data(trainer.fitted_on, evaluation_set("dataset", dataset, trainer.eval_dataset)):
        _logger.warning("the correction was fitted on these samples, so the results after it are optimistic")
        fitted_on = measured_on = measured_on or "the calibration data"
    samples = trainer.head is Head.LABELS or (trainer.head is Head.CLASSES and trainer.confusion is None)
    options: Any = {"intervals": samples, "label_names": label_names_of(trainer.model)}
    options["data"] = DataSection(measured_on=measured_on)
    options["fit"] = FitSection(fitted_on, None if fit is None else CrossFit(**fit.to_dict()))
    options["parts"] = PartsSection(gamma_history=gamma_history(trainer.state.log_history))
    result = RunResult.of(str(trainer.loss_config), trainer.temperature, before, after, **options)
    if trainer.confusion is not None:  # words or pixels, whose predictions no temperature changes
        means = trainer.confusion.compute()
        post = result.post | means if trainer.calibration_fit is None else result.post
        result = replace(result, pre=result.pre | means, post=post)
    if trainer.is_world_process_zero():
        for warning in warnings_of(result):
            _logger.warning("%s", warning)
        write_report(Path(trainer.args.output_dir) / "report", result)
    return result


def push_checkpoint(trainer: Trainer, checkpoint: Path) -> None:
    """Push the model in a checkpoint, without the training state, while training continues."""
    args = trainer.args
    if not trainer.is_world_process_zero() or args.hub_strategy == HubStrategy.END:
        return
    if not args.hub_always_push and not all(future.done() for future in trainer.checkpoint_pushes):
        return
    trainer.callback_handler.on_push_begin(args, trainer.state, trainer.control)
    # `save_total_limit` may remove the checkpoint before it is uploaded.
    copy = TemporaryDirectory(prefix="_push-", dir=args.output_dir)
    for file in published_files(checkpoint):
        target = Path(copy.name, file)
        target.parent.mkdir(parents=True, exist_ok=True)
        copy2(checkpoint / file, target)
    message = f"Training in progress, step {trainer.state.global_step}"
    options = {"token": args.hub_token, "revision": args.hub_revision, "commit_message": message}
    trainer.checkpoint_pushes.append(run_as_future(_push_copy, copy, trainer.hub_model_id, options))


def _push_copy(copy: TemporaryDirectory, name: str, options: Any) -> None:
    """Upload the copy of a checkpoint, and remove the copy."""
    with copy:
        try:
            upload(copy.name, name, **options)
        except HubError as error:
            _logger.warning("%s; the training goes on", error)
