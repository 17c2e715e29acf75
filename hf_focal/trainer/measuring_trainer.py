"""The half of `FocalTrainer` that measures: calibration metrics of evaluations, confidences, temperatures."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import datasets
from accelerate.data_loader import IterableDatasetShard
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import Trainer, TrainerControl
from transformers.trainer_utils import EvalLoopOutput

from ..calibration.folding import folded_temperature
from ..calibration.streaming_temperature import TemperatureCurves
from ..calibration.temperature import Temperature, check_objective, fit_temperature
from ..losses import Loss
from ..metrics import CalibrationMetrics, ConfusionMatrix
from .evaluation_accumulators import CollectedConfidences, CollectedLogits, StreamedEvaluation, StreamedTemperature
from .gamma_updates import GammaUpdates
from .model_heads import Head, check_not_empty


class MeasuringTrainer(Trainer):
    """Sends the logits and labels of what is evaluated to what is to be made of them, batch by batch.

    `FocalTrainer` has the attributes besides, and its `compute_loss` fills `_sink`.
    """

    calibration_dataset: Any
    head: Head
    loss: Loss
    temperature: Temperature | None = None
    temperature_curves: TemperatureCurves | None = None
    confusion: ConfusionMatrix | None = None
    _gamma_updates: GammaUpdates
    _calibration_when_fitted: Any = None
    _sink: Any = None
    _labels_required = False
    _serves_update = False

    def held_out_dataset(self, dataset: Any = None, name: str = "calibration_dataset") -> Any:
        """The dataset, or that of several evaluation sets which it is the key of, if the model was not trained on it.

        Args:
            dataset: the calibration set if not given, or else the evaluation set.
            name: what an error calls it.

        Raises:
            ValueError: there is none, there are several to choose from, or it is the training set.
        """
        for default in (self.calibration_dataset, self.eval_dataset):
            dataset = default if dataset is None else dataset
        dataset = self._evaluation_set(name, dataset)
        if dataset is None:
            raise ValueError(
                f"{name} must be given, got None: the trainer has neither a calibration_dataset nor an eval_dataset"
            )
        if isinstance(dataset, dict):
            raise ValueError(f"{name} must be one of the evaluation sets, got all of them: {', '.join(dataset)}")
        self._check_held_out(name, dataset)
        check_not_empty(name, dataset)
        return dataset

    def _evaluation_set(self, name: str, dataset: Any) -> Any:
        """The dataset itself, or that of several evaluation sets which it is the key of."""
        if not isinstance(dataset, str):
            return dataset
        sets = self.eval_dataset if isinstance(self.eval_dataset, dict) else {}
        if dataset not in sets:
            raise ValueError(
                f"{name} must be a dataset or one of the evaluation sets ({', '.join(sets)}), got {dataset!r}"
            )
        return sets[dataset]

    def _check_held_out(self, name: str, dataset: Any) -> None:
        train = self.train_dataset
        same = dataset is not None and dataset is train
        if isinstance(dataset, datasets.Dataset) and isinstance(train, datasets.Dataset):
            same = dataset._fingerprint == train._fingerprint  # loaded twice, say
        if same:
            raise ValueError(
                f"{name} must be held out, got the training set: its confidence says nothing about others"
            )

    def evaluate(
        self,
        eval_dataset: Any = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
        **generation: Any,
    ) -> dict[str, float]:
        dataset = self._evaluation_set("eval_dataset", self.eval_dataset if eval_dataset is None else eval_dataset)
        # One of several sets is evaluated by a call of its own, from within.
        self._serves_update = self._gamma_updates.due and dataset is self.held_out_dataset()
        try:
            return super().evaluate(eval_dataset, ignore_keys, metric_key_prefix, **generation)
        finally:
            self._serves_update = False

    def get_eval_dataloader(self, eval_dataset: Any = None) -> DataLoader:
        if eval_dataset is None or isinstance(eval_dataset, str) or eval_dataset is self.eval_dataset:
            return super().get_eval_dataloader(eval_dataset)
        # With persistent workers Trainer would give the loader of another dataset, or keep this one for the next.
        kept = self.__dict__.pop("_eval_dataloaders", None)
        try:
            return super().get_eval_dataloader(eval_dataset)
        finally:
            self.__dict__.pop("_eval_dataloaders", None)
            if kept is not None:
                self._eval_dataloaders = kept

    def _get_dataloader(self, *args: Any, is_training: bool = False, **kwargs: Any) -> DataLoader:
        drop_last = self.args.dataloader_drop_last
        self.args.dataloader_drop_last = drop_last and is_training  # every sample is measured
        try:
            return super()._get_dataloader(*args, is_training=is_training, **kwargs)
        finally:
            self.args.dataloader_drop_last = drop_last

    def evaluation_loop(
        self,
        dataloader: DataLoader,
        description: str,
        prediction_loss_only: bool | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> EvalLoopOutput:
        streamed = self._streamed()
        with self._into(streamed, labels_required=description == "Evaluation"):
            self._check_measurable(dataloader)
            output = super().evaluation_loop(
                dataloader, description, prediction_loss_only, ignore_keys, metric_key_prefix=metric_key_prefix
            )
        metrics = {f"{metric_key_prefix}_{key}": value for key, value in streamed.compute().items()}
        self.confusion = streamed.confusion
        if self._serves_update:
            self._gamma_updates.update(*streamed.before.samples())
        if metrics:
            # Trainer's loss is a mean over batches. Any other metric of the same name is the user's own.
            output.metrics.pop(f"{metric_key_prefix}_loss", None)
        output.metrics.update(metrics | output.metrics)
        return output

    def _streamed(self) -> StreamedEvaluation:
        self.forget_folded_temperature()
        # A vocabulary's classes are too many for figures of each, and no table has them.
        classwise = not self.head.generates
        # Too many pixels for a number of each, unless AdaFocal is to move γ by them.
        keep_samples = self.head is not Head.PIXELS or self._gamma_updates.policy is not None
        return StreamedEvaluation(
            self.loss, self.args.calibration_bins, self.temperature, classwise, keep_samples=keep_samples
        )

    def measure(self, dataset: Any) -> tuple[CalibrationMetrics, CalibrationMetrics | None]:
        """Measure a dataset before and, if one is fitted, after temperature scaling, without keeping logits.

        What `evaluate` reports are the `compute()` of the two; their `bins()` are a reliability diagram's. For pixels
        they do not grow with the data (`keep_samples=False`, but with AdaFocal).

        Args:
            dataset: labelled data, or the key of one of several evaluation sets.

        Returns:
            The `CalibrationMetrics` of all processes' rows, equal on each of them; the second is None without a
            temperature.

        Raises:
            ValueError: an empty dataset, or one without labels.
        """
        streamed = self._streamed()
        measured = self._collect(self._evaluation_set("dataset", dataset), streamed)
        self.confusion = streamed.confusion
        return measured

    def prediction_step(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        prediction_loss_only: bool,
        ignore_keys: list[str] | None = None,
    ) -> tuple[Any, Any, Any]:
        if self._labels_required and inputs.get("labels") is None:
            raise ValueError(f"the dataset to measure must have a column 'label' or 'labels', got {', '.join(inputs)}")
        return super().prediction_step(model, inputs, prediction_loss_only, ignore_keys)

    @contextmanager
    def _into(self, sink: Any, labels_required: bool) -> Iterator[None]:
        """Send the logits and labels of every batch that is evaluated meanwhile to `sink`."""
        self._sink, self._labels_required = sink, labels_required
        try:
            yield
        finally:
            self._sink, self._labels_required = None, False

    def _check_measurable(self, dataloader: DataLoader) -> None:
        if isinstance(dataloader.dataset, IterableDatasetShard) and self.args.world_size > 1:
            raise ValueError(
                "args.accelerator_config must have dispatch_batches for a stream that is measured, got "
                "dispatch_batches=False: the rows that fill up its last batch cannot be told from its own"
            )
        check_not_empty("the dataset to measure", dataloader.dataset)

    def _num_measured_rows(self, num_rows: int) -> int:
        """How many rows of this process's evaluation batch are not the sampler's repeats."""
        if self.accelerator.num_processes == 1:
            return num_rows
        if num_rows > self.args.per_device_eval_batch_size:
            raise ValueError(
                f"labels must have one row a sample to be measured on several processes, got {num_rows} rows in a "
                f"batch of at most {self.args.per_device_eval_batch_size} samples"
            )
        state = self.accelerator.gradient_state
        return self._num_own_rows(num_rows, state.remainder) if state.end_of_dataloader else num_rows

    def _num_own_rows(self, num_rows: int, remainder: int) -> int:
        """How many rows of this process's last batch are not repeats that fill up the last global batch.

        Args:
            num_rows: rows of this process's batch.
            remainder: rows of the global batch that are not repeats; 0 or less if none are.
        """
        if remainder <= 0:
            return num_rows
        return min(max(remainder - self.accelerator.process_index * num_rows, 0), num_rows)

    def measure_confidences(self) -> tuple[Tensor, Tensor]:
        """Top-1 confidences (N,) of the held-out data and whether each prediction is right (N,), bool, on the CPU.

        Nothing else is gathered; equal on all processes.
        """
        return self._collect(self.held_out_dataset(), CollectedConfidences())

    def _collect(self, dataset: Any, collected: Any) -> Any:
        """What `collected` (of the evaluation module) gathers from a pass over the dataset."""
        dataloader = self.get_eval_dataloader(dataset)
        self._check_measurable(dataloader)
        with self._into(collected, labels_required=True):
            super().evaluation_loop(dataloader, "Calibration", prediction_loss_only=True)
        # As after predict(), or the progress bar of this pass would go on in the next one.
        self.control: TrainerControl = self.callback_handler.on_predict(self.args, self.state, self.control, {})
        return collected.gather()

    def fit_temperature(self, dataset: Any = None, objective: str = "ece") -> Temperature:
        """Fit the temperature of the model's logits on held-out data; later evaluations report it too.

        Args:
            dataset: labelled data that the model was not trained on, or the key of one of several evaluation sets; if
                not given the calibration set, or else the evaluation set. Its logits are kept in memory, except
                those over a vocabulary and those of pixels.
            objective: "ece", the grid 0.1 … 10.0 of the papers' tables, or "nll"; see `hf_focal.fit_temperature`. Of
                language models' tokens, and of pixels, both are taken from the grid (`hf_focal.TemperatureStream`).

        Raises:
            ValueError: no dataset, an empty one, the training set itself, one without labels, an unknown objective, or
                what `hf_focal.fit_temperature` raises.
        """
        check_objective(objective)
        dataset = self.held_out_dataset(dataset, "dataset")
        if self.head is Head.CLASSES:
            logits, labels = self._collect(dataset, CollectedLogits())
            self.temperature = fit_temperature(logits, labels, objective, num_bins=self.args.calibration_bins)
        else:
            self.temperature_curves = self._collect(dataset, StreamedTemperature(self.args.calibration_bins)).compute()
            self.temperature = self.temperature_curves.fit(objective)
        self._calibration_when_fitted = self.calibration()
        return self.temperature

    def forget_folded_temperature(self) -> None:
        """Let go of the temperature if it has been folded into the model since it was fitted."""
        if self.folded_temperature() is not None and self.calibration() != self._calibration_when_fitted:
            self.temperature = None

    def folded_temperature(self) -> float | None:
        """The temperature that is in the model's weights, None where there is none."""
        return folded_temperature(self.calibration(), self.head.generates)

    def calibration(self) -> dict[str, Any]:
        """A copy of what `fold_temperature` has recorded in the model's config; empty where it has not."""
        return dict(getattr(getattr(self.model, "config", None), "calibration", None) or {})
