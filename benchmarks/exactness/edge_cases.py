"""Cases in which implementations are known to fail: our values and the peers' beside the exact ones.

    python -m benchmarks.exactness.edge_cases --json benchmarks/results/peers.json

The exact values come from implementations that share no code with the package: for metrics, those of the tests, in
float64; for temperatures, Newton's method in float64; and for focal loss, mpmath with 200 digits. The other parts of
the JSON file are those of `speed/peers.py`, and are kept. The run fails if one of our values is not exact.
"""

import math
import runpy
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mpmath
import numpy as np
import torch
from torch import Tensor

from benchmarks.common.figures import add_part, dated_machine, parse_options, script_options, shown
from benchmarks.common.lines import EdgeCase, EdgeCases
from benchmarks.common.metric_functions import NUM_BINS, OURS
from benchmarks.common.peer_functions import (
    ADAECE_COLUMNS,
    CLASSWISE_COLUMNS,
    ECE_COLUMNS,
    FOCAL_COLUMNS,
    PEERS,
    TEMPERATURE_COLUMNS,
    Columns,
)
from benchmarks.common.temperature_fits import newton, scaled_logits

TESTS = Path(__file__).parents[2] / "tests"
METRICS = SimpleNamespace(**runpy.run_path(str(TESTS / "metrics" / "reference.py")))


@dataclass(frozen=True)
class Case:
    """A line of the table. If `exact` is None, NaN and an exception are correct, and any number is wrong."""

    name: str
    kind: str  # selects the function of a column
    inputs: tuple[Any, ...]
    exact: float | None
    convention: bool = False  # differing peers follow another definition


# --- samples -------------------------------------------------------------------------------------------------------


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, scale: float = 2.0) -> Tensor:
    return torch.randn(*shape, generator=seeded(0)) * scale


def uniform(*shape: int) -> Tensor:
    return torch.rand(*shape, generator=seeded(1))


def labels_of(logits: Tensor) -> Tensor:
    """Labels of an overconfident model."""
    flat = (0.6 * logits).softmax(-1).flatten(0, -2)
    return torch.multinomial(flat, 1, generator=seeded(2)).view(logits.shape[:-1])


def hits_of(confidence: Tensor) -> Tensor:
    return torch.rand(len(confidence), generator=seeded(3)) < 0.9 * confidence.float()


def with_share(value: float, share: float) -> Tensor:
    confidence = uniform(3000)
    confidence[: int(share * 3000)] = value
    return confidence


def half_ignored(labels: Tensor) -> Tensor:
    return labels.where(torch.arange(len(labels)) % 2 == 0, -100)


# --- ECE -----------------------------------------------------------------------------------------------------------


def exact_top_label(logits: Tensor, labels: Tensor) -> tuple[np.ndarray, np.ndarray]:
    logits, labels = logits.reshape(-1, logits.shape[-1]), labels.reshape(-1)
    labeled = labels != -100
    return METRICS.top_label(METRICS.softmax(logits[labeled].double().numpy()), labels[labeled].numpy())


def confidences_case(
    name: str, confidence: Tensor, hits: Tensor, error: str = "ece", num_bins: int = NUM_BINS, convention: bool = False
) -> Case:
    reference = getattr(METRICS, error)
    exact = reference(confidence.double().clamp(0, 1).numpy(), hits.numpy(), num_bins)
    return Case(name, "confidences", (confidence, hits, num_bins), float(exact), convention)


def logits_case(
    name: str, logits: Tensor, labels: Tensor, error: str = "ece", kind: str = "logits", convention: bool = False
) -> Case:
    exact = getattr(METRICS, error)(*exact_top_label(logits, labels))
    return Case(name, kind, (logits, labels), float(exact), convention)


