"""Models that answer yes or no, once or per label: slopes, intercepts, and what is told about bad probabilities."""

import html
import json
import math
import os
import re
import subprocess
import sys

import pytest
import torch
from datasets import ClassLabel, Dataset
from papers.data.tokenizer_training import train_word_tokenizer
from trained_models import COLORS, build
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2ForSequenceClassification,
    pipeline,
)

from hf_focal import (
    Correction,
    FocalTrainer,
    FocalTrainingArguments,
    InputError,
    apply_thresholds,
    calibrate_model,
    evaluate_model,
    fit_thresholds,
)
from hf_focal.cli.main import main
from hf_focal.command_lines import RunCommands
from hf_focal.reports import RunResult, comparison_page
from hf_focal.reports.wording.model_warnings import warnings_of
from hf_focal.reports.wording.next_steps import next_steps
from hf_focal.reports.wording.text_summary import summary

WORDS = [f"word{number}" for number in range(30)]
SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
MULTI_LABEL = "multi_label_classification"


@torch.no_grad()
def biased_model(folder, num_labels=1, rows=1500, pairs=False, problem_type=MULTI_LABEL, dtype=torch.float32):
    """A model whose logits are log(9) too large and stretched by 1.5, as after training with `pos_weight=9`, and data.

    Returns the model's folder and the parquet files of two draws of the data, with the columns text, query (for
    pairs), and l0, l1, ... of the labels.
    """
    generator = torch.Generator().manual_seed(0)
    chosen = torch.randint(len(WORDS), (2 * rows, 6), generator=generator)
    texts = [" ".join(WORDS[word] for word in row) for row in chosen]
    queries = [WORDS[int(row[0])] for row in chosen] if pairs else None
    tokenizer = train_word_tokenizer([*texts, *WORDS], vocab_size=60)
    torch.manual_seed(0)
    config = BertConfig(vocab_size=60, **SIZES, num_labels=num_labels, initializer_range=1.0)
    model = BertForSequenceClassification(config).eval()
    inputs = tokenizer(texts, queries, padding=True, return_tensors="pt")
    z = model(**inputs).logits
    true = 2 * (z - z.mean(0)) / z.std(0) - 3.3  # the true log-odds: about 10% positives
    labels = (torch.rand(z.shape, generator=generator) < torch.sigmoid(true)).int()
    slope, intercept = 1.5 * 2 / z.std(0), 1.5 * (math.log(9) - 3.3 - 2 * z.mean(0) / z.std(0))
    model.classifier.bias.mul_(slope).add_(intercept)
    model.classifier.weight.mul_(slope[:, None])
    model.config.problem_type = problem_type
    model.to(dtype).save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    columns = {"text": texts} | ({"query": queries} if pairs else {})
    columns |= {f"l{number}": labels[:, number].tolist() for number in range(num_labels)}
    data = Dataset.from_dict(columns)
    for name, part in (("fit", range(rows)), ("test", range(rows, 2 * rows))):
        data.select(part).to_parquet(folder / f"{name}.parquet")
    return folder / "model", str(folder / "fit.parquet"), str(folder / "test.parquet")


def column_of(num_labels):
    return ",".join(f"l{number}" for number in range(num_labels))


