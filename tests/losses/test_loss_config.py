import json
import re
from typing import Literal, get_args, get_origin

import numpy as np
import pytest
import torch
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_focal.losses import LOSSES, LossConfig, RecallLoss, build_loss, gamma_for_threshold
from hf_focal.losses.gamma_policies import AdaFocalGamma, ScheduledGamma


def gammas_of(loss, p=(0.1, 0.3, 0.7)):
    gamma = loss.policy(torch.tensor(p))
    return gamma if isinstance(gamma, float) else gamma.tolist()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("focal", "focal:gamma=3"),
        (" focal : gamma = 2.5 ", "focal:gamma=2.5"),
        ("adafocal:bins=15", "adafocal"),
        ("mmce:weighted=True,lam=2", "mmce:weighted=true"),
        ("flsd", "flsd:gammas=5/3"),
    ],
)
def test_the_short_form_leaves_defaults_out(text, shown):
    assert str(LossConfig.parse(text)) == shown


def test_options_have_the_papers_defaults():
    assert dict(LossConfig.parse("adafocal").options) == {
        "bins": 15,
        "lam": 1.0,
        "switch": 0.2,
        "gamma_max": 20.0,
        "gamma_min": -2.0,
    }
    assert LossConfig.parse("label_smoothing").options == {"alpha": 0.05, "convention": "torch"}
    assert LossConfig.parse("mmce").options == {"lam": 2.0, "weighted": False, "gather": False}
    assert LossConfig.parse("flsd").options == {"thresholds": (0.2,), "gammas": (5.0, 3.0), "p0": None}
    assert LossConfig.parse("focal").options["gamma"] == 3.0
    assert LossConfig.parse("focal:p0=0.2").options["gamma"] is None
    assert LossConfig.parse("recall").options == {"ema": None, "gamma": 0.0}
    assert LossConfig.parse("class_balanced").options == {"beta": 1.0, "gamma": 0.0, "weights": None}
    assert LossConfig.parse("class_balanced:weights=1/2").options["beta"] is None


@pytest.mark.parametrize(("name", "option"), [(name, option) for name in LOSSES for option in LOSSES[name].options])
def test_an_option_of_null_is_not_given(name, option):
    assert LossConfig.parse({"name": name, option: None}) == LossConfig.parse(name)
    assert LossConfig.parse(f"name: {name}\n{option}: null\n") == LossConfig.parse(name)
    assert LossConfig.parse({"name": "focal", "gamma": None, "p0": 0.2}) == LossConfig.parse("focal:p0=0.2")


def test_configs_build_what_they_say():
    assert gammas_of(build_loss("cross_entropy")) == 0.0
    assert gammas_of(build_loss("focal:gamma=3")) == 3.0
    assert gammas_of(build_loss("inverse_focal:gamma=2")) == -2.0
    assert gammas_of(build_loss("focal:p0=0.25")) == gamma_for_threshold(0.25)
    assert gammas_of(build_loss("flsd53")) == [5, 3, 3]
    assert gammas_of(build_loss("flsd532")) == [5, 3, 2]
    assert gammas_of(build_loss("flsd:thresholds=0.2/0.5,gammas=5/3/2")) == [5, 3, 2]
    p0 = [gamma_for_threshold(0.2), gamma_for_threshold(0.25)]
    assert gammas_of(build_loss("flsd:thresholds=0.25,p0=0.2/0.25")) == pytest.approx([p0[0], p0[1], p0[1]])
    scheduled = build_loss("focal:schedule=5/3/2").policy
    assert isinstance(scheduled, ScheduledGamma) and scheduled.starts == [0, 100 / 350, 250 / 350]
    assert scheduled.gammas == [5, 3, 2]
    assert build_loss("focal:schedule=5/3,switches=0.5").policy.starts == [0, 0.5]
    adafocal = build_loss("adafocal:bins=10,lam=0.5,switch=0.1,gamma_max=10,gamma_min=-1").policy
    assert isinstance(adafocal, AdaFocalGamma)
    assert vars(adafocal) == vars(AdaFocalGamma(10, lam=0.5, switch=0.1, gamma_max=10, gamma_min=-1))
    recall = build_loss("recall")
    assert isinstance(recall, RecallLoss) and (recall.ema, recall.gamma) == (None, 0)
    recall = build_loss("recall:ema=0.1,gamma=2")
    assert (recall.ema, recall.gamma) == (0.1, 2)
    balanced = build_loss("class_balanced:beta=0.99,gamma=1")
    assert (balanced.beta, balanced.gamma, balanced.weights) == (0.99, 1, None)
    assert build_loss("class_balanced").beta == 1
    assert build_loss("class_balanced:weights=1/2/5").weights == [1, 2, 5]