def ece_cases() -> Iterator[Case]:
    ordinary = normal(5000, 10)
    labels = labels_of(ordinary)
    yield logits_case("ordinary logits", ordinary, labels)
    inside = uniform(4096, 10)
    yield logits_case("logits that all lie in [0, 1]", inside, labels_of(10 * inside))
    yield logits_case("logits that are all 0", torch.zeros(4096, 10), torch.arange(4096) % 5)
    mixed = normal(4096, 10)
    mixed[160:176] = uniform(16, 10)
    yield logits_case("batches of 16 streamed, one of them in [0, 1]", mixed, labels_of(mixed), kind="stream")
    above = with_share(float(np.nextafter(np.float32(1), np.float32(2))), 0.001)
    yield confidences_case("a confidence one ulp above 1", above, hits_of(above))
    beside = torch.tensor([1.0] * 50 + [0.95] * 50)
    yield confidences_case("confidence 1 beside 0.95, one bin", beside, torch.arange(100) % 20 != 0)
    zeros = with_share(0.0, 0.2)
    yield confidences_case("confidence 0, a fifth", zeros, torch.arange(3000) % 2 == 0)
    edge = torch.tensor([0.5] * 50 + [0.55] * 50)
    yield confidences_case("confidence 0.5, 10 bins", edge, edge > 0.5, num_bins=10, convention=True)
    nan = with_share(float("nan"), 0.1)
    yield Case("NaN confidences, a tenth", "confidences", (nan, uniform(3000) < 0.5, NUM_BINS), None)
    many = uniform(100_000)
    for dtype in (torch.float16, torch.bfloat16):
        yield confidences_case(f"{str(dtype)[6:]} confidences, 100,000", many.to(dtype), hits_of(many))
    for size in (1_000_000, 10_000_000):
        beta = uniform(size) ** 0.2
        yield confidences_case(f"Beta(5, 1), float32, {size:,}", beta, hits_of(beta))
    size = 40_000_000
    alternating = torch.arange(size, dtype=torch.int32).bitwise_and_(1).bool()
    exact = METRICS.ece(
        torch.full((2,), 0.7).double().numpy(), alternating[:2].numpy()
    )  # two samples give the same value
    inputs = (torch.full((size,), 0.7), alternating, NUM_BINS)
    yield Case("confidence 0.7, every other a hit, 40,000,000", "confidences", inputs, float(exact))
    yield logits_case("10 classes, only labels 0 and 1 occur", ordinary, labels_of(ordinary[:, :2]))
    two = normal(2000, 2)
    yield logits_case("two classes", two, labels_of(two), convention=True)
    yield Case(
        "1-D confidences, labels 3 and 7", "confidences", (uniform(1000), 3 + 4 * (many[:1000] < 0.5).long(), 15), None
    )
    yield logits_case("half the labels -100", ordinary, half_ignored(labels))
    yield logits_case(
        "the same, `ignore_index=-100` where there is one", ordinary, half_ignored(labels), kind="ignore"
    )
    tokens = normal(4, 50, 30)
    yield logits_case("token logits (B, T, V)", tokens, labels_of(tokens))
    yield Case("no samples", "logits", (torch.empty(0, 10), torch.empty(0, dtype=torch.long)), None)


# --- AdaECE --------------------------------------------------------------------------------------------------------


def adaece_cases() -> Iterator[Case]:
    case = partial(confidences_case, error="adaece")
    ordinary = normal(3000, 10)
    yield logits_case("ordinary logits", ordinary, labels_of(ordinary), error="adaece")
    yield case("confidence 0.7, every other a hit", torch.full((1000,), 0.7), torch.arange(1000) % 2 == 0)
    yield case("confidence 1, four of five hits", torch.ones(1000), torch.arange(1000) % 5 != 0)
    yield case("3 samples, 15 bins", torch.tensor([0.25, 0.5, 0.75]), torch.tensor([True, False, True]))
    yield case("confidence 0, a fifth", with_share(0.0, 0.2), torch.arange(3000) % 2 == 0)
    nan = with_share(float("nan"), 0.1)
    yield Case("NaN confidences, a tenth", "confidences", (nan, uniform(3000) < 0.5, NUM_BINS), None)
    ignored = half_ignored(labels_of(ordinary))
    yield logits_case("half the labels -100", ordinary, ignored, error="adaece")
    name = "the same, `ignore_index=-100` where there is one"
    yield logits_case(name, ordinary, ignored, error="adaece", kind="ignore")


# --- classwise ECE -------------------------------------------------------------------------------------------------


def classwise_cases() -> Iterator[Case]:
    def case(name: str, probabilities: Tensor, labels: Tensor) -> Case:
        exact = METRICS.classwise_ece(probabilities.double().numpy(), labels.numpy())
        return Case(name, "probabilities", (probabilities, labels), float(exact))

    ordinary = normal(3000, 10)
    yield case("ordinary probabilities", ordinary.softmax(1), labels_of(ordinary))
    yield case("labels 5 to 9 do not occur", ordinary.softmax(1), labels_of(ordinary[:, :5]))
    saturated = normal(3000, 10, scale=100.0)
    yield case("probabilities that are 0", saturated.softmax(1), labels_of(saturated / 50))
    many = normal(70_000, 5)
    yield case("float16 probabilities, 70,000", many.softmax(1).half(), labels_of(many))
    nan = ordinary.softmax(1)
    nan[::10] = float("nan")
    yield Case("NaN rows, a tenth", "probabilities", (nan, labels_of(ordinary)), None)


# --- temperatures --------------------------------------------------------------------------------------------------


def temperature_cases() -> Iterator[Case]:
    def case(name: str, logits: Tensor, labels: Tensor) -> Case:
        return Case(name, "logits", (logits, labels), newton(logits, labels))

    for temperature in (0.05, 0.3, 1.0, 1.7, 5.0, 20.0):
        yield case(f"logits calibrated at T = {temperature:g}", *scaled_logits(10_000, 10, temperature))
    logits, labels = scaled_logits(10_000, 10, 1.7)
    yield case("logits × 100", 100 * logits, labels)
    yield Case("every label on the largest logit: no optimum, so T = 1", "logits", (logits, logits.argmax(1)), 1.0)


# --- focal loss ----------------------------------------------------------------------------------------------------


