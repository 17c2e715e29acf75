"""Trains and evaluates, in as many processes as it is started with; the first writes what came out as JSON."""

import json
import sys
from pathlib import Path

from tiny_models import rows, settings, tiny_bert, weights

from hf_focal import FocalTrainer, FocalTrainingArguments

SCHEDULE = "focal:schedule=5/3/2"


def main(folder: Path, num_processes: int) -> None:
    # Global batches of 8: 2 processes × 2 accumulated micro-batches of 2, or one process with micro-batches of 4.
    options = {"per_device_train_batch_size": 4 // num_processes, "gradient_accumulation_steps": 2}
    args = FocalTrainingArguments(
        **settings(
            folder,
            loss=SCHEDULE,
            learning_rate=0.1,
            num_train_epochs=2,
            per_device_eval_batch_size=4,
            **options,
        )
    )
    assert args.world_size == num_processes, args.world_size
    # The last global batches of 8: 5 rows (one process has 1 of its own), 1 (one has none), and 3 rows in all.
    sets = {"21": rows(21, seed=1), "9": rows(9, seed=2), "3": rows(3, seed=3)}
    trainer = FocalTrainer(model=tiny_bert(), args=args, train_dataset=rows(24), eval_dataset=sets)
    trainer.train()
    temperature = trainer.fit_temperature(sets["21"])
    metrics = trainer.evaluate()
    predictions = trainer.predict(sets["21"])
    if args.process_index == 0:
        result = {
            "weights": weights(trainer.model).tolist(),
            "metrics": {
                name: value for name, value in metrics.items() if "runtime" not in name and "per_s" not in name
            },
            "temperature": temperature.to_dict(),
            "logits": predictions.predictions.tolist(),
            "gammas": [entry["gamma"] for entry in trainer.state.log_history if "gamma" in entry],
        }
        (folder / f"{num_processes}.json").write_text(json.dumps(result), encoding="utf-8")
    trainer.end()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
