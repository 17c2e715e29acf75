"""Publishing from the trainer: what is saved and uploaded is calibrated, and nothing is lost on the way."""

import json
import logging
import os
import subprocess
import sys
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from hub_server import READER
from huggingface_hub import ModelCard
from papers.data.tokenizer_training import train_word_tokenizer
from papers.models import GPCNNConfig, GPCNNForSequenceClassification
from tiny_models import NUM_LABELS, BagOfWords, StopAt, logits_of, rows, settings, tiny_bert
from transformers import (
    AutoModelForSequenceClassification,
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
)

from hf_focal import Temperature, apply_calibrated_generation, calibrated_generation, fold_temperature
from hf_focal.calibration import correction_from_dict
from hf_focal.cli.main import main
from hf_focal.hub.hub_publishing import HubError, publish
from hf_focal.trainer import FocalTrainer, FocalTrainingArguments, state_and_saving
from hf_focal.trainer.state_and_saving import weight_files

LOAD_FROM_HUB = """
import json, sys
from transformers import pipeline
classifier = pipeline("text-classification", model=sys.argv[1], top_k=None)
found = [{score["label"]: score["score"] for score in scores} for scores in classifier(json.loads(sys.argv[2]))]
assert "hf_focal" not in sys.modules
print(json.dumps(found))
"""


def trainer_of(folder, model=None, **options):
    arguments = settings(folder, loss="focal:gamma=2", **options)
    return FocalTrainer(
        model=tiny_bert() if model is None else model,
        args=FocalTrainingArguments(**arguments),
        train_dataset=rows(16),
        eval_dataset=rows(40, seed=1),
    )


def card_in(folder):
    return ModelCard.load(Path(folder) / "README.md")


def values_of(card):
    return {entry.metric_name: entry.metric_value for entry in card.data.eval_results}


def test_one_call_writes_the_report_and_its_page(tmp_path, capsys):
    trainer = trainer_of(tmp_path / "model")
    trainer.fit_temperature()
    result = trainer.report(rows(30, seed=2))
    before, after = (metrics.compute() for metrics in trainer.measure(rows(30, seed=2)))
    assert (result.pre["ece"], result.post["ece"]) == (before["ece"], after["ece"])
    page = (tmp_path / "model" / "report.html").read_text(encoding="utf-8")
    assert f"ECE {100 * after['ece']:.2f}%" in page and "On 30 samples of " in page
    assert (tmp_path / "model" / "report" / "reliability_after.svg").is_file()
    assert main(["report", str(tmp_path / "model"), "--output", str(tmp_path / "page.html")]) == 0
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page
    assert str(tmp_path / "page.html") in capsys.readouterr().out