@pytest.mark.parametrize(
    "value",
    [
        {"name": "flsd", "thresholds": "0.2/0.5", "gammas": "5/3/2"},
        "name: flsd\nthresholds: [0.2, 0.5]\ngammas: [5, 3, 2]\n",
        '{"name": "flsd", "thresholds": [0.2, 0.5], "gammas": [5, 3, 2]}',
    ],
    ids=["dict of strings", "YAML", "JSON"],
)
def test_mappings_and_their_text_read_as_the_short_form(value):
    assert LossConfig.parse(value) == LossConfig.parse("flsd:thresholds=0.2/0.5,gammas=5/3/2")


@pytest.mark.parametrize("text", ["name: adafocal\nbins: 10\n", "adafocal:bins=10\n"])
def test_a_yaml_file_reads_as_its_text(text, tmp_path):
    path = tmp_path / "loss.yaml"
    path.write_text(text, encoding="utf-8")
    assert LossConfig.parse(str(path)) == LossConfig.parse("adafocal:bins=10")
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"loss must be an existing file, got '.*loss.yaml'"):
        LossConfig.parse(str(path))


def test_configs_are_equal_where_their_losses_are_and_serve_as_keys():
    same = {LossConfig.parse(text) for text in ("focal", "focal:gamma=3", "focal:gamma=3.0")}
    assert same == {LossConfig.parse({"name": "focal", "gamma": 3})}
    assert LossConfig.parse("focal:gamma=2") not in same
    assert LossConfig.parse("flsd53") != "flsd53"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("focl", "loss must be one of cross_entropy, .*, got 'focl': did you mean 'focal'?"),
        ("ce", "got 'ce': did you mean 'cross_entropy'?"),
        ("focal gamma=3", "loss must have a colon before its options, .*: did you mean 'focal:gamma=3'?"),
        ("{bad", "loss must be a mapping in YAML or JSON, got '{bad'"),
        ({1: 2, "name": "focal"}, "options of loss focal must be among gamma, .*, got 1"),
        ("", "loss must be one of .*, got ''"),
        (
            "focal:gama=3",
            "options of loss focal must be among gamma, schedule, switches, p0, got 'gama': did you mean 'gamma'?",
        ),
        ("brier:gamma=3", "options of loss brier must be none, got 'gamma'"),
        ("focal:3", "loss options must be written name:key=value,key=value, got '3' in 'focal:3'"),
        ("focal:gamma=1,gamma=2", "loss option 'gamma' must be given once, got it twice"),
        ("focal:gamma=nan", "loss focal: gamma must be a finite number, got 'nan'"),
        ("focal:gamma=-1", "loss focal: gamma must be at least 0, got -1.0"),
        ("mmce:weighted=maybe", "loss mmce: weighted must be true or false, got 'maybe'"),
        ("focal:gamma=1,p0=0.2", "loss focal: gamma must not be given with p0, got both"),
        ("focal:schedule=5/x", "loss focal: schedule must be numbers separated by '/', such as 5/3/2, got '5/x'"),
        ("focal:schedule=5/3", "loss focal: switches must be given unless schedule has 3 gammas .* of 2"),
        ("focal:schedule=5/3/2,switches=0.4/0.2", r"loss focal: switches must increase within \(0, 1\), got 0.4/0.2"),
        ("focal:switches=0.5", "loss focal: switches must come with schedule, got no schedule"),
        (
            "flsd:gammas=5/3/2",
            "loss flsd: gammas must have one more value than thresholds, got 3 gammas for 1 thresholds",
        ),
        ("flsd:p0=0.1", "loss flsd: p0 must have one more value than thresholds, got 1 p0 for 1 thresholds"),
        (
            "label_smoothing:convention=papre",
            "loss label_smoothing: convention must be one of torch, paper, got 'papre': did you mean 'paper'?",
        ),
        ("adafocal:bins=1.5", "loss adafocal: bins must be a whole number, got '1.5'"),
        ("recall:ema=0", r"loss recall: ema must be within \(0, 1\], got 0.0"),
        ("class_balanced:beta=0.9,weights=1/2", "loss class_balanced: beta must not be given with weights, got both"),
        ("class_balanced:weights=1/-2", "loss class_balanced: weights must be at least 0, got -2.0"),
        ({"gamma": 3}, "loss must have a 'name', one of .*, got {'gamma': 3}"),
    ],
)
def test_an_error_names_the_option_the_value_and_what_was_expected(value, message):
    with pytest.raises(ValueError, match=re.sub(r"\?$", r"\\?", message)):
        LossConfig.parse(value)


