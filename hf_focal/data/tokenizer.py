"""A word-level tokenizer for the models that are trained from scratch."""

from collections.abc import Iterable

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers
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
    """
    tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(_SEPARATORS), behavior="removed")
    trainer = trainers.WordLevelTrainer(vocab_size=vocab_size, special_tokens=["[PAD]", "[UNK]"], show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        model_max_length=max_length,
        model_input_names=["input_ids", "attention_mask"],
    )
