"""CIFAR-10 in minutes on one GPU: ResNet-50 with cross-entropy, focal loss, FLSD-53, and AdaFocal.

    python -m benchmarks.studies.gpu_cifar10 FOLDER [--device cuda] [--minutes 8]
        [--losses cross_entropy focal:gamma=3 ...] [--json FILE]

FOLDER has `train.parquet` and `test.parquet`, with the columns `image` (the bytes of an image file, or a struct that
has them as `bytes`) and `label`. The losses share the minutes equally, and each network is trained for as many epochs
as fit: the learning rate follows the time, not the epoch. The last 5,000 training images, in a random order, are held
out: AdaFocal's γ follow them, and T is fitted to them. Each epoch and each result is one line of JSON, printed and
appended to `--json` at once; a failure is a line, too, and the next loss follows. It needs PyTorch, NumPy, SciPy,
PyArrow, and Pillow.
"""

import io
import math
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.common.figures import add_line, script_options
from benchmarks.common.image_networks import resnet
from hf_focal import CalibrationMetrics
from hf_focal.calibration import fit_temperature
from hf_focal.losses import AdaFocalGamma, build_loss

Images = tuple[Tensor, Tensor]  # and their labels
Write = Callable[[Mapping[str, Any]], None]
LOSSES = ("cross_entropy", "focal:gamma=3", "flsd53", "adafocal")


def read_images(path: Path, device: str, limit: int | None = None) -> Images:
    """Return the images, uint8 (N, 3, H, W), and the labels, int64 (N,), of a Parquet file."""
    import numpy as np
    import pyarrow.parquet as parquet
    from PIL import Image

    table = parquet.read_table(path, columns=["image", "label"]).slice(0, limit)
    files = (cell["bytes"] if isinstance(cell, dict) else cell for cell in table["image"].to_pylist())
    pixels = np.stack([np.asarray(Image.open(io.BytesIO(file)).convert("RGB")) for file in files])
    images = torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous()
    return images.to(device), torch.tensor(table["label"].to_pylist(), device=device)


def normalized(images: Tensor) -> Tensor:
    mean, std = images.new_tensor([125, 123, 114], dtype=torch.float32), 63.0
    return ((images - mean[:, None, None]) / std).to(memory_format=torch.channels_last)


def augmented(images: Tensor) -> Tensor:
    """Shift each image by up to 4 pixels and flip half of them."""
    count, _, height, width = images.shape
    shift = torch.randint(9, (2, count), device=images.device)
    rows = shift[0, :, None] + torch.arange(height, device=images.device)
    columns = shift[1, :, None] + torch.arange(width, device=images.device)
    columns = torch.where(torch.rand(count, 1, device=images.device) < 0.5, columns.flip(1), columns)
    padded, each = F.pad(images, (4, 4, 4, 4)).permute(0, 2, 3, 1), torch.arange(count, device=images.device)
    return padded[each[:, None, None], rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


@torch.no_grad()
def logits_of(network: nn.Module, images: Tensor) -> Tensor:
    network.eval()
    with torch.autocast(images.device.type, torch.bfloat16):
        logits = torch.cat([network(normalized(part)).float() for part in images.split(1000)])
    network.train()
    return logits


def measured(logits: Tensor, labels: Tensor) -> dict[str, float]:
    metrics = CalibrationMetrics()
    metrics.update(logits, labels)
    values = metrics.compute()
    return {name: values[name] for name in ("error", "nll", "ece", "adaece", "classwise_ece", "brier")}


def train(name: str, data: dict[str, Images], network: nn.Module, seconds: float, batch: int, write: Write) -> None:
    """Train with one loss until the time is up, and write a line for each epoch and one for the test set."""
    loss, device = build_loss(name), data["train"][0].device
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)
    (images, labels), (held_out, held_labels) = data["train"], data["held_out"]
    start, epoch, used = time.monotonic(), 0, 0.0
    while used < 1:
        order, total, steps = torch.randperm(len(labels), device=device), torch.zeros((), device=device), 0
        for index in order.split(batch):
            used = (time.monotonic() - start) / seconds
            if used >= 1:
                break
            optimizer.param_groups[0]["lr"] = 0.1 * min(1.0, used / 0.05 + 0.05) * (1 + math.cos(math.pi * used)) / 2
            with torch.autocast(device.type, torch.bfloat16):
                value = loss(network(normalized(augmented(images[index]))), labels[index])
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
            total, steps = total + value.detach(), steps + 1
        epoch += 1
        held_logits = logits_of(network, held_out)
        policy = getattr(loss, "policy", None)
        if isinstance(policy, AdaFocalGamma):
            confidence, prediction = held_logits.softmax(-1).max(-1)
            policy.update(confidence, prediction == held_labels)
        line = {
            "loss": name,
            "epoch": epoch,
            "share_of_time": min(used, 1.0),
            "training_loss": float(total) / max(steps, 1),
        }
        write(line | measured(held_logits, held_labels))
    test, temperature = logits_of(network, data["test"][0]), fit_temperature(logits_of(network, held_out), held_labels)
    after = measured(test / temperature.value, data["test"][1])
    write(
        {
            "loss": name,
            "epochs": epoch,
            "T": temperature.value,
            "test": measured(test, data["test"][1]),
            "test_after_T": after,
        }
    )


def main(argv: list[str] | None = None) -> None:
    parser = script_options(__doc__, threads=False)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--minutes", type=float, default=8.0, help="of all losses together, with reading the images")
    parser.add_argument("--losses", nargs="+", default=LOSSES)
    parser.add_argument("--layers", type=int, nargs="+", default=(3, 4, 6, 3), help="blocks of each stage")
    parser.add_argument("--width", type=int, default=64, help="channels of the first convolution")
    parser.add_argument("--batch_size", type=int, default=256)
    parser.add_argument("--held_out", type=int, default=5000)
    parser.add_argument("--limit", type=int, help="images of each file")
    options = parser.parse_args(argv)
    deadline = time.monotonic() + 60 * options.minutes

    write = partial(add_line, options.json)

    def attempt(name: str, run: Callable[[], Any]) -> Any:
        try:
            return run()
        except Exception as failure:
            write({"loss": name, "failure": f"{type(failure).__name__}: {failure}"[:500]})
            return None

    def read() -> dict[str, Images]:
        images, labels = read_images(options.folder / "train.parquet", options.device, options.limit)
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0)).to(options.device)
        parts = {"train": order[: -options.held_out], "held_out": order[-options.held_out :]}
        data = {name: (images[part], labels[part]) for name, part in parts.items()}
        return data | {"test": read_images(options.folder / "test.parquet", options.device, options.limit)}

    data = attempt("reading the images", read)
    for done, name in enumerate(options.losses if data else ()):
        torch.manual_seed(0)
        network = resnet(tuple(options.layers), options.width).to(options.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        # The rest of the time, less a few seconds for the test set.
        seconds = 0.95 * (deadline - time.monotonic()) / (len(options.losses) - done)
        attempt(name, partial(train, name, data, network, seconds, options.batch_size, write))


if __name__ == "__main__":
    main()
