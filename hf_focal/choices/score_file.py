"""A file of the scores of finished batches, from which an interrupted call continues."""

import json
import os
from pathlib import Path
from typing import NamedTuple


class ScoredBatch(NamedTuple):
    """The scores of the options of some questions, whose numbers are `rows`."""

    rows: list[int]
    scores: list[list[float]]


class ScoreFile:
    """A file with a JSON object in each line: the `rows` and `scores` of a batch."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def finished(self) -> list[ScoredBatch]:
        """Return the batches in the file, and cut off a last line that was not completely written."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        content = self.path.read_bytes() if self.path.is_file() else b""
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):
            os.truncate(self.path, len(whole))
        return [ScoredBatch(**json.loads(line)) for line in whole.splitlines()]

    def append(self, batch: ScoredBatch) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(batch._asdict()) + "\n")
