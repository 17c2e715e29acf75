"""Train or fine-tune a tagger, correct its temperature, and measure how well it classifies words.

Train with one loss:

    python recipes/papers/token_classification.py --config recipes/papers/configs/conll2003/encoder.yaml \
        --model_name_or_path distilbert/distilbert-base-cased --train_file train.parquet --test_file test.parquet \
        --loss focal:gamma=2 --output_dir out/focal

Compare several losses in one table and one figure. Without data arguments, the data is generated sentences:

    python recipes/papers/token_classification.py --config recipes/papers/configs/tags_demo.yaml \
        --compare cross_entropy,focal:gamma=2 --output_dir out/tags

On several GPUs: `accelerate launch --num_processes 4 recipes/papers/token_classification.py ...`.
Running the same command again resumes an interrupted run and reuses a finished one.
"""

from dataclasses import dataclass, field

import torch
from datasets import Dataset, DatasetDict
from transformers import (
    AutoModelForTokenClassification,
    AutoTokenizer,
    BertConfig,
    DataCollatorForTokenClassification,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    set_seed,
)

from hf_focal import FocalTrainer, FocalTrainingArguments, load_splits
from hf_focal.reports import RunResult
from hf_focal.tasks.input_encoding import input_length
from papers.data.generated_tags import generate_tags
from papers.data.pretrained_models import label_options
from papers.data.tokenizer_training import train_tag_tokenizer
from papers.data.word_tags import encode_tags, tag_names
from papers.runs import recipe_checks as check
from papers.runs.classifier_results import class_tables, run_dense_classifier, write_class_comparison
from papers.runs.loss_comparison import train_each_loss
from papers.runs.recipe_arguments import ClassifierArguments, GeneratedDatasetArguments, parse_recipe
from papers.runs.recipe_command import run_recipe


@dataclass
class DataArguments(GeneratedDatasetArguments):
    """The data. Without `dataset_name` or files, the recipe generates sentences in which some tags are rare."""

    train_file: str | None = field(default=None, metadata={"help": "A json, jsonl or parquet file."})
    token_column: str = field(default="tokens", metadata={"help": "The column of lists of words."})
    tag_column: str = field(default="tags", metadata={"help": "The column of lists of tags, one per word."})
    num_generated: int = field(default=3000, metadata={"help": "Number of training sentences to generate."})


@dataclass
class ModelArguments:
    """The model: any encoder to fine-tune, or a small encoder to train from scratch on whole words."""

    _argument_group_name = "model"
    model_name_or_path: str = field(
        default="encoder", metadata={"help": "A Hub id or folder; or 'encoder', trained from scratch."}
    )
    max_length: int | None = field(
        default=None,
        metadata={"help": "Truncate sentences to this many tokens. Default: the model's limit, or 128 for encoder."},
    )
    vocab_size: int = field(default=20_000, metadata={"help": "encoder: words in the vocabulary."})
    hidden_size: int = field(default=64, metadata={"help": "encoder: width, a multiple of 16."})
    num_layers: int = field(default=2, metadata={"help": "encoder: layers."})
    dropout: float = field(default=0.1, metadata={"help": "encoder: dropout."})

    def __post_init__(self):
        check.model_name(self.model_name_or_path, ["encoder"])
        check.at_least(1, self, "max_length", "vocab_size", "hidden_size", "num_layers")
        if self.hidden_size % 16:
            raise ValueError(f"hidden_size must be a multiple of 16, got {self.hidden_size}")
        check.fraction(self, "dropout")


ARGUMENTS = (DataArguments, ModelArguments, ClassifierArguments, FocalTrainingArguments)


def load_data(data_args: DataArguments, seed: int) -> DatasetDict:
    """Load the splits "train", "validation", and "test", with the columns "tokens" and "tags"."""
    if data_args.given():
        columns = {"token_column": data_args.token_column, "tag_column": data_args.tag_column}
        splits, _ = load_splits("token-classification", **data_args.source(seed), **columns)
        return splits.rename_column("labels", "tags")
    return data_args.generate(generate_tags, seed)


