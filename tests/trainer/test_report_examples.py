"""The samples on the page of a trainer: the most confident mistakes, never in what is published unless asked."""

import html
import re

import datasets
import numpy as np
import pytest
import torch
from PIL import Image
from processes import output_of, start
from tiny_models import NUM_LABELS, Stream, logits_of, rows, tensors, tiny_bert, trainer_of
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertForMultipleChoice, BertForTokenClassification, PreTrainedTokenizerFast

from hf_focal import InputError
from hf_focal.hub.hub_publishing import published_files
from hf_focal.trainer import accumulators

TITLES = "The most confident mistakes", "The least confident right answers"


@pytest.fixture(scope="module")
def tokenizer():
    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(["[PAD]", "[CLS]", "[SEP]"])}, "[PAD]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.add_tokens([f"secret{number}" for number in range(3, 30)])
    return PreTrainedTokenizerFast(tokenizer_object=words, cls_token="[CLS]", sep_token="[SEP]", pad_token="[PAD]")


def shown(folder, file="report.html"):
    """The inputs of each table of samples on a page."""
    page = (folder / file).read_text(encoding="utf-8")
    tables = re.findall(r'<table class="examples">(.*?)</table>', page, flags=re.DOTALL)
    return [[html.unescape(text) for text in re.findall(r'<th scope="row">(.*?)</th>', table)] for table in tables]


def expected(model, data, T=1.0):
    """The rows of the most confident mistakes, and of the least confident right answers."""
    confidence, predicted = (logits_of(model, data).double() / T).softmax(1).max(1)
    right = predicted == tensors(data)[1]
    order = confidence.argsort(stable=True)
    return [order[~right[order]].flip(0)[:20].tolist(), order[right[order]][:20].tolist()]


def text_of(row):
    return " ".join(f"secret{number}" for number in row["input_ids"].tolist())


def test_the_page_shows_the_texts_behind_the_token_ids(tmp_path, tokenizer):
    trainer, test = trainer_of(tmp_path, processing_class=tokenizer), rows(200, seed=2)
    temperature = trainer.fit_temperature()
    trainer.report(test)
    wanted = expected(trainer.model, test, temperature.value)
    assert shown(tmp_path) == [[text_of(test[row]) for row in part] for part in wanted]
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert all(title in page for title in TITLES)


def test_samples_are_published_only_if_asked_for(tmp_path, tokenizer):
    trainer, test = trainer_of(tmp_path, processing_class=tokenizer), rows(60, seed=2)

    def files_with_samples():
        files = [path for path in tmp_path.rglob("*") if path.suffix in (".html", ".md", ".json")]
        found = {path.relative_to(tmp_path).as_posix() for path in files if "secret" in path.read_text("utf-8")}
        return found - {"tokenizer.json"}

    trainer.finish(test, method="temperature")
    assert files_with_samples() == {"report.html"} and "report.html" not in published_files(tmp_path)
    trainer.finish(test, publish_examples=True)
    assert files_with_samples() == {"report.html", "report/examples.html"}
    assert "report/examples.html" in published_files(tmp_path)
    assert shown(tmp_path) == shown(tmp_path, "report/examples.html")
    trainer.finish(test, no_examples=True)  # replaces all that was there
    assert files_with_samples() == set() and shown(tmp_path) == []
    with pytest.raises(InputError, match="publish_examples must not be given with no_examples"):
        trainer.report(test, no_examples=True, publish_examples=True)


def test_rows_without_a_text_have_their_numbers(tmp_path):
    trainer, test = trainer_of(tmp_path), rows(50, seed=2)
    trainer.report(test)
    wanted = [[f"row {row}" for row in part] for part in expected(trainer.model, test)]
    assert shown(tmp_path) == wanted
    trainer.report(Stream(test))
    assert shown(tmp_path) == wanted


def test_rows_with_an_ignored_label_are_not_shown(tmp_path):
    trainer, test = trainer_of(tmp_path), rows(50, seed=2)
    wanted = expected(trainer.model, test)
    ignored = {wanted[0].pop(0), wanted[1].pop(0)}
    trainer.report([row | {"labels": -100} if number in ignored else row for number, row in enumerate(test)])
    found = shown(tmp_path)
    assert [part[:10] for part in found] == [[f"row {row}" for row in part[:10]] for part in wanted]
    assert not {f"row {row}" for row in ignored} & {*found[0], *found[1]}


