"""Publishing models with their cards on the Hugging Face Hub."""

from .hub_publishing import HubError, create_repository, publish
from .model_card import CardData, CardModel, Training, model_card

__all__ = ["CardData", "CardModel", "HubError", "Training", "create_repository", "model_card", "publish"]
