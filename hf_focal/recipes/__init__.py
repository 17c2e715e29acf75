"""What the recipes share."""

from .arguments import ClassifierArguments, RecipeArguments, SampleClassifierArguments
from .checks import (
    check_at_least,
    check_calibration_size,
    check_choice,
    check_model_name,
    check_test_file,
    prepare_or_exit,
)
from .comparison import claim_folders, runs_of, train_classifiers
from .measuring import measure_classifier, measure_dense, show_classes, watch_classes, watch_samples
from .pretrained import input_length, is_image_classifier, model_positions
from .publishing import dataset_of, publish_runs, repository_of
from .training import BatchStatisticsTrainer, NextEpoch

__all__ = [
    "BatchStatisticsTrainer",
    "ClassifierArguments",
    "NextEpoch",
    "RecipeArguments",
    "SampleClassifierArguments",
    "check_at_least",
    "check_calibration_size",
    "check_choice",
    "check_model_name",
    "check_test_file",
    "claim_folders",
    "dataset_of",
    "input_length",
    "is_image_classifier",
    "measure_classifier",
    "measure_dense",
    "model_positions",
    "prepare_or_exit",
    "publish_runs",
    "repository_of",
    "runs_of",
    "show_classes",
    "train_classifiers",
    "watch_classes",
    "watch_samples",
]
