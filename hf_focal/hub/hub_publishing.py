"""A model's folder on the Hub: how it gets there, and what there is to do where it does not."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from huggingface_hub import CommitInfo, HfApi, constants
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalTokenNotFoundError

if TYPE_CHECKING:
    from transformers import TrainingArguments

__all__ = ["HubError", "create_repository", "publish", "repository_of"]

# What stays at home: checkpoints, what names paths of this machine, a pickle that holds the arguments' token, and the
# rows of the test set. (Patterns of names, in which "*" also stands for "/".)
_LEFT_OUT = (
    *("_*", "checkpoint-*", "runs/*", "run.json", "trainer_state.json", "training_args.bin"),
    *("translations/*", "report/samples.md", "report/predictions.npz", "report/examples*.png"),
)
# What an earlier push may have left there that is no longer true.
_REPLACED = (*_LEFT_OUT, "temperature.json", "report/*")


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

    Checkpoints, logs, arguments and everything that shows rows of the data (translations, examples) are left out. A
    report that is there from an earlier push is replaced. What breaks off the client tries again, for about half a
    minute; what is on the Hub already is not sent a second time.

    Args:
        folder: the model, its card and what else belongs to it.
        repo_id, private, token: as `create_repository` takes them. The repository is created where it is missing.
        revision: the branch, "main" if absent.
        commit_message: of the commit.

    Returns:
        The commit; ``str(commit.repo_url)`` is the model's address.

    Raises:
        FileNotFoundError: no such folder.
        HubError: what `create_repository` raises; an upload that failed. The message has the command that repeats it.
    """
    if not Path(folder).is_dir():
        raise FileNotFoundError(f"folder must be an existing folder, got {str(folder)!r}")
    try:
        repo_id = create_repository(repo_id, private=private, token=token)
        return HfApi(token=token).upload_folder(
            repo_id=repo_id,
            folder_path=folder,
            commit_message=commit_message,
            revision=revision,
            ignore_patterns=list(_LEFT_OUT),
            delete_patterns=list(_REPLACED),
        )
    except HubError as error:
        raise HubError(f"{error}. {how_to_push(folder, repo_id, private, revision)}") from error
    except Exception as error:  # as above
        message = f"the upload to {repo_id!r} failed: {_reason(error)}"
        raise HubError(f"{message}. {how_to_push(folder, repo_id, private, revision)}") from error


def how_to_push(folder: str | Path, repo_id: str, private: bool | None = None, revision: str | None = None) -> str:
    """A sentence that says that the folder is there and how it is pushed by hand; as `publish` takes them."""
    options = [f"--exclude={pattern}" for pattern in _LEFT_OUT]
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
