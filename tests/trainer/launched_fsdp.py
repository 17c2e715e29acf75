"""Trains language models without their logits, sharded by FSDP2; the first process writes what it found.

launched_fsdp.py FOLDER NUM_PROCESSES
"""

import json
import os
import sys
from pathlib import Path

from accelerate.state import PartialState
from accelerate.utils import DistributedType
from language_models import build, padded, texts
from processes import leave
from safetensors.torch import load_file
from tiny_models import settings
from torch.distributed.tensor import DTensor

from hf_focal import FocalTrainer, FocalTrainingArguments

CASES = {
    "llama": {"loss": "focal:gamma=1"},
    "gpt2": {"loss": "label_smoothing:alpha=0.1"},  # its embeddings share the head's weight
    "gpt2 with logits": {"loss": "label_smoothing:alpha=0.1", "linear_loss": "off"},
}
BLOCKS = {"llama": "LlamaDecoderLayer", "gpt2": "GPT2Block"}


def rows() -> list[dict]:
    """21 texts, of whose first step's 8 a process has no labels, and of the second's a single one."""
    found = texts(21)
    for number in (2, 3, 6, 7, 10, 11, 14, 15):
        labels = found[number]["labels"]
        labels[:] = [-100] * (len(labels) - 1) + [labels[-1] if number == 10 else -100]
    return found


def results(folder: Path, num_processes: int) -> dict:
    return {name: run(folder / name, num_processes, name.split()[0], **case) for name, case in CASES.items()}


def run(folder: Path, num_processes: int, model: str, **options) -> dict:
    split = {"per_device_train_batch_size": 4 // num_processes, "gradient_accumulation_steps": 2}
    order = {"train_sampling_strategy": "sequential", "learning_rate": 0.1}
    args = FocalTrainingArguments(**settings(folder, **order, **split, **options))
    assert args.world_size == num_processes, args.world_size
    os.environ["FSDP_TRANSFORMER_CLS_TO_WRAP"] = BLOCKS[model]
    if num_processes > 1:
        # accelerate shards on accelerators only, and on CPUs trains with DDP without a word.
        PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU
    data = {"train_dataset": rows(), "eval_dataset": texts(9), "data_collator": padded}
    trainer = FocalTrainer(model=build(model), args=args, **data)
    trainer.train()
    metrics = trainer.evaluate()
    trainer.save_model()
    saved = load_file(folder / "model.safetensors") if PartialState().process_index == 0 else {}
    return {
        "sharded": any(isinstance(weight, DTensor) for weight in trainer.model.parameters()),
        "deferred": trainer.deferred_head is not None,
        "losses": [row["loss"] for row in trainer.state.log_history if "loss" in row],
        "metrics": {name: metrics[f"eval_{name}"] for name in ("loss", "ece", "nll", "num_samples")},
        "weights": {name: saved[name].flatten().tolist() for name in sorted(saved)},
    }


if __name__ == "__main__":
    found = results(Path(sys.argv[1]), int(sys.argv[2]))
    if PartialState().process_index == 0:
        Path(sys.argv[1], "result.json").write_text(json.dumps(found), encoding="utf-8")
    leave()
