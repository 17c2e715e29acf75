"""Multiple choice by a language model through the commands, against its plain forward pass."""

import ast
import json

import pytest
import torch
from datasets import ClassLabel, Dataset
from papers.data.tokenizer_training import train_word_tokenizer
from trained_models import build
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, GPT2LMHeadModel

from hf_focal import (
    CalibrationMetrics,
    FocalTrainingArguments,
    InputError,
    calibrate_model,
    calibrated_generation,
    evaluate_model,
    fold_correction,
)
from hf_focal.choices import score_choices
from hf_focal.choices.option_scoring import OptionScoring, option_temperature
from hf_focal.cli.main import main
from hf_focal.command_lines import RunCommands
from hf_focal.reports.wording.next_steps import next_steps
from hf_focal.reports.wording.text_summary import summary

COLUMNS = {"question_column": "q", "choices_column": "options"}
WORDS = ["fish", "bird", "fox", "whale", "goose"]


def log_p(model, tokenizer, row):
    text = f"{row['q']}\n" + "".join(f"{letter}. {option}\n" for letter, option in zip("ABC", row["options"]))  # noqa: B905
    letters = tokenizer.convert_tokens_to_ids(["a", "b", "c"])
    ids = torch.tensor([tokenizer(text + "Answer:")["input_ids"]])
    with torch.no_grad():
        return model(ids).logits[0, -1, letters].double().log_softmax(-1)


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    """A model that is overconfident by T = 3, with two files of questions whose answers follow its probabilities."""
    folder = tmp_path_factory.mktemp("choices")
    torch.manual_seed(0)
    tokenizer = train_word_tokenizer([*WORDS, "what", "swims", "a", "b", "c", "answer"])
    sizes = {"n_positions": 32, "n_embd": 16, "n_layer": 1, "n_head": 2, "initializer_range": 0.4}
    special = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": 0}
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=len(tokenizer), tie_word_embeddings=False, **sizes, **special)
    ).eval()
    generator = torch.Generator().manual_seed(0)
    for name in ("validation", "test"):
        rows = []
        for number in range(300):
            options = [WORDS[i] for i in torch.randperm(5, generator=generator)[:3]]
            rows.append({"q": f"what swims {WORDS[number % 5]}", "options": options})
            drawn = torch.multinomial((log_p(model, tokenizer, rows[-1])).exp(), 1, generator=generator)
            rows[-1]["answer"] = "ABC"[int(drawn)]
        Dataset.from_list(rows).to_parquet(folder / f"{name}.parquet")
    with torch.no_grad():
        model.lm_head.weight *= 3
    for part in (model, tokenizer):
        part.save_pretrained(folder / "model")
    return folder


def test_evaluation_is_that_of_the_plain_forward_pass(case):
    result = evaluate_model(case / "model", str(case / "test.parquet"), **COLUMNS)
    model, tokenizer = (auto.from_pretrained(case / "model") for auto in (AutoModelForCausalLM, AutoTokenizer))
    rows = Dataset.from_parquet(str(case / "test.parquet"))
    metrics = CalibrationMetrics(classwise=False)
    labels = torch.tensor(["ABC".index(answer) for answer in rows["answer"]])
    metrics.update(torch.stack([log_p(model, tokenizer, row) for row in rows]), labels)
    assert result.pre == pytest.approx(metrics.compute(), abs=1e-5)
    assert "On the 300 questions of dataset 'test.parquet'" in summary(result)
    assert result.data.chance_error == pytest.approx(2 / 3)


def code_of(card: str, folder) -> str:
    """The example in a card, with the folder in place of the repository whose name is not known yet."""
    code = card.partition("## Use")[2].partition("```python\n")[2].partition("```")[0]
    assert '"your-username/out"' in code
    return code.replace("your-username/out", str(folder))


