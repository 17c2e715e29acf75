"""The folder that a command writes to: new, locked, and with room for the results."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..command_lines import RunCommands
from ..errors import InputError, NotPublishedError, one_line
from ..utils.atomic_write import full_disk
from ..utils.folder_lock import LOCK, is_locked, lock_folder, unlock_folder
from .examples import Examples
from .pages.comparison_html_page import comparison_page
from .report_folder import write_report
from .results.run_results import RunResult

_REPORT_BYTES = 500_000  # of the report, its page, and the card, without samples


@contextmanager
def new_folder(output: str | Path | None) -> Iterator[None]:
    """Create `output`, and lock it during the block; raise `InputError` if the folder is not empty or not writable.

    If the block writes nothing, what was created is removed.
    """
    if output is None:
        yield
        return
    if not str(output):
        raise InputError("output", "must be the name of a folder, got ''")
    folder, is_main = Path(output), int(os.environ.get("RANK", 0)) == 0
    # `Path.exists` raises for a name that is too long.
    created = [path for path in (folder, *folder.parents) if not os.path.exists(path)]
    try:
        with suppress(FileNotFoundError, NotADirectoryError):
            folder.lstat()
        is_file = folder.exists() and not folder.is_dir()
    except (ValueError, OSError) as error:  # a name that no file can have
        raise InputError("output", f"must be the name of a folder, got {str(output)!r}: {one_line(error)}") from error
    if is_file:
        raise InputError("output", f"must be a new folder, got the file {str(output)!r}")
    if is_locked(folder):
        raise InputError("output", f"must be a folder that nothing else is writing to, got {str(output)!r}")
    if is_main:
        try:
            lock_folder(folder, "output")
        except (ValueError, OSError) as error:
            _remove_empty(created)
            raise InputError("", one_line(error)) from error
    try:
        if any(path.name != LOCK for path in folder.glob("*")):
            raise InputError(
                "output",
                f"must be a new folder, got {str(output)!r}, which is not empty: name another, or remove this one "
                "if an interrupted run left it",
            )
        yield
    finally:
        if is_main:
            unlock_folder(folder)
            _remove_empty(created)


def _remove_empty(folders: list[Path]) -> None:
    """Remove those of the folders, each the parent of the one before, that are empty."""
    for folder in folders:
        with suppress(OSError):  # not empty, or never created
            folder.rmdir()


def check_room(output: str | Path | None, model_bytes: int = 0) -> None:
    """Raise `InputError`, before anything is measured, if `output` lacks the room for a model and the report."""
    if output is None:
        return
    disk = shutil.disk_usage(output)
    needed = model_bytes + _REPORT_BYTES
    if disk.total and disk.free < needed:  # some network file systems do not know their size
        raise InputError(
            "output",
            f"must be a folder with room for the model and the report, got {str(output)!r}: about "
            f"{needed / 1e6:,.1f} MB are needed, {disk.free / 1e6:,.1f} MB are free",
        )


@contextmanager
def writing(folder: str | Path, result: RunResult) -> Iterator[None]:
    """Write to a folder in the block. Ctrl-C removes what was written; a disk error keeps it.

    Raises:
        NotPublishedError: a disk error, such as a full disk.
    """
    earlier = {*Path(folder).glob("*")}
    try:
        yield
    except KeyboardInterrupt:
        for path in {*Path(folder).glob("*")} - earlier:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        raise
    except Exception as error:  # safetensors and tokenizers raise types of their own
        cause = error if isinstance(error, OSError) else full_disk(error)
        if cause is None:
            raise
        message = f"output must be a folder with room for the model and the report, got {str(folder)!r}"
        raise NotPublishedError(f"{message}: {one_line(cause)}", result) from error


def write_results(
    output: str | Path,
    result: RunResult,
    reference: RunResult | None = None,
    commands: RunCommands | None = None,
    examples: Examples | None = None,
    *,
    publish_examples: bool = False,
    pictures: bool = True,
) -> None:
    """Write the report of a result and, if given, that of an earlier one, and the page that shows them.

    `commands` are those that follow the run, which the page names as next steps. `examples` are samples that the page
    shows; with `publish_examples`, ``report/examples.html``, which is published and names no local files, shows
    them, too. `pictures` are PNG files for a card.
    """
    folder = Path(output)
    with writing(folder, result):
        write_report(folder / "report", result, pictures=pictures)
        if reference is not None:
            write_report(folder / "reference", reference, pictures=pictures)
        comparison_page([folder], folder / "report.html", commands=commands, examples=examples)
        if publish_examples and examples is not None:
            comparison_page([folder], folder / "report" / "examples.html", examples=examples)
