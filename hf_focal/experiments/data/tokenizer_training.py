"""Tokenizers for the models that are trained from scratch."""

from collections.abc import Iterable

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

# What separates words, beside white space: the default filter of Keras' Tokenizer. Apostrophes stay inside words.
_SEPARATORS = r"[!\"#$%&()*+,\-./:;<=>?@\[\\\]^_`{|}~\s]+"


def train_word_tokenizer(
    texts: Iterable[str], vocab_size: int = 20_000, max_length: int = 1000
) -> PreTrainedTokenizerFast:
    """Train a lower-casing word-level tokenizer that drops punctuation, as Keras' `Tokenizer` does.

    Args:
        texts: the training texts.
        vocab_size: words kept, the most frequent first and ties in alphabetical order, "[PAD]" (id 0) and "[UNK]"
            (id 1) included.
        max_length: words after which `truncation=True` cuts a text.

    Returns:
        A tokenizer giving `input_ids` and `attention_mask`; `AutoTokenizer` loads what its `save_pretrained` wrote.

    Raises:
        ValueError: `vocab_size` has no room for a word.
    """
    tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(_SEPARATORS), behavior="removed")
    return _train_words(tokenizer, texts, vocab_size, max_length)


def train_tag_tokenizer(
    sentences: Iterable[list[str]], vocab_size: int = 20_000, max_length: int = 128
) -> PreTrainedTokenizerFast:
    """Make a vocabulary of words as they are written: what is to be tagged keeps its capitals and its punctuation.

    Args:
        sentences: the words of the training sentences.
        vocab_size: words kept, the most frequent first and ties in alphabetical order, "[PAD]" (id 0) and "[UNK]"
            (id 1) included.
        max_length: words after which `truncation=True` cuts a sentence.

    Returns:
        A tokenizer giving `input_ids` and `attention_mask`, a token for each word; it cuts texts at white space.
        `AutoTokenizer` loads what its `save_pretrained` wrote.

    Raises:
        ValueError: `vocab_size` has no room for a word.
    """
    tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return _train_words(tokenizer, (" ".join(words) for words in sentences), vocab_size, max_length)


def _train_words(
    tokenizer: Tokenizer, texts: Iterable[str], vocab_size: int, max_length: int
) -> PreTrainedTokenizerFast:
    if vocab_size < 3:
        raise ValueError(f"vocab_size must be at least 3, '[PAD]', '[UNK]' and a word, got {vocab_size}")
    trainer = trainers.WordLevelTrainer(vocab_size=vocab_size, special_tokens=["[PAD]", "[UNK]"], show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        model_max_length=max_length,
        model_input_names=["input_ids", "attention_mask"],
    )


def train_bpe_tokenizer(
    texts: Iterable[str], vocab_size: int = 37_000, max_length: int = 128
) -> PreTrainedTokenizerFast:
    """Train a byte-pair encoding [Sennrich et al. 2016] that both languages of a translation share.

    Words are cut at white space and around punctuation. Text is normalised: to NFC, and white space of whatever kind
    and length (tabs, no-break spaces, line separators) to one space, none at the ends. Text that is so already decodes
    to itself, but "▁" (U+2581) to a space. A character that the texts do not have is "<unk>", which decoding with
    `skip_special_tokens=True` leaves out; a "</s>" that a sentence holds itself is text.

    Args:
        texts: the training sentences of both languages.
        vocab_size: tokens, "<pad>" (id 0, which the decoder also starts from), "</s>" (id 1) and "<unk>" (id 2)
            included; fewer if the texts have no more pairs to merge.
        max_length: tokens after which `truncation=True` cuts a sentence, "</s>" included.

    Returns:
        A tokenizer that ends a sentence with "</s>", giving `input_ids` and `attention_mask`; `AutoTokenizer` loads
        what its `save_pretrained` wrote.

    Raises:
        ValueError: `vocab_size` is too small for the texts' characters.
    """
    # No byte_fallback: BpeTrainer gives bytes no tokens, and what no text teaches would be noise to the model.
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()]
    )
    # "▁" stands for the space before a word, so that decoding knows where punctuation had one.
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
