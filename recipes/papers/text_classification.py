"""Train the CNN of Mukhoti et al. 2020 on texts, correct its temperature, and measure its calibration.

On the posts of 20 Newsgroups:

    python recipes/papers/text_classification.py --config recipes/papers/configs/newsgroups/gp_cnn.yaml \
        --train_file train.parquet --test_file test.parquet --losses cross_entropy,flsd53 --output_dir out/newsgroups

Without data arguments, on generated texts:

    python recipes/papers/text_classification.py --config recipes/papers/configs/demo.yaml \
        --losses cross_entropy,focal:gamma=3,flsd53 --output_dir out/demo

With --model_name_or_path, an encoder is fine-tuned instead, as for the papers' BERT; for other encoders, take
recipes/text_classification.py.
"""

import sys
from dataclasses import dataclass

import torch
from datasets import ClassLabel, DatasetDict, List
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    set_seed,
)

from hf_focal import FocalTrainer, FocalTrainingArguments, load_splits
from hf_focal.reports import RunResult
from hf_focal.tasks import input_length
from papers import checks as check
from papers.argument_fields import argument
from papers.data.generated_topic_sets import generate_topic_sets
from papers.data.generated_topics import generate_topics
from papers.data.label_options import label_options
from papers.data.newsgroups import strip_posts
from papers.data.tokenizer_training import train_word_tokenizer
from papers.models import GPCNNConfig
from papers.models.gp_cnn import VARIANTS
from papers.runs.arguments import (
    DatasetArguments,
    LongTailArguments,
    SampleClassifierArguments,
    generated_splits,
    parse_experiment,
)
from papers.runs.classifier_results import run_classifier, sample_tables
from papers.runs.loss_comparison import train_each_loss
from papers.runs.word_vectors import WordVectorArguments, build_optimizer, load_word_vectors

LONGEST_POST = 100_000  # no post of 20 Newsgroups has as many words


@dataclass(kw_only=True)
class TextDataArguments(LongTailArguments, DatasetArguments):
    """The data. Without `dataset_name` or files, the recipe generates texts."""

    text_column: str = argument("text", "The column of texts.")
    label_column: str = argument("label", "The column, or columns, of labels.")
    strip: str = argument("none", "Parts of raw posts to remove: some of 'headers,footers,quotes', or 'none'.")
    multi_label: bool = argument(False, "Generate texts with several labels each.")
    num_generated: int = argument(4000, "Number of training texts to generate.")

    def __post_init__(self):
        super().__post_init__()
        check.at_least(1, self, "num_generated")


@dataclass
class TextModelArguments(WordVectorArguments):
    """The global-pooling CNN, or an encoder to fine-tune."""

    model_name_or_path: str = argument(
        "gp_cnn", "'gp_cnn', trained from scratch; or the Hub id or folder of an encoder."
    )
    variant: str = argument("official", "'official', as in the paper's code, or 'strided', which is faster.")
    dropout: float = argument(0.3, "Dropout before the CNN's last layer.")
    max_length: int | None = argument(
        None,
        "Read this many words of a text, the last ones if official, else the first. Default: 1000, or the "
        "limit of an encoder.",
    )
    num_filters: int = argument(128, "Channels of each convolution.")
    num_layers: int = argument(3, "Convolutions.")

    def __post_init__(self):
        super().__post_init__()
        check.at_least(1, self, "max_length", "num_filters", "num_layers")
        check.choice("variant", self.variant, list(VARIANTS))
        check.model_name(self.model_name_or_path, ["gp_cnn"])
        if not 0 <= self.dropout <= 1:
            raise ValueError(f"dropout must be from 0 to 1, got {self.dropout}")

    @property
    def is_official(self) -> bool:
        return self.model_name_or_path == "gp_cnn" and self.variant == "official"


ARGUMENTS = (TextDataArguments, TextModelArguments, SampleClassifierArguments, FocalTrainingArguments)


