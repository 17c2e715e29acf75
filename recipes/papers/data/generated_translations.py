"""Generated parallel corpus with the true probability of each next word."""

import functools
import logging
import math
import re
from collections import defaultdict
from itertools import product
from typing import Any

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
_TARGET_ORDER = "dnaptv"  # order within a phrase: adjectives and adpositions follow the noun
_FEMININE = "n"  # ending of determiners and adjectives; words from `pseudo_word` never end in a consonant

_REGISTERS = ((0, 0.6), (1, 0.4))  # number and probability of the plain and of the formal register
# Probabilities in the plain and in the formal register, before they are multiplied by the ambiguity.
_LATE_ADVERB = (0.6, 0.1)  # adverb before the verb, not at the beginning
_LATE_PLACE = (0.1, 0.7)  # place after the object, not before it
_PARTICLE = (0.1, 0.9)  # particle at the end of the sentence


class Grammar:
    """An invented language and its random translation into another.

    Source sentences have the form `[adverb] subject verb object [preposition determiner noun]`; subject and object
    have the form `determiner [adjective] noun`. In the target language, verbs come last, adjectives and adpositions
    follow the noun, and determiners and adjectives agree with the noun in one of two genders. A target is drawn in
    these steps:

    - a register, plain or formal, is drawn; no word states it, but all later steps depend on it;
    - the positions of the adverb and of the prepositional phrase are drawn;
    - each word's translation is drawn; a noun's translations may differ in gender, which the determiner reveals;
    - a particle ends the sentence with some probability.

    `language_seed` draws the words, their translations, and the probabilities of the translations. `ambiguity`, from 0
    (each sentence has one translation) to 1, is the expected share of the words, determiners aside, that have 2 or 3
    translations; the probabilities of other word orders and of the particle are proportional to it.
    """

    def __init__(self, *, language_seed: int = 0, ambiguity: float = 0.5):
        _at_least("language_seed", language_seed, 0)
        if not 0 <= ambiguity <= 1:
            raise ValueError(f"ambiguity must be from 0 to 1, got {ambiguity}")
        self.ambiguity = ambiguity
        rng = np.random.default_rng(language_seed)
        names = iter([pseudo_word(number) for number in rng.permutation(4000)])
        self._words = {kind: [next(names) for _ in range(size)] for kind, size in _NUM_WORDS.items()}
        self._kind = {word: kind for kind, words in self._words.items() for word in words}
        self._particle = next(names)
        self._feminine = set()  # target nouns
        self._synonyms = {}  # source word -> (target word, its probability in each register)
        for word, kind in self._kind.items():
            size = rng.integers(2, 4) if kind != "d" and rng.random() < ambiguity else 1
            shares = rng.dirichlet(np.ones(size), size=2).T.tolist()
            self._synonyms[word] = [(next(names), share) for share in shares]
            if kind == "n":
                self._feminine |= {noun for noun, _ in self._synonyms[word] if rng.random() < 0.5}
        self._translated: dict[tuple, list] = {}

    def sample_source(self, rng: np.random.Generator) -> str:
        """Draw a source sentence of 5 to 11 words. Each optional part is included with probability 1/2."""
        adverb, first, second, place = rng.integers(2, size=4).tolist()
        kinds = "t" * adverb + "d" + "a" * first + "nvd" + "a" * second + "n" + "pdn" * place
        return " ".join(self._words[kind][rng.integers(_NUM_WORDS[kind])] for kind in kinds)

    def sample_target(self, source: str, rng: np.random.Generator) -> str:
        """Draw a translation of `source`, which has as many words as `source`, or one more if it has the particle.

        Raises:
            ValueError: `source` is not a sentence of the source language.
        """
        parts = self._parse(source)
        register = _draw(_REGISTERS, rng)
        order = _draw(self._orders(parts, register), rng)
        return " ".join(word for phrase in order for word in _draw(self._translate(phrase, register), rng))

    def next_word_distributions(self, source: str, prefix: str) -> list[dict[str, float]]:
        """Compute P(next target word | source, words so far) after each leading part of `prefix`, from none to all.

        So if `prefix` is a whole translation, item t is the true distribution for a teacher-forced model at position
        t. An item maps each possible next word, or `END` ("") for the end of the sentence, to its probability, summed
        over all translations that begin so. Raises `ValueError` if `source` is not a source sentence, or no
        translation begins with `prefix`.
        """
        error = f"prefix must begin a translation of {source!r}, got {prefix!r}"
        return self._distributions(source, prefix.split(), error)

    def token_probabilities(self, source: str, target: str) -> tuple[list[str], list[float]]:
        """Return the words of `target` and `END`, and P(word | source, preceding target words) of each of them.

        The product of the probabilities is P(target | source). Raises `ValueError` if `target` is not a translation of
        `source`.
        """
        words = [*target.split(), END]
        error = f"target must be a whole translation of {source!r}, got {target!r}"
        return words, [p[word] for word, p in zip(words, self._distributions(source, words, error), strict=False)]

    def _distributions(self, source: str, words: list[str], error: str) -> list[dict[str, float]]:
        """Compute next-word distributions after 0, 1, ..., and all `words`; `error` is the message for wrong words."""
        parts = self._parse(source)
        states: dict[tuple, float] = defaultdict(float)  # P(register, words left in the phrase, phrases left)
        for register, share in _REGISTERS:
            for order, probability in self._orders(parts, register):
                states[register, (), order] += share * probability
        following = self._advance(states)
        distributions = [_normalized(following)]
        for word in words:
            if word not in following:
                raise ValueError(error)
            following = self._advance(following[word])
            distributions.append(_normalized(following))
        return distributions

    def _parse(self, source: str) -> dict[str, tuple]:
        """Return the words of each part of the sentence `source`, or () for a part that the sentence does not have."""
        words = tuple(source.split())
        match = _SENTENCE.fullmatch("".join(self._kind.get(word, "?") for word in words))
        if match is None:
            raise ValueError(f"source must be a sentence of the source language, got {source!r}")
        return {part: words[slice(*match.span(part))] for part in match.groupdict()}

    def _orders(self, parts: dict[str, tuple], register: int) -> list[tuple[tuple, float]]:
        """Return the possible orders of the target's phrases, with probabilities. The same order may occur twice."""
        orders = []
        late_adverb, late_place = (self.ambiguity * late[register] for late in (_LATE_ADVERB, _LATE_PLACE))
        for adverb_at, p in ((0, 1 - late_adverb), (3, late_adverb)):
            for place_at, q in ((1, 1 - late_place), (2, late_place)):
                phrases = [parts["subject"], parts["object"], parts["verb"]]
                phrases.insert(place_at, parts["place"])
                phrases.insert(adverb_at, parts["adverb"])
                orders.append(((*filter(None, phrases), ()), p * q))  # () stands for the optional particle
        return orders

    def _translate(self, phrase: tuple, register: int) -> list[tuple[tuple, float]]:
        """Return the translations of a phrase, or of () for the optional particle, with their probabilities."""
        if not phrase:
            particle = self.ambiguity * _PARTICLE[register]
            return [((), 1 - particle), ((self._particle,), particle)]
        if (phrase, register) not in self._translated:
            translations = self._translated[phrase, register] = []
            ordered = sorted(phrase, key=lambda word: _TARGET_ORDER.index(self._kind[word]))
            for choice in product(*(self._synonyms[word] for word in ordered)):
                feminine = any(word in self._feminine for word, _ in choice)
                words = tuple(
                    word + _FEMININE if feminine and self._kind[source] in "da" else word
                    for source, (word, _) in zip(ordered, choice, strict=True)
                )
                translations.append((words, math.prod(shares[register] for _, shares in choice)))
        return self._translated[phrase, register]

    def _advance(self, states: dict) -> dict[str, Any]:
        """Take one step of the forward algorithm.

        Returns a dictionary from each possible next word to the states after it, with their joint probabilities.
        """
        following: dict[str, Any] = defaultdict(lambda: defaultdict(float))
        stack = list(states.items())
        while stack:
            (register, words, phrases), probability = stack.pop()
            if probability == 0:  # impossible at this ambiguity
                continue
            if words:
                following[words[0]][register, words[1:], phrases] += probability
            elif phrases:
                for translation, share in self._translate(phrases[0], register):
                    stack.append(((register, translation, phrases[1:]), probability * share))
            else:
                following[END][register, (), ()] += probability
        return following