@mpmath.workdps(200)
def exact_focal(logits: np.ndarray, label: int, gamma: float) -> tuple[float, float]:
    """Return the focal loss (1-p)^γ · (-log p) of logits (K,) and its derivative with respect to the label's logit."""
    odds = [mpmath.exp(mpmath.mpf(float(z))) for z in logits]
    p = odds[label] / sum(odds)
    wrong = sum(odds[:label] + odds[label + 1 :]) / sum(odds)
    return float(-(wrong**gamma) * mpmath.log(p)), float(wrong**gamma * (gamma * p * mpmath.log(p) - wrong))


def focal_cases() -> Iterator[Case]:
    def gradient(name: str, gap: float, gamma: float, dtype: torch.dtype) -> Case:
        logits = torch.tensor([[gap, 0.0, -0.5, -2.0]], dtype=dtype)
        exact = exact_focal(logits[0].double().numpy(), 0, gamma)[1]
        name = f"gradient, {name}, γ = {gamma:g}, {str(dtype)[6:]}"
        return Case(name, "gradient", (logits, torch.tensor([0]), gamma), exact)

    def mean(name: str, logits: Tensor, labels: Tensor, gamma: float = 3.0) -> Case:
        rows = zip(logits.flatten(0, -2).double().numpy(), labels.flatten().tolist(), strict=True)
        values = [exact_focal(row, label, gamma)[0] for row, label in rows if label != -100]
        return Case(f"mean, {name}", "mean", (logits, labels, gamma), float(np.mean(values)))

    yield gradient("a sure row, p = 1", 200.0, 0.5, torch.float32)
    yield gradient("a sure row, p = 1", 200.0, 1.0, torch.float32)
    yield gradient("1 - p = 3.6e-7", 15.4, 1.0, torch.float32)
    yield gradient("1 - p = 5.8e-4", 8.0, 1.0, torch.float16)
    yield gradient("1 - p = 5.8e-4", 8.0, 0.5, torch.bfloat16)
    yield gradient("1 - p = 5.8e-4", 8.0, 1.0, torch.bfloat16)
    yield gradient("a hopeless row", -200.0, 3.0, torch.float32)
    for num_classes in (10, 200):
        logits = normal(64, num_classes)
        yield mean(f"half the labels -100, {num_classes} classes", logits, half_ignored(labels_of(logits)))
    tokens = normal(3, 12, 12)
    yield mean("token logits (B, T, V), T = V", tokens, labels_of(tokens))


# --- the tables ----------------------------------------------------------------------------------------------------

# Title, cases, columns, relative and absolute tolerance.
GROUPS: tuple[tuple[str, Callable[[], Iterator[Case]], Columns, float, float], ...] = (
    ("ECE, 15 bins", ece_cases, ECE_COLUMNS, 1e-3, 1e-6),
    ("AdaECE, 15 bins", adaece_cases, ADAECE_COLUMNS, 1e-3, 1e-6),
    (
        "Classwise ECE, 15 bins (torchmetrics and netcal class by class)",
        classwise_cases,
        CLASSWISE_COLUMNS,
        1e-3,
        1e-6,
    ),
    ("Temperature by NLL", temperature_cases, TEMPERATURE_COLUMNS, 1e-2, 0.0),
    ("Focal loss", focal_cases, FOCAL_COLUMNS, 1e-2, 1e-37),  # float32 has no normal numbers below
)


def cell(function: Callable[..., Any] | None, inputs: tuple[Any, ...]) -> float | str | None:
    """Return the value, NaN as text, the type of an exception, or None for what a library lacks."""
    if function is None:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = float(function(*inputs))
    except Exception as error:  # of any library: it is what the table shows
        return type(error).__name__
    return value if math.isfinite(value) else str(value)


def is_right(value: float | str | None, exact: float | None, relative: float, absolute: float) -> bool | None:
    """Whether the value is correct; None for an exception in a case that has a value."""
    if value is None:
        return None
    if exact is None:
        return isinstance(value, str) and "inf" not in value
    if isinstance(value, str):
        return False if value in ("nan", "inf", "-inf") else None
    return abs(value - exact) <= relative * abs(exact) + absolute


def rows_of(cases: Iterator[Case], columns: Columns, relative: float, absolute: float) -> Iterator[EdgeCase]:
    for case in cases:
        values = {name: cell(kinds.get(case.kind), case.inputs) for name, kinds in columns.items()}
        right = {name: is_right(value, case.exact, relative, absolute) for name, value in values.items()}
        yield {"case": case.name, "exact": case.exact, "values": values, "right": right, "convention": case.convention}


def edge_cases() -> list[EdgeCases]:
    return [
        {
            "title": title,
            "relative": relative,
            "columns": list(columns),
            "rows": shown(rows_of(cases(), columns, relative, absolute)),
        }
        for title, cases, columns, relative, absolute in GROUPS
    ]


def main() -> None:
    options = parse_options(script_options(__doc__))
    tables = edge_cases()
    add_part(options.json, "edge_cases", {"machine": dated_machine(PEERS), "figures": tables})
    wrong = [f"{group['title']}: {row['case']}" for group in tables for row in group["rows"] if not row["right"][OURS]]
    if wrong:
        raise SystemExit("ours is not the exact value: " + "; ".join(wrong))


if __name__ == "__main__":
    main()
