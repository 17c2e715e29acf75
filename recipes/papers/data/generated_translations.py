"""Generated parallel corpus of an invented language and its translation."""

import re

import numpy as np
from datasets import Dataset, Features, Value

from papers.data.generated_topics import pseudo_word

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
        return [*(self._translations[word] for word in ordered), {self._particle: _PARTICLE, "": 1 - _PARTICLE}]


def generate_translations(num_samples: int, *, seed: int = 0) -> Dataset:
    """Draw pairs of sentences from `Grammar`: the columns "source" and "target", words separated by single spaces."""
    grammar, rng = Grammar(), np.random.default_rng(seed)
    sources = [grammar.sample_source(rng) for _ in range(num_samples)]
    targets = [grammar.sample_target(source, rng) for source in sources]
    features = Features(source=Value("string"), target=Value("string"))
    return Dataset.from_dict({"source": sources, "target": targets}, features)
