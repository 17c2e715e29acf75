"""Train, measure and correct a translator.

One loss:

    python recipes/translation.py --config recipes/configs/multi30k/transformer_small.yaml \
        --train_file train.parquet --test_file test.parquet --loss focal:gamma=1 --output_dir out/focal

Several, side by side in one table and one figure:

    python recipes/translation.py --config recipes/configs/translation_demo.yaml \
        --compare cross_entropy,label_smoothing:alpha=0.1,focal:gamma=1 --output_dir out/translation

Several GPUs: `accelerate launch --num_processes 4 recipes/translation.py ...`. The same command again resumes what was
interrupted and reuses what was finished.
"""

import itertools
import logging
import math
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from datasets import Dataset, DatasetDict
from sacrebleu.metrics import BLEU
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    MarianMTModel,
    PreTrainedTokenizerBase,
    set_seed,
)

from hf_focal import FocalSeq2SeqTrainer, FocalSeq2SeqTrainingArguments
from hf_focal.data.pretrained_models import check_seq2seq_model
from hf_focal.data.sentence_pair_data import load_pairs, load_parallel, select_pairs
from hf_focal.data.sentence_pair_encoding import encode_pairs
from hf_focal.experiments.data.generated_translations import generate_translations, true_translation_errors
from hf_focal.experiments.data.tokenizer_training import train_bpe_tokenizer
from hf_focal.experiments.models import transformer_config
from hf_focal.experiments.reports.translation_report import write_translation_comparison, write_translation_report
from hf_focal.experiments.runs.checkpoint_averaging import average_last_checkpoints, check_averaging
from hf_focal.experiments.runs.loss_comparison import claim_folders, runs_of, train_runs
from hf_focal.experiments.runs.output_folders import contents, files_of, last_complete_checkpoint, run_settings
from hf_focal.experiments.runs.recipe_arguments import DatasetArguments, RecipeArguments
from hf_focal.experiments.runs.recipe_checks import (
    check_at_least,
    check_calibration_size,
    check_fraction,
    check_model_name,
    check_test_file,
)
from hf_focal.experiments.runs.recipe_command import print_written, run_recipe
from hf_focal.experiments.runs.run_publishing import datasets_of, publish_runs
from hf_focal.experiments.runs.saved_translations import forget_translations, translate
from hf_focal.experiments.runs.yaml_arguments import parse_arguments
from hf_focal.reports import (
    TranslationResult,
    translation_table,
)
from hf_focal.trainer import gamma_history

NUM_SAMPLES = 10  # translations that the report shows


@dataclass
class DataArguments(DatasetArguments):
    """The data. Without `dataset_name` and files: a generated corpus whose true probabilities are known."""

    train_file: str | None = field(
        default=None,
        metadata={"help": "csv, json, jsonl or parquet, or what two text files (.en, .de) begin with."},
    )
    other_test_file: str | None = field(
        default=None, metadata={"help": "Another test set, of another domain say, scored beside it."}
    )
    source_lang: str = field(default="en", metadata={"help": "The language, and its column, to translate from."})
    target_lang: str = field(default="de", metadata={"help": "The language, and its column, to translate to."})
    validation_size: int | None = field(
        default=None,
        metadata={
            "help": "Pairs cut from the training data for validation; if absent a hundredth. Pairs generated for "
            "validation, and as many for the test; if absent a twentieth."
        },
    )
    num_generated: int = field(default=20_000, metadata={"help": "Training pairs of the generated corpus."})

    def __post_init__(self):
        super().__post_init__()
        check_at_least(1, self, "num_generated")


