"""Fine-tuning by TRL: its data, one forward pass, the losses and figures of completion tokens."""

import json
import pickle
from dataclasses import fields

import numpy as np
import pytest
import torch
from datasets import Dataset
from language_models import build
from metrics import reference
from processes import launch
from tiny_models import logged, settings, weights
from transformers import PreTrainedTokenizerFast, TrainingArguments

trl = pytest.importorskip("trl")

from tokenizers import Tokenizer, models, pre_tokenizers  # noqa: E402

from hf_focal import FocalSFTConfig, FocalSFTTrainer  # noqa: E402
from hf_focal.trainer import FocalTrainingArguments  # noqa: E402

pytestmark = [pytest.mark.full, pytest.mark.slow]
WORDS = ["[PAD]", "</s>", "[UNK]", *(f"w{i}" for i in range(21))]


def tokenizer():
    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split("</s>", behavior="isolated")]
    )
    special = {"unk_token": "[UNK]", "pad_token": "[PAD]", "eos_token": "</s>"}
    return PreTrainedTokenizerFast(tokenizer_object=backend, **special)


def completions(count, seed=0):
    generator = torch.Generator().manual_seed(seed)

    def words():
        length = int(torch.randint(1, 6, (), generator=generator))
        return " ".join(WORDS[3 + int(i)] for i in torch.randint(21, (length,), generator=generator))

    return Dataset.from_list([{"prompt": words() + " ", "completion": words()} for _ in range(count)])


def trainer_of(folder, kind=FocalSFTTrainer, model=None, **options):
    trainer_options = {name: options.pop(name) for name in ("peft_config", "calibration_dataset") if name in options}
    plain = {"bf16": False, "gradient_checkpointing": False, "train_sampling_strategy": "sequential"}
    config = FocalSFTConfig if issubclass(kind, FocalSFTTrainer) else trl.SFTConfig
    return kind(
        model=build("llama").float() if model is None else model,
        args=config(**settings(folder, learning_rate=0.1, max_steps=2) | plain | options),
        train_dataset=completions(32),
        eval_dataset=completions(20, seed=1),
        processing_class=tokenizer(),
        **trainer_options,
    )


class Recorded:
    """The passes through a model, and the gradient of each optimizer step."""

    def __init__(self, trainer):
        self.forwards, self.gradients = 0, []
        trainer.model.model.register_forward_hook(self.count)
        step = trainer.create_optimizer().register_step_pre_hook(self.keep)
        self.model, self.handle = trainer.model, step

    def count(self, *_):
        self.forwards += 1

    def keep(self, *_):
        self.gradients.append(torch.cat([parameter.grad.flatten() for parameter in self.model.parameters()]))


@pytest.mark.parametrize("packing", [False, True])
@pytest.mark.parametrize("loss", ["cross_entropy", "focal:gamma=0"])
def test_without_gamma_it_is_sft_trainer_in_one_forward_a_micro_batch(tmp_path, loss, packing):
    options = {"gradient_accumulation_steps": 2, "packing": packing, "max_length": 16}
    stock = trainer_of(tmp_path, trl.SFTTrainer, **options)
    ours = trainer_of(tmp_path, loss=loss, **options)
    expected, actual = Recorded(stock), Recorded(ours)
    stock.train()
    ours.train()
    assert actual.forwards == 4 and ours.deferred_head is not None
    for actual_gradient, other in zip(actual.gradients, expected.gradients, strict=True):
        torch.testing.assert_close(actual_gradient, other, rtol=1e-5, atol=1e-6)  # in float32
    torch.testing.assert_close(weights(ours.model), weights(stock.model), rtol=1e-6, atol=1e-6)
    assert logged(ours) == pytest.approx(logged(stock), abs=1e-5) and len(logged(ours)) == 2


def completion_tokens(model, rows):
    """Logits (N, K) and labels (N,) of the completions' tokens, sample by sample in float64."""
    model, words, logits, labels = model.double().eval(), tokenizer(), [], []
    for row in rows:
        prompt, completion = words(row["prompt"])["input_ids"], words(row["completion"] + "</s>")["input_ids"]
        with torch.no_grad():
            all_logits = model(input_ids=torch.tensor([prompt + completion])).logits[0]
        logits.append(all_logits[len(prompt) - 1 : -1])
        labels += completion
    return torch.cat(logits), torch.tensor(labels)


@pytest.mark.parametrize("packing", [False, True])
def test_evaluation_and_temperature_are_those_of_completion_tokens(tmp_path, packing):
    options = {"packing": packing, "max_length": 32, "loss": "label_smoothing:alpha=0.1"}
    trainer = trainer_of(tmp_path, model=build("llama"), **options)
    held_out = completions(24, seed=2)
    temperature = trainer.fit_temperature(held_out)
    actual = trainer.evaluate()
    logits, labels = completion_tokens(trainer.model, completions(20, seed=1))
    probabilities = reference.softmax(logits)
    assert actual["eval_num_samples"] == len(labels)
    assert actual["eval_ece"] == pytest.approx(reference.ece(*reference.top_label(probabilities, labels.numpy())))
    after = reference.softmax(logits / temperature.value)
    assert actual["eval_ece_corrected"] == pytest.approx(reference.ece(*reference.top_label(after, labels.numpy())))
    assert temperature.num_samples == len(completion_tokens(trainer.model, held_out)[1])
    assert trainer.evaluate(trainer.eval_dataset)["eval_ece"] == pytest.approx(actual["eval_ece"])


