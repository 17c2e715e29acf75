"""Models of the papers as Transformers models. Importing the package registers them with the Auto classes."""

from papers.models.cifar_densenet import CifarDenseNetConfig as CifarDenseNetConfig
from papers.models.cifar_densenet import CifarDenseNetForImageClassification as CifarDenseNetForImageClassification
from papers.models.cifar_networks import CIFAR_NETWORKS as CIFAR_NETWORKS
from papers.models.cifar_networks import cifar_config as cifar_config
from papers.models.cifar_resnet import CifarResNetConfig as CifarResNetConfig
from papers.models.cifar_resnet import CifarResNetForImageClassification as CifarResNetForImageClassification
from papers.models.gp_cnn import GPCNNConfig as GPCNNConfig
from papers.models.gp_cnn import GPCNNForSequenceClassification as GPCNNForSequenceClassification
from papers.models.translation_transformer import transformer_config as transformer_config
from papers.models.tree_lstm import TreeLSTMConfig as TreeLSTMConfig
from papers.models.tree_lstm import TreeLSTMForSequenceClassification as TreeLSTMForSequenceClassification
