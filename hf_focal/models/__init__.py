"""The papers' models as Transformers models, registered with the Auto classes when this package is imported."""

from .gp_cnn import GPCNNConfig, GPCNNForSequenceClassification, load_embeddings
from .transformer import transformer_config
from .tree_lstm import TreeLSTMConfig, TreeLSTMForSequenceClassification

__all__ = [
    "GPCNNConfig",
    "GPCNNForSequenceClassification",
    "TreeLSTMConfig",
    "TreeLSTMForSequenceClassification",
    "load_embeddings",
    "transformer_config",
]
