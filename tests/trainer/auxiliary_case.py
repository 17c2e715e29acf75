"""A step of a mixture-of-experts model, in as many processes as this is started in."""

import json
import sys
from pathlib import Path

import torch
from language_models import IDS, LLAMA, texts, trainer_of
from processes import leave
from tiny_models import weights
from transformers import MixtralConfig, MixtralForCausalLM

TRAIN = texts(8)


def mixtral(**options):
    torch.manual_seed(0)
    experts = {"num_local_experts": 4, "num_experts_per_tok": 2, "output_router_logits": True}
    sizes = LLAMA | experts | {"num_key_value_heads": 1, "router_aux_loss_coef": 10.0}
    model = MixtralForCausalLM(MixtralConfig(**IDS | sizes | options))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.4 * torch.randn_like(parameter))
    model.set_experts_implementation("eager")  # which takes float64
    return model.double()


def split_step(num_processes: int, folder: Path, **options) -> dict:
    """Weights and log of a step of 8 rows in micro-batches of 2."""
    split = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4 // num_processes}
    trainer = trainer_of(model := mixtral(), folder, train_dataset=TRAIN, **split, **options)
    assert trainer.args.world_size == num_processes, trainer.args.world_size
    trainer.train()
    return {"weights": weights(model).tolist()} | trainer.state.log_history[0]


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    measured = split_step(2, folder)
    (folder / f"{torch.distributed.get_rank()}.json").write_text(json.dumps(measured), encoding="utf-8")
    leave()
