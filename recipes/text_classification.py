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
import sys
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from pathlib import Path

import numpy as np
import torch
from datasets import DatasetDict
from torch import nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    PreTrainedTokenizerBase,
    set_seed,
)
from transformers.integrations.deepspeed import unset_hf_deepspeed_config

from hf_focal import FocalTrainer, FocalTrainingArguments, LossConfig, Temperature, fold_temperature
from hf_focal.config_file import parse_arguments
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
from hf_focal.runs import claim_output_dir, file_digest, folder_of, last_complete_checkpoint, training_settings
from hf_focal.temperature import OBJECTIVES
from hf_focal.trainer import gamma_history

STRIPPERS = {"headers": strip_headers, "footers": strip_footers, "quotes": strip_quotes}


@dataclass
class DataArguments:
    """The data. Without `dataset_name` and files: a generated corpus whose true posterior is known."""

    dataset_name: str | None = field(default=None, metadata={"help": "A dataset on the Hub, with train and test."})
    dataset_config_name: str | None = field(default=None, metadata={"help": "The configuration of that dataset."})
    train_file: str | None = field(default=None, metadata={"help": "csv, json, jsonl or parquet."})
    validation_file: str | None = field(default=None, metadata={"help": "If absent, cut from the training data."})
    test_file: str | None = field(default=None, metadata={"help": "What the report is about."})
    text_column: str = field(default="text", metadata={"help": "The column of texts."})
    label_column: str = field(default="label", metadata={"help": "The column of labels."})
    validation_size: int | None = field(
        default=None, metadata={"help": "Rows cut from the training data for validation; a tenth of them if absent."}
    )
    strip: str = field(
        default="none",
        metadata={"help": "Parts of newsgroup posts to drop: 'headers,footers,quotes', some of them, or 'none'."},
    )
    num_generated: int = field(default=4000, metadata={"help": "Training texts of the generated corpus."})

    def __post_init__(self):
        for name in ("validation_size", "num_generated"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        for part in self.strip_parts():
            if part not in STRIPPERS:
                raise ValueError(f"strip must name some of {', '.join(STRIPPERS)}, or be 'none', got {part!r}")

    def strip_parts(self) -> list[str]:
        return [] if self.strip == "none" else [part.strip() for part in self.strip.split(",")]

    def files(self) -> dict[str, str]:
        """The files that are given, by their arguments."""
        names = ("train_file", "validation_file", "test_file")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}


@dataclass
class ModelArguments:
    """The model: the papers' CNN trained from scratch, or any encoder to fine-tune."""

    model_name_or_path: str = field(
        default="gp_cnn", metadata={"help": "'gp_cnn', or a model for sequence classification (Hub id or folder)."}
    )
    max_length: int | None = field(
        default=None,
        metadata={"help": "Tokens after which a text is cut; if absent 1000 for gp_cnn, else what the model takes."},
    )
    vocab_size: int = field(default=20_000, metadata={"help": "gp_cnn: words of its vocabulary."})
    embedding_size: int = field(default=100, metadata={"help": "gp_cnn: width of its word vectors."})
    embeddings_file: str | None = field(default=None, metadata={"help": "gp_cnn: word vectors in GloVe's format."})
    num_filters: int = field(default=128, metadata={"help": "gp_cnn: channels of each convolution."})
    num_layers: int = field(default=3, metadata={"help": "gp_cnn: convolutions."})

    def __post_init__(self):
        name = self.model_name_or_path
        if name != "gp_cnn" and get_close_matches(name.lower(), ["gp_cnn"], cutoff=0.75) and not Path(name).exists():
            raise ValueError(
                f"model_name_or_path must be 'gp_cnn' or a Hub id or folder, got {name!r}; did you mean 'gp_cnn'?"
            )
        if self.max_length is not None and self.max_length < 1:
            raise ValueError(f"max_length must be at least 1, got {self.max_length}")
        if self.embeddings_file is not None and not Path(self.embeddings_file).is_file():
            raise FileNotFoundError(f"embeddings_file must be an existing file, got {self.embeddings_file!r}")


