"""Every kind of model against its own logits, as plain Transformers gives them row by row."""

import errno
import functools
import io
import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import trained_models
from datasets import Dataset, load_dataset
from own_source import Own
from papers.data.tokenizer_training import train_word_tokenizer
from papers.models import GPCNNConfig, GPCNNForSequenceClassification
from slow_variants import some_slow
from transformers import (
    AutoFeatureExtractor,
    AutoImageProcessor,
    AutoModelForAudioClassification,
    AutoModelForCausalLM,
    AutoModelForImageClassification,
    AutoModelForMultipleChoice,
    AutoModelForNextSentencePrediction,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    Gemma2Config,
    Gemma2ForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    XLMConfig,
    XLMForSequenceClassification,
)

from hf_focal import (
    CalibrationMetrics,
    Correction,
    FocalTrainer,
    GoalNotReachedError,
    InputError,
    NotPublishedError,
    Temperature,
    calibrate_model,
    calibrate_scores,
    evaluate_model,
    evaluate_scores,
    fit_temperature,
    fit_thresholds,
)
from hf_focal.calibration.correction_methods import METHODS
from hf_focal.calibration.folding import check_foldable
from hf_focal.reports import RunResult, comparison_page
from hf_focal.reports.wording.text_summary import summary
from hf_focal.sources.model_names import loss_of

CLASSIFIERS = ("texts", "images", "sounds", "sentence pairs", "choices", "words")
AUTO = {
    "texts": AutoModelForSequenceClassification,
    "images": AutoModelForImageClassification,
    "sounds": AutoModelForAudioClassification,
    "sentence pairs": AutoModelForNextSentencePrediction,
    "choices": AutoModelForMultipleChoice,
    "words": AutoModelForTokenClassification,
    "causal": AutoModelForCausalLM,
    "seq2seq": AutoModelForSeq2SeqLM,
}


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    return {kind: trained_models.build(kind, tmp_path_factory.mktemp(kind)) for kind in trained_models.KINDS}


@torch.no_grad()
def logits_of(kind, folder, file) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits (N, K) and labels (N,) of a file's rows, by nothing but Transformers."""
    rows = load_dataset("parquet", data_files=str(file), split="train")
    model = AUTO[kind].from_pretrained(folder).eval()
    processors = {"images": AutoImageProcessor, "sounds": AutoFeatureExtractor}
    processor = processors.get(kind, AutoTokenizer).from_pretrained(folder)
    logits, labels = [], []
    for row in rows:
        if kind == "texts":
            logits.append(model(**processor(row["premise"], row["hypothesis"], return_tensors="pt")).logits)
            names = [rows.features["label"].names[row["label"]]]
        elif kind == "images":
            logits.append(model(**processor(row["image"], return_tensors="pt")).logits)
            names = [rows.features["label"].names[row["label"]]]
        elif kind == "sounds":
            inputs = processor(np.array(row["audio"], np.float32), sampling_rate=8000, return_tensors="pt")
            logits.append(model(**inputs).logits)
            names = [rows.features["label"].names[row["label"]]]
        elif kind == "sentence pairs":
            logits.append(model(**processor(row["text"], row["next"], return_tensors="pt")).logits)
            names = [model.config.id2label[row["label"]]]
        elif kind == "choices":
            tokens = processor([row["q"]] * 4, row["choices"], padding=True, return_tensors="pt")
            logits.append(model(**{name: values[None] for name, values in tokens.items()}).logits)
            labels.append(torch.tensor(["ABCD".index(row["answer"])]))
        elif kind == "words":
            logits.append(model(**processor(" ".join(row["words"]), return_tensors="pt")).logits[0])
            names = [rows.features["tags"].feature.names[tag] for tag in row["tags"]]
        elif kind == "causal":
            ids = processor(row["text"], return_tensors="pt")["input_ids"]
            logits.append(model(ids).logits[0, :-1])
            labels.append(ids[0, 1:])
        else:
            source, target = (processor(row["translation"][side], return_tensors="pt") for side in ("aa", "bb"))
            logits.append(model(**source, labels=target["input_ids"]).logits[0])
            labels.append(target["input_ids"][0])
        if kind in CLASSIFIERS and kind != "choices":
            labels.append(torch.tensor([model.config.label2id[name] for name in names]))
    return torch.cat(logits).double(), torch.cat(labels)


