"""Alias of `hf_focal.experiments.models`, for code and models of earlier versions."""

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
