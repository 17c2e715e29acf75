"""Publishing from the trainer: what is saved and uploaded is calibrated, and nothing is lost on the way."""

import json
import logging
import os
import pickle
from concurrent.futures import Future
from dataclasses import replace

import pytest
import tiny_models
import torch
from datasets import Dataset
from hub_server import READER, WRITER
from huggingface_hub import ModelCard
from language_models import build, padded, texts
from papers.data.tokenizer_training import train_word_tokenizer
from papers.models import GPCNNConfig, GPCNNForSequenceClassification
from papers.runs.output_folders import claim_output_dir
from safetensors.torch import load
from tiny_models import NUM_LABELS, BagOfWords, StopAt, logits_of, rows, settings, tiny_bert
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    AutoModelForSequenceClassification,
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
    Trainer,
    pipeline,
)

from hf_focal import FocalTrainer, FocalTrainingArguments, Temperature, calibrated_generation, fold_correction
from hf_focal.calibration import CalibrationFit, Correction, apply_calibrated_generation
from hf_focal.calibration.calibration_record import recorded_calibration
from hf_focal.cli.main import main
from hf_focal.hub.hub_publishing import HubError, publish
from hf_focal.trainer import saved_model_folding
from hf_focal.trainer.saved_model_folding import weight_files
from hf_focal.utils.folder_lock import unlock_all


def trainer_of(folder, model=None, **options):
    """Its folder is `model` in the given one, and so its repository is me/model."""
    options = {"loss": "focal:gamma=2", "eval_dataset": rows(40, seed=1)} | options
    return tiny_models.trainer_of(folder / "model", model, **options)


@pytest.fixture
def fitted(tmp_path):
    """A trainer with a temperature."""
    trainer = trainer_of(tmp_path)
    trainer.fit_temperature()
    assert abs(trainer.fit.temperature.value - 1) > 0.2
    return trainer


def card_in(folder):
    return ModelCard.load(folder / "model" / "README.md")


def values_of(card):
    return {entry.metric_name: entry.metric_value for entry in card.data.eval_results}


def splits_of(card):
    return {entry.dataset_split for entry in card.data.eval_results}


def saved_in(folder):
    return AutoModelForSequenceClassification.from_pretrained(folder / "model")


# The report and the card


def test_one_call_writes_the_report_and_its_page(fitted, tmp_path, capsys):
    result = fitted.report(rows(30, seed=2), no_examples=True)
    before, after = (metrics.compute() for metrics in fitted.measure(rows(30, seed=2)))
    assert (result.pre["ece"], result.post["ece"]) == (before["ece"], after["ece"])
    page = (tmp_path / "model" / "report.html").read_text(encoding="utf-8")
    assert f"ECE {100 * after['ece']:.2f}%" in page and "On 30 samples of " in page
    assert (tmp_path / "model" / "report" / "reliability_after.png").is_file()
    assert main(["report", str(tmp_path / "model"), "--output", str(tmp_path / "page.html")]) == 0
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page
    assert str(tmp_path / "page.html") in capsys.readouterr().out


def test_the_card_has_what_was_measured(hub, tmp_path):
    trainer, test = trainer_of(tmp_path), rows(30, seed=2)
    trainer.train()
    temperature = trainer.fit_temperature()
    before, after = (metrics.compute() for metrics in trainer.measure(test))
    named = {"finetuned_from": "org/base", "dataset_tags": ["org/data"], "dataset_args": "en", "language": "en"}
    trainer.push_to_hub(test_dataset=test, license="mit", tags=["mine"], **named)
    card = card_in(tmp_path)
    assert card.content.encode() == hub.repositories["me/model"]["README.md"]
    assert card.data.base_model == "org/base" and card.data.datasets == "org/data" and card.data.license == "mit"
    assert card.data.pipeline_tag == "text-classification" and "mine" in card.data.tags
    values = values_of(card)
    assert values["ECE"] == pytest.approx(after["ece"]) and values["Accuracy"] == pytest.approx(after["accuracy"])
    assert values["ECE before temperature scaling"] == pytest.approx(before["ece"])
    assert splits_of(card) == {"test"}
    for text in (
        f"T = {temperature.value:.6g}",
        'loss="focal:gamma=2"',
        "| learning rate | 0.5 |",
        'model="me/model"',
        "| configuration of the dataset | en |",
        "It is folded into the weights",
    ):
        assert text in card.text