@pytest.mark.parametrize("kind", some_slow(trained_models.KINDS, quick=("texts", "words")))
def test_evaluation_is_that_of_the_rows(cases, kind):
    case = cases[kind]
    metrics = CalibrationMetrics(10, classwise=kind in CLASSIFIERS)
    metrics.update(*logits_of(kind, case.folder, case.test))
    expected = metrics.compute()
    for batch_size in (1, 50):
        result = evaluate_model(case.folder, str(case.test), num_bins=10, batch_size=batch_size, **case.options)
        assert result.pre.keys() == expected.keys()
        for name, value in expected.items():
            # Equal-mass bins and MCE's bins may get another row where confidences are nearly equal.
            error = 1e-4 if "ece" in name or name == "mce" else 1e-5
            assert result.pre[name] == pytest.approx(value, abs=error, nan_ok=True), name
    assert not result.temperature.is_fitted and result.post == result.pre
    # The words of a sentence and the tokens of a text are not independent, so a bootstrap over them would mislead.
    independent = kind not in ("words", "causal", "seq2seq")
    assert ("ece" in result.pre_intervals) is independent and ("[low, high]" in summary(result)) is independent
    assert (result.subsets.class_balance is not None) is (kind in CLASSIFIERS)  # which needs no intervals


def test_blank_lines_of_a_language_models_text_change_nothing(cases, tmp_path):
    case = cases["causal"]
    texts = load_dataset("parquet", data_files=str(case.test), split="train")["text"][:20]
    whole, spaced = tmp_path / "whole.parquet", tmp_path / "spaced.parquet"
    Dataset.from_dict({"text": texts}).to_parquet(whole)
    Dataset.from_dict({"text": [*texts, *[""] * 9]}).to_parquet(spaced)
    options = {"batch_size": 4, **case.options}
    assert (
        evaluate_model(case.folder, str(spaced), **options).pre
        == evaluate_model(case.folder, str(whole), **options).pre
    )


@pytest.mark.parametrize(
    ("kind", "objective"),
    [
        ("words", "ece"),
        ("texts", "nll"),
        *(pytest.param(kind, "ece", marks=pytest.mark.slow) for kind in ("texts", "images", "seq2seq", "causal")),
        *(
            pytest.param(kind, "nll", marks=pytest.mark.slow)
            for kind in ("sounds", "sentence pairs", "choices", "causal")
        ),
    ],
)
def test_the_saved_model_is_calibrated(cases, kind, objective, tmp_path):
    case = cases[kind]
    options = {"test_dataset": str(case.test), "objective": objective, "output": tmp_path / "out"}
    options["method"] = "temperature"
    result = calibrate_model(case.folder, str(case.validation), **options, **case.options)
    value = result.temperature.value
    validation, labels = logits_of(kind, case.folder, case.validation)
    grid = None if kind in CLASSIFIERS else [value - 0.1, value, value + 0.1]
    if objective == "ece" or kind in CLASSIFIERS:  # of a vocabulary both objectives search the grid
        expected = fit_temperature(validation, labels, objective, grid=grid).value
    else:
        nll = {t: torch.nn.functional.cross_entropy(validation / t, labels).item() for t in grid}
        expected = min(nll, key=nll.get)
    assert value == pytest.approx(expected, rel=1e-4)
    assert value == pytest.approx(trained_models.OVERCONFIDENCE, abs=1)
    assert result.temperature.num_samples == len(labels)

    before, _ = logits_of(kind, case.folder, case.test)
    after, labels = logits_of(kind, tmp_path / "out", case.test)  # plain from_pretrained, plain forward
    assert (after.softmax(-1) - (before / value).softmax(-1)).abs().max() < 1e-6
    metrics = CalibrationMetrics()
    metrics.update(after, labels)
    assert result.post["ece"] == pytest.approx(metrics.compute()["ece"], abs=1e-4)
    assert result.post["ece"] < result.pre["ece"] and result.post["nll"] < result.pre["nll"]
    assert result.post["error"] == result.pre["error"]


def test_figures_outlive_a_full_disk(cases, tmp_path, monkeypatch):
    def save_pretrained(model, folder):
        raise OSError(errno.ENOSPC, "No space left on device")

    case = cases["texts"]
    monkeypatch.setattr(PreTrainedModel, "save_pretrained", save_pretrained)
    with pytest.raises(NotPublishedError, match=r"output must be a folder with room .*out': .*No space left") as error:
        options = {"method": "temperature", "output": tmp_path / "out", **case.options}
        calibrate_model(case.folder, str(case.validation), **options)
    assert error.value.result.temperature.is_fitted


