"""PEFT adapters: T is in their own copy of the head, or where generation looks for it."""

import json
import logging
import os
import subprocess
import sys
from dataclasses import replace

import pytest
import tiny_models
import torch
from language_models import build, padded, texts
from tiny_models import NUM_LABELS, rows, tiny_bert, weights
from transformers import BertForTokenClassification, GenerationConfig, T5Config, T5ForConditionalGeneration

from hf_focal import FocalTrainer, calibrated_generation, fold_correction
from hf_focal.calibration import CalibrationFit, apply_calibrated_generation
from hf_focal.choices.continuations import after_prompts, goes_on_from_its_cache, next_token_logits
from hf_focal.trainer.saved_model_folding import adapter_calibration

peft = pytest.importorskip("peft")
pytestmark = [pytest.mark.full, pytest.mark.slow]

T = 1.7
LOAD = """
import json, sys
import peft, torch
ids = torch.tensor(json.loads(sys.argv[3]))
model = getattr(peft, sys.argv[1]).from_pretrained(sys.argv[2], num_labels=4, dtype=torch.float64).eval()
with torch.no_grad():
    plain = model(input_ids=ids).logits.softmax(-1)
    with model.disable_adapter():
        base = model(input_ids=ids).logits
    merged = model.merge_and_unload().eval()(input_ids=ids).logits.softmax(-1)
assert "hf_focal" not in sys.modules
print(json.dumps([plain.tolist(), merged.tolist(), base.tolist()]))
"""


class Fitted(FocalTrainer):
    """A trainer whose fit finds T on no matter which data."""

    def fit_temperature(self, *args, **kwargs):
        temperature = replace(super().fit_temperature(*args, **kwargs), value=T)
        self.fit = CalibrationFit.from_temperature(temperature)
        return temperature


def with_adapter(base, folder, task_type, **options):
    """The base model with LoRA of nonzero weights, and a head that differs from the base model's."""
    base.save_pretrained(folder / "base")
    base = type(base).from_pretrained(folder / "base", dtype=torch.float64)
    targets = ["query", "value"] if "Bert" in type(base).__name__ else ["c_attn"]
    config = peft.LoraConfig(task_type=task_type, r=2, target_modules=targets, **options)
    model = peft.get_peft_model(base, config, autocast_adapter_dtype=False)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def trainer_of(model, folder, samples=rows, **options):
    options |= {"max_steps": 1, "train_dataset": samples(16), "eval_dataset": samples(40, seed=1)}
    return tiny_models.trainer_of(folder / "adapter", model, Fitted, **options)


def token_rows(count, seed=0):
    return [{"input_ids": row["input_ids"], "labels": row["input_ids"] % NUM_LABELS} for row in rows(count, seed)]


def in_a_plain_process(task, folder, ids):
    """The softmax of an adapter's logits, also merged, and the base model's logits, without hf_focal."""
    command = [sys.executable, "-c", LOAD, f"AutoPeftModelFor{task}", str(folder), str(ids.tolist())]
    run = subprocess.run(command, env=os.environ | {"PYTHONPATH": ""}, capture_output=True, text=True, check=True)
    return map(torch.tensor, json.loads(run.stdout.splitlines()[-1]))