@pytest.mark.slow
def test_what_is_published_is_calibrated_for_whoever_loads_it(hub, tmp_path):
    texts = ["a b", "c d e", "b b b f"]
    tokenizer = train_word_tokenizer(["a b c d e f"], vocab_size=12)
    trainer = trainer_of(tmp_path / "model", tiny_bert().float())
    trainer.processing_class = tokenizer
    encoded = [tokenizer(text, return_tensors="pt") for text in texts]
    validation = Dataset.from_list([{"input_ids": torch.arange(2, 8) % 6 + i % 4, "labels": i % 4} for i in range(30)])
    temperature = trainer.fit_temperature(validation)
    assert abs(temperature.value - 1) > 0.2

    commit = trainer.push_to_hub(test_dataset=validation)
    assert str(commit.repo_url) == f"{hub.url}/me/model"
    own = {"HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "0", "HF_HOME": str(tmp_path / "cache")}
    command = [sys.executable, "-c", LOAD_FROM_HUB, "me/model", json.dumps(texts)]
    output = subprocess.run(command, env=os.environ | own, check=True, capture_output=True, text=True).stdout
    found = json.loads(output.splitlines()[-1])
    with torch.no_grad():
        logits = torch.cat([trainer.model.eval()(**inputs).logits for inputs in encoded])
    expected = torch.softmax(logits.double() / temperature.value, -1)
    assert (torch.softmax(logits.double(), -1) - expected).abs().max() > 1e-3
    for row, scores in zip(expected, found, strict=True):
        loaded = torch.tensor([scores[f"LABEL_{label}"] for label in range(NUM_LABELS)], dtype=torch.float64)
        torch.testing.assert_close(loaded, row, rtol=0, atol=1e-6)
    # What is here is as it was.
    assert trainer.temperature is temperature and not hasattr(trainer.model.config, "calibration")
    with torch.no_grad():
        assert torch.equal(trainer.model(**encoded[0]).logits, logits[:1])
    published = hub.repositories["me/model"]
    assert {"README.md", "temperature.json", "report/metrics.json", "report/reliability_after.png"} <= set(published)
    assert not {"run.json", "training_args.bin"} & set(published)


def test_the_card_has_what_was_measured(hub, tmp_path):
    trainer = trainer_of(tmp_path / "model")
    trainer.train()
    temperature = trainer.fit_temperature()
    test = rows(30, seed=2)
    before, after = (metrics.compute() for metrics in trainer.measure(test))
    trainer.push_to_hub(
        test_dataset=test,
        finetuned_from="org/base",
        dataset_tags=["org/data"],
        dataset_args="en",
        language="en",
        license="mit",
        tags=["mine"],
    )
    card = card_in(tmp_path / "model")
    assert card.content.encode() == hub.repositories["me/model"]["README.md"]
    assert card.data.base_model == "org/base" and card.data.datasets == "org/data" and card.data.license == "mit"
    assert card.data.pipeline_tag == "text-classification" and "mine" in card.data.tags
    values = values_of(card)
    assert values["ECE"] == pytest.approx(after["ece"]) and values["Accuracy"] == pytest.approx(after["accuracy"])
    assert values["ECE before temperature scaling"] == pytest.approx(before["ece"])
    assert {entry.dataset_split for entry in card.data.eval_results} == {"test"}
    for text in (
        f"T = {temperature.value:.6g}",
        'loss="focal:gamma=2"',
        "| learning rate | 0.5 |",
        'model="me/model"',
    ):
        assert text in card.text
    assert "| configuration of the dataset | en |" in card.text and "It is folded into the weights" in card.text


def test_without_a_test_set_the_card_is_about_validation(hub, tmp_path):
    trainer = trainer_of(tmp_path / "model")
    trainer.fit_temperature()
    trainer.push_to_hub()
    card = card_in(tmp_path / "model")
    assert {entry.dataset_split for entry in card.data.eval_results} == {"validation"}
    assert "which are therefore optimistic" in card.text


def test_results_on_the_data_of_the_fit_are_called_optimistic(hub, tmp_path, caplog):
    trainer, test = trainer_of(tmp_path / "model"), rows(15, seed=5)
    trainer.fit_temperature(test)
    trainer.create_model_card(test_dataset=test)
    assert "which are therefore optimistic" in card_in(tmp_path / "model").text
    assert "the results after T are optimistic" in caplog.text
    trainer.create_model_card(test_dataset=rows(15, seed=6))
    assert "optimistic" not in card_in(tmp_path / "model").text


def test_data_that_are_loaded_twice_are_the_data_of_the_fit(tmp_path):
    trainer, samples = trainer_of(tmp_path / "model"), [row | {"input_ids": [4, 7, 9]} for row in rows(15, seed=5)]
    trainer.fit_temperature(Dataset.from_list(samples))
    trainer.create_model_card(test_dataset=Dataset.from_list(samples))
    assert "which are therefore optimistic" in card_in(tmp_path / "model").text
    trainer.report(Dataset.from_list(samples))
    page = (tmp_path / "model" / "report.html").read_text(encoding="utf-8")
    assert "so the values after it are optimistic" in page and "On the calibration data; 15 samples" in page


def test_the_card_names_the_data_of_the_fit_and_those_of_the_results(tmp_path):
    trainer = trainer_of(tmp_path / "model")
    trainer.fit_temperature(rows(15, seed=5))
    trainer.create_model_card()
    assert "of the calibration split, not on the validation set" in card_in(tmp_path / "model").text
    trainer.eval_dataset = {"near": trainer.eval_dataset, "far": rows(15, seed=6)}
    trainer.fit_temperature("near")
    trainer.create_model_card(test_dataset="far")
    card = card_in(tmp_path / "model")
    assert "of the near split, not on the far set" in card.text
    assert {entry.dataset_split for entry in card.data.eval_results} == {"far"}


@pytest.mark.parametrize(
    ("planned", "setting"), [({"num_train_epochs": 5}, "epochs | 1 "), ({"max_steps": 9}, "steps | 2 ")]
)
def test_the_card_of_a_training_that_was_stopped_says_how_long_it_was(planned, setting, tmp_path):
    trainer = trainer_of(tmp_path / "model", **planned)
    trainer.add_callback(StopAt(2))
    trainer.train()
    trainer.create_model_card()
    assert f"| {setting}|" in card_in(tmp_path / "model").text


def test_the_fit_is_kept_whatever_fails_in_folding(tmp_path, caplog, monkeypatch):
    trainer = trainer_of(tmp_path / "model")
    trainer.temperature = fitted = replace(trainer.fit_temperature(), value=1e-310)
    trainer.save_calibrated()
    assert "T = 1e-310 is not in the saved weights" in caplog.text and "weights and logits finite" in caplog.text
    assert Temperature.load(tmp_path / "model" / "temperature.json") == fitted

    def fail(*args):
        raise RuntimeError("of the model's own code")

    monkeypatch.setattr(state_and_saving, "fold_calibration", fail)
    trainer.temperature = fitted = replace(fitted, value=1.5)
    trainer.save_calibrated()
    assert "T = 1.5 is not in the saved weights, so it must be applied" in caplog.text
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    assert config["calibration"]["folded"] is False and correction_from_dict(config["calibration"]) == fitted
    assert Temperature.load(tmp_path / "model" / "temperature.json") == fitted


def test_saving_the_model_without_its_temperature_is_told(tmp_path, caplog):
    trainer = trainer_of(tmp_path / "model")
    trainer.save_model()
    assert "without its temperature" not in caplog.text
    trainer.fit_temperature()
    trainer.save_calibrated()
    assert "without its temperature" not in caplog.text
    trainer.save_model()
    assert "without its temperature: save_calibrated saves it with it" in caplog.text


def test_a_temperature_that_is_folded_already_is_not_folded_again(hub, tmp_path, caplog):
    trainer = trainer_of(tmp_path / "model")
    temperature = trainer.fit_temperature()
    assert abs(temperature.value - 1) > 0.2
    fold_temperature(trainer.model, temperature)
    trainer.push_to_hub()
    saved = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model")
    torch.testing.assert_close(logits_of(saved, rows(5)), logits_of(trainer.model, rows(5)))
    assert saved.config.calibration["temperature"] == temperature.value
    assert "without a temperature" not in caplog.text
    card = card_in(tmp_path / "model")
    assert f"T = {temperature.value:.6g} is folded into the weights; the results above include it" in card.text
    # Measured once more, T is applied once.
    assert trainer.measure(rows(40, seed=1))[1] is None


def test_a_temperature_that_is_in_the_config_alone_is_not_said_to_be_in_the_weights(tmp_path):
    trainer = trainer_of(tmp_path / "model")
    trainer.model.config.calibration = {"temperature": 2.0, "folded": False}
    trainer.save_calibrated()
    trainer.create_model_card()
    assert "folded into the weights" not in card_in(tmp_path / "model").text


def test_a_model_without_temperature_is_published_with_a_warning(hub, tmp_path, caplog):
    trainer = trainer_of(tmp_path / "model")
    (tmp_path / "model").mkdir(exist_ok=True)
    (tmp_path / "model" / "temperature.json").write_text("of an earlier training")
    with caplog.at_level(logging.WARNING):
        trainer.push_to_hub()
    assert "published without a temperature: none was fitted, see fit_temperature" in caplog.text
    card = card_in(tmp_path / "model")
    assert "No temperature was fitted" in card.text and not any("before" in name for name in values_of(card))
    assert "temperature.json" not in hub.repositories["me/model"]
    saved = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model")
    torch.testing.assert_close(logits_of(saved, rows(5)), logits_of(trainer.model, rows(5)))


def test_a_temperature_that_cannot_be_folded_is_not_lost(hub, tmp_path, caplog):
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "head_dim": 4, "vocab_size": 20}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1}
    torch.manual_seed(0)
    model = Gemma2ForCausalLM(Gemma2Config(**sizes, **heads, final_logit_softcapping=5.0, pad_token_id=0))
    tokens = [{"input_ids": row["input_ids"] % 20, "labels": row["input_ids"] % 20} for row in rows(12)]
    trainer = FocalTrainer(model, FocalTrainingArguments(**settings(tmp_path / "lm")), eval_dataset=tokens)
    temperature = trainer.fit_temperature(objective="nll")
    with caplog.at_level(logging.WARNING):
        trainer.push_to_hub()
    assert "soft-cap" in caplog.text and "must be applied to their logits" in caplog.text
    saved = Gemma2ForCausalLM.from_pretrained(tmp_path / "lm")
    assert saved.config.calibration == {
        **{key: value for key, value in temperature.to_dict().items() if key != "value"},
        "temperature": temperature.value,
        "folded": False,
    }
    (warper,) = calibrated_generation(saved)["logits_processor"]
    assert warper.temperature == temperature.value
    for name, weight in model.state_dict().items():
        assert torch.equal(saved.state_dict()[name], weight)
    card = card_in(tmp_path / "lm")
    assert card.data.pipeline_tag == "text-generation" and "It is **not** in the weights" in card.text


