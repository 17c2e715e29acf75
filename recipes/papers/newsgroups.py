"""Train the CNN of Mukhoti et al. 2020 on 20 Newsgroups, correct its temperature, and measure its calibration.

    python recipes/papers/newsgroups.py --config recipes/papers/configs/newsgroups/gp_cnn.yaml \
        --train_file train.parquet --test_file test.parquet --compare cross_entropy,flsd53 --output_dir out/newsgroups

On several GPUs: `accelerate launch --num_processes 4 recipes/papers/newsgroups.py ...`. Running the same command again
resumes an interrupted run and reuses a finished one.
"""

from dataclasses import dataclass, field

from datasets import DatasetDict
from transformers import (
    AutoModelForSequenceClassification,
    DataCollatorWithPadding,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    set_seed,
)

from hf_focal import FocalTrainer, FocalTrainingArguments
from hf_focal.reports import RunResult
from papers.data.labeled_splits import load_labeled
from papers.data.newsgroups import strip_posts
from papers.data.pretrained_models import label_options
from papers.data.tokenizer_training import train_word_tokenizer
from papers.models import GPCNNConfig
from papers.models.gp_cnn import VARIANTS
from papers.runs import recipe_checks as check
from papers.runs.classifier_results import run_classifier, sample_tables
from papers.runs.loss_comparison import train_each_loss
from papers.runs.recipe_arguments import DatasetArguments, LongTailArguments, SampleClassifierArguments, parse_recipe
from papers.runs.recipe_command import run_recipe
from papers.runs.word_vectors import WordVectorArguments, build_optimizer, load_word_vectors


@dataclass
class DataArguments(LongTailArguments, DatasetArguments):
    """The posts of 20 Newsgroups."""

    text_column: str = field(default="text", metadata={"help": "The column of posts."})
    label_column: str = field(default="label", metadata={"help": "The column of newsgroups."})
    strip: str = field(
        default="none", metadata={"help": "Parts of raw posts to remove: some of 'headers,footers,quotes', or 'none'."}
    )


@dataclass
class ModelArguments(WordVectorArguments):
    """The global-pooling CNN."""

    model_name_or_path: str = field(default="gp_cnn", metadata={"help": "Must be 'gp_cnn'."})
    variant: str = field(
        default="official", metadata={"help": "'official', as in the paper's code, or 'strided', which is faster."}
    )
    dropout: float = field(default=0.3, metadata={"help": "Dropout before the last layer."})
    max_length: int = field(
        default=1000, metadata={"help": "Read this many words of a post: the last ones if official, else the first."}
    )
    num_filters: int = field(default=128, metadata={"help": "Channels of each convolution."})
    num_layers: int = field(default=3, metadata={"help": "Convolutions."})

    def __post_init__(self):
        super().__post_init__()
        check.at_least(1, self, "max_length", "num_filters", "num_layers")
        check.choice("variant", self.variant, list(VARIANTS))
        if not 0 <= self.dropout <= 1:
            raise ValueError(f"dropout must be from 0 to 1, got {self.dropout}")
        if self.model_name_or_path != "gp_cnn":
            raise ValueError(
                f"model_name_or_path must be 'gp_cnn', got {self.model_name_or_path!r}: "
                "recipes/papers/text_classification.py fine-tunes encoders"
            )

    @property
    def max_tokens(self) -> int:
        """Tokens that the tokenizer keeps. The official network itself leaves out unknown words and truncates."""
        return self.max_length if self.variant == "strided" else _LONGEST_POST


# No post of 20 Newsgroups has as many words.
_LONGEST_POST = 100_000

ARGUMENTS = (DataArguments, ModelArguments, SampleClassifierArguments, FocalTrainingArguments)


def load_data(data_args: DataArguments, seed: int) -> DatasetDict:
    """Load "train", "validation", and "test", with the stripped posts in "text" and their newsgroups in "label"."""
    columns = {"text_column": data_args.text_column, "label_column": data_args.label_column}
    splits = load_labeled("text-classification", **data_args.source(seed), **columns)
    return data_args.cut_training_data(strip_posts(splits, data_args.strip), seed)


def tokenize(splits: DatasetDict, tokenizer: PreTrainedTokenizerBase, model_args: ModelArguments) -> DatasetDict:
    """Encode posts as word ids, labels, and the number of ids ("length", by which batches are grouped)."""

    def encode(batch):
        posts = tokenizer(batch["text"], truncation=True, max_length=model_args.max_tokens)["input_ids"]
        if model_args.variant == "official":
            # Keep the words that the network reads: padding to the longest post would take 40% of the time.
            posts = [[i for i in ids if i != tokenizer.unk_token_id][-model_args.max_length :] for ids in posts]
        return {"input_ids": posts, "length": [len(ids) for ids in posts], "labels": batch["label"]}

    return splits.map(encode, batched=True, remove_columns=splits["train"].column_names, desc="tokenizing")


def build_model(
    model_args: ModelArguments, tokenizer: PreTrainedTokenizerBase, class_names: list[str]
) -> PreTrainedModel:
    config = GPCNNConfig(
        vocab_size=len(tokenizer),
        pad_token_id=tokenizer.pad_token_id,
        unk_token_id=tokenizer.unk_token_id,
        variant=model_args.variant,
        dropout=model_args.dropout,
        max_words=model_args.max_length,
        embedding_size=model_args.embedding_size,
        num_filters=model_args.num_filters,
        num_layers=model_args.num_layers,
        **label_options(class_names),
    )
    return AutoModelForSequenceClassification.from_config(config)


def main(argv: list[str]) -> list[RunResult]:
    data_args, model_args, recipe_args, args = parse_recipe(ARGUMENTS, argv, __doc__)

    with args.main_process_first(desc="loading the data"):
        splits = load_data(data_args, args.seed)
        class_names = splits["train"].features["label"].names
        tokenizer = train_word_tokenizer(splits["train"]["text"], model_args.vocab_size, model_args.max_tokens)
        encoded = tokenize(splits, tokenizer, model_args)
        word_vectors = load_word_vectors(
            model_args, tokenizer, args.seed, zero_unknown=model_args.variant == "official"
        )

    def train_one(args: FocalTrainingArguments, checkpoint: str | None) -> RunResult:
        set_seed(args.seed)
        model = build_model(model_args, tokenizer, class_names)
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
        names = data_args.card_names("20 Newsgroups")
        return run_classifier(trainer, checkpoint, recipe_args, encoded["test"], splits, names, keep_logits=True)

    return train_each_loss(
        train_one,
        args,
        recipe_args,
        settings=(data_args, model_args),
        num_classes=len(class_names),
        calibration_size=len(encoded["validation"]),
        summary=sample_tables,
    )


if __name__ == "__main__":
    run_recipe(main)
