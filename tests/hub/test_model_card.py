"""The model card: what it says, that its metadata read back equal, and what it leaves out."""

import ast
import math
import re
from dataclasses import fields, replace
from pathlib import Path

import huggingface_hub
import numpy as np
import pytest
import torch
import yaml
from huggingface_hub import ModelCard
from huggingface_hub.errors import HTTPError
from transformers.pipelines import get_supported_tasks

import hf_focal
from hf_focal import CalibrationMetrics, Temperature, calibrate_scores
from hf_focal.hub import CardData, CardModel, Training, model_card, read_base_metadata
from hf_focal.hub.label_words_usage import correction_usage
from hf_focal.hub.model_card import citations
from hf_focal.losses import LOSSES
from hf_focal.metrics import ReliabilityBins
from hf_focal.reports import RunResult
from hf_focal.reports.results.result_sections import CrossFit, DataSection
from hf_focal.reports.wording.headlines import headline_of
from hf_focal.reports.wording.markdown_tables import escaped
from hf_focal.reports.wording.text_summary import metrics_table
from hf_focal.reports.wording.verdicts import correction_verdict
from hf_focal.tasks.task import PIPELINES

CLASSIFICATION = ["text-classification", "image-classification", "token-classification", "image-segmentation"]
TASKS = [*CLASSIFICATION, "translation", "text-generation"]
SIDES = ["Accuracy", "NLL", "ECE", "AdaECE", "Smooth ECE", "Brier score", "AURC"]
FIRST = "This text classification model gives the probability of each class: 0, 1, and 2."
BEFORE = [f"{name} before temperature scaling" for name in SIDES[1:]]


def run_of(loss="flsd53", objective="ece", at_grid_end=False):
    labels = torch.arange(60) % 3
    logits = torch.randn(60, 3, generator=torch.Generator().manual_seed(0)) * 3
    logits += 4 * torch.nn.functional.one_hot(labels, 3)
    fitted = Temperature(1.3, objective, 0.1, 0.05, 0.912, 0.8, 50, 15, at_grid_end)
    return RunResult.measure(loss, fitted, logits, labels)


def translation_of():
    bins = ReliabilityBins(np.linspace(0, 1, 3), np.array([2, 3]), np.array([0.4, 0.9]), np.array([0.5, 0.7]))
    return RunResult(
        name="focal:gamma=1",
        loss="focal:gamma=1",
        temperature=Temperature(1.2, "nll", 0.1016, 0.0259, 2.0, 1.9, num_samples=500, num_bins=2),
        pre={"ece": 0.1016, "nll": 2.0, "nll_incorrect": math.nan, "bleu": 26.31},
        post={"ece": 0.0259, "nll": 1.9, "bleu": 26.21},
        pre_bins=bins,
        post_bins=bins,
    )


def card_of(result=None, task="text-classification", *, name="user/my_model", folded=True, **options):
    """Return a card, with the metadata of a base model that is a folder.

    `options` are arguments of `model_card`, and fields of its data and its model.
    """
    result = result or run_of()
    data = {part.name: options.pop(part.name) for part in fields(CardData) if part.name in options}
    card = {argument: options.pop(argument) for argument in ("language", "license") if argument in options}
    training = options.pop("training", Training())
    model = CardModel(name, task, **options)
    result, base = replace(result, fit=replace(result.fit, folded=folded)), model.base
    if base is not None and Path(base).is_dir():
        card["base_metadata"] = read_base_metadata(base)
    return model_card(result, model, CardData(**data), training, **card)


def front_matter(card):
    return yaml.safe_load(str(card).split("---\n")[1])


def test_the_sentence_on_confidence_is_the_measured_one():
    """80 samples in the fullest bin, which are 95% confident and right in 60 cases; calibrated elsewhere."""
    confidence, right = np.array([0.95] * 80 + [0.5] * 20), np.array([1] * 60 + [0] * 20 + [1, 0] * 10)
    first = np.arange(100) % 4 < 2  # the class that is predicted
    logits = np.stack([np.log(confidence / (1 - confidence)), 0 * confidence], 1)
    logits, labels = np.where(first[:, None], logits, logits[:, ::-1]), np.where(first, 1 - right, right)
    fitted = Temperature(2.0, "nll", num_samples=50)
    result = RunResult.measure("flsd53", fitted, torch.tensor(logits), torch.tensor(labels))
    at_t = 1 / (1 + (0.05 / 0.95) ** 0.5)
    card = str(card_of(replace(result, pre_intervals={}, post_intervals={})))
    assert f"For example, of the 80 answers with a confidence of about {100 * at_t:.0f}%, 75.0% are right." in card


