"""Uploads of checkpoints while the training goes on."""

import logging
from concurrent.futures import Future
from pathlib import Path
from shutil import copy2
from tempfile import TemporaryDirectory
from typing import Any

from huggingface_hub import run_as_future

from .hub_publishing import HubError, published_files, upload

_logger = logging.getLogger(__name__)


def start_upload(checkpoint: str | Path, copy_to: str | Path, repo_id: str, **options: Any) -> Future:
    """Start to upload the model in a checkpoint, without the training state, and return the future of the upload.

    The upload is one of a copy in the folder `copy_to`, because the trainer may remove the checkpoint before it is
    uploaded. `options` are those of `upload`. A failed upload causes a warning.
    """
    copied = TemporaryDirectory(prefix="_push-", dir=copy_to)
    for file in published_files(checkpoint):
        target = Path(copied.name, file)
        target.parent.mkdir(parents=True, exist_ok=True)
        copy2(Path(checkpoint, file), target)
    return run_as_future(_upload_copy, copied, repo_id, options)


def _upload_copy(copied: TemporaryDirectory, repo_id: str, options: dict[str, Any]) -> None:
    with copied:
        try:
            upload(copied.name, repo_id, **options)
        except HubError as error:
            _logger.warning("%s; the training goes on", error)
