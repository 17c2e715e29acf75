"""Train, measure and correct a text classifier.

One loss:

    python recipes/text_classification.py --config recipes/configs/newsgroups/gp_cnn.yaml \
        --train_file train.parquet --test_file test.parquet --loss flsd53 --output_dir out/flsd53

Several, side by side in one table and one figure:

    python recipes/text_classification.py --config recipes/configs/demo.yaml \
        --compare cross_entropy,focal:gamma=3,flsd53 --output_dir out/demo

Several GPUs: `accelerate launch --num_processes 4 recipes/text_classification.py ...`. The same command again resumes
what was interrupted and reuses what was finished.
"""

import logging
import re
import sys
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import torch
from datasets import DatasetDict
from transformers import AutoModelForSequenceClassification, AutoTokenizer, DataCollatorWithPadding, set_seed
from transformers.trainer_utils import get_last_checkpoint

from hf_focal import FocalTrainer, FocalTrainingArguments, LossConfig, fold_temperature
from hf_focal.arguments import claim_output_dir, parse_arguments
from hf_focal.data import (
    generate_topics,
    label_names,
    load_splits,
    strip_footers,
    strip_headers,
    strip_quotes,
    train_word_tokenizer,
    true_calibration_error,
)
from hf_focal.models import GPCNNConfig, GPCNNForSequenceClassification, load_embeddings
from hf_focal.reports import RunResult, results_table, write_comparison, write_report

STRIPPERS = {"headers": strip_headers, "footers": strip_footers, "quotes": strip_quotes}

# What determines a run's result, beside data and model; a change of anything else (logging, ...) may resume it.
RESULT_SETTINGS = {
    *("loss", "loss_reduction", "calibration_bins", "seed", "num_train_epochs", "max_steps", "optim", "bf16", "fp16"),
    *("per_device_train_batch_size", "gradient_accumulation_steps", "learning_rate", "lr_scheduler_type"),
    *("warmup_steps", "weight_decay", "adam_beta1", "adam_beta2", "max_grad_norm", "metric_for_best_model"),
    *("load_best_model_at_end", "train_sampling_strategy"),
}


@dataclass
class DataArguments:
    """The data. Without `dataset_name` and `train_file`: a generated corpus whose true posterior is known."""

    dataset_name: str | None = field(default=None, metadata={"help": "A dataset on the Hub, with train and test."})
    dataset_config_name: str | None = field(default=None, metadata={"help": "The configuration of that dataset."})
    train_file: str | None = field(default=None, metadata={"help": "csv, json, jsonl or parquet."})
    validation_file: str | None = field(default=None, metadata={"help": "If absent, cut from the training data."})
    test_file: str | None = field(default=None, metadata={"help": "What the report is about."})
    text_column: str = field(default="text", metadata={"help": "The column of texts."})
    label_column: str = field(default="label", metadata={"help": "The column of labels."})
    validation_size: int = field(default=900, metadata={"help": "Rows cut from the training data for validation."})
    strip: str = field(
        default="none",
        metadata={"help": "Parts of newsgroup posts to drop: 'headers,footers,quotes', some of them, or 'none'."},
    )
    num_generated: int = field(default=4000, metadata={"help": "Training texts of the generated corpus."})


@dataclass
class ModelArguments:
    """The model: the papers' CNN trained from scratch, or any encoder to fine-tune."""

    model_name_or_path: str = field(
        default="gp_cnn", metadata={"help": "'gp_cnn', or a model for sequence classification (Hub id or folder)."}
    )
    max_length: int = field(default=1000, metadata={"help": "Tokens after which a text is cut."})
    vocab_size: int = field(default=20_000, metadata={"help": "gp_cnn: words of its vocabulary."})
    embedding_size: int = field(default=100, metadata={"help": "gp_cnn: width of its word vectors."})
    embeddings_file: str | None = field(default=None, metadata={"help": "gp_cnn: word vectors in GloVe's format."})
    num_filters: int = field(default=128, metadata={"help": "gp_cnn: channels of each convolution."})
    num_layers: int = field(default=3, metadata={"help": "gp_cnn: convolutions."})