def test_the_sentence_on_labels_is_about_a_probability_above_a_half():
    """Most probabilities are near 0; 40 entries have 90%, of which 36 apply."""
    p = np.array([0.02] * 360 + [0.9] * 40)
    labels = np.array([1] * 7 + [0] * 353 + [1] * 36 + [0] * 4)
    logits = 2 * np.log(p / (1 - p))
    before, after = (CalibrationMetrics(link="sigmoid") for _ in range(2))
    before.update(logits.reshape(200, 2), labels.reshape(200, 2))
    after.update(logits.reshape(200, 2) / 2, labels.reshape(200, 2))
    result = RunResult.from_metrics("m", Temperature(2.0, "nll", num_samples=50), before, after, intervals=False)
    assert "For example, of the 40 labels with a probability of about 90%, 90.0% apply." in str(card_of(result))


@pytest.mark.parametrize(("task", "folded"), [("text-classification", True), ("translation", False)])
def test_the_card_reads_back_equal(task, folded, tmp_path):
    card = card_of(translation_of() if task == "translation" else run_of(), task, folded=folded)
    card.save(tmp_path / "README.md")
    for again in (ModelCard(str(card)), ModelCard.load(tmp_path / "README.md")):
        assert again.data.eval_results == card.data.eval_results
        assert again.data.to_dict() == card.data.to_dict() == front_matter(card)
        assert again.text == card.text
    assert len(card.data.eval_results) == (6 if task == "translation" else 13)


def test_the_results_in_the_metadata_are_those_of_the_run():
    result = run_of()
    data = card_of(result, dataset="SetFit/20_newsgroups", base="org/base", license="mit", language="en").data
    values = {entry.metric_name: entry.metric_value for entry in data.eval_results}
    assert list(values) == SIDES + BEFORE
    keys = ("accuracy", "nll", "ece", "adaece", "smooth_ece", "brier", "aurc")
    assert [values[name] for name in SIDES] == [result.post[key] for key in keys]
    assert [values[name] for name in BEFORE] == [result.pre[key] for key in keys[1:]]
    assert {entry.metric_type for entry in data.eval_results} == set(keys)
    for entry in data.eval_results:
        assert (entry.dataset_type, entry.dataset_name) == ("SetFit/20_newsgroups", "SetFit/20_newsgroups")
        assert (entry.task_type, entry.dataset_split) == ("text-classification", "test")
    plain = {key: value for key, value in data.to_dict().items() if key != "model-index"}
    assert plain == {
        "language": "en",
        "license": "mit",
        "library_name": "transformers",
        "pipeline_tag": "text-classification",
        "base_model": "org/base",
        "datasets": "SetFit/20_newsgroups",
        "tags": ["hf_focal", "calibration", "temperature-scaling"],
    }


def test_bleu_is_among_the_results_of_a_translation():
    result = translation_of()
    card = card_of(result, "translation", language=["de", "en"])
    values = {entry.metric_name: (entry.metric_type, entry.metric_value) for entry in card.data.eval_results}
    assert values == {
        "ECE": ("ece", 0.0259),
        "NLL": ("nll", 1.9),
        "ECE before temperature scaling": ("ece", 0.1016),
        "NLL before temperature scaling": ("nll", 2.0),
        "BLEU": ("bleu", 26.21),
        "BLEU before temperature scaling": ("bleu", 26.31),
    }
    assert metrics_table(result) in card.text and re.search(r"\| BLEU +\| 26.31 +\| 26.21 +\|", card.text)
    assert "fitted on 500 tokens of the validation split" in card.text
    assert "FocalSeq2SeqTrainer(" in card.text
    assert "AutoModelForSeq2SeqLM" in card.text


def test_the_metadata_call_results_on_the_data_of_the_fit_optimistic():
    names = {entry.metric_name for entry in card_of(run_of(), same_samples=True).data.eval_results}
    assert {"ECE (optimistic: T was fitted on these samples)", "ECE before temperature scaling"} <= names