@pytest.mark.slow
@pytest.mark.parametrize(("num_labels", "calibration"), [(1, "auto"), (1, "platt"), (2, "auto")])
def test_a_slope_and_an_intercept_correct_what_a_temperature_cannot(num_labels, calibration, tmp_path):
    model, fit, test = biased_model(tmp_path, num_labels)
    column = {"label_column": column_of(num_labels)}
    before = evaluate_model(model, test, **column)
    assert before.pre["ece"] > 0.1
    assert any("gives a mean probability of" in line for line in summary(before).splitlines() if "warning: " in line)
    result = calibrate_model(model, fit, test_dataset=test, method=calibration, output=tmp_path / "out", **column)
    assert result.method == "platt" and result.post["ece"] < 0.03 and result.post["nll"] < before.pre["nll"]
    assert all("so its ranking is useful: choose a threshold" in warning for warning in warnings_of(result))
    description = result.fit.cross_fit.description
    assert description in summary(result)
    assert re.search(r"Platt scaling( per label)?( at \d+% strength)?, cross-fitted", summary(result))
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert description in card and "| slope | intercept |" in card and "folded into the weights" in card
    page = comparison_page([tmp_path / "out"], tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Platt scaling" in page and "<strong>" not in page.partition("<h2>Results")[2].partition("</section>")[0]
    # A plain pipeline is calibrated.
    corrected = Correction.from_dict(json.loads((tmp_path / "out" / "config.json").read_text())["calibration"])
    texts = Dataset.from_parquet(test)["text"][:3]
    scores, logits = (
        torch.tensor([[item["score"] for item in sorted(row, key=lambda item: item["label"])] for row in rows])
        for rows in (
            pipeline("text-classification", model=str(tmp_path / "out"), top_k=None)(texts),
            pipeline("text-classification", model=str(model), top_k=None, function_to_apply="none")(texts),
        )
    )
    torch.testing.assert_close(scores, torch.sigmoid(corrected.apply(logits)), rtol=0, atol=1e-5)
    again = evaluate_model(tmp_path / "out", test, **column)
    assert again.pre["nll"] == pytest.approx(result.post["nll"], abs=1e-5)
    assert any("its weights have slope" in note for note in again.notes)


@pytest.mark.slow
def test_a_temperature_on_such_a_model_is_told_to_be_wrong(tmp_path, capsys):
    model, fit, test = biased_model(tmp_path)
    options = ["--dataset", fit, "--test_dataset", test, "--label_column", "l0", "--output", str(tmp_path / "out")]
    assert main(["calibrate", str(model), *options, "--method", "temperature"]) == 0
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("warning: ")]
    advice = "no temperature corrects that, so fit a slope and an intercept (method 'platt' or 'auto')"
    assert any(advice in line for line in told)
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "gives a mean probability of" in card.partition("# model")[0] + card.partition("## Results")[0]
    page = comparison_page([tmp_path / "out"], tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<strong>" in page.partition("<h2>Verdict")[2].partition("<table")[0]


@pytest.mark.slow
def test_a_trainer_fits_and_saves_a_slope_and_an_intercept(tmp_path):
    folder, fit, test = biased_model(tmp_path, num_labels=2)
    model = BertForSequenceClassification.from_pretrained(folder)
    tokenizer = pipeline("text-classification", model=str(folder)).tokenizer

    def encoded(path):
        data = Dataset.from_parquet(path)
        labels = [[float(a), float(b)] for a, b in zip(data["l0"], data["l1"], strict=True)]
        return Dataset.from_dict(tokenizer(data["text"][:]) | {"labels": labels})

    args = FocalTrainingArguments(output_dir=str(tmp_path / "out"), loss="cross_entropy", report_to=[], use_cpu=True)
    trainer = FocalTrainer(model, args, eval_dataset=encoded(fit), processing_class=tokenizer)
    found = trainer.fit_correction(method="platt", per_label=True)
    assert trainer.fit.correction.method == "platt" and found.correction.size == 2
    metrics = trainer.evaluate(encoded(test))
    assert metrics["eval_ece_corrected"] < 0.04 < metrics["eval_ece"]
    trainer.save_calibrated()
    saved = BertForSequenceClassification.from_pretrained(tmp_path / "out")
    inputs = tokenizer(["word1 word2"], return_tensors="pt")
    with torch.no_grad():
        expected = trainer.fit.correction.apply(model.eval()(**inputs).logits)
        torch.testing.assert_close(saved(**inputs).logits, expected, rtol=1e-5, atol=1e-5)
    result = trainer.report(encoded(test))
    assert result.method == "platt" and result.subsets.labels.slope == found.correction.A.tolist()


@pytest.mark.slow
@pytest.mark.parametrize("problem_type", [None, "regression"])
def test_a_reranker_as_it_is_downloaded_is_calibrated(problem_type, tmp_path, capsys):
    model, fit, test = biased_model(tmp_path, pairs=True, problem_type=problem_type)
    columns = ["--label_column", "l0", "--text_pair_column", "query"]
    options = ["--dataset", fit, "--test_dataset", test, *columns, "--method", "platt"]
    assert main(["calibrate", str(model), *options, "--output", str(tmp_path / "out")]) == 0
    said = f"note: the model has one logit and the problem_type {problem_type!r}: its labels are taken as 0 and 1"
    assert said in capsys.readouterr().out
    assert json.loads((tmp_path / "out" / "config.json").read_text())["problem_type"] == MULTI_LABEL
    result = RunResult.load(tmp_path / "out" / "report" / "metrics.json")
    assert result.pre["ece"] > 0.1 and result.post["ece"] < 0.03


def test_one_logit_without_a_name_is_called_as_the_data_call_the_label_1(tmp_path):
    model, fit, test = biased_model(tmp_path, rows=200, problem_type=None)
    options = {"label_column": "l0", "precision": 0.3}
    result = calibrate_model(model, fit, test_dataset=test, output=tmp_path / "out", **options)
    assert result.subsets.label_names == ["1"] and result.thresholds.labels[0].name == "1"
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["id2label"] == {"0": "LABEL_0"} and [*config["thresholds"]["values"]] == ["LABEL_0"]
    named = Dataset.from_parquet(test).cast_column("l0", ClassLabel(names=["no match", "match"]))
    named.to_parquet(tmp_path / "named.parquet")
    found = evaluate_model(model, str(tmp_path / "named.parquet"), label_column="l0")
    assert found.subsets.label_names == ["match"]
    config["id2label"] = {"0": "relevant"}
    (tmp_path / "out" / "config.json").write_text(json.dumps(config))
    assert evaluate_model(tmp_path / "out", test, label_column="l0").subsets.label_names == ["relevant"]


def test_grades_and_other_numbers_are_told_apart(tmp_path):
    model, data, _ = biased_model(tmp_path, rows=40, problem_type=None)
    rows = Dataset.from_parquet(data)
    Dataset.from_dict({"text": rows["text"], "label": [row % 4 for row in range(40)]}).to_parquet(data)
    result = evaluate_model(model, data, positive_from=2)
    assert result.subsets.labels.frequency == [0.5]
    with pytest.raises(InputError, match=r"must hold 0 and 1 for a model with one logit, got 0.0, 1.0, 2.0, 3.0 in"):
        evaluate_model(model, data)


def test_a_multi_label_model_without_a_problem_type_is_told_what_it_needs(tmp_path):
    model, data, _ = biased_model(tmp_path, num_labels=2, rows=40, problem_type=None)
    message = "problem_type must be 'multi_label_classification' for several columns of labels in 'l0,l1', got None"
    with pytest.raises(InputError, match=message):
        evaluate_model(model, data, label_column="l0,l1")
    found = evaluate_model(model, data, label_column="l0,l1", problem_type=MULTI_LABEL)
    assert found.pre["num_entries"] == 80
    with pytest.raises(InputError, match="positive_from must not be given for a model of 2 classes, got 2"):
        evaluate_model(model, data, label_column="l0", positive_from=2)
    with pytest.raises(InputError, match="problem_type must be 'multi_label_classification', got 'regression'"):
        evaluate_model(model, data, problem_type="regression")


def as_cross_encoder(model, release):
    """Make the folder of a model that of a CrossEncoder whose activation is the identity; return the folder."""
    from sentence_transformers import CrossEncoder

    if release == 6:
        encoder = CrossEncoder(str(model), activation_fn=torch.nn.Identity(), device="cpu")
        encoder.save_pretrained(str(model.with_name("encoder")))
        assert (model.with_name("encoder") / "config_sentence_transformers.json").exists()
        return model.with_name("encoder")
    path = model / "config.json"
    named = {"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"}
    if release == 4:
        named = {"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity", "version": "4.1.0"}}
    path.write_text(json.dumps(json.loads(path.read_text()) | named))
    return model


