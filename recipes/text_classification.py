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
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from datasets import DatasetDict
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    PreTrainedTokenizerBase,
    Trainer,
    set_seed,
)

from hf_focal import FocalTrainer, FocalTrainingArguments
from hf_focal.cli.demo_corpus import generate_topics, true_errors
from hf_focal.cli.model_input_length import input_length
from hf_focal.experiments.data.dataset_splits import label_names
from hf_focal.experiments.data.long_tails import check_imbalance, long_tailed
from hf_focal.experiments.data.newsgroups import strip_footers, strip_headers, strip_quotes
from hf_focal.experiments.data.pretrained_models import check_head, label_options
from hf_focal.experiments.data.sentiment_trees import (
    TreeCollator,
    encode_trees,
    load_trees_or_table,
    parse_tree,
    train_leaf_tokenizer,
)
from hf_focal.experiments.data.text_splits import load_splits
from hf_focal.experiments.data.tokenizer_training import train_word_tokenizer
from hf_focal.experiments.models import (
    GPCNNConfig,
    GPCNNForSequenceClassification,
    TreeLSTMConfig,
    TreeLSTMForSequenceClassification,
    load_embeddings,
)
from hf_focal.experiments.reports.experiment_report import write_experiment_report
from hf_focal.experiments.runs.classifier_results import measure_classifier, watch_samples
from hf_focal.experiments.runs.loss_comparison import claim_folders, runs_of, train_classifiers
from hf_focal.experiments.runs.output_folders import contents, files_of, last_complete_checkpoint, run_settings
from hf_focal.experiments.runs.recipe_arguments import DatasetArguments, SampleClassifierArguments
from hf_focal.experiments.runs.recipe_checks import (
    check_at_least,
    check_calibration_size,
    check_class_weights,
    check_fine_tuning,
    check_fraction,
    check_model_name,
    check_test_file,
)
from hf_focal.experiments.runs.recipe_command import print_written, run_recipe
from hf_focal.experiments.runs.run_publishing import datasets_of, publish_runs
from hf_focal.experiments.runs.yaml_arguments import parse_arguments
from hf_focal.reports import RunResult, results_table

FROM_SCRATCH = ("gp_cnn", "tree_lstm")
STRIPPERS = {"headers": strip_headers, "footers": strip_footers, "quotes": strip_quotes}


@dataclass
class DataArguments(DatasetArguments):
    """The data. Without `dataset_name` and files: a generated corpus whose true posterior is known."""

    text_column: str = field(default="text", metadata={"help": "The column of texts."})
    label_column: str = field(default="label", metadata={"help": "The column of labels."})
    imbalance: float | None = field(
        default=None,
        metadata={
            "help": "Make the training data long-tailed: class sizes fall exponentially to this share (0.01) of the "
            "largest, in the order of the labels. Validation, cut off before, and test stay as they are."
        },
    )
    strip: str = field(
        default="none",
        metadata={"help": "Parts of newsgroup posts to drop: 'headers,footers,quotes', some of them, or 'none'."},
    )
    num_generated: int = field(default=4000, metadata={"help": "Training texts of the generated corpus."})

    def __post_init__(self):
        super().__post_init__()
        check_at_least(1, self, "num_generated")
        if self.imbalance is not None:
            check_imbalance(self.imbalance)
        for part in self.strip_parts():
            if part not in STRIPPERS:
                raise ValueError(f"strip must name some of {', '.join(STRIPPERS)}, or be 'none', got {part!r}")

    def strip_parts(self) -> list[str]:
        return [] if self.strip == "none" else [part.strip() for part in self.strip.split(",")]


