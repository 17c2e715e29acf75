"""Cost of `DynamicsCallback` at its default sample size: trainings with and without it.

    python -m benchmarks.speed.dynamics [--threads 1] [--rounds 3] [--json FILE]

The global-pooling CNN and a small BERT train on generated texts of equal length. Trainings with and without the
callback alternate in one process. CPU seconds are measured, because they depend less on the load of the machine. The
figures, drawn once per training, are timed separately. Three costs are reported: the ratio of the fastest trainings,
which have one measurement more than epochs; the time of the measurement at the end of an epoch, as a share of an epoch
without the callback; and an estimate of this share: samples measured per sample trained, times the share of a forward
pass in an epoch.
"""

import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from datasets import Dataset
from papers.models import GPCNNConfig, GPCNNForSequenceClassification
from papers.runs.training_dynamics import DynamicsCallback
from torch import nn
from transformers import BertConfig, BertForSequenceClassification
from transformers.utils import logging as transformers_logging

from benchmarks.common.figures import machine, parse_options, script_options, shown, write_figures
from benchmarks.common.lines import DynamicsCost
from benchmarks.common.timing import timed, times_in_turn
from benchmarks.common.trainers import QUIET
from hf_focal import FocalTrainer, FocalTrainingArguments

NUM_TEXTS, BATCH_SIZE, EPOCHS, NUM_LABELS, VOCABULARY = 2000, 100, 3, 20, 20_000


def gp_cnn() -> nn.Module:
    return GPCNNForSequenceClassification(
        GPCNNConfig(variant="strided", dropout=0.0, vocab_size=VOCABULARY, num_labels=NUM_LABELS)
    )


def small_bert() -> nn.Module:
    sizes = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 512}
    return BertForSequenceClassification(BertConfig(vocab_size=VOCABULARY, num_labels=NUM_LABELS, **sizes))


# (name, model, words of a text)
CASES = (("global-pooling CNN, 200 words", gp_cnn, 200), ("BERT, 2 layers of 128, 64 words", small_bert, 64))


class TimedDynamics(DynamicsCallback):
    """Measures the CPU seconds of each measurement and of the figures."""

    def __init__(self, trainer: FocalTrainer) -> None:
        super().__init__(trainer)
        self.measuring: list[float] = []
        self.drawing = 0.0

    def measure(self) -> None:
        self.measuring.append(timed(super().measure)[2])

    def on_train_end(self, *args: Any, **kwargs: Any) -> None:
        _, _, self.drawing = timed(partial(super().on_train_end, *args, **kwargs))


def texts(count: int, length: int, seed: int) -> Dataset:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(1, VOCABULARY, (count, length), generator=generator)
    return Dataset.from_dict({"input_ids": ids.numpy(), "labels": [int(row[0]) % NUM_LABELS for row in ids]})


def train(build: Callable[[], nn.Module], length: int, with_dynamics: bool) -> tuple[float, TimedDynamics | None]:
    """Return the CPU seconds of a training without the figures, and the callback."""
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        args = FocalTrainingArguments(
            output_dir=folder,
            loss="focal:gamma=3",
            num_train_epochs=EPOCHS,
            per_device_train_batch_size=BATCH_SIZE,
            per_device_eval_batch_size=BATCH_SIZE,
            logging_strategy="no",
            use_cpu=True,
            **QUIET,
        )
        data = texts(NUM_TEXTS, length, seed=0)
        trainer = FocalTrainer(model=build(), args=args, train_dataset=data, eval_dataset=texts(1000, length, seed=1))
        dynamics = TimedDynamics(trainer) if with_dynamics else None
        if dynamics is not None:
            trainer.add_callback(dynamics)
        _, _, seconds = timed(trainer.train)
    return seconds - (dynamics.drawing if dynamics is not None else 0.0), dynamics


def forward_seconds(build: Callable[[], nn.Module], length: int) -> float:
    """CPU seconds of a forward pass over `NUM_TEXTS` texts, without gradients."""
    model, ids = build().eval(), torch.tensor(texts(BATCH_SIZE, length, seed=0)["input_ids"][:])
    with torch.no_grad():
        times = times_in_turn({"forward": partial(model, input_ids=ids)}, 10)["forward"]
    return times.cpu_milliseconds / 1e3 * NUM_TEXTS / BATCH_SIZE


def measure(build: Callable[[], nn.Module], length: int, rounds: int) -> DynamicsCost:
    _, dynamics = train(build, length, with_dynamics=True)  # warm-up
    assert dynamics is not None
    seconds: dict[bool, list[float]] = {False: [], True: []}
    shares, drawing = [], []
    for number in range(rounds):
        for with_dynamics in (False, True) if number % 2 else (True, False):
            took, callback = train(build, length, with_dynamics)
            seconds[with_dynamics].append(took)
            dynamics = callback or dynamics
        shares.append(statistics.mean(dynamics.measuring[1:]) / (seconds[False][-1] / EPOCHS))
        drawing.append(dynamics.drawing)
    measured = (len(dynamics.train_samples) + len(dynamics.test_samples)) / NUM_TEXTS
    epoch = min(seconds[False]) / EPOCHS
    forward_share = forward_seconds(build, length) / epoch
    return {
        "epoch_cpu_seconds": epoch,
        "run_ratio": min(seconds[True]) / min(seconds[False]),
        "run_cpu_seconds_with": seconds[True],
        "run_cpu_seconds_without": seconds[False],
        "measurement_over_epoch": statistics.median(shares),
        "measured_over_trained_samples": measured,
        "forward_share": forward_share,
        "counted": measured * forward_share,
        "drawing_cpu_seconds": statistics.median(drawing),
    }


def main() -> None:
    options = parse_options(script_options(__doc__, rounds=3))
    torch.set_num_threads(options.threads or 1)
    transformers_logging.set_verbosity_error()
    results = {name: shown([measure(build, length, options.rounds)])[0] for name, build, length in CASES}
    write_figures(options.json, {"machine": machine(), "rounds": options.rounds, "results": results})


if __name__ == "__main__":
    main()