@pytest.mark.parametrize("task", ["SequenceClassification", "TokenClassification"])
def test_a_plain_load_of_an_adapter_is_calibrated(tmp_path, task):
    torch.manual_seed(0)
    base = tiny_bert()
    if task == "TokenClassification":
        base = BertForTokenClassification(base.config).double()
    base_weights = weights(base)
    model = with_adapter(base, tmp_path, "SEQ_CLS" if task == "SequenceClassification" else "TOKEN_CLS")
    trainer = trainer_of(model, tmp_path, rows if task == "SequenceClassification" else token_rows)
    trainer.train()
    trainer.fit_temperature()
    trainer.save_calibrated()
    trainer.create_model_card()
    assert adapter_calibration(tmp_path / "adapter")["temperature"] == T
    assert json.loads((tmp_path / "adapter" / "temperature.json").read_text())["value"] == T
    card = (tmp_path / "adapter" / "README.md").read_text()
    assert "folded into the weights of the adapter's own head" in card and "library_name: peft" in card
    assert f'AutoPeftModelFor{task}.from_pretrained("your-username/adapter", num_labels=4)' in card

    ids = torch.stack([row["input_ids"] for row in rows(5, seed=2)])
    with torch.no_grad():
        logits = trainer.model.eval()(input_ids=ids).logits
        original = base.eval()(input_ids=ids).logits
    plain, merged, untouched = in_a_plain_process(task, tmp_path / "adapter", ids)
    expected = torch.softmax(logits / T, -1).float()
    assert (torch.softmax(logits, -1).float() - expected).abs().max() > 1e-3
    torch.testing.assert_close(plain, expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(merged, expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(untouched, original.float(), rtol=0, atol=1e-6)
    assert torch.equal(weights(type(base).from_pretrained(tmp_path / "base", dtype=torch.float64)), base_weights)


def test_a_plain_load_of_an_adapter_has_the_slopes_and_intercepts(tmp_path):
    base = tiny_bert(problem_type="multi_label_classification")
    base_weights = weights(base)
    model = with_adapter(base, tmp_path, "SEQ_CLS")

    def labeled(count, seed=0):  # by the model's own logits
        samples = rows(count, seed)
        with torch.no_grad():
            ids = torch.stack([row["input_ids"] for row in samples]).to(model.device)
            labels = torch.bernoulli(torch.sigmoid(model.eval()(input_ids=ids).logits / 2 - 1))
        return [row | {"labels": row_labels} for row, row_labels in zip(samples, labels, strict=True)]

    trainer = trainer_of(model, tmp_path, labeled)
    trainer.train()
    actual = trainer.fit_correction(labeled(400, seed=3), "platt", per_label=True)
    trainer.save_calibrated()
    assert adapter_calibration(tmp_path / "adapter")["A"] == torch.as_tensor(actual.correction.A).tolist()
    ids = torch.stack([row["input_ids"] for row in rows(5, seed=2)])
    with torch.no_grad():
        expected = actual.correction.apply(trainer.model.eval()(input_ids=ids).logits).softmax(-1).float()
        original = base.eval()(input_ids=ids).logits.float()
    plain, merged, untouched = in_a_plain_process("SequenceClassification", tmp_path / "adapter", ids)
    torch.testing.assert_close(plain, expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(merged, expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(untouched, original, rtol=0, atol=1e-6)
    assert torch.equal(weights(type(base).from_pretrained(tmp_path / "base", dtype=torch.float64)), base_weights)


def test_folding_in_memory_divides_the_adapters_head_alone(tmp_path):
    model = with_adapter(tiny_bert(), tmp_path, "SEQ_CLS").eval()
    ids = torch.stack([row["input_ids"] for row in rows(5)])
    with torch.no_grad(), model.disable_adapter():
        original = model(input_ids=ids).logits
    with torch.no_grad():
        logits = model(input_ids=ids).logits
        torch.testing.assert_close(fold_correction(model, T)(input_ids=ids).logits, logits / T)
        with model.disable_adapter():
            assert torch.equal(model(input_ids=ids).logits, original)


def test_an_adapter_without_a_head_is_not_folded(tmp_path, caplog):
    model = with_adapter(tiny_bert(), tmp_path, None)
    with pytest.raises(
        TypeError, match=r"must have a copy of the head \(modules_to_save\), got a PeftModel without one"
    ):
        fold_correction(model, T)
    trainer = trainer_of(model, tmp_path)
    trainer.fit_temperature()
    with caplog.at_level(logging.WARNING, "hf_focal"):
        trainer.save_calibrated()
    (record,) = [record.message for record in caplog.records if record.message.startswith("T = ")]
    assert record.startswith("T = 1.7 is not in the saved weights")
    assert json.loads((tmp_path / "adapter" / "temperature.json").read_text())["value"] == T
    trainer.create_model_card()
    assert "probabilities = (logits / 1.7).softmax(-1)" in (tmp_path / "adapter" / "README.md").read_text()


def test_the_temperature_of_a_language_models_adapter_is_the_generations(tmp_path, caplog):
    model = with_adapter(build("gpt2"), tmp_path, "CAUSAL_LM", fan_in_fan_out=True)
    trainer = trainer_of(model, tmp_path, texts, data_collator=padded)
    trainer.fit_temperature()
    with caplog.at_level(logging.WARNING, "hf_focal"):
        trainer.save_calibrated()
    (record,) = [record.message for record in caplog.records if record.message.startswith("T = ")]
    assert record.startswith("T = 1.7 is not in the saved weights") and "got the base model's" in record
    generation = GenerationConfig.from_pretrained(tmp_path / "adapter")
    assert generation.temperature == T and generation.do_sample
    assert not model.generation_config.do_sample
    assert json.loads((tmp_path / "adapter" / "temperature.json").read_text())["value"] == T
    trainer.create_model_card()
    card = (tmp_path / "adapter" / "README.md").read_text()
    assert (
        'generation_config=GenerationConfig.from_pretrained("your-username/adapter")' in card
        and "calibrated_generation(1.7)" in card
    )
    trainer.train()
    trainer.save_calibrated()  # without a fit
    assert not (tmp_path / "adapter" / "generation_config.json").exists()


def test_another_adapter_than_the_default_is_refused(tmp_path):
    model = with_adapter(tiny_bert(), tmp_path, "SEQ_CLS")
    model.add_adapter("other", peft.LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["query", "value"]))
    model.set_adapter("other")
    with pytest.raises(ValueError, match=r"one active adapter, named 'default', got \['other'\]: PEFT saves"):
        trainer_of(model, tmp_path)


@pytest.mark.parametrize("name", ["PromptTuningConfig", "PromptEncoderConfig"])
def test_virtual_tokens(tmp_path, name):
    config = getattr(peft, name)(task_type="CAUSAL_LM", num_virtual_tokens=3)
    model = peft.get_peft_model(build("gpt2"), config).eval()
    with pytest.raises(ValueError, match="model must have no virtual tokens in front of its logits, got P"):
        trainer_of(model, tmp_path, texts, data_collator=padded)
    sequence = torch.tensor([[3, 4, 5]])
    expected = model(input_ids=sequence).logits[0, -1]
    actual = next_token_logits(model, sequence, torch.ones_like(sequence), torch.tensor([0]), torch.tensor([2]))
    torch.testing.assert_close(actual[0], expected)
    assert not goes_on_from_its_cache(model, [3, 4, 5, 6], [7, 8])


def test_lora_goes_on_from_its_cache(tmp_path):
    model = with_adapter(build("gpt2"), tmp_path, "CAUSAL_LM").eval()
    prompts, continuations = [[3, 4, 5], [6], [7, 8, 9, 10]], [[3, 4], [5], [6, 7]]
    assert goes_on_from_its_cache(model, prompts[2], continuations[0])
    with torch.no_grad():
        whole, shared = (after_prompts(model, prompts, shared=shared)(continuations) for shared in (False, True))
    torch.testing.assert_close(shared[[0, 2]], whole[[0, 2]], rtol=0, atol=1e-12)
    torch.testing.assert_close(shared[1, :2], whole[1, :2], rtol=0, atol=1e-12)


def test_an_encoder_decoders_adapter_generates(tmp_path):
    config = T5Config(vocab_size=20, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2, decoder_start_token_id=0)
    lora = peft.LoraConfig(task_type="SEQ_2_SEQ_LM", r=2, target_modules=["q", "v"])
    model = peft.get_peft_model(T5ForConditionalGeneration(config), lora).eval()
    ids = torch.tensor([[3, 4, 5]])
    expected = model.generate(input_ids=ids, num_beams=4, max_new_tokens=4, **calibrated_generation(3.0))
    apply_calibrated_generation(model, 3.0)
    assert torch.equal(model.generate(input_ids=ids, num_beams=4, max_new_tokens=4), expected)
