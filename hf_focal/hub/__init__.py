"""Publishing models with their cards on the Hugging Face Hub."""

from .hub_publishing import HubError, create_repository, publish
from .model_card import model_card

__all__ = ["HubError", "create_repository", "model_card", "publish"]
