"""Folding into quantized models: one error that says what to do if the head is quantized, exact folds if it is not."""

import copy

import pytest
import torch
from tiny_classifiers import TINY, build, logits_of
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from hf_focal.calibration import Correction, fold_correction
from hf_focal.calibration.folding import has_bias

MULTI_LABEL = {"problem_type": "multi_label_classification"}
PLATT = Correction.platt(1.5, -0.3)


def llama(tied=False):
    torch.manual_seed(0)
    shape = TINY | {"num_key_value_heads": 1, "max_position_embeddings": 32}
    return LlamaForCausalLM(LlamaConfig(**shape, tie_word_embeddings=tied)).eval()


def classifier(**options):
    return build("BertForSequenceClassification", **TINY | {"hidden_size": 32} | options)


def assert_refused(model, correction, head, kind):
    """The error names the head and what it is, and says what to do; the model computes as before."""
    before = logits_of(model)
    with pytest.raises(TypeError, match=rf"{head} is {kind}: fold before you quantize, .*_convert=\['{head}'\]"):
        fold_correction(model, correction)
    assert torch.equal(logits_of(model), before)
    assert not hasattr(model.config, "calibration")


def assert_folds(model, correction):
    before = logits_of(model)
    fold_correction(model, correction)
    assert (logits_of(model) - before).abs().max() > 1e-3
    torch.testing.assert_close(logits_of(model), correction.apply(before), rtol=1e-5, atol=1e-6)


def dynamically(model, left_out=None):
    """PyTorch's dynamic quantization of all Linear layers but one."""
    kept = left_out and copy.deepcopy(getattr(model, left_out))
    model = torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)
    if left_out:
        setattr(model, left_out, kept)
    return model


@pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated")
def test_heads_of_dynamic_quantization():
    kind = r"torch\.ao\.nn\.quantized\.dynamic\..*Linear"
    model = dynamically(classifier(**MULTI_LABEL))
    assert_refused(model, PLATT, "classifier", kind)
    assert has_bias(model)  # so "auto" is fitted with a bias
    assert_refused(dynamically(llama()), Correction.temperature(2.0), "lm_head", kind)
    model = dynamically(classifier(**MULTI_LABEL), "classifier")
    assert not isinstance(model.bert.encoder.layer[0].output.dense, nn.Linear)
    assert_folds(model, PLATT)
    assert_folds(dynamically(llama(), "lm_head"), Correction.temperature(2.0))


class PackedLinear(nn.Module):
    """A layer in the form of those of GPTQ and AWQ: packed integers in buffers, and no weight."""

    def __init__(self, linear):
        super().__init__()
        self.in_features, self.out_features, self.bias = linear.in_features, linear.out_features, linear.bias
        self.scale = linear.weight.detach().abs().max() / 127
        self.register_buffer("qweight", (linear.weight.detach() / self.scale).round().to(torch.int8))

    def forward(self, features):
        return nn.functional.linear(features, self.qweight * self.scale, self.bias)


@pytest.mark.parametrize("correction", [Correction.temperature(2.0), PLATT], ids=["temperature", "platt"])
def test_heads_without_a_weight(correction):
    model = classifier(**MULTI_LABEL)
    model.classifier = PackedLinear(model.classifier)
    assert_refused(model, correction, "classifier", r"test_folding_quantized\.PackedLinear")
    model = classifier(**MULTI_LABEL)
    model.bert.pooler.dense = PackedLinear(model.bert.pooler.dense)
    assert_folds(model, correction)


@pytest.mark.full
@pytest.mark.parametrize("config", ["Int8WeightOnlyConfig", "Int8DynamicActivationInt8WeightConfig"])
def test_heads_of_torchao(config):
    quantization = pytest.importorskip("torchao.quantization")
    kind = r"torchao\..*Tensor"

    def quantized(model, left_out=""):
        def chosen(layer, path):
            return isinstance(layer, nn.Linear) and path != left_out

        quantization.quantize_(model, getattr(quantization, config)(), chosen)
        return model

    for correction in (PLATT, Correction.temperature(2.0)):
        assert_refused(quantized(classifier(**MULTI_LABEL)), correction, "classifier", kind)
        model = quantized(classifier(**MULTI_LABEL), "classifier")
        assert "torchao" in type(model.bert.encoder.layer[0].output.dense.weight).__module__
        assert_folds(model, correction)
    assert_refused(quantized(llama()), Correction.temperature(2.0), "lm_head", kind)
    for tied in (False, True):
        assert_folds(quantized(llama(tied), "lm_head"), Correction.temperature(2.0))


@pytest.mark.full
def test_a_model_that_transformers_quantizes_with_torchao_on_loading(tmp_path):
    quantization = pytest.importorskip("torchao.quantization")
    from transformers import AutoModelForSequenceClassification, TorchAoConfig

    classifier().save_pretrained(tmp_path / "plain")

    def loaded(**options):
        scheme = TorchAoConfig(quantization.Int8WeightOnlyConfig(version=2), **options)
        return AutoModelForSequenceClassification.from_pretrained(tmp_path / "plain", quantization_config=scheme)

    assert_refused(loaded(), Correction.temperature(2.0), "classifier", r"torchao\..*Tensor")
    assert_folds(loaded(modules_to_not_convert=["classifier"]), Correction.temperature(2.0))
