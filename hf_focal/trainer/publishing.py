"""The part of `FocalTrainer` that saves and publishes: the model with its temperature, and its card."""

import logging
from concurrent.futures import Future
from enum import Enum
from pathlib import Path
from typing import Any

from huggingface_hub import CommitInfo, HfApi
from transformers import AutoConfig, PreTrainedModel
from transformers.integrations.deepspeed import unset_hf_deepspeed_config

from ..fold import fold_temperature
from ..hub import HubError, create_repository, how_to_push, publish
from ..reports import RunResult, TranslationResult, model_card, write_report
from ..temperature import Temperature
from .adafocal import gamma_history
from .checks import Head
from .measuring import MeasuringTrainer

_logger = logging.getLogger(__name__)

# The ends of the names of models' classes -> the Hub's name of what they are for.
_TASKS = {
    "ForSequenceClassification": "text-classification",
    "ForImageClassification": "image-classification",
    "ForTokenClassification": "token-classification",
    "ForSemanticSegmentation": "image-segmentation",
}
_GENERATIVE = {Head.NEXT_TOKENS: "text-generation", Head.TARGET_TOKENS: "translation"}
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
        self.save_model(_internal_call=True)
        self.forget_folded_temperature()
        if not self.is_world_process_zero():
            return
        folder, temperature = Path(self.args.output_dir), self.temperature
        if temperature is None:
            (folder / "temperature.json").unlink(missing_ok=True)  # of an earlier training
            return
        temperature.save(folder / "temperature.json")
        try:
            self._fold_saved(folder, temperature)
        except TypeError as error:
            _record(folder, temperature)
            _logger.warning(
                "%s: %s; whoever loads it must apply it, as the model card says", temperature, _lower(str(error))
            )

    def _fold_saved(self, folder: Path, temperature: Temperature) -> None:
        # What is saved is loaded again: under FSDP2 and ZeRO-3 only that is whole.
        kind = type(self.accelerator.unwrap_model(self.model))
        name = kind.__name__.removeprefix("FSDP")
        kind = next(parent for parent in kind.__mro__ if parent.__name__ == name)
        if not issubclass(kind, PreTrainedModel):
            raise TypeError(f"T can be folded into a model of Transformers, got {name}")
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
            tasks: what the model is for; known of language models and of classifiers.
            dataset_tags, dataset: the dataset's Hub id, or its name.
            dataset_args: its configuration.
            result: the figures of the test set, of which `write_report` writes the report that the card shows pictures
                of. If absent they are measured, and the report is written.
            test_dataset: what is measured: labelled data, or the key of one of several evaluation sets. The evaluation
                set if absent, as the card then says.

        Raises:
            ValueError: nothing to measure, or a task that is not known.
        """
        task = _first(tasks) or self._task()
        measured_on = "test"
        if result is None:
            if test_dataset is None:
                measured_on = "validation"
                test_dataset = self.held_out_dataset(self.eval_dataset, "test_dataset")
            result = self._measured_result(test_dataset)
        if not self.is_world_process_zero():
            return
        folder = Path(self.args.output_dir)
        sides = ("before", "after") if result.temperature.is_fitted else ("before",)
        config = getattr(self.model, "config", None)
        card = model_card(
            result,
            model_name=model_name or self.args.hub_model_id or folder.absolute().name,
            task=task,
            base_model=finetuned_from or getattr(config, "name_or_path", None) or None,
            dataset=_first(dataset_tags) or _first(dataset),
            language=language,
            license=license,
            settings=_settings(self.args, _first(dataset_args)),
            figures=[f"report/reliability_{when}.png" for when in sides],
            folded=not result.temperature.is_fitted or self._is_folded(folder),
            own_code=type(self.accelerator.unwrap_model(self.model)).__module__.startswith("hf_focal."),
            measured_on=measured_on,
        )
        card.data.tags += [tags] if isinstance(tags, str) else tags or []
        card.save(folder / "README.md")

    def _measured_result(self, dataset: Any) -> RunResult:
        """The result of a dataset, with its report."""
        before, after = self.measure(dataset)
        details = {"gamma_history": gamma_history(self.state.log_history)}
        result = RunResult.of(str(self.loss_config), self.temperature, before, after, details=details)
        if self.is_world_process_zero():
            write_report(Path(self.args.output_dir) / "report", result)
        return result

    def _task(self) -> str:
        if self.head in _GENERATIVE:
            return _GENERATIVE[self.head]
        name = type(self.accelerator.unwrap_model(self.model)).__name__
        found = [task for ending, task in _TASKS.items() if name.endswith(ending)]
        if not found:
            raise ValueError(f"tasks must be given, the Hub's name of what a {name} is for, got None")
        return found[0]

    def _is_folded(self, folder: Path) -> bool:
        """Whether the saved weights hold the temperature."""
        if not (folder / "config.json").is_file():
            return False
        calibration = AutoConfig.from_pretrained(folder).calibration
        return calibration.get("folded", self.head is Head.CLASSES)

    def init_hf_repo(self, token: str | None = None, private: bool | None = None) -> None:
        if not self.is_world_process_zero():
            return
        name = self.args.hub_model_id or Path(self.args.output_dir).absolute().name
        private = self.args.hub_private_repo if private is None else private
        self.hub_model_id = create_repository(name, private=private, token=token or self.args.hub_token)
        self.push_in_progress = None

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
            HubError: what `hf_focal.hub.publish` raises, with the command that repeats the upload.
        """
        self.callback_handler.on_push_begin(self.args, self.state, self.control)
        self.save_calibrated()
        if self.temperature is None and self._calibration() == "None":
            _logger.warning("the model is published without a temperature: none was fitted, see fit_temperature")
        problem, token = None, token or self.args.hub_token
        try:
            if self.hub_model_id is None:
                self.init_hf_repo(token, private)
        except HubError as error:
            problem = error
        self.create_model_card(**{"model_name": self.hub_model_id, **card})
        if not self.is_world_process_zero():
            return None
        folder, name = self.args.output_dir, self.hub_model_id
        if problem is not None:
            raise HubError(f"{problem}. {how_to_push(folder, self.args.hub_model_id or 'ID')}") from problem
        self._finish_current_push()
        options = {"token": token, "revision": revision or self.args.hub_revision, "commit_message": commit_message}
        if blocking:
            return publish(folder, name, **options)
        return HfApi().run_as_future(publish, folder, name, **options)


def _record(folder: Path, temperature: Temperature) -> None:
    """Write a temperature that is not in the weights into the saved config, where there is one."""
    if not (folder / "config.json").is_file():
        return
    config = AutoConfig.from_pretrained(folder)
    figures = temperature.to_dict()
    config.calibration = {"temperature": figures.pop("value"), **figures, "folded": False}
    config.save_pretrained(folder)


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


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
