"""What a model is for, by its class, and what the Hub calls that."""

# The ends of the names of classifiers' classes -> what they are for, here as on the Hub.
_CLASSIFIERS = {
    "ForSequenceClassification": "text-classification",
    "ForImageClassification": "image-classification",
    "ForTokenClassification": "token-classification",
    "ForSemanticSegmentation": "image-segmentation",
}
# Of language models the Hub has other names than `hf-focal --task`.
PIPELINES = {"seq2seq-lm": "translation", "causal-lm": "text-generation"}


def classifier_task(class_name: str) -> str | None:
    """What the classifiers of a class are for; None where it is no class of them."""
    return next((task for ending, task in _CLASSIFIERS.items() if class_name.endswith(ending)), None)