@dataclass
class RecipeArguments:
    """What is run and how it is corrected."""

    # A list in a config file.
    compare: list[str] | str | None = field(
        default=None, metadata={"help": "Train each of these losses: 'brier,focal:gamma=3'."}
    )
    temperature_objective: str = field(default="ece", metadata={"help": "'ece' (the papers' grid) or 'nll'."})

    def __post_init__(self):
        if isinstance(self.compare, list):
            self.compare = ",".join(self.compare)
        if self.temperature_objective not in OBJECTIVES:
            raise ValueError(
                f"temperature_objective must be {' or '.join(map(repr, OBJECTIVES))}, "
                f"got {self.temperature_objective!r}"
            )


@dataclass
class Experiment:
    """What `prepare` found in order: the arguments, those of each run, and what the runs share."""

    model: ModelArguments
    recipe: RecipeArguments
    args: FocalTrainingArguments
    runs: list[FocalTrainingArguments]
    splits: DatasetDict
    encoded: DatasetDict
    tokenizer: PreTrainedTokenizerBase
    embeddings: torch.Tensor | None


def main(argv: list[str] | None = None) -> list[RunResult]:
    return train(prepare(sys.argv[1:] if argv is None else argv))


def prepare(argv: list[str]) -> Experiment:
    """Everything that can be wrong with the command line or the data, before anything is trained."""
    data, model, recipe, args = parse(argv)
    logging.basicConfig(level=logging.INFO if args.should_log else logging.WARNING, format="%(message)s")
    if not args.output_dir:
        raise ValueError(f"output_dir must be a folder, got {args.output_dir!r}")
    runs = [args]
    if recipe.compare is not None:
        if args.loss != FocalTrainingArguments.loss:
            raise ValueError(f"loss and compare must not be given together, got {args.loss!r} and {recipe.compare!r}")
        if args.deepspeed_plugin is not None:
            raise ValueError(
                f"compare must not be given under DeepSpeed, which allows a process one training, got "
                f"{recipe.compare!r}: start a run with --loss for each"
            )
        # Parsed again for each loss: some defaults depend on it.
        runs = [
            parse([*argv, "--loss", str(loss), "--output_dir", str(folder_of(loss, args.output_dir))])[-1]
            for loss in LossConfig.parse_list(recipe.compare)
        ]
    with args.main_process_first(desc="loading the data"):
        splits = load_data(data, args.seed)
        tokenizer = load_tokenizer(model, splits)
        encoded = encode(splits, tokenizer, text_length(model, tokenizer))
        for run_args in runs:
            check_calibration_size(LossConfig.parse(run_args.loss), len(encoded["validation"]))
        embeddings = None
        if model.embeddings_file is not None and model.model_name_or_path == "gp_cnn":
            set_seed(args.seed)
            embeddings = load_embeddings(model.embeddings_file, tokenizer, model.embedding_size)

        write = args.process_index == 0
        if recipe.compare is not None:
            claim_output_dir(args.output_dir, {"kind": "comparison"}, write)
        for run_args in runs:
            claim_output_dir(run_args.output_dir, result_settings(data, model, run_args), write)
    return Experiment(model, recipe, args, runs, splits, encoded, tokenizer, embeddings)


def check_calibration_size(loss: LossConfig, num_rows: int) -> None:
    """AdaFocal measures the validation set, and wants a row in each bin."""
    bins = loss.options.get("bins", 0)
    if num_rows < bins:
        raise ValueError(
            f"the validation set must hold at least {bins} rows for {loss}, got {num_rows}: set validation_size or "
            "another validation_file"
        )


def parse(argv: list[str]) -> tuple[DataArguments, ModelArguments, RecipeArguments, FocalTrainingArguments]:
    return parse_arguments(
        (DataArguments, ModelArguments, RecipeArguments, FocalTrainingArguments),
        argv,
        description="Train, measure and correct a text classifier.",
    )


