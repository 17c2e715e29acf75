"""Uploading a model's folder to the Hub, with an allow-list of files and one-line errors."""

import glob
import json
import logging
import re
import shlex
from concurrent.futures import Future
from fnmatch import fnmatchcase
from pathlib import Path
from shutil import copy2
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from huggingface_hub import CommitInfo, HfApi, constants, run_as_future
from huggingface_hub.errors import HFValidationError, LocalTokenNotFoundError
from huggingface_hub.utils import validate_repo_id

if TYPE_CHECKING:
    from transformers import TrainingArguments


# The files to publish, by their paths in the folder. Everything else stays local: training state, arguments, paths on
# this machine, logs, and whatever shows samples of the data.
_PUBLISHED = (
    *("README.md", "temperature.json", "correction.json"),
    *("config.json", "generation_config.json", "adapter_config.json"),
    *(
        "model*.safetensors",
        "adapter_model*.safetensors",
        "*.safetensors.index.json",
        "pytorch_model*.bin",
        "pytorch_model*.bin.index.json",
    ),
    # Settings of tokenizers and processors, and the vocabularies of slow tokenizers.
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("config_sentence_transformers.json", "modules.json", "sentence_bert_config.json"),  # of a CrossEncoder
    *("preprocessor_config.json", "video_preprocessor_config.json", "processor_config.json"),
    *(
        "audio_tokenizer_config.json",
        "chat_template.json",
        "*.jinja",
        "additional_chat_templates/*.jinja",
        "*.model",
        "*.spm",
        "*.tokenizer",
        "*.tiktoken",
    ),
    *("vocab*.json", "vocab.txt", "*_vocab.json", "merges.txt", "dict.txt", "bpe.codes", "byte_maps.json"),
    *("emoji.json", "normalizer.json", "word_shape.json", "word_pronunciation.json"),
    # Reports without samples.md and examples.png, which show samples.
    *(f"report/{name}" for name in ("metrics.json", "loss.yaml", "curves.csv", "reliability_*.*", "dynamics*.png")),
    "report/examples.html",  # written only if someone asks to publish samples
    *(f"report/{name}.md" for name in ("table", "shots", "classes", "confidence")),
    *(
        f"report/{name}.png"
        for name in ("class_weights", "comparison", "curves", "gamma", "groups", "risk_coverage", "training_loss")
    ),
)
# Deleted from the repository by each push: stale files, and private ones that other programs may have pushed.
_REPLACED = (
    *("temperature.json", "correction.json", "report/*", "translations/*", "runs/*", "_*", "trainer_state.json"),
    *("run.json", "*/run.json", "training_args.bin", "*/training_args.bin"),
)


class HubError(OSError):
    """The Hub refused a request or is unreachable. The message is one line that says what to do."""


def repository_of(args: "TrainingArguments") -> str:
    """Return a run's repository: `hub_model_id` or, as in `transformers.Trainer`, the name of the output folder."""
    return args.hub_model_id or Path(args.output_dir).absolute().name


def create_repository(repo_id: str, *, private: bool | None = None, token: str | None = None) -> str:
    """Create a model repository unless it exists, and return its full id.

    Args:
        repo_id: "user/name", or "name" for the token's user.
        private: whether to hide a new repository; the account's default if None.
        token: the user's token; if None, the one from `hf auth login` or `HF_TOKEN`.

    Raises:
        HubError: missing or read-only token, malformed id, or Hub unreachable.
    """
    try:
        validate_repo_id(repo_id)
        return HfApi(token=token).create_repo(repo_id, private=private, exist_ok=True).repo_id
    except Exception as error:  # transport errors share no base class with the Hub's errors
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
    """Upload the `published_files` of a model's folder to the Hub in one commit, which also deletes an earlier report.

    Args:
        repo_id, private, token: see `create_repository`. A missing repository is created.
        revision: the branch; "main" if None.

    Returns:
        The commit; ``str(commit.repo_url)`` is the model's address.

    Raises:
        FileNotFoundError: the folder does not exist or holds nothing to publish.
        HubError: see `create_repository`, or the upload failed. The message has a command that repeats the upload.
    """
    if not published_files(folder):
        raise FileNotFoundError(f"folder must be an existing folder with a model, got {str(folder)!r}")
    try:
        repo_id = create_repository(repo_id, private=private, token=token)
        return upload(folder, repo_id, token=token, revision=revision, commit_message=commit_message)
    except HubError as error:
        raise HubError(f"{error}. {how_to_push(folder, repo_id, private, revision)}") from error