@pytest.mark.slow
@pytest.mark.full
@pytest.mark.parametrize("release", [4, 6])
def test_a_cross_encoder_gives_the_calibrated_probability(release, tmp_path):
    from sentence_transformers import CrossEncoder

    model, fit, test = biased_model(tmp_path, pairs=True, problem_type=None)
    model = as_cross_encoder(model, release)
    original = CrossEncoder(str(model), device="cpu")
    columns = {"label_column": "l0", "text_pair_column": "query"}
    calibrate_model(model, fit, test_dataset=test, method="platt", output=tmp_path / "out", **columns)
    corrected = Correction.from_dict(json.loads((tmp_path / "out" / "config.json").read_text())["calibration"])
    calibrated = CrossEncoder(str(tmp_path / "out"), device="cpu")
    rows = Dataset.from_parquet(test)
    pairs = list(zip(rows["text"][:50], rows["query"][:50], strict=True))
    logits = original.predict(pairs, convert_to_tensor=True, show_progress_bar=False)
    expected = torch.sigmoid(corrected.apply(logits[:, None].double()))[:, 0]
    found = calibrated.predict(pairs, convert_to_tensor=True, show_progress_bar=False).double()
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
    documents = rows["query"][:20]
    orders = [[hit["corpus_id"] for hit in each.rank("word1 word2", documents)] for each in (original, calibrated)]
    scores = original.predict([("word1 word2", document) for document in documents])
    assert [scores[number] for number in orders[0]] == [scores[number] for number in orders[1]]  # but for ties


