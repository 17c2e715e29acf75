"""The part of `FocalTrainer` that saves and publishes: the model with its temperature, and its card."""

import json
import logging
from collections.abc import Sequence
from concurrent.futures import Future
from enum import Enum
from pathlib import Path
from shutil import copy2
from tempfile import TemporaryDirectory
from typing import Any

from huggingface_hub import CommitInfo, HfApi, run_as_future
from transformers import PreTrainedModel
from transformers.integrations.deepspeed import unset_hf_deepspeed_config
from transformers.trainer_utils import HubStrategy
from transformers.utils import PushInProgress

from ..calibration.folding import fold_temperature, folded_temperature
from ..calibration.temperature import Temperature
from ..hub.hub_publishing import (
    HubError,
    create_repository,
    how_to_push,
    publish,
    published_files,
    repository_of,
    upload,
)
from ..hub.model_card import model_card
from ..hub.pipeline_tasks import PIPELINES, classifier_task
from ..reports import RunResult, TranslationResult, write_report
from ..utils.atomic_write import write_whole
from .gamma_updates import gamma_history
from .measuring_trainer import MeasuringTrainer
from .model_heads import Head

_logger = logging.getLogger(__name__)

# What `hub_training_state` publishes of a checkpoint besides: all that a training goes on from but its arguments.
_STATE = ("trainer_state.json", "optimizer.*", "scheduler.pt", "scaler.pt", "rng_state*.pth")
_GENERATIVE = {Head.NEXT_TOKENS: PIPELINES["causal-lm"], Head.TARGET_TOKENS: PIPELINES["seq2seq-lm"]}
# What a card lists of the training's arguments, where they say anything, under which names.
_SETTINGS = {
    "num_train_epochs": "epochs",
    "per_device_train_batch_size": "batch size a device",
    "gradient_accumulation_steps": "accumulated batches",
    "world_size": "processes",
    "optim": "optimiser",
    "learning_rate": "learning rate",
    "lr_scheduler_type": "learning rate schedule",
    "warmup_steps": "warm-up steps",
    "weight_decay": "weight decay",
    "max_grad_norm": "largest gradient norm",
    "loss_reduction": "reduction of the loss",
    "seed": "seed",
}


