"""Tokenizers with separators between two texts."""

from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast


def tokenizer_of(form):
    """A tokenizer of words with the special tokens of BERT or RoBERTa."""
    start, middle, end = form
    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(["[PAD]", start, end, "a", "b", "c"])}, "a"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.post_processor = processors.TemplateProcessing(
        single=f"{start} $A {end}", pair=f"{start} $A {middle} $B {end}", special_tokens=[(start, 1), (end, 2)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=words, cls_token=start, sep_token=end, pad_token="[PAD]")
