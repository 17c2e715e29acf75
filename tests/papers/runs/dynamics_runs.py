"""Measures the dynamics of a training in as many processes as are started; prints the history as JSON."""

import json
import sys
from pathlib import Path

from accelerate.utils import gather_object
from papers.runs.training_dynamics import DynamicsCallback, dynamics_history
from processes import leave
from tiny_models import rows, settings, tiny_bert

from hf_focal import FocalTrainer, FocalTrainingArguments


def main(folder: Path, num_processes: int) -> None:
    options = {"per_device_train_batch_size": 8 // num_processes, "per_device_eval_batch_size": 8 // num_processes}
    args = FocalTrainingArguments(**settings(folder, loss="focal:gamma=2", num_train_epochs=2, **options))
    assert args.world_size == num_processes, args.world_size
    trainer = FocalTrainer(model=tiny_bert(), args=args, train_dataset=rows(32), eval_dataset=rows(21, seed=1))
    trainer.add_callback(DynamicsCallback(trainer, num_samples=19))  # batches that do not fill the processes
    trainer.train()
    histories = gather_object([dynamics_history(trainer.state.log_history)])
    assert histories == [histories[0]] * num_processes
    if args.process_index == 0:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "history.json").write_text(json.dumps(histories[0]), encoding="utf-8")
    leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
