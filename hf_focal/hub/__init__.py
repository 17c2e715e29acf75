"""Publishing models with their cards on the Hugging Face Hub."""

from .card_contents import CardData, CardModel, Training
from .card_metadata import read_base_metadata
from .hub_publishing import HubError, create_repository, publish
from .model_card import model_card

__all__ = [
    "CardData",
    "CardModel",
    "HubError",
    "Training",
    "create_repository",
    "model_card",
    "publish",
    "read_base_metadata",
]
