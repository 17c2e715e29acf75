"""Time and memory of training steps and of an evaluation: `FocalTrainer` against the stock `Trainer`.

    python -m benchmarks.speed.training_step [--steps 10] [--rounds 7] [--threads 1] [--models bert gpt2] [--json FILE]

Each round trains every trainer for some steps on the same batches, one trainer after the other, and the time of a
step is the median from one `on_step_end` to the next. Ratios to the stock `Trainer` are medians of the ratios within
each round: read these. CPU time is reported beside wall time, and varies less on busy cores. Peak memory is of one
call of `training_step`, including the gradients. The models are randomly initialized: BERT-mini on 32 x 32 tokens, a
tiny ViT on 32 images of 32 x 32 pixels, and GPT-2 with 2 layers on 8 x 128 tokens of a vocabulary of 32,000. The
evaluation has 20,000 samples of 100 classes, whose logits are the model's input; both trainers compute the accuracy,
and `FocalTrainer` all its calibration metrics.
"""

import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedConfig,
    PreTrainedModel,
    Trainer,
    TrainerCallback,
    ViTConfig,
    ViTForImageClassification,
    set_seed,
)
from transformers.utils import logging

from benchmarks.common.figures import machine, parse_options, script_options, shown, write_figures
from benchmarks.common.lines import TrainerLine
from benchmarks.common.memory import peak_bytes
from benchmarks.common.timing import Times, median_ratio, times_in_turn
from benchmarks.common.trainers import Identity, Samples, new_trainer

STOCK = "Trainer"
LOSSES = ("cross_entropy", "flsd53")


def bert() -> tuple[PreTrainedModel, Samples, int]:
    config = BertConfig(
        hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024, num_labels=20
    )
    tokens = torch.randint(1000, config.vocab_size, (640, 32))
    return BertForSequenceClassification(config), Samples(input_ids=tokens, labels=torch.randint(20, (640,))), 32


def vit() -> tuple[PreTrainedModel, Samples, int]:
    config = ViTConfig(
        hidden_size=192,
        num_hidden_layers=6,
        num_attention_heads=3,
        intermediate_size=768,
        image_size=32,
        patch_size=4,
        num_labels=10,
    )
    images = torch.randn(640, 3, 32, 32)
    return ViTForImageClassification(config), Samples(pixel_values=images, labels=torch.randint(10, (640,))), 32


def gpt2() -> tuple[PreTrainedModel, Samples, int]:
    config = GPT2Config(vocab_size=32_000, n_embd=256, n_layer=2, n_head=4, n_positions=128)
    tokens = torch.randint(config.vocab_size, (160, 128))
    return GPT2LMHeadModel(config), Samples(input_ids=tokens, labels=tokens), 8


MODELS = {"bert": bert, "vit": vit, "gpt2": gpt2}


class StepTimes(TrainerCallback):
    """Wall and CPU seconds from one optimizer step to the next."""

    def __init__(self) -> None:
        self.ends: list[tuple[float, float]] = []

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.ends.append((time.perf_counter(), time.process_time()))

    def median(self, clock: int) -> float:
        """Return the median of the wall clock, 0, or of the CPU time, 1."""
        ends = [end[clock] for end in self.ends]
        return statistics.median(after - before for before, after in pairwise(ends))


def trainers(model: str, steps: int, folder: str) -> dict[str, Trainer]:
    """The stock trainer and ours, each with its own copy of the model."""
    made: dict[str, Trainer] = {}
    for name in (STOCK, *LOSSES):
        set_seed(0)
        network, samples, batch_size = MODELS[model]()
        arguments: dict[str, Any] = {
            "train_dataset": samples,
            "max_steps": steps,
            "per_device_train_batch_size": batch_size,
            "logging_strategy": "no",
            "use_cpu": not torch.cuda.is_available(),
        } | ({} if name == STOCK else {"loss": name})
        made[name] = new_trainer(folder, network, name == STOCK, **arguments)
    return made


def peak_of_step(trainer: Trainer) -> int:
    batch = next(iter(trainer.get_train_dataloader()))
    trainer.model.zero_grad(set_to_none=True)
    return peak_bytes(lambda: trainer.training_step(trainer.model, batch), trainer.args.device)


def measure_training(model: str, steps: int, rounds: int) -> Iterator[TrainerLine]:
    with tempfile.TemporaryDirectory() as folder:
        compared = trainers(model, steps + 1, folder)
        times = {name: Times() for name in compared}
        for round_ in range(rounds + 1):
            for name, trainer in compared.items():
                step_times = StepTimes()
                trainer.add_callback(step_times)
                trainer.train()
                trainer.remove_callback(step_times)
                if round_:  # the first warms up
                    times[name].wall.append(step_times.median(0))
                    times[name].cpu.append(step_times.median(1))
        peaks = {name: peak_of_step(trainer) for name, trainer in compared.items()}
    yield from trainer_lines(model, times, peaks)


def measure_evaluation(rounds: int) -> Iterator[TrainerLine]:
    set_seed(0)
    samples = Samples(logits=torch.randn(20_000, 100) * 3, labels=torch.randint(100, (20_000,)))
    arguments: dict[str, Any] = {"per_device_eval_batch_size": 256, "use_cpu": not torch.cuda.is_available()}
    with tempfile.TemporaryDirectory() as folder:
        network = partial(Identity, PreTrainedConfig(num_labels=100))
        stock = new_trainer(folder, network(), True, **arguments)
        ours = new_trainer(folder, network(), loss="cross_entropy", **arguments)
        runs = {STOCK: partial(stock.evaluate, samples), "cross_entropy": partial(ours.evaluate, samples)}
        times = times_in_turn(runs, rounds)
        peaks = {name: peak_bytes(run, stock.args.device) for name, run in runs.items()}
    yield from trainer_lines("evaluation", times, peaks)


def trainer_lines(model: str, times: Mapping[str, Times], peaks: Mapping[str, int]) -> Iterator[TrainerLine]:
    for name in times:
        yield {
            "model": model,
            "trainer": name if name == STOCK else f"FocalTrainer, {name}",
            "seconds": statistics.median(times[name].wall),
            "ratio": median_ratio(times[name].wall, times[STOCK].wall),
            "cpu_ratio": median_ratio(times[name].cpu, times[STOCK].cpu),
            "peak_bytes": peaks[name],
            "peak_ratio": peaks[name] / peaks[STOCK],
        }


def main() -> None:
    parser = script_options(__doc__, rounds=7)
    parser.add_argument("--models", nargs="+", choices=[*MODELS, "evaluation"], default=[*MODELS, "evaluation"])
    parser.add_argument("--steps", type=int, default=10)
    options = parse_options(parser)
    logging.set_verbosity_error()
    lines = []
    for model in options.models:
        evaluates = model == "evaluation"
        lines += shown(
            measure_evaluation(options.rounds) if evaluates else measure_training(model, options.steps, options.rounds)
        )
    device = "cuda" if torch.cuda.is_available() else "cpu"
    write_figures(options.json, {"machine": machine(device), "lines": lines})


if __name__ == "__main__":
    main()
