"""Whole commands on a fine-tuned encoder, and its training, beside those of Transformers.

    python -m benchmarks.speed.commands --encoder all-MiniLM-L6-v2 --train train.parquet \
        --texts dev.parquet test.parquet [--rows 4000] [--rounds 5] [--json benchmarks/results/commands.json]

The files have the columns "text" and "label" (0 or 1; rows with other labels are left out). The encoder gets a head
and is fine-tuned for some steps, by the stock `Trainer` and by `FocalTrainer` in turn. The fine-tuned model then
classifies `--rows` texts, drawn from `--texts`, in three ways, each in a process of its own:

- evaluate: `hf-focal evaluate`, with all its metrics, intervals, and the report;
- pipeline: `pipeline("text-classification", batch_size=16)` over the texts in their order, and the accuracy;
- predict: `Trainer.predict` on the tokenized texts, sorted by length, and the accuracy.

Seconds are CPU seconds of one thread without imports, so that other processes matter little; ratios are between runs
of the same round. Memory is the peak of the process, as Linux reports it, with imports; evaluate also runs on five
times the rows, to show that its memory does not grow with them.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.measuring import process_peak_bytes, spread, write_measurements

BATCH = 16


def evaluate(model: str, texts: Path, folder: Path) -> Any:
    from hf_focal import evaluate_model

    return lambda: evaluate_model(model, str(texts), batch_size=BATCH, output=folder / "report").pre["accuracy"]


def pipeline(model: str, texts: Path, folder: Path) -> Any:
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


def predict(model: str, texts: Path, folder: Path) -> Any:
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


WAYS = {way.__name__: way for way in (evaluate, pipeline, predict)}


def run_here(way: str, model: str, texts: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = WAYS[way](model, texts, Path(folder))
        start = time.process_time()
        accuracy = run()
        seconds = time.process_time() - start
    print(json.dumps({"seconds": seconds, "MiB": process_peak_bytes() / 2**20, "accuracy": accuracy}))


def run_apart(way: str, model: Path, texts: Path) -> dict[str, float]:
    command = [
        sys.executable,
        "-m",
        "benchmarks.speed.commands",
        "--way",
        way,
        "--model",
        str(model),
        "--texts",
        str(texts),
    ]
    quiet = {"OMP_NUM_THREADS": "1", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1", "TRANSFORMERS_VERBOSITY": "error"}
    done = subprocess.run(command, env=os.environ | quiet, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


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
                start = time.process_time()
                trainer.train()
                trained = time.process_time()
                trainer.evaluate(held_out)
                result[name] = trained - start
                result[f"{name} with evaluation"] = time.process_time() - start
        seconds.append(result)
    trainer.save_model(str(model))
    return seconds


def start_seconds(*command: str) -> float:
    """Return the shortest time of five runs of a command, without the start of Python."""

    def shortest(*command: str) -> float:
        times = []
        for _ in range(5):
            start = time.perf_counter()
            subprocess.run([sys.executable, *command], stdout=subprocess.DEVNULL, check=True)
            times.append(time.perf_counter() - start)
        return min(times)

    return shortest(*command) - shortest("-c", "pass")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder")
    parser.add_argument("--train", type=Path)
    parser.add_argument("--texts", type=Path, nargs="+", required=True)
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--model", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.way:
        run_here(args.way, args.model, args.texts[0])
        return

    def table(*files: Path) -> pd.DataFrame:
        rows = pd.concat(pd.read_parquet(file, columns=["text", "label"]) for file in files)
        return rows[rows["label"].isin((0, 1))]

    result: dict[str, Any] = {"rows": args.rows, "rounds": args.rounds, "batch_size": BATCH}
    with tempfile.TemporaryDirectory() as folder:
        model, few, many = Path(folder) / "model", Path(folder) / "few.parquet", Path(folder) / "many.parquet"
        seconds = fine_tune(
            args.encoder, table(args.train).sample(frac=1, random_state=1), args.steps, args.rounds, model
        )
        result["training"] = {
            "seconds": seconds,
            "steps": spread([s["FocalTrainer"] / s["Trainer"] for s in seconds]),
            "steps and evaluation": spread(
                [s["FocalTrainer with evaluation"] / s["Trainer with evaluation"] for s in seconds]
            ),
        }
        print(json.dumps(result["training"]), flush=True)
        texts = table(*args.texts).sample(5 * args.rows, replace=True, random_state=1)
        texts.to_parquet(many, index=False)
        texts.head(args.rows).to_parquet(few, index=False)
        result["five times the rows"] = run_apart("evaluate", model, many)
        runs = []
        for _ in range(args.rounds):
            runs.append({way: run_apart(way, model, few) for way in WAYS})
            print(json.dumps(runs[-1]), flush=True)
        result["classifying"] = runs
        result["seconds / those of evaluate"] = {
            way: spread([run[way]["seconds"] / run["evaluate"]["seconds"] for run in runs])
            for way in ("pipeline", "predict")
        }
    result["start"] = {
        "import hf_focal": start_seconds("-c", "import hf_focal"),
        "hf-focal --help": start_seconds("-m", "hf_focal", "--help"),
    }
    print(
        json.dumps(
            {key: result[key] for key in ("seconds / those of evaluate", "start", "five times the rows")}, indent=1
        )
    )
    write_measurements(args.json, result)


if __name__ == "__main__":
    main()