class PublishingTrainer(MeasuringTrainer):
    """Saves a model that is calibrated for whoever loads it, writes its card and publishes both.

    `FocalTrainer` has the attributes besides.
    """

    loss_config: Any

    def save_calibrated(self) -> None:
        """Save the model in `args.output_dir` with the temperature that was fitted, if one was.

        It is folded into a copy: `model` is left as it is, and so is `temperature`. ``temperature.json`` has its
        figures. Where it cannot be folded (`fold_temperature` says where not) the saved config has it, which
        `apply_calibrated_generation` reads, and a warning says so. All processes must call.
        """
        folder, temperature = Path(self.args.output_dir), self.temperature
        earlier = _weight_files(folder)
        self.save_model(_internal_call=True)
        self.forget_folded_temperature()
        if temperature is None or self.temperature is None or not self.is_world_process_zero():
            return
        temperature.save(folder / "temperature.json")
        try:
            # FSDP's sharded state dicts and ZeRO-3's checkpoints are in files of their own.
            if _weight_files(folder) == earlier:
                raise TypeError("the model must be saved whole, got an FSDP or ZeRO-3 plugin that keeps it cut up")
            self._fold_saved(folder, temperature)
        except (TypeError, OSError) as error:
            _record(folder, temperature)
            _logger.warning(
                "T = %.6g is not in the saved weights, whoever loads them must apply it, as the model card says: %s",
                temperature.value,
                error,
            )

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """As `transformers.Trainer` has it: the model as it was trained, without the temperature."""
        if self.is_world_process_zero():  # of what was saved there before
            Path(output_dir or self.args.output_dir, "temperature.json").unlink(missing_ok=True)
        super().save_model(output_dir, _internal_call)

    def _fold_saved(self, folder: Path, temperature: Temperature) -> None:
        # What is saved is loaded again: under FSDP2 and ZeRO-3 only that is whole.
        kind = type(self.accelerator.unwrap_model(self.model))
        name = kind.__name__.removeprefix("FSDP")
        kind = next(parent for parent in kind.__mro__ if parent.__name__ == name)
        if not issubclass(kind, PreTrainedModel):
            raise TypeError(f"the model must be one of Transformers, got {name}")
        unset_hf_deepspeed_config()  # with it from_pretrained would cut the model up again
        fold_temperature(kind.from_pretrained(folder), temperature).save_pretrained(folder)

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
        result: RunResult | TranslationResult | None = None,
        test_dataset: Any = None,
    ) -> None:
        """Write the card of what `save_calibrated` saved, ``README.md`` in `args.output_dir`; all processes must call.

        Args:
            language, license, tags: of the metadata.
            model_name: the Hub id, or else the folder's name.
            finetuned_from: what was fine-tuned; where the model came from, if absent.
            tasks: the Hub's name of what the model is for; known of language models and of classifiers.
            dataset_tags, dataset: the dataset's Hub id, or its name.
            dataset_args: its configuration.
            result: the figures of the test set, of which `write_report` writes the report that the card shows pictures
                of. If absent they are measured, and the report is written.
            test_dataset: what is measured: labelled data, or the key of one of several evaluation sets. The evaluation
                set if absent, as the card then says. With `result` the Hub id or the path of what that is of.

        Raises:
            ValueError: nothing to measure, or a task that is not known.
        """
        self.forget_folded_temperature()
        task = _first(tasks) or self._task()
        measured_on, same_rows = "test", False
        named = test_dataset if result is not None and isinstance(test_dataset, str) else None
        if result is None:
            if test_dataset is None:
                measured_on, same_rows = "validation", self._fits_to_eval_dataset
                test_dataset = self.held_out_dataset(self.eval_dataset, "test_dataset")
            result = self._measured_result(test_dataset)
        if not self.is_world_process_zero():
            return
        folder = Path(self.args.output_dir)
        sides = ("before", "after") if result.temperature.is_fitted else ("before",)
        config = getattr(self.model, "config", None)
        card = model_card(
            result,
            model_name=model_name or self.hub_model_id or repository_of(self.args),
            task=task,
            base_model=finetuned_from or getattr(config, "name_or_path", None) or None,
            dataset=_first(dataset_tags) or _first(dataset),
            language=language,
            license=license,
            settings=_settings(self.args, _first(dataset_args)),
            figures=[f"report/reliability_{when}.png" for when in sides],
            folded=_is_folded(folder, self.head.generates),
            earlier=None if result.temperature.is_fitted else self.folded_temperature(),
            own_code=type(self.accelerator.unwrap_model(self.model)).__module__.startswith("hf_focal."),
            measured_on=measured_on,
            test_dataset=named,
            same_rows=same_rows,
        )
        card.data.tags += [tags] if isinstance(tags, str) else tags or []
        card.save(folder / "README.md")

    @property
    def _fits_to_eval_dataset(self) -> bool:
        return self.calibration_dataset is None or self.calibration_dataset is self.eval_dataset

    def _measured_result(self, dataset: Any) -> RunResult:
        """The result of a dataset, with its report."""
        before, after = self.measure(dataset)
        details = {"gamma_history": gamma_history(self.state.log_history)}
        samples = self.head is Head.CLASSES and self.confusion is None
        temperature, loss = self.temperature, str(self.loss_config)
        result = RunResult.of(loss, temperature, before, after, details=details, intervals=samples)
        if self.is_world_process_zero():
            write_report(Path(self.args.output_dir) / "report", result)
        return result

    def _task(self) -> str:
        if self.head in _GENERATIVE:
            return _GENERATIVE[self.head]
        model = self.accelerator.unwrap_model(self.model)
        name = type(model).__name__
        if name.endswith("ForSequenceClassification") and model.main_input_name in ("input_values", "input_features"):
            return "audio-classification"
        task = classifier_task(name)
        if task is None:
            raise ValueError(f"tasks must be given, the Hub's name of what a {name} is for, got None")
        return task

    def init_hf_repo(self, token: str | None = None, private: bool | None = None) -> None:
        if not self.is_world_process_zero():
            return
        private = self.args.hub_private_repo if private is None else private
        token = token or self.args.hub_token
        self.hub_model_id = create_repository(repository_of(self.args), private=private, token=token)
        self.push_in_progress: PushInProgress | None = None

    def push_to_hub(
        self,
        commit_message: str | None = "End of training",
        blocking: bool = True,
        token: str | None = None,
        revision: str | None = None,
        private: bool | None = None,
        **card: Any,
    ) -> CommitInfo | Future | None:
        """Publish the model, calibrated for whoever loads it, with its card; all processes must call.

        First everything is saved in `args.output_dir`, as `save_calibrated` and `create_model_card` do it, then that
        is uploaded to `args.hub_model_id`. A failed push loses nothing. Call `fit_temperature` before; without it the
        model is published as it was trained, with a warning.

        Args:
            commit_message, blocking, token, revision, private: as `transformers.Trainer.push_to_hub` takes them.
            **card: what `create_model_card` takes, such as `result` or `test_dataset`.

        Returns:
            The commit on the main process, None on others; a `Future` of it where not `blocking`.

        Raises:
            ValueError: what `create_model_card` raises.
            HubError: what `hf_focal.hub.hub_publishing.publish` raises, with the command that repeats the upload.
        """
        self.callback_handler.on_push_begin(self.args, self.state, self.control)
        self.save_calibrated()
        if self.temperature is None and not self.calibration():
            _logger.warning("the model is published without a temperature: none was fitted, see fit_temperature")
        problem, token = None, token or self.args.hub_token
        try:
            if self.hub_model_id is None:
                self.init_hf_repo(token, private)
        except HubError as error:
            problem = error
        self.create_model_card(**card)
        if not self.is_world_process_zero():
            return None
        folder, revision = self.args.output_dir, revision or self.args.hub_revision
        name = self.hub_model_id or repository_of(self.args)
        if problem is not None:
            private = self.args.hub_private_repo if private is None else private
            raise HubError(f"{problem}. {how_to_push(folder, name, private, revision)}") from problem
        self._finish_current_push()
        options: dict[str, Any] = {"token": token, "revision": revision, "commit_message": commit_message}
        if blocking:
            return publish(folder, name, **options)
        return HfApi().run_as_future(publish, folder, name, **options)

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        """As Transformers has it, of what `publish` uploads and, where it is asked for, the training's state."""
        strategy = self.args.hub_strategy
        if not self.is_world_process_zero() or strategy == HubStrategy.END:
            return
        if self.push_in_progress is None or self.push_in_progress.is_done():
            self.push_in_progress = PushInProgress([])
        elif not self.args.hub_always_push:
            return
        self.callback_handler.on_push_begin(self.args, self.state, self.control)
        checkpoint = Path(checkpoint_folder)
        path = {HubStrategy.CHECKPOINT: "last-checkpoint", HubStrategy.ALL_CHECKPOINTS: checkpoint.name}.get(strategy)
        also = _STATE if path is not None and self.args.hub_training_state else ()
        # `save_total_limit` may remove the checkpoint before it is uploaded.
        copy = TemporaryDirectory(prefix="_push-", dir=self.args.output_dir)
        for file in published_files(checkpoint, also):
            target = Path(copy.name, file)
            target.parent.mkdir(parents=True, exist_ok=True)
            copy2(checkpoint / file, target)
        message = f"Training in progress, step {self.state.global_step}"
        options = {"token": self.args.hub_token, "revision": self.args.hub_revision, "commit_message": message}
        job = run_as_future(_push_copy, copy, self.hub_model_id, path, also, options)
        self.push_in_progress.jobs.append(job)


