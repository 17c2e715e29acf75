"""One-line errors for what the user can correct."""

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

_USER_ERRORS = (ValueError, OSError, ImportError, datasets.exceptions.DatasetsError)
# The messages of these are clear without the error's type.
_CLEAR = (*_USER_ERRORS, RuntimeError, SafetensorError, UnpicklingError)
_UNREACHABLE = (OfflineModeIsEnabled, LocalEntryNotFoundError, ConnectionError)
_MAX_CHARACTERS = 400  # some messages of Transformers list all its models


class InputError(ValueError):
    """An error that the user can correct. Its message is one line."""


def check_id_or_folder(argument: str, name: str) -> None:
    """Raise `ValueError` if a name is a path that does not exist. The Hub is not asked for it."""
    is_path = name.startswith((".", "/", "~")) or name.count("/") > 1
    if is_path and "://" not in name and not Path(name).exists():
        raise ValueError(f"{argument} must be an existing folder or a Hub id, got {name!r}")


@contextmanager
def explained(kind: str = "", name: str = "") -> Iterator[None]:
    """Turn errors raised in the block into an `InputError`.

    Wrap only code whose errors come from the user's input: a bug must keep its traceback.

    Args:
        kind: "model" or "dataset" if the block does nothing but load one. Then every exception is converted, because
            malformed files raise exceptions of any type.
        name: the name of that model or dataset.
    """
    users: tuple[type[Exception], ...] = (Exception,) if kind else _USER_ERRORS
    try:
        yield
    except InputError:
        raise
    except users as error:
        raise InputError(_explanation(error, kind, name)) from error


def one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= _MAX_CHARACTERS else text[: _MAX_CHARACTERS - 3] + "..."


def _explanation(error: Exception, kind: str, name: str) -> str:
    causes = list(_causes(error))

    def is_from(*kinds: type) -> bool:
        return any(isinstance(cause, kinds) for cause in causes)

    if kind and is_from(GatedRepoError):
        return f"{kind} {name!r} is gated: ask for access on its page on the Hub, then log in with `hf auth login`"
    if kind and is_from(RepositoryNotFoundError, HFValidationError):
        return f"{kind} {name!r} is neither a folder nor on the Hub, unless it is private: log in with `hf auth login`"
    if kind and is_from(*_UNREACHABLE):
        return f"{kind} {name!r} is neither a folder nor in the cache, and the Hub cannot be reached"
    if isinstance(error, datasets.exceptions.DatasetGenerationError) and error.__cause__ is not None:
        error = error.__cause__  # the error itself gives no reason
    text = one_line(error)
    if not isinstance(error, _CLEAR):
        text = f"{type(error).__name__}: {text}"
    return f"{kind} {name!r} cannot be loaded: {text}" if kind and name not in text else text


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