def test_a_plain_module_is_published_with_its_temperature_beside_it(hub, tmp_path, caplog):
    trainer = trainer_of(tmp_path / "model", BagOfWords())
    temperature = trainer.fit_temperature()
    with pytest.raises(ValueError, match="tasks must be given, such as 'text-classification', for a BagOfWords, got"):
        trainer.push_to_hub()
    trainer.push_to_hub(tasks="text-classification")
    assert "the model must be one of Transformers, got BagOfWords" in caplog.text
    published = hub.repositories["me/model"]
    assert json.loads(published["temperature.json"])["value"] == temperature.value
    text = card_in(tmp_path / "model").text
    assert "It is **not** in the weights" in text and "## Use" not in text and "pipeline(" not in text


def test_own_models_say_what_they_need(hub, tmp_path):
    config = GPCNNConfig(vocab_size=30, embedding_size=4, num_filters=4, num_layers=1, hidden_size=4, num_labels=4)
    trainer = trainer_of(tmp_path / "model", GPCNNForSequenceClassification(config).double())
    trainer.fit_temperature()
    trainer.push_to_hub()
    assert "import papers.models" in card_in(tmp_path / "model").text


def test_nothing_to_measure_is_an_error_after_saving(hub, tmp_path):
    args = FocalTrainingArguments(**settings(tmp_path / "model"))
    trainer = FocalTrainer(tiny_bert(), args, train_dataset=rows(8))
    with pytest.raises(ValueError, match="test_dataset must be given"):
        trainer.push_to_hub()
    assert (tmp_path / "model" / "config.json").is_file() and hub.commits == []


