"""Train a Transformer to translate, correct its temperature, and measure its token predictions and its BLEU.

Train with one loss:

    python recipes/papers/translation.py --config recipes/papers/configs/multi30k/transformer_small.yaml \
        --train_file train.parquet --test_file test.parquet --loss focal:gamma=1 --output_dir out/focal

Compare several losses in one table and one figure. Without data arguments, the data is generated sentence pairs:

    python recipes/papers/translation.py --config recipes/papers/configs/translation_demo.yaml \
        --losses cross_entropy,label_smoothing:alpha=0.1,focal:gamma=1 --output_dir out/translation
"""

import math
import sys
from dataclasses import dataclass
from pathlib import Path

from datasets import DatasetDict
from sacrebleu.metrics import BLEU
from transformers import DataCollatorForSeq2Seq, MarianMTModel, PreTrainedModel, PreTrainedTokenizerBase, set_seed

from hf_focal import FocalSeq2SeqTrainer, FocalSeq2SeqTrainingArguments
from papers import checks as check
from papers.argument_fields import argument
from papers.data.generated_translations import generate_translations
from papers.data.parallel_corpora import encode_pairs, load_parallel
from papers.data.tokenizer_training import train_bpe_tokenizer
from papers.figures.translation_report import (
    translation_summary,
    write_translation_comparison,
    write_translation_report,
)
from papers.models import transformer_config
from papers.runs.arguments import DatasetArguments, TemperatureArguments, generated_splits, parse_experiment
from papers.runs.checkpoint_averaging import average_last_checkpoints, check_averaging
from papers.runs.loss_comparison import train_each_loss
from papers.runs.translation_results import measure_translator


@dataclass(kw_only=True)
class TranslationDataArguments(DatasetArguments):
    """The data. Without `dataset_name` or files, the recipe generates pairs."""

    source_lang: str = argument("en", "The language to translate from, and its column.")
    target_lang: str = argument("de", "The language to translate to, and its column.")
    num_generated: int = argument(20_000, "Number of training pairs to generate.")

    def __post_init__(self):
        super().__post_init__()
        check.at_least(1, self, "num_generated")


@dataclass
class TransformerArguments:
    """The model: a Transformer, trained from scratch. `recipes/translation.py` fine-tunes other models."""

    _argument_group_name = "model"
    max_length: int = argument(
        128, "Drop longer training pairs, and truncate test inputs and translations to this length."
    )
    vocab_size: int = argument(37_000, "Largest size of the shared vocabulary.")
    d_model: int = argument(512, "Width.")
    num_layers: int = argument(6, "Layers of the encoder, and of the decoder.")
    num_heads: int = argument(8, "Attention heads.")
    ffn_dim: int = argument(2048, "Width of the feed-forward layers.")
    dropout: float = argument(0.1, "Dropout of each residual branch.")

    def __post_init__(self):
        check.at_least(1, self, "max_length", "vocab_size", "d_model", "num_layers", "num_heads", "ffn_dim")
        if self.d_model % (2 * self.num_heads):
            raise ValueError(f"d_model must be a multiple of 2 * num_heads, got {self.d_model} for {self.num_heads}")
        check.fraction(self, "dropout")


