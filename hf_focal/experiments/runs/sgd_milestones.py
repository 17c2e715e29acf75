"""The optimiser of the papers' image classifiers: SGD with momentum, and a learning rate that falls at milestones."""

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from torch import nn
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import LRScheduler, MultiStepLR

from ...trainer import FocalTrainer
from .recipe_checks import check_fraction


@dataclass
class OptimizerArguments:
    """What the papers' training has beside `transformers.TrainingArguments`."""

    momentum: float = field(
        default=0.9, metadata={"help": "Of --optim sgd, which decays all weights, as the papers'."}
    )
    milestones: str | None = field(
        default=None,
        metadata={
            "help": "Shares of the training after which the learning rate is divided by 10, in place of "
            "lr_scheduler_type: '150/350,250/350'."
        },
    )

    def __post_init__(self) -> None:
        check_fraction(self, "momentum")
        shares = self.shares()
        if sorted(shares) != shares or not all(0 < share < 1 for share in shares):
            raise ValueError(f"milestones must be ascending shares between 0 and 1, got {self.milestones!r}")

    def shares(self) -> list[Fraction]:
        try:
            return [Fraction(share.strip()) for share in self.milestones.split(",")] if self.milestones else []
        except (ValueError, ZeroDivisionError) as error:
            raise ValueError(
                f"milestones must be shares such as '150/350,250/350', got {self.milestones!r}"
            ) from error


class MilestonesTrainer(FocalTrainer):
    """`FocalTrainer` whose `--optim sgd` has momentum, and whose learning rate falls where its arguments say."""

    optimizer: Optimizer | None
    lr_scheduler: LRScheduler | None

    def __init__(self, *args: Any, optimizer_arguments: OptimizerArguments, **kwargs: Any):
        self.optimizer_arguments = optimizer_arguments
        super().__init__(*args, **kwargs)

    def create_optimizer(self, model: nn.Module | None = None) -> Optimizer:
        if self.optimizer is None and self.args.optim == "sgd":
            self.optimizer = SGD(
                (self.model if model is None else model).parameters(),
                lr=self.args.learning_rate,
                momentum=self.optimizer_arguments.momentum,
                weight_decay=self.args.weight_decay,
            )
        return super().create_optimizer(model)

    def create_scheduler(self, num_training_steps: int, optimizer: Optimizer | None = None) -> LRScheduler:
        shares = self.optimizer_arguments.shares()
        if self.lr_scheduler is None and shares:
            steps = [round(share * num_training_steps) for share in shares]
            optimizer = self.optimizer if optimizer is None else optimizer
            assert optimizer is not None  # Trainer makes it before
            self.lr_scheduler = MultiStepLR(optimizer, steps, gamma=0.1)
        return super().create_scheduler(num_training_steps, optimizer)
