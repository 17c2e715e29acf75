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

import argparse
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    EvalPrediction,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedConfig,
    PreTrainedModel,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    ViTConfig,
    ViTForImageClassification,
    set_seed,
)
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.utils import logging

from benchmarks.measuring import machine, median_ratio, peak_bytes, seconds_in_turn, write_measurements
from hf_focal import FocalTrainer, FocalTrainingArguments

STOCK = "Trainer"
LOSSES = ("cross_entropy", "flsd53")


class Samples(Dataset):
    def __init__(self, **columns: Tensor):
        self.columns = columns

    def __len__(self) -> int:
        return len(self.columns["labels"])

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {name: column[index] for name, column in self.columns.items()}


class Identity(PreTrainedModel):
    """Returns its input as logits."""

    config_class = PreTrainedConfig
    main_input_name = "logits"

    def __init__(self, config: PreTrainedConfig):
        super().__init__(config)
        self.scale = nn.Parameter(torch.ones(()))
        self.post_init()

    def forward(self, logits: Tensor, labels: Tensor | None = None) -> SequenceClassifierOutput:
        logits = logits * self.scale
        return SequenceClassifierOutput(
            None if labels is None else nn.functional.cross_entropy(logits, labels), logits
        )


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

    def __init__(self):
        self.ends: list[tuple[float, float]] = []

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.ends.append((time.perf_counter(), time.process_time()))

    def medians(self) -> tuple[float, float]:
        pairs = list(zip(self.ends, self.ends[1:], strict=False))
        return tuple(statistics.median(after[i] - before[i] for before, after in pairs) for i in (0, 1))  # type: ignore[return-value]


def trainers(model: str, steps: int, folder: str) -> dict[str, Trainer]:
    """The stock trainer and ours, each with its own copy of the model."""
    made: dict[str, Trainer] = {}
    for name in (STOCK, *LOSSES):
        set_seed(0)
        network, samples, batch_size = MODELS[model]()
        options: dict[str, Any] = {
            "output_dir": folder,
            "max_steps": steps,
            "per_device_train_batch_size": batch_size,
            "report_to": "none",
            "save_strategy": "no",
            "logging_strategy": "no",
            "disable_tqdm": True,
            "use_cpu": not torch.cuda.is_available(),
        }
        if name == STOCK:
            made[name] = Trainer(network, TrainingArguments(**options), train_dataset=samples)
        else:
            made[name] = FocalTrainer(network, FocalTrainingArguments(loss=name, **options), train_dataset=samples)
        made[name].remove_callback(PrinterCallback)
    return made


def peak_of_step(trainer: Trainer) -> int:
    batch = next(iter(trainer.get_train_dataloader()))
    trainer.model.zero_grad(set_to_none=True)
    return peak_bytes(lambda: trainer.training_step(trainer.model, batch), trainer.args.device)


def measure_training(model: str, steps: int, rounds: int) -> list[dict]:
    """Return and print a line for each trainer."""
    wall: dict[str, list[float]] = {}
    cpu: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        compared = trainers(model, steps + 1, folder)
        for round_ in range(rounds + 1):
            for name, trainer in compared.items():
                times = StepTimes()
                trainer.add_callback(times)
                trainer.train()
                trainer.remove_callback(times)
                if round_:  # the first warms up
                    wall_seconds, cpu_seconds = times.medians()
                    wall.setdefault(name, []).append(wall_seconds)
                    cpu.setdefault(name, []).append(cpu_seconds)
        peaks = {name: peak_of_step(trainer) for name, trainer in compared.items()}
    return [line(model, name, wall, cpu, peaks) for name in compared]


def accuracy(result: EvalPrediction) -> dict[str, float]:
    return {"accuracy": float((result.predictions.argmax(-1) == result.label_ids).mean())}


def measure_evaluation(rounds: int) -> list[dict]:
    set_seed(0)
    samples = Samples(logits=torch.randn(20_000, 100) * 3, labels=torch.randint(100, (20_000,)))
    options: dict[str, Any] = {"per_device_eval_batch_size": 256, "report_to": "none", "disable_tqdm": True}
    options["use_cpu"] = not torch.cuda.is_available()
    with tempfile.TemporaryDirectory() as folder:
        stock = Trainer(
            Identity(PreTrainedConfig(num_labels=100)), TrainingArguments(folder, **options), compute_metrics=accuracy
        )
        ours = FocalTrainer(
            Identity(PreTrainedConfig(num_labels=100)), FocalTrainingArguments(folder, loss="cross_entropy", **options)
        )
        compared = {STOCK: stock, "cross_entropy": ours}
        for trainer in compared.values():
            trainer.remove_callback(PrinterCallback)
        runs = {name: partial(trainer.evaluate, samples) for name, trainer in compared.items()}
        seconds_in_turn(runs, 1)  # warm-up
        wall, cpu = seconds_in_turn(runs, rounds)
        peaks = {
            name: peak_bytes(lambda trainer=trainer: trainer.evaluate(samples), trainer.args.device)
            for name, trainer in compared.items()
        }
    return [line("evaluation", name, wall, cpu, peaks) for name in compared]


def line(model: str, name: str, wall: dict, cpu: dict, peaks: dict[str, int]) -> dict:
    result = {
        "model": model,
        "trainer": name if name == STOCK else f"FocalTrainer, {name}",
        "seconds": statistics.median(wall[name]),
        "ratio": median_ratio(wall[name], wall[STOCK]),
        "cpu_ratio": median_ratio(cpu[name], cpu[STOCK]),
        "peak_bytes": peaks[name],
        "peak_ratio": peaks[name] / peaks[STOCK],
    }
    print(
        f"{model:10} {result['trainer']:28} {1000 * result['seconds']:9.1f} ms {result['ratio']:6.3f}  "
        f"CPU {result['cpu_ratio']:6.3f}  {result['peak_bytes'] / 2**20:8.1f} MiB {result['peak_ratio']:5.2f}",
        flush=True,
    )
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=[*MODELS, "evaluation"], default=[*MODELS, "evaluation"])
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    logging.set_verbosity_error()
    lines = []
    for model in options.models:
        if model == "evaluation":
            lines += measure_evaluation(options.rounds)
        else:
            lines += measure_training(model, options.steps, options.rounds)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    write_measurements(options.json, {"machine": machine(device), "lines": lines})


if __name__ == "__main__":
    main()
