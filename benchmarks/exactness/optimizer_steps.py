"""Difference between an optimizer step in micro-batches and processes and the step of one batch with the same samples.

    python -m benchmarks.exactness.optimizer_steps [--json FILE]

One SGD step of a small BERT in float64 is taken by the stock Trainer, by a Trainer whose `compute_loss` returns the
mean over the samples, as is common practice, both with default arguments, and by FocalTrainer. The reference is a
plain loop: the mean over all samples or tokens as one batch. Some steps start two processes. The results do not depend
on the machine.
"""

import argparse
import gc
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import accelerate
import torch
import transformers
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertForTokenClassification,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from benchmarks.common.figures import read_figures, script_options, shown, write_figures
from benchmarks.common.lines import OptimizerStep
from benchmarks.common.processes import free_port
from hf_focal import FocalTrainer, FocalTrainingArguments, build_loss

LEARNING_RATE = 0.1
NUM_LABELS = 4
# (samples per micro-batch and process, micro-batches per step, processes), and the number of samples of the step.
STEPS = {
    "whole": [((8, 1, 1), 8), ((2, 4, 1), 8), ((4, 1, 2), 8), ((2, 2, 2), 8), ((1, 4, 2), 8)],
    "incomplete accumulation": [((2, 4, 1), 6), ((1, 4, 2), 6)],
    "uneven last batch": [((4, 1, 2), 7), ((4, 1, 2), 3), ((2, 2, 2), 7), ((2, 2, 2), 5)],
}
LABELS = ("classes", "tokens")
STOCK, NAIVE = "stock Trainer", "mean of rows"
LOSSES = ("cross_entropy", "flsd53", "adafocal:bins=3", "mmce:lam=2", "mmce:lam=2,gather=true")
TRAINERS = (STOCK, NAIVE, *LOSSES)
GAMMAS = {"gammas": [4.0, 1.0, -1.0], "edges": [0.0, 0.25, 0.3, 1.0]}  # as after some updates


class MeanOfRows(Trainer):
    """A common `compute_loss`, with default arguments."""

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        rows = F.cross_entropy(outputs.logits.flatten(0, -2), labels.flatten(), reduction="none")
        loss = rows[labels.flatten() != -100].mean()
        return (loss, outputs) if return_outputs else loss


class WithGammas(TrainerCallback):
    """Sets the γ of AdaFocal to values from the middle of a training."""

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.trainer.loss.policy.load_state_dict(GAMMAS)


def samples(labels: str, count: int) -> list[dict[str, Any]]:
    """Samples of 6 token ids with one label ("classes") or with 1 to 6 labels ("tokens")."""
    generator = torch.Generator().manual_seed(0)
    found = []
    for index, ids in enumerate(torch.randint(3, 30, (count, 6), generator=generator)):
        label: Any = int(ids[0]) % NUM_LABELS
        if labels != "classes":
            label = ids % NUM_LABELS
            label[1 + index * 5 % 6 :] = -100
        found.append({"input_ids": ids, "labels": label})
    return found


def model_for(labels: str) -> Any:
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config = BertConfig(vocab_size=30, max_position_embeddings=16, num_labels=NUM_LABELS, **sizes, **dropout)
    kind: Any = BertForSequenceClassification if labels == "classes" else BertForTokenClassification
    model = kind(config).double()
    with torch.no_grad():
        model.classifier.weight.mul_(40)  # for different confidences
    return model


def weights(model: nn.Module) -> Tensor:
    return nn.utils.parameters_to_vector(model.parameters()).detach().clone()


def reference(name: str, labels: str, count: int) -> Tensor:
    """Return the change of the weights by the plain loop."""
    loss: Any = build_loss(loss_of(name))
    model, rows = model_for(labels), samples(labels, count)
    if "adafocal" in name:
        loss.policy.load_state_dict(GAMMAS)
    ids = torch.stack([row["input_ids"] for row in rows])
    loss(model(input_ids=ids).logits, torch.stack([torch.as_tensor(row["labels"]) for row in rows])).backward()
    return -LEARNING_RATE * nn.utils.parameters_to_vector([parameter.grad for parameter in model.parameters()])


