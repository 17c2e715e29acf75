"""A tiny SegFormer and its pictures, in float64; run as a script it trains and measures in as many processes as it is
started with.

segmentation_models.py FOLDER NUM_PROCESSES
"""

import json
import sys
from pathlib import Path

import torch
from processes import leave
from tiny_models import trainer_of, untimed, weights
from torch import nn
from transformers import SegformerConfig, SegformerForSemanticSegmentation

NUM_CLASSES, HEIGHT, WIDTH = 4, 12, 16


def tiny_segformer(**options) -> SegformerForSemanticSegmentation:
    """Without dropout and without batch normalization, which would depend on how a step is cut up."""
    torch.manual_seed(0)
    sizes = {"num_encoder_blocks": 2, "depths": [1, 1], "sr_ratios": [2, 1], "hidden_sizes": [8, 16]}
    sizes |= {"patch_sizes": [3, 3], "strides": [2, 2], "num_attention_heads": [1, 2], "mlp_ratios": [2, 2]}
    names = ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout_prob", "drop_path_rate")
    dropout = dict.fromkeys(names, 0.0)
    config = SegformerConfig(**sizes, **dropout, decoder_hidden_size=8, **{"num_labels": NUM_CLASSES} | options)
    model = SegformerForSemanticSegmentation(config).double()
    model.decode_head.batch_norm = nn.Identity()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        model.decode_head.classifier.weight.mul_(10)  # confidences that differ from each other
    return model


def pictures(count: int, seed: int = 0, ignored: int = 255) -> list[dict]:
    """Samples whose label depends on the pixel, as uint8; of each another share of the pixels is ignored."""
    generator = torch.Generator().manual_seed(seed)
    samples = []
    for number in range(count):
        values = torch.randn(3, HEIGHT, WIDTH, generator=generator, dtype=torch.float64)
        labels = (values[0] > 0).long() + 2 * (values[1] > 1).long()
        left_out = torch.rand(labels.shape, generator=generator) < 0.9 * number / count
        samples.append({"pixel_values": values, "labels": labels.masked_fill(left_out, ignored).to(torch.uint8)})
    return samples


def pixels_of(samples: list[dict], ignored: int = 255) -> tuple[torch.Tensor, torch.Tensor]:
    """Images (N, 3, H, W) and labels (N, H, W), int64, -100 where they are ignored."""
    labels = torch.stack([sample["labels"] for sample in samples]).long()
    return torch.stack([sample["pixel_values"] for sample in samples]), labels.masked_fill(labels == ignored, -100)


def logits_of_pixels(model: nn.Module, samples: list[dict]) -> torch.Tensor:
    """(N, H, W, K), as the model's own loss interpolates them, pixel for pixel in float64."""
    images, labels = pixels_of(samples)
    logits = model(pixel_values=images).logits
    size = labels.shape[-2:]
    return nn.functional.interpolate(logits, size, mode="bilinear", align_corners=False).permute(0, 2, 3, 1)


def train(folder: Path, num_processes: int) -> dict:
    """Five steps of up to 4 pictures, of which the last has 3."""
    options = {"per_device_train_batch_size": 4 // num_processes, "per_device_eval_batch_size": 2}
    options |= {"loss": "focal:gamma=2", "learning_rate": 0.05}
    data = {"train_dataset": pictures(19), "eval_dataset": pictures(7, 1)}
    trainer = trainer_of(folder, tiny_segformer(), **options, **data)
    assert trainer.args.world_size == num_processes, trainer.args.world_size
    trainer.train()
    return {
        "metrics": untimed(trainer.evaluate()),
        "weights": weights(trainer.model).tolist(),
        "counts": trainer.confusion.counts.tolist(),
        "temperature": trainer.fit_temperature().value,
    }


if __name__ == "__main__":
    folder, num_processes = Path(sys.argv[1]), int(sys.argv[2])
    measured = train(folder, num_processes)
    (folder / f"{torch.distributed.get_rank()}.json").write_text(json.dumps(measured), encoding="utf-8")
    leave()