def _push_copy(copy: TemporaryDirectory, name: str, path: str | None, also: Sequence[str], options: Any) -> None:
    """Upload the copy of a checkpoint, and again, with its state, to the folder `path` if there is one; remove it."""
    with copy:
        try:
            upload(copy.name, name, **options)
            if path is not None:
                upload(copy.name, name, path_in_repo=path, also=also, **options)
        except HubError as error:
            _logger.warning("%s; the training goes on", error)


def _weight_files(folder: Path) -> dict[Path, tuple[int, int]]:
    """The files of weights in a folder, each with what a new one of its name differs in."""
    found = {path: path.stat() for path in folder.glob("*.safetensors")}
    # The time alone may be that of the second, or of the clock's tick, in which the one before was written.
    return {path: (stat.st_ino, stat.st_mtime_ns) for path, stat in found.items()}


def _is_folded(folder: Path, generates: bool) -> bool:
    """Whether the saved weights hold a temperature."""
    config = folder / "config.json"
    if not config.is_file():
        return False
    calibration = json.loads(config.read_text(encoding="utf-8")).get("calibration")
    return folded_temperature(calibration, generates) is not None


def _record(folder: Path, temperature: Temperature) -> None:
    """Write a temperature that is not in the weights into the saved config, where there is one."""
    path = folder / "config.json"
    if not path.is_file():
        return
    # As JSON, so that the config of any class is read.
    config, figures = json.loads(path.read_text(encoding="utf-8")), temperature.to_dict()
    config["calibration"] = {"temperature": figures.pop("value"), **figures, "folded": False}
    write_whole(path, json.dumps(config, indent=2, sort_keys=True) + "\n")


def _settings(args: Any, configuration: str | None) -> dict[str, Any]:
    """What a card lists of the training, name -> value."""
    values = {title: getattr(args, name) for name, title in _SETTINGS.items()}
    values["configuration of the dataset"] = configuration
    if args.max_steps > 0:
        values = {"steps": args.max_steps, **values}
        del values["epochs"]
    return {title: value.value if isinstance(value, Enum) else value for title, value in values.items() if value}


def _first(values: str | list[str] | None) -> str | None:
    return values[0] if isinstance(values, list | tuple) else values
