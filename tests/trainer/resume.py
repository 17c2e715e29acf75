"""A training that is killed at a step, or goes on from its last checkpoint, in as many processes as are started."""

import argparse
import json
from pathlib import Path

import torch
from accelerate.utils import gather_object
from processes import KillAt, leave
from tiny_models import rows, tiny_bert, trainer_of, untimed, weights

from hf_focal.trainer import last_complete_checkpoint


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("num_processes", type=int)
    parser.add_argument("options", type=json.loads)
    parser.add_argument("--kill_at", type=int)
    parser.add_argument("--sigmoid", action="store_true", help="four labels a sample")
    options = parser.parse_args()
    data, held_out, calibration = rows(45), rows(21, seed=1), rows(33, seed=2)
    if options.sigmoid:
        for row in (*data, *held_out, *calibration):
            row["labels"] = [float(token % 2) for token in row["input_ids"][:4]]
    for index, row in enumerate(data):
        row["input_ids"] = row["input_ids"][: 3 + index % 4]
    dropout = {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.2}
    problem_type = "multi_label_classification" if options.sigmoid else None
    # Steps of 2 × 4 rows, the last of an epoch incomplete; dropout draws from each process's own generator.
    settings = {
        "optim": "adamw_torch",
        "learning_rate": 0.01,
        "lr_scheduler_type": "linear",
        "max_grad_norm": 1.0,
        "per_device_train_batch_size": 4 // options.num_processes,
        "gradient_accumulation_steps": 2,
        "num_train_epochs": 4,
        "save_strategy": "steps",
        "save_steps": 3,
        "train_dataset": data,
        "eval_dataset": held_out,
        "calibration_dataset": calibration,
        "data_collator": pad,
        "callbacks": [KillAt(options.kill_at)] if options.kill_at else None,
    }
    model = tiny_bert(problem_type=problem_type, **dropout)
    trainer = trainer_of(options.folder, model, **settings | options.options)
    args = trainer.args
    assert args.world_size == options.num_processes, args.world_size
    trainer.train(resume_from_checkpoint=last_complete_checkpoint(options.folder))
    if args.process_index == 0:
        result = {
            "weights": weights(trainer.model).tolist(),
            "loss": trainer.loss.state_dict(),
            "logs": [untimed(entry) for entry in trainer.state.log_history],
        }
        (options.folder / "result.json").write_text(json.dumps(result), encoding="utf-8")
    states = gather_object([trainer.loss.state_dict()])
    assert states == [states[0]] * args.world_size, states
    leave()


def pad(samples: list[dict]) -> dict[str, torch.Tensor]:
    ids = [sample["input_ids"] for sample in samples]
    padded = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True)
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in ids], batch_first=True)
    return {"input_ids": padded, "attention_mask": mask, "labels": torch.tensor([s["labels"] for s in samples])}


if __name__ == "__main__":
    main()