def test_the_temperature_is_for_the_options_and_the_weights_do_not_change(case, tmp_path, capsys):
    data = {"test_dataset": str(case / "test.parquet"), "output": tmp_path / "out"}
    result = calibrate_model(case / "model", str(case / "validation.parquet"), **data, **COLUMNS)
    assert 2 < result.temperature.value < 4.5 and result.post["nll"] < result.pre["nll"]
    again = evaluate_model(tmp_path / "out", str(case / "test.parquet"), **COLUMNS)
    assert again.pre["nll"] == pytest.approx(result.post["nll"], abs=1e-5)
    assert again.pre["ece"] == pytest.approx(result.post["ece"], abs=1e-4)
    assert any("for options, which is applied" in note for note in again.notes)
    plain, corrected = (AutoModelForCausalLM.from_pretrained(folder) for folder in (case / "model", tmp_path / "out"))
    torch.testing.assert_close(corrected.state_dict(), plain.state_dict(), rtol=0, atol=0)
    assert calibrated_generation(corrected) == {} and not hasattr(corrected.config, "calibration")
    assert corrected.config.option_calibration["temperature"] == pytest.approx(result.temperature.value)
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "on the 300 questions of test.parquet" in card and "reference tokens" not in card
    assert "**not** in the weights" in card and "model.generate" not in card and "relied on" not in card
    assert "the text that the model generates, do not change" in summary(result)
    (step, *_) = map(str, next_steps(result, RunCommands("calibrate", {"output": "out"})))
    assert "score_choices" in step and "like any other model" not in step
    exec(code_of(card, tmp_path / "out"), {})
    printed = torch.tensor(ast.literal_eval(capsys.readouterr().out.rpartition("tensor(")[2].partition(")")[0]))
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    row = {"q": "Which of these is a fruit?", "options": ["apple", "table", "river"]}
    expected = (log_p(plain, tokenizer, row) / result.temperature.value).softmax(-1)
    torch.testing.assert_close(printed[0].double(), expected, rtol=0, atol=1e-4)


@pytest.mark.slow
def test_options_that_are_scored_otherwise_do_not_get_the_temperature(case, tmp_path):
    data = str(case / "test.parquet")
    calibrate_model(case / "model", str(case / "validation.parquet"), output=tmp_path / "out", **COLUMNS)
    raw, again = (
        evaluate_model(folder, data, score="text", **COLUMNS) for folder in (case / "model", tmp_path / "out")
    )
    assert again.pre["nll"] == pytest.approx(raw.pre["nll"]) and not again.data.was_calibrated
    assert any("which is not applied: it was fitted with score 'letters'" in note for note in again.notes)
    lettered = evaluate_model(tmp_path / "out", data, letters="A,B,C", **COLUMNS)  # of which there are as many
    assert lettered.data.was_calibrated
    fitted = calibrate_model(case / "model", data, score="text", output=tmp_path / "text", **COLUMNS)
    assert fitted.temperature.is_fitted
    model, tokenizer = (auto.from_pretrained(tmp_path / "text") for auto in (AutoModelForCausalLM, AutoTokenizer))
    question = [["what swims fish"], [["fox", "goose"]]]
    text = score_choices(model, tokenizer, *question, score="text")
    with pytest.warns(UserWarning, match="T = .* for options, which is not applied"):
        score_choices(model, tokenizer, *question)
    plain = score_choices(AutoModelForCausalLM.from_pretrained(case / "model"), tokenizer, *question, score="text")
    torch.testing.assert_close(text, plain / fitted.temperature.value)


def test_a_second_fit_comes_on_top_and_a_fold_removes_it(case, tmp_path):
    for source, target in ((case / "model", "once"), (tmp_path / "once", "twice")):
        result = calibrate_model(source, str(case / "validation.parquet"), output=tmp_path / target, **COLUMNS)
    assert result.temperature.value == pytest.approx(1, abs=0.02)
    once, twice = (AutoModelForCausalLM.from_pretrained(tmp_path / name) for name in ("once", "twice"))
    values = [model.config.option_calibration["temperature"] for model in (once, twice)]
    assert values[1] == pytest.approx(values[0] * result.temperature.value)
    with pytest.warns(UserWarning, match=r"config\.option_calibration no longer hold"):
        fold_correction(once, 2.0)
    assert not hasattr(once.config, "option_calibration")


@pytest.mark.parametrize("record", [5, {}, {"temperature": "x"}, {"temperature": -1.0}, {"temperature": float("nan")}])
def test_a_record_that_cannot_be_is_ignored(record):
    config = GPT2Config()
    config.option_calibration = record
    temperature, problem = option_temperature(config, OptionScoring(letters="AB"))
    assert temperature is None and problem.startswith("config.option_calibration is ignored")