@pytest.mark.parametrize("convert", [np.array, torch.tensor, np.float16])
def test_weights_may_be_arrays_and_tensors(convert):
    for name, option, link in (("class_balanced", "weights", "softmax"), ("cross_entropy", "pos_weight", "sigmoid")):
        config = LossConfig.parse({"name": name, option: convert([1.0, 2.0, 5.0])})
        assert str(config) == f"{name}:{option}=1/2/5"
        logits, labels = torch.randn(4, 3), torch.tensor([0, 1, 2, 2])
        labels = labels if link == "softmax" else torch.nn.functional.one_hot(labels, 3)
        expected = build_loss(f"{name}:{option}=1/2/5", link)(logits, labels)
        assert torch.equal(build_loss(config, link)(logits, labels), expected)
    assert LossConfig.parse({"name": "focal", "gamma": convert(2.0)}) == LossConfig.parse("focal:gamma=2")


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        ("cross_entropy:weights=1/2/5", "class_balanced:weights=1/2/5,"),
        ("focal:gamma=2,class_weights=1/2/5", "class_balanced:weights=1/2/5,gamma=2,"),
        ({"name": "focal", "gamma": 2, "weight": torch.tensor([1.0, 2, 5])}, "class_balanced:weights=1/2/5,gamma=2,"),
        ({"name": "brier", "class_weight": np.array([1, 2.5])}, "class_balanced:weights=1/2.5,"),
    ],
)
def test_class_weights_of_other_losses(value, meant):
    with pytest.raises(ValueError, match=f"loss .* has no (class_)?weights?: use {meant} cross-entropy or focal loss"):
        LossConfig.parse(value)


@pytest.mark.parametrize("value", [3, "- name: focal\n"])
def test_what_is_no_config_is_a_type_error(value):
    with pytest.raises(ValueError, match="loss must be a string, a mapping or a LossConfig, got"):
        LossConfig.parse(value)


def test_the_alpha_of_focal_loss_is_a_weight_of_each_class():
    with pytest.raises(
        ValueError, match=r"class_balanced:weights=0\.8/0\.2,gamma=2 is α = 0\.2, but .* samples N, not"
    ):
        build_loss("focal:gamma=2,alpha=0.2")
    logits = torch.tensor([[0.3, -0.2], [-1.0, 0.4]])
    softmax = build_loss("class_balanced:weights=0.8/0.2,gamma=2")(logits, torch.tensor([0, 1]), reduction="none")
    one_logit = (logits[:, 1:] - logits[:, :1]), torch.tensor([[0.0], [1.0]])
    sigmoid = build_loss("focal:gamma=2,alpha=0.2", "sigmoid")(*one_logit, reduction="none")
    torch.testing.assert_close(softmax, sigmoid.squeeze(1))


def values_of(kind):
    if type(None) in get_args(kind):
        return st.none() | values_of(get_args(kind)[0])
    if get_origin(kind) is Literal:
        return st.sampled_from(get_args(kind))
    if kind is bool:
        return st.booleans()
    if kind is int:
        return st.integers(1, 100)
    numbers = st.floats(0, 1) | st.integers(0, 9)
    return numbers if kind is float else st.lists(numbers, min_size=1, max_size=3).map(sorted)


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_options_of_any_kind_are_written_and_read_back(data):
    name = data.draw(st.sampled_from(sorted(LOSSES)))
    kinds = {key: values_of(option.kind) for key, option in LOSSES[name].options.items()}
    try:
        config = LossConfig.parse({"name": name, **data.draw(st.fixed_dictionaries({}, optional=kinds))})
    except ValueError:
        return  # out of range, or options that exclude each other
    for copied in (str(config), json.dumps(config.to_dict()), yaml.safe_dump(config.to_dict())):
        assert LossConfig.parse(copied) == config
