"""Trained tokenizers."""

import pytest
from papers.data.tokenizer_training import train_bpe_tokenizer, train_tag_tokenizer, train_word_tokenizer
from transformers import AutoTokenizer

TEXTS = ["The cat, the dog.", "the cat's [hat]\n\tcost $5!", "", "a-b a_b"]


def test_words_are_those_of_keras_filter():
    tokenizer = train_word_tokenizer(TEXTS)
    # By frequency, then alphabetically.
    expected = ["[PAD]", "[UNK]", "the", "a", "b", "5", "cat", "cat's", "cost", "dog", "hat"]
    assert tokenizer.convert_ids_to_tokens(range(len(tokenizer))) == expected
    assert tokenizer.tokenize("THE dog;a/zebra's~") == ["the", "dog", "a", "[UNK]"]
    assert (tokenizer.pad_token_id, tokenizer.unk_token_id) == (0, 1)


SENTENCES = [
    "Hello, world! It's a well-known (sic) price: $5.00.",
    "„Ja“, sagte er – wirklich?",
    'She said "no" , twice .',
    "Größe, naïve café, 3/4 & 10% [x]_y; don't...",
    ". a",
    "",
]


@pytest.fixture(scope="module")
def bpe():
    return train_bpe_tokenizer(SENTENCES * 20, vocab_size=100, max_length=30)


def test_pairs_are_merged_inside_words_up_to_the_size():
    tokenizer = train_bpe_tokenizer(["low low lower, lowest"] * 3, vocab_size=14)
    assert tokenizer.convert_ids_to_tokens(range(3)) == ["<pad>", "</s>", "<unk>"]
    assert (tokenizer.pad_token_id, tokenizer.eos_token_id, tokenizer.unk_token_id) == (0, 1, 2)
    assert len(tokenizer) == 14 and sorted(tokenizer.get_vocab().values()) == list(range(14))
    merged = {token for token in tokenizer.get_vocab() if len(token) > 1} - {"<pad>", "</s>", "<unk>"}
    assert merged == {"lo", "▁lo"}  # not "▁low": there is no room


def test_sentences_end_and_decode_to_themselves(bpe):
    for sentence in SENTENCES:
        ids = bpe(sentence)["input_ids"]
        assert ids[-1] == 1 and not {0, 1, 2} & {*ids[:-1]}
        assert bpe.decode(ids, skip_special_tokens=True) == sentence


def test_unknown_characters(bpe):
    ids = bpe("a日本a")["input_ids"]
    assert ids.count(2) == 2 and ids[-1] == 1
    assert bpe.decode(ids, skip_special_tokens=True) == "aa"


def test_targets_and_truncation(bpe):
    batch = bpe(["no , twice", "He"], text_target=["wirklich ?", "Ja"])
    assert set(batch) == {"input_ids", "attention_mask", "labels"}
    assert batch["labels"] == [bpe("wirklich ?")["input_ids"], bpe("Ja")["input_ids"]]
    whole = bpe(SENTENCES[0])["input_ids"]
    cut = bpe(SENTENCES[0], text_target=SENTENCES[0], truncation=True, max_length=5)
    assert cut["input_ids"] == cut["labels"] == [*whole[:4], 1]
    cut = bpe(SENTENCES[0], truncation=True)["input_ids"]
    assert len(whole) > 30 and cut == [*whole[:29], 1]


def test_vocabulary_holds_every_character():
    # The special tokens, "▁", "a", "b" and "c"; then "▁a", "▁b" and "▁c".
    with pytest.raises(ValueError, match=r"vocab_size must be at least 7, the special .* characters of texts, got 6"):
        train_bpe_tokenizer(["a b c"], vocab_size=6)
    assert len(train_bpe_tokenizer(["a b c"], vocab_size=7)) == 7
    assert len(train_bpe_tokenizer(["a b c"], vocab_size=50)) == 10


WORDS = [["Anna", "sees", "Bonn"], ["he", "sings"], ["Bonn", "!"], ["so", "sings", "Anna"], ["no", "one"]]


def test_the_tokenizer_of_words_keeps_them_as_they_are(tmp_path):
    tokenizer = train_tag_tokenizer(WORDS, vocab_size=8)
    assert len(tokenizer) == 8
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    for words in (["Anna", "sings", "!"], ["Bonn", "sings"]):
        ids = loaded(words, is_split_into_words=True)["input_ids"]
        assert len(ids) == len(words)
        assert ids == loaded(" ".join(words))["input_ids"] == tokenizer(words, is_split_into_words=True)["input_ids"]
    assert loaded(["anna"], is_split_into_words=True)["input_ids"] == [loaded.unk_token_id]
