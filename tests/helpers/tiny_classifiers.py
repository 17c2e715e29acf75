"""Tiny classifiers with random weights and biases, and inputs for them."""

import torch
import transformers

TINY = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24, "vocab_size": 50}
IMAGE = {"image_size": 16, "patch_size": 8, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
RESNET = {"embedding_size": 8, "hidden_sizes": [8] * 4, "depths": [1] * 4, "layer_type": "basic"}
BACKBONE = transformers.ResNetConfig(**RESNET, out_features=["stage1", "stage2", "stage3", "stage4"])
SEGMENTATION = {
    "SegformerForSemanticSegmentation": {"hidden_sizes": [8] * 4, "depths": [1] * 4, "decoder_hidden_size": 8}
    | {"num_attention_heads": [1] * 4},
    "UperNetForSemanticSegmentation": {"backbone_config": BACKBONE, "hidden_size": 8, "use_auxiliary_head": False},
}


def build(name, **options):
    torch.manual_seed(0)
    model_class = getattr(transformers, name)
    config = model_class.config_class(**{"num_labels": 3, "pad_token_id": 0} | options)
    model = model_class(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # no zero bias, no unit norm: a fold that forgets one shows
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def inputs(model):
    generator = torch.Generator().manual_seed(1)
    if model.main_input_name == "pixel_values":
        size = getattr(model.config, "image_size", 32)
        return {"pixel_values": torch.randn(4, 3, size, size, generator=generator)}
    ids = torch.randint(3, 50, (4, 7), generator=generator)
    ids[:, -1] = 2  # BART's classification head reads the end-of-sequence token
    return {"input_ids": ids}


@torch.no_grad()
def logits_of(model):
    return model(**inputs(model)).logits
