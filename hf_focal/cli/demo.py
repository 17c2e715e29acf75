"""Demo that trains and calibrates a tiny text classifier with two losses, without downloads."""

from pathlib import Path

import numpy as np
import torch
from datasets import ClassLabel, Dataset, Features, Value
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    DataCollatorWithPadding,
    PreTrainedTokenizerFast,
    PrinterCallback,
    set_seed,
)
from transformers.utils.logging import disable_progress_bar

from ..reports import RunResult, results_table, write_comparison, write_report
from ..reports.markdown_tables import RESULTS_LEGEND
from ..trainer import FocalTrainer, FocalTrainingArguments

_LOSSES = ("cross_entropy", "flsd53")
_TOPICS = ["art", "food", "music", "sports"]
_NUM_WORDS = 30  # per text
_WORDS = [f"w{i}" for i in range(1000)] + [f"{topic}{i}" for topic in _TOPICS for i in range(60)]


def generate_texts(num_texts: int, seed: int) -> Dataset:
    """Generate texts of random words, with the columns "text" and "labels".

    About 30% of a text's words come from the vocabulary of the text's topic. The label is the topic, except that about
    15% of the labels are drawn at random.
    """
    rng = np.random.default_rng(seed)
    topics = rng.integers(len(_TOPICS), size=num_texts)
    shape = (num_texts, _NUM_WORDS)
    own = 1000 + 60 * topics[:, None] + rng.integers(60, size=shape)
    words = np.array(_WORDS)[np.where(rng.random(shape) < 0.3, own, rng.integers(1000, size=shape))]
    labels = np.where(rng.random(num_texts) < 0.15, rng.integers(len(_TOPICS), size=num_texts), topics)
    features = Features(text=Value("string"), labels=ClassLabel(names=_TOPICS))
    return Dataset.from_dict({"text": [" ".join(text) for text in words], "labels": labels}, features)


def run_demo(output_dir: str | Path, num_texts: int = 2000, num_epochs: int = 8) -> list[RunResult]:
    """Train a tiny BERT with cross-entropy and one with FLSD-53, calibrate both, and print and return their results.

    The demo takes less than a minute on one CPU core.

    Args:
        output_dir: the folder to write to. It gets a subfolder for each loss, with the model and its report, and a
            subfolder ``report`` with the comparison.
        num_texts: number of texts in each of the training, validation, and test sets.
        num_epochs: epochs of each training run.
    """
    disable_progress_bar()
    vocabulary = {word: number for number, word in enumerate(["[PAD]", "[UNK]", *_WORDS])}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    names = ["input_ids", "attention_mask"]
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]", model_input_names=names
    )
    splits = {}
    for seed, name in enumerate(("train", "validation", "test")):
        texts = generate_texts(num_texts, seed)
        splits[name] = texts.remove_columns("text").add_column("input_ids", tokenizer(texts["text"][:])["input_ids"])
    results = []
    for loss in _LOSSES:
        print(f"Training on {num_texts:,} generated texts with {loss} ...", flush=True)
        args = FocalTrainingArguments(
            str(Path(output_dir) / loss),
            loss=loss,
            num_train_epochs=num_epochs,
            learning_rate=1e-3,
            lr_scheduler_type="constant",
            per_device_train_batch_size=64,
            per_device_eval_batch_size=500,
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
            report_to="none",
        )
        results.append(_run(args, splits, tokenizer))
    write_comparison(Path(output_dir) / "report", results)
    print(f"\n{results_table(results)}\n{RESULTS_LEGEND}")
    print(f"Guessing one of the {len(_TOPICS)} topics has an error of {1 - 1 / len(_TOPICS):.0%}.")
    print(f"\nWritten to {output_dir}: a model for each loss, with its temperature folded in, and diagrams in report.")
    return results


def _run(args: FocalTrainingArguments, splits: dict[str, Dataset], tokenizer: PreTrainedTokenizerFast) -> RunResult:
    set_seed(args.seed)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        num_hidden_layers=1,
        num_attention_heads=4,
        intermediate_size=128,
        id2label=dict(enumerate(_TOPICS)),
        label2id={name: number for number, name in enumerate(_TOPICS)},
    )
    trainer = FocalTrainer(
        BertForSequenceClassification(config),
        args,
        train_dataset=splits["train"],
        eval_dataset=splits["validation"],
        processing_class=tokenizer,
        data_collator=DataCollatorWithPadding(tokenizer),
    )
    trainer.remove_callback(PrinterCallback)  # it prints a line of timings
    trainer.train()
    temperature = trainer.fit_temperature()
    test = trainer.predict(splits["test"])
    logits, labels = torch.from_numpy(test.predictions), torch.from_numpy(test.label_ids)
    result = RunResult.measure(str(trainer.loss_config), temperature, logits, labels)
    trainer.save_calibrated()
    trainer.create_model_card(result=result, dataset="a generated corpus")
    write_report(Path(args.output_dir) / "report", result)
    return result