def test_nothing_but_what_was_measured_is_in_the_metadata():
    result = run_of()
    undefined = replace(result, pre=dict.fromkeys(result.pre, math.nan), post={**result.post, "nll": math.inf})
    data = card_of(undefined).data
    assert [entry.metric_name for entry in data.eval_results] == [name for name in SIDES if name != "NLL"]
    card = card_of(replace(undefined, post={}))
    assert card.data.eval_results is None
    assert ModelCard(str(card)).data.to_dict() == card.data.to_dict()
    assert not {"base_model", "datasets", "language", "license", "model-index"} & set(front_matter(card))
    assert (
        "None" not in str(card).replace("top_k=None", "")
        and f"# user/my_model\n\n{FIRST}\nNothing shows that temperature scaling helps" in card.text
    )


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("/home/me/my data: #1/train.csv", "train.csv"),
        ('C:\\data\\it\'s: "x"', 'it\'s: "x"'),
        ("corpus/", "corpus"),
        ("~/x/---", "---"),
    ],
)
def test_a_path_is_no_id_and_only_its_end_is_told(given, name):
    card = card_of(dataset=given, base=given)
    again = ModelCard(str(card)).data
    assert not {"datasets", "base_model"} & set(front_matter(card))
    measured = "unknown" if name == "train.csv" else name  # a file of training data has no test set
    assert {(entry.dataset_name, entry.dataset_type) for entry in again.eval_results} == {(measured, "unknown")}
    assert f"trained on {name}" in card.text
    assert "/home" not in str(card) and "C:" not in str(card)


@pytest.mark.parametrize("name", ["digits", "scikit-learn's digits", "a generated corpus"])
def test_data_that_is_built_in_or_generated_is_of_no_hub(name):
    card = card_of(dataset=name)
    assert "datasets" not in front_matter(card)
    assert {(entry.dataset_name, entry.dataset_type) for entry in card.data.eval_results} == {(name, "unknown")}
    assert f"{FIRST}\nIt was trained on {name}.\nTemperature scaling " in card.text


def test_a_folder_that_is_there_is_a_path(tmp_path, monkeypatch):
    (tmp_path / "corpus").mkdir()
    assert card_of(dataset="corpus").data.datasets == "corpus"
    monkeypatch.chdir(tmp_path)
    assert card_of(dataset="corpus").data.datasets is None
    (tmp_path / "nli" / "model").mkdir(parents=True)
    assert "It is a fine-tuned nli/model" in card_of(base="nli/model").text


def test_the_text_says_what_was_trained_and_measured():
    result = run_of("adafocal:bins=10", at_grid_end=True)
    text = card_of(result, training=Training({"learning_rate": 2e-5, "opt|im": "a_b"})).text
    assert "Loss: `adafocal:bins=10`, focal or inverse focal" in text
    assert 'loss="adafocal:bins=10"' in text and "calibration_dataset=validation" in text
    assert "| learning_rate | 2e-05 |" in text and "| opt\\|im | a_b |" in text
    assert metrics_table(result) in text
    assert "T = 1.3 was fitted on 50 samples of the validation split, not on the test set. It has the lowest" in text
    assert "ECE from 10.00% to 5.00% and the NLL from 0.912 to 0.800. T is at the end of the grid" in text
    assert "![Reliability diagram before temperature scaling](report/reliability_before.png)" in text
    assert "![Reliability diagram after temperature scaling](report/reliability_after.png)" in text
    assert 'pipeline("text-classification", model="user/my_model")' in text
    assert "folded into the weights, so you do not need to apply it" in text
    assert "T is fitted on 50 samples: with fewer than 500, it can make calibration worse; 100 are" in text


def test_the_text_says_how_t_was_found():
    result = run_of(objective="nll")
    of_grid = replace(result.temperature, grid="0.1, 0.2, ..., 10")
    text = card_of(replace(result, temperature=of_grid)).text
    assert "It has the lowest negative log-likelihood (NLL) of 0.1, 0.2, ..., 10." in text
    shrunk = replace(result.temperature, shrunk_from=1.743)
    scores, parts = {"nll": 1.0, "brier": 0.5, "ece": 0.1}, {"nll": [0.0, 1.0], "brier": [0.0, 0.5]}
    sizes = {"changed_predictions": 0, "num_samples": 50, "num_folds": 5, "decomposition": parts}
    fit = CrossFit("temperature", "temperature", before=scores, after=scores, strength=0.8, **sizes)
    text = card_of(replace(result, temperature=shrunk, fit=replace(result.fit, cross_fit=fit))).text
    assert "It is shrunk from 1.743, the T with the lowest negative log-likelihood (NLL): at 80% strength, " in text