@pytest.mark.slow
@pytest.mark.full
@pytest.mark.parametrize("release", [3, 4, 6])
def test_a_trained_cross_encoder_gives_the_calibrated_probability(release, tmp_path):
    from sentence_transformers import CrossEncoder

    folder, fit, test = biased_model(tmp_path, rows=200, pairs=True, problem_type=None)
    folder = as_cross_encoder(folder, release)
    model = BertForSequenceClassification.from_pretrained(folder, problem_type=MULTI_LABEL)
    tokenizer = AutoTokenizer.from_pretrained(folder)

    def encoded(path):
        rows = Dataset.from_parquet(path)[:]
        return Dataset.from_dict(tokenizer(rows["text"], rows["query"]) | {"labels": [[float(y)] for y in rows["l0"]]})

    args = FocalTrainingArguments(str(tmp_path / "out"), loss="cross_entropy", report_to=[], use_cpu=True, max_steps=2)
    trainer = FocalTrainer(
        model, args, train_dataset=encoded(test), eval_dataset=encoded(fit), processing_class=tokenizer
    )
    trainer.train()
    trainer.fit_correction(method="platt")
    trainer.save_calibrated()
    rows = Dataset.from_parquet(test)[:50]
    with torch.no_grad():
        inputs = tokenizer(rows["text"], rows["query"], padding=True, return_tensors="pt")
        expected = torch.sigmoid(trainer.fit.correction.apply(model.eval()(**inputs).logits.double()))[:, 0]
    calibrated = CrossEncoder(str(tmp_path / "out"), device="cpu")
    assert (tmp_path / "out" / "config_sentence_transformers.json").exists() == (release == 6)
    found = calibrated.predict([*zip(rows["text"], rows["query"], strict=True)], convert_to_tensor=True).double()
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


@pytest.mark.slow
def test_thresholds_are_chosen_saved_and_applied(tmp_path, capsys):
    model, fit, test = biased_model(tmp_path, num_labels=2, rows=3000)
    options = ["--dataset", fit, "--test_dataset", test, "--label_column", "l0,l1", "--method", "auto"]
    goals = ["--precision", "0.55", "--confidence", "0.9", "--output", str(tmp_path / "out")]
    assert main(["calibrate", str(model), *options, *goals]) == 0
    printed = capsys.readouterr().out
    goal = "precision >= 55% with 90% confidence, each label by itself"
    assert f"Thresholds for {goal}, chosen on dataset 'fit.parquet':" in printed
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["thresholds"]["goal"] == 0.55 and list(config["thresholds"]["values"]) == ["LABEL_0", "LABEL_1"]
    result = RunResult.load(tmp_path / "out" / "report" / "metrics.json")
    told = {label.name: label for label in result.thresholds.labels}
    # The card's code, on the test data, gives the precision that the card names.
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    code = card.partition("## Thresholds")[2].partition("```python\n")[2].partition("```")[0]
    rows = Dataset.from_parquet(test)[:400]
    names: dict = {"texts": rows["text"]}
    code = code.replace('model="your-username/out"', f"model={str(tmp_path / 'out')!r}").replace(
        '["A text to classify."]', "texts"
    )
    code = code.replace("print(", "decisions = (")
    exec(code, names)
    assert apply_thresholds(names["scores"], names["classifier"].model.config) == names["decisions"]
    for label, column in (("LABEL_0", "l0"), ("LABEL_1", "l1")):
        chosen = [label in decision for decision in names["decisions"]]
        found = sum(value for value, yes in zip(rows[column], chosen, strict=True) if yes) / sum(chosen)
        assert found == pytest.approx(told[label].precision, abs=0.2) and told[label].precision > 0.55
    # Evaluating chooses thresholds, too, on the scores as they are: `calibrate` chose its own on cross-fitted ones.
    # Calibrating again without a goal removes them.
    goal = {"precision": 0.5, "confidence": 0.9, "threshold_dataset": fit}
    again = evaluate_model(tmp_path / "out", test, label_column="l0,l1", **goal).thresholds
    rows = Dataset.from_parquet(fit)[:]
    inputs = AutoTokenizer.from_pretrained(tmp_path / "out")(rows["text"], padding=True, return_tensors="pt")
    with torch.no_grad():
        logits = BertForSequenceClassification.from_pretrained(tmp_path / "out").eval()(**inputs).logits
    labels = torch.tensor([rows["l0"], rows["l1"]]).T
    expected = fit_thresholds(logits, labels, precision=0.5, confidence=0.9).values
    assert None not in expected
    assert [label.value for label in again.labels] == pytest.approx(expected, abs=1e-4)
    other = calibrate_model(tmp_path / "out", fit, label_column="l0,l1", output=tmp_path / "again")
    assert any("thresholds in the model's config are removed" in note for note in other.notes)
    assert "thresholds" not in json.loads((tmp_path / "again" / "config.json").read_text())