def upload(
    folder: str | Path, repo_id: str, *, token: str | None, revision: str | None, commit_message: str
) -> CommitInfo:
    """Upload the `published_files` of a folder to an existing repository; raise `HubError` if this fails."""
    try:
        return HfApi(token=token).upload_folder(
            repo_id=repo_id,
            folder_path=folder,
            commit_message=commit_message,
            revision=revision,
            allow_patterns=[glob.escape(file) for file in published_files(folder)],
            delete_patterns=list(_REPLACED),
        )
    except Exception as error:  # see create_repository
        raise HubError(f"the upload to {repo_id!r} failed: {_reason(error)}") from error


def published_files(folder: str | Path) -> list[str]:
    """Return the paths, relative to `folder`, of those of its files that are to be published.

    These are files that the library, Transformers, and PEFT write, in the folder itself and in its report; the Python
    modules that a configuration's `auto_map` names; and the modules that such modules import from their own folder.
    No link is followed, because it may lead to a file outside the folder.
    """
    folder = Path(folder)
    inner = [folder / name for name in sorted({str(Path(pattern).parent) for pattern in _PUBLISHED} - {"."})]
    paths = [path for part in (folder, *(part for part in inner if not part.is_symlink())) for path in part.glob("*")]
    files = {path.relative_to(folder).as_posix() for path in paths if path.is_file() and not path.is_symlink()}
    chosen = {
        file
        for file in files
        for pattern in _PUBLISHED
        if file.count("/") == pattern.count("/") and fnmatchcase(file, pattern)
    }
    code = {module.name for file in chosen if file.endswith("config.json") for module in _own_code(folder / file)}
    return sorted(chosen | (code & files))


def _own_code(config: Path) -> set[Path]:
    """Return the files of the modules that a configuration's `auto_map` names, and of those that such modules import.

    Only modules in the folder of the configuration file count.
    """
    try:
        named = json.loads(config.read_text(encoding="utf-8")).get("auto_map", {})
    except (ValueError, OSError):
        return set()
    # A tokenizer lists a slow and a fast class, with None for one that it lacks.
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
    """Return a message with the command that uploads the folder by hand. The arguments are those of `publish`."""
    options = [f"--include={glob.escape(file)}" for file in published_files(folder)]
    options += ["--private"] * bool(private) + [f"--revision={revision}"] * bool(revision)
    command = shlex.join(["hf", "upload", repo_id, str(folder), ".", *options])
    return f"Nothing is lost: the model is in {str(folder)!r}. To push it, run: {command}"


def _reason(error: Exception) -> str:
    status = getattr(getattr(error, "response", None), "status_code", None)
    message = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, LocalTokenNotFoundError) or status == 401:
        return "there is no valid token; log in with `hf auth login`, or set HF_TOKEN"
    if status == 403:
        grant = f"grant it on {constants.ENDPOINT}/settings/tokens, or push to a repository of your own"
        return f"the token has no permission to write there; {grant}"
    if isinstance(error, HFValidationError):
        return f"the id must be 'name' or 'user/name' ({message})"
    # ValueError (the Hub rejects the card) and OSError (an unreadable file) explain themselves.
    if isinstance(error, ValueError | TypeError | OSError) and not isinstance(error, ConnectionError):
        return message
    return f"the Hub, {constants.ENDPOINT}, cannot be reached or broke the connection ({message})"


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