@dataclass
class RecipeArguments:
    """What is run and how it is corrected."""

    compare: str | None = field(default=None, metadata={"help": "Train each of these losses: 'brier,focal:gamma=3'."})
    temperature_objective: str = field(default="ece", metadata={"help": "'ece' (the papers' grid) or 'nll'."})


def main(argv: list[str] | None = None) -> list[RunResult]:
    data, model, recipe, args = parse_arguments(
        (DataArguments, ModelArguments, RecipeArguments, FocalTrainingArguments),
        sys.argv[1:] if argv is None else argv,
        description="Train, measure and correct a text classifier.",
    )
    logging.basicConfig(level=logging.INFO if args.should_log else logging.WARNING, format="%(message)s")
    losses = LossConfig.parse_list(recipe.compare) if recipe.compare else [LossConfig.parse(args.loss)]
    with args.main_process_first(desc="loading the data"):
        splits = load_data(data, args.seed)
        tokenizer = load_tokenizer(model, splits)
        encoded = encode(splits, tokenizer, model.max_length)

    results = []
    for number, loss in enumerate(losses, start=1):
        logging.info("%s (%d of %d)", loss, number, len(losses))
        run_args = deepcopy(args)
        run_args.loss = str(loss)
        if recipe.compare:
            run_args.output_dir = str(Path(args.output_dir) / re.sub(r"[^\w.-]+", "_", str(loss)))
        settings = {"data": asdict(data), "model": asdict(model), "temperature": recipe.temperature_objective}
        settings |= {key: value for key, value in run_args.to_dict().items() if key in RESULT_SETTINGS}
        claim_output_dir(run_args.output_dir, settings, write=args.process_index == 0)
        finished = Path(run_args.output_dir) / "report" / "metrics.json"
        if finished.exists():
            logging.info("finished already, see %s", finished.parent)
            results.append(RunResult.load(finished))
        else:
            results.append(run(loss, run_args, recipe, splits, encoded, tokenizer, model))

    if args.process_index == 0:
        report = Path(args.output_dir) / "report"
        if recipe.compare:
            write_comparison(report, results)
        print_summary(report, results)
    return results


def run(loss, args, recipe, splits, encoded, tokenizer, model_args) -> RunResult:
    """Train one loss (or go on where it was interrupted), fit the temperature on validation, measure on test."""
    set_seed(args.seed)
    trainer = FocalTrainer(
        model=build_model(model_args, tokenizer, splits),
        args=args,
        train_dataset=encoded["train"],
        eval_dataset=encoded["validation"],
        processing_class=tokenizer,
        data_collator=DataCollatorWithPadding(tokenizer),
    )
    trained = trainer.train(resume_from_checkpoint=get_last_checkpoint(args.output_dir))
    trainer.save_state()
    temperature = trainer.fit_temperature(encoded["validation"], objective=recipe.temperature_objective)

    test = trainer.predict(encoded["test"])
    logits, labels = torch.from_numpy(test.predictions), torch.from_numpy(test.label_ids)
    result = RunResult.measure(
        loss,
        temperature,
        logits,
        labels,
        num_bins=args.calibration_bins,
        true_calibration_error=true_errors(logits, temperature, splits["test"]),
        details={
            "train_metrics": trained.metrics,
            "best_validation_metric": trainer.state.best_metric,
            "best_checkpoint": Path(trainer.state.best_model_checkpoint or "").name,
            "num_parameters": trainer.model.num_parameters(),
            "num_processes": args.world_size,
        },
    )
    if args.process_index == 0:
        fold_temperature(trainer.model, temperature)
        temperature.save(Path(args.output_dir) / "temperature.json")
    trainer.save_model()
    if args.process_index == 0:
        write_report(Path(args.output_dir) / "report", result)  # last: a run that has it is finished
    return result


