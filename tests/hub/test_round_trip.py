"""A folded temperature through a checkpoint: the probabilities of a process that never imports hf_focal.

Here models are built, their logits z computed in float32, T folded in and the result saved. `launched_predictions.py`
loads it in a process of its own by plain Auto classes; what it finds has to be softmax(z / T), computed in float64.
"""

import copy
import subprocess
import sys
from pathlib import Path

import pytest
import tiny_classifiers
import tiny_generators
import torch
import transformers
from papers.data.tokenizer_training import train_bpe_tokenizer
from papers.models import (
    CifarDenseNetConfig,
    CifarDenseNetForImageClassification,
    CifarResNetForImageClassification,
    GPCNNConfig,
    GPCNNForSequenceClassification,
    TreeLSTMConfig,
    TreeLSTMForSequenceClassification,
    cifar_config,
    transformer_config,
)
from tiny_classifiers import TINY
from tiny_generators import BART, GEMMA

from hf_focal import calibrated_generation, fold_correction
from hf_focal.calibration import apply_calibrated_generation
from hf_focal.calibration.affine_scaling import fit_matrix_scaling

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).with_name("launched_predictions.py")
T = 1.7
IMAGE = {"image_size": 16, "patch_size": 8, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
IMAGE |= {"intermediate_size": 24}
CLASSIFIERS = {
    "BertForSequenceClassification": TINY,
    "BertForTokenClassification": TINY,
    "RobertaForSequenceClassification": TINY,
    "DistilBertForSequenceClassification": {"dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 24},
    "DebertaV2ForSequenceClassification": TINY,
    "ModernBertForSequenceClassification": TINY | {"num_hidden_layers": 2},
    "ElectraForSequenceClassification": TINY | {"embedding_size": 16},
    "XLNetForSequenceClassification": {"d_model": 16, "n_layer": 1, "n_head": 2, "d_inner": 24},
    "GPT2ForSequenceClassification": {"n_embd": 16, "n_layer": 1, "n_head": 2},
    "LlamaForSequenceClassification": TINY,
    "BartForSequenceClassification": BART,
    "ViTForImageClassification": IMAGE,
    "DeiTForImageClassificationWithTeacher": IMAGE,
    "ResNetForImageClassification": {
        "embedding_size": 8,
        "hidden_sizes": [8, 16],
        "depths": [1, 1],
        "layer_type": "basic",
    },
}
OWN = {
    "gp_cnn": (GPCNNForSequenceClassification, GPCNNConfig(vocab_size=50, num_filters=8, pool_size=2, num_layers=2)),
    "tree_lstm": (TreeLSTMForSequenceClassification, TreeLSTMConfig(vocab_size=50, embedding_size=8, memory_size=8)),
    "cifar_resnet": (CifarResNetForImageClassification, cifar_config("resnet8")),
    "cifar_densenet": (CifarDenseNetForImageClassification, CifarDenseNetConfig(growth_rate=4, layers=(2, 2))),
}
TREES = {  # of four words, ((a b) (c d)) and (((a b) c) d); the last of two words
    "left": [[0, 0, 0, 0, 0, 2, 4], [0, 0, 0, 0, 0, 4, 5], [0, 0, 0, -1, -1, -1, -1]],
    "right": [[0, 0, 0, 0, 1, 3, 5], [0, 0, 0, 0, 1, 2, 3], [0, 0, 1, -1, -1, -1, -1]],
    "height": [[0, 0, 0, 0, 1, 1, 2], [0, 0, 0, 0, 1, 2, 3], [0, 0, 1, -1, -1, -1, -1]],
}
GENERATIVE = [*tiny_generators.MODELS, "transformer"]
# A soft-cap, and a tied head without a norm before it.
NOT_FOLDABLE = {
    "Gemma2ForCausalLM": GEMMA | {"final_logit_softcapping": 30.0},
    "OPTForCausalLM": {"hidden_size": 16, "word_embed_proj_dim": 16, "ffn_dim": 24, "num_hidden_layers": 1}
    | {"num_attention_heads": 2, "_remove_final_layer_norm": True},
}
TEXTS = ["good film", "bad", "a bad bad film"]


def build_classifier(name):
    if name == "timm":
        model = transformers.TimmWrapperForImageClassification(
            transformers.TimmWrapperConfig(architecture="resnet18", num_labels=3)
        )
        model.timm_model.init_weights()
    elif name in OWN:
        model_class, config = OWN[name]
        config = copy.deepcopy(config)  # a correction is recorded in it
        torch.manual_seed(0)
        config.num_labels = 3
        model = model_class(config)
        with torch.no_grad():  # no zero bias, as tiny_classifiers'
            for parameter in model.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
    else:
        model = tiny_classifiers.build(name, **{"vocab_size": 50} | CLASSIFIERS[name])
    return model.eval()


def build_generative(name):
    if name != "transformer":
        return tiny_generators.build(name, **NOT_FOLDABLE.get(name, {}))
    tokenizer = train_bpe_tokenizer(["a b c d e f g h"] * 3, 30, 20)
    config = transformer_config(tokenizer, max_length=32, d_model=16, num_layers=1, num_heads=2, ffn_dim=24)
    torch.manual_seed(0)
    return transformers.MarianMTModel(config).eval()


def inputs_of(model):
    if isinstance(model, TreeLSTMForSequenceClassification):
        trees = {name: torch.tensor(values) for name, values in TREES.items()}
        return trees | {"input_ids": torch.arange(3, 15).view(3, 4)}
    if not model.can_generate():
        return tiny_classifiers.inputs(model)
    inputs = tiny_generators.inputs(model)
    decoder = {"decoder_input_ids": inputs["input_ids"].flip(0)} if model.config.is_encoder_decoder else {}
    return inputs | decoder


def auto_class(model):
    if model.can_generate():
        return "AutoModelForSeq2SeqLM" if model.config.is_encoder_decoder else "AutoModelForCausalLM"
    task = next(task for task in ("Sequence", "Token", "Image") if f"For{task}" in type(model).__name__)
    return f"AutoModelFor{task}Classification"


@torch.no_grad()
def make_confident(model):
    """Scale the last layers, the only ones with an output a label, to logits with a deviation of 3."""
    scale = 3 / model(**inputs_of(model)).logits.std()
    for module in model.modules():
        if getattr(module, "weight", None) is not None and len(module.weight) == model.config.num_labels:
            for parameter in module.parameters():
                parameter.mul_(scale)


def scaling_of(model):
    """Matrix scaling of three classes, without a bias for heads that have none."""
    labels = torch.arange(300) % 3
    logits = torch.randn(300, 3, generator=torch.Generator().manual_seed(1)) * torch.tensor([0.5, 1.0, 2.0])
    logits[torch.arange(300), labels] += 1.5
    logits[:, 0] += 1
    return fit_matrix_scaling(logits, labels, bias=not isinstance(model, transformers.LlamaPreTrainedModel))


def save_scaled(model, folder) -> dict:
    """As `save_folded`, with matrix scaling."""
    task, scaling = {"auto": auto_class(model), "inputs": inputs_of(model)}, scaling_of(model)
    with torch.no_grad():
        logits = model(**task["inputs"]).logits.double()
    expected = {"class": type(model).__name__, "uncalibrated": logits.softmax(-1), "calibration": scaling.to_dict()}
    expected["probabilities"] = scaling.apply(logits).softmax(-1)
    expected["num_parameters"] = model.num_parameters()
    fold_correction(model, scaling).save_pretrained(folder)
    torch.save(task, folder / "task.pt")
    return expected


def save_folded(model, folder) -> dict:
    """Save the model with T folded in, and the task for the other process; return what that has to find."""
    task = {"auto": auto_class(model), "inputs": inputs_of(model)}
    with torch.no_grad():
        logits = model(**task["inputs"]).logits.double()
    expected = {"class": type(model).__name__, "num_parameters": model.num_parameters()}
    expected |= {"probabilities": (logits / T).softmax(-1), "uncalibrated": logits.softmax(-1)}
    if model.can_generate():
        options = {"num_beams": 3, "max_new_tokens": 6, "length_penalty": 0.6}
        options |= {"return_dict_in_generate": True, "output_scores": True}
        task["generate"] = tiny_generators.inputs(model) | options
        expected["beams"] = model.generate(**task["generate"], **calibrated_generation(T))
        expected["uncalibrated_beams"] = model.generate(**task["generate"])
        expected["generation_config"] = model.generation_config.to_dict()
    if isinstance(model, transformers.BertForSequenceClassification):
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *" ".join(TEXTS).split()]
        tokenizer = transformers.BertTokenizer(vocab={word: at for at, word in enumerate(dict.fromkeys(words))})
        tokenizer.save_pretrained(folder)
        task["texts"] = TEXTS
        with torch.no_grad():
            logits = torch.cat([model(**tokenizer(text, return_tensors="pt")).logits for text in TEXTS])
        expected["scores"] = (logits.double() / T).softmax(-1)

    if type(model).__name__ in NOT_FOLDABLE:
        with pytest.raises(TypeError, match="in generation with apply_calibrated_generation"):
            fold_correction(model, T)
        apply_calibrated_generation(model, T)
    else:
        fold_correction(model, T)
    model.save_pretrained(folder)
    torch.save(task, folder / "task.pt")
    return expected


def in_a_fresh_process(folder, *modules) -> dict:
    done = subprocess.run([sys.executable, SCRIPT, folder, *modules], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return torch.load(folder / "predictions.pt")


def round_trips(folder, models, *modules, save=save_folded) -> tuple[dict, list]:
    """For each model what its checkpoint has to give and what it gives; and the modules of hf_focal imported there."""
    expected = {}
    for name, model in models.items():
        (folder / name).mkdir()
        expected[name] = save(model, folder / name)
    found = in_a_fresh_process(folder, *modules)
    both = {name: (expected[name], found["predictions"][name], folder / name) for name in models}
    return both, found["imported"]


@pytest.fixture(scope="module")
def of_transformers(tmp_path_factory):
    models = {name: build_classifier(name) for name in CLASSIFIERS}
    for model in models.values():
        make_confident(model)
    models |= {name: build_generative(name) for name in (*GENERATIVE, *NOT_FOLDABLE)}
    return round_trips(tmp_path_factory.mktemp("of_transformers"), models)


@pytest.fixture(scope="module")
def of_ours(tmp_path_factory):
    models = {name: build_classifier(name) for name in OWN}
    for model in models.values():
        make_confident(model)
    return round_trips(tmp_path_factory.mktemp("of_ours"), models, "papers.models")


def assert_calibrated(expected, found):
    assert found["class"] == expected["class"]
    assert found["num_parameters"] == expected["num_parameters"]
    assert found["probabilities"].dtype == torch.float32
    assert (found["probabilities"] - expected["probabilities"]).abs().max() <= 1e-6
    assert (expected["uncalibrated"] - expected["probabilities"]).abs().max() > 1e-3


def assert_calibrated_classifier(expected, found):
    assert_calibrated(expected, found)
    assert expected["probabilities"].amax(-1).mean() > 0.6  # of three labels
    assert found["calibration"] == {"temperature": T}


def test_the_processes_know_nothing_of_hf_focal_but_its_models(of_transformers, of_ours):
    assert of_transformers[1] == []
    assert "papers.models" in of_ours[1]
    assert "hf_focal.trainer" not in of_ours[1]


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifiers(name, of_transformers):
    assert_calibrated_classifier(*of_transformers[0][name][:2])


@pytest.mark.full
def test_a_classifier_of_timm(tmp_path):
    model = build_classifier("timm")
    make_confident(model)
    assert_calibrated_classifier(*round_trips(tmp_path, {"timm": model})[0]["timm"][:2])


@pytest.mark.parametrize("name", OWN)
def test_our_classifiers(name, of_ours):
    assert_calibrated_classifier(*of_ours[0][name][:2])


SCALED = [
    *("BertForSequenceClassification", "DistilBertForSequenceClassification"),
    *("LlamaForSequenceClassification", "ViTForImageClassification"),
]


@pytest.mark.parametrize("names", [SCALED, list(OWN), pytest.param(["timm"], marks=pytest.mark.full)])
def test_matrix_scaling(names, tmp_path):
    own = names == list(OWN)
    models = {name: build_classifier(name) for name in names}
    for model in models.values():
        make_confident(model)
    both, imported = round_trips(tmp_path, models, *(["papers.models"] if own else []), save=save_scaled)
    assert own or imported == []
    for expected, found, _ in both.values():
        assert_calibrated(expected, found)
        assert found["calibration"] == expected["calibration"]


def test_the_scores_of_a_pipeline(of_transformers):
    expected, found, _ = of_transformers[0]["BertForSequenceClassification"]
    by_label = [{label["label"]: label["score"] for label in labels} for labels in found["scores"]]
    scores = torch.tensor([[labels[f"LABEL_{k}"] for k in range(3)] for labels in by_label])
    assert (scores - expected["scores"]).abs().max() <= 1e-6
    assert (expected["scores"] - 1 / 3).abs().max() > 0.3


@pytest.mark.parametrize("name", GENERATIVE)
def test_models_that_generate(name, of_transformers):
    expected, found, _ = of_transformers[0][name]
    assert_calibrated(expected, found)
    assert found["calibration"] == {"temperature": T, "folded": True}
    assert found["generation_config"] == expected["generation_config"]
    assert found["sequences"] == expected["beams"].sequences.tolist()
    torch.testing.assert_close(found["sequences_scores"], expected["beams"].sequences_scores, rtol=1e-5, atol=1e-5)
    uncalibrated = expected["uncalibrated_beams"].sequences_scores
    assert (uncalibrated - expected["beams"].sequences_scores).abs().max() > 1e-3


@pytest.mark.parametrize("name", NOT_FOLDABLE)
def test_a_temperature_that_cannot_be_folded_is_not_lost(name, of_transformers):
    expected, found, folder = of_transformers[0][name]
    assert found["calibration"] == {"temperature": T}
    assert (found["probabilities"] - expected["uncalibrated"]).abs().max() <= 1e-6
    assert found["sequences"] == expected["uncalibrated_beams"].sequences.tolist()

    loaded = apply_calibrated_generation(transformers.AutoModelForCausalLM.from_pretrained(folder))
    beams = loaded.generate(**torch.load(folder / "task.pt")["generate"])
    assert beams.sequences.tolist() == expected["beams"].sequences.tolist()
    torch.testing.assert_close(beams.sequences_scores, expected["beams"].sequences_scores)
    uncalibrated = expected["uncalibrated_beams"].sequences_scores
    assert (uncalibrated - beams.sequences_scores).abs().max() > 1e-3