def test_the_weights_need_room(cases, tmp_path, monkeypatch):
    case = cases["texts"]
    size = sum(file.stat().st_size for file in Path(case.folder).glob("*.safetensors"))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(total=10**9, free=500_000 + size // 2))
    with pytest.raises(InputError, match=r"^output must be a folder with room for the model .* MB are free$"):
        calibrate_model(case.folder, str(case.validation), output=tmp_path / "out", **case.options)
    assert not (tmp_path / "out").exists()


def test_a_command_that_dies_while_it_saves_leaves_no_part_of_the_model(cases, tmp_path, monkeypatch):
    case = cases["texts"]

    class Dead(BaseException):
        """What no handler catches, like a process that is killed."""

    def die(*_, **__):
        raise Dead

    monkeypatch.setattr(PreTrainedTokenizerBase, "save_pretrained", die)
    with pytest.raises(Dead):
        calibrate_model(case.folder, str(case.validation), output=tmp_path / "out", **case.options)
    assert not any((tmp_path / "out").glob("*.*"))


def test_checking_that_t_can_be_folded_changes_no_config(cases):
    model = AutoModelForSequenceClassification.from_pretrained(cases["texts"].folder)
    before = model.config.to_dict()
    check_foldable(model)
    assert model.config.to_dict() == before


@pytest.mark.parametrize("kind", ["images", "seq2seq"])
def test_what_is_saved(cases, kind, tmp_path):
    case = cases[kind]
    result = calibrate_model(case.folder, str(case.validation), output=tmp_path / "out", **case.options)
    saved = {path.name for path in (tmp_path / "out").iterdir()}
    processor = "preprocessor_config.json" if kind == "images" else "tokenizer.json"
    assert saved >= {
        "README.md",
        "report",
        "report.html",
        "temperature.json",
        "correction.json",
        "config.json",
        "model.safetensors",
        processor,
    }
    assert Temperature.load(tmp_path / "out" / "temperature.json") == result.temperature
    assert Correction.load(tmp_path / "out" / "correction.json") == result.temperature.correction
    report = tmp_path / "out" / "report"
    pictures = {"reliability_before.png", "reliability_after.png"}
    assert {path.name for path in report.iterdir()} == {"metrics.json", "table.md", "risk_coverage.png", *pictures}
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert ('<img src="data:image/jpeg;base64,' in page) == (kind == "images")
    loaded = RunResult.load(report / "metrics.json")
    assert loaded.temperature == result.temperature and loaded.subsets == result.subsets and loaded.data == result.data
    assert (loaded.name, loaded.loss) == ("model", None)  # the name of the folder: nobody knows its loss
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "trained on" not in card.partition("## Results")[0]
    assert (
        "the results above, which are therefore optimistic" in card
        and f"T was fitted on these same {'tokens' if kind == 'seq2seq' else 'samples'}" in summary(result)
    )


@pytest.mark.slow
def test_the_splits_of_a_dataset(cases, tmp_path):
    case = cases["texts"]
    data = tmp_path / "data"
    data.mkdir()
    for file in (case.validation, case.test):
        (data / file.name).write_bytes(file.read_bytes())
    options = {"method": "temperature", "output": tmp_path / "out", **case.options}
    result = calibrate_model(case.folder, str(data), test_split="test", **options)
    files = {"test_dataset": str(case.test), "method": "temperature", **case.options}
    from_files = calibrate_model(case.folder, str(case.validation), **files)
    assert result.temperature == from_files.temperature
    assert result.post == pytest.approx(from_files.post, rel=0, nan_ok=True)
    assert "split 'validation' of dataset" in result.fit.fitted_on
    assert "split 'test' of test_dataset" in result.data.measured_on
    assert "On the 100 samples of the test set of data" in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    named = evaluate_model(case.folder, f"{data}::validation", **case.options)
    assert named.pre["nll"] == pytest.approx(result.temperature.nll_before, rel=1e-6)
    with pytest.raises(InputError, match="dataset must name the split that split names"):
        evaluate_model(case.folder, f"{data}::validation", "test", **case.options)
    with pytest.raises(InputError, match="test_dataset must name the split that test_split names, 'test', got"):
        calibrate_model(case.folder, str(data), test_dataset=f"{data}::validation", **options | {"test_split": "test"})


def test_splits_of_the_same_name_are_not_the_same_rows(cases, tmp_path):
    case = cases["texts"]
    for file, name in ((case.validation, "first"), (case.test, "second")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "test.parquet").write_bytes(file.read_bytes())
    data = {"split": "test", "test_dataset": str(tmp_path / "second"), "output": tmp_path / "out"}
    result = calibrate_model(case.folder, str(tmp_path / "first"), **data, **case.options)
    assert result.fit.fitted_on == "split 'test' of dataset 'first'"
    assert "optimistic" not in (tmp_path / "out" / "README.md").read_text(encoding="utf-8") + summary(result)


@pytest.mark.slow
def test_a_calibrated_model_is_calibrated_on_top(cases, tmp_path):
    case = cases["images"]
    first = calibrate_model(case.folder, str(case.validation), method="temperature", output=tmp_path / "first")
    again = calibrate_model(tmp_path / "first", str(case.test), method="temperature", output=tmp_path / "again")
    config = json.loads((tmp_path / "again" / "config.json").read_text())
    product = first.temperature.value * again.temperature.value
    assert config["calibration"] == {"temperature": pytest.approx(product)}
    assert f"the correction fitted here comes on top, T = {product:.4g} together" in summary(again)
    assert "is evaluated as it is" in summary(evaluate_model(tmp_path / "first", str(case.test)))


@pytest.fixture
def soft_capped(tmp_path):
    """A language model whose logits do not follow its weights, and texts for it."""
    torch.manual_seed(0)
    texts = ["ba bu bi ba", "bu bi bu", "bi ba bu bi ba"]
    tokenizer = train_word_tokenizer(texts)
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    special = {"pad_token_id": 0, "eos_token_id": None, "bos_token_id": None}
    heads = {"num_key_value_heads": 1, "head_dim": 4, "initializer_range": 1.0}
    Gemma2ForCausalLM(Gemma2Config(vocab_size=len(tokenizer), **sizes, **heads, **special)).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    file = tmp_path / "texts.jsonl"
    file.write_text("".join(f"{json.dumps({'text': text})}\n" for text in texts))
    return tmp_path, file


def test_a_model_that_cannot_be_folded_carries_its_temperature(soft_capped, tmp_path):
    folder, file = soft_capped
    result = calibrate_model(folder, str(file), output=tmp_path / "out")
    before, after = (AutoModelForCausalLM.from_pretrained(path) for path in (folder, tmp_path / "out"))
    assert all(torch.equal(new, old) for new, old in zip(after.parameters(), before.parameters(), strict=True))
    assert after.config.calibration["temperature"] == result.temperature.value
    assert "T is in the config, not in the weights" in summary(result)
    assert "It is **not** in the weights" in (tmp_path / "out" / "README.md").read_text()
    again = evaluate_model(tmp_path / "out", str(file))
    assert again.pre["nll"] == result.pre["nll"] and "is evaluated without it" in summary(again)


def test_a_head_that_takes_no_temperature_is_told_before_anything_is_measured(tmp_path, monkeypatch):
    forward = XLMForSequenceClassification.forward

    @functools.wraps(forward)
    def capped(self, *args, **kwargs):
        output = forward(self, *args, **kwargs)
        output.logits = output.logits.tanh()
        return output

    monkeypatch.setattr(XLMForSequenceClassification, "forward", capped)
    tokenizer = train_word_tokenizer(["good fine", "bad poor"])
    model = XLMForSequenceClassification(XLMConfig(vocab_size=len(tokenizer), emb_dim=8, n_layers=1, n_heads=2))
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path / "model")
    file = tmp_path / "data.csv"
    file.write_text("text,label\n" + "good fine,1\nbad poor,0\nbad fine,0\n" * 4)
    with pytest.raises(InputError, match=r"cannot be folded into this model: .*proportional to .*got XLMForSeq"):
        calibrate_model(tmp_path / "model", str(file), output=tmp_path / "out")
    assert not (tmp_path / "out").exists()
    unsaved = calibrate_model(tmp_path / "model", str(file), method="temperature")
    assert unsaved.temperature.is_fitted


