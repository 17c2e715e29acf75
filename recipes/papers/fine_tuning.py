"""Fine-tune a pretrained encoder with several losses, and save the logits and the calibration of each model.

    python recipes/papers/fine_tuning.py --model all-MiniLM-L6-v2 --task sst --train_file sst/train.parquet \
        --calibration_file sst/dev.parquet --test_file sst/test.parquet --train_samples 500 \
        --losses cross_entropy,flsd53,adafocal@5 --seeds 1,2,3 --output_dir out/fine_tuning

`adafocal@5` updates γ every five steps. Without a calibration file, the calibration samples are cut from the training
samples. Each finished run has one JSON file, `<run>/run.json`, next to its `logits.npz`. Running the same command
again trains only the missing runs; runs with other settings need another output folder. The script
`recipes/papers/fine_tuning_page.py` makes the tables of docs/results/fine_tuning.md.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
import transformers
from datasets import Dataset, load_dataset
from scipy.stats import mannwhitneyu
from transformers import AutoModelForSequenceClassification, AutoTokenizer, DataCollatorWithPadding, set_seed

from hf_focal import CalibrationMetrics, FocalTrainer, FocalTrainingArguments, fit_temperature
from hf_focal.utils.atomic_write import write_whole
from papers.data.newsgroups import strip_headers
from papers.runs.output_folders import is_finished

SPLIT_SEED = 0  # seed of the test subset, which is the same for all runs


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="the pretrained encoder: a Hub id or a folder")
    parser.add_argument("--model_label", help="its name in the run files (default: the last part of --model)")
    parser.add_argument("--task", required=True, help="the task's name in the run files")
    parser.add_argument("--train_file", required=True, help="parquet files with the columns text and label")
    parser.add_argument("--calibration_file", help="default: cut from the training samples")
    parser.add_argument("--test_file", required=True)
    parser.add_argument("--shift_file", help="a second test set, from another distribution")
    parser.add_argument("--strip_headers", action="store_true", help="the texts are raw newsgroup posts")
    parser.add_argument("--train_samples", type=int, help="train on this many samples (default: all)")
    parser.add_argument("--calibration_samples", type=int, default=500, help="of AdaFocal's updates and of T")
    parser.add_argument("--pool_samples", type=int, default=1000, help="held-out samples whose logits are saved")
    parser.add_argument("--test_samples", type=int, help="measure a fixed subset of the test set (default: all)")
    parser.add_argument("--label_noise", type=float, default=0.0, help="share of training labels made wrong")
    parser.add_argument("--losses", default="cross_entropy", help="comma-separated; 'adafocal@5': γ every 5 steps")
    parser.add_argument("--seeds", default="1", help="comma-separated")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--learning_rate", type=float, default=1e-4)
    parser.add_argument("--bf16", action="store_true", help="autocast to bfloat16")
    parser.add_argument("--max_length", type=int, default=128)
    parser.add_argument("--output_dir", type=Path, required=True)
    return parser.parse_args()


def read(path: str, options: argparse.Namespace) -> Dataset:
    samples = load_dataset("parquet", data_files=path, split="train").select_columns(["text", "label"])
    samples = samples.filter(lambda label: label >= 0, input_columns="label")  # without SST's neutral sentences
    if options.strip_headers:
        samples = samples.map(lambda text: {"text": strip_headers(text)}, input_columns="text")
    return samples


def load_splits(options: argparse.Namespace, seed: int) -> dict[str, Dataset]:
    """Load the splits "train", "pool", "test", and, if there is a shift file, "shift".

    "pool" is held out from training. Its first samples are the calibration set.
    """
    train = read(options.train_file, options).shuffle(seed=seed)
    if options.calibration_file:
        pool = read(options.calibration_file, options).shuffle(seed=seed)
        pool = pool.select(range(min(options.pool_samples, len(pool))))
    else:
        size = min(options.pool_samples, len(train) // 4)
        pool, train = train.select(range(size)), train.select(range(size, len(train)))
    if options.train_samples:
        train = train.select(range(options.train_samples))
    if options.label_noise:
        rng = np.random.default_rng(seed)
        labels, num_classes = np.array(train["label"]), train.features["label"].num_classes
        wrong = rng.random(len(labels)) < options.label_noise
        labels[wrong] = (labels[wrong] + rng.integers(1, num_classes, wrong.sum())) % num_classes
        train = train.remove_columns("label").add_column("label", labels, feature=train.features["label"])
    splits = {"train": train, "pool": pool, "test": read(options.test_file, options)}
    if options.shift_file:
        splits["shift"] = read(options.shift_file, options)
    for name in ("test", "shift"):
        if name in splits and options.test_samples and len(splits[name]) > options.test_samples:
            splits[name] = splits[name].shuffle(seed=SPLIT_SEED).select(range(options.test_samples))
    return splits


def tokenize(samples: Dataset, tokenizer, max_length: int) -> Dataset:
    def encode(batch):
        return {**tokenizer(batch["text"], truncation=True, max_length=max_length), "labels": batch["label"]}

    return samples.map(encode, batched=True, remove_columns=samples.column_names)


def by_length(samples: Dataset) -> Dataset:
    """Sort the samples by length, because a forward pass is faster on batches of similar lengths."""
    order = np.argsort([len(ids) for ids in samples["input_ids"]], kind="stable")
    return samples.select(order)


def measure(logits: torch.Tensor, labels: torch.Tensor) -> dict[str, float]:
    metrics = CalibrationMetrics()
    metrics.update(logits, labels)
    values = metrics.compute()
    names = ("error", "nll", "brier", "ece", "adaece", "classwise_ece")
    return {name: values[name] for name in names}


def decisions(logits: torch.Tensor, labels: torch.Tensor) -> dict[str, float]:
    """Compute metrics that T does not change: macro-F1, the top class's share, and, for two classes, AUROC."""
    num_classes = logits.shape[1]
    predicted = logits.argmax(1)
    counts = [
        [int(((predicted == k) & (labels == k)).sum()), int((predicted == k).sum()), int((labels == k).sum())]
        for k in range(num_classes)
    ]
    values = {
        "macro_f1": float(np.mean([2 * hits / max(said + true, 1) for hits, said, true in counts])),
        "largest_predicted_share": max(said for _, said, _ in counts) / len(labels),
    }
    if num_classes == 2:
        score = (logits[:, 1] - logits[:, 0]).double().numpy()
        positive, negative = score[labels == 1], score[labels == 0]
        values["auroc"] = float(mannwhitneyu(positive, negative).statistic / (len(positive) * len(negative)))
    return values