def result_settings(data: DataArguments, model: ModelArguments, args: FocalTrainingArguments) -> dict:
    """What determines a run's result, up to the temperature: that is fitted again where its objective is another."""
    files = data.files() | ({} if model.embeddings_file is None else {"embeddings_file": model.embeddings_file})
    contents = {f"content of {name}": file_digest(path) for name, path in files.items()}
    loss = str(LossConfig.parse(args.loss))
    settings = {**asdict(data), **contents, **asdict(model), **training_settings(args), "loss": loss}
    return {"kind": "run", **settings, "num_processes": args.world_size}


def train(experiment: Experiment) -> list[RunResult]:
    """Train what is not finished yet, and report all of it."""
    args, recipe, results = experiment.args, experiment.recipe, []
    for number, run_args in enumerate(experiment.runs, start=1):
        logging.info("%s (%d of %d)", LossConfig.parse(run_args.loss), number, len(experiment.runs))
        finished = Path(run_args.output_dir) / "report" / "metrics.json"
        result = RunResult.load(finished) if finished.exists() else None
        if result is not None and result.temperature.objective == recipe.temperature_objective:
            logging.info("finished already, see %s", finished.parent)
        else:
            result = run(run_args, experiment)
        results.append(result)

    if args.process_index == 0:
        reports = [Path(run_args.output_dir) / "report" for run_args in experiment.runs]
        if recipe.compare is not None:
            reports.append(Path(args.output_dir) / "report")
            write_comparison(reports[-1], results)
        print_summary(reports, results)
    return results


def run(args: FocalTrainingArguments, experiment: Experiment) -> RunResult:
    """Train one loss (or go on where it was interrupted), fit the temperature on validation, measure on test."""
    set_seed(args.seed)
    encoded = experiment.encoded
    trainer = FocalTrainer(
        model=build_model(experiment),
        args=args,
        train_dataset=encoded["train"],
        eval_dataset=encoded["validation"],
        calibration_dataset=encoded["validation"],
        processing_class=experiment.tokenizer,
        data_collator=DataCollatorWithPadding(experiment.tokenizer),
    )
    trained = trainer.train(resume_from_checkpoint=last_complete_checkpoint(args.output_dir))
    trainer.save_state()
    temperature = trainer.fit_temperature(objective=experiment.recipe.temperature_objective)

    test = trainer.predict(encoded["test"])
    logits, labels = torch.from_numpy(test.predictions), torch.from_numpy(test.label_ids)
    result = RunResult.measure(
        LossConfig.parse(args.loss),
        temperature,
        logits,
        labels,
        num_bins=args.calibration_bins,
        true_calibration_error=true_errors(logits, temperature, experiment.splits["test"]),
        details={
            "train_metrics": trained.metrics,
            "best_validation_metric": trainer.state.best_metric,
            "best_checkpoint": Path(trainer.state.best_model_checkpoint or "").name,
            "num_parameters": trainer.model.num_parameters(),
            "num_processes": args.world_size,
            "gamma_history": gamma_history(trainer.state.log_history),
        },
    )
    save_folded(trainer, temperature)
    if args.process_index == 0:
        write_report(Path(args.output_dir) / "report", result)  # last: a run that has it is finished
    return result


def save_folded(trainer: FocalTrainer, temperature: Temperature) -> None:
    """Save the model with its temperature folded in. Only what is saved is whole under FSDP2 and ZeRO-3."""
    trainer.save_model()
    if trainer.args.process_index != 0:
        return
    folder = Path(trainer.args.output_dir)
    temperature.save(folder / "temperature.json")
    unset_hf_deepspeed_config()  # with it from_pretrained would cut the model up again
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    fold_temperature(model, temperature).save_pretrained(folder)


def print_summary(reports: list[Path], results: list[RunResult]) -> None:
    print(f"\n{results_table(results)}\n")
    print("Before → after temperature scaling, on the test set; [95 % bootstrap interval]; bold is best.")
    if results[0].true_calibration_error is not None:
        print("true ECE: against the posterior that the texts were generated from, instead of the sampled labels.")
    print("\nWritten:")
    for report in reports:
        print(f"  {report}: {', '.join(sorted(path.name for path in report.iterdir()))}")
    print("\nNext:")
    print("  look at the pictures: bars on the diagonal are calibrated, hatched gaps are not")
    print("  load a model, its temperature folded in: import hf_focal.models, then")
    print("    AutoModelForSequenceClassification.from_pretrained(<the run's folder>)")
    print("  your own texts: --train_file train.csv --test_file test.csv --output_dir <another folder>")