def test_our_own_models_and_their_loss(tmp_path):
    tokenizer = train_word_tokenizer(["good fine", "bad poor"])
    sizes = {"embedding_size": 4, "num_filters": 4, "num_layers": 1, "hidden_size": 4, "num_labels": 2}
    model = GPCNNForSequenceClassification(GPCNNConfig(vocab_size=len(tokenizer), **sizes))
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path / "run")
    (tmp_path / "run" / "report").mkdir()
    (tmp_path / "run" / "report" / "loss.yaml").write_text("name: focal\ngamma: 3\n")
    assert loss_of(tmp_path / "run") == "focal:gamma=3"
    file = tmp_path / "data.csv"
    file.write_text("text,label\n" + "good fine,1\nbad poor,0\nbad fine,0\nfine,1\ngood bad,1\n" * 4)
    result = calibrate_model(tmp_path / "run", str(file), output=tmp_path / "out")
    assert result.loss == "focal:gamma=3" == loss_of(tmp_path / "out")
    assert "import papers.models" in (tmp_path / "out" / "README.md").read_text()


def test_rows_are_drawn_and_texts_cut(cases):
    case = cases["texts"]
    drawn = evaluate_model(case.folder, str(case.test), max_samples=20, **case.options)
    assert drawn.pre["num_samples"] == 20 and drawn.data.options["max_samples"] == 20
    cut = evaluate_model(case.folder, str(case.test), max_length=2, **case.options)
    assert cut.pre["nll"] != evaluate_model(case.folder, str(case.test), **case.options).pre["nll"]