def load_data(data_args: TextDataArguments, seed: int) -> tuple[DatasetDict, list[str]]:
    """Load "train", "validation", and "test" with the columns "text" and "labels", and the names of the labels."""
    if data_args.names_data():
        columns = {"text_column": data_args.text_column, "label_column": data_args.label_column}
        splits, names = load_splits("text-classification", **data_args.location(), **columns, seed=seed)
        splits = strip_posts(splits, data_args.strip)
    else:
        generate, count = generate_topic_sets if data_args.multi_label else generate_topics, data_args.num_generated
        sizes = {"train": count, "validation": data_args.validation_size or max(1, count // 10), "test": count}
        splits = generated_splits(generate, sizes, seed)
        splits = splits.rename_column("label", "labels")
        labels = splits["train"].features["labels"]
        names = labels.names if isinstance(labels, ClassLabel) else [f"topic {k}" for k in range(labels.length)]
    return data_args.cut_training_data(splits, seed), names


def load_tokenizer(model_args: TextModelArguments, splits: DatasetDict) -> tuple[PreTrainedTokenizerBase, int]:
    """Load or train the tokenizer. Return it with the number of tokens to which inputs are truncated."""
    name, max_length = model_args.model_name_or_path, model_args.max_length
    if name == "gp_cnn":
        max_length = LONGEST_POST if model_args.is_official else max_length or 1000
        return train_word_tokenizer(splits["train"]["text"], model_args.vocab_size, max_length), max_length
    tokenizer = AutoTokenizer.from_pretrained(name)
    return tokenizer, input_length(name, tokenizer, max_length)


def tokenize(
    splits: DatasetDict, tokenizer: PreTrainedTokenizerBase, max_length: int, model_args: TextModelArguments
) -> DatasetDict:
    """Encode texts as token ids, labels, and the number of ids ("length", by which batches may be grouped)."""

    def encode(batch):
        tokens = tokenizer(batch["text"], truncation=True, max_length=max_length)
        if model_args.is_official:
            # Keep the words that the network reads: padding to the longest post would take 40% of the time.
            known = ([i for i in ids if i != tokenizer.unk_token_id] for ids in tokens["input_ids"])
            tokens = {"input_ids": [ids[-(model_args.max_length or 1000) :] for ids in known]}
        return {**tokens, "length": [len(ids) for ids in tokens["input_ids"]], "labels": batch["labels"]}

    return splits.map(encode, batched=True, remove_columns=splits["train"].column_names, desc="tokenizing")


def build_model(
    model_args: TextModelArguments, tokenizer: PreTrainedTokenizerBase, class_names: list[str], several: bool = False
) -> PreTrainedModel:
    labels = label_options(class_names, several)
    if model_args.model_name_or_path != "gp_cnn":
        return AutoModelForSequenceClassification.from_pretrained(
            model_args.model_name_or_path, dtype=torch.float32, ignore_mismatched_sizes=True, **labels
        )
    config = GPCNNConfig(
        vocab_size=len(tokenizer),
        pad_token_id=tokenizer.pad_token_id,
        unk_token_id=tokenizer.unk_token_id if model_args.is_official else None,
        variant=model_args.variant,
        dropout=model_args.dropout,
        max_words=model_args.max_length or 1000,
        embedding_size=model_args.embedding_size,
        num_filters=model_args.num_filters,
        num_layers=model_args.num_layers,
        **labels,
    )
    return AutoModelForSequenceClassification.from_config(config)


def main(argv: list[str]) -> list[RunResult]:
    (data_args, model_args, recipe_args), runs = parse_experiment(ARGUMENTS, argv, __doc__)
    args = runs[0]
    with args.main_process_first(desc="loading the data"):
        splits, class_names = load_data(data_args, args.seed)
        several = isinstance(splits["train"].features["labels"], List)
        if several:
            recipe_args.check_multi_label()
        tokenizer, max_length = load_tokenizer(model_args, splits)
        encoded = tokenize(splits, tokenizer, max_length, model_args)
        word_vectors = load_word_vectors(model_args, tokenizer, args.seed, zero_unknown=model_args.is_official)

    def train_one(args: FocalTrainingArguments, checkpoint: str | None) -> RunResult:
        set_seed(args.seed)
        model = build_model(model_args, tokenizer, class_names, several)
        if word_vectors is not None:
            model.get_input_embeddings().weight.data.copy_(word_vectors)
        trainer = FocalTrainer(
            model=model,
            args=args,
            train_dataset=encoded["train"],
            eval_dataset=encoded["validation"],
            calibration_dataset=encoded["validation"],
            processing_class=tokenizer,
            data_collator=DataCollatorWithPadding(tokenizer),
            optimizers=(build_optimizer(model, args, model_args), None),
        )
        return run_classifier(trainer, checkpoint, recipe_args, encoded["test"], splits)

    return train_each_loss(train_one, runs, recipe_args, settings=(data_args, model_args), summary=sample_tables)


if __name__ == "__main__":
    main(sys.argv[1:])