def test_a_temperature_that_is_not_folded_comes_with_the_code_that_applies_it():
    text = card_of(run_of(objective="nll"), folded=False).text
    assert "probabilities = (logits / 1.3).softmax(-1)" in text
    assert "do not need to apply it" not in text and "lowest negative log-likelihood" in text
    text = card_of(translation_of(), "translation", folded=False).text
    assert "calibrated_generation(1.2)" in text


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("folded", [True, False])
def test_the_code_is_python(task, folded):
    name = 'C:\\new "x"'
    text = card_of(task=task, name=name, folded=folded).text
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == (2 if folded else 3)
    for block in blocks:
        compile(block, "card", "exec")
    assert repr(name)[1:-1].replace('"', '\\"') in blocks[0]


def sigmoid_run(num_labels):
    labels = torch.bernoulli(torch.full((60, num_labels), 0.5), generator=torch.Generator().manual_seed(0))
    before, after = (CalibrationMetrics(link="sigmoid") for _ in range(2))
    for metrics, factor in ((before, 4), (after, 2)):
        metrics.update(factor * labels - factor / 2, labels)
    fitted = Temperature(2.0, "nll", 0.1, 0.05, 0.9, 0.8, 50, 15)
    return RunResult.from_metrics(
        "cross_entropy", fitted, before, after, label_names=[f"l{i}" for i in range(num_labels)]
    )


@pytest.mark.parametrize(
    ("result", "task", "folded", "named"),
    [
        (run_of(), "text-classification", True, None),
        (run_of(), "text-classification", False, "No server applies this correction"),
        (translation_of(), "translation", True, None),
        (translation_of(), "translation", False, "temperature of each request"),
        (sigmoid_run(3), "text-classification", True, "Text Embeddings Inference takes a softmax over all labels"),
        (sigmoid_run(1), "text-classification", True, "Core ML takes a softmax, which is always 1"),
        (sigmoid_run(3), "image-classification", True, "Transformers.js takes a softmax over all labels"),
        (sigmoid_run(3), "audio-classification", True, "some software takes a softmax over all labels"),
    ],
)
def test_a_card_warns_of_servers_that_would_return_other_probabilities(result, task, folded, named):
    text, page = card_of(result, task, folded=folded).text, "https://hf-focal.github.io/hf_focal/serving.html"
    assert (page in text) == (named is not None) and (named or "") in text
    assert ("softmax over" in text or "always 1" in text) == (result.link == "sigmoid")


def test_both_warnings_are_on_the_card_of_a_sigmoid_whose_correction_is_in_the_config():
    text = card_of(sigmoid_run(3), folded=False).text
    assert "No server applies this correction" in text and "Text Embeddings Inference takes a softmax" in text


def test_a_loss_that_is_not_of_this_library_is_named_as_it_is():
    text = card_of(replace(run_of(), loss=None, name="the stock Trainer's | loss")).text
    assert "Loss: the stock Trainer's \\| loss." in text
    assert "FocalTrainer" not in text
    assert re.findall(r"@\w+{(\w+),", text) == ["guo2017calibration", "mukhoti2020calibrating"]


@pytest.mark.parametrize(
    ("loss", "objective", "keys"),
    [
        ("cross_entropy", "nll", ["guo2017calibration"]),
        ("label_smoothing", "nll", ["szegedy2016rethinking", "guo2017calibration"]),
        ("focal:gamma=2", "ece", ["lin2017focal", "mukhoti2020calibrating", "guo2017calibration"]),
        ("flsd53", "nll", ["mukhoti2020calibrating", "guo2017calibration"]),
    ],
)
def test_the_papers_that_were_used_are_cited_and_no_others(loss, objective, keys):
    text = card_of(run_of(loss, objective)).text
    assert re.findall(r"@\w+{(\w+),", text) == keys
    bibtex = re.search(r"```bibtex\n(.*?)```", text, re.DOTALL)[1]
    assert bibtex.count("{") == bibtex.count("}")
    assert bibtex.count("author = ") == bibtex.count("title = ") - bibtex.count("booktitle = ") == len(keys)
    assert all(f"year = {{{re.sub(r'[a-z]', '', key)}}}" in bibtex for key in keys)


