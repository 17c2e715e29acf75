"""The task of a model, from the name of its class, and the Hub's name for that task."""

# Suffix of the class name -> task, here as on the Hub. Masked language models classify tokens.
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
    """Return the task of a classifier's class, or None for any other class."""
    return next((task for ending, task in _CLASSIFIERS.items() if class_name.endswith(ending)), None)
