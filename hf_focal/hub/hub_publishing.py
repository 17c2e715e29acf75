"""A model's folder on the Hub: how it gets there, and what there is to do where it does not."""

import glob
import json
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from huggingface_hub import CommitInfo, HfApi, constants
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalTokenNotFoundError

if TYPE_CHECKING:
    from transformers import TrainingArguments

__all__ = ["HubError", "create_repository", "publish", "published_files", "repository_of", "upload"]

# What is published, in whatever folder it lies. All else stays at home: the state of a training, arguments, paths of
# this machine, logs, and everything that shows rows of the data.
_PUBLISHED = (
    *("README.md", "temperature.json", "config.json", "generation_config.json", "adapter_config.json"),
    *("*.safetensors", "*.safetensors.index.json", "pytorch_model*.bin", "pytorch_model*.bin.index.json"),
    # Of tokenizers and processors: the settings of all, and the vocabularies that the slow ones read.
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("preprocessor_config.json", "video_preprocessor_config.json", "processor_config.json"),
    *("audio_tokenizer_config.json", "chat_template.json", "*.jinja", "*.model", "*.spm", "*.tokenizer", "*.tiktoken"),
    *("vocab*.json", "vocab.txt", "*_vocab.json", "merges.txt", "dict.txt", "bpe.codes", "byte_maps.json"),
    *("emoji.json", "normalizer.json", "word_shape.json", "word_pronunciation.json"),
    # Of reports, all but samples.md, predictions.npz and examples.png, which show rows.
    *(f"report/{name}" for name in ("metrics.json", "loss.yaml", "curves.csv", "reliability_*.png", "dynamics*.png")),
    *(f"report/{name}.md" for name in ("table", "shots", "classes", "confidence")),
    *(f"report/{name}.png" for name in ("class_weights", "comparison", "curves", "gamma", "training_loss")),
)
# What an earlier push, of whatever program, may have left there that is no longer true or should not be there.
_REPLACED = (
    *("temperature.json", "report/*", "translations/*", "runs/*", "_*", "trainer_state.json"),
    *("run.json", "*/run.json", "training_args.bin", "*/training_args.bin"),
)


class HubError(OSError):
    """The Hub refused, or could not be reached; the message is one line that says what to do."""


def repository_of(args: "TrainingArguments") -> str:
    """Where a run is published: `hub_model_id`, or the name of its folder, as `transformers.Trainer` has it."""
    return args.hub_model_id or Path(args.output_dir).absolute().name


def create_repository(repo_id: str, *, private: bool | None = None, token: str | None = None) -> str:
    """Create a repository of models, or find the one that is there.

    Args:
        repo_id: "user/name", or "name" for the user that the token belongs to.
        private: whether nobody else sees it, where it is new; what the account has by default if absent.
        token: of the user; the one of `hf auth login`, or of `HF_TOKEN`, if absent.

    Returns:
        The whole id.

    Raises:
        HubError: no token, none that may write, an id that is none, or no way to the Hub.
    """
    try:
        return HfApi(token=token).create_repo(repo_id, private=private, exist_ok=True).repo_id
    # Whatever the client raises: what its transport raises has no base of Hugging Face's own.
    except Exception as error:
        raise HubError(f"the repository {repo_id!r} could not be created: {_reason(error)}") from error


def publish(
    folder: str | Path,
    repo_id: str,
    *,
    private: bool | None = None,
    token: str | None = None,
    revision: str | None = None,
    commit_message: str = "Upload a calibrated model",
) -> CommitInfo:
    """Upload a folder to the Hub, as one commit; the folder stays as it is.

    Only `published_files` are uploaded: the model, what encodes its inputs, its card and its report. A report that is
    there from an earlier push is replaced. What breaks off the client tries again, for about half a minute; what is on
    the Hub already is not sent a second time.

    Args:
        folder: the model, its card and what else belongs to it.
        repo_id, private, token: as `create_repository` takes them. The repository is created where it is missing.
        revision: the branch, "main" if absent.
        commit_message: of the commit.

    Returns:
        The commit; ``str(commit.repo_url)`` is the model's address.

    Raises:
        FileNotFoundError: no such folder, or nothing in it that is published.
        HubError: what `create_repository` raises; an upload that failed. The message has the command that repeats it.
    """
    if not published_files(folder):
        raise FileNotFoundError(f"folder must be an existing folder with a model, got {str(folder)!r}")
    try:
        repo_id = create_repository(repo_id, private=private, token=token)
        return upload(folder, repo_id, token=token, revision=revision, commit_message=commit_message)
    except HubError as error:
        raise HubError(f"{error}. {how_to_push(folder, repo_id, private, revision)}") from error


