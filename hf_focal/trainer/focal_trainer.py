"""`FocalTrainer`: Transformers' Trainer with a calibrated loss, calibration metrics and temperature scaling."""

import logging
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import CommitInfo, run_as_future
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import Trainer
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, TrainOutput, get_last_checkpoint, has_length

from ..calibration.correction_choice import CalibrationFit, Correction, fit_calibration
from ..calibration.fitted_temperature import OBJECTIVES, STREAM_OBJECTIVES, Temperature, check_objective, few_samples
from ..calibration.folding import folded_temperature
from ..calibration.last_layers import may_have_bias
from ..calibration.streaming_temperature import TemperatureCurves, TemperatureStream
from ..calibration.temperature import fit_temperature
from ..hub.hub_publishing import HubError, create_repository, publish, repository_of
from ..losses import LossConfig, ScheduledGamma
from ..metrics import CalibrationMetrics, ConfusionMatrix
from ..reports import RunResult, comparison_page
from ..reports.run_results import write_json
from .auxiliary_loss import AuxiliaryLoss
from .checkpoint_state import FocalCheckpoint, LoggedLoss, check_position, read_state, write_state
from .class_counts import count_classes
from .deferred_logits import deferrable_head, deferred, set_ddp_default
from .evaluation_accumulators import CollectedLogits, StreamedEvaluation, TemperatureSums, TopConfidences
from .head_kinds import Head, check_correction, check_model, head_of, without_adapter
from .ignored_and_repeated_samples import num_measured_samples, padded_positions, without_ignored, without_repeats
from .loss_function import LossFunction, loss_of_head
from .saving_and_pushing import first, fold_saved, measured_result, push_checkpoint, weight_files, write_model_card
from .seeded_and_token_batches import seed_by_epoch
from .setup_and_dataset_checks import (
    check_held_out,
    check_measurable,
    check_not_empty,
    check_setup,
    evaluation_set,
    labels_of,
    search_objective,
)
from .training_arguments import FocalTrainingArguments
from .training_callbacks import GammaUpdates, TrainingCallback, add_callbacks, print_lines

_logger = logging.getLogger(__name__)