def test_results_on_the_data_of_the_fit_are_called_optimistic(fitted, tmp_path, caplog):
    fitted.create_model_card()
    assert "which are therefore optimistic" in card_in(tmp_path).text and splits_of(card_in(tmp_path)) == {
        "validation"
    }
    assert "the results after it are optimistic" in caplog.text
    fitted.create_model_card(test_dataset=rows(15, seed=6))
    assert "optimistic" not in card_in(tmp_path).text
    # Data that are loaded twice are the same.
    samples = [row | {"input_ids": [4, 7, 9]} for row in rows(15, seed=5)]
    fitted.fit_temperature(Dataset.from_list(samples))
    fitted.create_model_card(test_dataset=Dataset.from_list(samples))
    assert "which are therefore optimistic" in card_in(tmp_path).text
    fitted.report(Dataset.from_list(samples))
    page = (tmp_path / "model" / "report.html").read_text(encoding="utf-8")
    assert "so the values after it are optimistic" in page and "On the calibration data; 15 samples" in page


def test_the_card_names_the_data_of_the_fit_and_those_of_the_results(tmp_path):
    trainer = trainer_of(tmp_path)
    trainer.fit_temperature(rows(15, seed=5))
    trainer.create_model_card()
    assert "of the calibration split, not on the validation set" in card_in(tmp_path).text
    trainer.eval_dataset = {"near": trainer.eval_dataset, "far": rows(15, seed=6)}
    trainer.fit_temperature("near")
    trainer.create_model_card(test_dataset="far")
    assert "of the near split, not on the far set" in card_in(tmp_path).text and splits_of(card_in(tmp_path)) == {
        "far"
    }


@pytest.mark.parametrize(
    ("planned", "setting"), [({"num_train_epochs": 5}, "epochs | 1 "), ({"max_steps": 9}, "steps | 2 ")]
)
def test_the_card_of_a_training_that_was_stopped_says_how_long_it_was(planned, setting, tmp_path):
    trainer = trainer_of(tmp_path, callbacks=[StopAt(2)], **planned)
    trainer.train()
    trainer.create_model_card()
    assert f"| {setting}|" in card_in(tmp_path).text


def test_own_models_say_what_they_need(tmp_path):
    config = GPCNNConfig(vocab_size=30, embedding_size=4, num_filters=4, num_layers=1, hidden_size=4, num_labels=4)
    trainer = trainer_of(tmp_path, GPCNNForSequenceClassification(config).double())
    trainer.fit_temperature()
    trainer.save_calibrated()
    trainer.create_model_card()
    assert "import papers.models" in card_in(tmp_path).text


# Saving


def test_the_fit_is_kept_whatever_fails_in_folding(fitted, tmp_path, caplog, monkeypatch):
    temperature = replace(fitted.fit.temperature, value=1e-300)
    for parameter in [*fitted.model.parameters()][-2:]:  # the head, whose weights in float64 then overflow
        parameter.data.mul_(1e20)
    fitted.fit = CalibrationFit.from_temperature(temperature)
    fitted.save_calibrated()
    assert "T = 1e-300 is not in the saved weights" in caplog.text and "weights and logits finite" in caplog.text
    assert Temperature.load(tmp_path / "model" / "temperature.json") == temperature

    def fail(*args):
        raise RuntimeError("of the model's own code")

    monkeypatch.setattr(saved_model_folding, "fold_correction", fail)
    temperature = replace(temperature, value=1.5)
    fitted.fit = CalibrationFit.from_temperature(temperature)
    fitted.save_calibrated()
    assert "T = 1.5 is not in the saved weights, so it must be applied" in caplog.text
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    assert (
        config["calibration"]["folded"] is False
        and Correction.from_dict(config["calibration"]) == temperature.correction
    )
    assert Temperature.load(tmp_path / "model" / "temperature.json") == temperature


def test_saving_the_model_as_trained_takes_its_temperature_away_and_tells_so(fitted, tmp_path, caplog):
    fitted.save_calibrated()
    assert "without its correction" not in caplog.text
    fitted.save_model()
    assert "without its correction: use save_calibrated to save both" in caplog.text
    assert not (tmp_path / "model" / "temperature.json").exists()
    fitted.create_model_card()
    assert "It is **not** in the weights" in card_in(tmp_path).text


