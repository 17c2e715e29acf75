"""Fine-tunes with TRL's data under whatever launched it; the first process writes what it found.

launched_sft.py FOLDER NUM_PROCESSES
"""

import json
import sys
from pathlib import Path

from accelerate.state import PartialState
from language_models import build
from processes import leave
from test_sft_trainer import trainer_of
from tiny_models import logged, weights

CASES = {
    "completions": {"loss": "focal:gamma=1"},
    "packed": {"loss": "label_smoothing:alpha=0.1", "packing": True, "packing_strategy": "wrapped", "max_length": 16},
    "with logits": {"loss": "brier", "linear_loss": "off"},
}


def results(folder: Path, num_processes: int) -> dict:
    """Of two steps of 8 rows in float64: the weights, the losses, and the figures of an evaluation."""
    return {name: run(folder, num_processes, **options) for name, options in CASES.items()}


def run(folder: Path, num_processes: int, **options) -> dict:
    split = {"per_device_train_batch_size": 4 // num_processes, "gradient_accumulation_steps": 2}
    trainer = trainer_of(folder, model=build("llama"), per_device_eval_batch_size=4, **split, **options)
    assert trainer.args.world_size == num_processes, trainer.args.world_size
    trainer.train()
    temperature = trainer.fit_temperature()
    metrics = trainer.evaluate()
    return {
        "losses": logged(trainer),
        "metrics": {name: metrics[f"eval_{name}"] for name in ("loss", "ece", "nll", "ece_corrected", "num_samples")},
        "temperature": temperature.value,
        "deferred": trainer.deferred_head is not None,
        "weights": weights(trainer.accelerator.unwrap_model(trainer.model)).tolist(),
    }


if __name__ == "__main__":
    measured = results(Path(sys.argv[1]), int(sys.argv[2]))
    if PartialState().process_index == 0:
        Path(sys.argv[1], "result.json").write_text(json.dumps(measured), encoding="utf-8")
    leave()
