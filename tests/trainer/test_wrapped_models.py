"""Models in `torch.compile` or `DataParallel`: the wrapper runs them, and all else is about the model inside."""

import logging

import pytest
import torch
from language_models import build, padded, texts
from safetensors.torch import load_file
from tiny_models import EVAL, BagOfWords, StopAt, assert_exact, logits_of, rows, tiny_bert, trainer_of, weights
from torch import nn
from transformers import BertForSequenceClassification

from hf_focal import (
    FocalSeq2SeqTrainer,
    FocalTrainer,
    FocalTrainingArguments,
    Temperature,
    calibrated_generation,
    fold_correction,
    shift_prior,
)
from hf_focal.calibration import apply_calibrated_generation
from hf_focal.tasks.heads import Head, head_of

T = 1.7


def compiled(model):
    return torch.compile(model, backend="eager")


WRAPPERS = {
    "compile": compiled,
    "DataParallel": nn.DataParallel,
    "both": lambda model: nn.DataParallel(compiled(model)),
}


SLOW = [pytest.mark.slow]  # compiling takes seconds, even for the backend that leaves the code as it is


@pytest.fixture(
    params=[pytest.param(wrap, id=name, marks=SLOW * (name != "DataParallel")) for name, wrap in WRAPPERS.items()]
)
def wrap(request):
    return request.param


def test_a_language_model_is_known_in_its_wrapper(wrap, tmp_path):
    data = texts(6)
    plain, wrapped = (
        trainer_of(tmp_path, model, train_dataset=data, eval_dataset=data[:4], data_collator=padded)
        for model in (build("gpt2"), wrap(build("gpt2")))
    )
    assert wrapped.head is Head.NEXT_TOKENS
    expected, actual = plain.evaluate(), wrapped.evaluate()
    assert actual["eval_nll"] == pytest.approx(expected["eval_nll"], rel=1e-6)
    assert actual["eval_num_samples"] == expected["eval_num_samples"]


def test_the_wrapper_runs_the_model_and_training_is_as_without_it(wrap, tmp_path):
    plain, wrapper = trainer_of(tmp_path, tiny_bert(), loss="flsd53"), wrap(tiny_bert())
    calls = []
    wrapper.register_forward_hook(lambda *_: calls.append(1))
    wrapped = trainer_of(tmp_path, wrapper, loss="flsd53")
    plain.train()
    wrapped.train()
    assert isinstance(wrapped.model, BertForSequenceClassification)
    assert len(calls) == 2
    assert_exact(weights(wrapped.model), weights(plain.model))
    wrapped.evaluate()
    assert len(calls) == 5
    assert_exact(torch.tensor(wrapped.predict(EVAL).predictions), logits_of(plain.model, EVAL))


def test_saved_keys_are_plain_and_reload_to_the_trained_model(wrap, tmp_path):
    trainer = trainer_of(tmp_path, wrap(tiny_bert()), save_strategy="epoch")
    trainer.train()
    expected = logits_of(trainer.model, EVAL)
    temperature = trainer.fit_temperature().value
    trainer.save_calibrated()
    assert load_file(tmp_path / "model.safetensors").keys() == tiny_bert().state_dict().keys()
    assert_exact(logits_of(BertForSequenceClassification.from_pretrained(tmp_path), EVAL), expected / temperature)
    (checkpoint,) = tmp_path.glob("checkpoint-*")
    assert_exact(logits_of(BertForSequenceClassification.from_pretrained(checkpoint), EVAL), expected)


@pytest.mark.slow
@pytest.mark.parametrize("build_model", [tiny_bert, BagOfWords])
@pytest.mark.parametrize("inner", [False, True], ids=["the model", "a submodule"])
def test_a_resumed_run_ends_as_one_without_wrappers(build_model, inner, tmp_path):
    def wrapped():
        model = build_model()
        if not inner:
            return compiled(model)
        model.classifier = compiled(model.classifier)
        return model

    options = {"save_strategy": "steps", "save_steps": 1, "train_dataset": rows(24)}
    whole = trainer_of(tmp_path / "whole", build_model(), **options)
    whole.train()
    trainer_of(tmp_path / "cut", wrapped(), **options, callbacks=[StopAt(1)]).train()
    saved = load_file(tmp_path / "cut" / "checkpoint-1" / "model.safetensors")
    if build_model is tiny_bert or not inner:
        assert saved.keys() == build_model().state_dict().keys()
    resumed = trainer_of(tmp_path / "cut", wrapped(), **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "cut" / "checkpoint-1"))
    assert_exact(weights(resumed.model), weights(whole.model))


