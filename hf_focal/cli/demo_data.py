"""Generated data for the demos: messages to the support desk of a shop, and a small untrained encoder for them.

``python -m hf_focal.cli.demo_data DIR`` writes train.csv, validation.csv, test.csv, and the folder ``encoder`` to DIR.
"""

import csv
import sys
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast, set_seed

LEAK = 0.1
SIZES = {"train": 2500, "validation": 1000, "test": 2500}
# Some words belong to two departments, as "refund" does, and so tell little.
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
    """Generate messages, each with a "text" of three to seven sentences and a "label", the department that answers it.

    A message has two to five words from the vocabulary. Each department uses its own words most, some more often than
    others, and other departments' words to various degrees, so that some messages are easy and some are ambiguous.
    """
    words = {name: text.split() for name, text in _WORDS.items()}
    vocabulary = sorted({word for own in words.values() for word in own})
    fixed = np.random.default_rng(0)  # the same language whatever the seed
    frequency = 1 / (3 + fixed.permutation(len(vocabulary)))
    leaks = LEAK * fixed.random((len(words), len(vocabulary))) ** 2
    own = np.array([[word in words[name] for word in vocabulary] for name in words])
    weights = frequency * np.where(own, 1.0, leaks)
    rng, messages = np.random.default_rng(seed), []
    for _ in range(count):
        label = rng.integers(len(words))
        size = rng.integers(2, 6)
        used = rng.choice(vocabulary, size, p=weights[label] / weights[label].sum())
        about = [sentence.format(word) for sentence, word in zip(rng.choice(_ABOUT, size, False), used, strict=True)]
        small_talk = rng.choice(_SMALL_TALK, rng.integers(0, 3), False).tolist()
        messages.append({"text": " ".join([*small_talk[:1], *about, *small_talk[1:]]), "label": list(words)[label]})
    return messages


def write_demo_data(folder: str | Path, seed: int = 0) -> None:
    """Write train.csv, validation.csv, test.csv, and ``encoder``, which loads like any encoder of Transformers."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    texts: list[str] = []
    for number, (name, size) in enumerate(SIZES.items()):
        messages = generate_messages(size, 3 * seed + number)
        with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, ["text", "label"])
            writer.writeheader()
            writer.writerows(messages)
        texts += [message["text"] for message in messages] if name == "train" else []
    write_encoder(folder / "encoder", texts)


def write_encoder(folder: Path, texts: list[str], hidden_size: int = 64, layers: int = 2) -> None:
    """Save a BERT with random weights, and a tokenizer that is trained on `texts`."""
    words = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    words.normalizer, words.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    words.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words.train_from_iterator(texts, trainers.WordPieceTrainer(vocab_size=2000, special_tokens=special))
    words.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    names = {f"{name.strip('[]').lower()}_token": name for name in special}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, model_max_length=128, **names)
    tokenizer.save_pretrained(folder)
    set_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden_size,
        num_hidden_layers=layers,
        num_attention_heads=4,
        intermediate_size=2 * hidden_size,
        max_position_embeddings=128,
        initializer_range=0.1,
    )
    BertModel(config).save_pretrained(folder)


if __name__ == "__main__":
    write_demo_data(sys.argv[1])