def test_every_citation_is_that_of_a_loss_or_of_the_temperature():
    sources = {source for spec in LOSSES.values() for source in spec.source.split("; ")} | {"Guo et al. 2017"}
    text = (Path(hf_focal.__file__).parent / "hub" / "citations.bib").read_text(encoding="utf-8")
    known, cited = (re.findall(r"@\w+{(\w+),", bibtex) for bibtex in (text, citations(sorted(sources))))
    assert sorted(cited) == sorted(known)
    without = {source for source in sources if not citations([source])}
    # Kapoor 2023 is a blog post.
    assert without == {"the baseline", "Kapoor 2023"}, "a paper has no entry in citations.bib"


def test_other_tasks_have_a_card_too():
    card = card_of(task="audio-classification")
    assert card.data.pipeline_tag == "audio-classification"
    assert 'model = pipeline("audio-classification", model="user/my_model")' in card.text
    assert "A text to summarize." in card_of(translation_of(), task="summarization").text
    assert "```python\nimport papers.models" in card_of(package="papers.models").text


@pytest.mark.parametrize("tag", PIPELINES)
def test_the_pipelines_of_a_card_exist(tag):
    named = re.findall(r'\bpipeline\("(.*?)"', card_of(task=tag).text)
    assert {*named} <= {*get_supported_tasks()}, "the card needs code of its own: see hf_focal/hub/card_code.py"


def test_a_card_without_a_temperature_says_so():
    before = CalibrationMetrics(15)
    before.update(4 * torch.eye(3).repeat(9, 1), torch.arange(27) % 3)
    result = RunResult.from_metrics("flsd53", None, before, None)
    card = card_of(result)
    assert [entry.metric_name for entry in card.data.eval_results] == SIDES
    assert "No temperature was fitted" in card.text and "→" not in card.text and "bibtex" in card.text
    assert card.data.tags == ["hf_focal", "calibration"]
    assert f"{FIRST}\nThe results below show how well calibrated it is." in card.text


def test_a_card_of_a_model_that_was_only_corrected():
    result = replace(run_of(), loss=None, name="org/base")
    card = card_of(result, base="org/base", dataset="data.csv", training=None)
    assert f"{FIRST}\nIt is org/base, corrected with a temperature on data.csv.\nTemperature scaling " in card.text
    assert "## Training" not in card.text and "fine-tuned" not in card.text
    assert card.data.base_model == "org/base"


def test_a_card_names_the_splits():
    card = card_of(measured_on="validation", same_samples=True)
    assert "On the 60 samples of the validation set, before" in card.text
    assert "of the validation split, the same as in the results above, which are therefore optimistic." in card.text
    assert {entry.dataset_split for entry in card.data.eval_results} == {"validation"}
    assert "of the dev split, not on the test set" in card_of(fitted_on="dev").text
    text = card_of(fitted_on="/home/me/held_out.csv").text
    assert "on 50 samples of held_out.csv, not on the test set." in text and "On these samples, with" in text
    assert "split" not in text.partition("## Temperature")[2]


@pytest.mark.parametrize(
    ("larger", "same_rows", "high"),
    [
        *(((), False, 0.07), ((), True, 0.07), ((), False, 0.08)),
        *((("ece", "nll"), False, 0.07), (("nll",), False, 0.07), (("nll",), True, 0.09)),
    ],
)
def test_a_model_is_called_calibrated_only_where_the_test_figures_say_so(larger, same_rows, high):
    pre, post = {"ece": 0.10, "nll": 0.5}, {"ece": 0.05, "nll": 0.4}
    post |= {key: 2 * pre[key] for key in larger}
    intervals = {"pre_intervals": {"ece": (0.08, 0.12)}, "post_intervals": {"ece": (0.03, high)}}
    text = card_of(replace(run_of(), pre=pre, post=post, **intervals), same_samples=same_rows).text
    overlap = high >= 0.08
    assert ("improves the calibration" in text.split("## Use")[0]) is (not larger and not same_rows and not overlap)
    noise = "The two intervals of the ECE overlap, so these test samples may be too few to show a difference."
    assert (noise in text) is (overlap and not same_rows)
    assert not re.search("probabilities are calibrated|are calibrated.\n", text)
    if larger and not same_rows:
        names = {"ece": "ECE", "nll": "NLL"}
        assert (
            f"it does not lower {' or '.join(f'the {names[key]}' for key in larger)}. It changes the ECE from 10.00%"
            in text
        )


