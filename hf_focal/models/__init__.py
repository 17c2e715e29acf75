"""The papers' models as Transformers models, registered with the Auto classes when this package is imported."""

from .gp_cnn import GPCNNConfig, GPCNNForSequenceClassification, load_embeddings

__all__ = ["GPCNNConfig", "GPCNNForSequenceClassification", "load_embeddings"]
