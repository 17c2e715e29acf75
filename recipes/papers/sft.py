"""Train a small language model from scratch by SFT with several losses, and save the calibration of each model.

    python recipes/papers/sft.py --train_file multi30k/train.parquet --calibration_file multi30k/validation.parquet \
        --test_file multi30k/test_2016_flickr.parquet --losses cross_entropy,focal:gamma=1,label_smoothing:alpha=0.1 \
        --seeds 1,2,3 --output_dir out/sft

The sentences are packed. Each finished run is one file, `<run>/run.json`; running the same command again trains only
the missing runs. `papers.pages.sft` makes the tables of docs/results/sft.md. This script needs
`hf_focal[trl]`.
"""

import argparse
import json
import time
from pathlib import Path

import torch
import transformers
import trl
from datasets import Dataset, load_dataset
from transformers import GPT2Config, GPT2LMHeadModel, set_seed

from hf_focal import CalibrationMetrics, FocalSFTConfig, FocalSFTTrainer
from hf_focal.trainer.recipe_arguments import loss_folder, parse_losses
from hf_focal.utils.atomic_write import write_whole
from papers.data.tokenizer_training import train_bpe_tokenizer
from papers.pages.records import rounded
from papers.runs.output_folders import refuse_other_settings


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train_file", required=True, help="parquet files with a column of texts")
    parser.add_argument("--calibration_file", required=True, help="T is fitted to it")
    parser.add_argument("--test_file", required=True)
    parser.add_argument("--column", default="de", help="of the texts (default: %(default)s)")
    parser.add_argument("--losses", default="cross_entropy", help="comma-separated")
    parser.add_argument("--seeds", default="1", help="comma-separated; each draws its own training samples")
    parser.add_argument("--train_samples", type=int, default=10_000)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--learning_rate", type=float, default=2e-3)
    parser.add_argument("--vocab_size", type=int, default=4000)
    parser.add_argument("--hidden_size", type=int, default=128)
    parser.add_argument("--output_dir", type=Path, required=True)
    return parser.parse_args()


def encode(texts: Dataset, column: str, tokenizer) -> Dataset:
    """Encode texts as token ids between two end-of-sentence tokens, so that the first word is also predicted."""

    def ids(batch: dict) -> dict:
        rows = tokenizer(batch[column], truncation=True, max_length=127)["input_ids"]
        return {"input_ids": [[tokenizer.eos_token_id, *row] for row in rows]}

    return texts.map(ids, batched=True, remove_columns=texts.column_names)


def settings_of(options: argparse.Namespace, loss: str, seed: int) -> dict:
    """Return the command-line settings that run.json keeps. The folder's name has the number of samples."""
    values = {name: getattr(options, name) for name in ("epochs", "learning_rate", "vocab_size", "hidden_size")}
    return {"loss": loss, "seed": seed, **values}


def train_one(options: argparse.Namespace, loss: str, seed: int, folder: Path) -> None:
    column, files = options.column, (options.train_file, options.calibration_file, options.test_file)
    datasets = (load_dataset("parquet", data_files=file, split="train") for file in files)
    texts, *held_out = (dataset.select_columns(column) for dataset in datasets)
    texts = texts.shuffle(seed=seed).select(range(min(options.train_samples, len(texts))))
    tokenizer = train_bpe_tokenizer(texts[column][:], options.vocab_size)
    train, calibration, test = (encode(part, column, tokenizer) for part in (texts, *held_out))
    set_seed(seed)
    end = tokenizer.eos_token_id
    special = {"bos_token_id": end, "eos_token_id": end, "pad_token_id": tokenizer.pad_token_id}
    sizes = {"n_positions": 128, "n_embd": options.hidden_size, "n_layer": 2, "n_head": 4}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=len(tokenizer), **sizes, **special))
    args = FocalSFTConfig(
        output_dir=str(folder),
        loss=loss,
        packing=True,
        eval_packing=False,
        max_length=128,
        per_device_train_batch_size=4,  # packed sequences of 128 tokens
        gradient_accumulation_steps=4,
        per_device_eval_batch_size=32,
        num_train_epochs=options.epochs,
        learning_rate=options.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=0.1,
        weight_decay=0.01,
        seed=seed,
        bf16=False,
        gradient_checkpointing=False,
        use_cpu=True,
        save_strategy="no",
        report_to="none",
        logging_steps=50,
        disable_tqdm=True,
    )
    trainer = FocalSFTTrainer(model, args, train_dataset=train, eval_dataset=calibration, processing_class=tokenizer)
    started = time.process_time()
    trainer.train()
    seconds = time.process_time() - started
    seen, _ = trainer.measure(train.select(range(min(1000, len(train)))))
    temperature = trainer.fit_temperature()  # by NLL
    before, after = trainer.measure(test)
    result = settings_of(options, loss, seed) | {
        "train_samples": len(train),
        "num_parameters": model.num_parameters(),
        "temperature": temperature.value,
        "cpu_seconds": round(seconds, 1),
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__, "trl": trl.__version__},
        "train": rounded_metrics(seen),
        "before": rounded_metrics(before),
        "after": rounded_metrics(after),
    }
    write_whole(folder / "run.json", json.dumps(result, indent=1) + "\n")


def rounded_metrics(metrics: CalibrationMetrics | None) -> dict[str, float]:
    assert metrics is not None  # because a temperature was fitted
    values = metrics.compute()
    return rounded({name: values[name] for name in ("num_samples", "error", "nll", "brier", "ece", "adaece")}, 6)


def main() -> None:
    options = parse_arguments()
    for seed in map(int, options.seeds.split(",")):
        for loss in parse_losses(options.losses):
            folder = loss_folder(options.output_dir, f"{loss}_{options.train_samples}_s{seed}")
            if (folder / "run.json").exists():
                refuse_other_settings(folder, settings_of(options, loss, seed))
                continue
            folder.mkdir(parents=True, exist_ok=True)
            train_one(options, loss, seed, folder)


if __name__ == "__main__":
    main()
