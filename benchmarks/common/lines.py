"""The lines of the files of figures. Ratios of times are those to the reference, unless stated otherwise."""

from typing import NotRequired, TypedDict

from benchmarks.common.timing import Spread


class LossLine(TypedDict):
    """A loss, forward and backward; the peak memory is in units of the logits' size."""

    rows: int
    classes: int
    dtype: str
    name: str
    milliseconds: float
    time_ratio: float
    peak_in_logits: float
    threads: NotRequired[int]


class RatioLine(Spread):
    """The CPU time of a loss, forward and backward, as a multiple of a reference's: its spread over several runs."""

    rows: int
    classes: int
    dtype: str
    name: str


class SmallBatchLine(Spread):
    rows: int
    classes: int
    name: str
    relative_error: NotRequired[float]


class StepLine(TypedDict):
    """A training step: CPU time, and its ratio."""

    name: str
    ratio: float
    milliseconds: float


class GammaLine(TypedDict):
    """The choice of γ for the rows of a batch."""

    rows: int
    bins: int
    threads: int
    dtype: str
    name: str
    milliseconds: float
    time_ratio: float


class MetricLine(TypedDict):
    """A metric by several libraries: seconds and values of each, and the ratio of the others' seconds to ours."""

    name: str
    seconds: dict[str, float]
    ratio: dict[str, float]
    values: dict[str, float]
    note: NotRequired[str]
    exact: NotRequired[str]
    peak_mib: NotRequired[dict[str, float]]


class FitTimes(TypedDict):
    """Fits of a temperature by us and by a peer: seconds, the ratio of the peer's to ours, and both results."""

    ours_s: float
    peer_s: float
    ratio: float
    ours_T: float
    peer_T: float


class GridLine(FitTimes):
    rows: int
    classes: int


class NllLine(FitTimes):
    true_T: float
    exact_T: float


class EdgeCase(TypedDict):
    """A value of each library, NaN and exceptions as text, and whether it is right; None for what it lacks."""

    case: str
    exact: float | None
    values: dict[str, float | str | None]
    right: dict[str, bool | None]
    convention: bool


class EdgeCases(TypedDict):
    title: str
    relative: float
    columns: list[str]
    rows: list[EdgeCase]


class HeadLine(TypedDict):
    """The loss of a linear head, forward and backward."""

    tokens: int
    vocabulary: int
    hidden: int
    dtype: str
    name: str
    processes: int
    milliseconds: float
    time_ratio: float
    cpu_milliseconds: float
    cpu_time_ratio: float
    peak_MiB: float
    peak_ratio: float


class HeadError(TypedDict):
    """The relative errors of the gradients of the hidden states and the weight."""

    vocabulary: int
    setting: str
    name: str
    hidden: float
    weight: float


class TrainerLine(TypedDict):
    """A step of a trainer, or an evaluation, beside the stock Trainer's."""

    model: str
    trainer: str
    seconds: float
    ratio: float
    cpu_ratio: float
    peak_bytes: int
    peak_ratio: float


class TreeLine(TypedDict):
    """A training step on trees, and how many times as long each peer takes."""

    task: str
    name: str
    rounds: int
    milliseconds: float
    cpu_milliseconds: float
    trees_per_second: float
    faster: dict[str, float]
    faster_in_cpu: dict[str, float]


class DynamicsCost(TypedDict):
    epoch_cpu_seconds: float
    run_ratio: float
    run_cpu_seconds_with: list[float]
    run_cpu_seconds_without: list[float]
    measurement_over_epoch: float
    measured_over_trained_samples: float
    forward_share: float
    counted: float
    drawing_cpu_seconds: float


class TokenTimes(TypedDict):
    sentences: int
    tokens: int
    forward_ms: float
    one_pass_ms: float
    loop_ms: float
    one_pass_of_forward: float
    one_pass_of_forward_rounds: list[float]
    loop_of_one_pass: float
    loop_of_one_pass_rounds: list[float]
    tokens_per_second: float


class TokenMemory(TypedDict):
    tokens: int
    logits_mib: float
    batches_mib: float
    at_once_mib: float


class TokenErrors(TypedDict):
    tokens: int
    ece_difference: float
    nll_difference: float
    ours_T: float
    loop_T: float


class ScalingLine(TypedDict):
    """A call on samples × classes; `against` is the size that the series varies."""

    against: str
    name: str
    samples: int
    classes: int
    cpu_seconds: float
    peak_bytes: int


class Exponent(TypedDict):
    name: str
    against: str
    cpu_seconds: float
    peak_bytes: float


class SentBytes(TypedDict):
    """What one of the processes gives to collectives."""

    processes: int
    name: str
    samples: int
    classes: int
    bytes: int


class TableLine(TypedDict):
    """The cost of a table of scores in one process with one thread."""

    what: str
    rows: int
    classes: int
    seconds: NotRequired[float]
    cpu_seconds: float
    peak_mb: NotRequired[float]


class Merges(TypedDict):
    shards: int
    rows: int
    largest_mb: float
    seconds_a_merge: float


class Pool(TypedDict):
    workers: int
    rows: int
    seconds: float
    worker_cpu_seconds: list[float]
    serial: float
    speedup_wall: NotRequired[float]
    speedup_cpu: NotRequired[float]


class ClusterLine(TypedDict):
    rows: int
    workers: int
    hours: float
    gigabytes_sent: float


class OptimizerStep(TypedDict):
    """The relative difference of a step from that of the plain loop, and the ratio of their lengths."""

    labels: str
    step: str
    batch_size: int
    accumulation: int
    processes: int
    rows: int
    trainer: str
    difference: float
    ratio: float


class RuntimeLine(TypedDict):
    """Differences of probabilities from PyTorch's in float32, and the ECE in percent."""

    head: str
    runtime: str
    difference: float
    mean_difference: float
    ece: float


class GpuLine(TypedDict):
    """A measurement on a GPU, or what failed."""

    section: str
    size: NotRequired[str]
    name: NotRequired[str]
    error: NotRequired[float]
    peak_MiB: NotRequired[float]
    milliseconds: NotRequired[float]
    items_per_second: NotRequired[float]
    failure: NotRequired[str]
