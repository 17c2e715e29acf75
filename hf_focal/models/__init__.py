"""The papers' models under the name that earlier versions saved; see `hf_focal.experiments.models`."""

from ..experiments.models import (
    CIFAR_NETWORKS,
    CifarDenseNetConfig,
    CifarDenseNetForImageClassification,
    CifarResNetConfig,
    CifarResNetForImageClassification,
    GPCNNConfig,
    GPCNNForSequenceClassification,
    TreeLSTMConfig,
    TreeLSTMForSequenceClassification,
    cifar_config,
    load_embeddings,
    transformer_config,
)

__all__ = [
    "CIFAR_NETWORKS",
    "CifarDenseNetConfig",
    "CifarDenseNetForImageClassification",
    "CifarResNetConfig",
    "CifarResNetForImageClassification",
    "GPCNNConfig",
    "GPCNNForSequenceClassification",
    "TreeLSTMConfig",
    "TreeLSTMForSequenceClassification",
    "cifar_config",
    "load_embeddings",
    "transformer_config",
]