def print_summary(report: Path, results: list[RunResult]) -> None:
    print(f"\n{results_table(results)}\n")
    print("Before → after temperature scaling, on the test set; [95 % bootstrap interval]; bold is best.")
    if results[0].true_calibration_error is not None:
        print("true ECE: against the posterior that the texts were generated from, instead of the sampled labels.")
    print("\nWritten:")
    for path in sorted(report.iterdir()):
        print(f"  {path}")
    print("\nNext:")
    print("  look at the pictures: bars on the diagonal are calibrated, hatched gaps are not")
    print("  load a model, its temperature folded in: import hf_focal.models, then")
    print("    AutoModelForSequenceClassification.from_pretrained(<the run's folder>)")
    print("  your own texts: --train_file train.csv --test_file test.csv --output_dir <another folder>")


def load_data(data: DataArguments, seed: int) -> DatasetDict:
    """The splits, stripped; the generated corpus has the true posterior of its test texts beside them."""
    if data.dataset_name is None and data.train_file is None:
        sizes = {"train": data.num_generated, "validation": data.validation_size, "test": data.num_generated}
        return DatasetDict(
            {name: generate_topics(size, seed=seed + i) for i, (name, size) in enumerate(sizes.items())}
        )
    splits = load_splits(
        data.dataset_name,
        data.dataset_config_name,
        data.train_file,
        data.validation_file,
        data.test_file,
        text_column=data.text_column,
        label_column=data.label_column,
        validation_size=data.validation_size,
        seed=seed,
    )
    if "test" not in splits:
        raise ValueError("test_file must be given: the report is about data that neither training nor T has seen")
    if data.strip == "none":
        return splits
    parts = [part.strip() for part in data.strip.split(",")]
    for part in parts:
        if part not in STRIPPERS:
            raise ValueError(f"strip must name some of {', '.join(STRIPPERS)}, or be 'none', got {part!r}")

    def strip(row):
        for name, stripper in STRIPPERS.items():
            if name in parts:
                row["text"] = stripper(row["text"])
        return row

    return splits.map(strip, desc="stripping")


def load_tokenizer(model: ModelArguments, splits: DatasetDict):
    if model.model_name_or_path == "gp_cnn":
        return train_word_tokenizer(splits["train"]["text"], model.vocab_size, model.max_length)
    return AutoTokenizer.from_pretrained(model.model_name_or_path)


def encode(splits: DatasetDict, tokenizer, max_length: int) -> DatasetDict:
    """Token ids, the lengths that batches are grouped by, and labels."""

    def tokenize(rows):
        tokens = tokenizer(rows["text"], truncation=True, max_length=max_length)
        return {**tokens, "length": [len(ids) for ids in tokens["input_ids"]], "labels": rows["label"]}

    return splits.map(tokenize, batched=True, remove_columns=splits["train"].column_names, desc="tokenising")


def build_model(model: ModelArguments, tokenizer, splits: DatasetDict):
    names = label_names(splits)
    labels = {
        "num_labels": len(names),
        "id2label": dict(enumerate(names)),
        "label2id": {n: i for i, n in enumerate(names)},
    }
    if model.model_name_or_path != "gp_cnn":
        return AutoModelForSequenceClassification.from_pretrained(model.model_name_or_path, **labels)
    config = GPCNNConfig(
        vocab_size=len(tokenizer),
        embedding_size=model.embedding_size,
        num_filters=model.num_filters,
        num_layers=model.num_layers,
        pad_token_id=tokenizer.pad_token_id,
        **labels,
    )
    network = GPCNNForSequenceClassification(config)
    if model.embeddings_file is not None:
        vectors = load_embeddings(model.embeddings_file, tokenizer, model.embedding_size)
        network.get_input_embeddings().weight.data.copy_(vectors)
    return network


def true_errors(logits: torch.Tensor, temperature, test) -> tuple[float, float] | None:
    """The calibration error against the true posterior before and after scaling, where the data has one."""
    if "posterior" not in test.column_names:
        return None
    posteriors = np.asarray(test["posterior"])
    before, after = (
        true_calibration_error(torch.softmax(scores.double(), dim=-1).numpy(), posteriors)
        for scores in (logits, temperature.apply(logits))
    )
    return before, after


if __name__ == "__main__":
    main()
