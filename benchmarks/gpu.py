"""Every hot path on one accelerator: time, memory and error of each, beside PyTorch's, Liger's and Apple's kernels.

    python benchmarks/gpu.py [--device cuda] [--sizes full] [--json FILE] [--markdown FILE]

`--sizes tiny --device cpu` runs everything that needs no accelerator in seconds. Times are medians of
`torch.utils.benchmark`, which waits for the device. Peak memory excludes the inputs. Errors are relative, by norms, to
float64 on the same device: of the gradient for losses, of the ECE for metrics. An error beyond its limit ends the
script: a kernel that is fast and wrong must not appear in a table. Liger's and Apple's kernels are included if
liger-kernel or cut-cross-entropy is installed, and torchmetrics if that is.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import torch
from loss import composed_focal, machine
from memory import peak_bytes
from papers.models.cifar_networks import cifar_config
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.benchmark import Timer
from transformers import AutoModelForImageClassification

from hf_focal import CalibrationMetrics, TemperatureStream
from hf_focal.losses import build_loss, focal_from_cross_entropy, linear_loss
from hf_focal.metrics import expected_calibration_error

SIZES = {
    "full": {
        "losses": [(128, 10), (4096, 1000), (8192, 32_000), (8192, 128_256)],
        "heads": [(8192, 4096, 32_000), (8192, 4096, 128_256)],
        "metrics": [(1_000_000, 10), (100_000, 1000)],
        "stream": (8192, 37_000),
        "images": (128, "resnet50"),
        "seconds": 1.0,
    },
    "tiny": {
        "losses": [(16, 10)],
        "heads": [(24, 16, 50)],
        "metrics": [(500, 10)],
        "stream": (200, 40),
        "images": (4, "resnet8"),
        "seconds": 0.01,
    },
}
# The largest relative error that rounding explains. A bfloat16 gradient is rounded to 8 bits, and kernels that compute
# in bfloat16 lose more; float32 products of matrices may use 10 bits on a GPU (TF32).
GRADIENT_LIMITS = {torch.float32: 2e-3, torch.bfloat16: 5e-2}
ECE_LIMIT = 1e-5

Line = dict[str, str | float | None]


def timed(run: Callable[[], object], seconds: float) -> float:
    """Return the median milliseconds of a run."""
    return 1e3 * Timer("run()", globals={"run": run}).blocked_autorange(min_run_time=seconds).median


def differentiate(kernel: Callable, labels: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(kernel(*inputs, labels), inputs)


def relative_error(found: Tensor, exact: Tensor) -> float:
    return ((found.double() - exact.double()).norm() / exact.double().norm()).item()


def check(name: str, error: float, limit: float) -> float:
    if not error <= limit:  # also NaN
        raise AssertionError(f"{name}: relative error {error:.2e}, at most {limit:.0e} is rounding")
    return error


def measured(section: str, size: str, name: str, run: Callable, error: float, device: str, seconds: float) -> Line:
    """Return and print a line."""
    run()  # compiles, and fills caches
    peak = peak_bytes(run, device) / 2**20
    line: Line = {"section": section, "size": size, "name": name, "milliseconds": timed(run, seconds)}
    line |= {"peak_MiB": peak, "error": error}
    print(f"{section:8} {size:24} {name:44} {line['milliseconds']:10.3f} ms {peak:10.1f} MiB  error {error:.1e}")
    return line


def loss_kernels() -> dict[str, tuple[Callable, Callable]]:
    """Losses of (logits, labels), and the same in plain float64 operations."""
    kernels: dict[str, tuple[Callable, Callable]] = {
        "F.cross_entropy": (F.cross_entropy, F.cross_entropy),
        "focal of F.cross_entropy": (composed_focal, composed_focal),
        "torch.compile(focal of F.cross_entropy)": (torch.compile(composed_focal), composed_focal),
    }
    for name in ("cross_entropy", "focal:gamma=3", "flsd53", "adafocal", "label_smoothing:alpha=0.1", "brier"):
        loss = build_loss(name)
        kernels[f"ours: {name}"] = loss, loss
    kernels["ours, compiled: focal:gamma=3"] = torch.compile(build_loss("focal:gamma=3")), composed_focal
    if find_spec("liger_kernel"):
        from liger_kernel.transformers import LigerCrossEntropyLoss

        kernels["Liger: cross_entropy"] = LigerCrossEntropyLoss(), F.cross_entropy
    return kernels


def measure_losses(sizes: dict, device: str) -> Iterator[Line]:
    for rows, classes in sizes["losses"]:
        generator = torch.Generator().manual_seed(0)
        exact = (torch.randn(rows, classes, generator=generator) * 2).to(device)
        labels = torch.randint(classes, (rows,), generator=generator).to(device)
        for dtype, limit in GRADIENT_LIMITS.items():
            logits = exact.to(dtype).requires_grad_()
            for name, (kernel, reference) in loss_kernels().items():
                if name.startswith("Liger") and device == "cpu":
                    continue
                # Liger's kernels write the gradient into the logits.
                given = logits.detach().clone().requires_grad_() if name.startswith("Liger") else logits
                wide = logits.detach().double().requires_grad_()
                right, found = differentiate(reference, labels, wide)[0], differentiate(kernel, labels, given)[0]
                error = check(name, relative_error(found, right), limit)
                del wide, right, found
                run = partial(differentiate, kernel, labels, given)
                size = f"{rows} x {classes}, {str(dtype).removeprefix('torch.')}"
                yield measured("loss", size, name, run, error, device, sizes["seconds"])


def token_kernels(device: str) -> dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]]:
    """Fused cross-entropies of each token, (hidden, weight, labels) to (N,), which take a gradient per token."""
    kernels: dict[str, Callable] = {}
    if hasattr(F, "linear_cross_entropy"):
        options = nn.LinearCrossEntropyOptions(batch_chunk_size=512, chunking_method=None)
        kernels["F.linear_cross_entropy"] = partial(F.linear_cross_entropy, options=options, reduction="none")
    if device != "cpu" and find_spec("liger_kernel"):  # from 0.8.2: the gradients of earlier versions fail the check
        from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss

        liger = LigerFusedLinearCrossEntropyLoss(reduction="none")
        kernels["Liger"] = lambda h, w, y: liger(w, h, y)
    return kernels


def focal_of_tokens(kernel: Callable, hidden: Tensor, weight: Tensor, labels: Tensor, gamma: float = 3) -> Tensor:
    return focal_from_cross_entropy(kernel(hidden, weight, labels).float(), gamma).mean()


def head_kernels(device: str) -> dict[str, tuple[Callable, bool]]:
    """Losses of (hidden, weight, labels), and whether they are focal losses with γ = 3."""
    kernels: dict[str, tuple[Callable, bool]] = {
        "F.linear + F.cross_entropy": (lambda h, w, y: F.cross_entropy(F.linear(h, w), y), False),
        "ours: cross_entropy": (partial(linear_loss, build_loss("cross_entropy")), False),
        "ours: focal:gamma=3": (partial(linear_loss, build_loss("focal:gamma=3")), True),
    }
    if hasattr(F, "linear_cross_entropy"):
        options = nn.LinearCrossEntropyOptions(batch_chunk_size=512, chunking_method=None)
        kernels["F.linear_cross_entropy"] = partial(F.linear_cross_entropy, options=options), False
    for name, kernel in token_kernels(device).items():
        kernels[f"focal of the tokens of {name}"] = partial(focal_of_tokens, kernel), True
    if device == "cpu":
        return kernels
    if find_spec("liger_kernel"):
        from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss

        liger = LigerFusedLinearCrossEntropyLoss()
        kernels["Liger: fused linear cross-entropy"] = (lambda h, w, y: liger(w, h, y)), False
    if find_spec("cut_cross_entropy"):
        from cut_cross_entropy import linear_cross_entropy

        kernels["Apple: cut-cross-entropy"] = linear_cross_entropy, False
    return kernels


def measure_heads(sizes: dict, device: str) -> Iterator[Line]:
    for tokens, features, classes in sizes["heads"]:
        generator = torch.Generator().manual_seed(0)
        hidden = torch.randn(tokens, features, generator=generator)
        weight = torch.randn(classes, features, generator=generator) * (2 / features**0.5)
        labels = torch.randint(classes, (tokens,), generator=generator).to(device)
        inputs = [tensor.to(device, torch.bfloat16).requires_grad_() for tensor in (hidden, weight)]
        few = min(tokens, 512)  # whose float64 logits fit into memory
        part = inputs[0][:few].detach(), inputs[1].detach()
        right = {}
        for focal, loss in ((False, F.cross_entropy), (True, composed_focal)):
            wide = [tensor.double().requires_grad_() for tensor in part]
            right[focal] = torch.autograd.grad(loss(F.linear(*wide), labels[:few]), wide)
        for name, (kernel, focal) in head_kernels(device).items():
            narrow = part[0].clone().requires_grad_(), part[1].clone().requires_grad_()
            found = differentiate(kernel, labels[:few], *narrow)
            errors = [relative_error(*pair) for pair in zip(found, right[focal], strict=True)]
            error = check(name, max(errors), GRADIENT_LIMITS[torch.bfloat16])
            run = partial(differentiate, kernel, labels, *inputs)
            size = f"{tokens} x {features} x {classes}"
            line = measured("head", size, name, run, error, device, sizes["seconds"])
            yield line | {"tokens_per_second": tokens / (float(line["milliseconds"] or 0) / 1e3)}


def measure_metrics(sizes: dict, device: str) -> Iterator[Line]:
    for rows, classes in sizes["metrics"]:
        generator = torch.Generator().manual_seed(0)
        logits = (torch.randn(rows, classes, generator=generator) * 2).to(device)
        labels = torch.randint(classes, (rows,), generator=generator).to(device)
        exact = float(expected_calibration_error(logits.double(), labels))

        def stream(logits: Tensor = logits, labels: Tensor = labels) -> dict:
            metrics = CalibrationMetrics()
            metrics.update(logits, labels)
            return metrics.compute()

        runs: dict[str, tuple[Callable, Callable]] = {
            "ours: ece": (partial(expected_calibration_error, logits, labels), float),
            "ours: CalibrationMetrics, all": (stream, lambda result: result["ece"]),
        }
        if find_spec("torchmetrics"):
            from torchmetrics.functional.classification import multiclass_calibration_error

            runs["torchmetrics: ece"] = partial(multiclass_calibration_error, logits, labels, classes, 15), float
        for name, (run, read) in runs.items():
            error = check(name, abs(read(run()) - exact) / exact, 1e-3 if "torchmetrics" in name else ECE_LIMIT)
            yield measured("metrics", f"{rows} x {classes}", name, run, error, device, sizes["seconds"])


def measure_stream(sizes: dict, device: str) -> Iterator[Line]:
    tokens, classes = sizes["stream"]
    generator = torch.Generator().manual_seed(0)
    logits = (torch.randn(tokens, classes, generator=generator) * 3).to(device)
    labels = torch.multinomial((logits / 2).softmax(-1).cpu(), 1, generator=generator).squeeze(1).to(device)

    def stream() -> TemperatureStream:
        sums = TemperatureStream()
        sums.update(logits, labels)
        return sums

    curves = stream().compute()
    exact = [F.cross_entropy(logits.double() / t, labels).item() for t in curves.temperatures]
    found = torch.from_numpy(curves.nll)
    error = check("NLL at each temperature", relative_error(found, torch.tensor(exact)), 1e-5)
    line = measured("stream", f"{tokens} x {classes}", "100 temperatures", stream, error, device, sizes["seconds"])
    yield line | {"tokens_per_second": tokens / (float(line["milliseconds"] or 0) / 1e3)}


def measure_images(sizes: dict, device: str) -> Iterator[Line]:
    """A training step of a network for CIFAR-10, under bfloat16 autocast, with each loss."""
    batch, name = sizes["images"]
    torch.manual_seed(0)
    network = AutoModelForImageClassification.from_config(cifar_config(name, num_labels=10)).to(device)
    network = network.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    images = torch.randn(batch, 3, 32, 32, device=device).to(memory_format=torch.channels_last)
    labels = torch.randint(10, (batch,), device=device)

    def step(loss: Callable) -> Tensor:
        with torch.autocast(torch.device(device).type, torch.bfloat16):
            value = loss(network(images).logits, labels)
        value.backward()
        optimizer.step()
        optimizer.zero_grad()
        return value.detach()

    losses = {"F.cross_entropy": F.cross_entropy}
    losses |= {f"ours: {loss}": build_loss(loss) for loss in ("cross_entropy", "flsd53", "adafocal")}
    for loss, function in losses.items():
        value = step(function)
        if not torch.isfinite(value):
            raise AssertionError(f"{loss}: the loss is {value}")
        run = partial(step, function)
        yield measured("images", f"{name}, {batch} images", loss, run, 0.0, device, sizes["seconds"])


SECTIONS = (measure_losses, measure_heads, measure_metrics, measure_stream, measure_images)


def table(lines: list[Line], device: dict) -> str:
    """The lines as Markdown, with times as multiples of the first of their section and size."""
    rows = [
        f"Measured on {device['device']}, PyTorch {device['torch']}.",
        "",
        "| | size | | ms | relative | peak MiB | error |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: |",
    ]
    first: dict[tuple, float] = {}
    for line in lines:
        time = float(line["milliseconds"] or 0)
        relative = time / first.setdefault((line["section"], line["size"]), time)
        cells = [line["section"], line["size"], line["name"], f"{time:.3f}", f"{relative:.2f}"]
        cells += [f"{line['peak_MiB']:.1f}", f"{line['error']:.1e}"]
        rows.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(rows) + "\n"


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--sizes", choices=SIZES, default="full")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args(argv)
    device = machine(options.device)
    lines = [line for measure in SECTIONS for line in measure(SIZES[options.sizes], options.device)]
    if options.json:
        options.json.write_text(json.dumps({"machine": device, "lines": lines}, indent=1) + "\n", encoding="utf-8")
    if options.markdown:
        options.markdown.write_text(table(lines, device), encoding="utf-8")


if __name__ == "__main__":
    main()
