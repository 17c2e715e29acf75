"""Whole commands on a fine-tuned encoder, and its training, beside those of Transformers.

    python -m benchmarks.speed.commands --encoder all-MiniLM-L6-v2 --train train.parquet \
        --texts dev.parquet test.parquet [--rows 4000] [--rounds 5] [--json benchmarks/results/commands.json]

The files have the columns "text" and "label" (0 or 1; rows with other labels are left out). The encoder gets a head
and is fine-tuned for some steps, by the stock `Trainer` and by `FocalTrainer` in turn. The fine-tuned model then
classifies `--rows` texts, drawn from `--texts`, with three tools, each in a process of its own:

- evaluate: `hf-focal evaluate`, with all its metrics, intervals, and the report;
- pipeline: `pipeline("text-classification", batch_size=16)` over the texts in their order, and the accuracy;
- predict: `Trainer.predict` on the tokenized texts, sorted by length, and the accuracy.

Seconds are CPU seconds of one thread without imports, so that other processes matter little; ratios are between runs
of the same round. Memory is the peak of the process, as Linux reports it, with imports; evaluate also runs on five
times the rows, to show that its memory does not grow with them.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.common.figures import script_options, shown, write_figures
from benchmarks.common.processes import print_run, run_module
from benchmarks.common.timing import spread, timed

BATCH = 16


def evaluate(model: str, texts: Path, folder: Path) -> Callable[[], float]:
    from hf_focal import evaluate_model

    return lambda: evaluate_model(model, str(texts), batch_size=BATCH, output=folder / "report").pre["accuracy"]


def pipeline(model: str, texts: Path, folder: Path) -> Callable[[], float]:
    import transformers
    from datasets import Dataset
    from transformers.pipelines.pt_utils import KeyDataset

    classifier = transformers.pipeline("text-classification", model=model)

    def run() -> float:
        data = Dataset.from_parquet(str(texts), cache_dir=str(folder))
        ids = classifier.model.config.label2id
        results = classifier(KeyDataset(data, "text"), batch_size=BATCH, truncation=True)
        predictions = [ids[result["label"]] for result in results]
        return sum(map(int.__eq__, predictions, data["label"])) / len(data)

    return run


def predict(model: str, texts: Path, folder: Path) -> Callable[[], float]:
    from datasets import Dataset
    from transformers import AutoModelForSequenceClassification, AutoTokenizer, Trainer, TrainingArguments

    tokenizer = AutoTokenizer.from_pretrained(model)
    loaded = AutoModelForSequenceClassification.from_pretrained(model)

    def run() -> float:
        data = Dataset.from_parquet(str(texts), cache_dir=str(folder))
        data = data.map(lambda rows: tokenizer(rows["text"], truncation=True), batched=True, remove_columns="text")
        data = data.select(sorted(range(len(data)), key=[len(ids) for ids in data["input_ids"]].__getitem__))
        args = TrainingArguments(str(folder), per_device_eval_batch_size=BATCH, report_to="none", disable_tqdm=True)
        result = Trainer(loaded, args, processing_class=tokenizer).predict(data)
        return float((result.predictions.argmax(1) == result.label_ids).mean())

    return run


TOOLS = {tool.__name__: tool for tool in (evaluate, pipeline, predict)}
QUIET = {"HF_DATASETS_DISABLE_PROGRESS_BARS": "1", "TRANSFORMERS_VERBOSITY": "error"}


def classify(tool: str, model: Path, texts: Path) -> dict[str, float]:
    """Return the CPU seconds, the peak memory, and the accuracy of a tool that classifies texts in a new process."""
    arguments = ("--tool", tool, "--model", str(model), "--texts", str(texts))
    run = run_module("benchmarks.speed.commands", *arguments, **QUIET)
    return {"seconds": run["seconds"], "MiB": run["peak_bytes"] / 2**20, "accuracy": run["result"]}


def fine_tune(encoder: str, data: pd.DataFrame, steps: int, rounds: int, model: Path) -> list[dict[str, float]]:
    """Return the CPU seconds of training, and of training and evaluation, of both trainers in each round."""
    import torch
    from datasets import Dataset
    from transformers import AutoModelForSequenceClassification, AutoTokenizer, Trainer, TrainingArguments, set_seed

    from hf_focal import FocalTrainer, FocalTrainingArguments

    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    texts = Dataset.from_pandas(data, preserve_index=False)
    texts = texts.map(lambda rows: tokenizer(rows["text"], truncation=True), batched=True, remove_columns="text")
    size = 32 * steps
    train, held_out = texts.select(range(size)), texts.select(range(size, size + 1000))
    options: dict[str, Any] = {"per_device_train_batch_size": 32, "per_device_eval_batch_size": 32, "max_steps": steps}
    options |= {"eval_strategy": "no", "save_strategy": "no", "learning_rate": 5e-5, "disable_tqdm": True}
    options |= {"report_to": "none", "logging_strategy": "no"}
    seconds = []
    for _ in range(rounds):
        result = {}
        for name in ("Trainer", "FocalTrainer"):
            set_seed(1)
            network = AutoModelForSequenceClassification.from_pretrained(encoder, num_labels=2)
            trainer: Trainer
            with tempfile.TemporaryDirectory() as folder:
                if name == "Trainer":
                    args = TrainingArguments(folder, **options)
                    trainer = Trainer(network, args, train_dataset=train, processing_class=tokenizer)
                else:
                    args = FocalTrainingArguments(folder, loss="flsd53", **options)
                    trainer = FocalTrainer(network, args, train_dataset=train, processing_class=tokenizer)
                training = timed(trainer.train)[2]
                result[name] = training
                result[f"{name} with evaluation"] = training + timed(partial(trainer.evaluate, held_out))[2]
        seconds.append(result)
    trainer.save_model(str(model))
    return seconds


def start_seconds(*command: str) -> float:
    """Return the shortest time of five runs of a command, without the start of Python."""

    def shortest(*command: str) -> float:
        run = partial(subprocess.run, [sys.executable, *command], stdout=subprocess.DEVNULL, check=True)
        return min(timed(run)[1] for _ in range(5))

    return shortest(*command) - shortest("-c", "pass")


def read_texts(*files: Path) -> pd.DataFrame:
    rows = pd.concat(pd.read_parquet(file, columns=["text", "label"]) for file in files)
    return rows[rows["label"].isin((0, 1))]


def measure_training(options: argparse.Namespace, model: Path) -> dict[str, Any]:
    """Fine-tune with both trainers, and save the model for `measure_classifying`."""
    data = read_texts(options.train).sample(frac=1, random_state=1)
    seconds = fine_tune(options.encoder, data, options.steps, options.rounds, model)
    figures: dict[str, Any] = {"seconds": seconds}
    for what, suffix in (("steps", ""), ("steps and evaluation", " with evaluation")):
        figures[what] = spread([s[f"FocalTrainer{suffix}"] / s[f"Trainer{suffix}"] for s in seconds])
    return figures


def measure_classifying(options: argparse.Namespace, model: Path, folder: Path) -> dict[str, Any]:
    """Classify `--rows` texts with each tool in turn, and five times as many with `hf-focal evaluate`."""
    few, many = folder / "few.parquet", folder / "many.parquet"
    texts = read_texts(*options.texts).sample(5 * options.rows, replace=True, random_state=1)
    texts.to_parquet(many, index=False)
    texts.head(options.rows).to_parquet(few, index=False)
    figures: dict[str, Any] = {"five times the rows": classify("evaluate", model, many)}
    runs = shown({tool: classify(tool, model, few) for tool in TOOLS} for _ in range(options.rounds))
    figures["classifying"] = runs
    figures["seconds / those of evaluate"] = {
        tool: spread([run[tool]["seconds"] / run["evaluate"]["seconds"] for run in runs])
        for tool in ("pipeline", "predict")
    }
    return figures


def main() -> None:
    parser = script_options(__doc__, rounds=5, threads=False)
    parser.add_argument("--encoder")
    parser.add_argument("--train", type=Path)
    parser.add_argument("--texts", type=Path, nargs="+", required=True)
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--tool", choices=TOOLS, help=argparse.SUPPRESS)
    parser.add_argument("--model", help=argparse.SUPPRESS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.tool:
            return print_run(TOOLS[options.tool](options.model, options.texts[0], folder))
        result: dict[str, Any] = {"rows": options.rows, "rounds": options.rounds, "batch_size": BATCH}
        result["training"] = measure_training(options, folder / "model")
        result |= measure_classifying(options, folder / "model", folder)
    result["start"] = {
        "import hf_focal": start_seconds("-c", "import hf_focal"),
        "hf-focal --help": start_seconds("-m", "hf_focal", "--help"),
    }
    shown([result])
    write_figures(options.json, result)


if __name__ == "__main__":
    main()