def upload(
    folder: str | Path,
    repo_id: str,
    *,
    token: str | None,
    revision: str | None,
    commit_message: str,
    path_in_repo: str | None = None,
    also: Sequence[str] = (),
) -> CommitInfo:
    """Upload what `publish` does to a repository that is there.

    Args:
        folder, repo_id, token, revision, commit_message: as `publish` takes them.
        path_in_repo: the folder there, if it is not the repository's own.
        also: as `published_files` takes it.

    Raises:
        HubError: the upload failed.
    """
    try:
        return HfApi(token=token).upload_folder(
            repo_id=repo_id,
            folder_path=folder,
            path_in_repo=path_in_repo,
            commit_message=commit_message,
            revision=revision,
            allow_patterns=[glob.escape(file) for file in published_files(folder, also)],
            delete_patterns=list(_REPLACED),
        )
    except Exception as error:  # as above
        raise HubError(f"the upload to {repo_id!r} failed: {_reason(error)}") from error


def published_files(folder: str | Path, also: Sequence[str] = ()) -> list[str]:
    """The files of a folder that are published, as paths within it.

    They are known by their names: weights, configs, the files of tokenizers and processors, the card, the temperature
    and the report, and the modules that a config's `auto_map` names. Nothing in checkpoints ("checkpoint-6") and in
    folders that begin with "_" or "." is published.

    Args:
        folder: the model's.
        also: further patterns of names.
    """
    folder = Path(folder)
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    files = {path: path.relative_to(folder) for path in paths}
    patterns = (*_PUBLISHED, *also)
    chosen = {path for path, file in files.items() if any(map(file.match, patterns))}
    chosen |= {code for path in chosen if path.match("*config.json") for code in _own_code(path)}
    private = {path for path, file in files.items() if any(map(_is_private, file.parts[:-1]))}
    return [file.as_posix() for path, file in files.items() if path in chosen - private]


def _is_private(folder: str) -> bool:
    return folder.startswith(("_", ".", "checkpoint-"))


def _own_code(config: Path) -> set[Path]:
    """The modules beside a configuration that its `auto_map` names, and those that they import."""
    try:
        named = json.loads(config.read_text(encoding="utf-8")).get("auto_map", {})
    except (ValueError, OSError):
        return set()
    # A tokenizer has a slow and a fast class, None where it lacks one.
    classes = [name for value in named.values() for name in ([value] if isinstance(value, str) else value) if name]
    pending = [config.with_name(f"{name.partition('.')[0]}.py") for name in classes if "--" not in name]
    modules: set[Path] = set()
    while pending:
        module = pending.pop()
        if module.is_file() and module not in modules:
            modules.add(module)
            imported = re.findall(r"^\s*from\s+\.(\w+)\s+import", module.read_text(encoding="utf-8"), re.MULTILINE)
            pending += [module.with_name(f"{name}.py") for name in imported]
    return modules


def how_to_push(folder: str | Path, repo_id: str, private: bool | None = None, revision: str | None = None) -> str:
    """A sentence that says that the folder is there and how it is pushed by hand; as `publish` takes them."""
    options = [f"--include={glob.escape(file)}" for file in published_files(folder)]
    options += ["--private"] if private else []
    options += [f"--revision={revision}"] if revision else []
    command = shlex.join(["hf", "upload", repo_id, str(folder), ".", *options])
    return f"Nothing is lost, the model is in {str(folder)!r}; to push it: {command}"


def _reason(error: Exception) -> str:
    response = error.response if isinstance(error, HfHubHTTPError) else None
    status = None if response is None else response.status_code
    if isinstance(error, LocalTokenNotFoundError) or status == 401:
        return "there is no valid token; log in with `hf auth login`, or set HF_TOKEN"
    if status == 403:
        return (
            "the token has no permission to write there; give it one on "
            f"{constants.ENDPOINT}/settings/tokens, or push to a repository of your own"
        )
    if isinstance(error, HFValidationError):
        return f"the id must be 'name' or 'user/name' ({_one_line(error)})"
    # A card that the Hub refuses (ValueError) and a file that cannot be read (OSError) say what they are.
    speaks = isinstance(error, ValueError | TypeError | OSError) and not isinstance(error, ConnectionError)
    if not speaks:
        return f"the Hub, {constants.ENDPOINT}, cannot be reached or broke off ({_one_line(error)})"
    return _one_line(error)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
