"""Folding into every class that four Auto classes map to, and into every family of timm: right, or refused."""

from collections import Counter

import pytest
from folding_census import build, census_of
from transformers import (
    AutoModelForImageClassification,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    TimmWrapperConfig,
    TimmWrapperForImageClassification,
)

# One small architecture of each module of timm that has one.
TIMM = """
    halonet_h1 mobileone_s0 cait_xxs24_224 coat_lite_tiny convit_tiny convmixer_768_32 convnext_atto cpubone_nano
    crossvit_tiny_240 csatv2 cs3darknet_focus_s cspnext_s davit_tiny deit_tiny_distilled_patch16_224 densenet121
    dla46_c dpn48b edgenext_small efficientformer_l1 efficientformerv2_s0 efficientnet_b0 efficientvim_m1
    efficientvit_b0 efficientvit_m0 eva02_tiny_patch14_224 fasternet_t0 fastvit_t8 focalnet_tiny_srf gcvit_xxtiny
    ghostnet_050 hardcorenas_a hgnetv2_b0 hiera_tiny_224 sam2_hiera_tiny hrnet_w18_small iformer_t
    inception_next_atto inception_v3 lcnetv2_base levit_128s lowformer_b0 test_mambaout test_coatnet
    poolformerv2_s12 gmlp_ti16_224 lcnet_035 mobilevit_s mvitv2_tiny nest_tiny test_nfnet pit_ti_224 pvt_v2_b0
    rdnet_tiny regnetx_002 repghostnet_050 repvit_m0_9 res2next50 resnest14d resnet10t resnetv2_18 rexnet_100
    selecsls42 legacy_seresnet18 sequencer2d_s shvit_s1 skresnet18 starnet_s1 swiftformer_s
    swin_tiny_patch4_window7_224 swinv2_tiny_window8_256 swinv2_cr_tiny_224 tiny_vit_5m_224 tnt_s_legacy_patch16_224
    tresnet_m
""".split()  # noqa: SIM905


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("auto", "least"),  # how many classes can be built small and run on random inputs
    [
        (AutoModelForSequenceClassification, 60),
        (AutoModelForTokenClassification, 25),
        (AutoModelForImageClassification, 20),
        (AutoModelForMaskedLM, 40),
    ],
)
def test_every_class_of_an_auto_class(auto, least):
    counts, wrong = Counter(), []
    for config_class in auto._model_mapping:
        try:
            model = build(auto, config_class)
        except Exception:  # a config that needs more than sizes
            counts["not built"] += 1
            continue
        try:
            counts[census_of(model).split(":")[0]] += 1
        except AssertionError as error:
            wrong.append(f"{type(model).__name__}: {error}")
        except TypeError:  # it does not run on random inputs, or has no logits
            counts["not run"] += 1
    assert not wrong
    assert counts["folded"] >= least, counts


@pytest.mark.slow
@pytest.mark.full
@pytest.mark.parametrize("architecture", TIMM)
def test_every_family_of_timm(architecture):
    config = TimmWrapperConfig(architecture=architecture, num_labels=3)
    config.pretrained_cfg = pytest.importorskip("timm").get_pretrained_cfg(architecture).to_dict()
    found = census_of(TimmWrapperForImageClassification(config))
    assert found == "folded" or (architecture == "efficientvim_m1" and found.startswith("refused"))  # four heads


@pytest.mark.slow
@pytest.mark.full
def test_volo_whose_logits_are_those_of_two_heads():
    from timm.models.volo import VOLO

    model = TimmWrapperForImageClassification(TimmWrapperConfig(architecture="test_resnet", num_labels=3))
    sizes = {"layers": [1, 1, 1, 1], "embed_dims": [24, 48, 48, 48], "num_heads": [2, 4, 4, 4]}
    model.timm_model = VOLO(**sizes, img_size=224, num_classes=3)
    assert census_of(model) == "folded"