def test_goals_that_a_model_cannot_have_are_told(tmp_path):
    model, fit, test = biased_model(tmp_path, num_labels=2, rows=40)
    options = {"label_column": "l0,l1", "threshold_dataset": fit}
    with pytest.raises(InputError, match=r"coverage must not be given for .*: it has no single confidence"):
        evaluate_model(model, test, coverage=0.5, **options)
    with pytest.raises(InputError, match=r"precision must not be given if recall is given, got 0.9 and 0.8"):
        evaluate_model(model, test, precision=0.9, recall=0.8, **options)
    with pytest.raises(InputError, match=r"precision must not be given if coverage is given, got 0.9 and 0.8"):
        evaluate_model("none", test, precision=0.9, coverage=0.8)  # before the model is loaded
    with pytest.raises(InputError, match="coverage must be between 0 and 1, got 80"):
        evaluate_model("none", test, coverage=80)
    with pytest.raises(InputError, match="recall must be between 0 and 1, got 2"):
        calibrate_model(model, fit, recall=2, label_column="l0,l1")
    few = evaluate_model(model, test, precision=0.99, **options)
    assert all("are needed to show a" in label.reason for label in few.thresholds.labels)
    assert "LABEL_0: no threshold: a" in summary(few)


def with_more_positives(path, folder, share=0.35):
    """Write a file with zeros left out at random, so that this share is positive; return it and its share."""
    rows = Dataset.from_parquet(path)
    ones, zeros = ([i for i, label in enumerate(rows["l0"]) if label == value] for value in (1, 0))
    kept = sorted(ones + zeros[: round(len(ones) * (1 - share) / share)])
    part = rows.select(kept)
    part.to_parquet(folder / "more.parquet")
    return str(folder / "more.parquet"), sum(part["l0"]) / len(part)


