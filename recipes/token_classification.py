"""Fine-tune an encoder to tag words, correct its probabilities, and measure their calibration.

    python token_classification.py --model_name_or_path org/encoder --train_file train.jsonl --test_file test.jsonl \\
        --losses cross_entropy,focal:gamma=2 --output_dir out/tags
    hf-focal report out/tags

A row holds a list of words (--token_column) and a list of their tags (--tag_column). Each word counts once, by its
first token. Without --losses, the recipe trains once, with --loss. With --resume_from_checkpoint true, each run goes
on from its last checkpoint. On several GPUs: accelerate launch.
"""

import logging
from dataclasses import dataclass, field

import torch
from transformers import AutoModelForTokenClassification, AutoTokenizer, DataCollatorForTokenClassification, set_seed

from hf_focal import FocalTrainer, FocalTrainingArguments, InputError, load_splits, parse_recipe
from hf_focal.tasks import DataArguments, input_length


@dataclass(kw_only=True)
class RecipeArguments(DataArguments):
    model_name_or_path: str = field(metadata={"help": "a Hub id or a folder"})
    revision: str = field(default="main", metadata={"help": "branch, tag or commit of the model on the Hub"})
    trust_remote_code: bool = field(default=False, metadata={"help": "run code that comes with the model"})
    max_length: int | None = field(
        default=None, metadata={"help": "tokens to keep of a sentence; default: the model's"}
    )
    token_column: str = field(default="tokens", metadata={"help": "the column of lists of words"})
    tag_column: str = field(default="tags", metadata={"help": "the column of lists of tags"})


def main() -> None:
    recipe, runs = parse_recipe(RecipeArguments, FocalTrainingArguments, __doc__)
    name = recipe.model_name_or_path
    source = {"revision": recipe.revision, "trust_remote_code": recipe.trust_remote_code}

    with runs[0].main_process_first(desc="loading the data"):
        splits, tags = load_splits(
            "token-classification",
            **recipe.location(),
            token_column=recipe.token_column,
            tag_column=recipe.tag_column,
            seed=runs[0].seed,
        )
        tokenizer = AutoTokenizer.from_pretrained(name, **source)
        if getattr(tokenizer, "add_prefix_space", True) is False:  # GPT-2's and RoBERTa's reject words without it
            tokenizer = AutoTokenizer.from_pretrained(name, add_prefix_space=True, **source)
        if not tokenizer.is_fast:
            raise InputError("model_name_or_path", f"must have a fast tokenizer, which knows words, got {name!r}")
        max_length = input_length(name, tokenizer, recipe.max_length, **source)

        def encode(rows: dict) -> dict:
            """Give the first token of each word the word's tag, and other tokens -100, which is ignored."""
            tokens = tokenizer(rows["tokens"], is_split_into_words=True, truncation=True, max_length=max_length)
            labels = []
            for row, word_labels in enumerate(rows["labels"]):
                words = tokens.word_ids(row)
                pairs = zip(words, [None, *words], strict=False)
                labels.append([-100 if word in (None, before) else word_labels[word] for word, before in pairs])
            return {**tokens, "labels": labels}

        encoded = splits.map(encode, batched=True, remove_columns=splits["train"].column_names, desc="tokenizing")
        # A sentence whose words are all blank has no token to tag.
        encoded = encoded.filter(lambda row: any(label != -100 for label in row["labels"]))
        cut = sum(map(len, splits["test"]["labels"])) - sum(
            label != -100 for labels in encoded["test"]["labels"] for label in labels
        )
        if cut:
            logging.warning("%d words of the test set are not measured: beyond %d tokens, or blank", cut, max_length)

    for args in runs:
        set_seed(args.seed)
        # In full precision, whatever the weights were saved in. A model without a head, or with the head of another
        # task, gets a new one: Transformers lists the new weights.
        model = AutoModelForTokenClassification.from_pretrained(
            name,
            dtype=torch.float32,
            ignore_mismatched_sizes=True,
            id2label=dict(enumerate(tags)),
            label2id={tag: number for number, tag in enumerate(tags)},
            **source,
        )
        trainer = FocalTrainer(
            model=model,
            args=args,
            train_dataset=encoded["train"],
            eval_dataset=encoded["validation"],
            calibration_dataset=encoded["validation"],
            processing_class=tokenizer,
            data_collator=DataCollatorForTokenClassification(tokenizer),
        )
        trainer.accelerator.print(
            f"\n{args.loss}: training on {len(encoded['train']):,} sentences; processes: {args.world_size}"
        )
        trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
        trainer.save_state()

        # Fits a correction to the validation data, writes report.html, and saves or publishes the model with its card.
        trainer.finish(encoded["test"], dataset=recipe.data_name)
        for tag, accuracy in zip(tags, trainer.confusion.by_class()["accuracy"].tolist(), strict=True):
            trainer.accelerator.print(f"{tag}: accuracy {100 * accuracy:.1f}%")


if __name__ == "__main__":
    main()
