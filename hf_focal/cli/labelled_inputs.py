"""Labelled samples for each kind of trained model."""

from collections.abc import Hashable

from datasets import Dataset
from transformers import PreTrainedConfig

from .column_selection import Column, drop_unlabelled, flatten_translations, sample_keys, select_columns
from .input_options import InputOptions
from .model_labels import labels_of, tags_of

# The inputs of each task: the option that names the column, its name here, and what it holds.
_INPUTS = {
    "text-classification": [("text_column", "text", "strings"), ("text_pair_column", "pair", "strings")],
    "image-classification": [("image_column", "image", "images")],
    "token-classification": [("token_column", "tokens", "lists of strings")],
    "causal-lm": [("text_column", "text", "strings")],
    "seq2seq-lm": [("source_column", "source", "strings"), ("target_column", "target", "strings")],
}


def select_inputs(task: str, source: str, split: Dataset, config: PreTrainedConfig, options: InputOptions) -> Dataset:
    """Select a model's inputs from a split and, for classifiers, their "labels" as the model numbers them.

    Args:
        task: one of `TASKS`.
        source: what errors call the split.
        split: as it was loaded.
        config: the model's.
        options: the columns, and the number of samples.

    Returns:
        Columns "text" and perhaps "pair", "image" (undecoded), "tokens", or "source" and "target". Texts and images
        without a label are dropped.

    Raises:
        ValueError: a column is missing or holds something else, there are no samples or no labels, or the model does
            not have a label.
    """
    if task == "seq2seq-lm":
        split = flatten_translations(split, options.source_column)
    columns = [
        Column(argument, getattr(options, argument), name, holds)
        for argument, name, holds in _INPUTS[task]
        if getattr(options, argument) is not None
    ]
    samples = select_columns(source, split, *columns)
    if task in ("text-classification", "image-classification"):
        labels = labels_of(config, source, split, options.label_column, options.label_map)
        samples = samples.add_column("labels", labels.numpy())
        samples = drop_unlabelled(source, samples, "labels", options.label_column)
    elif task == "token-classification":
        tags = tags_of(config, source, split, options.tag_column, options.label_map)
        check_tags(source, samples["tokens"][:], tags)
        samples = samples.add_column("labels", tags)
    if options.max_samples is None or options.max_samples >= len(samples):
        return samples
    return samples.shuffle(seed=0).select(range(options.max_samples))


def check_tags(source: str, sentences: list[list[str]], tags: list[list]) -> None:
    """Raise `ValueError` unless each word has one tag."""
    for number, (words, of_words) in enumerate(zip(sentences, tags, strict=True)):
        if len(words) != len(of_words):
            raise ValueError(
                f"tag_column must have one label for each word, got {len(of_words)} for {len(words)} in row {number} "
                f"of {source}"
            )


def input_keys(task: str, samples: Dataset) -> list[tuple[Hashable, ...]]:
    """The `sample_keys` of the inputs that `select_inputs` returned, without their labels."""
    return sample_keys(samples, *(name for _, name, _ in _INPUTS[task] if name in samples.column_names))