def test_a_failed_push_keeps_the_calibrated_model_and_says_how_to_go_on(hub, tmp_path):
    trainer = trainer_of(tmp_path / "model", hub_model_id="me/mine")
    temperature = trainer.fit_temperature()
    hub.cut = 6
    with pytest.raises(HubError, match=r"the upload to 'me/mine' failed: .* hf upload me/mine ") as caught:
        trainer.push_to_hub()
    assert str(tmp_path / "model") in str(caught.value) and "\n" not in str(caught.value)
    saved = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model")
    assert saved.config.calibration["temperature"] == temperature.value
    assert values_of(card_in(tmp_path / "model"))
    publish(tmp_path / "model", "me/mine")
    assert {"README.md", "model.safetensors"} <= set(hub.repositories["me/mine"])


def test_who_may_not_push_keeps_the_model(hub, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", READER)
    trainer = trainer_of(tmp_path / "model")
    trainer.fit_temperature()
    with pytest.raises(HubError, match=r"no permission to write there.* the model is in"):
        trainer.push_to_hub()
    assert (tmp_path / "model" / "README.md").is_file() and (tmp_path / "model" / "temperature.json").is_file()
    # Where the arguments ask for a push, the error comes before any training.
    with pytest.raises(HubError, match="no permission to write there"):
        trainer_of(tmp_path / "other", push_to_hub=True)


def test_a_push_in_the_background(hub, tmp_path):
    trainer = trainer_of(tmp_path / "model")
    trainer.fit_temperature()
    future = trainer.push_to_hub(blocking=False)
    assert isinstance(future, Future)
    assert str(future.result(timeout=60).repo_url) == f"{hub.url}/me/model"


def test_save_model_pushes_where_the_arguments_ask_for_it(hub, tmp_path):
    trainer = trainer_of(tmp_path / "model", push_to_hub=True, hub_model_id="team/mine")
    temperature = trainer.fit_temperature()
    trainer.save_model()
    assert hub.commits[-1][:2] == ("team/mine", "Model save")
    config = json.loads(hub.repositories["team/mine"]["config.json"])
    assert config["calibration"]["temperature"] == temperature.value


def test_a_temperature_that_generation_applies_is_published_too(hub, tmp_path):
    sizes = {"n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 16, "vocab_size": 30}
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))
    tokens = [{"input_ids": row["input_ids"], "labels": row["input_ids"]} for row in rows(12)]
    trainer = FocalTrainer(model, FocalTrainingArguments(**settings(tmp_path / "lm")), eval_dataset=tokens)
    temperature = trainer.fit_temperature(objective="nll")
    apply_calibrated_generation(model, temperature)  # to see what it writes
    trainer.push_to_hub()
    saved = GPT2LMHeadModel.from_pretrained(tmp_path / "lm")
    assert saved.config.calibration["folded"] and saved.config.calibration["temperature"] == temperature.value
    inputs = {"input_ids": torch.tensor([[3, 4, 5]])}
    torch.testing.assert_close(saved(**inputs).logits, model.eval()(**inputs).logits / temperature.value)


