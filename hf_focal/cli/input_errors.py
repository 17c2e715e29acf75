"""Errors that the user can put right, in one line: a column, a name, a folder, the way to the Hub."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError

import datasets.exceptions
from huggingface_hub.errors import (
    GatedRepoError,
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
)
from safetensors import SafetensorError

_USERS = (ValueError, OSError, ImportError, datasets.exceptions.DatasetsError)
# Of these the message says enough; any other error has its type named.
_SPEAKING = (*_USERS, RuntimeError, SafetensorError, UnpicklingError)
_UNREACHABLE = (OfflineModeIsEnabled, LocalEntryNotFoundError, ConnectionError)
_LONGEST = 400  # characters; Transformers lists all of its models


class InputError(ValueError):
    """Something that the user can put right; its message is one line."""


def check_id_or_folder(argument: str, name: str) -> None:
    """Raise `ValueError` where a name is the path of nothing, for which the Hub would be asked in vain."""
    is_path = name.startswith((".", "/", "~")) or name.count("/") > 1
    if is_path and "://" not in name and not Path(name).exists():
        raise ValueError(f"{argument} must be an existing folder or a Hub id, got {name!r}")


@contextmanager
def explained(kind: str = "", name: str = "") -> Iterator[None]:
    """Turn what goes wrong within into an `InputError`.

    To be put around what can only fail for what the user gave: a bug must not pass for a user's error.

    Args:
        kind: "model" or "dataset", where one is loaded and nothing else is done: whatever is raised then is for files
            that hold something else, such as a config of other types. name: which.
    """
    users = (Exception,) if kind else _USERS
    try:
        yield
    except InputError:
        raise
    except users as error:
        raise InputError(_explanation(error, kind, name)) from error


def one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def _explanation(error: Exception, kind: str, name: str) -> str:
    chain = list(_chain(error))

    def comes_from(*kinds: type) -> bool:
        return any(isinstance(cause, kinds) for cause in chain)

    if kind and comes_from(GatedRepoError):
        return f"{kind} {name!r} is gated: ask for access on its page on the Hub, then log in with `hf auth login`"
    if kind and comes_from(RepositoryNotFoundError, HFValidationError):
        return f"{kind} {name!r} is neither a folder nor on the Hub, unless it is private: log in with `hf auth login`"
    if kind and comes_from(*_UNREACHABLE):
        return f"{kind} {name!r} is neither a folder nor in the cache, and the Hub cannot be reached"
    if isinstance(error, datasets.exceptions.DatasetGenerationError) and error.__cause__ is not None:
        error = error.__cause__  # the error itself says nothing
    text = one_line(error)
    if not isinstance(error, _SPEAKING):
        text = f"{type(error).__name__}: {text}"
    return f"{kind} {name!r} cannot be loaded: {text}" if kind and name not in text else text


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