def test_a_temperature_that_is_folded_already_is_not_folded_again(fitted, tmp_path, caplog):
    temperature = fitted.fit.temperature
    fold_correction(fitted.model, temperature)
    fitted.save_calibrated()
    fitted.create_model_card()
    saved = saved_in(tmp_path)
    torch.testing.assert_close(logits_of(saved, rows(5)), logits_of(fitted.model, rows(5)))
    assert saved.config.calibration["temperature"] == temperature.value
    assert f"T = {temperature.value:.6g} is folded into the weights; the results above" in card_in(tmp_path).text
    assert fitted.measure(rows(40, seed=1))[1] is None  # measured once more, T is applied once
    fitted.train()  # the record is that of the weights as they were
    assert recorded_calibration(fitted.model.config) == {}
    temperature = fitted.fit_temperature()
    fitted.save_calibrated()
    assert saved_in(tmp_path).config.calibration["temperature"] == temperature.value


def test_a_temperature_that_is_in_the_config_alone_is_not_said_to_be_in_the_weights(tmp_path):
    trainer = trainer_of(tmp_path)
    trainer.model.config.calibration = {"temperature": 2.0, "folded": False}
    trainer.save_calibrated()
    trainer.create_model_card()
    assert "folded into the weights" not in card_in(tmp_path).text


def test_what_was_saved_before_is_not_folded(fitted, tmp_path, monkeypatch, caplog):
    """FSDP with sharded state dicts saves nothing here; the weights in the folder are others."""
    temperature = fitted.fit.temperature
    fitted.save_model()
    before = (tmp_path / "model" / "model.safetensors").read_bytes()
    monkeypatch.setattr(Trainer, "save_model", lambda *args: None)
    fitted.save_calibrated()
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


# Publishing


@pytest.mark.parametrize("form", ["[CLS] {} [SEP]", "<s> {} </s>"])
def test_the_card_of_a_trainer_shows_a_pair_if_it_was_trained_on_pairs(tmp_path, form):
    start, _, end = form.split()
    words = Tokenizer(models.WordLevel({token: i for i, token in enumerate(["[PAD]", start, end, "a", "b"])}, "a"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    middle = f"{end} {end}" if start == "<s>" else end  # as RoBERTa and BERT separate texts
    words.post_processor = processors.TemplateProcessing(
        single=f"{start} $A {end}", pair=f"{start} $A {middle} $B {end}", special_tokens=[(start, 1), (end, 2)]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="[PAD]", cls_token=start, sep_token=end, bos_token=start, eos_token=end
    )
    for inputs, shown in ((("a b b",), False), (("a", "b a"), True)):
        encoded = tokenizer(*inputs, padding="max_length", max_length=10)
        samples = [{**encoded, "labels": label % NUM_LABELS} for label in range(8)]
        trainer = trainer_of(
            tmp_path / str(shown), processing_class=tokenizer, train_dataset=samples, eval_dataset=[*samples]
        )
        trainer.create_model_card()
        text = (tmp_path / str(shown) / "model" / "README.md").read_text(encoding="utf-8")
        assert ('"text_pair"' in text) is shown


@pytest.mark.slow
def test_what_is_published_is_calibrated_for_whoever_loads_it(hub, tmp_path):
    samples = ["a b", "c d e", "b b b f"]
    tokenizer = train_word_tokenizer(["a b c d e f"], vocab_size=12)
    trainer = trainer_of(tmp_path, tiny_bert().float(), processing_class=tokenizer)
    encoded = [tokenizer(text, return_tensors="pt") for text in samples]
    validation = Dataset.from_list([{"input_ids": torch.arange(2, 8) % 6 + i % 4, "labels": i % 4} for i in range(30)])
    temperature = trainer.fit_temperature(validation)
    assert abs(temperature.value - 1) > 0.2
    with torch.no_grad():
        logits = torch.cat([trainer.model.eval()(**inputs).logits for inputs in encoded])

    commit = trainer.push_to_hub(test_dataset=validation)
    assert str(commit.repo_url) == f"{hub.url}/me/model"
    published = hub.repositories["me/model"]
    assert {"README.md", "temperature.json", "report/metrics.json", "report/reliability_after.png"} <= set(published)
    assert not {"run.json", "training_args.bin"} & set(published)
    for name, content in published.items():
        (tmp_path / "loaded" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "loaded" / name).write_bytes(content)
    actual = pipeline("text-classification", str(tmp_path / "loaded"), top_k=None)(samples)
    expected = torch.softmax(logits.double() / temperature.value, -1)
    assert (torch.softmax(logits.double(), -1) - expected).abs().max() > 1e-3
    for row, scores in zip(expected, actual, strict=True):
        by_label = {score["label"]: score["score"] for score in scores}
        assert [by_label[f"LABEL_{label}"] for label in range(NUM_LABELS)] == pytest.approx(row.tolist(), abs=1e-6)
    # What is here is as it was.
    assert trainer.fit.temperature is temperature and not hasattr(trainer.model.config, "calibration")
    with torch.no_grad():
        assert torch.equal(trainer.model(**encoded[0]).logits, logits[:1])


def test_a_model_without_temperature_is_published_with_a_warning(hub, tmp_path, caplog):
    trainer = trainer_of(tmp_path)
    (tmp_path / "model").mkdir(exist_ok=True)
    (tmp_path / "model" / "temperature.json").write_text("of an earlier training")
    with caplog.at_level(logging.WARNING):
        trainer.push_to_hub()
    assert "published without a correction, because none was fitted: see fit_temperature" in caplog.text
    card = card_in(tmp_path)
    assert "No temperature was fitted" in card.text and not any("before" in name for name in values_of(card))
    assert "temperature.json" not in hub.repositories["me/model"]
    torch.testing.assert_close(logits_of(saved_in(tmp_path), rows(5)), logits_of(trainer.model, rows(5)))


def test_a_temperature_that_cannot_be_folded_is_not_lost(hub, tmp_path, caplog):
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "head_dim": 4, "vocab_size": 24}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1}
    torch.manual_seed(0)
    model = Gemma2ForCausalLM(Gemma2Config(**sizes, **heads, final_logit_softcapping=5.0, pad_token_id=0))
    trainer = trainer_of(tmp_path, model, eval_dataset=texts(12), data_collator=padded)
    temperature = trainer.fit_temperature(objective="nll")
    with caplog.at_level(logging.WARNING):
        trainer.push_to_hub()
    assert "soft-cap" in caplog.text and "must be applied to their logits" in caplog.text
    saved = Gemma2ForCausalLM.from_pretrained(tmp_path / "model")
    assert saved.config.calibration == {"temperature": temperature.value, "folded": False}
    (warper,) = calibrated_generation(saved)["logits_processor"]
    assert warper.temperature == temperature.value
    for name, weight in model.state_dict().items():
        assert torch.equal(saved.state_dict()[name], weight)
    card = card_in(tmp_path)
    assert card.data.pipeline_tag == "text-generation" and "It is **not** in the weights" in card.text


