"""`fold_correction`, which makes a correction part of a model's weights."""

from collections.abc import Mapping
from typing import Any

from .corrections import Correction, ModelT
from .fitted_temperature import Temperature, as_correction


def fold_correction(
    model: ModelT, correction: Correction | Temperature | float, example: Mapping[str, Any] | None = None
) -> ModelT:
    """Fold a correction into a model's weights, so that plain `from_pretrained` loads a calibrated model.

    The last layers are found by running the model on a small batch. After the fold, the model runs on it again: if its
    logits are not the correction of those before, within the precision of the weights, the weights are restored.

    In a classifier, the last layer's weight W becomes A W and its bias c becomes A c + b, computed in float64 unless
    the correction is one T. Some heads, such as Llama's, have no bias: then the b of vector and matrix scaling is left
    out with a warning, and it is better to fit with `bias=False`. In a language model, T divides the weights of the
    head, and `final_logits_bias`. If the head is tied to the embeddings, the norm before the head is divided instead
    of the head's weight, so that head and embeddings stay tied.

    With a T, predictions change only in near-ties, by rounding: hardly ever in float32, but up to about 1% of all
    predictions in half precision with 1,000 classes. If predictions on random inputs change, a warning reports their
    share.

    The correction is recorded in `model.config.calibration`, combined with those folded before it. If the model
    generates, `"folded": True` is also recorded, so `calibrated_generation` does not apply T again. T replaces a
    temperature recorded by `apply_calibrated_generation`, which is not in the weights.

    The entries of the configuration that held for the earlier probabilities (`config.thresholds`,
    `config.prior_shift`, and `config.option_calibration`) are removed, with a warning.

    Args:
        model: a Transformers classifier (of texts, images, sounds, tokens, or pixels), whose logits are those of a
            Linear or Conv2d layer, or the sum of two; or a causal, sequence-to-sequence, or masked language model,
            for one T. Changed in place and returned, without `torch.compile` or `DataParallel` around it. In a PEFT
            classifier, the adapter's own copy of the head is changed; the base model does not change.
        correction: a `Correction`, or what `fit_temperature` returned, or a number T.
        example: inputs of a classifier for the trial, such as one batch of data. By default, random ones are made from
            the model's config, which is not possible for every model.

    Raises:
        InputError: a temperature that is not finite and positive; a correction that makes weights infinite in their
            dtype, or that is for another number of classes; a model for regression.
        TypeError: no config; logits that are not those of the last layers, or no batch to try; weights that are
            shared, quantized, offloaded, or sharded; a head without a bias, which Platt scaling or an offset needs; a
            PEFT classifier without its own copy of the head, or a language model with unmerged adapters. The model is
            then unchanged. For a language model, use `apply_calibrated_generation` instead.

    Examples:
        >>> from hf_focal import Temperature, fold_correction
        >>> from transformers import BertConfig, BertForSequenceClassification
        >>> sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
        >>> model = BertForSequenceClassification(BertConfig(vocab_size=10, **sizes))
        >>> fold_correction(model, Temperature(1.5)).config.calibration["temperature"]
        1.5
    """
    return as_correction(correction).fold_into(model, example)