@pytest.mark.parametrize(
    ("kind", "pattern"),
    [
        ("texts", r"(\d+) of the (100) texts of dataset 'test.parquet' are truncated to 2 tokens"),
        (
            "words",
            r"(\d+) of the (\d+) words of dataset 'test.parquet' are not measured: without tokens, or after the first "
            "2 tokens",
        ),
    ],
)
def test_texts_that_were_cut_are_said(cases, kind, pattern):
    case = cases[kind]
    result = evaluate_model(case.folder, str(case.test), max_length=2, **case.options)
    (note,) = result.notes
    cut, total = map(int, re.fullmatch(pattern, note).groups())
    assert 0 < cut <= total and (kind == "texts" or result.pre["num_samples"] == total - cut)
    assert evaluate_model(case.folder, str(case.test), **case.options).notes == []


def test_nothing_that_is_written_has_a_path_of_this_machine(cases, tmp_path):
    case = cases["texts"]
    options = {"test_dataset": str(case.test), "output": tmp_path / "out", **case.options}
    result = calibrate_model(case.folder, str(case.validation), method="temperature", **options)
    assert result.data.model == "model"
    assert result.fit.fitted_on == "dataset 'validation.parquet'"
    # The page is for the user alone: its next steps keep the folders, and it is not published.
    written = [path for path in (tmp_path / "out").rglob("*") if path.is_file() and path.name != "report.html"]
    texts = {path: path.read_bytes() for path in written}
    assert len(texts) > 5
    assert "samples of validation.parquet, not on the test set" in texts[tmp_path / "out" / "README.md"].decode()
    for folder in (case.folder.parent, tmp_path):
        assert [path for path, content in texts.items() if str(folder).encode() in content] == []


def test_words_without_tokens_are_said(cases, tmp_path):
    case = cases["words"]
    rows = [{"words": ["ba", "", "be"], "tags": ["red", "blue", "red"]}, {"words": [" "], "tags": ["green"]}]
    Dataset.from_list(rows).to_parquet(tmp_path / "blank.parquet")
    result = evaluate_model(case.folder, str(tmp_path / "blank.parquet"), **case.options)
    (note,) = result.notes
    assert note.startswith("2 of the 4 words of dataset 'blank.parquet' are not measured: without tokens, or after")


def test_rows_that_both_sets_have_are_said(cases, tmp_path):
    case = cases["texts"]
    rows = load_dataset("parquet", data_files=[str(case.test), str(case.validation)], split="train")
    rows.select(range(101)).to_parquet(tmp_path / "both.parquet")
    options = {"test_dataset": str(tmp_path / "both.parquet"), **case.options}
    result = calibrate_model(case.folder, str(case.validation), **options)
    assert result.notes == ["1 of the 101 test samples is also in the calibration data"]
    options = {"threshold_dataset": str(tmp_path / "both.parquet"), "coverage": 0.5, **case.options}
    result = evaluate_model(case.folder, str(case.test), **options)
    assert result.notes == ["100 of the 101 threshold samples are also in the test data"]


def test_a_temperature_that_the_rows_do_not_have(cases, tmp_path):
    case = cases["images"]
    rows = load_dataset("parquet", data_files=str(case.validation), split="train")
    logits, _ = logits_of("images", case.folder, case.validation)
    names = [trained_models.COLORS[number] for number in logits.argmax(-1).tolist()]
    rows.remove_columns("label").add_column("label", names).to_parquet(tmp_path / "right.parquet")
    with pytest.warns(UserWarning, match="no T can be fitted, so T = 1"):
        result = calibrate_model(case.folder, str(tmp_path / "right.parquet"), method="temperature")
    assert result.temperature.value == 1
    chosen = calibrate_model(case.folder, str(tmp_path / "right.parquet"))
    expected = "samples are predicted correctly, so no T alone can be fitted: use a larger calibration set"
    assert chosen.fit.cross_fit.method == "none" and expected in summary(chosen)
    assert evaluate_model(case.folder, str(tmp_path / "right.parquet")).pre["error"] == 0


