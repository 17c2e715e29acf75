"""Fine-tune an encoder that classifies texts or pairs of texts, correct its temperature, and measure its calibration.

Train with one loss:

    python recipes/papers/text_classification.py --model_name_or_path distilbert/distilbert-base-uncased \
        --train_file train.csv --test_file test.csv --loss flsd53 --output_dir out/flsd53

Compare several losses in one table and one figure. Without data and model arguments, this trains a small CNN on
generated texts:

    python recipes/papers/text_classification.py --config recipes/papers/configs/demo.yaml \
        --compare cross_entropy,focal:gamma=3,flsd53 --output_dir out/demo

On several GPUs: `accelerate launch --num_processes 4 recipes/papers/text_classification.py ...`.
Running the same command again resumes an interrupted run and reuses a finished one.
"""

from dataclasses import dataclass, field

from datasets import DatasetDict
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    set_seed,
)

from hf_focal import FocalTrainer, FocalTrainingArguments
from hf_focal.reports import RunResult
from hf_focal.tasks.input_encoding import input_length
from papers.data.generated_topic_sets import generate_topic_sets
from papers.data.generated_topics import generate_topics
from papers.data.labeled_splits import label_names, load_labeled
from papers.data.pretrained_models import label_options
from papers.data.tokenizer_training import train_word_tokenizer
from papers.models import GPCNNConfig
from papers.runs import recipe_checks as check
from papers.runs.classifier_results import run_classifier, sample_tables
from papers.runs.lora_arguments import LoraArguments
from papers.runs.loss_comparison import train_each_loss
from papers.runs.recipe_arguments import (
    GeneratedDatasetArguments,
    LongTailArguments,
    SampleClassifierArguments,
    parse_recipe,
)
from papers.runs.recipe_command import run_recipe


@dataclass
class DataArguments(LongTailArguments, GeneratedDatasetArguments):
    """The data. Without `dataset_name` or files, the recipe generates texts whose true label posterior is known."""

    text_column: str = field(default="text", metadata={"help": "The column of texts."})
    text_pair_column: str | None = field(default=None, metadata={"help": "The column of second texts, for pairs."})
    label_column: str = field(default="label", metadata={"help": "The column of labels; see multi_label."})
    multi_label: bool = field(
        default=False, metadata={"help": "Several labels per text: lists, or columns of 0 and 1: toxic,insult,threat."}
    )
    num_generated: int = field(default=4000, metadata={"help": "Number of training texts to generate."})


@dataclass
class ModelArguments(LoraArguments):
    """The model: any encoder to fine-tune, or a small CNN to train from scratch."""

    _argument_group_name = "model"
    model_name_or_path: str = field(
        default="gp_cnn", metadata={"help": "A Hub id or folder; or 'gp_cnn', a CNN trained from scratch."}
    )
    revision: str = field(default="main", metadata={"help": "Branch, tag or commit of the model on the Hub."})
    dtype: str | None = field(
        default=None, metadata={"help": "Dtype to load the weights in: 'float32', 'bfloat16'. Default: as saved."}
    )
    attn_implementation: str | None = field(
        default=None, metadata={"help": "Attention: 'eager', 'sdpa', 'flash_attention_2'. Default: the model's."}
    )
    max_length: int | None = field(
        default=None, metadata={"help": "Truncate inputs to this many tokens. Default: the model's limit, or 1000."}
    )
    ignore_mismatched_sizes: bool = field(
        default=False, metadata={"help": "Replace the head of a classifier that has other classes with a new one."}
    )
    vocab_size: int = field(default=20_000, metadata={"help": "gp_cnn: words in the vocabulary."})
    embedding_size: int = field(default=100, metadata={"help": "gp_cnn: width of the word vectors."})
    num_filters: int = field(default=128, metadata={"help": "gp_cnn: channels of each convolution."})
    num_layers: int = field(default=3, metadata={"help": "gp_cnn: convolutions."})

    def __post_init__(self):
        check.model_name(self.model_name_or_path, ["gp_cnn"])
        check.at_least(1, self, "max_length", "lora_r", "embedding_size", "num_filters", "num_layers")
        if self.lora_r is not None and self.model_name_or_path == "gp_cnn":
            raise ValueError(f"lora_r needs a pretrained model_name_or_path, got {self.lora_r} for 'gp_cnn'")
        super().__post_init__()


ARGUMENTS = (DataArguments, ModelArguments, SampleClassifierArguments, FocalTrainingArguments)