def test_training_on_forgets_the_temperature_of_the_weights_as_they_were(hub, tmp_path, caplog):
    trainer = trainer_of(tmp_path / "model")
    fold_temperature(trainer.model, trainer.fit_temperature())
    trainer.train()
    assert trainer.calibration() == {}
    temperature = trainer.fit_temperature()
    trainer.save_calibrated()
    saved = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model")
    assert saved.config.calibration["temperature"] == temperature.value
    assert saved.config.calibration["ece_after"] == temperature.ece_after


def test_what_was_saved_before_is_not_folded(tmp_path, monkeypatch, caplog):
    """FSDP with sharded state dicts saves nothing here; the weights in the folder are others."""
    trainer = trainer_of(tmp_path / "model")
    temperature = trainer.fit_temperature()
    trainer.save_model()
    before = (tmp_path / "model" / "model.safetensors").read_bytes()
    monkeypatch.setattr(Trainer, "save_model", lambda *args: None)
    trainer.save_calibrated()
    assert "the model must be saved unsharded" in caplog.text
    assert (tmp_path / "model" / "model.safetensors").read_bytes() == before
    assert json.loads((tmp_path / "model" / "temperature.json").read_text())["value"] == temperature.value


def test_weights_written_within_a_tick_of_the_clock_are_others(tmp_path):
    seen = []
    for content in (b"first", b"second"):
        (tmp_path / "new").write_bytes(content)
        (tmp_path / "new").replace(tmp_path / "model.safetensors")  # as safetensors writes
        os.utime(tmp_path / "model.safetensors", ns=(10**18, 10**18))
        seen.append(weight_files(tmp_path))
    assert seen[0] != seen[1] == weight_files(tmp_path)


def test_saving_the_model_as_trained_takes_its_temperature_away(tmp_path):
    trainer = trainer_of(tmp_path / "model")
    trainer.fit_temperature()
    trainer.save_calibrated()
    trainer.save_model()
    assert not (tmp_path / "model" / "temperature.json").exists()
    trainer.create_model_card()
    assert "It is **not** in the weights" in card_in(tmp_path / "model").text


def test_a_second_push_takes_away_what_is_no_longer_true(hub, tmp_path):
    trainer = trainer_of(tmp_path / "model")
    trainer.fit_temperature()
    trainer.push_to_hub()
    assert {"temperature.json", "report/reliability_after.png"} <= set(hub.repositories["me/model"])
    trainer.train()
    trainer.push_to_hub()
    assert not {"temperature.json", "report/reliability_after.png"} & set(hub.repositories["me/model"])
    assert not (tmp_path / "model" / "report" / "reliability_after.png").exists()
