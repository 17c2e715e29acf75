"""The tasks of models: which task the name of a model's class implies, and what the Hub calls it."""

# Suffix of the class name -> task, as named here and on the Hub. Masked language models classify tokens.
_CLASSIFIERS = {
    "ForSequenceClassification": "text-classification",
    "ForImageClassification": "image-classification",
    "ForTokenClassification": "token-classification",
    "ForSemanticSegmentation": "image-segmentation",
    "ForMaskedLM": "fill-mask",
}
# The Hub's names for the tasks of language models.
PIPELINES = {"seq2seq-lm": "translation", "causal-lm": "text-generation", "multiple-choice": "text-generation"}
PIPELINES["multiple-choice-head"] = "multiple-choice"


def classifier_task(class_name: str) -> str | None:
    """Return the task that the name of a classifier's class implies, or None for the name of any other class."""
    return next((task for ending, task in _CLASSIFIERS.items() if class_name.endswith(ending)), None)
