"""Trains, evaluates and fits a temperature under whatever launched it; the first process writes JSON.

launched.py FOLDER NUM_PROCESSES
"""

import json
import os
import sys
from pathlib import Path

import torch
from accelerate.state import PartialState
from accelerate.utils import DistributedType
from safetensors.torch import load_file
from torch.distributed.tensor import DTensor

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))
from processes import leave
from tiny_models import rows, settings, tiny_bert

from hf_focal import FocalTrainer, FocalTrainingArguments, fold_correction


def main(folder: Path, num_processes: int) -> None:
    actual = results(folder, num_processes)
    if PartialState().process_index == 0:
        (folder / "result.json").write_text(json.dumps(actual), encoding="utf-8")
    leave()


def results(folder: Path, num_processes: int) -> dict:
    return {loss: run(folder, num_processes, loss) for loss in ("focal:gamma=2", "adafocal:bins=3")}


def run(folder: Path, num_processes: int, loss: str) -> dict:
    # Global batches of 8, the last one of 5: 2 processes with 2 × 2 rows each, or one process with 2 × 4.
    options = {"per_device_train_batch_size": 4 // num_processes, "gradient_accumulation_steps": 2}
    args = FocalTrainingArguments(
        **settings(folder, loss=loss, learning_rate=0.1, num_train_epochs=4, per_device_eval_batch_size=4, **options)
    )
    assert args.world_size == num_processes, args.world_size
    if os.environ.get("ACCELERATE_USE_FSDP") == "true":
        # accelerate shards on accelerators only, and on CPUs trains with DDP without a word.
        PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU
    model = tiny_bert()
    if os.environ.get("ACCELERATE_DEEPSPEED_ZERO_STAGE") == "3":
        model = model.float()  # On CPUs with float16 arithmetic, ZeRO-3 refuses float64 models.
    # The rows that it learns, so that the temperature is a number near 1.
    trainer = FocalTrainer(model=model, args=args, train_dataset=rows(21), eval_dataset=rows(19))
    trainer.train()
    metrics = trainer.evaluate()
    temperature = trainer.fit_temperature(objective="nll")
    trainer.save_model()  # by all processes: each has its part
    return {
        "distributed_type": trainer.accelerator.distributed_type.value,
        "sharded": [name for name, weight in trainer.model.named_parameters() if is_sharded(weight)],
        "metrics": {name: value for name, value in metrics.items() if "runtime" not in name and "per_s" not in name},
        "temperature": temperature.value,
        "weights": weights_of(folder) if args.process_index == 0 else None,
        "folds": folds(trainer.model),
    }


def is_sharded(weight: torch.Tensor) -> bool:
    """By FSDP2 or by ZeRO-3."""
    return isinstance(weight, DTensor) or hasattr(weight, "ds_id")


def folds(model: torch.nn.Module) -> bool:
    """Whether a temperature can be folded into the model in memory."""
    try:
        fold_correction(model, 2.0)
    except TypeError as error:
        assert "must be whole" in str(error), error
        return False
    return True


def weights_of(folder: Path) -> list[float]:
    """Those that were saved, in the order of their names."""
    saved = load_file(folder / "model.safetensors")
    return torch.cat([saved[name].flatten() for name in sorted(saved)]).tolist()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