def test_the_saved_model_is_calibrated_and_has_a_card(tmp_path):
    trainer = trainer_of(tmp_path / "model", save_strategy="steps", save_steps=2)
    trainer.train()
    assert not (tmp_path / "model" / "README.md").exists()  # which would take an evaluation a checkpoint
    temperature = trainer.fit_temperature()
    trainer.save_calibrated()
    trainer.create_model_card()
    ids = torch.tensor([[3, 4, 5, 6]])
    with torch.no_grad():
        expected = trainer.model.eval()(input_ids=ids).logits / temperature.value
        loaded = type(trainer.model).from_pretrained(tmp_path / "model")(input_ids=ids).logits
    torch.testing.assert_close(loaded, expected, rtol=1e-5, atol=1e-5)
    card = (tmp_path / "model" / "README.md").read_text()
    assert "It is folded into the weights" in card
    assert "from hf_focal import FocalSFTTrainer, FocalSFTConfig" in card


def test_adapters_train_in_one_forward_too(tmp_path):
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(task_type="CAUSAL_LM", r=2, target_modules=["q_proj"])
    trainer = trainer_of(tmp_path, peft_config=config, loss="focal:gamma=1")
    forwards = []
    trainer.model.get_base_model().model.register_forward_hook(lambda *_: forwards.append(1))
    before = {name: value.clone() for name, value in trainer.model.named_parameters()}
    trainer.train()
    changed = {name for name, value in trainer.model.named_parameters() if not torch.equal(value, before[name])}
    assert len(forwards) == 2 and trainer.deferred_head is not None
    assert changed and all("lora" in name for name in changed)


def test_a_raw_calibration_set_is_prepared_and_must_be_held_out(tmp_path):
    trainer = trainer_of(tmp_path, calibration_dataset=completions(24, seed=2))
    assert {"input_ids", "labels"} <= set(trainer.calibration_dataset.column_names)
    with pytest.raises(ValueError, match="calibration_dataset must be held out, got the training set"):
        trainer_of(tmp_path, calibration_dataset=completions(32))


def test_the_defaults_are_those_of_sft_config():
    plain, focal = TrainingArguments.__dataclass_fields__, FocalTrainingArguments.__dataclass_fields__
    ours = {field.name: field.default for field in fields(FocalSFTConfig)}
    for field in fields(trl.SFTConfig):
        if field.name not in plain or field.default != plain[field.name].default:
            assert ours[field.name] == field.default, field.name
        else:
            assert ours[field.name] == focal[field.name].default, field.name


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss_type": "dft"}, "loss_type must be 'nll', got 'dft': the loss is the argument loss"),
        ({"router_aux_loss_coef": 0.1}, "router_aux_loss_coef must be None or 0, got 0.1"),
        ({"label_smoothing_factor": 0.1}, "label_smoothing_factor must be 0, got 0.1"),
    ],
)
def test_a_second_loss_is_refused(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        FocalSFTConfig(str(tmp_path), use_cpu=True, bf16=False, **options)


def test_other_arguments_are_refused(tmp_path):
    with pytest.raises(TypeError, match="args must be FocalSFTConfig, got SFTConfig"):
        FocalSFTTrainer(build("llama"), trl.SFTConfig(str(tmp_path), use_cpu=True, bf16=False))


def test_packed_samples_of_gpt2_do_not_see_each_other(tmp_path):
    options = {"model": build("gpt2"), "loss": "focal:gamma=1", "max_length": 32}
    alone = trainer_of(tmp_path, **options).evaluate()
    packed = trainer_of(tmp_path, packing=True, **options).evaluate()
    for name in ("loss", "nll", "ece", "num_samples"):
        assert packed[f"eval_{name}"] == pytest.approx(alone[f"eval_{name}"], rel=1e-9)


def test_a_copied_config_keeps_its_end_token(tmp_path):
    config = FocalSFTConfig(str(tmp_path), eos_token="<end>", pad_token="<pad>", hub_token="secret", use_cpu=True)
    copied = pickle.loads(pickle.dumps(config))
    assert (copied.eos_token, copied.pad_token, copied.hub_token) == ("<end>", "<pad>", None)


def test_two_processes_train_and_measure_as_one(tmp_path):
    # Without --multi_gpu, as with --cpu, the launcher would start one process; the script itself says that it is the
    # CPU's, so that gloo connects the two.
    launch("launched_sft.py", ["--multi_gpu", "--num_machines", "1", "--dynamo_backend", "no"], tmp_path, 2)
    import launched_sft

    actual = json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))
    expected = launched_sft.results(tmp_path / "one", 1)
    assert [case["deferred"] for case in expected.values()] == [True, True, False]
    for name, case in expected.items():
        process = actual[name]
        np.testing.assert_allclose(process["weights"], case["weights"], rtol=0, atol=1e-12, err_msg=name)
        assert process["losses"] == pytest.approx(case["losses"], rel=1e-9) and len(case["losses"]) == 2
        assert process["metrics"] == pytest.approx(case["metrics"], rel=1e-9)
        assert process["temperature"] == case["temperature"] and process["deferred"] == case["deferred"]
