"""Generated parallel corpus with the true probability of each next word."""

import functools
import logging
import math
import re

import numpy as np
import torch
from datasets import Dataset, Features, Value
from transformers import DataCollatorForSeq2Seq, PreTrainedModel, PreTrainedTokenizerBase

from hf_focal.calibration import Temperature

from .generated_topics import pseudo_word, true_calibration_error

_logger = logging.getLogger(__name__)

END = ""  # the "word" that ends a target sentence

# Numbers of adverbs, determiners, adjectives, nouns, verbs, and prepositions. `_SENTENCE` uses the same letters.
_NUM_WORDS = {"t": 8, "d": 4, "a": 15, "n": 40, "v": 20, "p": 6}
_SENTENCE = re.compile("(?P<adverb>t?)(?P<subject>da?n)(?P<verb>v)(?P<object>da?n)(?P<place>(?:pdn)?)")
_TARGET_ORDER = ("adverb", "subject", "place", "object", "verb")
_PHRASE_ORDER = "dnaptv"  # within a phrase, adjectives and adpositions follow the noun

_AMBIGUOUS = 0.5  # expected share of the words, determiners aside, that have 2 or 3 translations
# Probabilities of the plain and of the formal register, and of a particle at the end of a sentence of each.
_REGISTERS, _PARTICLE = np.array([0.6, 0.4]), np.array([0.05, 0.45])


class Grammar:
    """An invented language and its random translation into another.

    Source sentences have the form `[adverb] subject verb object [preposition determiner noun]`; subject and object
    have the form `determiner [adjective] noun`. In the target language, verbs come last, and adjectives and
    adpositions follow the noun. The translation of each word is drawn, and a particle ends the sentence with some
    probability; both depend on a register, plain or formal, which is drawn first, and which no word states.
    """

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        names = iter([pseudo_word(number) for number in rng.permutation(4000)])
        self._words = {kind: [next(names) for _ in range(size)] for kind, size in _NUM_WORDS.items()}
        self._kind = {word: kind for kind, words in self._words.items() for word in words}
        self._particle = next(names)
        # Source word -> target word -> its probability in each register.
        self._translations: dict[str, dict[str, np.ndarray]] = {}
        for word, kind in self._kind.items():
            size = rng.integers(2, 4) if kind != "d" and rng.random() < _AMBIGUOUS else 1
            shares = rng.dirichlet(np.ones(size), size=2).T
            self._translations[word] = {next(names): share for share in shares}

    def sample_source(self, rng: np.random.Generator) -> str:
        """Draw a source sentence of 5 to 11 words. Each optional part is included with probability 1/2."""
        adverb, first, second, place = rng.integers(2, size=4).tolist()
        kinds = "t" * adverb + "d" + "a" * first + "nvd" + "a" * second + "n" + "pdn" * place
        return " ".join(self._words[kind][rng.integers(_NUM_WORDS[kind])] for kind in kinds)

    def sample_target(self, source: str, rng: np.random.Generator) -> str:
        """Draw a translation of `source`, which has as many words as `source`, or one more if it has the particle."""
        register, words = int(rng.random() >= _REGISTERS[0]), []
        for options in self._options(source):
            shares = np.cumsum([shares[register] for shares in options.values()])
            words.append(list(options)[np.searchsorted(shares[:-1], rng.random(), side="right")])
        return " ".join(words).rstrip()

    def next_word_distributions(self, source: str, prefix: str) -> list[dict[str, float]]:
        """Compute P(next target word | source, words so far) after each leading part of `prefix`, from none to all.

        So if `prefix` is a whole translation, item t is the true distribution for a teacher-forced model at position
        t. An item maps each possible next word, or `END` ("") for the end of the sentence, to its probability. Raises
        `ValueError` if `source` is not a source sentence, or no translation begins with `prefix`.
        """
        options, registers, distributions = self._options(source), _REGISTERS, []
        after_particle = {END: np.ones(2)}
        for shares, word in zip([*options, after_particle], [*prefix.split(), None], strict=False):
            distributions.append({name: float(registers @ share) for name, share in shares.items()})
            if word is None:
                return distributions
            if word not in shares:
                break
            registers = registers * shares[word] / distributions[-1][word]
        raise ValueError(f"prefix must begin a translation of {source!r}, got {prefix!r}")

    def token_probabilities(self, source: str, target: str) -> tuple[list[str], list[float]]:
        """Return the words of `target` and `END`, and P(word | source, preceding target words) of each of them.

        The product of the probabilities is P(target | source). Raises `ValueError` if `target` is not a translation of
        `source`.
        """
        words, distributions = [*target.split(), END], self.next_word_distributions(source, target)
        if END not in distributions[-1]:
            raise ValueError(f"target must be a whole translation of {source!r}, got {target!r}")
        return words, [shares[word] for word, shares in zip(words, distributions, strict=True)]

    def _options(self, source: str) -> list[dict[str, np.ndarray]]:
        """Return the possible words at each place of a translation, as in `_translations`; the last is the particle's.

        Given the register, words at different places are independent.
        """
        words = source.split()
        match = _SENTENCE.fullmatch("".join(self._kind.get(word, "?") for word in words))
        if match is None:
            raise ValueError(f"source must be a sentence of the source language, got {source!r}")
        ordered = []
        for part in _TARGET_ORDER:
            phrase = words[slice(*match.span(part))]
            ordered += sorted(phrase, key=lambda word: _PHRASE_ORDER.index(self._kind[word]))
        return [*(self._translations[word] for word in ordered), {self._particle: _PARTICLE, END: 1 - _PARTICLE}]


