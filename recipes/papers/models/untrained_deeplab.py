"""Write a DeepLabV3 with random weights to a folder.

    python -m papers.models.untrained_deeplab resnet18 out/deeplab

The folder also has the network's code: recipes/semantic_segmentation.py loads it with --trust_remote_code true.
"""

import sys
from pathlib import Path

from transformers import SegformerImageProcessorPil

from .deeplab import DeepLabV3Config, DeepLabV3ForSemanticSegmentation


def write_deeplab(backbone: str, folder: Path) -> None:
    """Save a network on a backbone of timm, the code of the network, and an image processor."""
    DeepLabV3Config.register_for_auto_class()
    DeepLabV3ForSemanticSegmentation.register_for_auto_class("AutoModelForSemanticSegmentation")
    DeepLabV3ForSemanticSegmentation(DeepLabV3Config(backbone=backbone)).save_pretrained(folder)
    SegformerImageProcessorPil(image_mean=[0.5] * 3, image_std=[0.5] * 3).save_pretrained(folder)


if __name__ == "__main__":
    write_deeplab(sys.argv[1], Path(sys.argv[2]))
