"""Pushes of a trained model to the Hub."""

import logging
from collections.abc import Sequence
from concurrent.futures import Future, wait
from pathlib import Path
from shutil import copy2
from tempfile import TemporaryDirectory
from typing import Any

from huggingface_hub import CommitInfo, run_as_future
from transformers import Trainer
from transformers.trainer_utils import HubStrategy

from ..hub.hub_publishing import HubError, how_to_push, publish, published_files, repository_of, upload
from .checkpoint_state import STATE_FILE

_logger = logging.getLogger(__name__)

# What `hub_training_state` publishes of a checkpoint besides the model: all that a training resumes from, without its
# arguments.
_STATE = (STATE_FILE, "trainer_state.json", "optimizer.*", "scheduler.pt", "scaler.pt", "rng_state*.pth")


def push(
    trainer: Trainer,
    commit_message: str | None,
    *,
    blocking: bool,
    token: str | None,
    revision: str | None,
    private: bool | None,
    **card: Any,
) -> CommitInfo | Future | None:
    """Publish a `FocalTrainer`'s model with its card, as `FocalTrainer.push_to_hub` says."""
    trainer.callback_handler.on_push_begin(trainer.args, trainer.state, trainer.control)
    trainer.save_calibrated()
    if trainer.temperature is None and not trainer.calibration():
        _logger.warning("the model is published without a temperature: none was fitted, see fit_temperature")
    problem = None
    try:
        if trainer.hub_model_id is None:
            trainer.init_hf_repo(token, private)
    except HubError as error:
        problem = error
    trainer.create_model_card(**card)
    if not trainer.is_world_process_zero():
        return None
    wait(trainer.checkpoint_pushes)
    folder, name = trainer.args.output_dir, trainer.hub_model_id or repository_of(trainer.args)
    if problem is not None:
        raise HubError(f"{problem}. {how_to_push(folder, name, private, revision)}") from problem
    options: dict[str, Any] = {"token": token, "revision": revision, "commit_message": commit_message}
    if blocking:
        return publish(folder, name, **options)
    return run_as_future(publish, folder, name, **options)


def push_checkpoint(trainer: Trainer, checkpoint: Path) -> None:
    """Push the model in a checkpoint while training continues, and its state if `args.hub_training_state` is on."""
    args, strategy = trainer.args, trainer.args.hub_strategy
    if not trainer.is_world_process_zero() or strategy == HubStrategy.END:
        return
    if not args.hub_always_push and not all(future.done() for future in trainer.checkpoint_pushes):
        return
    trainer.callback_handler.on_push_begin(args, trainer.state, trainer.control)
    path = {HubStrategy.CHECKPOINT: "last-checkpoint", HubStrategy.ALL_CHECKPOINTS: checkpoint.name}.get(strategy)
    also = _STATE if path is not None and args.hub_training_state else ()
    # `save_total_limit` may remove the checkpoint before it is uploaded.
    copy = TemporaryDirectory(prefix="_push-", dir=args.output_dir)
    for file in published_files(checkpoint, also):
        target = Path(copy.name, file)
        target.parent.mkdir(parents=True, exist_ok=True)
        copy2(checkpoint / file, target)
    message = f"Training in progress, step {trainer.state.global_step}"
    options = {"token": args.hub_token, "revision": args.hub_revision, "commit_message": message}
    future = run_as_future(_push_copy, copy, trainer.hub_model_id, path, also, options)
    trainer.checkpoint_pushes.append(future)


def _push_copy(copy: TemporaryDirectory, name: str, path: str | None, also: Sequence[str], options: Any) -> None:
    """Upload the copy of a checkpoint, and with its state to the folder `path` if given; remove the copy."""
    with copy:
        try:
            upload(copy.name, name, **options)
            if path is not None:
                upload(copy.name, name, path_in_repo=path, also=also, **options)
        except HubError as error:
            _logger.warning("%s; the training goes on", error)