def generate_translations(num_samples: int, *, seed: int = 0) -> Dataset:
    """Draw pairs of sentences from `Grammar`, with the exact log-probability of each translation.

    The columns are "source" and "target" (words separated by single spaces) and "target_log_probability" (float64,
    log P(target | source) in nats, including the end of the sentence).
    """
    grammar, rng = Grammar(), np.random.default_rng(seed)
    sources = [grammar.sample_source(rng) for _ in range(num_samples)]
    targets = [grammar.sample_target(source, rng) for source in sources]
    probabilities = (grammar.token_probabilities(*pair)[1] for pair in zip(sources, targets, strict=True))
    columns = {
        "source": sources,
        "target": targets,
        "target_log_probability": [sum(map(math.log, of_words)) for of_words in probabilities],
    }
    features = Features(source=Value("string"), target=Value("string"), target_log_probability=Value("float64"))
    return Dataset.from_dict(columns, features)


@torch.no_grad()
def true_translation_errors(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    pairs: Dataset,
    temperature: Temperature,
    *,
    max_length: int | None = None,
) -> tuple[float, float] | None:
    """Compute the `true_calibration_error` of a model's teacher-forced predictions of tokens, before and after T.

    The pairs are those of `generate_translations`. Pairs with a word that is not exactly one token, or with more
    tokens than `max_length`, are left out; None is returned if there are no others. All words are single tokens unless
    the tokenizer's vocabulary is too small, or it was trained on other pairs or on very few. The model is set to
    evaluation mode.
    """
    tokens = tokenizer(pairs["source"][:], text_target=pairs["target"][:])
    samples = [
        (pair, {"input_ids": source, "labels": target})
        for pair, source, target in zip(pairs, tokens["input_ids"], tokens["labels"], strict=True)
        if len(source) == len(pair["source"].split()) + 1
        and len(target) == len(pair["target"].split()) + 1
        and (max_length is None or max(len(source), len(target)) <= max_length)
    ]
    if len(samples) < len(pairs):
        _logger.info("true calibration error: %d of %d pairs consist of single-token words", len(samples), len(pairs))
    if not samples:
        return None

    @functools.cache
    def token(word: str) -> int | None:
        ids = tokenizer(text_target=word)["input_ids"]  # the word and the end token, or the end token alone for `END`
        return ids[0] if len(ids) == len(word.split()) + 1 else None

    grammar, batch_size = Grammar(), 64
    confidences: tuple[list, list] = ([], [])
    expected = []
    collate, model = DataCollatorForSeq2Seq(tokenizer, model=model), model.eval()
    for start in range(0, len(samples), batch_size):
        batch, encoded = zip(*samples[start : start + batch_size], strict=True)
        inputs = collate(list(encoded)).to(model.device)
        logits = model(**inputs).logits[inputs["labels"] != -100].float()
        for confidence, scores in zip(confidences, (logits, temperature.correction.apply(logits)), strict=True):
            confidence += scores.softmax(-1).max(-1).values.tolist()
        truth = (p for pair in batch for p in grammar.next_word_distributions(pair["source"], pair["target"]))
        for predicted, distribution in zip(logits.argmax(-1).tolist(), truth, strict=True):
            expected.append({token(word): p for word, p in distribution.items()}.get(predicted, 0.0))
    # One column is enough: the error depends only on the predicted words.
    before, after = (true_calibration_error(np.c_[confidence], np.c_[expected]) for confidence in confidences)
    return before, after
