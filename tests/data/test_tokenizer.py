from transformers import AutoTokenizer

from hf_focal.data import train_word_tokenizer

TEXTS = ["The cat, the dog.", "the cat's [hat]\n\tcost $5!", "", "a-b a_b"]


def test_words_are_those_of_keras_filter():
    tokenizer = train_word_tokenizer(TEXTS)
    # By frequency, then alphabetically.
    expected = ["[PAD]", "[UNK]", "the", "a", "b", "5", "cat", "cat's", "cost", "dog", "hat"]
    assert tokenizer.convert_ids_to_tokens(range(len(tokenizer))) == expected
    assert tokenizer.tokenize("THE dog;a/zebra's~") == ["the", "dog", "a", "[UNK]"]
    assert (tokenizer.pad_token_id, tokenizer.unk_token_id) == (0, 1)


def test_vocabulary_size_counts_the_special_tokens():
    tokenizer = train_word_tokenizer(TEXTS, vocab_size=4)
    assert tokenizer.convert_ids_to_tokens(range(len(tokenizer))) == ["[PAD]", "[UNK]", "the", "a"]


def test_training_is_deterministic():
    texts = [f"w{i % 97} w{i % 89}" for i in range(2000)]
    first, second = (train_word_tokenizer(texts, vocab_size=50).get_vocab() for _ in range(2))
    assert first == second


def test_saved_and_loaded(tmp_path):
    tokenizer = train_word_tokenizer(TEXTS, max_length=6)
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    batch = loaded(["the cat " * 5, "dog", ""], truncation=True, padding=True, return_tensors="pt")
    assert set(batch) == {"input_ids", "attention_mask"}
    assert batch["input_ids"].tolist() == [[2, 6, 2, 6, 2, 6], [9, 0, 0, 0, 0, 0], [0] * 6]
    assert batch["attention_mask"].sum(dim=1).tolist() == [6, 1, 0]
    assert loaded.get_vocab() == tokenizer.get_vocab() and loaded.model_max_length == 6