@dataclass
class ModelArguments:
    """The model: the papers' CNN or Tree-LSTM trained from scratch, or any encoder to fine-tune."""

    model_name_or_path: str = field(
        default="gp_cnn",
        metadata={
            "help": "'gp_cnn', 'tree_lstm' (of sentiment trees: --text_column tree), or a model for sequence "
            "classification (Hub id or folder)."
        },
    )
    max_length: int | None = field(
        default=None,
        metadata={"help": "Tokens after which a text is cut; if absent 1000 for gp_cnn, else what the model takes."},
    )
    vocab_size: int = field(default=20_000, metadata={"help": "gp_cnn, tree_lstm: words of the vocabulary."})
    embedding_size: int = field(default=100, metadata={"help": "gp_cnn, tree_lstm: width of the word vectors."})
    embeddings_file: str | None = field(
        default=None, metadata={"help": "gp_cnn, tree_lstm: word vectors in GloVe's format."}
    )
    embedding_learning_rate: float | None = field(
        default=None, metadata={"help": "Learning rate of the word vectors, without weight decay, if it is another."}
    )
    num_filters: int = field(default=128, metadata={"help": "gp_cnn: channels of each convolution."})
    num_layers: int = field(default=3, metadata={"help": "gp_cnn: convolutions."})
    memory_size: int = field(default=150, metadata={"help": "tree_lstm: width of a node's memory."})
    dropout: float = field(default=0.5, metadata={"help": "tree_lstm: dropout before the head."})
    lowercase: bool = field(default=False, metadata={"help": "tree_lstm: whether words lose their capitals."})

    def __post_init__(self):
        check_model_name(self.model_name_or_path, FROM_SCRATCH)
        check_fraction(self, "dropout")
        check_at_least(0, self, "embedding_learning_rate")
        check_at_least(1, self, "max_length", "embedding_size", "num_filters", "num_layers", "memory_size")
        if self.embeddings_file is not None and not Path(self.embeddings_file).is_file():
            raise FileNotFoundError(f"embeddings_file must be an existing file, got {self.embeddings_file!r}")


@dataclass
class Experiment:
    """What `prepare` found in order: the arguments, those of each run, and what the runs share."""

    data: DataArguments
    model: ModelArguments
    recipe: SampleClassifierArguments
    args: FocalTrainingArguments
    runs: list[FocalTrainingArguments]
    splits: DatasetDict
    encoded: DatasetDict
    tokenizer: PreTrainedTokenizerBase
    embeddings: torch.Tensor | None


def main(argv: list[str]) -> list[RunResult]:
    return train(prepare(argv))


def prepare(argv: list[str]) -> Experiment:
    """Everything that can be wrong with the command line or the data, before anything is trained."""
    data, model, recipe, args = parse(argv)
    check_fine_tuning(argv, model.model_name_or_path, FROM_SCRATCH)
    logging.basicConfig(level=logging.INFO if args.should_log else logging.WARNING, format="%(message)s")
    runs = runs_of(recipe, args, parse, argv)
    with args.main_process_first(desc="loading the data"):
        splits = load_data(data, args.seed)
        check_class_weights(runs, len(label_names(splits)))
        if model.model_name_or_path not in FROM_SCRATCH:
            check_head(model.model_name_or_path, len(label_names(splits)))
        tokenizer = load_tokenizer(model, splits)
        encoded = encode(model, splits, tokenizer)
        for run_args in runs:
            check_calibration_size(run_args, len(encoded["validation"]))
        embeddings = None
        if model.embeddings_file is not None and model.model_name_or_path in FROM_SCRATCH:
            set_seed(args.seed)
            embeddings = load_embeddings(model.embeddings_file, tokenizer, model.embedding_size)
        claim_folders(args, runs, lambda run_args: result_settings(data, model, run_args))
    return Experiment(data, model, recipe, args, runs, splits, encoded, tokenizer, embeddings)


def parse(argv: list[str]) -> tuple[DataArguments, ModelArguments, SampleClassifierArguments, FocalTrainingArguments]:
    return parse_arguments(
        (DataArguments, ModelArguments, SampleClassifierArguments, FocalTrainingArguments),
        argv,
        description="Train, measure and correct a text classifier.",
    )


def result_settings(data: DataArguments, model: ModelArguments, args: FocalTrainingArguments) -> dict:
    """What determines a run's result, up to the temperature: that is fitted again where its objective is another."""
    digests = contents(files_of(data) | files_of(model))
    return run_settings(args, asdict(data), digests, asdict(model))


def load_data(data: DataArguments, seed: int) -> DatasetDict:
    """The splits, stripped and with the tail that is asked for."""
    splits = load_texts(data, seed)
    if data.imbalance is not None:
        splits["train"] = long_tailed(splits["train"], data.imbalance, seed)
    return splits


