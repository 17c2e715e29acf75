"""Train the Tree-LSTM of Mukhoti et al. 2020 on sentiment trees, correct its temperature, and measure its calibration.

    python recipes/papers/sst_trees.py --config recipes/papers/configs/sst/tree_lstm.yaml --train_file train.parquet \
        --validation_file dev.parquet --test_file test.parquet --losses cross_entropy,flsd53 --output_dir out/sst

The model is trained on every labeled node of the trees, and measured on the roots.
"""

import sys
from dataclasses import dataclass

from datasets import DatasetDict
from transformers import AutoModelForSequenceClassification, PreTrainedModel, PreTrainedTokenizerBase, set_seed

from hf_focal import FocalTrainer, FocalTrainingArguments, load_splits
from hf_focal.reports import RunResult
from papers import checks as check
from papers.argument_fields import argument
from papers.data.label_options import label_options
from papers.data.sentiment_trees import TreeCollator, encode_tree_splits, train_leaf_tokenizer
from papers.models import TreeLSTMConfig
from papers.runs.arguments import DatasetArguments, SampleClassifierArguments, parse_experiment
from papers.runs.classifier_results import run_classifier, sample_tables
from papers.runs.loss_comparison import train_each_loss
from papers.runs.word_vectors import WordVectorArguments, build_optimizer, load_word_vectors


@dataclass(kw_only=True)
class TreeDataArguments(DatasetArguments):
    """The sentiment trees."""

    text_column: str = argument("tree", "The column of bracketed trees.")
    label_column: str = argument("label", "The column of labels: 0 negative, 1 positive.")


@dataclass
class TreeModelArguments(WordVectorArguments):
    """The Tree-LSTM."""

    memory_size: int = argument(150, "Width of a node's memory.")
    dropout: float = argument(0.5, "Dropout before the head.")
    output_gate: bool = argument(True, "Give inner nodes an output gate.")
    neutral_class: bool = argument(False, "Train on neutral nodes too, as a third class that roots never have.")
    lowercase: bool = argument(False, "Convert words to lower case.")

    def __post_init__(self):
        super().__post_init__()
        check.at_least(1, self, "memory_size")
        check.fraction(self, "dropout")


ARGUMENTS = (TreeDataArguments, TreeModelArguments, SampleClassifierArguments, FocalTrainingArguments)


def load_data(data_args: TreeDataArguments, seed: int) -> tuple[DatasetDict, list[str]]:
    """Load the splits, with trees in the column "text" and the roots' labels in "labels", and the labels' names."""
    columns = {"text_column": data_args.text_column, "label_column": data_args.label_column}
    return load_splits("text-classification", **data_args.location(), **columns, seed=seed)


def build_model(
    model_args: TreeModelArguments, tokenizer: PreTrainedTokenizerBase, class_names: list[str]
) -> PreTrainedModel:
    config = TreeLSTMConfig(
        vocab_size=len(tokenizer),
        pad_token_id=tokenizer.pad_token_id,
        embedding_size=model_args.embedding_size,
        memory_size=model_args.memory_size,
        dropout=model_args.dropout,
        output_gate=model_args.output_gate,
        neutral_class=model_args.neutral_class,
        **label_options(class_names),
    )
    return AutoModelForSequenceClassification.from_config(config)


def main(argv: list[str]) -> list[RunResult]:
    (data_args, model_args, recipe_args), runs = parse_experiment(ARGUMENTS, argv, __doc__)
    args = runs[0]

    with args.main_process_first(desc="loading the data"):
        splits, class_names = load_data(data_args, args.seed)
        # With pretrained vectors, words that occur only in held-out trees are known too, as in the papers.
        words_of = ["train"] if model_args.embeddings_file is None else list(splits)
        trees = [tree for name in words_of for tree in splits[name]["text"]]
        tokenizer = train_leaf_tokenizer(trees, model_args.vocab_size, model_args.lowercase)
        encoded = encode_tree_splits(splits, tokenizer, model_args.neutral_class)
        word_vectors = load_word_vectors(model_args, tokenizer, args.seed)

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
            data_collator=TreeCollator(tokenizer.pad_token_id),
            optimizers=(build_optimizer(model, args, model_args), None),
        )
        return run_classifier(trainer, checkpoint, recipe_args, encoded["test"], splits)

    return train_each_loss(train_one, runs, recipe_args, settings=(data_args, model_args), summary=sample_tables)


if __name__ == "__main__":
    main(sys.argv[1:])
