"""Loading the tokenizer that encodes a model's texts, and refusing one that does not fit the model."""

from typing import Any

from transformers import AutoTokenizer, PreTrainedConfig

from ..errors import InputError
from ..tasks.input_errors import as_input_errors
from ..tasks.input_options import InputOptions
from ..tasks.task import Task, Unit
from .model_loading import pad_token_id_of

# Models whose tokenizers start words with a space only if asked to.
_ADD_PREFIX_SPACE = ("bloom", "deberta", "gpt2", "longformer", "roberta")


def load_tokenizer(name: str, task: Task, config: PreTrainedConfig, options: InputOptions, batch_size: int) -> Any:
    """Load the tokenizer of a model, with a token for padding and, if it is multilingual, the languages of the data.

    Raises:
        InputError: there is no vocabulary, or one that is larger than the embeddings; words need a fast tokenizer;
            there is no token for padding, which a `batch_size` above 1 needs; or a language is missing or unknown.
    """
    with as_input_errors("model", name):
        spaced = task.unit is Unit.WORDS and config.model_type in _ADD_PREFIX_SPACE
        settings = {"add_prefix_space": True} if spaced else {}
        tokenizer = AutoTokenizer.from_pretrained(name, **settings, trust_remote_code=options.trust_remote_code)
        _check_input_names(tokenizer)
    _set_padding(tokenizer, task, config)
    if len(tokenizer) <= len(tokenizer.all_special_tokens):
        raise InputError("model", f"must come with its tokenizer, got {name!r} without a vocabulary")
    if task.unit is Unit.WORDS and not tokenizer.is_fast:
        raise InputError("model", f"must have a fast tokenizer, for word indices, got {name!r} with a slow one")
    if getattr(tokenizer, "pad_token", "") is None and batch_size > 1:
        raise InputError(
            "batch_size", f"must be 1 for {name!r}, whose tokenizer has no token for padding, got {batch_size}"
        )
    if task.is_seq2seq:
        _set_languages(tokenizer, name, options)
    _check_vocabulary(tokenizer, name, config)
    return tokenizer


def _check_input_names(tokenizer: Any) -> None:
    """Raise `ValueError` unless the inputs are named, and the first, by which they are padded, is the tokens."""
    names = [*tokenizer.model_input_names]
    if names[:1] != ["input_ids"] or not all(isinstance(name, str) for name in names):
        raise ValueError(
            f"its tokenizer's model_input_names must be names, of which the first is 'input_ids', got {names}"
        )


def _set_padding(tokenizer: Any, task: Task, config: PreTrainedConfig) -> None:
    """Pad language models on the right, as they are trained; and pad with any token, if padding is not measured, or
    with the token of the config."""
    if task.generates or task.auto_class == "AutoModelForCausalLM":
        tokenizer.padding_side = "right"
    if task.auto_class == "AutoModelForCausalLM":
        tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    elif getattr(tokenizer, "pad_token", "") is None and (pad := pad_token_id_of(config)) is not None:
        tokenizer.pad_token = tokenizer.convert_ids_to_tokens(pad)


def _set_languages(tokenizer: Any, name: str, options: InputOptions) -> None:
    """Set the source and target languages of a multilingual tokenizer, whose default languages would be wrong."""
    is_multilingual = hasattr(tokenizer, "tgt_lang")
    # Special tokens mark the language. M2M100 lists these tokens in a table of its own.
    table = getattr(tokenizer, "lang_code_to_id", {})
    marks = {*tokenizer.all_special_ids, *table.values()} - {tokenizer.unk_token_id}
    for argument, attribute, side in (("source_lang", "src_lang", "text"), ("target_lang", "tgt_lang", "text_target")):
        language = getattr(options, argument)
        if not is_multilingual:
            if language is not None:
                raise InputError(argument, f"must not be given for {name!r}, got {language!r}")
            continue
        if language is None:
            raise InputError(argument, f"must be given for {name!r}, a multilingual model, got None")
        try:
            setattr(tokenizer, attribute, language)
            is_known = marks.issuperset(tokenizer(**{side: ""})["input_ids"])
        except KeyError:
            is_known = False
        if not is_known:
            raise InputError(argument, f"must be a language of {name!r}, got {language!r}")


def _check_vocabulary(tokenizer: Any, name: str, config: PreTrainedConfig) -> None:
    """Raise `InputError` unless there is an embedding for each token."""
    with as_input_errors("model", name):  # malformed settings cause errors only when the tokenizer is used
        tokens = tokenizer("a")["input_ids"]
        if tokenizer.pad_token is not None:
            tokens = tokenizer.pad([tokenizer("a"), tokenizer("b c")])["input_ids"][0] + [tokenizer.pad_token_id]
    largest, vocab_size = max(tokens, default=0), getattr(config.get_text_config(), "vocab_size", None)
    if vocab_size is not None and largest >= vocab_size:
        raise InputError(
            "model",
            f"must have an embedding for each token, got {name!r} with {vocab_size} embeddings, whose tokenizer gives "
            f"the token id {largest}",
        )
