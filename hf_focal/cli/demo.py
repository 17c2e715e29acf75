"""Demo that trains and calibrates a tiny model with two losses, without downloads."""

from pathlib import Path

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    DataCollatorWithPadding,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    set_seed,
)

from ..reports import RunResult, results_table, write_comparison, write_report
from ..trainer import FocalTrainer, FocalTrainingArguments
from .demo_corpus import generate_topics, true_errors

_LOSSES = ("cross_entropy", "flsd53")
_MAX_WORDS = 80


def run_demo(output_dir: str | Path, num_texts: int = 2000, num_epochs: int = 10) -> list[RunResult]:
    """Train a tiny BERT with cross-entropy and with FLSD-53, fit a temperature for each, and print their test results.

    It takes about a minute on one CPU core.

    Args:
        output_dir: gets a folder for each loss, with the model and its report, and ``report``, the comparison.
        num_texts: size of the training, the validation and the test set.
        num_epochs: epochs of each training run.
    """
    splits = {name: generate_topics(num_texts, seed=seed) for seed, name in enumerate(("train", "validation", "test"))}
    tokenizer = _train_tokenizer(splits["train"]["text"][:])
    results = []
    for loss in _LOSSES:
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
            report_to="none",
        )
        results.append(_run(args, splits, tokenizer))
    report = Path(output_dir) / "report"
    write_comparison(report, results)
    print(f"\n{results_table(results)}")
    print("Before → after temperature scaling, on the test set; [95 % bootstrap interval]; the best value is bold.")
    print("true ECE: measured against the posterior that generated the texts, not against the sampled labels.")
    print(f"\nWritten to {output_dir}: a model for each loss, with its temperature folded in.")
    print(f"Diagrams are in {report}.")
    return results


def _train_tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.WordLevelTrainer(special_tokens=["[PAD]", "[UNK]"], show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        model_max_length=_MAX_WORDS,
        model_input_names=["input_ids", "attention_mask"],
    )


def _run(args: FocalTrainingArguments, splits: dict[str, Dataset], tokenizer: PreTrainedTokenizerBase) -> RunResult:
    set_seed(args.seed)
    names = splits["train"].features["label"].names
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        num_hidden_layers=1,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=_MAX_WORDS,
        id2label=dict(enumerate(names)),
        label2id={name: number for number, name in enumerate(names)},
    )
    encoded = {
        name: split.map(lambda batch: tokenizer(batch["text"], truncation=True), batched=True, remove_columns="text")
        for name, split in splits.items()
    }
    trainer = FocalTrainer(
        BertForSequenceClassification(config),
        args,
        train_dataset=encoded["train"],
        eval_dataset=encoded["validation"],
        processing_class=tokenizer,
        data_collator=DataCollatorWithPadding(tokenizer),
    )
    trainer.train()
    temperature = trainer.fit_temperature()
    test = trainer.predict(encoded["test"])
    logits, labels = torch.from_numpy(test.predictions), torch.from_numpy(test.label_ids)
    truth = true_errors(logits, temperature, splits["test"])
    loss = str(trainer.loss_config)
    result = RunResult.measure(loss, temperature, logits, labels, true_calibration_error=truth)
    trainer.save_calibrated()
    trainer.create_model_card(result=result, dataset="a generated corpus")
    write_report(Path(args.output_dir) / "report", result)
    return result