def test_a_threshold_is_chosen_on_other_data(cases):
    case = cases["texts"]
    options = {"threshold_dataset": str(case.validation), **case.options}
    result = evaluate_model(case.folder, str(case.test), coverage=0.5, **options)
    logits, labels = logits_of("texts", case.folder, case.test)
    (threshold,) = result.thresholds.labels
    answered = logits.softmax(1).amax(1) >= threshold.value
    assert threshold.recall == pytest.approx(float(answered.double().mean()), abs=0.02)
    correct = (logits.argmax(1) == labels)[answered]
    assert threshold.precision == pytest.approx(float(correct.double().mean()), abs=0.02)
    assert "Thresholds for coverage >= 50% with 95% confidence, chosen on threshold_dataset" in summary(result)
    assert "independent draws" in summary(result) and f"confidence: {threshold.value:.3g} (on the" in summary(result)
    with pytest.raises(InputError, match="threshold_dataset must hold different samples from dataset"):
        evaluate_model(case.folder, str(case.test), precision=0.9, threshold_dataset=str(case.test), **case.options)


def test_evaluate_and_calibrate_choose_by_one_method(cases):
    """The thresholds of the model as it is, and those of a correction that hardly changes it, are nearly the same."""
    case = cases["texts"]
    options = {"precision": 0.4, **case.options}
    chosen = evaluate_model(case.folder, str(case.test), threshold_dataset=str(case.validation), **options)
    result = calibrate_model(
        case.folder, str(case.validation), test_dataset=str(case.test), method="temperature", **options
    )
    actual, corrected = (measured.thresholds.labels[0] for measured in (chosen, result))
    assert abs(actual.recall - corrected.recall) < 0.1
    assert chosen.thresholds.goal == result.thresholds.goal
    logits, labels = logits_of("texts", case.folder, case.validation)
    expected = fit_thresholds(logits, labels, precision=0.4, link="softmax")
    assert actual.value == pytest.approx(expected.values[0], abs=1e-5)
    with pytest.raises(InputError, match="objective must be 'nll' with precision, got 'ece'"):
        calibrate_model(case.folder, str(case.validation), precision=0.4, objective="ece")


@pytest.mark.slow
def test_repeated_texts_are_found_and_drawn_together(cases, tmp_path):
    case = cases["texts"]
    rows = load_dataset("parquet", data_files=str(case.validation), split="train")
    documents = [*range(60)] * 3
    rows.select(documents).add_column("document", documents).to_parquet(tmp_path / "repeated.parquet")
    data, options = str(tmp_path / "repeated.parquet"), {"test_dataset": str(case.test), **case.options}
    result = calibrate_model(case.folder, data, precision=0.4, **options)
    (note,) = [note for note in result.notes if "same value stay together" in note]
    assert "the 180 samples of dataset 'repeated.parquet' have 60 values of 'premise'" in note
    assert "clusters (60 of them)" in result.thresholds.conditions and "clusters (60" in summary(result)
    named = calibrate_model(case.folder, data, precision=0.4, cluster_column="document", **options)
    assert "60 values of 'document'" in " ".join(named.notes)
    with pytest.raises(InputError, match=r"cluster_column must be a column of dataset 'repeated.parquet'.*got 'id'"):
        calibrate_model(case.folder, data, cluster_column="id", **options)


def test_vector_scaling_is_folded_and_told(cases, tmp_path):
    case = cases["texts"]
    data = {"dataset": str(case.validation), "test_dataset": str(case.test)}
    result = calibrate_model(case.folder, **data, method="vector", output=tmp_path / "out", **case.options)
    fit = result.fit.cross_fit
    assert fit.method == "vector" and not result.temperature.is_fitted
    metrics = CalibrationMetrics()
    metrics.update(*logits_of("texts", tmp_path / "out", case.test))
    assert metrics.compute()["nll"] == pytest.approx(result.post["nll"], abs=1e-5)
    assert result.pre["nll"] != pytest.approx(result.post["nll"], abs=1e-5)
    assert "| after, vector scaling" in summary(result) and "T = 1" not in summary(result)
    assert "vector scaling, cross-fitted on" in summary(result) and "refinement" in summary(result)
    page = comparison_page([tmp_path / "out"], tmp_path / "page.html").read_text(encoding="utf-8")
    assert "does not change" not in page and "predictions change" in page
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "vector scaling" in card.partition("## Results")[0] and "temperature" not in card.partition("## Use")[0]
    with pytest.raises(InputError, match=f"method must be one of {', '.join(METHODS)}, auto, got 'beta'"):
        calibrate_model(case.folder, **data, method="beta", **case.options)


