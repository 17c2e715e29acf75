"""Models of the papers as Transformers models. Importing the package registers them with the Auto classes."""

from .cifar_densenet import CifarDenseNetConfig as CifarDenseNetConfig
from .cifar_densenet import CifarDenseNetForImageClassification as CifarDenseNetForImageClassification
from .cifar_networks import CIFAR_NETWORKS as CIFAR_NETWORKS
from .cifar_networks import cifar_config as cifar_config
from .cifar_resnet import CifarResNetConfig as CifarResNetConfig
from .cifar_resnet import CifarResNetForImageClassification as CifarResNetForImageClassification
from .gp_cnn import GPCNNConfig as GPCNNConfig
from .gp_cnn import GPCNNForSequenceClassification as GPCNNForSequenceClassification
from .translation_transformer import transformer_config as transformer_config
from .tree_lstm import TreeLSTMConfig as TreeLSTMConfig
from .tree_lstm import TreeLSTMForSequenceClassification as TreeLSTMForSequenceClassification
