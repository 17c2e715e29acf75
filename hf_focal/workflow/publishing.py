"""Where a corrected source is saved: a folder, and a repository on the Hub."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp

from ..errors import InputError, NotPublishedError
from ..reports import RunResult
from ..sources.source import BaseSource


def new_repository(source: BaseSource, push_to_hub: str, private: bool | None) -> str | None:
    """Create the repository, before anything is measured, and return its whole name on the main process."""
    if not source.is_published:
        raise InputError(
            "push_to_hub", f"must not be given for {source.name!r}, got {push_to_hub!r}: upload the folder"
        )
    if not source.is_main:
        return None
    from ..hub.hub_publishing import HubError, create_repository

    try:
        return create_repository(push_to_hub, private=private)
    except HubError as error:
        message = f"{error}; or leave out push_to_hub, and upload the folder later with `hf upload`"
        raise InputError("", message) from error


@contextmanager
def folder_to_save(output: str | Path | None) -> Iterator[Path]:
    """Give `output`, or a new folder until it is published; an error keeps it, so that it can be published later."""
    folder = Path(mkdtemp(prefix="hf-focal-")) if output is None else Path(output)
    yield folder
    if output is None:
        shutil.rmtree(folder)


def publish_folder(folder: Path, repository: str, private: bool | None, result: RunResult) -> RunResult:
    """Upload the folder, and return the result with its address.

    Raises:
        NotPublishedError: the Hub refuses it.
    """
    from ..hub.hub_publishing import HubError, publish

    try:
        url = str(publish(folder, repository, private=private).repo_url)
        return replace(result, data=replace(result.data, url=url))
    except HubError as error:
        raise NotPublishedError(str(error), result) from error