def test_a_card_of_a_correction_that_lowers_only_the_nll_shows_the_error():
    pre, post = {"ece": 0.10, "nll": 0.5, "error": 0.2}, {"ece": 0.11, "nll": 0.4, "error": 0.1}
    text = card_of(replace(run_of(), pre=pre, post=post)).text
    assert "lowers the NLL, but not the ECE" in text and "the error from 20.00% to 10.00%" in text


def test_a_card_of_a_corrected_model_says_what_the_file_beside_the_weights_is_for():
    told = "do not need to apply it (`correction.json` is for logits of the original model)."
    assert told in str(card_of(training=None))
    assert "correction.json" not in str(card_of())


def test_a_card_says_which_answers_a_correction_costs():
    result = run_of()
    worse = replace(result, post=result.post | {"error": result.pre["error"] + 0.019})
    assert "It also raises the error by 1.9 percentage points." in str(card_of(worse))
    assert "changes no prediction" not in str(card_of(worse))  # advice to whoever fitted it
    assert "It also" not in str(card_of(result))


def test_a_card_names_what_was_measured_and_how_much_of_it():
    card = card_of(dataset="/home/me/train.csv", test_dataset="/home/me/my|test.csv")
    assert "trained on train.csv." in card.text and "/home" not in str(card)
    assert "On the 60 samples of my\\|test.csv, before" in card.text
    assert {entry.dataset_name for entry in card.data.eval_results} == {"my|test.csv"}
    assert "On the 60 samples of the test set of org/data, before" in card_of(dataset="org/data").text
    text = card_of(dataset="org/data", test_dataset="org/other", measured_on="dev").text
    assert "On the 60 samples of the dev set of org/other, before" in text


def test_a_card_says_how_unequal_the_classes_are_and_how_sure_the_ece_is():
    labels = torch.tensor([0] * 45 + [1] * 15)
    logits = torch.randn(60, 2, generator=torch.Generator().manual_seed(0))
    result = RunResult.measure("brier", Temperature(1.3, "nll", 0.1, 0.05, 0.9, 0.8, 50, 15), logits, labels)
    text = card_of(result).text
    assert "The 2 classes have 15 to 45 samples each; 75.0% are of the most frequent class." in text
    low, high = (f"{100 * bound:.2f}" for bound in result.pre_intervals["ece"])
    assert f"the ECE from {100 * result.pre['ece']:.2f}% [{low}, {high}] to" in text
    assert "classes have" not in card_of(translation_of(), "translation").text


def test_the_example_names_a_repository_also_if_its_id_is_not_known_yet():
    """`hf upload` publishes the card as it is, so no code may load a folder of another computer."""
    local = str(card_of(name="emo"))
    assert 'model="your-username/emo"' in local and '"emo"' not in local and "# emo\n" in local
    assert "Replace your-username" in local
    published = str(card_of(name="user/emo"))
    assert 'model="user/emo"' in published and "your-username" not in published


@pytest.mark.parametrize("name", ["m|x", "a\nb", "<script>", "`x`", "$\\frac$", "[name]", "## x", "b\u2028c"])
def test_hostile_names_are_shown_as_they_are(name):
    result = replace(run_of(), loss=None, name=name)
    text = card_of(result, name=name, base=name, dataset=name).text
    shown = escaped(name)
    assert text.startswith(f"\n# {shown}\n") and f"Loss: {shown}." in text
    code = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0]
    assert f"model={f'your-username/{name}'!r}" in ast.unparse(ast.parse(code))