@pytest.mark.slow
def test_a_model_init_may_wrap(tmp_path):
    args = FocalTrainingArguments(str(tmp_path), use_cpu=True, report_to=[])
    trainer = FocalTrainer(args=args, model_init=lambda: compiled(tiny_bert()), eval_dataset=EVAL)
    assert isinstance(trainer.model, BertForSequenceClassification)
    assert trainer.evaluate()["eval_num_samples"] == len(EVAL)


def test_an_encoder_decoder(wrap, tmp_path):
    ids = [row["input_ids"] % 20 + 3 for row in rows(6)]
    data = [{"input_ids": row, "labels": row.flip(0)} for row in ids]
    plain, wrapped = (
        trainer_of(tmp_path, model, FocalSeq2SeqTrainer, eval_dataset=data, predict_with_generate=True)
        for model in (build("t5"), wrap(build("t5")))
    )
    assert wrapped.evaluate()["eval_nll"] == pytest.approx(plain.evaluate()["eval_nll"], rel=1e-9)
    generated, expected = (trainer.predict(data).predictions for trainer in (wrapped, plain))
    assert generated.tolist() == expected.tolist()


def test_an_adapter_in_a_wrapper(wrap, tmp_path):
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["query"])
    model = peft.get_peft_model(tiny_bert(), config, autocast_adapter_dtype=False)
    trainer = trainer_of(tmp_path, wrap(model))
    trainer.train()
    trainer.fit_temperature()
    trainer.save_calibrated()
    saved = load_file(tmp_path / "adapter_model.safetensors")
    assert saved and not any("_orig_mod" in name or "module." in name for name in saved)


def test_functions_that_take_a_model_take_it_in_its_wrapper(wrap, tmp_path):
    before = logits_of(tiny_bert(), EVAL)
    for fold in (fold_correction, lambda model, value: fold_correction(model, Temperature(value))):
        folded = fold(wrap(tiny_bert()), T)
        folded.save_pretrained(tmp_path)
        assert_exact(logits_of(BertForSequenceClassification.from_pretrained(tmp_path), EVAL), before / T)
    shifted = shift_prior(wrap(tiny_bert()), [0.25] * 4, [0.4, 0.3, 0.2, 0.1])
    odds = torch.tensor([1.6, 1.2, 0.8, 0.4], dtype=torch.float64).log()
    assert_exact(logits_of(shifted, EVAL).softmax(-1), (before + odds).softmax(-1))
    assert head_of(wrap(build("gpt2"))) is Head.NEXT_TOKENS


def test_generation_from_a_wrapped_model(wrap):
    model = build("gpt2")
    wrapped = wrap(model)
    ids = {"input_ids": torch.tensor([[3, 4, 5, 6]]), "max_new_tokens": 5, "num_beams": 2, "do_sample": False}
    expected = model.generate(**ids, **calibrated_generation(T))
    assert apply_calibrated_generation(wrapped, T) is model
    assert calibrated_generation(wrapped).keys() == {"logits_processor", "renormalize_logits"}
    assert torch.equal(model.generate(**ids), expected)


class Around(nn.Module):
    """A user's own module around a language model."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask):
        return self.model(input_ids=input_ids, attention_mask=attention_mask).logits


def test_labels_that_are_the_inputs_of_an_unknown_language_model(tmp_path, caplog):
    data = texts(6)
    with caplog.at_level(logging.WARNING, "hf_focal"):
        trainer_of(tmp_path, build("gpt2"), eval_dataset=data, data_collator=padded).evaluate()
        assert "the labels are the input_ids" not in caplog.text
        trainer_of(tmp_path, Around(build("gpt2")), eval_dataset=data, data_collator=padded).evaluate()
    assert caplog.text.count("the labels are the input_ids, and the model is not known as a language model") == 1