def test_a_column_of_texts_is_shown_as_it_is(tmp_path, tokenizer):
    test = rows(50, seed=2)
    columns = [
        row | {"text": f"text {number}", "input_ids": row["input_ids"].tolist()} for number, row in enumerate(test)
    ]
    trainer = trainer_of(tmp_path, processing_class=tokenizer)
    trainer.report(datasets.Dataset.from_list(columns))
    assert shown(tmp_path) == [[f"text {row}" for row in part] for part in expected(trainer.model, test)]


def test_images_are_shown_without_the_transform_of_the_dataset(tmp_path):
    test = rows(30, seed=2)
    images = [Image.fromarray(np.full((4, 4, 3), number, np.uint8)) for number in range(30)]
    table = datasets.Dataset.from_dict({"image": images, "ids": [row["input_ids"].tolist() for row in test]})
    table = table.add_column("labels", [row["labels"] for row in test])

    def transform(batch):
        return {"input_ids": torch.tensor(batch["ids"]), "labels": batch["labels"]}

    trainer = trainer_of(tmp_path, remove_unused_columns=False)
    trainer.report(table.with_transform(transform))
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.count("data:image/jpeg;base64,") == sum(map(len, expected(trainer.model, test)))


def test_several_labels_are_entries(tmp_path, tokenizer):
    data = [
        row | {"labels": torch.nn.functional.one_hot(torch.tensor(row["labels"]), NUM_LABELS).double()}
        for row in rows(40)
    ]
    model = tiny_bert(problem_type="multi_label_classification", id2label=dict(enumerate("abcd")))
    trainer = trainer_of(tmp_path, model, train_dataset=data, eval_dataset=data, processing_class=tokenizer)
    trainer.report(data)
    logits, labels = logits_of(model, rows(40)), torch.stack([row["labels"] for row in data])
    wrong = (logits >= 0) != (labels == 1)
    entries = torch.where(wrong, logits.abs(), -1.0).flatten().sort(descending=True, stable=True)[1]
    wanted = entries[: min(20, int(wrong.sum()))] // NUM_LABELS
    assert shown(tmp_path)[0] == [text_of(data[row]) for row in wanted.tolist()]


@pytest.mark.parametrize("case", ["tokens", "many"])
def test_tokens_and_many_scores_are_not_kept(tmp_path, monkeypatch, case):
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    if case == "tokens":
        model = BertForTokenClassification(BertConfig(vocab_size=30, num_labels=3, **sizes)).double()
        data = [{"input_ids": row["input_ids"], "labels": row["input_ids"] % 3} for row in rows(30)]
    else:
        monkeypatch.setattr(accumulators, "MOST_SCORES", 100)
        model, data = tiny_bert(), rows(30)
    trainer = trainer_of(tmp_path, model, train_dataset=data, eval_dataset=data)
    trainer.report(data)
    assert shown(tmp_path) == []


def test_options_of_a_question_are_numbered(tmp_path, tokenizer):
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    model = BertForMultipleChoice(BertConfig(vocab_size=30, **sizes)).double()
    flat = rows(60, seed=3)
    data = [
        {"input_ids": torch.stack([row["input_ids"] for row in flat[start : start + 3]]), "labels": start % 3}
        for start in range(0, 60, 3)
    ]
    trainer = trainer_of(tmp_path, model, train_dataset=data, eval_dataset=data, processing_class=tokenizer)
    trainer.report(data)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    texts = {" / ".join(map(text_of, flat[start : start + 3])) for start in range(0, 60, 3)}
    assert {text for part in shown(tmp_path) for text in part} == texts and "LABEL_" not in page


@pytest.mark.slow
def test_two_processes_show_the_samples_of_one(tmp_path):
    for number in (1, 2):
        output_of(start("launched_report.py", number, tmp_path / str(number)))
    assert shown(tmp_path / "2") == shown(tmp_path / "1")
    assert sum(map(len, shown(tmp_path / "1"))) > 30
