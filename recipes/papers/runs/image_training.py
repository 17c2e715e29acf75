"""The trainer of the papers' image classifiers, their SGD, and the image processors to save."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from accelerate.utils import broadcast
from torch import nn
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import LRScheduler, MultiStepLR
from transformers import BitImageProcessorPil, PreTrainedModel, TimmWrapperConfig, TrainerCallback, TrainerState
from transformers.trainer_utils import EvalLoopOutput

from hf_focal.trainer import FocalTrainer
from papers import checks as check
from papers.argument_fields import argument
from papers.data.image_batches import collate, prepare_batch
from papers.data.pixel_format import PixelFormat


@dataclass
class OptimizerArguments:
    """Options that the papers' training needs besides `transformers.TrainingArguments`."""

    _argument_group_name = "optimizer"
    momentum: float = argument(0.9, "Momentum of --optim sgd, which decays all weights, as in the papers.")
    milestones: str | None = argument(
        None,
        "Fractions of the training after which to divide the learning rate by 10, instead of "
        "lr_scheduler_type: '150/350,250/350'.",
    )

    def __post_init__(self) -> None:
        check.fraction(self, "momentum")
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


class NextEpoch(TrainerCallback):
    """Calls `set_epoch` of the training set on every process; accelerate does this on one process only."""

    def on_epoch_begin(
        self, args: Any, state: TrainerState, control: Any, train_dataloader: Any = None, **kwargs: Any
    ):
        train_dataloader.dataset.set_epoch(int(state.epoch))


class ImageClassifierTrainer(FocalTrainer):
    """Trains on the batches of `ImageDataset`, with the SGD and the milestones of the papers.

    Images stay uint8 until they are on the device. They are augmented anew each epoch. All processes measure the model
    with the batch statistics of the first process, whose model is saved. The image processor to save is made from
    `pixels`; the other arguments are those of `FocalTrainer`.
    """

    optimizer: Optimizer | None
    lr_scheduler: LRScheduler | None

    def __init__(
        self,
        model: PreTrainedModel,
        *args: Any,
        pixels: PixelFormat,
        optimizer_arguments: OptimizerArguments,
        **kwargs: Any,
    ):
        self.pixels, self.optimizer_arguments = pixels, optimizer_arguments
        super().__init__(
            model, *args, data_collator=collate, processing_class=_image_processor(model, pixels), **kwargs
        )
        self.add_callback(NextEpoch())

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> EvalLoopOutput:
        broadcast(list(self.model.buffers()))
        return super().evaluation_loop(*args, **kwargs)

    def _prepare_inputs(self, inputs: Any) -> Any:
        return prepare_batch(super()._prepare_inputs(inputs), self.pixels)

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
            assert optimizer is not None  # Trainer creates it first
            self.lr_scheduler = MultiStepLR(optimizer, steps, gamma=0.1)
        return super().create_scheduler(num_training_steps, optimizer)


def _image_processor(model: PreTrainedModel, pixels: PixelFormat) -> BitImageProcessorPil | None:
    """Return the image processor to save with a model.

    For timm models, the result is None. Their image processor reads the model's config, which receives the settings.
    """
    if isinstance(model.config, TimmWrapperConfig):
        settings = {
            "input_size": [3, pixels.size, pixels.size],
            "crop_pct": pixels.size / (pixels.stored_size + 1e-6),  # timm rounds the quotient of both down
            "crop_mode": "center",
            "mean": list(pixels.mean),
            "std": list(pixels.std),
            "interpolation": "bilinear",
        }
        model.config.pretrained_cfg = (getattr(model.config, "pretrained_cfg", None) or {}) | settings
        return None
    return BitImageProcessorPil(
        size={"shortest_edge": pixels.stored_size},
        crop_size={"height": pixels.size, "width": pixels.size},
        resample=2,  # bilinear
        image_mean=list(pixels.mean),
        image_std=list(pixels.std),
    )
