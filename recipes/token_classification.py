"""Train, measure and correct a tagger, which classifies each word of a sentence.

One loss:

    python recipes/token_classification.py --config recipes/configs/conll2003/encoder.yaml \
        --train_file train.parquet --test_file test.parquet --loss focal:gamma=2 --output_dir out/focal

Several, side by side in one table and one figure:

    python recipes/token_classification.py --config recipes/configs/tags_demo.yaml \
        --compare cross_entropy,focal:gamma=2 --output_dir out/tags

Several GPUs: `accelerate launch --num_processes 4 recipes/token_classification.py ...`. The same command again resumes
what was interrupted and reuses what was finished.
"""

import logging
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from datasets import Dataset, DatasetDict
from transformers import (
    AutoModelForTokenClassification,
    AutoTokenizer,
    BertConfig,
    DataCollatorForTokenClassification,
    PreTrainedTokenizerBase,
    set_seed,
)

from hf_focal import FocalTrainer, FocalTrainingArguments
from hf_focal.data.pretrained_models import input_length, label_options
from hf_focal.data.word_tag_data import encode_tags, load_tag_splits, tag_names
from hf_focal.experiments.data.generated_tags import generate_tags
from hf_focal.experiments.data.tokenizer_training import train_tag_tokenizer
from hf_focal.experiments.reports.class_tables import class_table, per_class_table
from hf_focal.experiments.reports.experiment_report import write_experiment_report
from hf_focal.experiments.runs.classifier_results import measure_dense, show_classes, watch_classes
from hf_focal.experiments.runs.loss_comparison import claim_folders, runs_of, train_classifiers
from hf_focal.experiments.runs.output_folders import contents, files_of, last_complete_checkpoint, run_settings
from hf_focal.experiments.runs.recipe_arguments import ClassifierArguments, DatasetArguments
from hf_focal.experiments.runs.recipe_checks import (
    check_at_least,
    check_calibration_size,
    check_class_weights,
    check_fraction,
    check_model_name,
    check_test_file,
)
from hf_focal.experiments.runs.recipe_command import print_written, run_recipe
from hf_focal.experiments.runs.run_publishing import datasets_of, publish_runs
from hf_focal.experiments.runs.yaml_arguments import parse_arguments
from hf_focal.reports import RunResult, results_table


@dataclass
class DataArguments(DatasetArguments):
    """The data. Without `dataset_name` and files: generated sentences, in which some tags are rare."""

    train_file: str | None = field(default=None, metadata={"help": "json, jsonl or parquet."})
    token_column: str = field(default="tokens", metadata={"help": "The column of lists of words."})
    tag_column: str = field(default="tags", metadata={"help": "The column of lists of tags, one a word."})
    num_generated: int = field(default=3000, metadata={"help": "Training sentences that are generated."})

    def __post_init__(self):
        super().__post_init__()
        check_at_least(1, self, "num_generated")


@dataclass
class ModelArguments:
    """The model: a small encoder trained from scratch on whole words, or any encoder to fine-tune."""

    model_name_or_path: str = field(
        default="encoder",
        metadata={"help": "'encoder', or a model for token classification (Hub id or folder)."},
    )
    max_length: int | None = field(
        default=None,
        metadata={"help": "Tokens after which a sentence is cut; if absent 128 for encoder, else what a model takes."},
    )
    vocab_size: int = field(default=20_000, metadata={"help": "encoder: words of the vocabulary."})
    hidden_size: int = field(default=64, metadata={"help": "encoder: width, a multiple of 16."})
    num_layers: int = field(default=2, metadata={"help": "encoder: layers."})
    dropout: float = field(default=0.1, metadata={"help": "encoder: dropout."})

    def __post_init__(self):
        check_model_name(self.model_name_or_path, ["encoder"])
        check_at_least(1, self, "max_length", "vocab_size", "hidden_size", "num_layers")
        if self.hidden_size % 16:
            raise ValueError(f"hidden_size must be a multiple of 16, got {self.hidden_size}")
        check_fraction(self, "dropout")


@dataclass
class Experiment:
    """What `prepare` found in order: the arguments, those of each run, and what the runs share."""

    data: DataArguments
    model: ModelArguments
    recipe: ClassifierArguments
    args: FocalTrainingArguments
    runs: list[FocalTrainingArguments]
    tags: list[str]
    encoded: DatasetDict
    tokenizer: PreTrainedTokenizerBase


def main(argv: list[str]) -> list[RunResult]:
    return train(prepare(argv))


def prepare(argv: list[str]) -> Experiment:
    """Everything that can be wrong with the command line or the data, before anything is trained."""
    data, model, recipe, args = parse(argv)
    logging.basicConfig(level=logging.INFO if args.should_log else logging.WARNING, format="%(message)s")
    runs = runs_of(recipe, args, parse, argv)
    with args.main_process_first(desc="loading the data"):
        splits = load_data(data, args.seed)
        check_class_weights(runs, len(tag_names(splits)))
        tokenizer, max_length = load_tokenizer(model, splits)
        encoded = DatasetDict({name: encode_tags(split, tokenizer, max_length) for name, split in splits.items()})
        for run_args in runs:
            check_calibration_size(run_args, len(labels_of(encoded["validation"])), "words")
        claim_folders(args, runs, lambda run_args: result_settings(data, model, run_args))
    return Experiment(data, model, recipe, args, runs, tag_names(splits), encoded, tokenizer)


