"""A causal language model with label words as a standard sequence classifier of Transformers."""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING

from ..calibration import Correction
from ..calibration.calibration_record import calibration_record, drop_calibration_entries
from ..calibration.trial_runs import close
from ..errors import InputError
from ..utils.model_wrappers import unwrap
from .label_words import LabelWords
from .label_words_model import LabelWordsModel, set_labels


def sequence_classifier(
    scorer: LabelWordsModel, correction: Correction, rows: Sequence[Sequence[str]]
) -> tuple[Any, Correction]:
    """Return a standard sequence classifier whose logits are the corrected scores, and the part that it lacks.

    The rows of its head are the corrected rows of the language model's head for the labels' tokens. Most decoders'
    classifiers have no bias, so the offsets are left over: a correction without slopes, which is also in
    `config.calibration`. The prompt is in `config.prompt`. The decoder is that of the language model, not a copy.

    Args:
        scorer: the language model with its labels.
        correction: the correction of the scores.
        rows: values for the prompt, with which the classifier is tried, as its tokenizer encodes them by default.

    Raises:
        InputError: the labels need more than one token; the family has no such class; or the classifier gives other
            logits than the language model, for example because its logits have a soft cap.
    """
    words, model = scorer.words, unwrap(scorer.language_model)
    classifier, head = _build(model, words)
    rest = _fold_head(head, model, words, correction)
    _check_same_scores(classifier.eval(), rest, scorer, correction, rows)
    recorded = rest if not rest.is_identity else None if correction.is_identity else correction
    if recorded is not None:
        classifier.config.calibration = calibration_record(recorded, folded=False if recorded is rest else None)
    return classifier, rest


def _refused(model: Any, reason: str) -> InputError:
    return InputError("save_as", f"must not be 'classifier' for this {type(model).__name__}: {reason}")


def _build(model: Any, words: LabelWords) -> tuple[Any, nn.Linear]:
    """Return a classifier with the decoder of a language model, and its head, whose weights are still to be set."""
    if words.first_tokens is None:
        raise _refused(model, "some labels have the same first token, which is the only one that a classifier scores")
    if words.ends:
        raise _refused(model, "its tokenizer ends each text with a token, which a classifier would read last")
    kind = MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING.get(type(model.config), None)
    if kind is None:
        raise _refused(model, "Transformers has no sequence classifier of its family")
    if getattr(model.config.get_text_config(), "final_logit_softcapping", None):
        raise _refused(model, "its logits have a soft cap, which a classifier lacks")
    config = copy.deepcopy(model.config)
    set_labels(config, words.labels, words.one_logit)
    config.prompt = words.plain_prompt()
    config.get_text_config().pad_token_id = config.pad_token_id = words.tokenizer.pad_token_id
    drop_calibration_entries(config, quiet=True)
    vars(config).pop("calibration", None)
    with torch.device("meta"):
        classifier = kind._from_config(config) if hasattr(kind, "_from_config") else kind(config)
    prefix, decoder = classifier.base_model_prefix, model.base_model
    heads = [
        module
        for path, module in classifier.named_modules()
        if isinstance(module, nn.Linear) and path.partition(".")[0] != prefix
    ]
    if len(heads) != 1 or type(getattr(classifier, prefix, None)) is not type(decoder):
        raise _refused(model, f"the head of {kind.__name__} is not one linear layer on the same decoder")
    setattr(classifier, prefix, decoder)
    return classifier, heads[0]


def _fold_head(head: nn.Linear, model: Any, words: LabelWords, correction: Correction) -> Correction:
    """Set a classifier's head to the corrected rows of the language model's, and return the part that it lacks."""
    output = model.get_output_embeddings()
    ids = torch.tensor(words.first_tokens, device=output.weight.device)
    rows, bias = output.weight.detach()[ids], getattr(output, "bias", None)
    offsets = torch.zeros(len(ids)) if bias is None else bias.detach()[ids].cpu()
    if words.one_logit:
        rows, offsets = rows[1:] - rows[:1], offsets[1:] - offsets[:1]
    offsets = correction.fold_rows(offsets.double())
    head.weight = nn.Parameter(correction.fold_rows(rows).to(rows))
    if head.bias is not None:
        head.bias = nn.Parameter(offsets.to(rows))
    elif offsets.any():
        return Correction(1.0, offsets if words.one_logit else offsets - offsets.mean())
    return Correction()


@torch.inference_mode()
def _check_same_scores(
    classifier: Any, rest: Correction, scorer: LabelWordsModel, correction: Correction, rows: Sequence[Sequence[str]]
) -> None:
    """Raise `InputError` unless the classifier and `rest` give the corrected scores of `rows`, the prompt's values."""
    words, model = scorer.words, unwrap(scorer.language_model)

    def scores(ids: Tensor) -> Tensor:
        return scorer(ids[None].to(model.device), torch.ones_like(ids)[None].to(model.device))

    encoded, _ = words.encode(rows)
    expected = correction.apply(torch.cat([scores(torch.tensor(ids)) for ids in encoded]).double().cpu())
    prompt = classifier.config.prompt
    texts = [prompt.format(**dict(zip(words.prompt.fields, values, strict=True))) for values in rows]
    inputs = words.tokenizer(texts, return_tensors="pt", padding=len(texts) > 1)
    inputs = {key: inputs[key].to(model.device) for key in ("input_ids", "attention_mask")}
    logits = rest.apply(classifier(**inputs).logits.double().cpu())
    if not words.one_logit:  # only differences count: the mean of a sample's logits changes no probability
        logits, expected = (values - values.mean(1, keepdim=True) for values in (logits, expected))
    tolerance = {2: 5e-2}.get(model.dtype.itemsize, 1e-4)
    if not close(logits, expected, tolerance):
        raise _refused(
            model, "its classifier does not give the same scores, by a scale of the logits or by other tokens"
        )