def loss_of(name: str) -> str:
    return "cross_entropy" if name in (STOCK, NAIVE) else name


def step(name: str, labels: str, split: tuple[int, int, int], count: int, folder: str) -> Tensor:
    """Return the change of the weights by one epoch of training, which is one step."""
    options: dict[str, Any] = {
        "output_dir": folder,
        "use_cpu": True,
        "optim": "sgd",
        "learning_rate": LEARNING_RATE,
        "lr_scheduler_type": "constant",
        "max_grad_norm": 0.0,
        "num_train_epochs": 1,
        "per_device_train_batch_size": split[0],
        "gradient_accumulation_steps": split[1],
        "train_sampling_strategy": "sequential",
        "save_strategy": "no",
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
    }
    arguments: dict[str, Any] = {"model": model_for(labels), "train_dataset": samples(labels, count)}
    if name in (STOCK, NAIVE):
        kind = Trainer if name == STOCK else MeanOfRows
        trainer: Any = kind(args=TrainingArguments(**options), **arguments)
    else:
        args = FocalTrainingArguments(**options, loss=name)
        trainer = FocalTrainer(args=args, calibration_dataset=samples(labels, 32), **arguments)
        if "adafocal" in name:
            trainer.add_callback(WithGammas(trainer))
    if trainer.args.world_size != split[2]:
        raise RuntimeError(f"the step needs {split[2]} processes, got {trainer.args.world_size}")
    trainer.remove_callback(PrinterCallback)
    before = weights(trainer.model)
    trainer.train()
    if trainer.state.global_step != 1:
        raise RuntimeError(f"the training must be one step, got {trainer.state.global_step}")
    return weights(trainer.model) - before


def measure(num_processes: int) -> Iterator[OptimizerStep]:
    """Measure each step with each trainer."""
    gc.freeze()  # garbage collection of all modules would take longer than each training
    cases = [
        (labels, kind, split, count, name)
        for labels in LABELS
        for kind, steps in STEPS.items()
        for split, count in steps
        for name in TRAINERS
        if split[2] == num_processes
    ]
    with tempfile.TemporaryDirectory() as folder:
        for labels, kind, split, count, name in cases:
            expected = reference(name, labels, count)
            change = step(name, labels, split, count, folder)
            yield {
                "labels": labels,
                "step": kind,
                "batch_size": split[0],
                "accumulation": split[1],
                "processes": split[2],
                "rows": count,
                "trainer": name,
                "difference": ((change - expected).norm() / expected.norm()).item(),
                "ratio": (change.norm() / expected.norm()).item(),
            }


def on_two_processes() -> list[OptimizerStep]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lines.json"
        launcher = ["-m", "torch.distributed.run", "--nproc_per_node", "2", "--master_port", str(free_port())]
        subprocess.run(
            [sys.executable, *launcher, "-m", "benchmarks.exactness.optimizer_steps", "--worker", path],
            env={"OMP_NUM_THREADS": "1"} | os.environ,
            check=True,
        )
        return read_figures(path)


def work(path: Path) -> None:
    lines = list(measure(2))
    if torch.distributed.get_rank() == 0:
        path.write_text(json.dumps(lines), encoding="utf-8")
    torch.distributed.destroy_process_group()


def main() -> None:
    parser = script_options(__doc__, threads=False)
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return work(options.worker)
    lines = [*measure(1), *on_two_processes()]
    lines.sort(key=lambda line: (LABELS.index(line["labels"]), list(STEPS).index(line["step"])))
    versions = {module.__name__: module.__version__ for module in (torch, transformers, accelerate)}
    figures = {"versions": versions | {"python": platform.python_version()}, "steps": shown(lines)}
    write_figures(options.json, figures)


if __name__ == "__main__":
    main()