def parse(argv: list[str]) -> tuple[DataArguments, ModelArguments, ClassifierArguments, FocalTrainingArguments]:
    return parse_arguments(
        (DataArguments, ModelArguments, ClassifierArguments, FocalTrainingArguments),
        argv,
        description="Train, measure and correct a tagger.",
    )


def result_settings(data: DataArguments, model: ModelArguments, args: FocalTrainingArguments) -> dict:
    """What determines a run's result, up to the temperature: that is fitted again where its objective is another."""
    return run_settings(args, asdict(data), contents(files_of(data)), asdict(model))


def load_data(data: DataArguments, seed: int) -> DatasetDict:
    if not data.given():
        held_out = data.validation_size or max(1, data.num_generated // 10)
        sizes = {"train": data.num_generated, "validation": held_out, "test": data.num_generated}
        return DatasetDict({name: generate_tags(n, seed=seed + i) for i, (name, n) in enumerate(sizes.items())})
    check_test_file(data)
    return load_tag_splits(
        data.dataset_name,
        data.dataset_config_name,
        **files_of(data),
        token_column=data.token_column,
        tag_column=data.tag_column,
        validation_size=data.validation_size,
        seed=seed,
    )


def load_tokenizer(model: ModelArguments, splits: DatasetDict) -> tuple[PreTrainedTokenizerBase, int]:
    """The tokenizer, and after how many tokens a sentence is cut."""
    name = model.model_name_or_path
    if name == "encoder":
        max_length = model.max_length or 128
        return train_tag_tokenizer(splits["train"]["tokens"], model.vocab_size, max_length), max_length
    tokenizer = AutoTokenizer.from_pretrained(name)
    if getattr(tokenizer, "add_prefix_space", True) is False:  # GPT-2's and RoBERTa's refuse words without it
        tokenizer = AutoTokenizer.from_pretrained(name, add_prefix_space=True)
    if not tokenizer.is_fast:
        raise ValueError(f"model_name_or_path must have a fast tokenizer, which knows words, got {name!r}")
    return tokenizer, input_length(name, tokenizer, model.max_length)


def labels_of(encoded: Dataset) -> list[int]:
    """Those of all words of a split."""
    return [label for labels in encoded["labels"] for label in labels if label != -100]


def build_model(experiment: Experiment):
    model, names = experiment.model, experiment.tags
    labels = label_options(names)
    if model.model_name_or_path != "encoder":
        network = AutoModelForTokenClassification.from_pretrained(
            model.model_name_or_path, ignore_mismatched_sizes=True, **labels
        )
        return network
    config = BertConfig(
        vocab_size=len(experiment.tokenizer),
        hidden_size=model.hidden_size,
        num_hidden_layers=model.num_layers,
        num_attention_heads=model.hidden_size // 16,
        intermediate_size=2 * model.hidden_size,
        max_position_embeddings=model.max_length or 128,
        hidden_dropout_prob=model.dropout,
        attention_probs_dropout_prob=model.dropout,
        pad_token_id=experiment.tokenizer.pad_token_id,
        **labels,
    )
    return AutoModelForTokenClassification.from_config(config)


def train(experiment: Experiment) -> list[RunResult]:
    """Train what is not finished yet, and report all of it."""
    results, reports = train_classifiers(experiment, run)
    if experiment.args.process_index == 0:
        show_classes(reports, results)
        print_summary(reports, results)
    publish_runs(experiment.runs)
    return results


def run(args: FocalTrainingArguments, experiment: Experiment) -> RunResult:
    """Train one loss (or go on where it was interrupted), fit the temperature on validation, measure on test."""
    set_seed(args.seed)
    encoded, tokenizer = experiment.encoded, experiment.tokenizer
    trainer = FocalTrainer(
        model=build_model(experiment),
        args=args,
        train_dataset=encoded["train"],
        eval_dataset=encoded["validation"],
        calibration_dataset=encoded["validation"],
        processing_class=tokenizer,
        data_collator=DataCollatorForTokenClassification(tokenizer),
    )
    watch_classes(trainer, experiment.recipe)
    trained = trainer.train(resume_from_checkpoint=last_complete_checkpoint(args.output_dir))
    trainer.save_state()
    temperature = trainer.fit_temperature(objective=experiment.recipe.temperature_objective)
    counts = torch.bincount(torch.tensor(labels_of(encoded["train"])), minlength=len(experiment.tags))
    result = measure_dense(trainer, trained, temperature, encoded["test"], experiment.tags, counts)
    trainer.save_calibrated()
    trainer.create_model_card(result=result, **datasets_of(experiment.data, default="generated sentences"))
    if args.process_index == 0:
        write_experiment_report(Path(args.output_dir) / "report", result)  # last: a run that has it is finished
    return result


def print_summary(reports: list[Path], results: list[RunResult]) -> None:
    print(f"\n{results_table(results)}\n")
    print("Before → after temperature scaling, of each word of the test set; bold is best.")
    print(f"\n{class_table(results)}\nAccuracy of each tag (recall), %:\n\n{per_class_table(results)}")
    print_written(reports)
    print("\nNext:")
    print("  load a model, its temperature folded in:")
    print("    AutoModelForTokenClassification.from_pretrained(<the run's folder>)")
    print("  your own sentences: --train_file train.jsonl --test_file test.jsonl (columns tokens and tags)")


if __name__ == "__main__":
    run_recipe(prepare, train)