@pytest.mark.slow
@pytest.mark.parametrize("calibration", ["platt", "temperature"])
def test_the_prior_of_a_calibrated_model_is_shifted(calibration, tmp_path, capsys):
    model, fit, test = biased_model(tmp_path)
    more, share = with_more_positives(test, tmp_path)
    old = sum(Dataset.from_parquet(fit)["l0"]) / 1500
    columns = ["--dataset", fit, "--test_dataset", more, "--label_column", "l0", "--method", calibration]
    plain = calibrate_model(model, fit, test_dataset=more, label_column="l0", method=calibration)
    capsys.readouterr()
    assert main(["calibrate", str(model), *columns, "--new_prior", str(share), "--output", str(tmp_path / "out")]) == 0
    result = RunResult.load(tmp_path / "out" / "report" / "metrics.json")
    shift = result.prior
    (new,) = shift.new_prior
    assert shift.train_prior == [old] and new == share
    # The saved model adds the log-odds to what the fit corrects, and so does the table of the results.
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["prior_shift"] == {"train_prior": [old], "new_prior": [new]}
    found = Correction.from_dict(config["calibration"])
    fitted = plain.temperature.correction
    if calibration == "platt":
        fitted = Correction.from_dict(plain.fit.cross_fit.correction)
    odds = math.log(new / (1 - new)) - math.log(old / (1 - old))
    assert (found.A, found.b) == pytest.approx((fitted.A, fitted.b + odds))
    again = evaluate_model(tmp_path / "out", more, label_column="l0")
    assert again.pre["nll"] == pytest.approx(result.post["nll"], abs=1e-5) and result.method == "platt"
    if calibration == "platt":
        assert result.post["nll"] < plain.post["nll"] and result.post["ece"] < 0.05 < 0.1 < plain.post["ece"]
    # Console, card, and page say it.
    said = f"The prior is shifted from a share of {100 * old:.3g}% to {100 * new:.3g}%"
    said += "."
    page = comparison_page([tmp_path / "out"], tmp_path / "page.html").read_text(encoding="utf-8")
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    for text in (capsys.readouterr().out, card, html.unescape(page)):
        assert said in text
    # Another fit on the result replaces the shift.
    calibrate_model(tmp_path / "out", fit, label_column="l0", output=tmp_path / "again")
    assert "prior_shift" not in json.loads((tmp_path / "again" / "config.json").read_text())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"new_prior": 0.2, "precision": 0.9},
            "precision must not be given with new_prior: it would hold only for the",
        ),
        ({"new_prior": 0.2, "objective": "ece"}, "objective must be 'nll' with new_prior, got 'ece'"),
        ({"new_prior": 1.2}, r"new_prior must be 2 shares between 0 and 1, got \[1.2, 1.2\]"),
        ({"new_prior": [0.2, 0.3, 0.5]}, r"new_prior must be 2 shares between 0 and 1, got \[0.2, 0.3, 0.5\]"),
    ],
)
def test_a_prior_that_cannot_be_shifted_is_refused_before_the_data_are_read(options, message, tmp_path):
    BertConfig(
        architectures=["BertForSequenceClassification"], num_labels=2, problem_type=MULTI_LABEL
    ).save_pretrained(tmp_path / "model")
    with pytest.raises(InputError, match=message):
        calibrate_model(tmp_path / "model", str(tmp_path / "no.csv"), **options)


def test_a_label_without_ones_and_a_model_of_words_have_no_prior_to_shift(tmp_path):
    model, fit, _ = biased_model(tmp_path, rows=30)
    rows = Dataset.from_parquet(fit)
    Dataset.from_dict({"text": rows["text"], "label": [0] * 30}).to_parquet(fit)
    with pytest.raises(
        InputError, match="dataset must have ones and zeros of every label for a prior shift, got a sh"
    ):
        calibrate_model(model, fit, new_prior=0.2, method="platt")
    BertConfig(architectures=["BertForTokenClassification"]).save_pretrained(tmp_path / "tags")
    with pytest.raises(InputError, match=r"new_prior must not be given for .*, of the task token-classification"):
        calibrate_model(tmp_path / "tags", fit, new_prior=0.2)


@pytest.mark.slow
def test_the_classes_of_a_softmax_are_shifted(tmp_path):
    trained = build("texts", tmp_path)
    new, given = (0.2, 0.3, 0.5), {**trained.options, "test_dataset": str(trained.test), "method": "vector"}
    _, shifted = (
        calibrate_model(trained.folder, str(trained.validation), output=tmp_path / name, **given, **options)
        for name, options in (("plain", {}), ("shifted", {"new_prior": new}))
    )
    rows = Dataset.from_parquet(str(trained.validation))
    labels = [rows.features["label"].int2str(label) for label in rows["label"]]  # in another order than the model's
    old = [labels.count(name) / len(labels) for name in COLORS.values()]
    assert shifted.prior.train_prior == pytest.approx(old)
    pair = {"text": "ba be", "text_pair": "bi"}
    before, after = (
        {item["label"]: item["score"] for item in pipeline("text-classification", str(folder), top_k=None)(pair)}
        for folder in (tmp_path / "plain", tmp_path / "shifted")
    )
    odds = {name: before[name] * to / share for name, to, share in zip(COLORS.values(), new, old, strict=True)}
    expected = {name: value / sum(odds.values()) for name, value in odds.items()}
    assert after == pytest.approx(expected, abs=1e-5)
    card = (tmp_path / "shifted" / "README.md").read_text(encoding="utf-8")
    assert f"from a share of {100 * old[0]:.3g}% to 20% for 'red'" in card


def test_a_softmax_without_a_bias_cannot_be_shifted(tmp_path):
    tokenizer = train_word_tokenizer(WORDS)
    config = GPT2Config(vocab_size=len(tokenizer), n_embd=16, n_layer=1, n_head=2, pad_token_id=0, num_labels=2)
    for part in (GPT2ForSequenceClassification(config), tokenizer):
        part.save_pretrained(tmp_path / "model")
    Dataset.from_dict({"text": WORDS[:10], "label": [0, 1] * 5}).to_parquet(tmp_path / "data.parquet")
    with pytest.raises(InputError, match=r"new_prior must not be given for .*, whose head has no bias for the shift"):
        calibrate_model(
            tmp_path / "model", str(tmp_path / "data.parquet"), new_prior=(0.3, 0.7), output=tmp_path / "out"
        )


