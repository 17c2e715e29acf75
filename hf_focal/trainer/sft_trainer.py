"""`FocalSFTTrainer`: the calibrated trainer for supervised fine-tuning of language models, on TRL's SFTTrainer."""

from dataclasses import dataclass
from typing import Any

from torch import nn
from transformers import Trainer

from ..errors import require
from .accumulators import Accumulator
from .focal_trainer import FocalTrainer
from .streamed_evaluation import StreamedEvaluation
from .training_arguments import FocalTrainingArguments

try:
    from trl import SFTConfig, SFTTrainer
except ImportError as error:
    raise ImportError("FocalSFTTrainer needs TRL: pip install 'hf_focal[trl]'") from error


@dataclass
class FocalSFTConfig(FocalTrainingArguments, SFTConfig):
    """`FocalTrainingArguments` plus `trl.SFTConfig`, with the defaults of `SFTConfig` (bf16, gradient checkpointing).

    Also raises InputError for a second loss: a `loss_type` other than "nll", or a nonzero `router_aux_loss_coef`.
    """

    # Set again, or the defaults that `FocalTrainingArguments` inherits from `TrainingArguments` would take precedence.
    bf16: bool | None = SFTConfig.bf16
    gradient_checkpointing: bool = SFTConfig.gradient_checkpointing
    learning_rate: float = SFTConfig.learning_rate
    logging_steps: float = SFTConfig.logging_steps

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ddp_find_unused_parameters is None:  # DDP would search the logits, which are not computed
            self.ddp_find_unused_parameters: bool | None = False
        problem = f"must be 'nll', got {self.loss_type!r}: the loss is the argument loss"
        require(self.loss_type == "nll", "loss_type", problem)
        seen = f"got {self.router_aux_loss_coef}: the coefficient is that of the model's configuration"
        require(not self.router_aux_loss_coef, "router_aux_loss_coef", f"must be None or 0, {seen}")


class _SFTTrainer(SFTTrainer):
    """SFTTrainer without its model cards and its loss, which would need another forward pass for its metrics."""

    compute_loss = Trainer.compute_loss
    prediction_step = Trainer.prediction_step
    _save_checkpoint = Trainer._save_checkpoint

    def _prepare_dataset(self, dataset: Any, *args: Any, **kwargs: Any) -> Any:
        # SFTTrainer would pack a packed dataset again and lose the positions where its samples begin.
        packed = "seq_lengths" in (getattr(dataset, "column_names", None) or ())
        return dataset if packed else super()._prepare_dataset(dataset, *args, **kwargs)


class FocalSFTTrainer(FocalTrainer, _SFTTrainer):
    """`FocalTrainer` for the data of `trl.SFTTrainer`: texts, conversations, prompts with completions, packing, PEFT.

    Each micro-batch takes one forward pass. In training, this pass does not store the logits if the loss can be
    computed from hidden states (`args.linear_loss`). The loss and all metrics are over the tokens that SFTTrainer
    trains on: the completions if there are prompts, the assistant's tokens with `assistant_only_loss`, or else all.
    SFTTrainer's own metrics `entropy`, `mean_token_accuracy`, and `num_tokens`, which take a second pass, are not
    logged; evaluations report the accuracy.

    The arguments are those of `FocalTrainer` and of `trl.SFTTrainer`, with `FocalSFTConfig` as `args`. All datasets,
    including those given to `evaluate`, `fit_temperature`, and `measure`, are prepared like the training set.

    Raises:
        InputError: if `FocalTrainer` raises it, or for unpadded batches on several processes.
    """

    _arguments = FocalSFTConfig
    _fine_tunes_texts = True

    def __init__(self, *args: Any, formatting_func: Any = None, **kwargs: Any):
        super().__init__(*args, formatting_func=formatting_func, **kwargs)
        self.formatting_func = formatting_func
        require(
            not self.padding_free or self.args.world_size == 1,
            "args.padding_free",
            "must be off on several processes (for packing, use packing_strategy='wrapped'), got batches without "
            "padding: the samples that fill up the last batch could not be told apart from real ones",
        )
        calibration_dataset, self.calibration_dataset = self.calibration_dataset, None
        if calibration_dataset is not None:
            self.calibration_dataset = self.held_out_dataset(calibration_dataset)

    def compute_loss(self, model: nn.Module, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        return super().compute_loss(model, {**inputs, "use_cache": False}, *args, **kwargs)

    def held_out_dataset(self, dataset: Any = None, name: str = "calibration_dataset") -> Any:
        return super().held_out_dataset(self._prepared(dataset, name), name)

    def _measure_dataset(self, dataset: Any, streamed: StreamedEvaluation, *others: Accumulator) -> tuple[str, ...]:
        return super()._measure_dataset(self._prepared(dataset, "dataset"), streamed, *others)

    def _prepared(self, dataset: Any, name: str) -> Any:
        """Return `dataset` with token ids and labels. The trainer's own sets and their keys stay unchanged."""
        sets = self.eval_dataset.values() if isinstance(self.eval_dataset, dict) else [self.eval_dataset]
        is_prepared = any(dataset is known for known in (*sets, self.calibration_dataset, None))
        args = self.args
        skips = (args.dataset_kwargs or {}).get("skip_prepare_dataset", False)
        # SFTTrainer's collator prepares images together with their texts.
        skips = skips or not {"image", "images"}.isdisjoint(getattr(dataset, "column_names", None) or ())
        if is_prepared or isinstance(dataset, str | dict) or skips:
            return dataset
        packing = args.packing if args.eval_packing is None else args.eval_packing
        return self._prepare_dataset(dataset, self.processing_class, args, packing, self.formatting_func, name)
