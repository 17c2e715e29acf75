"""Errors that the user can correct, with messages of one line."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError
from traceback import walk_tb

from datasets.exceptions import DatasetGenerationError, DatasetsError
from huggingface_hub.errors import (
    GatedRepoError,
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
)
from safetensors import SafetensorError

from ..errors import InputError, one_line

# The messages of these are clear without the error's type.
_CLEAR = (ValueError, OSError, ImportError, DatasetsError, RuntimeError, SafetensorError, UnpicklingError)
# Types of errors -> why a model or dataset could not be loaded, if an error of these types is among the causes.
_REASONS: dict[tuple[type[Exception], ...], str] = {
    (GatedRepoError,): "is gated: ask for access on its page on the Hub, then log in with `hf auth login`",
    (RepositoryNotFoundError, HFValidationError): (
        "is neither a folder nor on the Hub, unless it is private: log in with `hf auth login`"
    ),
    (OfflineModeIsEnabled, LocalEntryNotFoundError, ConnectionError): (
        "is neither a folder nor in the cache, and the Hub cannot be reached"
    ),
}


def check_id_or_folder(argument: str, name: str) -> None:
    """Raise an `InputError` that names `argument` if `name` is a path that does not exist. The Hub is not queried."""
    is_path = name.startswith((".", "/", "~")) or name.count("/") > 1
    if is_path and "://" not in name and not Path(name).exists():
        raise InputError(argument, f"must be an existing folder or a Hub id, got {name!r}")


@contextmanager
def as_input_errors(kind: str, name: str) -> Iterator[None]:
    """Turn every error raised in the block into an `InputError`, because malformed files raise errors of any type.

    Wrap only the call of another library that loads or parses what the user named: a bug must keep its traceback.

    Args:
        kind: "model" or "dataset", which the block loads.
        name: the name of that model or dataset.
    """
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        raise InputError("", _explanation(error, kind, name)) from error


def _is_about_remote_code(error: BaseException) -> bool:
    """Return whether Transformers asks for `trust_remote_code`, for which it has no type of error."""
    module = sys.modules.get("transformers.dynamic_module_utils")
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    return module is not None and any(frame.f_code is module.resolve_trust_remote_code.__code__ for frame in frames)


def _explanation(error: BaseException, kind: str, name: str) -> str:
    causes, cause = [error], error
    while (cause := cause.__cause__ or cause.__context__) is not None and cause not in causes:  # type: ignore[assignment]
        causes.append(cause)
    for types, reason in _REASONS.items():
        if any(isinstance(cause, types) for cause in causes):
            return f"{kind} {name!r} {reason}"
    if kind == "model" and _is_about_remote_code(error):
        return f"model {name!r} comes with Python code of its own: read it, and give --trust_remote_code to run it"
    if isinstance(error, DatasetGenerationError) and error.__cause__ is not None:
        error = error.__cause__  # the error itself gives no reason
    text = one_line(error) if isinstance(error, _CLEAR) else f"{type(error).__name__}: {one_line(error)}"
    if text.startswith("Error "):  # as messages of Transformers on missing weights, after "error:" of the console
        return f"{kind} {name!r} cannot be loaded: {text.removeprefix('Error ')}"
    return f"{kind} {name!r} cannot be loaded: {text}" if name not in text else text