def load_texts(data: DataArguments, seed: int) -> DatasetDict:
    """The splits, stripped; the generated corpus has the true posterior of its test texts beside them."""
    if not data.given():
        validation_size = data.validation_size or max(1, data.num_generated // 10)
        sizes = {"train": data.num_generated, "validation": validation_size, "test": data.num_generated}
        return DatasetDict(
            {name: generate_topics(size, seed=seed + i) for i, (name, size) in enumerate(sizes.items())}
        )
    check_test_file(data)
    splits = load_splits(
        data.dataset_name,
        data.dataset_config_name,
        **files_of(data),
        text_column=data.text_column,
        label_column=data.label_column,
        validation_size=data.validation_size,
        seed=seed,
        read_file=load_trees_or_table,
    )
    parts = data.strip_parts()
    if not parts:
        return splits

    def strip(row):
        for name, stripper in STRIPPERS.items():
            if name in parts:
                row["text"] = stripper(row["text"])
        return row

    stripped = splits.map(strip, desc="stripping")
    for name, split in stripped.items():
        empty = sum(not text.strip() for text in split["text"])
        if 2 * empty > len(split):  # of newsgroup posts some are
            raise ValueError(
                f"strip must be 'none' for texts that are no newsgroup posts, got {data.strip!r}, which leaves "
                f"nothing of {empty} of the {len(split)} texts of {name}"
            )
    return stripped


def load_tokenizer(model: ModelArguments, splits: DatasetDict) -> PreTrainedTokenizerBase:
    if model.model_name_or_path == "tree_lstm":
        return train_leaf_tokenizer(splits["train"]["text"], model.vocab_size, model.lowercase)
    if model.model_name_or_path == "gp_cnn":
        return train_word_tokenizer(splits["train"]["text"], model.vocab_size, model.max_length or 1000)
    return AutoTokenizer.from_pretrained(model.model_name_or_path)


def text_length(model: ModelArguments, tokenizer: PreTrainedTokenizerBase) -> int:
    """Tokens after which a text is cut: `max_length`, or what tokenizer and model take."""
    if model.model_name_or_path == "gp_cnn":
        return model.max_length or 1000
    return input_length(model.model_name_or_path, tokenizer, model.max_length)


def encode(model: ModelArguments, splits: DatasetDict, tokenizer) -> DatasetDict:
    """Token ids, the lengths that batches are grouped by, and labels. Of trees all nodes train, roots are measured."""
    if model.model_name_or_path == "tree_lstm":
        check_root_labels(splits)
        trees = {
            name: encode_trees(split["text"], tokenizer, roots_only=name != "train") for name, split in splits.items()
        }
        return DatasetDict(trees)
    max_length = text_length(model, tokenizer)

    def tokenize(rows):
        tokens = tokenizer(rows["text"], truncation=True, max_length=max_length)
        return {**tokens, "length": [len(ids) for ids in tokens["input_ids"]], "labels": rows["label"]}

    return splits.map(tokenize, batched=True, remove_columns=splits["train"].column_names, desc="tokenising")


def check_root_labels(splits: DatasetDict) -> None:
    """Raise unless the label of each tree is that of its root: 0 where it is negative, 1 where it is positive."""
    for name, split in splits.items():
        for tree, label in zip(split["text"], split["label"], strict=True):
            if (0, 0, None, 1, 1)[parse_tree(tree).labels[-1]] != label:
                raise ValueError(
                    "label_column must hold 0 for trees with a negative root and 1 for a positive one, got "
                    f"{label} in {name} for {tree!r}"
                )


def build_model(experiment: Experiment):
    model, tokenizer, names = experiment.model, experiment.tokenizer, label_names(experiment.splits)
    labels = label_options(names)
    if model.model_name_or_path not in FROM_SCRATCH:
        return AutoModelForSequenceClassification.from_pretrained(model.model_name_or_path, **labels)
    words = {
        "vocab_size": len(tokenizer),
        "embedding_size": model.embedding_size,
        "pad_token_id": tokenizer.pad_token_id,
    }
    if model.model_name_or_path == "tree_lstm":
        config = TreeLSTMConfig(**words, memory_size=model.memory_size, dropout=model.dropout, **labels)
        network = TreeLSTMForSequenceClassification(config)
    else:
        config = GPCNNConfig(**words, num_filters=model.num_filters, num_layers=model.num_layers, **labels)
        network = GPCNNForSequenceClassification(config)
    if experiment.embeddings is not None:
        network.get_input_embeddings().weight.data.copy_(experiment.embeddings)
    return network


def build_optimizer(model, args: FocalTrainingArguments, embedding_learning_rate: float | None):
    """Trainer's optimiser with another learning rate for the word vectors; None where they have none of their own."""
    if embedding_learning_rate is None:
        return None
    kind, options = Trainer.get_optimizer_cls_and_kwargs(args, model)
    model.to(args.device)  # Adagrad makes its state at once, where the weights are
    vectors = model.get_input_embeddings().weight
    others = [parameter for parameter in model.parameters() if parameter is not vectors]
    groups = [
        {"params": others, "weight_decay": args.weight_decay},
        {"params": [vectors], "lr": embedding_learning_rate, "weight_decay": 0.0},
    ]
    if kind is torch.optim.Adagrad:  # fused: half the time of a Tree-LSTM's step, which Trainer does not ask for
        options["fused"] = args.device.type == "cpu"
    return kind(groups, **options)


def train(experiment: Experiment) -> list[RunResult]:
    """Train what is not finished yet, and report all of it."""
    results, reports = train_classifiers(experiment, run)
    if experiment.args.process_index == 0:
        print_summary(reports, results)
    publish_runs(experiment.runs)
    return results


def run(args: FocalTrainingArguments, experiment: Experiment) -> RunResult:
    """Train one loss (or go on where it was interrupted), fit the temperature on validation, measure on test."""
    set_seed(args.seed)
    encoded, tokenizer = experiment.encoded, experiment.tokenizer
    model = build_model(experiment)
    trees = experiment.model.model_name_or_path == "tree_lstm"
    trainer = FocalTrainer(
        model=model,
        args=args,
        train_dataset=encoded["train"],
        eval_dataset=encoded["validation"],
        calibration_dataset=encoded["validation"],
        processing_class=tokenizer,
        data_collator=TreeCollator(tokenizer.pad_token_id) if trees else DataCollatorWithPadding(tokenizer),
        optimizers=(build_optimizer(model, args, experiment.model.embedding_learning_rate), None),
    )
    watch_samples(trainer, experiment.recipe, encoded["test"])
    trained = trainer.train(resume_from_checkpoint=last_complete_checkpoint(args.output_dir))
    trainer.save_state()
    temperature = trainer.fit_temperature(objective=experiment.recipe.temperature_objective)

    test = trainer.predict(encoded["test"])
    logits, labels = torch.from_numpy(test.predictions), torch.from_numpy(test.label_ids)
    true_error = true_errors(logits, temperature, experiment.splits["test"])
    train_labels = torch.tensor(experiment.splits["train"]["label"][:])
    result = measure_classifier(trainer, trained, temperature, logits, labels, true_error, train_labels)
    trainer.save_calibrated()
    trainer.create_model_card(result=result, **datasets_of(experiment.data, default="a generated corpus"))
    if args.process_index == 0:
        write_experiment_report(Path(args.output_dir) / "report", result)  # last: a run that has it is finished
    return result


def print_summary(reports: list[Path], results: list[RunResult]) -> None:
    print(f"\n{results_table(results)}\n")
    print("Before → after temperature scaling, on the test set; [95 % bootstrap interval]; bold is best.")
    if results[0].true_calibration_error is not None:
        print("true ECE: against the posterior that the texts were generated from, instead of the sampled labels.")
    print_written(reports)
    print("\nNext:")
    print("  look at the pictures: bars on the diagonal are calibrated, hatched gaps are not")
    print("  load a model, its temperature folded in: import hf_focal.models, then")
    print("    AutoModelForSequenceClassification.from_pretrained(<the run's folder>)")
    print("  your own texts: --config recipes/configs/own_texts.yaml --train_file train.csv --test_file test.csv")


if __name__ == "__main__":
    run_recipe(prepare, train)
