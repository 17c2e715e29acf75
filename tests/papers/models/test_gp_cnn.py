"""The global-pooling CNN."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from papers.models import GPCNNConfig, GPCNNForSequenceClassification
from torch import nn
from torch.nn import functional as F
from transformers import AutoConfig, AutoModelForSequenceClassification

SMALL = {"vocab_size": 50, "embedding_size": 8, "num_filters": 6, "hidden_size": 7, "num_labels": 3, "pool_size": 3}
VARIANTS = {"official": {"max_words": 40, "unk_token_id": 1}, "strided": {"variant": "strided"}}


@pytest.fixture(params=VARIANTS)
def model(request):
    torch.manual_seed(0)
    model = GPCNNForSequenceClassification(GPCNNConfig(**SMALL, **VARIANTS[request.param])).eval()
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):  # Zero biases would hide padding that leaks through them.
            nn.init.normal_(parameter)
    return model


def straightforward(model, words):
    """The logits of one text, (words,), from PyTorch's own layers; if the network is strided, at least one word."""
    official, *convolutions, last = model.config.variant == "official", *model.convolutions
    vectors = model.embeddings(words)
    if official:  # as the official code reads and pads texts
        vectors = vectors[words != 1][-40:]
        vectors = F.pad(vectors, (0, 0, 40 - len(vectors), 0))
    hidden = vectors.T[None]
    for convolution in convolutions:
        if official:
            hidden = F.max_pool1d(F.relu(convolution(hidden)), 3, stride=1)
        else:
            hidden = F.relu(F.conv1d(hidden, convolution.weight, convolution.bias, padding="same"))
            hidden = F.max_pool1d(hidden, 3, ceil_mode=True)
    hidden = F.conv1d(hidden, last.weight, last.bias, padding=0 if official else "same")
    return model.classifier(F.relu(model.dense(F.relu(hidden).amax(dim=2))))[0]


@settings(deadline=None, max_examples=40)
@given(
    variant=st.sampled_from(list(VARIANTS)),
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=20),
    padding=st.tuples(st.integers(0, 60), st.integers(0, 60)),
    seed=st.integers(0, 99),
)
def test_logits_are_those_of_the_text_alone(variant, lengths, padding, seed):
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    model = GPCNNForSequenceClassification(GPCNNConfig(**SMALL, **VARIANTS[variant])).eval()
    nn.init.normal_(model.convolutions[0].bias)
    texts = [torch.randint(1, 50, (length,), generator=generator) for length in lengths]
    # A strided pool begins at the first column, so only the official network takes padding on the left.
    left, right = padding if variant == "official" else (0, padding[1])
    batch = F.pad(nn.utils.rnn.pad_sequence(texts, batch_first=True), (left, right))
    with torch.no_grad():
        expected = torch.stack([straightforward(model, text) for text in texts])
        torch.testing.assert_close(model(batch).logits, expected, rtol=1e-5, atol=1e-6)


def test_gradients_are_those_of_the_official_padding():
    """Windows of padding that are not computed change no gradient."""
    torch.manual_seed(0)
    model = GPCNNForSequenceClassification(GPCNNConfig(**SMALL, **VARIANTS["official"])).eval().double()
    texts = [torch.randint(1, 50, (length,)) for length in (0, 3, 17, 25, 39, 40, 55, 12, 2)]
    batch = nn.utils.rnn.pad_sequence(texts, batch_first=True)
    ours, theirs = model(batch).logits, torch.stack([straightforward(model, text) for text in texts])
    weight, parameters = torch.randn_like(ours), list(model.parameters())
    gradients = [torch.autograd.grad((logits * weight).sum(), parameters) for logits in (ours, theirs)]
    for gradient, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(gradient, expected)


def test_loss_and_gradients(model):
    words, labels = torch.randint(2, 50, (4, 30)), torch.tensor([0, 2, 1, 2])
    words[:, 25:] = 0
    output = model(words, labels=labels)
    torch.testing.assert_close(output.loss, F.cross_entropy(output.logits, labels))
    torch.testing.assert_close(model(words, labels=labels, num_items_in_batch=8).loss, output.loss / 2)
    output.loss.backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in model.parameters())
    assert model.embeddings.weight.grad[0].abs().sum() == 0
    assert isinstance(model(words, return_dict=False), tuple)


def test_saved_and_loaded_by_the_auto_classes(model, tmp_path):
    model.config.id2label = {0: "a", 1: "b", 2: "c"}
    model.save_pretrained(tmp_path)
    assert isinstance(AutoConfig.from_pretrained(tmp_path), GPCNNConfig)
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert type(loaded) is GPCNNForSequenceClassification and not loaded.training
    assert loaded.config.id2label == {0: "a", 1: "b", 2: "c"}
    assert all(getattr(loaded.config, name) == value for name, value in SMALL.items())
    for name, value in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value)


def test_initial_weights():
    torch.manual_seed(0)
    official = GPCNNForSequenceClassification(GPCNNConfig(num_labels=20))
    convolution = official.convolutions[1]
    for parameter in (convolution.weight, convolution.bias):  # as torch.nn.Conv1d starts
        assert parameter.abs().max().item() == pytest.approx((128 * 5) ** -0.5, rel=0.05)
    torch.manual_seed(0)
    model = GPCNNForSequenceClassification(GPCNNConfig(variant="strided", num_labels=20))
    assert sum(parameter.numel() for parameter in model.parameters()) == 2_247_316
    assert model.embeddings.weight[0].abs().sum() == 0
    assert model.embeddings.weight[1:].abs().max().item() == pytest.approx(0.05, rel=0.01)
    bound = (6 / (128 * 5 + 128 * 5)) ** 0.5
    assert model.convolutions[1].weight.abs().max().item() == pytest.approx(bound, rel=0.01)
    assert all(convolution.bias.abs().sum() == 0 for convolution in model.convolutions)


def test_without_a_padding_id_only_the_mask_is_padding(model):
    model.config.pad_token_id = None
    words = torch.randint(0, 50, (2, 20))
    mask = torch.ones_like(words)
    with torch.no_grad():
        torch.testing.assert_close(model(words).logits, model(words, attention_mask=mask).logits, rtol=0, atol=0)
    unpadded = GPCNNForSequenceClassification(GPCNNConfig(**SMALL, pad_token_id=None))
    assert unpadded(words).logits.shape == (2, 3)
