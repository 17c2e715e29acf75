"""Scores that a causal language model gives to the options of multiple-choice questions."""

import hashlib
import json
import string
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ..tasks.label_numbers import answer_numbers
from ..utils.caller_warnings import warn
from ..utils.weights_hash import hash_weights
from .continuations import after_prompts, goes_on_from_its_cache
from .option_encoding import EncodedQuestions, Question, encode_choices
from .option_scoring import OptionScoring, option_temperature
from .score_file import ScoredBatch, ScoreFile

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def score_choices(
    model: Any,
    tokenizer: "PreTrainedTokenizerBase",
    questions: Sequence[str],
    choices: Sequence[Sequence[str]],
    *,
    score: str = "letters",
    letters: Sequence[str] = string.ascii_uppercase,
    template: str | None = None,
    chat: bool = False,
    batch_size: int = 16,
    folder: str | Path | None = None,
) -> Tensor:
    """Score the options of each question. The softmax of a question's scores gives the probabilities of the options.

    The scores are what `CalibrationMetrics` and `fit_temperature` take as logits, with `answer_indices` as labels. A
    forward pass computes logits only at the positions that predict the scored tokens. If `hf-focal calibrate` stored a
    temperature for options in the model's config (`config.option_calibration`), the scores are divided by it, so the
    probabilities are calibrated; but if the options were scored otherwise there, by another `score`, `template`, or
    `letters`, or without `chat`, a warning says so, and the scores are the model's own.

    Args:
        model: a causal language model of Transformers, on any device.
        tokenizer: its tokenizer.
        questions: N texts.
        choices: two or more options for each question; questions may differ in their number of options.
        score: "letters": the log-probability of each option's letter after the prompt. "text": the mean
            log-probability of the tokens of the option's text [Brown et al. 2020, section 2.4]; the options share one
            pass of the prompt if the model's cache allows it.
        letters: the letters of the first, second, ... option; after the prompt, each must be a single token.
        template: the prompt, with the fields {question} and {options}; the options are lines such as "A. Paris". The
            default is the question, the options (only if letters are scored), and "Answer:". The scored letter or text
            follows the prompt, after a space, unless the prompt ends in whitespace or opens a bracket or quotation, or
            the letters are single tokens only without a space.
        chat: pass the prompt through the tokenizer's chat template, as the user's message.
        batch_size: questions per forward pass.
        folder: the folder of a file to which the scores of each batch are appended. The file is specific to this
            model, these questions, and these settings. A call that finds it continues after the last batch in it.

    Returns:
        (N, K) log-probabilities, divided by T if there is one, on the CPU, float32 (float64 for a float64 model). K is
        the largest number of options. If a question has fewer options, its remaining scores are -inf.

    Raises:
        InputError: before anything is scored, if the numbers of questions and choices differ, a question has fewer
            than two options, a letter is not a single token, a prompt is longer than the model's positions, the
            template has an unknown field, or the tokenizer's chat template raises an error.
        TypeError: the model has no head that computes the logits from hidden states, position by position.
    """
    scoring = OptionScoring(score, letters, template, chat)
    encoded = encode_choices(model, tokenizer, questions, choices, scoring)
    temperature, problem = option_temperature(model.config, scoring)
    if problem:
        warn(problem)
    scores = score_encoded(model, encoded, batch_size, folder)
    return scores if temperature is None else temperature.apply(scores)


def answer_indices(
    answers: Sequence[int | str], choices: Sequence[Sequence[str]], letters: Sequence[str] = string.ascii_uppercase
) -> Tensor:
    """Return the index of each question's correct option, (N,) int64: the labels of the scores of `score_choices`.

    An answer is the correct option's index (counted from 0), letter, or text. Raises InputError for any other answer,
    and for a text that is also the letter of a different option.
    """
    return torch.tensor(answer_numbers(answers, choices, letters))


def score_encoded(
    model: Any, questions: EncodedQuestions, batch_size: int, folder: str | Path | None = None
) -> Tensor:
    """Score the options of encoded questions. The other arguments and the result are those of `score_choices`."""
    asked, letter_ids = questions
    # The longest first: if memory does not suffice, this shows in the first batch.
    order = sorted(range(len(asked)), key=lambda row: -asked[row].num_inputs)
    batches = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
    file = None
    if folder is not None:
        file = ScoreFile(Path(folder) / f"scores-{_key(model, questions, batch_size)}.jsonl")
    finished = [] if file is None else file.finished()
    training = model.training
    model.eval()
    try:
        remaining, longest = batches[len(finished) :], asked[order[0]]
        shares_prompts = bool(remaining and longest.texts) and goes_on_from_its_cache(
            model, longest.prompt, max((text.ids for text in longest.texts), key=len)
        )
        for rows in remaining:
            scores = _score_batch(model, [asked[row] for row in rows], letter_ids, shares_prompts)
            finished.append(ScoredBatch(rows, scores))
            if file is not None:
                file.append(finished[-1])
    finally:
        model.train(training)
    scored = sorted((row, values) for batch in finished for row, values in zip(batch.rows, batch.scores, strict=True))
    columns = [torch.tensor(values, dtype=torch.float64) for _, values in scored]
    padded = pad_sequence(columns, batch_first=True, padding_value=-torch.inf)
    return padded if model.dtype == torch.float64 else padded.float()


@torch.inference_mode()
def _score_batch(
    model: Any, asked: Sequence[Question], letter_ids: list[int], shares_prompts: bool
) -> list[list[float]]:
    """Return the scores of each question's options."""
    scores = _letter_scores(model, asked, letter_ids) if letter_ids else _text_scores(model, asked, shares_prompts)
    return [row[: question.num_options] for row, question in zip(scores.tolist(), asked, strict=True)]


def _letter_scores(model: Any, asked: Sequence[Question], letter_ids: list[int]) -> Tensor:
    """Return the log-probabilities of the letters after each question, (N, K) float64."""
    prompts = [question.prompt for question in asked]
    log_p = after_prompts(model, prompts, shared=False)([[]] * len(asked))[:, 0]
    return log_p[:, torch.tensor(letter_ids, device=log_p.device)].double().cpu()


def _text_scores(model: Any, asked: Sequence[Question], shares_prompts: bool) -> Tensor:
    """Return the mean log-probabilities of each option's scored tokens, (N, K) float64.

    A question with fewer than K options has the score of its last one in their place.
    """
    log_p_after = after_prompts(model, [question.prompt for question in asked], shares_prompts)
    means = []
    for number in range(max(question.num_options for question in asked)):
        texts = [question.texts[min(number, question.num_options - 1)] for question in asked]
        tokens = pad_sequence([torch.tensor(text.ids) for text in texts], batch_first=True)
        log_p = log_p_after([text.ids[:-1] for text in texts])
        log_p = log_p.gather(2, tokens[..., None].to(log_p.device))[..., 0].double().cpu()
        places = torch.arange(tokens.shape[1])
        starts, sizes = torch.tensor([[text.start, len(text.ids)] for text in texts]).split(1, dim=1)
        scored = (starts <= places) & (places < sizes)
        means.append(log_p.masked_fill(~scored, 0).sum(1) / scored.sum(1))
    return torch.stack(means, 1)


def _key(model: Any, questions: EncodedQuestions, batch_size: int) -> str:
    """Return a hash of everything that the scores depend on."""
    adapter = str(getattr(model, "active_adapter", None))
    settings = [questions, batch_size, str(model.dtype), model.config.to_json_string(), adapter]
    digest = hashlib.sha256(json.dumps(settings).encode())
    hash_weights(digest, model)
    return digest.hexdigest()[:16]