@dataclass
class ModelArguments:
    """The model: a Transformer trained from scratch, or any sequence-to-sequence model to fine-tune."""

    model_name_or_path: str = field(
        default="transformer",
        metadata={
            "help": "'transformer', or a sequence-to-sequence model (Hub id or folder) of one pair of languages: "
            "nothing says which to translate into, neither a prefix (T5) nor a language code (mBART)."
        },
    )
    max_length: int = field(
        default=128,
        metadata={"help": "Longer training pairs are dropped, what is tested is cut, translations end there."},
    )
    vocab_size: int = field(
        default=37_000, metadata={"help": "transformer: tokens of the shared vocabulary, at most."}
    )
    d_model: int = field(default=512, metadata={"help": "transformer: width."})
    num_layers: int = field(default=6, metadata={"help": "transformer: layers of the encoder and of the decoder."})
    num_heads: int = field(default=8, metadata={"help": "transformer: heads of each attention."})
    ffn_dim: int = field(default=2048, metadata={"help": "transformer: width of the feed-forward layers."})
    dropout: float = field(default=0.1, metadata={"help": "transformer: dropout of each residual branch."})

    def __post_init__(self):
        check_model_name(self.model_name_or_path, ["transformer"])
        check_at_least(1, self, "max_length", "vocab_size", "d_model", "num_layers", "num_heads", "ffn_dim")
        if self.d_model % (2 * self.num_heads):
            raise ValueError(f"d_model must be a multiple of 2 * num_heads, got {self.d_model} for {self.num_heads}")
        check_fraction(self, "dropout")


@dataclass
class TranslationArguments(RecipeArguments):
    """What is run, how it is corrected and how it translates."""

    bleu_temperatures: list[str] | str = field(
        default_factory=lambda: ["0.5", "0.75", "1", "1.25", "1.5", "2"],  # of a list `default` would be lost
        metadata={
            "help": "Temperatures of beam search in the curve of BLEU; 1, the fitted one and those of earlier starts "
            "are always in it."
        },
    )
    length_penalty: float = field(
        default=0.6, metadata={"help": "Beam search divides scores by the length to this power."}
    )
    average_checkpoints: int = field(
        default=1, metadata={"help": "Take the mean of the weights of so many of the last checkpoints."}
    )

    def __post_init__(self):
        super().__post_init__()
        check_at_least(1, self, "average_checkpoints")
        if not math.isfinite(self.length_penalty):
            raise ValueError(f"length_penalty must be a finite number, got {self.length_penalty}")
        self.temperatures()

    def temperatures(self) -> set[float]:
        """Those of `bleu_temperatures`, and 1."""
        try:
            values = [float(text) for text in self.bleu_temperatures.split(",")]
        except ValueError:
            values = [math.nan]
        if not all(0 < value < math.inf for value in values):
            raise ValueError(f"bleu_temperatures must be positive numbers, got {self.bleu_temperatures!r}")
        return {*values, 1.0}


@dataclass
class Experiment:
    """What `prepare` found in order: the arguments, those of each run, and what the runs share."""

    data: DataArguments
    model: ModelArguments
    recipe: TranslationArguments
    args: FocalSeq2SeqTrainingArguments
    runs: list[FocalSeq2SeqTrainingArguments]
    splits: DatasetDict
    encoded: DatasetDict
    tokenizer: PreTrainedTokenizerBase
    bleu: BLEU


def main(argv: list[str]) -> list[TranslationResult]:
    return train(prepare(argv))


def prepare(argv: list[str]) -> Experiment:
    """Everything that can be wrong with the command line or the data, before anything is trained."""
    data, model, recipe, args = parse(argv)
    logging.basicConfig(level=logging.INFO if args.should_log else logging.WARNING, format="%(message)s")
    runs = runs_of(recipe, args, parse, argv)
    check_averaging(recipe.average_checkpoints, args)
    if model.model_name_or_path != "transformer":
        check_seq2seq_model(model.model_name_or_path, model.max_length)
    bleu = BLEU(trg_lang=data.target_lang)  # raises where the language's words need a package
    with args.main_process_first(desc="loading the data"):
        splits = load_data(data, args.seed)
        tokenizer = load_tokenizer(model, splits["train"])
        encoded = DatasetDict()
        for name, split in splits.items():
            encoded[name] = encode_pairs(split, tokenizer, model.max_length, cut=name != "train")
        for run_args in runs:
            check_calibration_size(run_args, sum(map(len, encoded["validation"]["labels"])), "target tokens")
        claim_folders(args, runs, lambda run_args: result_settings(data, model, recipe, run_args))
    return Experiment(data, model, recipe, args, runs, splits, encoded, tokenizer, bleu)


def parse(argv: list[str]) -> tuple:
    data, model, recipe, args = parse_arguments(
        (DataArguments, ModelArguments, TranslationArguments, FocalSeq2SeqTrainingArguments),
        argv,
        description="Train, measure and correct a translator.",
    )
    if args.generation_max_length is not None:
        raise ValueError(f"generation_max_length must not be given, got {args.generation_max_length}: use max_length")
    args.predict_with_generate = True  # else `translate` would get logits
    if args.generation_num_beams is None:
        args.generation_num_beams = 4
    return data, model, recipe, args


