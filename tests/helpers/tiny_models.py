"""Models, data and trainers of the trainer's tests: float64 and SGD, so that equal means equal to 1e-12."""

import torch
from torch import nn
from torch.utils.data import IterableDataset
from transformers import BertConfig, BertForSequenceClassification, TrainerCallback

from hf_focal import FocalTrainer

NUM_LABELS = 4


def tiny_bert(**options) -> BertForSequenceClassification:
    """A random BERT whose forward takes **kwargs and ignores `num_items_in_batch`."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config = BertConfig(
        vocab_size=30, max_position_embeddings=16, **sizes, **dropout | {"num_labels": NUM_LABELS} | options
    )
    model = BertForSequenceClassification(config).double()
    with torch.no_grad():
        model.classifier.weight.mul_(40)  # confidences that differ from each other
    return model


class BagOfWords(nn.Module):
    """A module that is no `PreTrainedModel` and takes no **kwargs."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embeddings = nn.Embedding(30, 8, dtype=torch.float64)
        self.classifier = nn.Linear(8, NUM_LABELS, dtype=torch.float64)

    def forward(self, input_ids, labels=None):
        logits = self.classifier(self.embeddings(input_ids).mean(1))
        loss = {} if labels is None else {"loss": nn.functional.cross_entropy(logits, labels)}
        return {**loss, "logits": logits}


def rows(count: int, seed: int = 0) -> list[dict]:
    """Samples of 6 token ids and a label that depends on the first of them."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, 30, (count, 6), generator=generator)
    return [{"input_ids": row, "labels": int(row[0]) % NUM_LABELS} for row in ids]


def tensors(samples: list[dict]) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and labels of all samples."""
    return torch.stack([row["input_ids"] for row in samples]), torch.tensor([row["labels"] for row in samples])


@torch.no_grad()
def logits_of(model: nn.Module, samples: list[dict]) -> torch.Tensor:
    """The logits of all samples, as one batch."""
    return model.eval()(input_ids=tensors(samples)[0])["logits"]


def settings(folder, **options) -> dict:
    """Training arguments without anything that would blur a comparison."""
    return {
        "output_dir": str(folder),
        "use_cpu": True,
        "optim": "sgd",
        "learning_rate": 0.5,
        "lr_scheduler_type": "constant",
        "max_grad_norm": 0.0,
        "num_train_epochs": 1,
        "per_device_train_batch_size": 8,
        "per_device_eval_batch_size": 8,
        "save_strategy": "no",
        "logging_steps": 1,
        "disable_tqdm": True,
    } | options


EVAL = rows(21, seed=1)  # two batches of 8 and one of 5


def trainer_of(folder, model=None, trainer_class=FocalTrainer, **options) -> FocalTrainer:
    """A trainer of 16 rows, measured by 21 others. Options that are no training arguments go to the trainer itself."""
    arguments_class = trainer_class._arguments
    trainer_options = {name: options.pop(name) for name in set(options) - set(arguments_class.__dataclass_fields__)}
    data = {"train_dataset": rows(16), "eval_dataset": EVAL}
    model = tiny_bert() if model is None else model
    return trainer_class(model, arguments_class(**settings(folder, **options)), **data | trainer_options)


class Stream(IterableDataset):
    """Samples without a length."""

    def __init__(self, samples: list[dict]):
        self.samples = samples

    def __iter__(self):
        return iter(self.samples)


def weights(model: nn.Module) -> torch.Tensor:
    """All parameters as one vector."""
    return nn.utils.parameters_to_vector(model.parameters()).detach().clone()


@torch.no_grad()
def sgd_step(model: nn.Module, learning_rate: float = 0.5) -> None:
    """A step of plain SGD by the gradients, which it clears."""
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter -= learning_rate * parameter.grad
            parameter.grad = None


def assert_exact(found, expected) -> None:
    """Two tensors are equal but for the rounding of float64."""
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def logged(trainer: FocalTrainer, name: str = "loss") -> list:
    """The values that were logged under a name."""
    return [entry[name] for entry in trainer.state.log_history if name in entry]


def untimed(metrics: dict) -> dict:
    """The metrics that do not tell the time."""
    timed = ("runtime", "per_second", "preparation_time")
    return {name: value for name, value in metrics.items() if not name.endswith(timed)}


class StopAt(TrainerCallback):
    """Ends a training early, as an interruption would."""

    def __init__(self, step: int):
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        control.should_training_stop = state.global_step >= self.step