def load_data(data_args: DataArguments, seed: int) -> DatasetDict:
    """Load "train", "validation", and "test", with the columns "text", "label", and, for pairs, "text_pair"."""
    if data_args.given():
        splits = load_labeled(
            "text-classification",
            **data_args.source(seed),
            text_column=data_args.text_column,
            text_pair_column=data_args.text_pair_column,
            label_column=data_args.label_column,
            multi_label=data_args.multi_label,
        )
    else:
        splits = data_args.generate(generate_topic_sets if data_args.multi_label else generate_topics, seed)
    return data_args.cut_training_data(splits, seed)


def load_tokenizer(model_args: ModelArguments, splits: DatasetDict) -> tuple[PreTrainedTokenizerBase, int]:
    """Load or train the tokenizer. Return it with the number of tokens to which inputs are truncated."""
    name, max_length = model_args.model_name_or_path, model_args.max_length
    if name == "gp_cnn":
        columns = [column for column in ("text", "text_pair") if column in splits["train"].column_names]
        texts = [text for column in columns for text in splits["train"][column]]
        return train_word_tokenizer(texts, model_args.vocab_size, max_length or 1000), max_length or 1000
    tokenizer = AutoTokenizer.from_pretrained(name, revision=model_args.revision)
    return tokenizer, input_length(name, tokenizer, max_length, revision=model_args.revision)


def tokenize(splits: DatasetDict, tokenizer: PreTrainedTokenizerBase, max_length: int) -> DatasetDict:
    """Encode texts as token ids, labels, and the number of ids ("length", by which batches may be grouped)."""

    def encode(batch):
        tokens = tokenizer(batch["text"], batch.get("text_pair"), truncation=True, max_length=max_length)
        labels = [list(label.values()) if isinstance(label, dict) else label for label in batch["label"]]
        return {**tokens, "length": [len(ids) for ids in tokens["input_ids"]], "labels": labels}

    return splits.map(encode, batched=True, remove_columns=splits["train"].column_names, desc="tokenizing")


def build_model(
    model_args: ModelArguments, tokenizer: PreTrainedTokenizerBase, class_names: list[str], multi_label: bool = False
) -> PreTrainedModel:
    labels = label_options(class_names, multi_label)
    if model_args.model_name_or_path == "gp_cnn":
        config = GPCNNConfig(
            variant="strided",
            dropout=0.0,
            vocab_size=len(tokenizer),
            pad_token_id=tokenizer.pad_token_id,
            embedding_size=model_args.embedding_size,
            num_filters=model_args.num_filters,
            num_layers=model_args.num_layers,
            **labels,
        )
        return AutoModelForSequenceClassification.from_config(config)
    options = {"dtype": model_args.dtype, "attn_implementation": model_args.attn_implementation}
    model = AutoModelForSequenceClassification.from_pretrained(
        model_args.model_name_or_path,
        revision=model_args.revision,
        ignore_mismatched_sizes=model_args.ignore_mismatched_sizes,
        **{name: value for name, value in options.items() if value is not None},
        **labels,
    )
    return model_args.with_adapters(model)


def main(argv: list[str]) -> list[RunResult]:
    data_args, model_args, recipe_args, args = parse_recipe(ARGUMENTS, argv, __doc__)
    if model_args.lora_r is None:  # adapters need a large learning rate
        check.learning_rate(argv, args, model_args.model_name_or_path, ["gp_cnn"])

    if data_args.multi_label:
        recipe_args.check_multi_label()

    with args.main_process_first(desc="loading the data"):
        splits = load_data(data_args, args.seed)
        class_names = label_names(splits)
        tokenizer, max_length = load_tokenizer(model_args, splits)
        encoded = tokenize(splits, tokenizer, max_length)

    def train_one(args: FocalTrainingArguments, checkpoint: str | None) -> RunResult:
        set_seed(args.seed)
        trainer = FocalTrainer(
            model=build_model(model_args, tokenizer, class_names, data_args.multi_label),
            args=args,
            train_dataset=encoded["train"],
            eval_dataset=encoded["validation"],
            calibration_dataset=encoded["validation"],
            processing_class=tokenizer,
            data_collator=DataCollatorWithPadding(tokenizer),
        )
        names = data_args.card_names("a generated corpus")
        return run_classifier(trainer, checkpoint, recipe_args, encoded["test"], splits, names)

    return train_each_loss(
        train_one,
        args,
        recipe_args,
        settings=(data_args, model_args),
        num_classes=len(class_names),
        calibration_size=len(encoded["validation"]),
        summary=sample_tables,
        next_steps=[
            "load a model with its temperature: AutoModelForSequenceClassification.from_pretrained({folder!r})"
            + (", after import papers.models" if model_args.model_name_or_path == "gp_cnn" else ""),
            None
            if data_args.given()
            else "use your own texts: --config recipes/configs/own_texts.yaml "
            "--train_file train.csv --test_file test.csv --output_dir <another>",
        ],
    )


if __name__ == "__main__":
    run_recipe(main)