def test_a_temperature_that_generation_applies_is_published_too(hub, tmp_path):
    model = build("gpt2")
    trainer = trainer_of(tmp_path, model, eval_dataset=texts(12), data_collator=padded)
    temperature = trainer.fit_temperature(objective="nll")
    apply_calibrated_generation(model, temperature)  # to see what it writes
    trainer.push_to_hub()
    saved = GPT2LMHeadModel.from_pretrained(tmp_path / "model", dtype=torch.float64)
    assert saved.config.calibration["folded"] and saved.config.calibration["temperature"] == temperature.value
    inputs = {"input_ids": torch.tensor([[3, 4, 5]])}
    torch.testing.assert_close(saved(**inputs).logits, model.eval()(**inputs).logits / temperature.value)


def test_a_plain_module_is_published_with_its_temperature_beside_it(hub, tmp_path, caplog):
    trainer = trainer_of(tmp_path, BagOfWords())
    temperature = trainer.fit_temperature()
    with pytest.raises(ValueError, match="tasks must be given for a BagOfWords, such as 'text-classification', got"):
        trainer.push_to_hub()
    trainer.push_to_hub(tasks="text-classification")
    assert "the model must be one of Transformers, got BagOfWords" in caplog.text
    published = hub.repositories["me/model"]
    assert json.loads(published["temperature.json"])["value"] == temperature.value
    text = card_in(tmp_path).text
    assert "It is **not** in the weights" in text and "## Use" not in text and "pipeline(" not in text


def test_nothing_to_measure_is_an_error_after_saving(hub, tmp_path):
    with pytest.raises(ValueError, match="test_dataset must be given"):
        trainer_of(tmp_path, eval_dataset=None).push_to_hub()
    assert (tmp_path / "model" / "config.json").is_file() and hub.commits == []


def test_a_failed_push_keeps_the_calibrated_model_and_says_how_to_go_on(hub, fitted, tmp_path):
    fitted.args.hub_model_id, hub.cut = "me/mine", 6
    with pytest.raises(HubError, match=r"the upload to 'me/mine' failed: .* hf upload me/mine ") as caught:
        fitted.push_to_hub()
    assert str(tmp_path / "model") in str(caught.value) and "\n" not in str(caught.value)
    assert saved_in(tmp_path).config.calibration["temperature"] == fitted.fit.temperature.value
    assert values_of(card_in(tmp_path))
    publish(tmp_path / "model", "me/mine")
    assert {"README.md", "model.safetensors"} <= set(hub.repositories["me/mine"])