@pytest.mark.slow
def test_thresholds_of_a_head_without_a_bias_are_for_its_own_probabilities(tmp_path):
    generator = torch.Generator().manual_seed(0)
    tokenizer = train_word_tokenizer(WORDS)
    sizes = {"n_embd": 16, "n_layer": 1, "n_head": 2, "initializer_range": 1.0}
    config = GPT2Config(vocab_size=len(tokenizer), **sizes, pad_token_id=0, num_labels=1, problem_type=MULTI_LABEL)
    torch.manual_seed(0)
    for part in (model := GPT2ForSequenceClassification(config).eval(), tokenizer):
        part.save_pretrained(tmp_path / "model")
    texts = [
        " ".join(WORDS[word] for word in row) for row in torch.randint(len(WORDS), (1200, 4), generator=generator)
    ]
    with torch.no_grad():
        z = model(**tokenizer(texts, padding=True, return_tensors="pt")).logits[:, 0]
    true = torch.sigmoid(2 * (z - z.mean()) / z.std() - 1)
    labels = (torch.rand(len(z), generator=generator) < true).int().tolist()
    Dataset.from_dict({"text": texts[:600], "label": labels[:600]}).to_parquet(tmp_path / "data.parquet")
    folder = tmp_path / "out"
    Dataset.from_dict({"text": texts[600:], "label": labels[600:]}).to_parquet(tmp_path / "test.parquet")
    given = {"method": "platt", "recall": 0.8, "output": folder, "test_dataset": str(tmp_path / "test.parquet")}
    result = calibrate_model(tmp_path / "model", str(tmp_path / "data.parquet"), **given)
    (promised,) = result.thresholds.labels
    classifier = pipeline("text-classification", model=str(folder), top_k=None)
    decided = [bool(labels) for labels in apply_thresholds(classifier(texts[600:]), classifier.model.config)]
    found = [yes for yes, label in zip(decided, labels[600:], strict=True) if label]
    assert sum(found) / len(found) == pytest.approx(promised.recall, abs=0.01)
    assert sum(found) / sum(decided) == pytest.approx(promised.precision, abs=0.01)
    assert not all(decided)
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert "of the model's own probabilities, without the slope and the intercept" in card
    assert "apply its correction as its README.md shows" in " ".join(
        map(str, next_steps(result, RunCommands("calibrate", {"output": str(folder)})))
    )


PLAIN = """
import json, sys
from transformers import pipeline
scores = pipeline("text-classification", model=sys.argv[1], top_k=None)(json.loads(sys.argv[2]))
assert "hf_focal" not in sys.modules
print(json.dumps([[item["score"] for item in sorted(row, key=lambda item: item["label"])] for row in scores]))
"""


@pytest.mark.slow
def test_a_plain_process_gets_the_calibrated_probabilities_of_a_bfloat16_model(tmp_path):
    model, fit, test = biased_model(tmp_path, num_labels=3, rows=500, dtype=torch.bfloat16)
    columns = {"label_column": column_of(3), "method": "platt", "per_label": True}
    result = calibrate_model(model, fit, test_dataset=test, output=tmp_path / "out", **columns)
    assert not any("by rounding" in note for note in result.notes)
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["dtype"] == "bfloat16"
    texts = Dataset.from_parquet(test)["text"][:100]
    rows = pipeline("text-classification", model=str(model), top_k=None, function_to_apply="none")(texts)
    logits = [[item["score"] for item in sorted(row, key=lambda item: item["label"])] for row in rows]
    expected = torch.sigmoid(Correction.from_dict(config["calibration"]).apply(torch.tensor(logits)))
    command = [sys.executable, "-c", PLAIN, str(tmp_path / "out"), json.dumps(texts)]
    run = subprocess.run(command, env=os.environ | {"PYTHONPATH": ""}, capture_output=True, text=True, check=True)
    found = torch.tensor(json.loads(run.stdout))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-2)  # beyond which a fold warns
    assert expected.amax() - expected.amin() > 0.5  # they differ