def test_a_threshold_out_of_reach_discards_no_figures(cases, tmp_path):
    case, shown = cases["texts"], []
    options = {"threshold_dataset": str(case.validation), "output": tmp_path / "out", "on_result": shown.append}
    reason = "at least .* more samples are needed to show a precision of 99.99%; these data can show .*%"
    pattern = f"precision must be one .* got 0.9999: {reason}"
    with pytest.raises(GoalNotReachedError, match=pattern) as error:
        evaluate_model(case.folder, str(case.test), precision=0.9999, **options, **case.options)
    assert shown == [error.value.result]
    saved = json.loads((tmp_path / "out" / "report" / "metrics.json").read_text())
    assert saved["pre"]["ece"] == error.value.result.pre["ece"]


def test_code_of_a_model_is_not_run_unless_that_is_asked_for(tmp_path, monkeypatch):
    config = {"model_type": "mine", "auto_map": {"AutoConfig": "configuration_mine.MineConfig"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "configuration_mine.py").write_text(
        "from pathlib import Path\nfrom transformers import PreTrainedConfig\n"
        f"Path({str(tmp_path / 'ran')!r}).touch()\n"
        "class MineConfig(PreTrainedConfig):\n    model_type = 'mine'\n"
    )
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n" * 9))
    with pytest.raises(InputError, match="trust_remote_code"):
        evaluate_model(tmp_path, "data.csv")
    assert not (tmp_path / "ran").exists()
    with pytest.raises(InputError, match="model must classify"):
        evaluate_model(tmp_path, "data.csv", trust_remote_code=True)
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize("kind", some_slow(["texts", "words"], quick=["texts"]))
def test_the_model_runs_once_for_each_dataset(cases, kind, tmp_path, monkeypatch):
    case, passes = cases[kind], []
    collect = FocalTrainer.collect

    def counted(trainer, dataset, accumulator):
        passes.append(len(dataset))
        return collect(trainer, dataset, accumulator)

    monkeypatch.setattr(FocalTrainer, "collect", counted)
    for options in ({"method": "temperature"}, {"method": "vector"}, {"precision": 0.5}):
        passes.clear()
        calibrate_model(case.folder, str(case.validation), **options, **case.options)
        assert len(passes) == 1
        calibrate_model(case.folder, str(case.validation), test_dataset=str(case.test), **options, **case.options)
        assert len(passes) == 3


def test_saved_scores_give_the_figures_of_the_model(cases, tmp_path):
    case = cases["texts"]
    options = {"method": "auto", "save_scores": tmp_path / "s.parquet", "output": tmp_path / "out"}
    chosen = calibrate_model(case.folder, str(case.validation), **options, **case.options).fit.cross_fit
    scores = calibrate_scores(tmp_path / "s.parquet").fit.cross_fit.scores
    assert scores.keys() == chosen.scores.keys()
    for method, figures in chosen.scores.items():
        assert scores[method] == pytest.approx(figures, rel=1e-6)
    options = {"method": "temperature", "save_scores": tmp_path / "t.parquet", "output": tmp_path / "fitted"}
    fitted = calibrate_model(case.folder, str(case.validation), **options, **case.options)
    result = evaluate_scores(tmp_path / "t.parquet")
    assert result.pre == pytest.approx(fitted.pre, rel=1e-6, nan_ok=True)
    again = calibrate_scores(tmp_path / "t.parquet", method="temperature")
    assert again.temperature.value == pytest.approx(fitted.temperature.value, rel=1e-6)
    assert again.post == pytest.approx(fitted.post, rel=1e-6, nan_ok=True)


@pytest.mark.slow
def test_groups_and_earlier_data_of_a_model(cases, tmp_path, monkeypatch):
    case, passes = cases["texts"], []
    rows = Dataset.from_parquet(str(case.test))
    languages = [["de", "en"][row % 2] for row in range(len(rows))]
    rows.add_column("language", languages).to_parquet(tmp_path / "test.parquet")
    collect = FocalTrainer.collect
    monkeypatch.setattr(FocalTrainer, "collect", lambda *options: passes.append(1) or collect(*options))
    options = {"group": "language", "reference": str(case.validation), "save_scores": tmp_path / "s.parquet"}
    result = evaluate_model(case.folder, str(tmp_path / "test.parquet"), **options, **case.options)
    assert len(passes) == 2  # one for each data set
    table = evaluate_scores(tmp_path / "s.parquet", group="group")
    assert result.subsets.groups.name == table.subsets.groups.name
    assert result.subsets.groups.ece == pytest.approx(table.subsets.groups.ece, rel=1e-5)
    assert sorted(result.subsets.groups.name) == ["de", "en"]
    assert result.drift.reference == f"reference {case.validation.name!r}"
    fitted = calibrate_model(
        case.folder,
        str(case.validation),
        test_dataset=str(tmp_path / "test.parquet"),
        group="language",
        **case.options,
    )
    assert sorted(fitted.subsets.groups.name) == ["de", "en"]
    with pytest.raises(InputError, match=r"group must be a column of dataset .*, got 'month'"):
        evaluate_model(case.folder, str(case.test), group="month", **case.options)
    with pytest.raises(InputError, match=r"group must not be given for .*, of the task causal-lm, got 'language'"):
        evaluate_model(cases["causal"].folder, str(cases["causal"].test), group="language")


@pytest.mark.slow
def test_a_threshold_is_chosen_on_another_table(cases, tmp_path):
    case = cases["texts"]
    for name in ("validation", "test"):
        data = str(getattr(case, name))
        evaluate_model(case.folder, data, save_scores=tmp_path / f"{name}.parquet", **case.options)
    choice = {"threshold_scores": tmp_path / "validation.parquet", "coverage": 0.5}
    from_table = evaluate_scores(tmp_path / "test.parquet", **choice).thresholds.labels
    options = {"threshold_dataset": str(case.validation), "coverage": 0.5, **case.options}
    from_model = evaluate_model(case.folder, str(case.test), **options).thresholds.labels
    assert [label.value for label in from_table] == pytest.approx([label.value for label in from_model], abs=1e-6)
    with pytest.raises(InputError, match="threshold_scores must be given with coverage, got None"):
        evaluate_scores(tmp_path / "test.parquet", coverage=0.5)


def test_scores_of_a_vocabulary_are_not_saved(cases, tmp_path):
    case = cases["causal"]
    with pytest.raises(InputError, match=r"must have classes, to keep its scores, got .*, of the task causal-lm"):
        evaluate_model(case.folder, str(case.test), save_scores=tmp_path / "s.parquet", **case.options)


@pytest.mark.parametrize("command", [evaluate_model, calibrate_model])
@pytest.mark.parametrize("name", ["scores", "lable_column", "arguments", "goal"])
def test_an_unknown_argument_is_refused_before_the_model_is_loaded(command, name):
    with pytest.raises(TypeError, match=rf"^{command.__name__}\(\) got an unexpected keyword argument '{name}'"):
        command("no/model", "data.csv", **{name: None})


@pytest.mark.parametrize("command", [evaluate_model, calibrate_model])
def test_an_object_is_no_model(command):
    with pytest.raises(InputError, match=r"^model '<own_source\.Own object .*'"):
        command(Own(), "data.csv")


@pytest.mark.parametrize("kind", ["choices", "sentence pairs"])
def test_the_code_on_the_card_loads_models_without_a_pipeline(cases, kind, tmp_path, capsys):
    case = cases[kind]
    result = calibrate_model(case.folder, str(case.validation), output=tmp_path / "out", **case.options)
    (code,) = re.findall(r"```python\n(.*?)```", (tmp_path / "out" / "README.md").read_text(), flags=re.DOTALL)[:1]
    exec(code.replace('"your-username/out"', repr(str(tmp_path / "out"))))
    assert "tensor([[" in capsys.readouterr().out
    is_own = kind == "sentence pairs"
    own = "AutoModelForNextSentencePrediction" if is_own else None
    assert any(f"load it with {own}" in note for note in result.notes) == is_own
    metrics = tmp_path / "out" / "report" / "metrics.json"
    assert RunResult.load(metrics).data.auto_class == own
    values = json.loads(metrics.read_text())
    values["details"].pop("auto_class", None)  # as an earlier version wrote it
    metrics.write_text(json.dumps(values))
    assert RunResult.load(metrics).data.auto_class is None


def test_a_next_sentence_model_needs_pairs(cases):
    case = cases["sentence pairs"]
    with pytest.raises(
        InputError, match=r"^text_pair_column must be given for .*, got None: give --text_pair_column$"
    ):
        evaluate_model(case.folder, str(case.test))


def test_the_code_on_the_card_decides_by_thresholds_without_a_pipeline(cases, tmp_path, capsys):
    case = cases["sentence pairs"]
    calibrate_model(case.folder, str(case.validation), output=tmp_path / "out", precision=0.5, **case.options)
    card = (tmp_path / "out" / "README.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", card, flags=re.DOTALL)
    code = "".join(block for block in blocks if "transformers" in block or "thresholds" in block)
    exec(code.replace('"your-username/out"', repr(str(tmp_path / "out"))), {})
    assert "thresholds" in code and "pipeline(" not in card
    assert re.search(r"^\[('LABEL_[01]')?\]$", capsys.readouterr().out, flags=re.MULTILINE)
