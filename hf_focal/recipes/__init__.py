"""What the recipes share."""

from .arguments import ClassifierArguments, DatasetArguments, RecipeArguments, SampleClassifierArguments
from .checks import (
    check_at_least,
    check_calibration_size,
    check_choice,
    check_class_weights,
    check_fine_tuning,
    check_fraction,
    check_model_name,
    check_test_file,
    check_training_arguments,
)
from .command import print_written, run_recipe
from .comparison import claim_folders, runs_of, train_classifiers, train_runs
from .measuring import measure_classifier, measure_dense, show_classes, true_errors, watch_classes, watch_samples
from .pretrained import (
    check_head,
    check_seq2seq_model,
    input_length,
    is_image_classifier,
    label_options,
    model_positions,
)
from .processors import image_processor, timm_settings
from .publishing import datasets_of, publish_runs
from .sgd import MilestonesTrainer, OptimizerArguments
from .training import BatchStatisticsTrainer, NextEpoch
from .translating import forget_translations, translate

__all__ = [
    "BatchStatisticsTrainer",
    "ClassifierArguments",
    "DatasetArguments",
    "MilestonesTrainer",
    "NextEpoch",
    "OptimizerArguments",
    "RecipeArguments",
    "SampleClassifierArguments",
    "check_at_least",
    "check_calibration_size",
    "check_choice",
    "check_class_weights",
    "check_fine_tuning",
    "check_fraction",
    "check_head",
    "check_model_name",
    "check_seq2seq_model",
    "check_test_file",
    "check_training_arguments",
    "claim_folders",
    "datasets_of",
    "forget_translations",
    "image_processor",
    "input_length",
    "is_image_classifier",
    "label_options",
    "measure_classifier",
    "measure_dense",
    "model_positions",
    "print_written",
    "publish_runs",
    "run_recipe",
    "runs_of",
    "show_classes",
    "timm_settings",
    "train_classifiers",
    "train_runs",
    "translate",
    "true_errors",
    "watch_classes",
    "watch_samples",
]