@dataclass
class TranslationArguments(TemperatureArguments):
    """Arguments that say which losses to compare, how to fit the temperature, and how to translate."""

    bleu_temperatures: list[float] = argument(
        [0.5, 0.75, 1.0, 1.25, 1.5, 2.0],
        "Temperatures at which to translate and compute BLEU, besides 1 and the fitted one.",
    )
    length_penalty: float = argument(
        0.6, "Beam search divides scores by the length to this power (the papers: by ((5 + length) / 6) to it)."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not math.isfinite(self.length_penalty):
            raise ValueError(f"length_penalty must be a finite number, got {self.length_penalty}")
        if not all(0 < value < math.inf for value in self.bleu_temperatures):
            raise ValueError(f"bleu_temperatures must be positive numbers, got {self.bleu_temperatures}")


@dataclass
class TranslationTrainingArguments(FocalSeq2SeqTrainingArguments):
    """`FocalSeq2SeqTrainingArguments` with arguments for beam search and for averaging checkpoints."""

    predict_with_generate: bool = argument(True, "Translate with `generate`; must be true.")
    generation_num_beams: int | None = argument(4, "Beams of beam search.")
    average_checkpoints: int = argument(1, "Average the weights of this many of the last checkpoints.")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.predict_with_generate = True
        check.at_least(1, self, "average_checkpoints")
        check_averaging(self.average_checkpoints, self)
        if self.generation_max_length is not None:
            raise ValueError(
                f"generation_max_length must not be given, got {self.generation_max_length}: use max_length"
            )


ARGUMENTS = (TranslationDataArguments, TransformerArguments, TranslationArguments, TranslationTrainingArguments)


def load_data(data_args: TranslationDataArguments, seed: int) -> DatasetDict:
    """Load "train", "validation", and "test" with the columns "source" and "target"."""
    if data_args.names_data():
        languages = {"source_lang": data_args.source_lang, "target_lang": data_args.target_lang}
        return load_parallel(**data_args.location(), **languages, seed=seed)
    held_out = data_args.validation_size or max(1, data_args.num_generated // 20)
    sizes = {"train": data_args.num_generated, "validation": held_out, "test": held_out}
    return generated_splits(generate_translations, sizes, seed)


def train_tokenizer(model_args: TransformerArguments, splits: DatasetDict) -> PreTrainedTokenizerBase:
    batches = splits["train"].iter(batch_size=10_000)
    texts = (text for batch in batches for text in (*batch["source"], *batch["target"]))
    return train_bpe_tokenizer(texts, model_args.vocab_size, model_args.max_length)


def build_model(model_args: TransformerArguments, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    sizes = ("max_length", "d_model", "num_layers", "num_heads", "ffn_dim", "dropout")
    return MarianMTModel(transformer_config(tokenizer, **{name: getattr(model_args, name) for name in sizes}))


def main(argv: list[str]) -> list:
    (data_args, model_args, recipe_args), runs = parse_experiment(ARGUMENTS, argv, __doc__)
    args = runs[0]
    bleu = BLEU(trg_lang=data_args.target_lang)  # raises if the language's tokenizer is not installed

    with args.main_process_first(desc="loading the data"):
        splits = load_data(data_args, args.seed)
        tokenizer = train_tokenizer(model_args, splits)
        encoded = DatasetDict(
            {
                name: encode_pairs(split, tokenizer, model_args.max_length, cut=name != "train")
                for name, split in splits.items()
            }
        )
    # Scores are renormalized at T = 1 too, so that they stay comparable if a model forbids tokens.
    generation = {
        "max_length": model_args.max_length,
        "num_beams": args.generation_num_beams,
        "renormalize_logits": True,
    }
    if args.generation_num_beams > 1:
        generation["length_penalty"] = recipe_args.length_penalty

    def train_one(args: TranslationTrainingArguments, checkpoint: str | None):
        set_seed(args.seed)
        model = build_model(model_args, tokenizer)
        if args.device.type == "cpu":
            # There, the backward pass of fused attention is slow: with it, a training step takes 1.6 times as long.
            model.set_attn_implementation("eager")
        model.generation_config.update(**generation)
        trainer = FocalSeq2SeqTrainer(
            model=model,
            args=args,
            train_dataset=encoded["train"],
            eval_dataset=encoded["validation"],
            calibration_dataset=encoded["validation"],
            processing_class=tokenizer,
            data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
        )
        trained = trainer.train(resume_from_checkpoint=checkpoint)
        trainer.save_state()
        if args.average_checkpoints > 1:
            average_last_checkpoints(trainer, args.average_checkpoints)

        temperature = trainer.fit_temperature(objective=recipe_args.temperature_objective)
        references, temperatures = splits["test"]["target"][:], recipe_args.bleu_temperatures
        result = measure_translator(trainer, trained, temperature, encoded["test"], references, bleu, temperatures)
        trainer.save_calibrated()
        if args.process_index == 0:
            write_translation_report(Path(args.output_dir) / "report", result)  # last: the run is finished
        return result

    settings = {"length_penalty": recipe_args.length_penalty}
    if args.average_checkpoints > 1:
        settings |= {"save_strategy": args.save_strategy, "save_steps": args.save_steps}
    return train_each_loss(
        train_one,
        runs,
        recipe_args,
        settings=(data_args, model_args, settings),
        summary=translation_summary,
        compare=write_translation_comparison,
        reusable=lambda result: result.bleu.keys() >= {*recipe_args.bleu_temperatures},
    )


if __name__ == "__main__":
    main(sys.argv[1:])
