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

import functools
import itertools
import logging
import math
import os
import shutil
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from pathlib import Path

import numpy as np
import torch
from accelerate.utils import broadcast_object_list
from datasets import Dataset, DatasetDict
from sacrebleu.metrics import BLEU
from transformers import (
    AutoConfig,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    MarianConfig,
    MarianMTModel,
    PreTrainedTokenizerBase,
    set_seed,
)
from transformers.integrations.deepspeed import unset_hf_deepspeed_config

from hf_focal import (
    FocalSeq2SeqTrainer,
    FocalSeq2SeqTrainingArguments,
    LossConfig,
    Temperature,
    calibrated_generation,
    fold_temperature,
)
from hf_focal.config_file import parse_arguments
from hf_focal.data import (
    Grammar,
    generate_translations,
    load_pairs,
    load_parallel,
    select_pairs,
    train_bpe_tokenizer,
    true_calibration_error,
)
from hf_focal.reports import (
    TranslationResult,
    translation_table,
    write_translation_comparison,
    write_translation_report,
)
from hf_focal.runs import (
    claim_output_dir,
    complete_checkpoints,
    file_digest,
    folder_of,
    last_complete_checkpoint,
    training_settings,
)
from hf_focal.temperature import OBJECTIVES
from hf_focal.trainer import gamma_history

# Translations that the report shows.
NUM_SAMPLES = 10


