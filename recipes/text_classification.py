"""Fine-tune an encoder to classify texts or pairs of texts, correct its probabilities, and measure their calibration.

    python text_classification.py --config own_texts.yaml --model_name_or_path org/encoder \
        --train_file train.csv --test_file test.csv --losses cross_entropy,flsd53 --output_dir out/texts
    hf-focal report out/texts

Without --losses, the recipe trains once, with --loss. Several labels for each text: --label_column names a column of
lists (of names, of numbers, or of a 0 or 1 for each label), or one column of 0 and 1 for each label: toxic,insult.
With --resume_from_checkpoint true, each run goes on from its last checkpoint. On several GPUs: accelerate launch.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path

import torch
from datasets import List
from transformers import AutoModelForSequenceClassification, AutoTokenizer, DataCollatorWithPadding, set_seed
from transformers.trainer_utils import get_last_checkpoint

from hf_focal import FocalTrainer, FocalTrainingArguments, input_length, load_splits, parse_recipe


@dataclass
class RecipeArguments:
    model_name_or_path: str = field(metadata={"help": "a Hub id or a folder"})
    revision: str = field(default="main", metadata={"help": "branch, tag or commit of the model on the Hub"})
    trust_remote_code: bool = field(default=False, metadata={"help": "run code that comes with the model"})
    max_length: int | None = field(default=None, metadata={"help": "tokens to keep of a text; default: the model's"})
    dataset_name: str | None = field(default=None, metadata={"help": "a dataset on the Hub or a folder"})
    dataset_config_name: str | None = field(default=None, metadata={"help": "the configuration of that dataset"})
    test_split: str = field(default="test", metadata={"help": "the split of that dataset to test on"})
    train_file: str | None = field(default=None, metadata={"help": "a csv, tsv, json, jsonl or parquet file"})
    validation_file: str | None = field(default=None, metadata={"help": "the data for T; default: cut from training"})
    test_file: str | None = field(default=None, metadata={"help": "the data that the report is about"})
    validation_size: int | None = field(
        default=None, metadata={"help": "texts to cut from training; default: a tenth"}
    )
    text_column: str = field(default="text", metadata={"help": "the column of texts"})
    text_pair_column: str | None = field(default=None, metadata={"help": "the column of second texts, for pairs"})
    label_column: str = field(default="label", metadata={"help": "the column, or columns, of labels"})
    label_format: str | None = field(default=None, metadata={"help": "what lists of integers are: multi_hot or ids"})
    calibration: str | None = field(
        default=None,
        metadata={"help": "temperature, vector, matrix, platt, auto; default: auto from 3 classes and 100 samples on"},
    )


def main() -> None:
    recipe, runs = parse_recipe(RecipeArguments, FocalTrainingArguments, __doc__)
    name = recipe.model_name_or_path
    source = {"revision": recipe.revision, "trust_remote_code": recipe.trust_remote_code}

    with runs[0].main_process_first(desc="loading the data"):
        splits, labels = load_splits(
            "text-classification",
            dataset_name=recipe.dataset_name,
            dataset_config_name=recipe.dataset_config_name,
            train_file=recipe.train_file,
            validation_file=recipe.validation_file,
            test_file=recipe.test_file,
            test_split=recipe.test_split,
            validation_size=recipe.validation_size,
            text_column=recipe.text_column,
            text_pair_column=recipe.text_pair_column,
            label_column=recipe.label_column,
            label_format=recipe.label_format,
            seed=runs[0].seed,
        )
        tokenizer = AutoTokenizer.from_pretrained(name, **source)
        if tokenizer.pad_token is None:  # GPT-2, Llama
            tokenizer.pad_token = tokenizer.eos_token
        max_length = input_length(name, tokenizer, recipe.max_length, **source)

        def encode(rows: dict) -> dict:
            return tokenizer(rows["text"], rows.get("text_pair"), truncation=True, max_length=max_length)

        inputs = [column for column in splits["train"].column_names if column != "labels"]
        encoded = splits.map(encode, batched=True, remove_columns=inputs, desc="tokenizing")

    several = isinstance(encoded["train"].features["labels"], List)
    head = {"id2label": dict(enumerate(labels)), "label2id": {label: number for number, label in enumerate(labels)}}
    head["problem_type"] = "multi_label_classification" if several else "single_label_classification"

    for args in runs:
        set_seed(args.seed)
        # Weights in full precision, whatever they were saved in; --bf16 and --fp16 compute in half. A pretrained model
        # without a head, or with the head of another task, gets a new one: Transformers lists the new weights.
        model = AutoModelForSequenceClassification.from_pretrained(
            name, dtype=torch.float32, ignore_mismatched_sizes=True, **head, **source
        )
        model.config.pad_token_id = tokenizer.pad_token_id
        trainer = FocalTrainer(
            model=model,
            args=args,
            train_dataset=encoded["train"],
            eval_dataset=encoded["validation"],
            calibration_dataset=encoded["validation"],
            processing_class=tokenizer,
            data_collator=DataCollatorWithPadding(tokenizer),
        )
        trainer.accelerator.print(f"\n{args.loss}: training on {len(encoded['train']):,} texts")
        resume = args.resume_from_checkpoint and os.path.isdir(args.output_dir)
        trainer.train(resume_from_checkpoint=get_last_checkpoint(args.output_dir) if resume else None)
        trainer.save_state()

        # The better default on many tasks: docs/results/fine_tuning.md
        by_class = not several and len(labels) > 2 and len(encoded["validation"]) >= 100
        calibration = recipe.calibration or ("auto" if by_class else "temperature")
        if calibration == "temperature":
            fitted = trainer.fit_temperature(per_label=several)
        else:
            fitted = trainer.fit_correction(method=calibration, per_label=several)
        result = trainer.report(encoded["test"])  # also writes report.html and the folder report
        trainer.accelerator.print(f"{fitted}\n{result.describe()}")
        card = {"result": result, "dataset": recipe.dataset_name or str(Path(recipe.train_file).absolute())}
        if args.push_to_hub:
            trainer.push_to_hub(**card)
        else:
            trainer.save_calibrated()
            trainer.create_model_card(**card)
        trainer.accelerator.print(f"{args.output_dir}: the model with its correction, its card, and report.html")


if __name__ == "__main__":
    main()
