"""Language models as classifiers by a prompt and label words, against their plain forward passes."""

import copy
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset
from documented import ROOT, examples_of, run_example
from label_word_models import FAMILIES, LABELS, PROMPT, label_tokenizer, language_model
from processes import output_of, start
from tokenizers import AddedToken, Tokenizer, processors
from transformers import AutoModelForSequenceClassification, AutoTokenizer, LlamaForCausalLM, PreTrainedTokenizerFast

from hf_focal import Correction, InputError, calibrate_model, evaluate_model
from hf_focal.choices import label_scores
from hf_focal.choices.label_words import LabelWords
from hf_focal.choices.label_words_model import LabelWordsModel
from hf_focal.choices.openai_requests import openai_requests
from hf_focal.choices.prompts import Prompt
from hf_focal.choices.sequence_classifier import sequence_classifier
from hf_focal.cli.main import main
from hf_focal.scores import read_scores

TEXTS = ["a good film", "", "bad {text} {{ film 你好 <eos> \u00e9", "film " * 40]


@pytest.fixture(scope="module")
def tokenizer():
    return label_tokenizer()


@torch.no_grad()
def plain_logits(model, tokenizer, text: str) -> torch.Tensor:
    """The logits after a text, without padding."""
    return model(torch.tensor([tokenizer(text)["input_ids"]])).logits[0, -1]


def ids_of(tokenizer, labels) -> list[int]:
    return [tokenizer(f" {label}")["input_ids"][0] for label in labels]


