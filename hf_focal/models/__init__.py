"""The papers' models as Transformers models, registered with the Auto classes when this package is imported."""

from hf_focal.models.gp_cnn import GPCNNConfig, GPCNNForSequenceClassification, load_embeddings

__all__ = ["GPCNNConfig", "GPCNNForSequenceClassification", "load_embeddings"]
