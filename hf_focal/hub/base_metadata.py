"""What the card of a base model says of its license and its language, which the card of a new model repeats."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import one_line
from .hub_ids import hub_id


def read_base_metadata(name: str | None) -> Mapping[str, Any]:
    """Return the metadata of the card of a base model, a Hub id or a folder; {} without a card, or without the Hub.

    A card in a folder that cannot be read is warned of.
    """
    from huggingface_hub import ModelCard, model_info

    # The base class of what the Hub's client raises without a connection, whatever library it uses for requests.
    from huggingface_hub.errors import HTTPError

    if name is None:
        return {}
    if (file := Path(name) / "README.md").is_file():
        try:
            return ModelCard(file.read_text(encoding="utf-8")).data.to_dict()
        except Exception as error:  # whatever the parser of YAML and that of cards raise
            warnings.warn(
                f"the new card takes no license and no language from {str(file)!r}, which cannot be read: "
                f"{one_line(error)}",
                stacklevel=2,
            )
            return {}
    if hub_id(name) is None:
        return {}
    try:
        data = model_info(name, timeout=10).card_data
    except (HTTPError, OSError):  # no connection, no such repository, or no access to it
        return {}
    return data.to_dict() if data else {}