def test_who_may_not_push_keeps_the_model(hub, fitted, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", READER)
    with pytest.raises(HubError, match=r"no permission to write there.* the model is in"):
        fitted.push_to_hub()
    assert (tmp_path / "model" / "README.md").is_file() and (tmp_path / "model" / "temperature.json").is_file()
    # Where the arguments ask for a push, the error comes before any training.
    with pytest.raises(HubError, match="no permission to write there"):
        trainer_of(tmp_path / "other", push_to_hub=True)


def test_a_second_push_in_the_background_takes_away_what_is_no_longer_true(hub, fitted, tmp_path):
    fitted.push_to_hub()
    calibrated = {"temperature.json", "report/reliability_after.png"}
    assert calibrated <= set(hub.repositories["me/model"])
    fitted.train()
    future = fitted.push_to_hub(blocking=False)
    assert isinstance(future, Future)
    assert str(future.result(timeout=60).repo_url) == f"{hub.url}/me/model"
    assert not calibrated & set(hub.repositories["me/model"])
    assert not (tmp_path / "model" / "report" / "reliability_after.png").exists()


def test_save_model_pushes_where_the_arguments_ask_for_it(hub, tmp_path):
    trainer = trainer_of(tmp_path, push_to_hub=True, hub_model_id="team/mine")
    temperature = trainer.fit_temperature()
    trainer.save_model()
    assert hub.commits[-1][:2] == ("team/mine", "Model save")
    config = json.loads(hub.repositories["team/mine"]["config.json"])
    assert config["calibration"]["temperature"] == temperature.value


# Pushes while a model is trained: the model, and never a token, a path or a row of the data


def trained(folder, **options) -> FocalTrainer:
    """A trainer that has trained two epochs, of which each is saved, in a folder with what is nobody's business."""
    claim_output_dir(folder / "model", {"train_file": str(folder / "train.csv")})
    unlock_all()
    (folder / "model" / "train_texts.csv").write_text("text,label\n")
    (folder / "model" / ".env").write_text("HF_TOKEN=hf_writer")
    pushes = {"push_to_hub": True, "hub_model_id": "me/model", "hub_token": WRITER, "hub_always_push": True}
    pushes |= {"hub_strategy": "every_save", "num_train_epochs": 2, "save_strategy": "epoch"}
    trainer = trainer_of(folder, **pushes | options)
    trainer.train()
    return trainer


def test_what_is_pushed_is_the_model(hub, tmp_path, monkeypatch):
    monkeypatch.delenv("HF_TOKEN")
    trainer = trained(tmp_path, save_total_limit=1)
    # All that was ever committed: what is removed later stays in the history.
    assert {path for _, _, paths in hub.commits for path in paths} == {"config.json", "model.safetensors"}
    assert [summary for _, summary, _ in hub.commits] == [f"Training in progress, step {step}" for step in (2, 4)]
    weights = load(hub.repositories["me/model"]["model.safetensors"])
    assert all(torch.equal(weights[name], weight) for name, weight in trainer.model.state_dict().items())
    assert not list((tmp_path / "model").glob("_push-*"))


def test_no_file_of_a_run_holds_the_token(hub, tmp_path):
    trainer = trained(tmp_path)
    trainer.push_to_hub(test_dataset=rows(12))
    (tmp_path / "model" / ".env").unlink()
    written = [path for path in (tmp_path / "model").rglob("*") if path.is_file()]
    assert {"training_args.bin", "trainer_state.json", "README.md"} <= {path.name for path in written}
    assert not [path for path in written if WRITER.encode() in path.read_bytes()]
    saved = torch.load(tmp_path / "model" / "training_args.bin", weights_only=False)
    assert saved.hub_token is None and saved.hub_model_id == "me/model"
    assert trainer.args.hub_token == WRITER
    args = FocalTrainingArguments(**settings(tmp_path, hub_token=WRITER, learning_rate=0.25))
    assert pickle.loads(pickle.dumps(args)).learning_rate == 0.25 and args.hub_token == WRITER


def test_a_push_that_fails_does_not_end_the_training(hub, tmp_path, caplog):
    trainer = trainer_of(tmp_path, save_strategy="epoch", push_to_hub=True, hub_strategy="every_save")
    trainer.args.hub_token = READER
    trainer.train()
    assert "the upload to 'me/model' failed: the token has no permission" in caplog.text and hub.commits == []
    assert (tmp_path / "model" / "checkpoint-2" / "model.safetensors").is_file()
