"""The task of a model, from the name of its class, and the Hub's name for that task."""

# Suffix of the class name -> task, here as on the Hub.
_CLASSIFIERS = {
    "ForSequenceClassification": "text-classification",
    "ForImageClassification": "image-classification",
    "ForTokenClassification": "token-classification",
    "ForSemanticSegmentation": "image-segmentation",
}
# The Hub's names for the language-model tasks of `hf-focal --task`.
PIPELINES = {"seq2seq-lm": "translation", "causal-lm": "text-generation"}


def classifier_task(class_name: str) -> str | None:
    """Return the task of a classifier's class, or None for any other class."""
    return next((task for ending, task in _CLASSIFIERS.items() if class_name.endswith(ending)), None)
