"""Training of tokenizers for models that are trained from scratch."""

from collections.abc import Iterable
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

# White space and the characters that Keras' Tokenizer filters by default separate words; apostrophes do not.
_SEPARATORS = r"[!\"#$%&()*+,\-./:;<=>?@\[\\\]^_`{|}~\s]+"


def train_word_tokenizer(
    texts: Iterable[str], vocab_size: int = 20_000, max_length: int = 1000
) -> PreTrainedTokenizerFast:
    """Train a word-level tokenizer that lowercases and drops punctuation, as Keras' `Tokenizer` does.

    Of its `vocab_size` tokens, "[PAD]" has id 0 and "[UNK]" id 1; the others are the most frequent words, equally
    frequent ones in alphabetical order. `truncation=True` keeps `max_length` words. `AutoTokenizer` loads saved
    tokenizers of this kind.
    """
    tokenizer = word_level_tokenizer(pre_tokenizers.Split(Regex(_SEPARATORS), behavior="removed"), lowercase=True)
    return train_words(tokenizer, texts, vocab_size, model_max_length=max_length)


def train_tag_tokenizer(sentences: Iterable[list[str]], vocab_size: int = 20_000) -> PreTrainedTokenizerFast:
    """Train a word-level tokenizer for tagging, which splits at white space and keeps capitals and punctuation.

    `sentences` are lists of words, each of which is one token; the rest is as in `train_word_tokenizer`.
    """
    tokenizer = word_level_tokenizer(pre_tokenizers.WhitespaceSplit(), lowercase=False)
    return train_words(tokenizer, (" ".join(words) for words in sentences), vocab_size, model_max_length=128)


def word_level_tokenizer(splitter: pre_tokenizers.PreTokenizer, lowercase: bool) -> Tokenizer:
    """Return an untrained word-level tokenizer that splits texts with `splitter`."""
    tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = splitter
    if lowercase:
        tokenizer.normalizer = normalizers.Lowercase()
    return tokenizer


def train_words(
    tokenizer: Tokenizer, texts: Iterable[str], vocab_size: int, **options: Any
) -> PreTrainedTokenizerFast:
    """Train a word-level tokenizer; `options` are those of `PreTrainedTokenizerFast`."""
    if vocab_size < 3:
        raise ValueError(f"vocab_size must be at least 3, '[PAD]', '[UNK]' and a word, got {vocab_size}")
    trainer = trainers.WordLevelTrainer(vocab_size=vocab_size, special_tokens=["[PAD]", "[UNK]"], show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    options = {"model_input_names": ["input_ids", "attention_mask"]} | options
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", **options)


def train_bpe_tokenizer(
    texts: Iterable[str], vocab_size: int = 37_000, max_length: int = 128
) -> PreTrainedTokenizerFast:
    """Train a byte-pair encoding [Sennrich et al. 2016] shared by both languages of a translation.

    Text is normalized to NFC, and each run of white space (tabs, no-break spaces, line separators) becomes one space,
    or is removed at the ends. Words are split at white space and around punctuation. Decoding restores the normalized
    text, except that "▁" (U+2581) becomes a space. Characters that the training texts do not contain become "<unk>",
    which decoding with `skip_special_tokens=True` leaves out. A "</s>" inside a sentence is ordinary text.

    The tokens include "<pad>" (id 0, which also starts the decoder), "</s>" (id 1), which ends each sentence, and
    "<unk>" (id 2). There are fewer than `vocab_size` if no pairs of tokens are left to merge; `ValueError` if the
    characters alone are more. `truncation=True` keeps `max_length` tokens.
    """
    # No byte_fallback: BpeTrainer adds no byte tokens, and the model would not learn tokens that no text contains.
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()]
    )
    # "▁" marks the space before a word, so that decoding can restore the spaces around punctuation.
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation(behavior="isolated")]
    )
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=["<pad>", "</s>", "<unk>"], show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    if tokenizer.get_vocab_size() > vocab_size:  # the trainer keeps every character
        raise ValueError(
            f"vocab_size must be at least {tokenizer.get_vocab_size()}, the special tokens and the characters of "
            f"texts, got {vocab_size}"
        )
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="</s>",
        unk_token="<unk>",
        model_max_length=max_length,
        split_special_tokens=True,
        model_input_names=["input_ids", "attention_mask"],
    )
