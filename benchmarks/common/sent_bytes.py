"""Bytes that one process gives to collectives, in a training step and in an evaluation.

They are counted in real processes (gloo), without the gradients that DDP reduces.
"""

import os
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, multiprocessing
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import TrainerCallback
from transformers.utils import logging

from benchmarks.common import lines
from benchmarks.common.processes import free_port
from benchmarks.common.trainers import RepeatedBatch, identity_trainer
from hf_focal.trainer import accumulators

TRAINED = ("flsd53", "adafocal", "recall", "class_balanced", "mmce")


class CollectivesMode(TorchDispatchMode):
    """What this process gives to collectives."""

    total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "c10d":
            # What is gathered comes second, behind the room for the result; what is reduced or broadcast first.
            tensors = args[1] if "allgather" in str(func) else args[0]
            tensors = [tensors] if isinstance(tensors, Tensor) else tensors
            CollectivesMode.total += sum(tensor.nbytes for tensor in tensors if isinstance(tensor, Tensor))
        return func(*args, **(kwargs or {}))


def sent(action: Callable[[], Any]) -> int:
    before = CollectivesMode.total
    with CollectivesMode():
        action()
    return CollectivesMode.total - before


def uncounted(backward: Callable[..., None], *args: Any, **options: Any) -> None:
    before = CollectivesMode.total
    backward(*args, **options)
    CollectivesMode.total = before


class BytesOfSteps(TrainerCallback):
    def __init__(self) -> None:
        self.totals: list[int] = []

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.totals.append(CollectivesMode.total)


def bytes_of_process(rank: int, num_processes: int, port: int, results: Any, folder: str) -> None:
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ |= dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), str(num_processes))
    os.environ |= dict.fromkeys(("RANK", "LOCAL_RANK"), str(rank))
    counted: list[lines.SentBytes] = []
    for loss, logging_steps in [("Trainer", 100), *((loss, 100) for loss in TRAINED), ("flsd53", 1)]:
        data, steps = RepeatedBatch(16 * num_processes * 8, 10), BytesOfSteps()
        options: dict[str, Any] = {"per_device_train_batch_size": 16, "max_steps": 4, "logging_steps": logging_steps}
        options |= {} if loss == "Trainer" else {"loss": loss}
        trainer: Any = identity_trainer(folder, data, loss == "Trainer", **options)
        trainer.train_dataset, trainer.calibration_dataset = data, RepeatedBatch(256, 10)
        trainer.add_callback(steps)
        trainer.accelerator.backward = partial(uncounted, trainer.accelerator.backward)
        with CollectivesMode():
            trainer.train()
        name = f"training step, {loss}" + (", with its log" if logging_steps == 1 else "")
        counted.append(
            {
                "processes": num_processes,
                "name": name,
                "samples": 16,
                "classes": 10,
                "bytes": steps.totals[2] - steps.totals[1],
            }
        )
    for num_samples, num_classes in ((4_096, 10), (8_192, 10), (4_096, 1_000)):
        data = RepeatedBatch(num_samples, num_classes)
        ours: Any
        ours, stock = (identity_trainer(folder, data, stock, per_device_eval_batch_size=64) for stock in (False, True))
        actions: dict[str, Callable[[], Any]] = {
            "Trainer.evaluate": partial(stock.evaluate, data),
            "FocalTrainer.evaluate": partial(ours.evaluate, data),
            "fit_temperature, collected": partial(ours.fit_temperature, data),
            "FocalTrainer.evaluate after fit_temperature": partial(ours.evaluate, data),
            "fit_temperature, streamed": partial(ours.fit_temperature, data),
        }
        for name, action in actions.items():
            limit = 0 if name.endswith("streamed") else 2**30
            with patch.object(accumulators, "MAX_COLLECTED_BYTES", limit):
                size = sent(action)
            counted.append(
                {
                    "processes": num_processes,
                    "name": name,
                    "samples": num_samples,
                    "classes": num_classes,
                    "bytes": size,
                }
            )
    if rank == 0:
        results.put(counted)
    torch.distributed.destroy_process_group()


def count_bytes(num_processes: int, folder: str) -> list[lines.SentBytes]:
    # Forked, so that each process need not import everything: nothing has run in this one yet.
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    arguments = (num_processes, free_port(), results, folder)
    processes = [context.Process(target=bytes_of_process, args=(rank, *arguments)) for rank in range(num_processes)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        if process.exitcode:
            raise RuntimeError(f"a process that counts bytes ended with {process.exitcode}")
    return results.get()