class FocalTrainer(Trainer):
    """A `transformers.Trainer` whose loss is `args.loss` and whose evaluations measure calibration.

    Every loss, plain cross-entropy included, is the sum over the samples (or tokens) of a whole optimizer step divided
    by their number, so neither the gradient nor the logged loss depends on how the step is split into micro-batches
    and processes (except with MMCE and the recall of a batch). Samples that a distributed sampler repeats to fill up
    the last batch of an epoch have no weight. A resumed run ends like one that was never interrupted.

    `evaluate()` and `predict()` add the metrics of `CalibrationMetrics` (``eval_ece``, ``eval_adaece``, ``eval_nll``,
    ...) without keeping logits; after `fit_temperature` also those after T (``eval_ece_post_t``, ...). Each
    evaluation prints one line; ``trainer.add_callback(PrinterCallback)`` prints all logs. A scheduled γ follows
    ``global_step / max_steps`` and is logged as ``gamma``. AdaFocal's γ are updated at the end of each epoch, or every
    `args.gamma_update_steps` steps, from `calibration_dataset`; `gamma_history` collects the γ and edges of the bins.

    Semantic segmentation is trained and measured pixel by pixel, at the labels' height and width, without an auxiliary
    head (UperNet, BEiT) and without pixels labeled `config.semantic_loss_ignore_index` (255). The auxiliary loss of a
    mixture of experts (`output_router_logits`) is added once per step and logged as ``aux_loss``.

    Args:
        model: a classifier: its output is a mapping with `logits`, a tuple that begins with them, or the logits
            themselves, (..., K) for labels (...); those of a semantic segmentation are (N, K, h, w) for (N, H, W).
        calibration_dataset: held-out data, or the key of one of several evaluation sets: AdaFocal measures
            the model's calibration on it, and `fit_temperature` uses it by default. The evaluation set if not given.
        *trainer_args, **trainer_kwargs: arguments of `transformers.Trainer`, except `compute_loss_func`.

    Attributes:
        loss: the loss module; loss_config: the `LossConfig` that it was built from.
        temperature: the `Temperature` fitted to the model as it is now, or None. Training and folding reset it.
        temperature_curves: the `TemperatureCurves` behind the last temperature where logits were streamed, or None.
        confusion: of a classifier of tokens or pixels, the `ConfusionMatrix` of the last evaluation.
        deferred_head (Linear | None): a language model's head if it trains without logits (`args.linear_loss`).

    Raises:
        TypeError: args that are not `FocalTrainingArguments`.
        ValueError: an empty dataset; a `compute_loss_func`; a model that needs FocalSeq2SeqTrainer, or whose head has
            neither a softmax nor sigmoids; several GPUs without a launcher; tensor or sequence parallelism;
            `even_batches=False` on several processes; the training set as `calibration_dataset`. `train` raises it for
            fewer calibration labels than AdaFocal has bins, and for a checkpoint of FocalTrainer that lost its state.
    """

    _arguments: type[FocalTrainingArguments] = FocalTrainingArguments
    _trains_seq2seq = False

    def __init__(
        self,
        model: nn.Module | None = None,
        args: FocalTrainingArguments | None = None,
        *trainer_args: Any,
        calibration_dataset: Any = None,
        **trainer_kwargs: Any,
    ):
        args = self._arguments("tmp_trainer") if args is None else args
        if not isinstance(args, self._arguments):
            raise TypeError(f"args must be {self._arguments.__name__}, got {type(args).__name__}")
        set_ddp_default(model, args)
        super().__init__(model, args, *trainer_args, **trainer_kwargs)
        if self.compute_loss_func is not None:
            raise ValueError("compute_loss_func must be None, got one: the loss is args.loss")
        check_setup(self)
        self.calibration_dataset = evaluation_set("calibration_dataset", calibration_dataset, self.eval_dataset)
        for name in ("train_dataset", "eval_dataset", "calibration_dataset"):
            check_not_empty(name, getattr(self, name))
        check_held_out("calibration_dataset", self.calibration_dataset, self.train_dataset)
        check_model(self.model)
        self.head = head_of(self.model)
        if (self.head is Head.TARGET_TOKENS) != self._trains_seq2seq:
            expected = "FocalSeq2SeqTrainer" if self.head is Head.TARGET_TOKENS else "FocalTrainer"
            raise ValueError(f"model must be one for this trainer, got {type(self.model).__name__}: use {expected}")
        self.label_names = ["labels"]  # also for models that do not take labels
        self.temperature: Temperature | None = None
        self.calibration_fit: CalibrationFit | None = None
        self.temperature_curves: TemperatureCurves | None = None
        self.confusion: ConfusionMatrix | None = None
        self._calibration_when_fitted: dict[str, Any] = {}
        self.fitted_on: Any = None  # the dataset of the last fit
        self._accumulator: Any = None  # of the evaluation that is running
        self._labels_required = self._serves_update = self._measured = False
        self.checkpoint_pushes: list[Future] = []
        self.build_loss()
        self._logged_loss = LoggedLoss(0, 0)
        self._gamma_updates = GammaUpdates(self)
        add_callbacks(self, TrainingCallback(self), self._gamma_updates, FocalCheckpoint())
        print_lines(self)

    def build_loss(self) -> None:
        """Build `loss` from `args.loss`, anew for each training run."""
        self.loss_config = LossConfig.parse(self.args.loss)
        self.loss = loss_of_head(self.head, self.loss_config)
        self._auxiliary = AuxiliaryLoss(self.model)
        shifted, pixels = self.head is Head.NEXT_TOKENS, self.head is Head.PIXELS
        options = self.args.loss_reduction, shifted, pixels, self._auxiliary, self.head is Head.SPANS
        self.compute_loss_func: Any = LossFunction(self.loss, *options)
        self.deferred_head = deferrable_head(self.model, self.loss, self.args) if self.head.generates else None

    @property
    def link(self) -> str:
        return "sigmoid" if self.head is Head.LABELS else "softmax"

    # Training

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> TrainOutput:
        checkpoint: Any = resume_from_checkpoint
        checkpoint = get_last_checkpoint(self.args.output_dir) if checkpoint is True else checkpoint
        self.resumed_from: str | None = checkpoint or None
        self._saved_state = read_state(checkpoint) if checkpoint else None
        check_position(checkpoint, self)
        if checkpoint and self._saved_state is None:
            _logger.warning("%s was not saved by FocalTrainer: the state of the loss starts afresh", checkpoint)
        self.temperature = self.calibration_fit = self.fitted_on = None
        if self.calibration():  # of the weights before this training run
            del self.model.config.calibration
        try:
            output = super().train(resume_from_checkpoint, *args, **kwargs)
        finally:
            self._gamma_updates.due = False  # later evaluations are not part of training
        return output._replace(training_loss=output.metrics["train_loss"])

    def begin_training(self, train_dataloader: DataLoader) -> None:
        """Prepare the loss for a new training run, or restore it from the checkpoint."""
        self.build_loss()
        self._train_dataloader, self._num_labels, self._gamma_updates.due = train_dataloader, None, False
        self._logged_loss = LoggedLoss(self.state.global_step, self.state.global_step)
        # Missing in a checkpoint of another trainer, where Trainer would look for it.
        self.state.stateful_callbacks.setdefault(FocalCheckpoint.__name__, FocalCheckpoint().state())
        saved = self._saved_state
        if saved is not None and saved["loss"] != str(self.loss_config):
            _logger.warning("training goes on with loss %s instead of %s", self.loss_config, saved["loss"])
        elif saved is not None:
            self.loss.load_state_dict(saved["loss_state"])
            self._gamma_updates.due = saved["gamma_update_due"]
            self._logged_loss = LoggedLoss(**saved["logged_loss"])
            if saved["auxiliary_loss"] is not None:
                self._auxiliary.running = torch.tensor(saved["auxiliary_loss"], device=self.args.device)
        count_classes(self, train_dataloader)

    def get_train_dataloader(self) -> DataLoader:
        return seed_by_epoch(super().get_train_dataloader(), self.data_seed)

    @property
    def data_seed(self) -> int:
        """The seed of the order of the training samples."""
        return self.args.seed if self.args.data_seed is None else self.args.data_seed

    def get_batch_samples(self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device) -> Any:
        batches = [
            without_repeats(self.prepare_labels(batch), self._train_dataloader, self.train_dataset)
            for batch in islice(epoch_iterator, num_batches)
        ]
        if batches and not has_length(self.train_dataset) and batches[-1].get("labels") is not None:
            # Trainer takes no step where a stream ends within an accumulation: batches without labels complete it.
            ignored = {**batches[-1], "labels": torch.full_like(batches[-1]["labels"], -100)}
            batches += [ignored] * (num_batches - len(batches))
        samples, num_items = super().get_batch_samples(iter(batches), num_batches, device)
        if num_items is not None:
            self._num_labels = num_items if self._num_labels is None else self._num_labels + num_items
        return samples, num_items

    def check_labels_seen(self) -> None:
        """Raise if all labels since training began were -100: the loss is 0, and would stay 0."""
        if self._num_labels is not None and not self.accelerator.reduce(torch.as_tensor(self._num_labels)):
            raise ValueError("train_dataset must have labels that count, got -100 alone in a whole epoch")

    def prepare_labels(self, batch: Any) -> Any:
        """The batch with -100 as labels of ignored pixels, and of the first token of each sequence."""
        return without_ignored(batch, self.head, self.model)

    def training_step(self, *args: Any, **kwargs: Any) -> Tensor:
        loss = super().training_step(*args, **kwargs)
        self._logged_loss.pending = self._logged_loss.pending + loss
        return loss

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        inputs = self.prepare_labels(inputs)
        labels: Any = inputs.get("labels")
        if self._accumulator is not None:  # perhaps before any training
            count_classes(self)
        with deferred(self.deferred_head if model.training else None):
            loss, outputs = super().compute_loss(model, inputs, True, num_items_in_batch)
        if self._accumulator is not None:
            own = num_measured_samples(len(labels), self.args.per_device_eval_batch_size)
            logits, targets = self.compute_loss_func.logits_and_targets(outputs, labels)
            self._accumulator.update(padded_positions(logits[:own], self.head, self.model), targets[:own])
            self._measured = True
        if not return_outputs or isinstance(outputs, Mapping):
            return (loss, outputs) if return_outputs else loss
        # Trainer takes the first element of a tuple for the loss, which a model without labels does not return.
        return loss, (None, outputs) if isinstance(outputs, Tensor) else (None, *outputs)

    def hyperparameter_search(self, hp_space: Any = None, compute_objective: Any = None, *args: Any, **kw: Any) -> Any:
        return super().hyperparameter_search(hp_space, search_objective(self, compute_objective), *args, **kw)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        step, filtered = self.state.global_step, self.args.logging_nan_inf_filter
        if {"loss", "learning_rate"} <= logs.keys():  # what Trainer logs during training
            if not filtered:
                logs["loss"] = self._logged_loss.mean_since_last_log(step, self.accelerator)
            if (auxiliary := self._auxiliary.mean(self.accelerator)) is not None:
                logs["aux_loss"] = auxiliary
            if isinstance(policy := getattr(self.loss, "policy", None), ScheduledGamma):
                logs["gamma"] = policy.gamma
        if "train_runtime" in logs and not filtered:  # the summary at the end of training
            logs["train_loss"] = self._logged_loss.mean(step, self.accelerator)
        super().log(logs, start_time)

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Save the model as it was trained, without the temperature; in a checkpoint also the state of the loss."""
        folder = Path(output_dir or self.args.output_dir)
        if self.is_world_process_zero():  # of an earlier model in the same folder
            of_adapter = ["generation_config.json"] * (without_adapter(self.model) is not self.model)
            for name in ("temperature.json", "calibration.json", *of_adapter):
                (folder / name).unlink(missing_ok=True)
        if self.correction is not None and not _internal_call:
            _logger.warning("%s gets the model without its temperature: save_calibrated saves it with it", folder)
        super().save_model(output_dir, _internal_call)
        if folder.name != f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}":
            return
        # Reduced also in the training that goes on, so that a resumed one rounds alike.
        self._logged_loss.reduce(self.accelerator)
        state = {
            "num_processes": self.args.world_size,
            "loss": str(self.loss_config),
            "loss_state": dict(self.loss.state_dict()),
            "gamma_update_due": self._gamma_updates.due,
            "logged_loss": asdict(self._logged_loss),
            "auxiliary_loss": self._auxiliary.state(self.accelerator),
        }
        if self.args.should_save:
            write_state(folder, state)

    # Evaluation

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: Any = None, metric_key_prefix: str = "eval", **generation: Any
    ) -> dict[str, float]:
        dataset = self.eval_dataset if eval_dataset is None else eval_dataset
        dataset = evaluation_set("eval_dataset", dataset, self.eval_dataset)
        # Trainer evaluates each of several sets by another call of this method.
        self._serves_update = self._gamma_updates.due and dataset is self.held_out_dataset()
        try:
            return super().evaluate(eval_dataset, ignore_keys, metric_key_prefix, **generation)
        finally:
            self._serves_update = False

    def evaluation_loop(
        self,
        dataloader: DataLoader,
        description: str,
        prediction_loss_only: bool | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
        accumulator: Any = None,
    ) -> Any:
        """Trainer's loop that streams logits and labels into an accumulator, by default a `StreamedEvaluation`."""
        check_measurable(dataloader, self.args.world_size)
        streamed = self._new_evaluation() if accumulator is None else None
        # Trainer's loop calls `prediction_step`, and that `compute_loss`, with arguments of its own.
        self._accumulator, self._labels_required = streamed or accumulator, description != "Prediction"
        try:
            output = super().evaluation_loop(
                dataloader, description, prediction_loss_only, ignore_keys, metric_key_prefix=metric_key_prefix
            )
        finally:
            self._accumulator, self._labels_required = None, False
        if streamed is None:
            return output
        metrics = {f"{metric_key_prefix}_{key}": value for key, value in streamed.compute().items()}
        self.confusion = streamed.confusion
        if self._serves_update:
            self._gamma_updates.update(*streamed.before.samples())
        if metrics:
            # Trainer's loss is a mean over batches. Any other metric of the same name is the user's own.
            output.metrics.pop(f"{metric_key_prefix}_loss", None)
        output.metrics.update(metrics | output.metrics)
        return output

    def prediction_step(
        self, model: nn.Module, inputs: dict[str, Any], prediction_loss_only: bool, ignore_keys: Any = None
    ) -> tuple[Any, Any, Any]:
        inputs = self.prepare_labels(inputs)
        if self._labels_required:
            labels_of(inputs, "the dataset to measure")
        self._measured = False
        step = super().prediction_step(model, inputs, prediction_loss_only, ignore_keys)
        if self._labels_required and not self._measured:
            raise TypeError(f"compute_loss of {type(self).__name__} must call super().compute_loss, which measures")
        return step

    def _new_evaluation(self) -> StreamedEvaluation:
        self.forget_folded_temperature()
        # There are too many pixels to keep a number of each, unless AdaFocal needs them.
        keep_samples = self.head is not Head.PIXELS or self._gamma_updates.policy is not None
        options = self.correction, self.head.has_classwise_metrics, keep_samples, self.head is Head.SPANS
        return StreamedEvaluation(self.loss, self.args.calibration_bins, *options)

    def get_eval_dataloader(self, eval_dataset: Any = None) -> DataLoader:
        if eval_dataset is None or isinstance(eval_dataset, str) or eval_dataset is self.eval_dataset:
            return self._whole(super().get_eval_dataloader, eval_dataset, self.args.train_sampling_strategy)
        # With persistent workers Trainer would take the loader of the evaluation set for any other set.
        return self.get_test_dataloader(eval_dataset)

    def get_test_dataloader(self, test_dataset: Any) -> DataLoader:
        return self._whole(super().get_test_dataloader, test_dataset, "random")

    def _whole(self, build: Callable[[Any], DataLoader], dataset: Any, sampling: str) -> DataLoader:
        """A loader of every sample. `predict` keeps their order; other evaluations may group them by length."""
        args = self.args
        given = args.dataloader_drop_last, args.train_sampling_strategy
        args.dataloader_drop_last, args.train_sampling_strategy = False, sampling
        try:
            return build(dataset)
        finally:
            args.dataloader_drop_last, args.train_sampling_strategy = given

    def collect(self, dataset: Any, accumulator: Any) -> Any:
        """Update an accumulator (see `evaluation_accumulators`) with a labeled dataset; returns `gather` of it."""
        dataloader = self.get_eval_dataloader(dataset)
        self.evaluation_loop(dataloader, "Calibration", prediction_loss_only=True, accumulator=accumulator)
        # As after predict(), or the progress bar of this pass would continue in the next one.
        self.callback_handler.on_predict(self.args, self.state, self.control, {})
        return accumulator.gather()

    def measure(self, dataset: Any) -> tuple[CalibrationMetrics, CalibrationMetrics | None]:
        """Two `CalibrationMetrics`, before T and after T, of labeled data or of the evaluation set with that key.

        Both cover all processes; the second is None without a temperature. Pixels are measured with
        `keep_samples=False`, except with AdaFocal. Raises ValueError for an empty dataset, or one without labels.
        """
        streamed = self._new_evaluation()
        measured = self.collect(evaluation_set("dataset", dataset, self.eval_dataset), streamed)
        self.confusion = streamed.confusion
        return measured

    def measure_confidences(self) -> tuple[Tensor, Tensor]:
        """Top-1 confidences (N,) on the held-out data and correctness (N,), bool; on the CPU, of all processes."""
        return self.collect(self.held_out_dataset(), TopConfidences(self.link))

    def held_out_dataset(self, dataset: Any = None, name: str = "calibration_dataset") -> Any:
        """Return the dataset, or the evaluation set that it names; by default the calibration or else evaluation set.

        Raises ValueError, naming the argument `name`, for none, several, an empty one, or the training set.
        """
        for default in (self.calibration_dataset, self.eval_dataset):
            dataset = default if dataset is None else dataset
        dataset = evaluation_set(name, dataset, self.eval_dataset)
        if dataset is None:
            raise ValueError(f"{name} must be given, got None: there is no calibration_dataset or eval_dataset")
        if isinstance(dataset, dict):
            raise ValueError(f"{name} must be one of the evaluation sets, got all of them: {', '.join(dataset)}")
        check_held_out(name, dataset, self.train_dataset)
        check_not_empty(name, dataset)
        return dataset

    # Temperature

    def fit_temperature(self, dataset: Any = None, objective: str = "nll", per_label: bool = False) -> Temperature:
        """Fit the temperature of the model's logits on held-out data; later evaluations also measure after T.

        Args:
            dataset: see `held_out_dataset`. Logits of language models and of pixels, and any above 1 GiB, are streamed
                (`hf_focal.TemperatureStream`); for "adaece" and for several labels they are kept in memory.
            objective: "nll", "ece" (searched over 0.1, 0.2, …, 10, as is "nll" of streamed logits), or "adaece"; see
                `hf_focal.fit_temperature`. A warning says if a classifier has too few samples for it.
            per_label: for a model of several labels, one T per label, by NLL.

        Raises:
            ValueError: what `held_out_dataset` and `hf_focal.fit_temperature` raise, or a dataset without labels.
        """
        check_objective(objective, OBJECTIVES if self.head is Head.CLASSES else STREAM_OBJECTIVES)
        if per_label and self.head is not Head.LABELS:
            raise ValueError(f"per_label must be False for a model with a softmax, got {per_label}")
        dataset = self.held_out_dataset(dataset, "dataset")
        store: Any = TemperatureSums(self.args.calibration_bins)
        if self.head in (Head.CLASSES, Head.LABELS):
            streams = self.head is Head.CLASSES and objective in STREAM_OBJECTIVES
            store = CollectedLogits(store if streams else None, self.link)
        collected = self.collect(dataset, store)
        if curves := collected.compute() if isinstance(collected, TemperatureStream) else None:
            self.temperature = curves.fit(objective)
        else:
            logits, labels = collected
            options: Any = {"link": self.link, "per_label": per_label}
            self.temperature = fit_temperature(logits, labels, objective, self.args.calibration_bins, **options)
            if (warning := few_samples(objective, self.temperature.num_samples)) and self.args.should_log:
                _logger.warning(warning)
        self.calibration_fit, self.temperature_curves = None, curves
        self.fitted_on, self._calibration_when_fitted = dataset, self.calibration()
        return self.temperature

    def fit_calibration(self, dataset: Any = None, method: str = "auto") -> CalibrationFit:
        """Fit a temperature, vector or matrix scaling to a classifier's logits; it replaces an earlier temperature.

        Later evaluations also measure after it, and `save_calibrated` folds it into the weights. With vector and
        matrix scaling, predictions may change. The result has cross-fitted metrics.

        Args:
            dataset: see `held_out_dataset`. The logits are kept in memory.
            method: "temperature", "vector", "matrix" or "auto"; see `hf_focal.fit_calibration`.

        Raises:
            ValueError: what `held_out_dataset` and `hf_focal.fit_calibration` raise; a language model, or one of
                pixels or several labels (use `fit_temperature`), or of multiple choice unless for a temperature.
        """
        check_correction(self.model, self.head, method)
        dataset = self.held_out_dataset(dataset, "dataset")
        logits, labels = self.collect(dataset, CollectedLogits())
        options = {"num_bins": self.args.calibration_bins, "bias": may_have_bias(self.model)}
        self.calibration_fit = fit = fit_calibration(logits, labels, method, **options)
        self.temperature = fit.correction if isinstance(fit.correction, Temperature) else None
        self.fitted_on, self._calibration_when_fitted = dataset, self.calibration()
        return fit

    @property
    def correction(self) -> Correction | None:
        """What was fitted last, by `fit_temperature` or `fit_calibration`."""
        return self.calibration_fit.correction if self.calibration_fit is not None else self.temperature

    def calibration(self) -> dict[str, Any]:
        """A copy of `model.config.calibration`; empty without one."""
        return dict(getattr(getattr(self.model, "config", None), "calibration", None) or {})

    def forget_folded_temperature(self) -> None:
        """Reset the correction if it has been folded into the model since it was fitted."""
        folded = self.folded_temperature() is not None or "method" in self.calibration()
        if folded and self.calibration() != self._calibration_when_fitted:
            self.temperature = self.calibration_fit = None

    def folded_temperature(self) -> float | None:
        """The temperature in the model's weights, None if there is none."""
        return folded_temperature(self.calibration(), self.head.generates)

    # Saving and publishing

    def report(self, test_dataset: Any) -> RunResult:
        """Measure data as `measure` does, and write ``report.html`` and the folder ``report`` to `args.output_dir`.

        All processes must call it. The result's `pre` and `post` are the metrics before and after the correction.
        """
        result = measured_result(self, test_dataset)
        if self.is_world_process_zero():
            comparison_page([self.args.output_dir], Path(self.args.output_dir, "report.html"))
        return result

    def save_calibrated(self) -> None:
        """Save the model in `args.output_dir` with its temperature, if one is fitted. All processes must call it.

        T is folded into a copy; ``temperature.json`` or ``calibration.json`` has the fit. If it cannot be folded (see
        `fold_temperature`), the saved configuration has it, with a warning.
        """
        folder = Path(self.args.output_dir)
        earlier = weight_files(folder)
        self.save_model(_internal_call=True)  # without a push
        self.forget_folded_temperature()
        if self.correction is not None and self.is_world_process_zero():
            fold_saved(self.accelerator.unwrap_model(self.model), folder, self.correction, earlier)
            if self.temperature is not None:
                self.temperature.save(folder / "temperature.json")
            if self.calibration_fit is not None:
                write_json(folder / "calibration.json", self.calibration_fit.to_dict())

    def create_model_card(
        self,
        language: str | list[str] | None = None,
        license: str | None = None,
        tags: str | list[str] | None = None,
        model_name: str | None = None,
        finetuned_from: str | None = None,
        tasks: str | list[str] | None = None,
        dataset_tags: str | list[str] | None = None,
        dataset: str | list[str] | None = None,
        dataset_args: str | list[str] | None = None,
        *,
        result: RunResult | None = None,
        test_dataset: Any = None,
    ) -> None:
        """Write ``README.md``, the card of the model that `save_calibrated` saved. All processes must call it.

        Raises ValueError if there is nothing to measure, or the task is unknown.

        Args:
            language, license, tags: of the metadata.
            model_name: the Hub id, or else the folder's name.
            finetuned_from: the model that was fine-tuned; by default the one that the model was loaded from.
            tasks: the Hub's name of the model's task; not needed for language models and classifiers.
            dataset_tags, dataset, dataset_args: the dataset's Hub id; its name, if it has no id; its configuration.
            result: the test set's metrics, if `write_report` has already written them; the card shows its diagrams. By
                default the metrics are measured, and the report is written.
            test_dataset: labeled data to measure, or the key of one of several evaluation sets; by default the
                evaluation set, as the card then says. With `result` its Hub id or path.
        """
        named = {"language": language, "license": license, "base_model": finetuned_from, "task": first(tasks)}
        named["model_name"] = model_name or self.hub_model_id or repository_of(self.args)
        named["dataset"] = first(dataset_tags) or first(dataset)
        tags = [tags] if isinstance(tags, str) else tags or []
        write_model_card(self, result, test_dataset, first(dataset_args), tags, **named)

    def init_hf_repo(self, token: str | None = None, private: bool | None = None) -> None:
        if not self.is_world_process_zero():
            return
        private, token = self.args.hub_private_repo if private is None else private, token or self.args.hub_token
        self.hub_model_id = create_repository(repository_of(self.args), private=private, token=token)

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        push_checkpoint(self, Path(checkpoint_folder))

    def push_to_hub(
        self,
        commit_message: str | None = "End of training",
        blocking: bool = True,
        token: str | None = None,
        revision: str | None = None,
        private: bool | None = None,
        **card: Any,
    ) -> CommitInfo | Future | None:
        """Publish the calibrated model with its card. All processes must call it.

        Everything is first saved in `args.output_dir`, by `save_calibrated` and `create_model_card` (with the
        arguments in `card`), then uploaded to `args.hub_model_id`. Call `fit_temperature` first; without it the model
        is published as it was trained, with a warning. See also `transformers.Trainer.push_to_hub`.

        Returns:
            The commit on the main process, None on others; a `Future` of it where not `blocking`.

        Raises:
            ValueError: what `create_model_card` raises.
            HubError: what `hf_focal.hub.hub_publishing.publish` raises, with the command that repeats the upload.
        """
        token, revision = token or self.args.hub_token, revision or self.args.hub_revision
        private = self.args.hub_private_repo if private is None else private
        self.callback_handler.on_push_begin(self.args, self.state, self.control)
        self.save_calibrated()
        if self.correction is None and not self.calibration():
            _logger.warning("the model is published without a temperature: none was fitted, see fit_temperature")
        if self.hub_model_id is None:
            with suppress(HubError):  # which `publish` raises again, when all files are written
                self.init_hf_repo(token, private)
        self.create_model_card(**card)
        if not self.is_world_process_zero():
            return None
        wait(self.checkpoint_pushes)
        name = self.hub_model_id or repository_of(self.args)
        options: Any = {"private": private, "token": token, "revision": revision, "commit_message": commit_message}
        return (publish if blocking else partial(run_as_future, publish))(self.args.output_dir, name, **options)