def test_a_card_tells_of_a_temperature_that_was_folded_before():
    before = CalibrationMetrics(15)
    before.update(4 * torch.eye(3).repeat(9, 1), torch.arange(27) % 3)
    card = card_of(RunResult.from_metrics("flsd53", None, before, None), folded_temperature=1.7)
    assert "T = 1.7 is folded into the weights; the results above include it." in card.text
    assert "No temperature was fitted" not in card.text


def test_a_card_says_what_the_model_is_for_and_what_the_results_do_not_show():
    result = replace(run_of(), data=DataSection(options={"text_pair_column": "query"}))
    text = card_of(result, dataset="org/data").text
    headings = re.findall("^## (.*)", text, re.MULTILINE)
    assert headings == [*("Use", "Results", "Temperature", "Training", "Data", "Limitations", "Citation")]
    code = re.findall("```python\n(.*?)```", text, re.DOTALL)[0]
    assert '{"text": "A first text.", "text_pair": "A second text."}' in code and ast.parse(code)
    assert (
        headline_of(result) in text
        and correction_verdict(result, "the 60 samples of the test set of org/data", "samples") in text
    )
    assert "not stated" not in text and "unknown" not in text


def test_what_the_card_of_the_base_model_says_is_kept(tmp_path):
    """`hf upload` publishes the card as it is, so it has the license right away."""
    (tmp_path / "README.md").write_text("---\nlicense: mit\nlanguage: de\nbase_model: org/encoder\n---\n# Base\n")
    corrected = card_of(base=str(tmp_path), training=None).data
    assert (corrected.license, corrected.language, corrected.base_model) == ("mit", "de", "org/encoder")
    trained = card_of(base=str(tmp_path)).data
    assert (trained.license, trained.language, trained.base_model) == ("mit", None, "org/encoder")
    assert card_of(base=str(tmp_path), license="apache-2.0", language="en", training=None).data.license == "apache-2.0"
    (tmp_path / "README.md").write_text("---\nlicense: [\n---\n")
    with pytest.warns(UserWarning, match=r"no license and no language from .*README\.md', which cannot be read: "):
        assert "license" not in front_matter(card_of(base=str(tmp_path)))


@pytest.mark.parametrize("error", [OSError("offline"), ConnectionError(), HTTPError("timeout")])
def test_a_card_does_without_the_hub_but_bugs_are_errors(error, monkeypatch):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(huggingface_hub, "model_info", fail)
    assert read_base_metadata("org/base") == {} == read_base_metadata(None)
    error = KeyError("a bug")
    with pytest.raises(KeyError, match="a bug"):
        read_base_metadata("org/base")


def test_blank_lines_of_code_stay(monkeypatch):
    code = 'text = "a\n\n\n\nb"\n\n\n\nprint(text)'
    text = card_of(usage=code).text
    assert f"```python\n{code}\n```" in text
    assert "\n\n\n" not in text.replace(code, "")


def test_pictures_are_side_by_side_with_one_legend():
    text = card_of().text
    (row,) = [line for line in text.splitlines() if line.startswith("| ![")]
    assert row.count("![Reliability diagram") == 2 and text.count("end at the diagonal") == 1
    assert text.index("## Use") < text.index("## Results") < text.index(row) < text.index("## Temperature")


def test_the_code_of_label_words_says_what_a_stranger_replaces_and_downloads():
    prompt = ("Text: {text}", ["text"], ["no", "yes"], ["no", "yes"], {"one_logit": False})
    local, on_hub = correction_usage("smollm", *prompt, is_folder=True), correction_usage("user/lm", *prompt)
    assert "# Replace smollm by the language model's id on the Hub, or by the path of its folder.\nmodel =" in local
    assert "Replace" not in on_hub
    for code in (local, on_hub):
        ast.parse(code)
        assert "# Download correction.json, which is beside this card, to the current folder first.\nprint(" in code


def test_the_card_of_a_log_of_answers_says_what_the_probability_is_of(tmp_path):
    random = np.random.default_rng(0)
    confidence = random.uniform(0.5, 0.99, 400)
    table = {"confidence": confidence, "correct": random.random(400) < confidence**2}
    options = {"score_column": "confidence", "label_column": "correct", "kind": "probabilities"}
    calibrate_scores(table, method="temperature", output=tmp_path / "trust", **options)
    assert "the calibrated probability that an answer is right." in (tmp_path / "trust" / "README.md").read_text()
