"""Models of the papers as Transformers models. Importing the package registers them with the Auto classes."""

from .cifar_densenet import CifarDenseNetConfig, CifarDenseNetForImageClassification
from .cifar_networks import CIFAR_NETWORKS, cifar_config
from .cifar_resnet import CifarResNetConfig, CifarResNetForImageClassification
from .gp_cnn import GPCNNConfig, GPCNNForSequenceClassification
from .translation_transformer import transformer_config
from .tree_lstm import TreeLSTMConfig, TreeLSTMForSequenceClassification

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
    "transformer_config",
]
