"""Generated data of the demos: messages to the support desk of a shop, and a small encoder with random weights.

``python -m hf_focal.demo.data DIR`` writes train.csv, validation.csv, test.csv, and the folder ``encoder`` to DIR.
"""

import csv
import sys
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast, set_seed

SIZES = {"train": 1500, "validation": 1000, "test": 2500}  # messages
# The words of each department. Some belong to two, as "refund" does.
_WORDS = {
    "account": "password login email username profile account code phone session link privacy settings security "
    "verification newsletter subscription membership points consent address card voucher app name language",
    "billing": "invoice payment card charge fee tax receipt amount bank transfer installment statement total currency "
    "discount voucher subscription refund balance deposit reminder interest contract price rate",
    "delivery": "parcel courier tracking address driver shipment package delay depot neighbor doorbell van route "
    "customs warehouse pickup locker label signature box date fee damage slot order",
    "product": "battery screen charger cable button speaker camera hinge manual firmware display sensor motor lid "
    "filter noise smell color size damage app update warranty leak scratch",
    "returns": "return refund exchange label warranty replacement box receipt seal packaging size color credit policy "
    "deadline form reason pickup voucher defect original store gift condition complaint",
}
_ABOUT = (
    "I have a question about the {}.",
    "There is a problem with the {}.",
    "Nobody could explain the {} to me.",
    "I wrote to you about the {} last week.",
    "What should I do about the {}?",
    "The {} is not what I expected.",
    "Please check the {} again.",
    "You promised to look into the {}.",
)
_SMALL_TALK = (
    "Hello, I hope you can help me.",
    "I have been a customer for years.",
    "I am still waiting for an answer.",
    "Thank you for your time.",
    "This is my second message.",
    "I tried to call you, but nobody answered.",
    "Please reply soon.",
    "My friends had the same experience.",
)


def generate_messages(count: int, seed: int) -> list[dict[str, str]]:
    """Generate messages, each with a "text" and, as its "label", the department that should answer it.

    A message mentions two to five things, among up to two sentences of small talk. Each department's customers use its
    own words most, some far more often than others, and words of other departments with various frequencies. So most
    messages are easy, some are ambiguous, and rare words must be learned from few examples. A classifier that knows
    these frequencies is wrong for 5% of the messages.
    """
    topic_words = [text.split() for text in _WORDS.values()]
    vocabulary = sorted({word for words in topic_words for word in words})
    language = np.random.default_rng(0)  # the same for each seed
    frequency = 1 / (3 + language.permutation(len(vocabulary)))
    elsewhere = 0.1 * language.random((len(topic_words), len(vocabulary))) ** 2
    weights = frequency * np.where([[word in words for word in vocabulary] for words in topic_words], 1, elsewhere)
    shares = weights / weights.sum(1, keepdims=True)
    rng, messages = np.random.default_rng(seed), []
    for label in rng.integers(len(topic_words), size=count):
        words = rng.choice(vocabulary, rng.integers(2, 6), p=shares[label])
        sentences = [
            text.format(word) for text, word in zip(rng.choice(_ABOUT, len(words), False), words, strict=True)
        ]
        small_talk = rng.choice(_SMALL_TALK, rng.integers(3), False).tolist()
        text = " ".join([*small_talk[:1], *sentences, *small_talk[1:]])
        messages.append({"text": text, "label": list(_WORDS)[label]})
    return messages


def write_demo_data(folder: str | Path, seed: int = 0) -> None:
    """Write train.csv, validation.csv, test.csv, and ``encoder``, which loads like any encoder of Transformers."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    splits = {name: generate_messages(size, 3 * seed + i) for i, (name, size) in enumerate(SIZES.items())}
    for name, messages in splits.items():
        with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, ["text", "label"])
            writer.writeheader()
            writer.writerows(messages)
    write_encoder(folder / "encoder", [message["text"] for message in splits["train"]])


def write_encoder(folder: Path, texts: list[str]) -> None:
    """Save a BERT with random weights, and a tokenizer that knows the words of `texts`."""
    normalizer, splitter = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    known = {word for text in texts for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text))}
    letters = set("".join(known))  # other words are read letter by letter
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    entries = [*special, *sorted(known | letters | {f"##{letter}" for letter in letters})]
    words = Tokenizer(models.WordPiece({entry: i for i, entry in enumerate(entries)}, unk_token="[UNK]"))
    words.normalizer, words.pre_tokenizer, words.decoder = normalizer, splitter, decoders.WordPiece()
    words.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    names = {f"{name.strip('[]').lower()}_token": name for name in special}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, model_max_length=128, **names)
    tokenizer.save_pretrained(folder)
    set_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=128,
        initializer_range=0.1,  # the usual 0.02 is for wide models
    )
    BertModel(config).save_pretrained(folder)


if __name__ == "__main__":
    write_demo_data(sys.argv[1])
    print(
        f"Written to {sys.argv[1]}: {', '.join(f'{name}.csv ({n:,} messages)' for name, n in SIZES.items())}, encoder"
    )
    print("The first: {label}: {text}".format(**generate_messages(1, 0)[0]))
