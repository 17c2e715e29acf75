"""Trainings, evaluations and generation of language models, in as many processes as this is started in.

Run as a script each process writes its own JSON.
"""

import json
import sys
from pathlib import Path

import torch
from language_models import build, padded, texts, trainer_of, translations
from processes import leave
from tiny_models import logged, untimed, weights

# 11 rows in steps of 12: a process repeats one to fill up the epoch's last batch.
TRAIN = {"marian": translations(11), "mbart": translations(11), "gpt2": texts(11)}
EVAL = {"marian": translations(13, seed=1), "gpt2": texts(13, seed=1)}
BY_TOKENS = list({tuple(row["input_ids"]): row for row in translations(61, seed=2)}.values())


class Seen:
    """A collator that notes the rows of each batch by their place in `BY_TOKENS`."""

    def __init__(self):
        self.batches = []

    def __call__(self, rows: list[dict]) -> dict[str, torch.Tensor]:
        self.batches.append([BY_TOKENS.index(row) for row in rows])
        return padded(rows)


def results(num_processes: int, folder: Path) -> dict:
    actual = {}
    options = {"loss": "flsd53", "per_device_eval_batch_size": 8 // num_processes}
    for family, rows in TRAIN.items():
        model = build(family)
        split = {"per_device_train_batch_size": 6 // num_processes, "gradient_accumulation_steps": 2}
        trainer = trainer_of(model, folder, train_dataset=rows, **options, **split)
        assert trainer.args.world_size == num_processes, trainer.args.world_size
        trainer.train()
        actual[f"{family} step"] = {"weights": weights(model).tolist(), "losses": logged(trainer)}
    for family, rows in EVAL.items():
        trainer = trainer_of(build(family), folder, eval_dataset=rows, **options)
        temperature = trainer.fit_temperature()
        metrics = trainer.evaluate() | {"temperature": temperature.value, "fitted_to": temperature.num_samples}
        actual[f"{family} metrics"] = untimed(metrics)

    model, seen = build("marian"), Seen()
    by_tokens = {"max_tokens_per_batch": 36, "gradient_accumulation_steps": 2, "loss": "flsd53"}
    trainer_of(model, folder, train_dataset=BY_TOKENS, data_collator=seen, **by_tokens).train()
    actual["by tokens"] = {"weights": weights(model).tolist(), "batches": seen.batches}

    rows = translations(11, seed=3)
    trainer = trainer_of(build("bart"), folder, predict_with_generate=True, **options)
    output = trainer.predict(rows, num_beams=2)
    metrics = {name: output.metrics[f"test_{name}"] for name in ("ece", "nll", "num_samples")}
    actual["generated"] = {"ids": output.predictions.tolist(), "labels": output.label_ids.tolist(), "metrics": metrics}
    return actual


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    measured = results(2, folder)
    (folder / f"{torch.distributed.get_rank()}.json").write_text(json.dumps(measured), encoding="utf-8")
    leave()