def load_data(data: DataArguments, seed: int) -> DatasetDict:
    """The splits, stripped; the generated corpus has the true posterior of its test texts beside them."""
    if data.dataset_name is None and not data.files():
        validation_size = data.validation_size or max(1, data.num_generated // 10)
        sizes = {"train": data.num_generated, "validation": validation_size, "test": data.num_generated}
        return DatasetDict(
            {name: generate_topics(size, seed=seed + i) for i, (name, size) in enumerate(sizes.items())}
        )
    splits = load_splits(
        data.dataset_name,
        data.dataset_config_name,
        **data.files(),
        text_column=data.text_column,
        label_column=data.label_column,
        validation_size=data.validation_size,
        seed=seed,
    )
    if "test" not in splits:
        raise ValueError(
            "test_file must be given, got None: the report is about data that neither training nor T has seen"
        )
    parts = data.strip_parts()
    if not parts:
        return splits

    def strip(row):
        for name, stripper in STRIPPERS.items():
            if name in parts:
                row["text"] = stripper(row["text"])
        return row

    return splits.map(strip, desc="stripping")


def load_tokenizer(model: ModelArguments, splits: DatasetDict) -> PreTrainedTokenizerBase:
    if model.model_name_or_path == "gp_cnn":
        return train_word_tokenizer(splits["train"]["text"], model.vocab_size, model.max_length or 1000)
    return AutoTokenizer.from_pretrained(model.model_name_or_path)


def text_length(model: ModelArguments, tokenizer: PreTrainedTokenizerBase) -> int:
    """Tokens after which a text is cut: `max_length`, or what tokenizer and model take."""
    positions = None
    if model.model_name_or_path != "gp_cnn":
        positions = model_positions(AutoConfig.from_pretrained(model.model_name_or_path))
    if model.max_length is None:
        # A tokenizer that knows no limit says 10^30.
        limits = [limit for limit in (tokenizer.model_max_length, positions) if limit is not None and limit < 10**6]
        return min(limits, default=1000)
    if positions is not None and model.max_length > positions:
        raise ValueError(
            f"max_length must be at most {positions}, the positions of {model.model_name_or_path!r}, "
            f"got {model.max_length}"
        )
    return model.max_length


def model_positions(config) -> int | None:
    """Tokens that an encoder has positions for, None where its configuration sets no limit."""
    positions = getattr(config, "max_position_embeddings", None)
    if positions is None or positions < 1:
        return None
    with torch.device("meta"):
        encoder = AutoModel.from_config(config)
    for name, module in encoder.named_modules():
        # RoBERTa and its kin count positions from the one after the padding's.
        if (
            name.endswith("position_embeddings")
            and isinstance(module, nn.Embedding)
            and module.padding_idx is not None
        ):
            positions = min(positions, module.num_embeddings - module.padding_idx - 1)
    return positions


def encode(splits: DatasetDict, tokenizer, max_length: int) -> DatasetDict:
    """Token ids, the lengths that batches are grouped by, and labels."""

    def tokenize(rows):
        tokens = tokenizer(rows["text"], truncation=True, max_length=max_length)
        return {**tokens, "length": [len(ids) for ids in tokens["input_ids"]], "labels": rows["label"]}

    return splits.map(tokenize, batched=True, remove_columns=splits["train"].column_names, desc="tokenising")


def build_model(experiment: Experiment):
    model, tokenizer, names = experiment.model, experiment.tokenizer, label_names(experiment.splits)
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
    if experiment.embeddings is not None:
        network.get_input_embeddings().weight.data.copy_(experiment.embeddings)
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
    try:
        prepared = prepare(sys.argv[1:])
    except (ValueError, OSError) as error:  # the user's: one line, as argparse has it
        print(f"{Path(__file__).name}: error: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)
    train(prepared)
