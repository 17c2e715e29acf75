"""Which source a model is."""

from typing import Any

from .label_words import LabelWordsSource
from .model import ModelSource
from .multiple_choice import MultipleChoiceSource


def model_source(*arguments: Any) -> ModelSource:
    """Return the source of a model: a language model may score label words, or the options of questions."""
    trained = ModelSource(*arguments)
    if trained.options.labels is not None:
        return LabelWordsSource(*arguments)
    scores_options = trained.options.question_column is not None and not trained.task.has_equal_options
    return MultipleChoiceSource(*arguments) if scores_options else trained
