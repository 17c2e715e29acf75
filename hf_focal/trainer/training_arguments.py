"""Training arguments with a calibrated loss and calibration metrics."""

from dataclasses import dataclass
from typing import Any

from transformers import Seq2SeqTrainingArguments, TrainingArguments
from transformers.hf_argparser import HfArg
from transformers.trainer_utils import HubStrategy

from ..errors import require
from ..losses import LossConfig, build_loss
from ..metrics.metric_table import METRICS

# Metrics of which lower values are better. Transformers itself recognizes only names that end in "loss".
_LOWER_IS_BETTER = {"nll_refined", *(key for key, metric in METRICS.items() if metric.higher_is_better is False)}


@dataclass
class FocalTrainingArguments(TrainingArguments):
    """`transformers.TrainingArguments` plus the loss and the calibration metrics.

    `greater_is_better` defaults to False if lower values of `metric_for_best_model` are better, as for calibration
    errors, NLL, or the Brier score. With "nll_refined", each evaluation also measures the NLL with the best T of the
    evaluation set. If the loss changes during training, `metric_for_best_model` defaults to "nll" in runs that compare
    models (`load_best_model_at_end`, for example). `logging_nan_inf_filter` defaults to False, and `hub_strategy` to
    "end". Pickles (``training_args.bin``) and copies of the arguments contain no `hub_token`.

    Raises:
        InputError: a loss that `LossConfig.parse` rejects; another argument of this class with an unknown value or out
            of range; a `label_smoothing_factor`, which would be a second loss; `label_names` other than "labels"; a
            `metric_for_best_model` that some evaluations lack; the loss as `metric_for_best_model` if the loss changes
            during training; "batch_rebalance" as `train_sampling_strategy` on several processes with
            ``mmce:gather=true``.

    Examples:
        >>> from hf_focal import FocalTrainingArguments
        >>> FocalTrainingArguments("out", loss="focal:gamma=2", learning_rate=1e-4).loss
        'focal:gamma=2'
    """

    loss: dict[str, Any] | str | None = HfArg(  # noqa: RUF009
        default="cross_entropy",
        help="The loss, as 'focal:gamma=3', 'flsd53' or a mapping; `hf-focal losses` lists them.",
    )
    loss_reduction: str = HfArg(
        default="mean",
        help="'mean' over the items of an optimizer step, as in Transformers, or their 'sum', as in the "
        "papers' code (with max_grad_norm=2 and the papers' learning rates).",
    )
    gamma_update_steps: int | None = HfArg(
        default=None,
        help="AdaFocal: optimizer steps between two updates of γ; by default there is one at the end of each epoch.",
    )
    linear_loss: str = HfArg(
        default="auto",
        help="Language models: compute the loss without keeping the logits in memory: 'auto' where possible, 'on' "
        "with an error where not, or 'off'.",
    )
    calibration_bins: int = HfArg(default=15, help="Bins of the calibration errors.")
    hub_strategy: HubStrategy | str = HfArg(  # noqa: RUF009
        default="end",
        help="When Trainer pushes: 'end', only the calibrated model that `push_to_hub` publishes; 'every_save' also "
        "pushes the models that it saves during the training, which are not calibrated.",
    )
    logging_nan_inf_filter: bool = HfArg(
        default=False, help="Leave NaN and inf losses out of the logged loss. Off: a diverged run should show it."
    )

    def __post_init__(self) -> None:
        loss = LossConfig.parse(self.loss)  # type: ignore[arg-type]  # None is only for Transformers' parser
        # Always text, because the arguments of a checkpoint must not refer to a YAML file.
        self.loss = str(loss)
        if build_loss(loss, loss.link).changes_during_training:
            compares = self.save_strategy == "best" or self.lr_scheduler_type in ("reduce_lr_on_plateau", "greedy")
            if self.metric_for_best_model is None and (self.load_best_model_at_end or compares):
                self.metric_for_best_model: str | None = "nll"
            require(
                not (self.metric_for_best_model or "").endswith("loss"),
                "metric_for_best_model",
                f"must not be the loss, got {self.metric_for_best_model!r}: {loss} changes during training, so losses "
                "of different epochs are not comparable; use 'nll'",
            )
        name = f"_{self.metric_for_best_model}"
        require(
            not name.endswith(("_corrected", "_correct", "_incorrect", "_s99_accuracy")),
            "metric_for_best_model",
            f"must be a metric of every evaluation during training, got {self.metric_for_best_model!r}: T is fitted "
            "afterwards, and a model may have no such predictions; use 'nll'",
        )
        if self.greater_is_better is None and any(name.endswith(f"_{metric}") for metric in _LOWER_IS_BETTER):
            self.greater_is_better: bool | None = False
        super().__post_init__()
        strategy = HubStrategy(self.hub_strategy)
        problem = f"must be 'end' or 'every_save', as only models are pushed, got {strategy.value!r}"
        require(strategy in (HubStrategy.END, HubStrategy.EVERY_SAVE), "hub_strategy", problem)
        problem = f"must be 'mean' or 'sum', got {self.loss_reduction!r}"
        require(self.loss_reduction in ("mean", "sum"), "loss_reduction", problem)
        problem = f"must be 'auto', 'on' or 'off', got {self.linear_loss!r}"
        require(self.linear_loss in ("auto", "on", "off"), "linear_loss", problem)
        for name in ("gamma_update_steps", "calibration_bins", "max_tokens_per_batch"):
            value = getattr(self, name, None)
            is_count = isinstance(value, int) and value >= 1
            require(value is None or is_count, name, f"must be a whole number of at least 1, got {value!r}")
        gathers = loss.name == "mmce" and loss.options["gather"] and self.world_size > 1
        require(
            not (gathers and self.train_sampling_strategy == "batch_rebalance"),
            "train_sampling_strategy",
            f"must not be 'batch_rebalance' with loss {loss}, which gathers the same number of samples from each "
            "process",
        )
        alpha = self.label_smoothing_factor
        problem = f"must be 0, got {alpha}: use loss='label_smoothing:alpha={alpha}'"
        require(not alpha, "label_smoothing_factor", problem)
        problem = f"must be ['labels'], got {self.label_names}: rename the dataset's column"
        require(self.label_names in (None, ["labels"]), "label_names", problem)
        if self.device.type == "cpu":  # where pinning memory would only cause a warning in each epoch
            self.dataloader_pin_memory = False

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"hub_token": None}


@dataclass
class FocalSeq2SeqTrainingArguments(FocalTrainingArguments, Seq2SeqTrainingArguments):
    """`FocalTrainingArguments` plus `transformers.Seq2SeqTrainingArguments` and `max_tokens_per_batch`.

    Also raises InputError for a `max_tokens_per_batch` below 1, or if `max_tokens_per_batch` is given with a
    `train_sampling_strategy` other than "random".

    Examples:
        >>> from hf_focal import FocalSeq2SeqTrainingArguments
        >>> FocalSeq2SeqTrainingArguments("out", loss="focal:gamma=1", max_tokens_per_batch=1000).max_tokens_per_batch
        1000
    """

    max_tokens_per_batch: int | None = HfArg(
        default=None,
        help="Training batches of at most this many source tokens and this many target tokens per device, "
        "padding included, in place of per_device_train_batch_size sentences.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.max_tokens_per_batch is None or self.train_sampling_strategy == "random",
            "train_sampling_strategy",
            "must be 'random' with max_tokens_per_batch, which groups by length itself, got "
            f"{self.train_sampling_strategy!r}",
        )
