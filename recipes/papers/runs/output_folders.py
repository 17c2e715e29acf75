"""Output folders of runs: locks, and the settings in ``run.json``, by which a run is known again."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from transformers import TrainingArguments

from hf_focal.utils.atomic_write import write_whole
from hf_focal.utils.folder_lock import lock_folder, unlock_folder

# Prefixes of arguments that do not change a result, such as where a run is kept, what it logs and saves, and its
# hardware.
NOT_OF_THE_RESULT = (
    *("output_dir", "resume_", "do_", "debug", "log", "disable_tqdm", "report_to", "run_name", "project", "trackio_"),
    *("skip_memory", "include_num", "save_", "enable_jit", "push_", "hub_", "use_cpu", "local_rank", "ddp_"),
    *("per_device_eval", "eval_accumulation", "torch_empty", "dataloader_num_workers", "dataloader_pin"),
    *("dataloader_persistent", "dataloader_prefetch", "dataloader_multiprocessing", "linear_loss"),
)


def claim_output_dir(output_dir: str | Path, settings: Mapping[str, Any], write: bool = True) -> None:
    """Reserve `output_dir` for the run with these settings, or check that the folder belongs to that run already.

    This lets an interrupted run resume, and keeps a run from resuming from another run's checkpoints. A folder without
    checkpoints or reports may be reserved for other settings. The main process (`write`) saves the settings, JSON
    values that determine the run's result, in ``run.json``, and locks the folder until it ends or calls `unlock_all`.
    `ValueError` if the folder belongs to a run with other settings, another process has locked it, or it is not
    writable.
    """
    folder = Path(output_dir)
    if write:
        lock_folder(folder)
    has_work = any(any(folder.glob(pattern)) for pattern in ("checkpoint-*", "report/*"))
    if has_work and (folder / "run.json").exists():
        refuse_other_settings(folder, settings)
    elif write:
        write_whole(folder / "run.json", json.dumps(settings, indent=2) + "\n")


@contextmanager
def unfinished_run(folder: Path, last_file: str) -> Iterator[bool]:
    """Lock the folder of a run, and yield whether it is to be made: `last_file`, which is written last, is not there.

    Yields False if another process has locked the folder, and makes the run.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        lock_folder(folder)
    except ValueError:
        yield False
        return
    try:
        yield not (folder / last_file).exists()
    finally:
        unlock_folder(folder)


def refuse_other_settings(folder: Path, settings: Mapping[str, Any]) -> None:
    """Raise `ValueError` if the run in a folder has other settings, as far as the folder's run.json has them."""
    try:
        earlier = {**json.loads((folder / "run.json").read_text(encoding="utf-8"))}
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(
            f"output_dir must be the folder of a run, or a new one, got {str(folder)!r}, whose run.json "
            "holds something else"
        ) from error
    refuse_differences(folder, earlier, json.loads(json.dumps(settings)))


def refuse_differences(run: Path, earlier: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Raise `ValueError` if a run's folder or file has other settings, as far as the `earlier` ones name them."""
    different = [
        f"{key}: {earlier[key]!r} there, {value!r} now"
        for key, value in settings.items()
        if key in earlier and earlier[key] != value
    ]
    if different:
        raise ValueError(
            f"output_dir must be the folder of a run with the same settings, or a new one, got "
            f"{str(run)!r}, which holds a run with other settings ({'; '.join(different)})"
        )


def training_settings(args: TrainingArguments) -> dict[str, Any]:
    """Return the arguments that determine a run's result, as JSON values.

    These are all arguments whose names begin with none of the prefixes `NOT_OF_THE_RESULT`. "mixed_precision" is
    added because `accelerate launch` may set the precision without the arguments. "save_steps" is included if the best
    of the saved models is the result.
    """
    settings = {key: value for key, value in args.to_dict().items() if not key.startswith(NOT_OF_THE_RESULT)}
    if args.load_best_model_at_end and args.save_strategy == "steps":
        settings["save_steps"] = args.save_steps
    return settings | {"mixed_precision": args.mixed_precision}


def run_settings(args: TrainingArguments, *recipe_arguments: Any) -> dict[str, Any]:
    """Return the settings of a run for `claim_output_dir`, from the recipe's own arguments and the training arguments.

    The recipe's own are mappings or dataclasses. For a dataclass, digests of the files that it names (`files_of`) are
    added.
    """
    settings: dict[str, Any] = {}
    for part in recipe_arguments:
        if is_dataclass(part) and not isinstance(part, type):
            settings |= asdict(part) | contents(files_of(part))
        else:
            settings |= part
    return settings | training_settings(args) | {"num_processes": args.world_size}


def files_of(arguments: Any) -> dict[str, str]:
    """Return the arguments whose names end in "_file" and whose values are not None, by name."""
    return {name: file for name, file in vars(arguments).items() if name.endswith("_file") and file is not None}


def contents(files: Mapping[str, str]) -> dict[str, str]:
    """Compute the SHA-256 of files, to recognize changed data: "content of" and the file's name in `files` -> digest.

    Paths that are no files are left out.
    """
    digests = {}
    for name, path in files.items():
        if Path(path).is_file():
            with open(path, "rb") as file:
                digests[f"content of {name}"] = hashlib.file_digest(file, "sha256").hexdigest()
    return digests