@pytest.mark.parametrize("name", FAMILIES)
def test_scores_are_the_language_models_logits_with_any_padding(name, tokenizer):
    model, ids = language_model(name, tokenizer), ids_of(tokenizer, LABELS)
    rows = [{"text": text} for text in TEXTS]
    found = label_scores(model, tokenizer, rows, LABELS, PROMPT)
    expected = torch.stack([plain_logits(model, tokenizer, PROMPT.replace("{text}", text))[ids] for text in TEXTS])
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    scorer = LabelWordsModel(model, LabelWords(tokenizer, LABELS, PROMPT))
    encoded, _ = scorer.words.encode([[text] for text in TEXTS])
    for side in ("left", "right"):
        padded = tokenizer.pad({"input_ids": encoded}, padding_side=side, return_tensors="pt")
        with torch.no_grad():
            logits = scorer(padded["input_ids"], padded["attention_mask"])
        torch.testing.assert_close(logits, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("labels", [("very good", "very bad", "no"), ("good", "good film")])
@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_labels_with_the_same_first_token_get_the_sum_of_their_log_probabilities(name, labels, tokenizer):
    model = language_model(name, tokenizer)
    found = label_scores(model, tokenizer, [{"text": text} for text in TEXTS], labels, PROMPT)
    for row, text in enumerate(TEXTS):
        start = PROMPT.replace("{text}", text)
        before = len(tokenizer(start)["input_ids"])
        for number, label in enumerate(labels):
            ids = torch.tensor(tokenizer(f"{start} {label}")["input_ids"])
            with torch.no_grad():
                log_p = model(ids[None]).logits[0].log_softmax(-1)
            expected = sum(float(log_p[place - 1, ids[place]]) for place in range(before, len(ids)))
            assert float(found[row, number]) == pytest.approx(expected, abs=1e-4)


def test_prompts_are_filled_as_by_format():
    prompt = Prompt("{{x}} {query} and {a b}: {query}")
    assert prompt.fields == ("query", "a b") and prompt.fill(["{a}", "2"]) == "{x} {a} and 2: {a}"
    for wrong in ("no name", "{}", "{text!r}", "{text:>3}", "{text"):
        with pytest.raises(InputError, match="prompt must have"):
            Prompt(wrong)


def test_the_tokenizer_says_where_a_label_begins(tokenizer):
    assert LabelWords(tokenizer, LABELS, PROMPT).gap == " "
    for prompt in ("{text}\n", 'It is "', "{text} ("):
        words = LabelWords(tokenizer, LABELS, f"{{text}} {prompt}")
        assert words.gap == "" and all(words.label_ids)
    assert "' positive' (Ġpositive)" in LabelWords(tokenizer, LABELS, PROMPT).note()
    with pytest.raises(InputError, match="prompt must end where the tokenizer begins a token"):
        LabelWords(tokenizer, LABELS, f"{PROMPT} ")
    for wrong in (["yes"], ["yes", "yes"], ["yes", " "]):
        with pytest.raises(InputError, match="labels must be two or more different words"):
            LabelWords(tokenizer, wrong, PROMPT)


def test_truncation_shortens_the_texts_and_never_the_prompt(tokenizer):
    prompt = "Query: {query}\nReview: {text}\nThe sentiment is"
    whole = LabelWords(tokenizer, LABELS, prompt)
    alone = len(whole.encode([["", ""]])[0][0])
    words = LabelWords(tokenizer, LABELS, prompt, max_length=alone + 10)
    encoded, count = words.encode([["a", "film " * 50], ["yes", "no"], ["film " * 50, "good " * 50]])
    assert count == 2 and max(map(len, encoded)) <= alone + 10 and len(encoded[0]) > alone + 5
    for ids in encoded:
        assert re.fullmatch(r"Query: .*\nReview: .*\nThe sentiment is", tokenizer.decode(ids), re.DOTALL)
    assert encoded[1] == whole.encode([["yes", "no"]])[0][0]
    LabelWords(tokenizer, LABELS, prompt, max_length=alone)
    with pytest.raises(InputError, match=f"prompt must fit into {alone - 1} tokens .*, got one of {alone}"):
        LabelWords(tokenizer, LABELS, prompt, max_length=alone - 1)


def test_special_tokens_in_texts_are_counted(tokenizer):
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.add_tokens([AddedToken("<|end|>", special=True), AddedToken("good film")])
    words = LabelWords(tokenizer, LABELS, "Review: {text} by {author} It is")
    assert words.special_tokens_note([["a {good} film", "<|ann|>"], ["", "|>"]], "reviews") == ""
    note = words.special_tokens_note([["fine<|end|> It is good", "ann"], ["good", "<|end|>"], ["bad", ""]], "reviews")
    assert "2 of the 3 prompts of reviews" in note and "'<|end|>'" in note


def test_a_chat_goes_through_the_template(tokenizer):
    words = LabelWords(tokenizer, LABELS, PROMPT, chat=True, system="Be brief.")
    text = "<system>Be brief.\n<user>Review: a\nThe sentiment is\n<answer>"
    assert words.fill(["a"]) == text == words.plain_prompt().format(text="a")
    model = language_model("llama", tokenizer)
    found = label_scores(model, tokenizer, [{"text": "a"}], LABELS, PROMPT, chat=True, system="Be brief.")
    ids = [ids[0] for ids in words.label_ids]
    torch.testing.assert_close(found[0], plain_logits(model, tokenizer, text)[ids], rtol=0, atol=1e-5)
    without = PreTrainedTokenizerFast(tokenizer_object=tokenizer._tokenizer, pad_token="<pad>", eos_token="<eos>")
    with pytest.raises(InputError, match="chat must not be given for a tokenizer without a chat template"):
        LabelWords(without, LABELS, PROMPT, chat=True)


@pytest.mark.parametrize("chat", [False, True])
def test_tokens_that_a_tokenizer_adds_at_the_end_are_left_out(tokenizer, chat):
    """Some tokenizers end each text with their EOS, or with other tokens."""
    model, options = language_model("llama", tokenizer), {"chat": chat}
    rows = [{"text": text} for text in TEXTS]
    expected = label_scores(model, tokenizer, rows, LABELS, PROMPT, **options)
    for form in ("$A <eos>", "<eos> $A <eos>", "$A <pad> <eos>"):
        other = Tokenizer.from_str(tokenizer._tokenizer.to_str())
        other.post_processor = processors.TemplateProcessing(form, special_tokens=[("<eos>", 1), ("<pad>", 0)])
        ending = PreTrainedTokenizerFast(
            tokenizer_object=other, pad_token="<pad>", eos_token="<eos>", chat_template=tokenizer.chat_template
        )
        assert ending("a")["input_ids"][-1] == 1
        words = LabelWords(ending, LABELS, PROMPT, **options)
        assert words.ends == ([0, 1] if "<pad>" in form else [1])
        assert [ids[0] for ids in words.label_ids] == LabelWords(tokenizer, LABELS, PROMPT, **options).first_tokens
        found = label_scores(model, ending, rows, LABELS, PROMPT, **options)
        if form.startswith("$A"):
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
        with pytest.raises(InputError, match="its tokenizer ends each text with a token"):
            sequence_classifier(LabelWordsModel(model, words), Correction(), [["a"]])
        with pytest.raises(ValueError, match="its tokenizer ends each text with a token"):
            openai_requests(words, Correction(), "model")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("labels", [LABELS, ("very good", "very bad")])
def test_half_precision_changes_the_scores_by_its_rounding(tokenizer, dtype, labels, tmp_path):
    model = language_model("llama", tokenizer)
    rows = [{"text": text} for text in TEXTS]
    expected = label_scores(model, tokenizer, rows, labels, PROMPT)
    half = language_model("llama", tokenizer).to(dtype)
    found = label_scores(half, tokenizer, rows, labels, PROMPT)
    assert found.dtype == torch.float32
    scale = float(expected.abs().max())
    torch.testing.assert_close(found, expected, rtol=0, atol=20 * torch.finfo(dtype).eps * scale)
    if labels != LABELS:
        return
    correction = Correction.bias(2.0, [0.5, -0.5, 0.0])
    scorer = LabelWordsModel(half, LabelWords(tokenizer, labels, PROMPT))
    classifier, rest = sequence_classifier(scorer, correction, [[text] for text in TEXTS])
    classifier.save_pretrained(tmp_path)
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert loaded.dtype == dtype
    texts = [loaded.config.prompt.format(text=text) for text in TEXTS]
    with torch.no_grad():
        logits = loaded(**tokenizer(texts, padding=True, return_tensors="pt")).logits.float()
    corrected = correction.apply(found).softmax(1)
    torch.testing.assert_close(rest.apply(logits).softmax(1), corrected, rtol=0, atol=20 * torch.finfo(dtype).eps)


@pytest.mark.slow
@pytest.mark.parametrize("labels", [",".join(LABELS), "very good,very bad,no"])
def test_two_processes_are_one(case, tmp_path, labels):
    """Each process scores its own share of the rows, in longer and shorter batches."""
    script = Path(__file__).parent / "launched_label_words.py"
    names = ("one", "two")
    for number, name in enumerate(names, 1):
        output_of(start(script, number, case, tmp_path / name, labels))
    scores = [read_scores(tmp_path / name / "scores.parquet") for name in names]
    np.testing.assert_allclose(scores[1].logits, scores[0].logits, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(scores[1].labels, scores[0].labels)
    corrections = [Correction.load(tmp_path / name / "out" / "correction.json") for name in names]
    for one, two in zip(*(correction.dense() for correction in corrections), strict=True):
        np.testing.assert_allclose(two, one, rtol=0, atol=1e-4)
    records = [json.loads((tmp_path / name / "result.json").read_text(encoding="utf-8")) for name in names]
    assert [record["processes"] for record in records] == [1, 2]
    assert records[1]["nll"] == pytest.approx(records[0]["nll"], abs=1e-5)
    assert (tmp_path / "two" / "out" / "openai.json").exists() == (labels == ",".join(LABELS))


@pytest.fixture(scope="module")
def case(tokenizer, tmp_path_factory):
    """A language model with files of rows whose labels follow its scores with T = 3 and offsets."""
    folder = tmp_path_factory.mktemp("label_words")
    model = language_model("llama", tokenizer)
    for part in (model, tokenizer):
        part.save_pretrained(folder / "model")
    random = np.random.default_rng(0)
    for name in ("held_out", "test"):
        words = ["film", "good", "bad", "is", "yes", "no"]
        texts = [" ".join(random.choice(words, random.integers(0, 12))) for _ in range(200)]
        scores = label_scores(model, tokenizer, [{"text": text} for text in texts], LABELS, PROMPT).double()
        shift = torch.tensor([0.0, 1.0, -1.0], dtype=torch.float64) - scores.mean(0) / 3
        torch.manual_seed(1)
        drawn = torch.multinomial((scores / 3 + shift).softmax(1), 1)[:, 0]
        rows = {"text": texts, "label": [LABELS[label].upper() for label in drawn], "group": ["a", "b"] * 100}
        Dataset.from_dict(rows).to_csv(folder / f"{name}.csv")
    return folder


OPTIONS = {"labels": ",".join(LABELS), "prompt": PROMPT}


def test_calibration_keeps_the_correction_and_the_prompt_but_not_the_model(case, tokenizer, tmp_path):
    result = calibrate_model(
        case / "model",
        str(case / "held_out.csv"),
        test_dataset=str(case / "test.csv"),
        output=tmp_path / "out",
        save_scores=tmp_path / "scores.parquet",
        group="group",
        **OPTIONS,
    )
    assert result.fit.cross_fit.method in ("bias", "vector", "matrix")
    assert result.post["nll"] < result.pre["nll"] - 0.1 and len(result.subsets.groups.name) == 2
    assert not [*(tmp_path / "out").glob("*.safetensors")]
    saved = json.loads((tmp_path / "out" / "correction.json").read_text(encoding="utf-8"))
    assert saved["classes"] == [*LABELS] and saved["label_words"]["prompt"] == PROMPT
    assert saved["label_words"]["token_ids"] == [[label] for label in ids_of(tokenizer, LABELS)]
    requests = json.loads((tmp_path / "out" / "openai.json").read_text(encoding="utf-8"))
    assert requests["token_ids"] == ids_of(tokenizer, LABELS) and requests["prompt"] == PROMPT
    A, b = Correction.load(tmp_path / "out" / "correction.json").dense()
    np.testing.assert_allclose(requests["A"], A if A.ndim else A * np.eye(3))
    np.testing.assert_allclose(requests["b"], b)
    assert [note for note in result.notes if note.startswith("openai.json has requests")]
    rows = Dataset.from_csv(str(case / "held_out.csv"))
    model = LlamaForCausalLM.from_pretrained(case / "model")
    texts = [{"text": text or ""} for text in rows["text"]]
    expected = label_scores(model, tokenizer, texts, LABELS, PROMPT)
    scores = read_scores(tmp_path / "scores.parquet")
    np.testing.assert_allclose(scores.logits, expected.numpy(), rtol=0, atol=1e-5)  # in the order of the data
    assert [LABELS[label].upper() for label in scores.labels] == rows["label"][:]
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    code = card.partition("```python\n")[2].partition("```")[0]
    code = code.replace('from_pretrained("model")', f"from_pretrained({str(case / 'model')!r})")
    namespace: dict = {}
    exec(code.replace('"correction.json"', repr(str(tmp_path / "out" / "correction.json"))), namespace)
    assert namespace["scores"].shape == (1, 3)


def test_an_evaluation_goes_on_from_its_shards(case, tmp_path):
    whole = evaluate_model(case / "model", str(case / "test.csv"), **OPTIONS)
    for _ in range(2):
        result = evaluate_model(case / "model", str(case / "test.csv"), save_scores=tmp_path / "scores", **OPTIONS)
        assert result.pre == pytest.approx(whole.pre, rel=1e-6)
    with pytest.raises(InputError, match="have scores of the same model and data"):
        other = OPTIONS | {"prompt": f"The {PROMPT}"}
        evaluate_model(case / "model", str(case / "test.csv"), save_scores=tmp_path / "scores", **other)


def test_thresholds_and_a_new_prior_hold_as_for_any_classifier(case, tmp_path):
    data, test = str(case / "held_out.csv"), str(case / "test.csv")
    result = calibrate_model(
        case / "model", data, test_dataset=test, output=tmp_path / "out", precision=0.5, method="bias", **OPTIONS
    )
    saved = json.loads((tmp_path / "out" / "correction.json").read_text(encoding="utf-8"))
    assert "thresholds" in saved and result.thresholds is not None
    shifted = calibrate_model(case / "model", data, new_prior=(0.2, 0.3, 0.5), **OPTIONS)
    assert shifted.prior.new_prior == [0.2, 0.3, 0.5]


@pytest.mark.slow
def test_the_command_saves_a_classifier(case, tmp_path, capsys):
    (tmp_path / "prompt.txt").write_text(f"{PROMPT}\n", encoding="utf-8")
    common = ["--labels", OPTIONS["labels"], "--test_dataset", str(case / "test.csv"), "--method", "bias"]
    common += ["--dataset", str(case / "held_out.csv"), "--save_as", "classifier"]
    printed = []
    for number, prompt in enumerate([PROMPT.replace("\n", "\\n"), f"@{tmp_path / 'prompt.txt'}"]):
        out = tmp_path / f"out{number}"
        assert main(["calibrate", str(case / "model"), "--prompt", prompt, *common, "--output", str(out)]) == 0
        printed.append(capsys.readouterr().out)
        assert "the head of LlamaForSequenceClassification has no bias" in printed[-1]
        saved = json.loads((out / "correction.json").read_text(encoding="utf-8"))
        assert saved["label_words"]["prompt"] == PROMPT
    card = (out / "README.md").read_text(encoding="utf-8")
    code = card.partition("## Use")[2].partition("```python\n")[2].partition("```")[0]
    assert "your-username/out1" in code and "whose offsets are **not**" in card
    exec(code.replace("your-username/out1", str(out)), {})
    shown = [float(value) for value in re.findall(r"0\.\d+", capsys.readouterr().out)]
    model, own = (LlamaForCausalLM.from_pretrained(case / "model"), AutoTokenizer.from_pretrained(out))
    scores = label_scores(model, own, [{"text": "A text to classify."}], LABELS, PROMPT)
    expected = Correction.load(out / "correction.json").apply(scores).softmax(1)[0]
    assert shown == pytest.approx(expected.tolist(), abs=1e-4)


def test_wrong_arguments_get_one_sentence(case):
    data = str(case / "test.csv")
    for options, message in (
        ({"labels": "a,b"}, "prompt must be given with labels"),
        ({"prompt": PROMPT}, "labels must be given with prompt"),
        ({"save_as": "classifier"}, "save_as must come with labels and prompt"),
        (OPTIONS | {"system": "Be brief."}, "system must come with chat"),
        (OPTIONS | {"save_as": "onnx"}, "save_as must be 'classifier'"),
        (
            OPTIONS | {"prompt": "{query} {text} {document} is"},
            "prompt must have names of columns of .*'query', 'document'",
        ),
        (OPTIONS | {"labels": "yes,no"}, "label_column must hold labels that the model has, 'yes', 'no', got"),
        (OPTIONS | {"max_length": 4}, "prompt must fit into 4 tokens"),
        (OPTIONS | {"question_column": "text"}, "question_column must not be given with labels"),
    ):
        with pytest.raises(InputError, match=message):
            evaluate_model(case / "model", data, **options)
    renamed = OPTIONS | {
        "labels": "yes,no,very good",
        "label_map": dict(zip(["POSITIVE", "NEGATIVE", "NEUTRAL"], ["yes", "no", "very good"], strict=True)),
    }
    assert evaluate_model(case / "model", data, **renamed).pre["num_samples"] == 200


def test_the_guide_runs(case, tmp_path, monkeypatch, capsys):
    page = ROOT / "docs" / "guides" / "language_model_classifier.md"
    pattern = r"```\nhf-focal (calibrate HuggingFaceTB.*?)```"
    (command,) = re.findall(pattern, page.read_text(encoding="utf-8"), flags=re.DOTALL)
    monkeypatch.chdir(tmp_path)
    name = "HuggingFaceTB/SmolLM2-135M-Instruct"
    (tmp_path / "HuggingFaceTB").mkdir()
    (tmp_path / name).symlink_to(case / "model")
    for file in ("held_out", "test"):
        rows = Dataset.from_csv(str(case / f"{file}.csv")).filter(lambda row: row["label"] != "NEUTRAL")
        rows.to_csv(tmp_path / f"{file}.csv")
    assert main(shlex.split(command.replace("\\\n", " "))) == 0
    capsys.readouterr()
    (example,) = examples_of(page)
    run_example(example, page, {})
    assert re.search(r"tensor\(\[\[0\.\d+, 0\.\d+\]\]", capsys.readouterr().out)
