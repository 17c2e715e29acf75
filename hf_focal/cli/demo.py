"""What `hf-focal demo` runs: two losses on a generated corpus whose true probabilities are known."""

from pathlib import Path

import torch
from datasets import Dataset
from transformers import DataCollatorWithPadding, PreTrainedTokenizerBase, set_seed

from ..data.pretrained_models import label_options
from ..experiments.data.generated_topics import generate_topics
from ..experiments.data.tokenizer_training import train_word_tokenizer
from ..experiments.models import GPCNNConfig, GPCNNForSequenceClassification
from ..experiments.runs.classifier_results import true_errors
from ..experiments.runs.output_folders import folder_of
from ..losses import LossConfig
from ..reports import RunResult, results_table, write_comparison, write_report
from ..trainer import FocalTrainer, FocalTrainingArguments

_LOSSES = ("cross_entropy", "flsd53")


def run_demo(output_dir: str | Path, num_texts: int = 2000, num_epochs: int = 15) -> list[RunResult]:
    """Train a small CNN with cross-entropy and with FLSD-53, correct both with a temperature, and report them.

    Nothing is downloaded, and a minute of one core is enough.

    Args:
        output_dir: gets a folder for each loss, with the model and its report, and ``report``, which compares them.
        num_texts: of the training, the validation and the test set.
        num_epochs: of each training.

    Returns:
        What was measured on the test set. The table of it is printed.
    """
    splits = {name: generate_topics(num_texts, seed=seed) for seed, name in enumerate(("train", "validation", "test"))}
    tokenizer = train_word_tokenizer(splits["train"]["text"], max_length=80)
    results = []
    for loss in _LOSSES:
        args = FocalTrainingArguments(
            str(folder_of(LossConfig.parse(loss), output_dir)),
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
    print("Before → after temperature scaling, on the test set; [95 % bootstrap interval]; bold is best.")
    print("true ECE: against the posterior that the texts were generated from, instead of the sampled labels.")
    print(
        f"\nWritten to {output_dir}: a model for each loss, its temperature folded in, and the diagrams, in {report}."
    )
    return results


def _run(args: FocalTrainingArguments, splits: dict[str, Dataset], tokenizer: PreTrainedTokenizerBase) -> RunResult:
    set_seed(args.seed)
    classes = label_options(splits["train"].features["label"].names)
    config = GPCNNConfig(vocab_size=len(tokenizer), embedding_size=64, num_filters=64, num_layers=1, **classes)
    encoded = {
        name: split.map(lambda rows: tokenizer(rows["text"], truncation=True), batched=True, remove_columns="text")
        for name, split in splits.items()
    }
    trainer = FocalTrainer(
        GPCNNForSequenceClassification(config),
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
