"""Cost of `DynamicsCallback` at its default sample size: trainings with and without it.

    python -m benchmarks.speed.dynamics [--threads 1] [--rounds 3] [--json FILE]

The global-pooling CNN and a small BERT train on generated texts of equal length. Trainings with and without the
callback alternate in one process. CPU seconds are measured, because they depend less on the load of the machine. The
figures, drawn once per training, are timed separately. Three costs are reported: the ratio of the fastest trainings,
which have one measurement more than epochs; the time of the measurement at the end of an epoch, as a share of an epoch
without the callback; and an estimate of this share: samples measured per sample trained, times the share of a forward
pass in an epoch.
"""

import argparse
import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from datasets import Dataset
from papers.models import GPCNNConfig, GPCNNForSequenceClassification
from papers.runs.training_dynamics import DynamicsCallback
from torch import nn
from transformers import BertConfig, BertForSequenceClassification
from transformers.utils import logging as transformers_logging

from benchmarks.measuring import machine, timed, write_measurements
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

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.measuring, self.drawing = [], 0.0

    def measure(self) -> None:
        self.measuring.append(timed(super().measure)[2])

    def on_train_end(self, *args, **kwargs):
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
            save_strategy="no",
            disable_tqdm=True,
            use_cpu=True,
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
    times = []
    with torch.no_grad():
        for _ in range(11):
            times.append(timed(partial(model, input_ids=ids))[2])
    return statistics.median(times[1:]) * NUM_TEXTS / BATCH_SIZE


def measure(name: str, build: Callable[[], nn.Module], length: int, rounds: int) -> dict:
    _, dynamics = train(build, length, with_dynamics=True)  # warm-up
    seconds, shares, drawing = {False: [], True: []}, [], []
    for number in range(rounds):
        for with_dynamics in (False, True) if number % 2 else (True, False):
            took, callback = train(build, length, with_dynamics)
            seconds[with_dynamics].append(took)
            dynamics = callback or dynamics
        shares.append(statistics.mean(dynamics.measuring[1:]) / (seconds[False][-1] / EPOCHS))
        drawing.append(dynamics.drawing)
    measured = len(dynamics.train_samples) + len(dynamics.test_samples)
    epoch = min(seconds[False]) / EPOCHS
    forward_share = forward_seconds(build, length) / epoch
    result = {
        "epoch_cpu_seconds": epoch,
        "run_ratio": min(seconds[True]) / min(seconds[False]),
        "run_cpu_seconds_with": seconds[True],
        "run_cpu_seconds_without": seconds[False],
        "measurement_over_epoch": statistics.median(shares),
        "measured_over_trained_samples": measured / NUM_TEXTS,
        "forward_share": forward_share,
        "counted": measured / NUM_TEXTS * forward_share,
        "drawing_cpu_seconds": statistics.median(drawing),
    }
    print(
        f"{name}: epoch {epoch:.2f} CPU s, with/without {result['run_ratio']:.3f} ({EPOCHS + 1} measurements in "
        f"{EPOCHS} epochs), measurement/epoch {100 * result['measurement_over_epoch']:.1f}%, counted "
        f"{100 * measured / NUM_TEXTS:.0f}% of the samples x {forward_share:.2f} = {100 * result['counted']:.1f} "
        f"%, figures {result['drawing_cpu_seconds']:.1f} s"
    )
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    transformers_logging.set_verbosity_error()
    results = {name: measure(name, build, length, options.rounds) for name, build, length in CASES}
    write_measurements(options.json, {"machine": machine(), "rounds": options.rounds, "results": results})


if __name__ == "__main__":
    main()
