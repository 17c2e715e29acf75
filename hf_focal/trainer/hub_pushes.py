"""Pushes of a trained model to the Hub."""

import logging
from concurrent.futures import Future
from typing import Any

from huggingface_hub import CommitInfo, HfApi
from transformers import Trainer

from ..hub.hub_publishing import HubError, how_to_push, publish, repository_of

_logger = logging.getLogger(__name__)


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
    folder, name = trainer.args.output_dir, trainer.hub_model_id or repository_of(trainer.args)
    if problem is not None:
        raise HubError(f"{problem}. {how_to_push(folder, name, private, revision)}") from problem
    options: dict[str, Any] = {"token": token, "revision": revision, "commit_message": commit_message}
    if blocking:
        return publish(folder, name, **options)
    return HfApi().run_as_future(publish, folder, name, **options)