@dataclass
class DataArguments:
    """The data. Without `dataset_name` and files: a generated corpus whose true probabilities are known."""

    dataset_name: str | None = field(default=None, metadata={"help": "A dataset on the Hub, with train and test."})
    dataset_config_name: str | None = field(default=None, metadata={"help": "The configuration of that dataset."})
    train_file: str | None = field(
        default=None,
        metadata={"help": "csv, json, jsonl or parquet, or what two text files (.en, .de) begin with."},
    )
    validation_file: str | None = field(default=None, metadata={"help": "If absent, cut from the training data."})
    test_file: str | None = field(default=None, metadata={"help": "What the report is about."})
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
        for name in ("validation_size", "num_generated"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")

    def files(self) -> dict[str, str]:
        """The files that are given, by their arguments."""
        names = ("train_file", "validation_file", "test_file", "other_test_file")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    def contents(self) -> dict[str, str]:
        """Digests of what is in these files, of each of two text files."""
        digests = {}
        for name, path in self.files().items():
            for end in ("", f".{self.source_lang}", f".{self.target_lang}"):
                if Path(path + end).is_file():
                    digests[f"content of {name}{end}"] = file_digest(path + end)
        return digests


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
        name = self.model_name_or_path
        near = get_close_matches(name.lower(), ["transformer"], cutoff=0.75)
        if name != "transformer" and near and not Path(name).exists():
            raise ValueError(
                f"model_name_or_path must be 'transformer' or a Hub id or folder, got {name!r}; did you mean "
                "'transformer'?"
            )
        for name in ("max_length", "vocab_size", "d_model", "num_layers", "num_heads", "ffn_dim"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.d_model % (2 * self.num_heads):
            raise ValueError(
                f"d_model must be a multiple of 2 * num_heads, got {self.d_model} for {self.num_heads} heads"
            )
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be at least 0 and less than 1, got {self.dropout}")


@dataclass
class RecipeArguments:
    """What is run, how it is corrected and how it translates."""

    # Lists in a config file.
    compare: list[str] | str | None = field(
        default=None, metadata={"help": "Train each of these losses: 'cross_entropy,focal:gamma=1'."}
    )
    temperature_objective: str = field(default="ece", metadata={"help": "'ece' (the paper's) or 'nll', on a grid."})
    bleu_temperatures: list[str] | str = field(
        default="0.5,0.75,1,1.25,1.5,2",
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
        if isinstance(self.compare, list):
            self.compare = ",".join(self.compare)
        if isinstance(self.bleu_temperatures, list):
            self.bleu_temperatures = ",".join(self.bleu_temperatures)
        if self.temperature_objective not in OBJECTIVES:
            raise ValueError(
                f"temperature_objective must be {' or '.join(map(repr, OBJECTIVES))}, "
                f"got {self.temperature_objective!r}"
            )
        if not math.isfinite(self.length_penalty):
            raise ValueError(f"length_penalty must be a finite number, got {self.length_penalty}")
        if self.average_checkpoints < 1:
            raise ValueError(f"average_checkpoints must be at least 1, got {self.average_checkpoints}")
        self.temperatures()

    def temperatures(self) -> list[float]:
        """Those of `bleu_temperatures`."""
        try:
            values = [float(text) for text in self.bleu_temperatures.split(",")]
        except ValueError:
            values = [math.nan]
        if not all(0 < value < math.inf for value in values):
            raise ValueError(f"bleu_temperatures must be positive numbers, got {self.bleu_temperatures!r}")
        return values


@dataclass
class Experiment:
    """What `prepare` found in order: the arguments, those of each run, and what the runs share."""

    data: DataArguments
    model: ModelArguments
    recipe: RecipeArguments
    args: FocalSeq2SeqTrainingArguments
    runs: list[FocalSeq2SeqTrainingArguments]
    splits: DatasetDict
    encoded: DatasetDict
    tokenizer: PreTrainedTokenizerBase


def main(argv: list[str] | None = None) -> list[TranslationResult]:
    return train(prepare(sys.argv[1:] if argv is None else argv))


def prepare(argv: list[str]) -> Experiment:
    """Everything that can be wrong with the command line or the data, before anything is trained."""
    data, model, recipe, args = parse(argv)
    logging.basicConfig(level=logging.INFO if args.should_log else logging.WARNING, format="%(message)s")
    if not args.output_dir:
        raise ValueError(f"output_dir must be a folder, got {args.output_dir!r}")
    runs = [args]
    if recipe.compare is not None:
        if args.loss != FocalSeq2SeqTrainingArguments.loss:
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
    check_averaging(recipe, args)
    check_pretrained(model)
    BLEU(trg_lang=data.target_lang)  # raises where the language's words need a package
    with args.main_process_first(desc="loading the data"):
        splits = load_data(data, args.seed)
        tokenizer = load_tokenizer(data, model, splits)
        encoded = DatasetDict({name: encode(name, split, tokenizer, model) for name, split in splits.items()})
        for run_args in runs:
            check_calibration_size(LossConfig.parse(run_args.loss), encoded["validation"])
        write = args.process_index == 0
        if recipe.compare is not None:
            claim_output_dir(args.output_dir, {"kind": "comparison"}, write)
        for run_args in runs:
            claim_output_dir(run_args.output_dir, result_settings(data, model, recipe, run_args), write)
    return Experiment(data, model, recipe, args, runs, splits, encoded, tokenizer)


def parse(argv: list[str]) -> tuple[DataArguments, ModelArguments, RecipeArguments, FocalSeq2SeqTrainingArguments]:
    data, model, recipe, args = parse_arguments(
        (DataArguments, ModelArguments, RecipeArguments, FocalSeq2SeqTrainingArguments),
        argv,
        description="Train, measure and correct a translator.",
    )
    if args.generation_max_length is not None:
        raise ValueError(f"generation_max_length must not be given, got {args.generation_max_length}: use max_length")
    args.predict_with_generate = True  # else `translate` would get logits
    if args.generation_num_beams is None:
        args.generation_num_beams = 4
    return data, model, recipe, args


def check_averaging(recipe: RecipeArguments, args: FocalSeq2SeqTrainingArguments) -> None:
    """Raise where the checkpoints to average will not be there, or will not be what is wanted."""
    if (number := recipe.average_checkpoints) == 1:
        return
    problem = None
    if args.save_total_limit is not None and args.save_total_limit < number:
        problem = f"save_total_limit {args.save_total_limit}: no more checkpoints are kept"
    elif args.save_strategy not in ("epoch", "steps"):
        problem = f"save_strategy {args.save_strategy.value!r}: set it to 'epoch' or 'steps'"
    elif args.save_only_model:
        problem = "save_only_model: such checkpoints are not known to be complete"
    elif args.load_best_model_at_end:
        problem = "load_best_model_at_end: the mean would take the best model's place"
    elif args.deepspeed_plugin is not None or os.environ.get("ACCELERATE_USE_FSDP") == "true":
        problem = "DeepSpeed or FSDP, which cut the model up"
    if problem is not None:
        raise ValueError(f"average_checkpoints must fit the other arguments, got {number} with {problem}")


def check_pretrained(model: ModelArguments) -> None:
    """Raise where a pretrained model is of another kind, or has no positions for so long sentences."""
    if model.model_name_or_path == "transformer":
        return
    config = AutoConfig.from_pretrained(model.model_name_or_path)
    if not config.is_encoder_decoder:
        raise ValueError(
            f"model_name_or_path must be a sequence-to-sequence model, got {model.model_name_or_path!r}, "
            f"a {config.model_type}"
        )
    positions = getattr(config, "max_position_embeddings", None)
    if positions is not None and model.max_length > positions:
        raise ValueError(
            f"max_length must be at most {positions}, the positions of {model.model_name_or_path!r}, "
            f"got {model.max_length}"
        )


def check_calibration_size(loss: LossConfig, validation: Dataset) -> None:
    """AdaFocal measures the validation set, and wants a token in each bin."""
    bins = loss.options.get("bins", 0)
    if (found := sum(map(len, validation["labels"]))) < bins:
        raise ValueError(
            f"the validation set must hold at least {bins} target tokens for {loss}, got {found}: set validation_size "
            "or another validation_file"
        )


def result_settings(
    data: DataArguments, model: ModelArguments, recipe: RecipeArguments, args: FocalSeq2SeqTrainingArguments
) -> dict:
    """What determines a run's weights and translations. Other temperatures may be asked for later."""
    of_recipe = {name: getattr(recipe, name) for name in ("length_penalty", "average_checkpoints")}
    if recipe.average_checkpoints > 1:
        of_recipe |= {name: getattr(args, name) for name in ("save_strategy", "save_steps")}
    settings = {**asdict(data), **data.contents(), **asdict(model), **of_recipe, **training_settings(args)}
    return {"kind": "run", **settings, "loss": str(LossConfig.parse(args.loss)), "num_processes": args.world_size}


def train(experiment: Experiment) -> list[TranslationResult]:
    """Train what is not finished yet, and report all of it."""
    args, recipe, results = experiment.args, experiment.recipe, []
    for number, run_args in enumerate(experiment.runs, start=1):
        logging.info("%s (%d of %d)", LossConfig.parse(run_args.loss), number, len(experiment.runs))
        results.append(run(run_args, experiment))
    if args.process_index == 0:
        reports = [Path(run_args.output_dir) / "report" for run_args in experiment.runs]
        if recipe.compare is not None:
            reports.append(Path(args.output_dir) / "report")
            write_translation_comparison(reports[-1], results)
        print_summary(reports, results)
    return results


def run(args: FocalSeq2SeqTrainingArguments, experiment: Experiment) -> TranslationResult:
    """Train one loss (or go on where it was interrupted), fit the temperature, measure tokens and translations."""
    recipe, encoded = experiment.recipe, experiment.encoded
    report = Path(args.output_dir) / "report"
    temperatures = {*recipe.temperatures(), 1.0}
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
        data_collator=PairCollator(experiment.tokenizer, model=model),
    )
    checkpoint = last_complete_checkpoint(args.output_dir)
    trained = trainer.train(resume_from_checkpoint=checkpoint)
    trainer.save_state()
    average_weights(trainer, recipe.average_checkpoints)
    was_finished = checkpoint is not None and Path(checkpoint).name == f"checkpoint-{trained.global_step}"
    if args.process_index == 0 and not was_finished:  # translations that are there are by other weights
        shutil.rmtree(Path(args.output_dir) / "translations", ignore_errors=True)

    temperature = trainer.fit_temperature(objective=recipe.temperature_objective)
    curves = trainer.temperature_curves
    before, after = trainer.measure(encoded["test"])
    references = list(experiment.splits["test"]["target"])
    translations = {T: translate("test", T, trainer, experiment) for T in sorted({*temperatures, temperature.value})}
    bleu = BLEU(trg_lang=experiment.data.target_lang)
    scores = {T: bleu.corpus_score(lines, [references]).score for T, lines in translations.items()}
    details = {
        "train_metrics": trained.metrics,
        "num_parameters": trainer.model.num_parameters(),
        "num_processes": args.world_size,
        "gamma_history": gamma_history(trainer.state.log_history),
    }
    if "target_log_probability" in experiment.splits["test"].column_names:
        details["true_calibration_error"] = true_errors(trainer, experiment)
    if "other_test" in encoded:
        details["other_test"] = score_other(trainer, experiment)
    result = TranslationResult(
        loss=str(LossConfig.parse(args.loss)),
        temperature=temperature,
        pre=before.compute(),
        post=after.compute(),
        bleu=scores,
        signature=str(bleu.get_signature()),
        validation_ece=dict(zip(curves.temperatures.round(6).tolist(), curves.ece.tolist(), strict=True)),
        pre_bins=before.bins(),
        post_bins=after.bins(),
        details=details,
    )
    save_folded(trainer, temperature)
    if args.process_index == 0:
        sides = (experiment.splits["test"]["source"], references, translations[1.0], translations[temperature.value])
        samples = [
            dict(zip(("source", "reference", "before", "after"), lines, strict=True))
            for lines in itertools.islice(zip(*sides, strict=True), NUM_SAMPLES)
        ]
        write_translation_report(report, result, samples)  # last: a run that has it is finished
    return result


class PairCollator(DataCollatorForSeq2Seq):
    """Pads pairs, and sources alone, for which `DataCollatorForSeq2Seq` has "labels" that are None."""

    def __call__(self, features, return_tensors=None):
        batch = super().__call__(features, return_tensors)
        if batch.get("labels") is None:
            batch.pop("labels", None)
        return batch


def average_weights(trainer: FocalSeq2SeqTrainer, number: int) -> None:
    """Give the model the mean of the weights of the last checkpoints [Vaswani et al. 2017, section 6.1]."""
    if number == 1:
        return
    trainer.accelerator.wait_for_everyone()  # each process writes a part of the last checkpoint
    checkpoints = complete_checkpoints(trainer.args.output_dir)[:number]
    if len(checkpoints) < number:
        logging.warning("average_checkpoints is %d, but there are only %d checkpoints", number, len(checkpoints))
    logging.info("averaging %s", ", ".join(Path(path).name for path in checkpoints))
    states = [AutoModelForSeq2SeqLM.from_pretrained(path).state_dict() for path in checkpoints]
    mean = {name: sum(state[name].double() for state in states) / len(states) for name in states[0]}
    trainer.model.load_state_dict(mean)


def generation_options(experiment: Experiment) -> dict:
    """The arguments of `generate`, but for the temperature; the saved model has them for its defaults.

    Re-normalised at T = 1 too, so that scores mean the same where a model forbids tokens.
    """
    num_beams = experiment.args.generation_num_beams
    options = {"max_length": experiment.model.max_length, "num_beams": num_beams, "renormalize_logits": True}
    return options if num_beams == 1 else {**options, "length_penalty": experiment.recipe.length_penalty}


def translate(name: str, temperature: float, trainer: FocalSeq2SeqTrainer, experiment: Experiment) -> list[str]:
    """The translations of a split by beam search on softmax(z / T), kept in a file a sentence a line."""
    path = Path(trainer.args.output_dir) / "translations" / f"{name}_T{temperature}.txt"
    kept = [None]  # what the first process finds: others may come when it has written the file
    if trainer.args.process_index == 0 and path.exists():
        kept = [path.read_text(encoding="utf-8").removesuffix("\n").split("\n")]
    (lines,) = broadcast_object_list(kept)
    if lines is not None:
        return lines
    logging.info("translating %s at temperature %g", name, temperature)
    sources = experiment.encoded[name].remove_columns("labels")
    # Longest first: batches of one length, and what does not fit into memory shows at once.
    order = np.argsort([-len(ids) for ids in sources["input_ids"]], kind="stable")
    ids = trainer.predict(
        sources.select(order), **generation_options(experiment) | calibrated_generation(temperature)
    ).predictions
    tokenizer = experiment.tokenizer
    texts = tokenizer.batch_decode(np.where(ids < 0, tokenizer.pad_token_id, ids), skip_special_tokens=True)
    lines = [" ".join(texts[place].split()) for place in np.argsort(order)]
    if trainer.args.process_index == 0:
        path.parent.mkdir(exist_ok=True)
        partial = path.with_suffix(".partial")  # half a file would pass for all of it
        partial.write_text("\n".join(lines) + "\n", encoding="utf-8")
        partial.replace(path)
    return lines


def score_other(trainer: FocalSeq2SeqTrainer, experiment: Experiment) -> dict:
    """Token metrics and BLEU of the other test set, before and after the temperature."""
    references, scores = list(experiment.splits["other_test"]["target"]), {}
    temperatures = {"pre": 1.0, "post": trainer.temperature.value}
    for (when, T), metrics in zip(
        temperatures.items(), trainer.measure(experiment.encoded["other_test"]), strict=True
    ):
        lines = translate("other_test", T, trainer, experiment)
        score = BLEU(trg_lang=experiment.data.target_lang).corpus_score(lines, [references]).score
        scores[when] = {**metrics.compute(), "bleu": score}
    return scores


def true_errors(trainer: FocalSeq2SeqTrainer, experiment: Experiment) -> tuple[float, float] | None:
    """The calibration error of the generated corpus's tokens against their true probabilities, before and after T.

    Of the sentences whose words are one token each, as they are unless the vocabulary is too small, another corpus's
    or of so few pairs that a word is not in it; None if there are none.
    """
    grammar, tokenizer = Grammar(), experiment.tokenizer
    test, encoded = experiment.splits["test"], experiment.encoded["test"]
    rows = [
        place
        for place, (pair, ids) in enumerate(zip(test, encoded, strict=True))
        if len(ids["input_ids"]) == len(pair["source"].split()) + 1
        and len(ids["labels"]) == len(pair["target"].split()) + 1
    ]
    if len(rows) < len(test):
        logging.info(
            "the true calibration error is of %d of %d test pairs, whose words are tokens", len(rows), len(test)
        )
    if not rows:
        return None

    @functools.cache
    def token(word: str) -> int | None:
        ids = tokenizer(text_target=word)["input_ids"]  # the word and the end, or after the last word the end alone
        return ids[0] if len(ids) == len(word.split()) + 1 else None

    confidences, expected = ([], []), []
    model = trainer.model.eval()
    for start in range(0, len(rows), trainer.args.per_device_eval_batch_size):
        batch = rows[start : start + trainer.args.per_device_eval_batch_size]
        inputs = trainer.data_collator([encoded[place] for place in batch]).to(model.device)
        with torch.no_grad():
            logits = model(**inputs).logits[inputs["labels"] != -100].float()
        for kept, scores in zip(confidences, (logits, trainer.temperature.apply(logits)), strict=True):
            kept += scores.softmax(-1).max(-1).values.tolist()
        pairs = (test[place] for place in batch)
        truth = [p for pair in pairs for p in grammar.next_word_distributions(pair["source"], pair["target"])]
        for predicted, distribution in zip(logits.argmax(-1).tolist(), truth, strict=True):
            expected.append({token(word): p for word, p in distribution.items()}.get(predicted, 0.0))
    # Only the predicted words count.
    before, after = (true_calibration_error(np.c_[kept], np.c_[expected]) for kept in confidences)
    return before, after


def save_folded(trainer: FocalSeq2SeqTrainer, temperature: Temperature) -> None:
    """Save the model with its temperature folded in. Only what is saved is whole under FSDP2 and ZeRO-3."""
    trainer.save_model()
    if trainer.args.process_index != 0:
        return
    folder = Path(trainer.args.output_dir)
    temperature.save(folder / "temperature.json")
    unset_hf_deepspeed_config()  # with it from_pretrained would cut the model up again
    model = AutoModelForSeq2SeqLM.from_pretrained(folder)
    fold_temperature(model, temperature).save_pretrained(folder)


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
    print("\nWritten:")
    for report in reports:
        print(f"  {report}: {', '.join(sorted(path.name for path in report.iterdir()))}")
    print("\nNext:")
    print("  read samples.md, and see in curves.png what a temperature does to BLEU")
    print("  load a model, its temperature folded in: AutoModelForSeq2SeqLM.from_pretrained(<the run's folder>)")
    print("  your own pairs: --train_file train.csv --test_file test.csv (columns en and de) --output_dir <another>")


def load_data(data: DataArguments, seed: int) -> DatasetDict:
    """The splits "train", "validation", "test" and, if there is one, "other_test"."""
    if data.dataset_name is None and not data.files():
        held_out = data.validation_size or max(1, data.num_generated // 20)
        sizes = {"train": data.num_generated, "validation": held_out, "test": held_out}
        return DatasetDict(
            {name: generate_translations(n, seed=seed + i) for i, (name, n) in enumerate(sizes.items())}
        )
    if data.train_file is not None and data.test_file is None:
        raise ValueError(
            "test_file must be given, got None: the report is about data that neither training nor T has seen"
        )
    languages = {"source_lang": data.source_lang, "target_lang": data.target_lang}
    splits = load_parallel(
        data.dataset_name,
        data.dataset_config_name,
        data.train_file,
        data.validation_file,
        data.test_file,
        **languages,
        validation_size=data.validation_size,
        seed=seed,
    )
    if data.other_test_file is not None:
        other = load_pairs("other_test_file", data.other_test_file, **languages)
        splits["other_test"] = select_pairs(f"other_test_file {data.other_test_file!r}", other, **languages)
    return splits


def load_tokenizer(data: DataArguments, model: ModelArguments, splits: DatasetDict) -> PreTrainedTokenizerBase:
    if model.model_name_or_path != "transformer":
        return AutoTokenizer.from_pretrained(model.model_name_or_path)
    train = splits["train"]
    return train_bpe_tokenizer(texts(train), model.vocab_size, model.max_length)


def texts(split: Dataset) -> Iterable[str]:
    for rows in split.iter(batch_size=10_000):
        yield from rows["source"]
        yield from rows["target"]


def encode(name: str, split: Dataset, tokenizer: PreTrainedTokenizerBase, model: ModelArguments) -> Dataset:
    """Token ids and labels. Training pairs that are too long are dropped: a cut one would be no translation."""
    cut = {} if name == "train" else {"truncation": True, "max_length": model.max_length}

    def tokenize(rows):
        return tokenizer(rows["source"], text_target=rows["target"], **cut)

    encoded = split.map(tokenize, batched=True, remove_columns=split.column_names, desc=f"tokenising {name}")
    if name != "train":
        return encoded

    def fit(rows):
        sides = zip(rows["input_ids"], rows["labels"], strict=True)
        return [max(len(source), len(target)) <= model.max_length for source, target in sides]

    kept = encoded.filter(fit, batched=True, desc="dropping long pairs")
    if len(kept) < len(encoded):
        logging.info("dropped %d of %d training pairs: over max_length", len(encoded) - len(kept), len(encoded))
    if not len(kept):
        raise ValueError(f"max_length must leave training pairs, got {model.max_length}: all of them are longer")
    return kept


def build_model(experiment: Experiment):
    model, tokenizer = experiment.model, experiment.tokenizer
    if model.model_name_or_path != "transformer":
        # Also where the weights were saved in half precision: mixed precision wants them whole.
        network = AutoModelForSeq2SeqLM.from_pretrained(model.model_name_or_path, dtype=torch.float32)
    else:
        sizes = {
            f"{side}_{name}": size
            for side in ("encoder", "decoder")
            for name, size in (
                ("layers", model.num_layers),
                ("attention_heads", model.num_heads),
                ("ffn_dim", model.ffn_dim),
            )
        }
        config = MarianConfig(
            vocab_size=len(tokenizer),
            decoder_vocab_size=len(tokenizer),
            d_model=model.d_model,
            **sizes,
            activation_function="relu",
            dropout=model.dropout,
            init_std=model.d_model**-0.5,
            scale_embedding=True,
            max_position_embeddings=model.max_length,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id,
            decoder_start_token_id=tokenizer.pad_token_id,
            bos_token_id=None,
            forced_eos_token_id=None,
        )
        network = MarianMTModel(config)
    network.generation_config.update(**generation_options(experiment))
    return network


if __name__ == "__main__":
    try:
        prepared = prepare(sys.argv[1:])
    except (ValueError, OSError) as error:  # the user's: one line, as argparse has it
        print(f"{Path(__file__).name}: error: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)
    train(prepared)