def load_tokenizer(model_args: ModelArguments, splits: DatasetDict) -> tuple[PreTrainedTokenizerBase, int]:
    """Load or train the tokenizer. Return it with the number of tokens to which sentences are truncated."""
    name, max_length = model_args.model_name_or_path, model_args.max_length
    if name == "encoder":
        words = splits["train"]["tokens"]
        return train_tag_tokenizer(words, model_args.vocab_size, max_length or 128), max_length or 128
    tokenizer = AutoTokenizer.from_pretrained(name)
    if getattr(tokenizer, "add_prefix_space", True) is False:  # GPT-2's and RoBERTa's reject words without it
        tokenizer = AutoTokenizer.from_pretrained(name, add_prefix_space=True)
    if not tokenizer.is_fast:
        raise ValueError(f"model_name_or_path must have a fast tokenizer, which knows words, got {name!r}")
    return tokenizer, input_length(name, tokenizer, max_length)


def build_model(model_args: ModelArguments, tokenizer: PreTrainedTokenizerBase, tags: list[str]) -> PreTrainedModel:
    name, labels = model_args.model_name_or_path, label_options(tags)
    if name != "encoder":
        return AutoModelForTokenClassification.from_pretrained(name, ignore_mismatched_sizes=True, **labels)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=model_args.hidden_size,
        num_hidden_layers=model_args.num_layers,
        num_attention_heads=model_args.hidden_size // 16,
        intermediate_size=2 * model_args.hidden_size,
        max_position_embeddings=model_args.max_length or 128,
        hidden_dropout_prob=model_args.dropout,
        attention_probs_dropout_prob=model_args.dropout,
        pad_token_id=tokenizer.pad_token_id,
        **labels,
    )
    return AutoModelForTokenClassification.from_config(config)


def count_tags(encoded: Dataset, num_tags: int) -> torch.Tensor:
    """Count the words with each tag in a split that `encode_tags` has encoded."""
    labels = [label for labels in encoded["labels"] for label in labels if label != -100]
    return torch.bincount(torch.tensor(labels), minlength=num_tags)


def main(argv: list[str]) -> list[RunResult]:
    data_args, model_args, recipe_args, args = parse_recipe(ARGUMENTS, argv, __doc__)

    with args.main_process_first(desc="loading the data"):
        splits = load_data(data_args, args.seed)
        tags = tag_names(splits)
        tokenizer, max_length = load_tokenizer(model_args, splits)
        encoded = DatasetDict({name: encode_tags(split, tokenizer, max_length) for name, split in splits.items()})

    def train_one(args: FocalTrainingArguments, checkpoint: str | None) -> RunResult:
        set_seed(args.seed)
        trainer = FocalTrainer(
            model=build_model(model_args, tokenizer, tags),
            args=args,
            train_dataset=encoded["train"],
            eval_dataset=encoded["validation"],
            calibration_dataset=encoded["validation"],
            processing_class=tokenizer,
            data_collator=DataCollatorForTokenClassification(tokenizer),
        )
        counts = count_tags(encoded["train"], len(tags))
        card_names = data_args.card_names("generated sentences")
        return run_dense_classifier(trainer, checkpoint, recipe_args, encoded["test"], tags, counts, card_names)

    return train_each_loss(
        train_one,
        args,
        recipe_args,
        settings=(data_args, model_args),
        num_classes=len(tags),
        calibration_size=int(count_tags(encoded["validation"], len(tags)).sum()),
        unit="words",
        summary=summary,
        next_steps=[
            "load a model with its temperature: AutoModelForTokenClassification.from_pretrained({folder!r})",
            None
            if data_args.given()
            else "use your own sentences: --train_file train.jsonl --test_file test.jsonl "
            "(columns tokens and tags) --output_dir <another>",
        ],
        compare=write_class_comparison,
    )


def summary(results: list[RunResult]) -> str:
    return "\n".join(
        [class_tables(results), "Before → after temperature scaling, for each word of the test set; bold is best."]
    )


if __name__ == "__main__":
    run_recipe(main)
