"""Every hot path on one accelerator: time, memory and error of each, beside PyTorch's, Liger's and Apple's kernels.

    python -m benchmarks.speed.gpu [--device cuda] [--sizes full] [--sections losses heads metrics stream images]
        [--minutes 8] [--json FILE]

For a machine that is borrowed for minutes: it needs PyTorch, NumPy, and SciPy, and no network. Each measurement is one
line of JSON, printed and appended to `--json` at once, so what is measured is kept if the machine goes away. What
fails, or is wrong, becomes a line with "failure", and the next measurement follows. After `--minutes`, no measurement
begins. Random numbers are drawn on the device. `benchmarks/studies/gpu_cifar10.py` trains networks.

`--sizes tiny --device cpu` runs everything that needs no accelerator in seconds. Times are medians of
measurements of about 20 ms. Peak memory excludes the inputs. Errors are relative, by norms, to
float64 on the same device: of the gradient for losses, of the ECE for metrics. A measurement whose error is beyond its
limit is a failure without a time: a kernel that is fast and wrong must not appear in a table. Liger's and Apple's
kernels are included if liger-kernel or cut-cross-entropy is installed, and torchmetrics if that is.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.common.figures import add_line, machine, script_options
from benchmarks.common.image_networks import resnet
from benchmarks.common.loss_functions import composed_focal
from benchmarks.common.memory import peak_bytes
from benchmarks.common.timing import times_in_turn
from hf_focal import CalibrationMetrics
from hf_focal.calibration import TemperatureStream
from hf_focal.losses import build_loss, focal_from_cross_entropy, linear_loss
from hf_focal.metrics import expected_calibration_error

Kernel = Callable[..., Any]
SIZES: dict[str, dict[str, Any]] = {
    "full": {
        "losses": [(128, 10), (4096, 1000), (8192, 32_000), (8192, 128_256)],
        "heads": [(8192, 4096, 32_000), (8192, 4096, 128_256)],
        "metrics": [(1_000_000, 10), (100_000, 1000)],
        "stream": (8192, 37_000),
        "images": (128, (3, 4, 6, 3), 64),
        "seconds": 0.3,
    },
    "tiny": {
        "losses": [(16, 10)],
        "heads": [(24, 16, 50)],
        "metrics": [(500, 10)],
        "stream": (200, 40),
        "images": (4, (1, 1), 8),
        "seconds": 0.01,
    },
}
# The largest relative error that rounding explains. A bfloat16 gradient is rounded to 8 bits, and kernels that compute
# in bfloat16 lose more; float32 products of matrices may use 10 bits on a GPU (TF32).
GRADIENT_LIMITS = {torch.float32: 2e-3, torch.bfloat16: 5e-2}
ECE_LIMIT = 1e-5

TORCHMETRICS = "torchmetrics.functional.classification"


class OutOfTime(Exception):
    """No measurement may begin."""


@dataclass
class Recorder:
    """Writes a `GpuLine` for each measurement; `deadline` is a time of `time.monotonic`."""

    device: str
    seconds: float
    deadline: float
    file: Path | None = None

    def measure(
        self, section: str, size: str, name: str, run: Kernel, error: Callable[[], float], limit: float, items: int = 0
    ) -> None:
        """Time `run` if its `error` is within the limit, else record why not; a run processes so many `items`."""
        if time.monotonic() > self.deadline:
            raise OutOfTime
        try:
            add_line(
                self.file, {"section": section, "size": size, "name": name, **self.figures(run, error, limit, items)}
            )
        except Exception as failure:
            add_line(self.file, {"section": section, "size": size, "name": name, "failure": describe(failure)})

    def figures(self, run: Kernel, error: Callable[[], float], limit: float, items: int) -> dict[str, float]:
        relative = error()
        if not relative <= limit:  # also NaN
            raise AssertionError(f"relative error {relative:.2e}, at most {limit:.0e} is rounding")
        run()  # compiles, and fills caches
        peak = peak_bytes(run, self.device) / 2**20
        times = times_in_turn({"run": run}, 1000, repeat=True, budget=self.seconds, device=self.device)
        milliseconds = times["run"].milliseconds
        found = {"error": relative, "peak_MiB": peak, "milliseconds": milliseconds}
        return found | ({"items_per_second": 1e3 * items / milliseconds} if items else {})


def describe(failure: Exception) -> str:
    return f"{type(failure).__name__}: {failure}"[:500]


def peer(load: Callable[[], Kernel]) -> Kernel:
    """Return the kernel of another library, or a function that raises what importing it raised."""
    try:
        return load()
    except Exception as failure:
        problem = failure

    def missing(*_: Any, **__: Any) -> None:
        raise problem

    return missing


def liger(name: str, **options: Any) -> Kernel:
    return peer(lambda: getattr(import_module("liger_kernel.transformers"), name)(**options))


def differentiate(kernel: Kernel, labels: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(kernel(*inputs, labels), inputs)


def relative_error(computed: Tensor, exact: Tensor) -> float:
    return ((computed.double() - exact.double()).norm() / exact.double().norm()).item()


def loss_kernels() -> dict[str, tuple[Kernel, Kernel]]:
    """Losses of (logits, labels), and the same in plain float64 operations."""
    kernels: dict[str, tuple[Kernel, Kernel]] = {
        "F.cross_entropy": (F.cross_entropy, F.cross_entropy),
        "focal of F.cross_entropy": (composed_focal, composed_focal),
    }
    for name in ("cross_entropy", "focal:gamma=3", "flsd53", "adafocal", "label_smoothing:alpha=0.1", "brier"):
        loss = build_loss(name)
        kernels[f"ours: {name}"] = loss, loss
    if find_spec("liger_kernel"):
        kernels["Liger: cross_entropy"] = liger("LigerCrossEntropyLoss"), F.cross_entropy
    # They come last, because compilation takes long, and needs a compiler.
    kernels["torch.compile(focal of F.cross_entropy)"] = peer(lambda: torch.compile(composed_focal)), composed_focal
    ours = peer(lambda: torch.compile(build_loss("focal:gamma=3")))
    kernels["ours, compiled: focal:gamma=3"] = ours, composed_focal
    return kernels


def measure_losses(recorder: Recorder, sizes: Mapping[str, Any], device: str) -> None:
    for rows, classes in sizes["losses"]:
        generator = torch.Generator(device).manual_seed(0)
        exact = torch.randn(rows, classes, generator=generator, device=device) * 2
        labels = torch.randint(classes, (rows,), generator=generator, device=device)
        for dtype, limit in GRADIENT_LIMITS.items():
            logits = exact.to(dtype).requires_grad_()
            for name, (kernel, reference) in loss_kernels().items():
                if name.startswith("Liger") and device == "cpu":
                    continue
                # Liger's kernels write the gradient into the logits.
                inputs = logits.detach().clone().requires_grad_() if name.startswith("Liger") else logits
                error = partial(loss_error, kernel, reference, inputs, logits, labels)
                run = partial(differentiate, kernel, labels, inputs)
                size = f"{rows} x {classes}, {str(dtype).removeprefix('torch.')}"
                recorder.measure("losses", size, name, run, error, limit)


def loss_error(kernel: Kernel, reference: Kernel, inputs: Tensor, logits: Tensor, labels: Tensor) -> float:
    exact = differentiate(reference, labels, logits.detach().double().requires_grad_())[0]
    return relative_error(differentiate(kernel, labels, inputs)[0], exact)


def token_kernels(device: str) -> dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]]:
    """Fused cross-entropies of each token, (hidden, weight, labels) to (N,), which take a gradient per token."""
    kernels: dict[str, Kernel] = {}
    if hasattr(F, "linear_cross_entropy"):
        options = nn.LinearCrossEntropyOptions(batch_chunk_size=512, chunking_method=None)  # type: ignore[attr-defined]
        kernels["F.linear_cross_entropy"] = partial(F.linear_cross_entropy, options=options, reduction="none")
    if device != "cpu" and find_spec("liger_kernel"):  # from 0.8.2: the gradients of earlier versions fail the check
        fused = liger("LigerFusedLinearCrossEntropyLoss", reduction="none")
        kernels["Liger"] = lambda h, w, y: fused(w, h, y)
    return kernels


def focal_of_tokens(kernel: Kernel, hidden: Tensor, weight: Tensor, labels: Tensor, gamma: float = 3) -> Tensor:
    return focal_from_cross_entropy(kernel(hidden, weight, labels).float(), gamma).mean()


def head_kernels(device: str) -> dict[str, tuple[Kernel, bool]]:
    """Losses of (hidden, weight, labels), and whether they are focal losses with γ = 3."""
    kernels: dict[str, tuple[Kernel, bool]] = {
        "F.linear + F.cross_entropy": (lambda h, w, y: F.cross_entropy(F.linear(h, w), y), False),
        "ours: cross_entropy": (partial(linear_loss, build_loss("cross_entropy")), False),
        "ours: focal:gamma=3": (partial(linear_loss, build_loss("focal:gamma=3")), True),
    }
    if hasattr(F, "linear_cross_entropy"):
        options = nn.LinearCrossEntropyOptions(batch_chunk_size=512, chunking_method=None)  # type: ignore[attr-defined]
        kernels["F.linear_cross_entropy"] = partial(F.linear_cross_entropy, options=options), False
    for name, kernel in token_kernels(device).items():
        kernels[f"focal of the tokens of {name}"] = partial(focal_of_tokens, kernel), True
    if device == "cpu":
        return kernels
    if find_spec("liger_kernel"):
        fused = liger("LigerFusedLinearCrossEntropyLoss")
        kernels["Liger: fused linear cross-entropy"] = (lambda h, w, y: fused(w, h, y)), False
    if find_spec("cut_cross_entropy"):
        apple = peer(lambda: import_module("cut_cross_entropy").linear_cross_entropy)
        kernels["Apple: cut-cross-entropy"] = apple, False
    return kernels


def measure_heads(recorder: Recorder, sizes: Mapping[str, Any], device: str) -> None:
    for tokens, features, classes in sizes["heads"]:
        generator = torch.Generator(device).manual_seed(0)
        draw = partial(torch.randn, generator=generator, device=device, dtype=torch.bfloat16)
        hidden = draw(tokens, features).requires_grad_()
        weight = (draw(classes, features) * (2 / features**0.5)).requires_grad_()
        labels = torch.randint(classes, (tokens,), generator=generator, device=device)
        few = min(tokens, 512)  # whose float64 logits fit into memory
        part = hidden[:few].detach(), weight.detach()
        right = {}
        for focal, loss in ((False, F.cross_entropy), (True, composed_focal)):
            wide = [tensor.double().requires_grad_() for tensor in part]
            right[focal] = [grad.float() for grad in torch.autograd.grad(loss(F.linear(*wide), labels[:few]), wide)]
            del wide
        for name, (kernel, focal) in head_kernels(device).items():
            error = partial(head_error, kernel, right[focal], part, labels[:few])
            run = partial(differentiate, kernel, labels, hidden, weight)
            size = f"{tokens} x {features} x {classes}"
            recorder.measure("heads", size, name, run, error, GRADIENT_LIMITS[torch.bfloat16], items=tokens)


def head_error(kernel: Kernel, exact: Sequence[Tensor], inputs: Sequence[Tensor], labels: Tensor) -> float:
    computed = differentiate(kernel, labels, *(tensor.clone().requires_grad_() for tensor in inputs))
    return max(relative_error(*pair) for pair in zip(computed, exact, strict=True))


def measure_metrics(recorder: Recorder, sizes: Mapping[str, Any], device: str) -> None:
    for rows, classes in sizes["metrics"]:
        generator = torch.Generator(device).manual_seed(0)
        logits = torch.randn(rows, classes, generator=generator, device=device) * 2
        labels = torch.randint(classes, (rows,), generator=generator, device=device)
        exact = float(expected_calibration_error(logits.double(), labels))

        def stream(logits: Tensor = logits, labels: Tensor = labels, batch: int = rows) -> dict[str, float]:
            metrics = CalibrationMetrics()
            for start in range(0, len(labels), batch):
                metrics.update(logits[start : start + batch], labels[start : start + batch])
            return metrics.compute()

        runs: dict[str, tuple[Kernel, Callable[[Any], float]]] = {
            "ours: ece": (partial(expected_calibration_error, logits, labels), float),
            "ours: CalibrationMetrics, all": (stream, lambda result: result["ece"]),
            "ours: CalibrationMetrics, 100 batches": (
                partial(stream, batch=rows // 100),
                lambda result: result["ece"],
            ),
        }
        if find_spec("torchmetrics"):
            theirs = peer(lambda: import_module(TORCHMETRICS).multiclass_calibration_error)
            runs["torchmetrics: ece"] = partial(theirs, logits, labels, classes, 15), float
        for name, (run, read) in runs.items():

            def error(run: Kernel = run, read: Callable[[Any], float] = read, exact: float = exact) -> float:
                return abs(read(run()) - exact) / exact

            limit = 1e-3 if "torchmetrics" in name else ECE_LIMIT
            recorder.measure("metrics", f"{rows} x {classes}", name, run, error, limit, items=rows)


def measure_stream(recorder: Recorder, sizes: Mapping[str, Any], device: str) -> None:
    tokens, classes = sizes["stream"]
    generator = torch.Generator(device).manual_seed(0)
    logits = torch.randn(tokens, classes, generator=generator, device=device) * 3
    labels = torch.multinomial((logits / 2).softmax(-1), 1, generator=generator).squeeze(1)

    def stream() -> TemperatureStream:
        sums = TemperatureStream()
        sums.update(logits, labels)
        return sums

    def error() -> float:
        curves = stream().compute()
        exact = [F.cross_entropy(logits.double() / t, labels).item() for t in curves.temperatures]
        return relative_error(torch.from_numpy(curves.nll), torch.tensor(exact))

    recorder.measure("stream", f"{tokens} x {classes}", "100 temperatures", stream, error, 1e-5, items=tokens)


def measure_images(recorder: Recorder, sizes: Mapping[str, Any], device: str) -> None:
    """A training step of a ResNet for images of 32 x 32 pixels, under bfloat16 autocast, with each loss."""
    batch, layers, width = sizes["images"]
    torch.manual_seed(0)
    network = resnet(layers, width).to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    images = torch.randn(batch, 3, 32, 32, device=device).to(memory_format=torch.channels_last)
    labels = torch.randint(10, (batch,), device=device)

    def step(loss: Kernel) -> Tensor:
        with torch.autocast(torch.device(device).type, torch.bfloat16):
            value = loss(network(images), labels)
        value.backward()
        optimizer.step()
        optimizer.zero_grad()
        return value.detach()

    losses: dict[str, Kernel] = {"F.cross_entropy": F.cross_entropy}
    losses |= {f"ours: {loss}": build_loss(loss) for loss in ("cross_entropy", "focal:gamma=3", "flsd53", "adafocal")}
    for name, loss in losses.items():

        def error(loss: Kernel = loss) -> float:
            return 0.0 if torch.isfinite(step(loss)) else float("nan")

        size = f"ResNet-{2 + 3 * sum(layers)}, {batch} images"
        recorder.measure("images", size, name, partial(step, loss), error, 0.0, items=batch)


SECTIONS = {
    "losses": measure_losses,
    "heads": measure_heads,
    "metrics": measure_metrics,
    "stream": measure_stream,
    "images": measure_images,
}


def main(argv: list[str] | None = None) -> None:
    parser = script_options(__doc__, threads=False)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--sizes", choices=SIZES, default="full")
    parser.add_argument("--sections", choices=SECTIONS, nargs="+", default=list(SECTIONS))
    parser.add_argument("--minutes", type=float, default=8.0, help="no measurement begins later")
    options = parser.parse_args(argv)
    sizes, deadline = SIZES[options.sizes], time.monotonic() + 60 * options.minutes
    recorder = Recorder(options.device, sizes["seconds"], deadline, options.json)
    has_gpu = options.device.startswith("cuda") and torch.cuda.is_available()
    add_line(options.json, {"section": "machine", **machine(options.device if has_gpu else "cpu")})
    for section in options.sections:
        try:
            SECTIONS[section](recorder, sizes, options.device)
        except OutOfTime:
            add_line(options.json, {"section": section, "failure": f"no time left of {options.minutes:g} minutes"})
        except Exception as failure:  # in drawing the inputs
            add_line(options.json, {"section": section, "failure": describe(failure)})
        if has_gpu:
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
