"""Locks that let only one process at a time use a folder."""

import logging
from pathlib import Path

from filelock import FileLock, Timeout

_logger = logging.getLogger(__name__)

LOCK = "_run.lock"
# Folders that this process has locked. A lock is released when its process ends, even if it is killed.
_locks: dict[Path, FileLock] = {}


def lock_folder(folder: Path, argument: str = "output_dir") -> None:
    """Create a folder if it is missing, and lock it until this process ends or calls `unlock_all`.

    Raises:
        ValueError: another process has locked the folder, the folder is not writable, or its path goes back (..) from
            a folder that does not exist. The message begins with `argument`, the name of the argument that gave the
            folder.
    """
    if is_locked(folder):
        return
    _check_way_back(folder, argument)
    lock = FileLock(folder / LOCK)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    except Timeout:
        raise ValueError(
            f"{argument} must be a folder that no other run is writing to, got {str(folder)!r}: wait for that run, or "
            "stop it"
        ) from None
    except NotImplementedError:  # the file system has no locks
        _logger.warning("%s cannot be locked: do not start another run there", folder)
    except OSError as error:
        raise ValueError(f"{argument} must be a folder to write in, got {str(folder)!r}: {error.strerror}") from error
    _locks[folder.resolve()] = lock  # only now: a folder that another process holds is not ours


def _check_way_back(folder: Path, argument: str) -> None:
    """Raise `ValueError` if ".." follows a folder that does not exist: to create it would leave it behind, empty."""
    for place, part in enumerate(folder.parts):
        if part == ".." and not (left := Path(*folder.parts[:place])).is_dir():
            raise ValueError(
                f"{argument} must not lead through a folder that does not exist, got {str(folder)!r}: no {str(left)!r}"
            )


def is_locked(folder: Path) -> bool:
    """Return whether this process has locked a folder."""
    return folder.resolve() in _locks


def unlock_folder(folder: Path) -> None:
    """Unlock a folder that this process has locked, and remove the lock file."""
    lock = _locks.pop(folder.resolve())
    (folder / LOCK).unlink(missing_ok=True)  # while it is still locked
    lock.release()


def unlock_all() -> None:
    """Unlock all folders that this process has locked."""
    for lock in _locks.values():
        lock.release()
    _locks.clear()