def result_settings(
    data: DataArguments, model: ModelArguments, recipe: TranslationArguments, args: FocalSeq2SeqTrainingArguments
) -> dict:
    """What determines a run's weights and translations. Other temperatures may be asked for later."""
    of_recipe = {name: getattr(recipe, name) for name in ("length_penalty", "average_checkpoints")}
    if recipe.average_checkpoints > 1:
        of_recipe |= {name: getattr(args, name) for name in ("save_strategy", "save_steps")}
    digests = contents(files_of(data), ("", f".{data.source_lang}", f".{data.target_lang}"))
    return run_settings(args, asdict(data), digests, asdict(model), of_recipe)


def load_data(data: DataArguments, seed: int) -> DatasetDict:
    """The splits "train", "validation", "test" and, if there is one, "other_test"."""
    if not data.given():
        held_out = data.validation_size or max(1, data.num_generated // 20)
        sizes = {"train": data.num_generated, "validation": held_out, "test": held_out}
        splits = {name: generate_translations(n, seed=seed + i) for i, (name, n) in enumerate(sizes.items())}
        return DatasetDict(splits)
    check_test_file(data)
    files, sides = files_of(data), {"source_lang": data.source_lang, "target_lang": data.target_lang}
    other_file = files.pop("other_test_file", None)
    splits = load_parallel(
        data.dataset_name, data.dataset_config_name, **files, **sides, validation_size=data.validation_size, seed=seed
    )
    if other_file is not None:
        other = load_pairs("other_test_file", other_file, **sides)
        splits["other_test"] = select_pairs(f"other_test_file {other_file!r}", other, **sides)
    return splits


def load_tokenizer(model: ModelArguments, train: Dataset) -> PreTrainedTokenizerBase:
    if model.model_name_or_path != "transformer":
        return AutoTokenizer.from_pretrained(model.model_name_or_path)
    batches = train.iter(batch_size=10_000)
    texts = (text for batch in batches for side in ("source", "target") for text in batch[side])
    return train_bpe_tokenizer(texts, model.vocab_size, model.max_length)


def build_model(experiment: Experiment):
    model, tokenizer = experiment.model, experiment.tokenizer
    if model.model_name_or_path != "transformer":
        # Also where the weights were saved in half precision: mixed precision wants them whole.
        network = AutoModelForSeq2SeqLM.from_pretrained(model.model_name_or_path, dtype=torch.float32)
    else:
        sizes = ("max_length", "d_model", "num_layers", "num_heads", "ffn_dim", "dropout")
        config = transformer_config(tokenizer, **{name: getattr(model, name) for name in sizes})
        network = MarianMTModel(config)
    network.generation_config.update(**generation_options(experiment))
    return network


def train(experiment: Experiment) -> list[TranslationResult]:
    """Train what is not finished yet, and report all of it."""
    results, reports = train_runs(experiment, run, write_translation_comparison)
    if experiment.args.process_index == 0:
        print_summary(reports, results)
    publish_runs(experiment.runs)
    return results


def run(args: FocalSeq2SeqTrainingArguments, experiment: Experiment) -> TranslationResult:
    """Train one loss (or go on where it was interrupted), fit the temperature, measure tokens and translations."""
    recipe, encoded = experiment.recipe, experiment.encoded
    report, temperatures = Path(args.output_dir) / "report", recipe.temperatures()
    if (report / "metrics.json").exists():
        earlier = TranslationResult.load(report / "metrics.json")
        if earlier.temperature.objective == recipe.temperature_objective and temperatures <= earlier.bleu.keys():
            logging.info("finished already, see %s", report)
            return earlier
        temperatures |= earlier.bleu.keys()

    set_seed(args.seed)
    model = build_model(experiment)
    trainer = FocalSeq2SeqTrainer(
        model=model,
        args=args,
        train_dataset=encoded["train"],
        eval_dataset=encoded["validation"],
        calibration_dataset=encoded["validation"],
        processing_class=experiment.tokenizer,
        data_collator=DataCollatorForSeq2Seq(experiment.tokenizer, model=model),
    )
    checkpoint = last_complete_checkpoint(args.output_dir)
    trained = trainer.train(resume_from_checkpoint=checkpoint)
    trainer.save_state()
    if recipe.average_checkpoints > 1:
        average_last_checkpoints(trainer, recipe.average_checkpoints)
    forget_translations(trainer, checkpoint)

    temperature = trainer.fit_temperature(objective=recipe.temperature_objective)
    before, after = trainer.measure(encoded["test"])
    test = experiment.splits["test"]
    references = list(test["target"])
    tried = sorted({*temperatures, temperature.value})
    translations = {T: translate("test", encoded["test"], T, trainer) for T in tried}
    scores = {T: experiment.bleu.corpus_score(lines, [references]).score for T, lines in translations.items()}
    details = {
        "train_metrics": trained.metrics,
        "num_parameters": trainer.model.num_parameters(),
        "num_processes": args.world_size,
        "gamma_history": gamma_history(trainer.state.log_history),
    }
    if "target_log_probability" in test.column_names:
        details["true_calibration_error"] = true_translation_errors(
            trainer.model, experiment.tokenizer, test, temperature, max_length=experiment.model.max_length
        )
    if "other_test" in encoded:
        details["other_test"] = score_other(trainer, experiment)
    signature = str(experiment.bleu.get_signature())
    result = TranslationResult.measure(
        args.loss, temperature, trainer.temperature_curves, before, after, scores, signature, details
    )
    trainer.save_calibrated()
    sides = (experiment.data.source_lang, experiment.data.target_lang)
    languages = [side for side in sides if re.fullmatch("[a-z]{2,3}", side)]  # as the Hub knows them
    datasets = datasets_of(experiment.data, default="a generated corpus")
    trainer.create_model_card(result=result, language=languages, **datasets)
    if args.process_index == 0:
        lines = zip(test["source"], references, translations[1.0], translations[temperature.value], strict=True)
        keys = ("source", "reference", "before", "after")
        samples = [dict(zip(keys, sides, strict=True)) for sides in itertools.islice(lines, NUM_SAMPLES)]
        write_translation_report(report, result, samples)  # last: a run that has it is finished
    return result


def generation_options(experiment: Experiment) -> dict:
    """What the model translates with, but for the temperature, and so does who loads it.

    Re-normalised at T = 1 too, so that scores mean the same where a model forbids tokens.
    """
    num_beams = experiment.args.generation_num_beams
    options = {"max_length": experiment.model.max_length, "num_beams": num_beams, "renormalize_logits": True}
    return options if num_beams == 1 else {**options, "length_penalty": experiment.recipe.length_penalty}


def score_other(trainer: FocalSeq2SeqTrainer, experiment: Experiment) -> dict:
    """Token metrics and BLEU of the other test set, before and after the temperature."""
    references, scores = list(experiment.splits["other_test"]["target"]), {}
    measured = trainer.measure(experiment.encoded["other_test"])
    for when, T, metrics in zip(("pre", "post"), (1.0, trainer.temperature.value), measured, strict=True):
        lines = translate("other_test", experiment.encoded["other_test"], T, trainer)
        scores[when] = metrics.compute() | {"bleu": experiment.bleu.corpus_score(lines, [references]).score}
    return scores


def print_summary(reports: list[Path], results: list[TranslationResult]) -> None:
    print(f"\n{translation_table(results)}\n")
    print("Before → after temperature scaling, on the test set; tokens under teacher forcing, BLEU by beam search.")
    for result in results:
        if truth := result.details.get("true_calibration_error"):
            before, after = (100 * error for error in truth)
            print(f"true ECE, {result.loss}: {before:.2f} → {after:.2f} % (against the probabilities of the grammar)")
        if other := result.details.get("other_test"):
            pre, post = other["pre"], other["post"]
            print(
                f"other test set, {result.loss}: ECE {100 * pre['ece']:.2f} → {100 * post['ece']:.2f} %, "
                f"BLEU {pre['bleu']:.2f} → {post['bleu']:.2f}"
            )
    print_written(reports)
    print("\nNext:")
    print("  read samples.md, and see in curves.png what a temperature does to BLEU")
    print("  load a model, its temperature folded in: AutoModelForSeq2SeqLM.from_pretrained(<the run's folder>)")
    print("  your own pairs: --train_file train.csv --test_file test.csv (columns en and de) --output_dir <another>")


if __name__ == "__main__":
    run_recipe(prepare, train)
