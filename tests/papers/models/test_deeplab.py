"""DeepLabV3 on a backbone of timm."""

import pytest
import torch
from papers.models import DeepLabV3Config
from torch import nn
from transformers import AutoModelForSemanticSegmentation

pytestmark = [pytest.mark.full, pytest.mark.slow]


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    config = DeepLabV3Config(hidden_size=16, num_labels=5)
    return AutoModelForSemanticSegmentation.from_config(config).eval()


@torch.no_grad()
def test_features_and_head_are_those_of_torchvision(model):
    from torchvision.models import resnet18
    from torchvision.models.segmentation.deeplabv3 import ASPP

    images = torch.randn(2, 3, 64, 96)
    head = ASPP(512, [6, 12, 18], 16).eval()
    head.convs.load_state_dict(dict(zip(head.convs.state_dict(), model.branches.state_dict().values(), strict=True)))
    head.project[:2].load_state_dict(model.projection[:2].state_dict())
    (features,) = model.backbone(images)
    torch.testing.assert_close(model(images).logits, model.classifier(head(features)))
    assert model(images).logits.shape == (2, 5, 4, 6)

    # With its usual stride, the backbone is torchvision's; with 16, its last stage has dilation 2 instead of stride 2.
    reference = resnet18().eval()
    reference.load_state_dict(model.backbone.state_dict(), strict=False)
    reference.layer4[0].conv1.stride = reference.layer4[0].downsample[0].stride = 1
    for block, dilations in ((reference.layer4[0], (1, 2)), (reference.layer4[1], (2, 2))):
        for convolution, dilation in zip((block.conv1, block.conv2), dilations, strict=True):
            convolution.dilation = convolution.padding = (dilation, dilation)
    expected = nn.Sequential(*list(reference.children())[:-2])(images)
    torch.testing.assert_close(features, expected)


def test_the_loss_interpolates_logits_and_leaves_out_pixels(model):
    images, labels = torch.randn(2, 3, 64, 64), torch.randint(5, (2, 64, 64))
    labels[0, :20] = 255
    output = model(images, labels=labels)
    logits = nn.functional.interpolate(output.logits, (64, 64), mode="bilinear")
    chosen = logits.log_softmax(1).gather(1, labels.clamp(max=4)[:, None])[:, 0][labels != 255]
    torch.testing.assert_close(output.loss, -chosen.mean())


def test_a_saved_model_loads(model, tmp_path):
    model.save_pretrained(tmp_path)
    loaded = AutoModelForSemanticSegmentation.from_pretrained(tmp_path).eval()
    torch.testing.assert_close(loaded.state_dict(), model.state_dict(), rtol=0, atol=0)
    images = torch.randn(1, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(loaded(images).logits, model(images).logits)


def test_wrong_sizes_are_refused():
    for options, problem in (({"output_stride": 4}, "output_stride must be"), ({"atrous_rates": [0]}, "atrous_rates")):
        with pytest.raises(Exception, match=problem):
            DeepLabV3Config(**options)
