"""Trains language models without their logits, sharded by FSDP2 or ZeRO; the first process writes what it found.

launched_sharded.py FOLDER STAGE, where STAGE is fsdp2, or that of ZeRO: 2 or 3
"""

import json
import os
import sys
from pathlib import Path
from unittest import mock

import torch
from accelerate.state import PartialState
from accelerate.utils import DistributedType
from language_models import VOCABULARY, build, padded, texts, translations
from processes import leave
from safetensors.torch import load_file
from tiny_models import logged, settings
from torch.distributed.tensor import DTensor
from transformers import LlamaForCausalLM

from hf_focal import FocalSeq2SeqTrainer, FocalSeq2SeqTrainingArguments, FocalTrainer, FocalTrainingArguments
from hf_focal.trainer.deferred_logits import DeferredLogits

CASES = {
    "llama": {"loss": "focal:gamma=1"},
    "gpt2": {"loss": "label_smoothing:alpha=0.1"},  # its embeddings share the head's weight
    "gpt2 with logits": {"loss": "label_smoothing:alpha=0.1", "linear_loss": "off"},
}
ZERO_CASES = CASES | {
    "marian": {"loss": "focal:gamma=1"},  # adds a bias to its logits
    "t5": {"loss": "flsd53"},
    "unknown": {"loss": "focal:gamma=1"},
}
# Without a threshold ZeRO-3 would not shard weights as small as these.
ZERO = {"stage3_param_persistence_threshold": 0, "stage3_gather_16bit_weights_on_model_save": True}
DEEPSPEED = {"train_micro_batch_size_per_gpu": "auto", "gradient_clipping": 0.0, "zero_allow_untested_optimizer": True}
BLOCKS = {"llama": "LlamaDecoderLayer", "gpt2": "GPT2Block"}


class UnknownForCausalLM(LlamaForCausalLM):
    """Does something to its logits that makes the trainer compute them."""

    def forward(self, input_ids, attention_mask=None, **options):
        outputs = super().forward(input_ids, attention_mask=attention_mask, **options)
        outputs.logits = outputs.logits * torch.linspace(0.5, 2, VOCABULARY)
        return outputs


def rows(seq2seq: bool) -> list[dict]:
    """21 texts, of whose first step's 8 a process has no labels, and of the second's a single one."""
    actual = translations(21) if seq2seq else texts(21)
    for number in (2, 3, 6, 7, 10, 11, 14, 15):
        labels = actual[number]["labels"]
        labels[:] = [-100] * (len(labels) - 1) + [labels[-1] if number == 10 else -100]
    return actual


def results(folder: Path, stage: str | None, cases: dict[str, dict]) -> dict:
    """Of two processes, or with stage None of one."""
    return {name: run(folder / name, stage, name.split()[0], **case) for name, case in cases.items()}


def run(folder: Path, stage: str | None, name: str, **options) -> dict:
    model = build("llama" if name == "unknown" else name)
    if name == "unknown":
        model.__class__ = UnknownForCausalLM
    options |= {"train_sampling_strategy": "sequential", "learning_rate": 0.1, "gradient_accumulation_steps": 2}
    options |= {"per_device_train_batch_size": 4 if stage is None else 2}
    if stage in ("2", "3"):
        options["deepspeed"] = DEEPSPEED | {"zero_optimization": ZERO | {"stage": int(stage)}}
        model = model.float()  # as ZeRO-3 demands on CPUs
    seq2seq = model.config.is_encoder_decoder
    args = (FocalSeq2SeqTrainingArguments if seq2seq else FocalTrainingArguments)(**settings(folder, **options))
    assert args.world_size == (1 if stage is None else 2), args.world_size
    if stage == "fsdp2":
        os.environ["FSDP_TRANSFORMER_CLS_TO_WRAP"] = BLOCKS[name]
        # accelerate shards on accelerators only, and on CPUs trains with DDP without a word.
        PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU
    evaluated = translations(9) if seq2seq else texts(9)
    data = {"train_dataset": rows(seq2seq), "eval_dataset": evaluated, "data_collator": padded}
    trainer = (FocalSeq2SeqTrainer if seq2seq else FocalTrainer)(model=model, args=args, **data)
    with mock.patch.object(DeferredLogits, "tensor", autospec=True, side_effect=DeferredLogits.tensor) as computed:
        trainer.train()
    metrics = trainer.evaluate()
    trainer.save_model()
    if stage is None:
        shared = model.named_parameters(remove_duplicate=False)
        saved = {name: weight.detach() for name, weight in shared if weight.requires_grad}
    else:
        saved = load_file(folder / "model.safetensors") if PartialState().process_index == 0 else {}
    return {
        "sharded": any(isinstance(weight, DTensor) or hasattr(weight, "ds_id") for weight in model.parameters()),
        "deferred": trainer.deferred_head is not None,
        "computed": computed.called,
        "losses": logged(trainer),
        "metrics": {name: metrics[f"eval_{name}"] for name in ("loss", "ece", "nll", "num_samples")},
        "weights": {name: saved[name].flatten().tolist() for name in sorted(saved)},
    }


if __name__ == "__main__":
    folder, stage = Path(sys.argv[1]), sys.argv[2]
    measured = results(folder, stage, CASES if stage == "fsdp2" else ZERO_CASES)
    if PartialState().process_index == 0:
        (folder / "result.json").write_text(json.dumps(measured), encoding="utf-8")
    leave()