def settings_of(options: argparse.Namespace, loss: str, seed: int, splits: dict[str, Dataset]) -> dict:
    """Return the command-line settings that run.json keeps, and the sizes of the splits."""
    return rounded(
        {
            "task": options.task,
            "model": options.model_label or Path(options.model).name,
            "loss": loss,
            "seed": seed,
            "epochs": options.epochs,
            "train_samples": len(splits["train"]),
            "few_shot": options.train_samples is not None,
            "label_noise": options.label_noise,
            "learning_rate": options.learning_rate,
            "bf16": options.bf16,
            "max_length": options.max_length,
            "calibration_samples": min(options.calibration_samples, len(splits["pool"])),
            "test_samples": len(splits["test"]),
        }
    )


def rounded(record: dict) -> dict:
    return json.loads(json.dumps(record, default=float), parse_float=lambda number: float(f"{float(number):.6g}"))


def train_one(options: argparse.Namespace, settings: dict, encoded: dict, tokenizer, folder: Path) -> None:
    seed = settings["seed"]
    name, _, interval = settings["loss"].partition("@")
    args = FocalTrainingArguments(
        output_dir=str(folder),
        loss=name,
        gamma_update_steps=int(interval) if interval else None,
        seed=seed,
        num_train_epochs=options.epochs,
        learning_rate=options.learning_rate,
        lr_scheduler_type="linear",
        warmup_steps=0.1,
        weight_decay=0.01,
        max_grad_norm=1.0,
        bf16=options.bf16,
        use_cpu=not torch.cuda.is_available(),
        train_sampling_strategy="group_by_length",
        per_device_train_batch_size=32,
        per_device_eval_batch_size=128,
        save_strategy="no",
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    set_seed(seed)  # the head's initial weights
    model = AutoModelForSequenceClassification.from_pretrained(options.model, num_labels=options.num_classes)
    trainer = FocalTrainer(
        model=model,
        args=args,
        train_dataset=encoded["train"],
        calibration_dataset=encoded["calibration"],
        processing_class=tokenizer,
        data_collator=DataCollatorWithPadding(tokenizer),
    )
    started = time.time()
    trainer.train()
    seconds = time.time() - started

    measured = [split for split in ("calibration", "rest", "test", "shift") if split in encoded]
    outputs = {split: trainer.predict(encoded[split]) for split in measured}
    logits = {split: torch.from_numpy(output.predictions).float() for split, output in outputs.items()}
    labels = {split: torch.from_numpy(np.asarray(output.label_ids)) for split, output in outputs.items()}
    fitted_on = logits["calibration"], labels["calibration"]
    temperatures = {objective: float(fit_temperature(*fitted_on, objective)) for objective in ("nll", "ece")}
    majority = float((labels["test"] != encoded["train_labels"].mode().values).double().mean())
    record = {
        **settings,
        "majority_error": majority,
        "temperatures": temperatures,
        "training_seconds": round(seconds, 1),
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
    }
    for split in measured:
        scales = {"before": 1.0, **temperatures}
        record[split] = {key: measure(logits[split] / T, labels[split]) for key, T in scales.items()}
        record[split]["decisions"] = decisions(logits[split], labels[split])
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {
        f"{split}_{kind}": values[split]
        for split in measured
        for kind, values in (("logits", logits), ("labels", labels))
    }
    np.savez_compressed(folder / "logits.npz", **arrays)
    write_whole(folder / "run.json", json.dumps(rounded(record), indent=1) + "\n")
    before, nll = record["test"]["before"], record["test"]["nll"]
    print(
        f"{folder.name}: {seconds:.0f} s, error {before['error']:.4f}, ECE {before['ece']:.4f} -> {nll['ece']:.4f}, "
        f"NLL {before['nll']:.4f} -> {nll['nll']:.4f}, T {temperatures}",
        flush=True,
    )


def main() -> None:
    options = parse_arguments()
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    for seed in map(int, options.seeds.split(",")):
        size = f"{options.train_samples or 'all'}" + (f"_noise{options.label_noise:g}" if options.label_noise else "")
        stem = f"{options.task}_{size}_{options.epochs}epochs"
        folders = {
            loss: options.output_dir / f"{stem}_{loss.replace(':', '_').replace('=', '')}_s{seed}"
            for loss in options.losses.split(",")
        }
        splits = load_splits(options, seed)
        settings = {loss: settings_of(options, loss, seed, splits) for loss in folders}
        missing = [loss for loss, folder in folders.items() if not is_finished(folder, settings[loss])]
        if not missing:
            continue
        options.num_classes = splits["train"].features["label"].num_classes
        encoded = {name: tokenize(split, tokenizer, options.max_length) for name, split in splits.items()}
        pool = encoded.pop("pool")
        size = settings[missing[0]]["calibration_samples"]
        encoded["calibration"] = by_length(pool.select(range(size)))
        if len(pool) > size:
            encoded["rest"] = by_length(pool.select(range(size, len(pool))))
        encoded.update({name: by_length(encoded[name]) for name in ("test", "shift") if name in encoded})
        encoded["train_labels"] = torch.tensor(splits["train"]["label"])
        for loss in missing:
            train_one(options, settings[loss], encoded, tokenizer, folders[loss])


if __name__ == "__main__":
    main()
