"""Where finished runs are published, and what their cards call the data."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...hub.hub_publishing import HubError, create_repository, publish, repository_of
from ...trainer import FocalTrainingArguments


def datasets_of(data: Any, default: str) -> dict[str, str | None]:
    """The options of a model card that name the data: the Hub id, or files' paths, which no card takes for an id."""
    train, test = (file and str(Path(file).absolute()) for file in (data.train_file, data.test_file))
    return {"dataset": data.dataset_name or train or default, "test_dataset": test}


def publish_runs(runs: Sequence[FocalTrainingArguments]) -> None:
    """Push the folders of finished runs where `push_to_hub` asks for it, each calibrated and with its card.

    What cannot be pushed does not keep the others from it; then the recipe ends with exit code 1. The same command
    again trains nothing that is finished, and pushes.
    """
    failed = []
    for run in runs:
        if not run.push_to_hub or run.process_index != 0:
            continue
        options = {"private": run.hub_private_repo, "token": run.hub_token}
        try:
            repo_id = create_repository(repository_of(run), **options)
            _name_in_card(Path(run.output_dir), repo_id)
            options["revision"] = run.hub_revision
            commit = publish(run.output_dir, repo_id, **options, commit_message="End of training")
            print(f"\nPublished: {commit.repo_url}")
        except HubError as error:
            failed.append(str(error))
    if failed:
        sys.exit("\n".join(failed))


def _name_in_card(folder: Path, repo_id: str) -> None:
    """Let the card of a run that was finished without a push load the model from where it is pushed to."""
    card, text = folder / "README.md", (folder / "README.md").read_text("utf-8")
    for loads in ('model="{}"', 'from_pretrained("{}")'):
        text = text.replace(loads.format(folder.absolute().name), loads.format(repo_id))
    card.write_text(text, "utf-8")