def test_the_command_continues_and_says_the_same(case, tmp_path, capsys):
    scores = tmp_path / "scores"
    options = ["--question_column", "q", "--choices_column", "options", "--batch_size", "64"]
    command = ["evaluate", str(case / "model"), "--dataset", str(case / "test.parquet"), *options]
    assert main([*command, "--scores_folder", str(scores), "--output", str(tmp_path / "out")]) == 0
    first = capsys.readouterr().out
    (file,) = scores.iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    assert main([*command, "--scores_folder", str(scores)]) == 0
    again, _, _ = capsys.readouterr().out.partition("\nNext: ")
    assert first.startswith(again) and file.read_bytes() == whole
    options = json.loads((tmp_path / "out" / "report" / "metrics.json").read_text())["details"]["options"]
    assert options == COLUMNS  # no path


@pytest.mark.slow
def test_texts_of_options_and_templates(case):
    data = str(case / "test.parquet")
    lettered = evaluate_model(case / "model", data, **COLUMNS)
    text = evaluate_model(case / "model", data, score="text", **COLUMNS)
    assert text.pre["nll"] != lettered.pre["nll"]
    template = "{question}\n{options}\nAnswer:"
    assert evaluate_model(case / "model", data, template=template, **COLUMNS).pre == lettered.pre
    other = evaluate_model(case / "model", data, template="{options} {question} answer", **COLUMNS)
    assert other.pre["nll"] != lettered.pre["nll"]
    assert calibrate_model(case / "model", data, score="text", **COLUMNS).temperature.is_fitted


def test_answers_may_be_class_labels(case, tmp_path):
    rows = Dataset.from_parquet(str(case / "test.parquet"))
    rows.cast_column("answer", ClassLabel(names=["A", "B", "C"])).to_parquet(tmp_path / "classes.parquet")
    found = evaluate_model(case / "model", str(tmp_path / "classes.parquet"), **COLUMNS)
    assert found.pre == evaluate_model(case / "model", str(case / "test.parquet"), **COLUMNS).pre


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"choices_column": "q"}, "choices_column must be a different column from question_column, got 'q' for both"),
        ({"choices_column": "answer"}, "choices_column must hold lists of strings"),
        ({"answer_column": "right"}, "answer_column must be one of"),
        ({"answer_column": "q"}, "answers must be an index from 0 to 2, one of the letters A, B, C or"),
        ({"score": "words"}, "score must be letters or text, got 'words'"),
        ({"letters": "D,E,F"}, "one of the letters D, E, F or an option's text, got 'A' for question 0"),
        ({"template": "{question} {answer}"}, "template must have no fields but"),
        ({"max_length": 8}, "max_length must not be given: no question is truncated, got 8"),
        ({"method": "vector"}, "method must be 'temperature' for a language model, got 'vector'"),
    ],
)
def test_one_line_for_what_is_wrong(case, options, message):
    with pytest.raises(InputError, match=message):
        calibrate_model(case / "model", str(case / "test.parquet"), **COLUMNS | options)


def test_both_files_are_checked_before_anything_is_scored(case, tmp_path, monkeypatch):
    rows = Dataset.from_parquet(str(case / "test.parquet")).to_list()
    rows[7]["q"] = "what " * 40
    Dataset.from_list(rows).to_parquet(tmp_path / "long.parquet")
    monkeypatch.setattr("hf_focal.choices.option_scores._score_batch", None)
    with pytest.raises(InputError, match=r"model's 32 positions, got \d+ tokens for question 7, the longest of 1 "):
        data = {"test_dataset": str(tmp_path / "long.parquet")}
        calibrate_model(case / "model", str(case / "validation.parquet"), **data, **COLUMNS)


def test_only_errors_of_the_scores_folder_are_those_of_the_user(case, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="file"):
        evaluate_model(case / "model", str(case / "test.parquet"), scores_folder=tmp_path / "file", **COLUMNS)
    monkeypatch.setattr("hf_focal.choices.option_scores._score_batch", lambda *_: int("a bug"))
    with pytest.raises(ValueError, match="a bug") as caught:
        evaluate_model(case / "model", str(case / "test.parquet"), **COLUMNS)
    assert not isinstance(caught.value, InputError)


def test_several_processes_are_refused(case, monkeypatch):
    monkeypatch.setattr(FocalTrainingArguments, "world_size", 2)
    with pytest.raises(InputError, match="multiple choice must run in one process, got 2"):
        evaluate_model(case / "model", str(case / "test.parquet"), **COLUMNS)


def test_other_models_are_refused(case, tmp_path):
    trained = build("texts", tmp_path)
    with pytest.raises(InputError, match=r"question_column must not be given for .*, of the task text-classification"):
        evaluate_model(trained.folder, str(case / "test.parquet"), **COLUMNS)
