"""Bytes that one process gives to collectives, in a training step and in an evaluation, for `scaling.py`.

They are counted in real processes (gloo), without the gradients that DDP reduces.
"""

import os
import socket
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, multiprocessing
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import Dataset
from transformers import PreTrainedConfig, PrinterCallback, Trainer, TrainerCallback, TrainingArguments
from transformers.utils import logging

from benchmarks.speed.training_step import Identity, accuracy
from hf_focal import FocalTrainer, FocalTrainingArguments
from hf_focal.trainer import accumulators

BATCH_LOGITS = 2**20
TRAINED = ("flsd53", "adafocal", "recall", "class_balanced", "mmce")


class RepeatedBatch(Dataset):
    """N samples of K classes of which one batch is in memory."""

    def __init__(self, num_samples: int, num_classes: int):
        generator = torch.Generator().manual_seed(0)
        self.num_samples, self.num_classes = num_samples, num_classes
        self.batch_size = min(num_samples, max(1, BATCH_LOGITS // num_classes))
        self.logits = torch.randn(self.batch_size, num_classes, generator=generator) * 3
        gumbel = torch.rand(self.logits.shape, generator=generator).log_().neg_().log_()
        self.labels = torch.sub(self.logits * 0.7, gumbel).argmax(1)  # a sample of softmax(0.7 z)

    def __len__(self) -> int:
        return self.num_samples

    def __getitems__(self, indices: list[int]) -> dict[str, Tensor]:
        return {"logits": self.logits[: len(indices)].clone(), "labels": self.labels[: len(indices)]}

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for start in range(0, self.num_samples, self.batch_size):
            part = slice(min(self.batch_size, self.num_samples - start))
            yield self.logits[part].clone(), self.labels[part]


def trainer_of(folder: str, data: Any = None, stock: bool = False, **options: Any) -> Trainer:
    options |= {"report_to": "none", "disable_tqdm": True, "use_cpu": True, "save_strategy": "no"}
    options["ddp_find_unused_parameters"] = False
    if isinstance(data, RepeatedBatch):
        options |= {"remove_unused_columns": False}
    arguments = TrainingArguments(folder, **options) if stock else FocalTrainingArguments(folder, **options)
    collator = (lambda batch: batch) if isinstance(data, RepeatedBatch) else None
    more: dict[str, Any] = {"compute_metrics": accuracy} if stock else {}
    network = Identity(PreTrainedConfig(num_labels=getattr(data, "num_classes", 10)))
    trainer = (Trainer if stock else FocalTrainer)(network, arguments, data_collator=collator, **more)
    trainer.remove_callback(PrinterCallback)
    return trainer


class SentBytes(TorchDispatchMode):
    """What this process gives to collectives."""

    total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "c10d":
            # What is gathered comes second, behind the room for the result; what is reduced or broadcast first.
            tensors = args[1] if "allgather" in str(func) else args[0]
            tensors = [tensors] if isinstance(tensors, Tensor) else tensors
            SentBytes.total += sum(tensor.nbytes for tensor in tensors if isinstance(tensor, Tensor))
        return func(*args, **(kwargs or {}))


def sent(action: Callable[[], Any]) -> int:
    before = SentBytes.total
    with SentBytes():
        action()
    return SentBytes.total - before


def uncounted(backward: Callable[..., None], *args: Any, **options: Any) -> None:
    before = SentBytes.total
    backward(*args, **options)
    SentBytes.total = before


class BytesOfSteps(TrainerCallback):
    def __init__(self) -> None:
        self.totals: list[int] = []

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.totals.append(SentBytes.total)


def bytes_of_process(rank: int, num_processes: int, port: int, results: Any, folder: str) -> None:
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ |= dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), str(num_processes))
    os.environ |= dict.fromkeys(("RANK", "LOCAL_RANK"), str(rank))
    lines = []
    for loss, logging_steps in [("Trainer", 100), *((loss, 100) for loss in TRAINED), ("flsd53", 1)]:
        data, steps = RepeatedBatch(16 * num_processes * 8, 10), BytesOfSteps()
        options = {"per_device_train_batch_size": 16, "max_steps": 4, "logging_steps": logging_steps}
        options |= {} if loss == "Trainer" else {"loss": loss}
        trainer = trainer_of(folder, data, loss == "Trainer", **options)
        trainer.train_dataset, trainer.calibration_dataset = data, RepeatedBatch(256, 10)
        trainer.add_callback(steps)
        trainer.accelerator.backward = partial(uncounted, trainer.accelerator.backward)
        with SentBytes():
            trainer.train()
        name = f"training step, {loss}" + (", with its log" if logging_steps == 1 else "")
        lines.append({"name": name, "samples": 16, "classes": 10, "bytes": steps.totals[2] - steps.totals[1]})
    for num_samples, num_classes in ((4_096, 10), (8_192, 10), (4_096, 1_000)):
        data = RepeatedBatch(num_samples, num_classes)
        ours, stock = (trainer_of(folder, data, stock, per_device_eval_batch_size=64) for stock in (False, True))
        actions = {
            "Trainer.evaluate": lambda stock=stock, data=data: stock.evaluate(data),
            "FocalTrainer.evaluate": lambda ours=ours, data=data: ours.evaluate(data),
            "fit_temperature, collected": lambda ours=ours, data=data: ours.fit_temperature(data),
            "FocalTrainer.evaluate after fit_temperature": lambda ours=ours, data=data: ours.evaluate(data),
            "fit_temperature, streamed": lambda ours=ours, data=data: ours.fit_temperature(data),
        }
        for name, action in actions.items():
            limit = 0 if name.endswith("streamed") else 2**30
            with patch.object(accumulators, "MAX_COLLECTED_BYTES", limit):
                size = sent(action)
            lines.append({"name": name, "samples": num_samples, "classes": num_classes, "bytes": size})
    if rank == 0:
        results.put(lines)
    torch.distributed.destroy_process_group()


def count_bytes(num_processes: int, folder: str) -> list[dict]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # Forked, so that each process need not import everything: nothing has run in this one yet.
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    arguments = (num_processes, port, results, folder)
    processes = [context.Process(target=bytes_of_process, args=(rank, *arguments)) for rank in range(num_processes)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        if process.exitcode:
            raise RuntimeError(f"a process that counts bytes ended with {process.exitcode}")
    lines = [{"processes": num_processes, **line} for line in results.get()]
    for line in lines:
        print(
            "{processes} processes  {name:50}{samples:>7,} x {classes:<6,}{bytes:>14,} bytes".format(**line),
            flush=True,
        )
    return lines
