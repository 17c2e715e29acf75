"""The training of the demo: a small classifier of generated messages, with two losses, without downloads."""

from pathlib import Path

from transformers import AutoModelForSequenceClassification, AutoTokenizer, PrinterCallback, set_seed
from transformers.utils import logging

from ..reports import RunResult, comparison_page, results_table
from ..reports.wording.markdown_tables import RESULTS_LEGEND
from ..tasks.splits import load_splits
from ..trainer import FocalTrainer, FocalTrainingArguments
from .data import write_demo_data

_LOSSES = ("cross_entropy", "flsd53")


def run_demo(output_dir: str | Path, num_epochs: int = 14) -> list[RunResult]:
    """Train with cross-entropy and with FLSD-53, correct both models, and print and return their results.

    The demo takes less than a minute on one CPU core.

    Args:
        output_dir: the folder to write to. It gets the data, a subfolder for each loss with the model, its card, and
            its report, and report.html, which compares the losses.
        num_epochs: epochs of each training run.
    """
    logging.disable_progress_bar()
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()  # no list of the head's weights, which are new
    try:
        return _run(Path(output_dir), num_epochs)
    finally:
        logging.set_verbosity(verbosity)


def _run(folder: Path, num_epochs: int) -> list[RunResult]:
    data, encoder = folder / "data", folder / "data" / "encoder"
    write_demo_data(data)
    train, validation, test = (data / f"{name}.csv" for name in ("train", "validation", "test"))
    splits, labels = load_splits("text-classification", train_file=train, validation_file=validation, test_file=test)
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    encoded = splits.map(lambda rows: tokenizer(rows["text"]), batched=True, remove_columns="text")
    print(f"{data}: generated messages to a support desk, and the department that answers each: {', '.join(labels)}")
    results = []
    for loss in _LOSSES:
        print(f"\nTraining on {len(encoded['train']):,} messages with {loss} ...", flush=True)
        args = FocalTrainingArguments(
            str(folder / loss),
            loss=loss,
            num_train_epochs=num_epochs,
            learning_rate=1e-3,
            warmup_steps=0.1,
            per_device_train_batch_size=32,
            per_device_eval_batch_size=250,
            train_sampling_strategy="group_by_length",
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
            report_to="none",
        )
        set_seed(args.seed)
        names = {"id2label": dict(enumerate(labels)), "label2id": {label: i for i, label in enumerate(labels)}}
        trainer = FocalTrainer(
            AutoModelForSequenceClassification.from_pretrained(encoder, **names),
            args,
            train_dataset=encoded["train"],
            eval_dataset=encoded["validation"],
            processing_class=tokenizer,
        )
        trainer.remove_callback(PrinterCallback)  # it prints a line of timings
        trainer.train()
        print(f"Fitting T to {len(encoded['validation']):,} other messages: {trainer.fit_temperature()}")
        results.append(trainer.report(encoded["test"]))
        trainer.save_calibrated()
        trainer.create_model_card(result=results[-1], dataset="generated messages")
    print(f"\nOn {len(encoded['test']):,} test messages:\n\n{results_table(results)}\n{RESULTS_LEGEND}\n")
    print("\n".join(result.describe() for result in results))
    page = comparison_page([folder / loss for loss in _LOSSES], folder / "report.html")
    print(
        f"\n{folder}: a model for each loss, with its T folded in: load it with from_pretrained.\nThe report: {page}"
    )
    loading = f"pipeline('text-classification', model={str(folder / _LOSSES[-1])!r})"
    print(f"\nNext: ask a model for a department and its probability: `{loading}('Where is my parcel?')`")
    print("Next: do the same with texts of your own: `hf-focal recipe copy text_classification`")
    return results