def generate_translations(
    num_samples: int, *, ambiguity: float = 0.5, seed: int = 0, language_seed: int = 0
) -> Dataset:
    """Draw pairs of sentences from a `Grammar`, with the exact log-probability of each translation.

    Splits of one corpus share `language_seed` and differ in `seed`. The columns are "source" and "target" (words
    separated by single spaces) and "target_log_probability" (float64, log P(target | source) in nats, including the
    end of the sentence).
    """
    _at_least("num_samples", num_samples, 1)
    _at_least("seed", seed, 0)
    grammar = Grammar(language_seed=language_seed, ambiguity=ambiguity)
    rng = np.random.default_rng(seed)
    sources = [grammar.sample_source(rng) for _ in range(num_samples)]
    targets = [grammar.sample_target(source, rng) for source in sources]
    probabilities = (grammar.token_probabilities(*pair)[1] for pair in zip(sources, targets, strict=True))
    return Dataset.from_dict(
        {
            "source": sources,
            "target": targets,
            "target_log_probability": [
                sum(map(math.log, token_probabilities)) for token_probabilities in probabilities
            ],
        },
        features=Features(source=Value("string"), target=Value("string"), target_log_probability=Value("float64")),
    )


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

    The pairs are those of `generate_translations`, with the default ambiguity and language seed. Pairs with a word
    that is not exactly one token, or with more tokens than `max_length`, are left out; None is returned if there are
    no others. All words are single tokens unless the tokenizer's vocabulary is too small, or it was trained on other
    pairs or on very few. The model is set to evaluation mode.
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


def _normalized(following: dict[str, dict]) -> dict[str, float]:
    """Compute P(next word | preceding words) from the result of `Grammar._advance`."""
    masses = {word: sum(states.values()) for word, states in following.items()}
    total = sum(masses.values())
    return {word: mass / total for word, mass in masses.items()}


def _at_least(name: str, value: int, low: int) -> None:
    if value < low:
        raise ValueError(f"{name} must be at least {low}, got {value}")


def _draw(options: list | tuple, rng: np.random.Generator) -> Any:
    """Draw one of the options, which are pairs of a value and its probability."""
    uniform = rng.random()
    for option, probability in options:
        uniform -= probability
        if uniform < 0:
            return option
    return options[-1][0]  # reached only if rounding makes the sum less than 1
