"""The model card of a model: what it is, how calibrated it is, and how to use it."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PureWindowsPath
from typing import TYPE_CHECKING, Any

from ..losses import LOSSES, LossConfig
from ..reports.markdown_cells import escaped
from ..reports.run_report import RunResult, known_loss, results_table
from ..reports.translation_report import TranslationResult, translation_table

if TYPE_CHECKING:
    from huggingface_hub import EvalResult, ModelCard

# Key of `CalibrationMetrics.compute()`, name of the metric.
_METRICS = {"accuracy": "Accuracy", "ece": "ECE", "adaece": "AdaECE", "nll": "NLL", "brier": "Brier score"}
# The figures that say whether a temperature calibrates.
_JUDGED = {"ece": "ECE", "nll": "NLL"}
# Datasets that `hf-focal` loads without the Hub, whose names could be Hub ids.
_BUILT_IN = ("digits",)
_DATA_FILES = (".csv", ".json", ".jsonl", ".parquet", ".txt", ".tsv", ".arrow", ".zip", ".gz")

_CLASSIFIER = """\
from transformers import pipeline

classifier = pipeline("{task}", model="{name}")
print(classifier({example}))  # "score" is the probability
"""
_GENERATOR = """\
from transformers import {auto}, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("{name}")
model = {auto}.from_pretrained("{name}")
inputs = tokenizer("{example}", return_tensors="pt")
output = model.generate(**inputs, num_beams=4)
print(tokenizer.decode(output[0], skip_special_tokens=True))
"""
_OTHER = """\
from transformers import pipeline

model = pipeline("{task}", model="{name}")
"""
_SEGMENTER = """\
import torch
from PIL import Image
from transformers import AutoImageProcessor, AutoModelForSemanticSegmentation

processor = AutoImageProcessor.from_pretrained("{name}")
model = AutoModelForSemanticSegmentation.from_pretrained("{name}")
image = Image.open("image.png").convert("RGB")
logits = model(**processor(image, return_tensors="pt")).logits
logits = torch.nn.functional.interpolate(logits, image.size[::-1], mode="bilinear")
print(logits.softmax(1))  # (1, classes, height, width)
"""
_USE = {
    "text-classification": (_CLASSIFIER, {"example": '"A text to classify.", top_k=None'}),
    "image-classification": (_CLASSIFIER, {"example": '"image.png"'}),
    "token-classification": (_CLASSIFIER, {"example": '"A text whose words are labelled."'}),
    "image-segmentation": (_SEGMENTER, {}),
    "translation": (_GENERATOR, {"auto": "AutoModelForSeq2SeqLM", "example": "A sentence to translate."}),
    "summarization": (_GENERATOR, {"auto": "AutoModelForSeq2SeqLM", "example": "A text to shorten."}),
    "text-generation": (_GENERATOR, {"auto": "AutoModelForCausalLM", "example": "A text to go on with"}),
}
_GENERATIVE = ("translation", "summarization", "text-generation")
# What a model's temperature is fitted to, where it is not samples.
_UNITS = {
    **dict.fromkeys(_GENERATIVE, "tokens"),
    "token-classification": "words",
    "image-segmentation": "pixels",
}
_APPLY = """\
logits = model(**inputs).logits
probabilities = (logits / {value}).softmax(-1)
"""
_APPLY_GENERATIVE = """\
from hf_focal import calibrated_generation
output = model.generate(**inputs, num_beams=4, **calibrated_generation({value}))
"""

# What `LossSpec.source` calls a paper -> its key in citations.bib.
_PAPERS = {
    "Brier 1950": "brier1950verification",
    "Cui et al. 2019": "cui2019class",
    "Ghosh et al. 2022": "ghosh2022adafocal",
    "Guo et al. 2017": "guo2017calibration",
    "Kumar et al. 2018": "kumar2018trainable",
    "Lin et al. 2017": "lin2017focal",
    "Mukhoti et al. 2020": "mukhoti2020calibrating",
    "Szegedy et al. 2016": "szegedy2016rethinking",
    "Tian et al. 2021": "tian2021recall",
}


def model_card(
    result: RunResult | TranslationResult,
    *,
    model_name: str,
    task: str,
    base_model: str | None = None,
    dataset: str | None = None,
    language: str | list[str] | None = None,
    license: str | None = None,
    settings: Mapping[str, Any] | None = None,
    figures: Sequence[str] = (),
    folded: bool = True,
    fine_tuned: bool = True,
    own_code: bool = False,
    measured_on: str = "test",
    fitted_on: str = "validation",
    test_dataset: str | None = None,
    same_rows: bool = False,
    earlier: float | None = None,
) -> "ModelCard":
    """Write the card of a model: its loss, its results before and after the temperature, and how to use it.

    The metadata hold the results after the temperature, and before it under names that say so; a metric that is NaN
    is left out. A dataset or base model that is no Hub id, such as a file or a folder, is named in the text by the
    last part of its path, and in no field that takes ids. Nor is the built-in dataset `digits`.

    Args:
        result: the test set's results; one whose loss `LossConfig.parse` refuses is said to have been trained so.
        model_name: as in the code that loads it: its Hub id or its folder.
        task: `"text-classification"`, `"image-classification"`, `"token-classification"`, `"image-segmentation"`,
            `"translation"`, `"summarization"`, `"text-generation"` or another that the Hub knows: the pipeline tag.
        base_model: what was fine-tuned; None for a model from scratch.
        dataset: a Hub id, or a path.
        language: ISO 639 codes.
        license: the Hub's name of it.
        settings: settings of the training to list, name -> value.
        figures: paths of pictures relative to the card, reliability diagrams before and after the temperature.
        folded: whether the weights hold the temperature, `fold_temperature`. Otherwise the card says how to apply it.
        fine_tuned: whether `base_model` was trained on; otherwise it was only measured and corrected with `dataset`.
        own_code: whether the model is one of `hf_focal.models`, which have to be imported before it is loaded.
        measured_on, fitted_on: the dataset's splits that the results are of and that the temperature was fitted to.
        test_dataset: what the results are of, a Hub id or a path, where it is not `dataset`.
        same_rows: whether T was fitted to the rows of the results, so that the results flatter the temperature.
        earlier: a temperature that was in the weights before the results were measured; the result has none then.

    Returns:
        A `huggingface_hub.ModelCard`, to `save` or to push.
    """
    from huggingface_hub import ModelCard, ModelCardData

    data_name, data_id, base_id = _base_name(dataset), _hub_id(dataset), _hub_id(base_model)
    test_name, test_id = (_base_name(test_dataset), _hub_id(test_dataset)) if test_dataset else (data_name, data_id)
    samples = _samples(result, task, test_name if test_dataset else None, data_name, measured_on)
    data = ModelCardData(
        model_name=model_name,
        language=language,
        license=license,
        library_name="transformers",
        pipeline_tag=task,
        base_model=base_id,
        datasets=data_id,
        tags=["hf_focal", "calibration", *(["temperature-scaling"] if result.temperature.is_fitted else [])],
        eval_results=_eval_results(result, task, test_name or "unknown", test_id or "unknown", measured_on) or None,
    )
    sections = [
        _heading(model_name, _base_name(base_model), data_name, fine_tuned) + _verdict(result, samples, same_rows),
        _training(result, task, settings or {}) if fine_tuned else "",
        _results(result, task, samples, figures),
        _temperature(result, task, folded, measured_on, fitted_on, same_rows, earlier),
        _use(model_name, task, folded, own_code, result.temperature.is_fitted),
        _citations(known_loss(result.loss) if fine_tuned else None, result.temperature.objective),
    ]
    return ModelCard(f"---\n{data.to_yaml()}\n---\n\n" + "\n".join(filter(None, sections)))


def _heading(model_name: str, base_model: str | None, data_name: str | None, fine_tuned: bool) -> str:
    origin = f"{'A fine-tuned ' * fine_tuned}{escaped(base_model)}" if base_model else "A model"
    done = "trained" if fine_tuned else "corrected with a temperature"
    data = f", {done} on {escaped(data_name)}" if data_name else ""
    return f"# {escaped(model_name)}\n\n{origin}{data}. "


def _verdict(result: RunResult | TranslationResult, samples: str, same_rows: bool) -> str:
    """What the figures say of the temperature: a model is called calibrated only where they say so."""
    if not result.temperature.is_fitted:
        return "How calibrated it is, the figures below say.\n"
    if same_rows:
        return "Its temperature was fitted to the rows that are measured: other rows have to show what it is worth.\n"
    sides = [(name, result.pre.get(key, math.nan), result.post.get(key, math.nan)) for key, name in _JUDGED.items()]
    if failed := [name for name, before, after in sides if not after < before]:
        return f"Its temperature is not shown to help: on {samples} it makes {' and '.join(failed)} no smaller.\n"
    (_, ece, ece_after), (_, nll, nll_after) = sides
    return (
        f"Its probabilities are better calibrated with its temperature: on {samples} the ECE went from "
        f"{100 * ece:.2f} to {100 * ece_after:.2f} %, the NLL from {nll:.3f} to {nll_after:.3f}. Of the predictions "
        "that a calibrated model makes with a confidence of 80 %, about 80 % are right.\n"
    )


def _samples(
    result: RunResult | TranslationResult, task: str, test_file: str | None, data_name: str | None, split: str
) -> str:
    """What the results are of: how many samples, and of which file or split."""
    count = result.pre.get("num_samples", math.nan)
    number = "" if math.isnan(count) else f"{int(count):,} "
    unit = _UNITS.get(task, "samples")
    if test_file is not None and test_file.lower().endswith(_DATA_FILES):
        return f"the {number}{unit} of {escaped(test_file)}"
    name = test_file or data_name
    return f"the {number}{unit} of the {escaped(split)} set" + (f" of {escaped(name)}" if name else "")


def _training(result: RunResult | TranslationResult, task: str, settings: Mapping[str, Any]) -> str:
    config = known_loss(result.loss)
    if config is None:
        lines = [f"## Training\n\nLoss: {escaped(result.loss)}.\n"]
    else:
        spec = LOSSES[config.name]
        prefix = "FocalSeq2Seq" if task in ("translation", "summarization") else "Focal"
        lines = [
            f"## Training\n\nLoss: `{config}`, {escaped(spec.summary)} ({spec.source}).\n\n",
            "To train with it again:\n\n",
            f"```python\nfrom hf_focal import {prefix}Trainer, {prefix}TrainingArguments\n\n",
            f'args = {prefix}TrainingArguments(output_dir="out", loss="{config}")\n',
            f"trainer = {prefix}Trainer(model=model, args=args, train_dataset=train, eval_dataset=validation",
            ", calibration_dataset=validation" if config.name == "adafocal" else "",
            ")\n```\n",
        ]
    if settings:
        lines.append("\n| Setting | Value |\n| --- | --- |\n")
        lines += [f"| {escaped(str(name))} | {escaped(str(value))} |\n" for name, value in settings.items()]
    return "".join(lines)


def _results(result: RunResult | TranslationResult, task: str, samples: str, figures: Sequence[str]) -> str:
    table = translation_table([result]) if isinstance(result, TranslationResult) else results_table([result])
    intervals = not isinstance(result, TranslationResult) and result.pre_intervals
    rows = " (each given the true ones before it)" if task in _GENERATIVE else ""
    sides = ", before → after temperature scaling" if result.temperature.is_fitted else ""
    text = (
        f"## Results\n\nOn {samples}{rows}{sides}. ECE is the mean distance between "
        f"confidence and accuracy{'; in brackets, its 95 % bootstrap interval' if intervals else ''}.\n\n"
    )
    captions = ("before temperature scaling", "after temperature scaling")
    pictures = [
        f"![Reliability diagram{' ' + captions[number] if len(figures) == 2 else ''}]({_url(path)})\n"
        for number, path in enumerate(figures)
    ]
    return "\n".join([text + table, *pictures])


def _temperature(
    result: RunResult | TranslationResult,
    task: str,
    folded: bool,
    measured_on: str,
    fitted_on: str,
    same_rows: bool,
    earlier: float | None,
) -> str:
    fitted = result.temperature
    if earlier is not None:
        return f"## Temperature\n\nT = {earlier:.6g} is folded into the weights; the results are those with it.\n"
    if not fitted.is_fitted:
        return "## Temperature\n\nNone was fitted: these are the model's own probabilities.\n"
    how = {
        "ece": "that of a grid with the smallest expected calibration error (ECE)",
        "nll": "that with the smallest negative log-likelihood (NLL)",
    }[fitted.objective]
    rows = _UNITS.get(task, "samples")
    apart = f"not on the {escaped(measured_on)} set"
    if same_rows:
        apart = "the rows that are measured above, whose figures flatter it"
    text = (
        f"## Temperature\n\nT = {fitted.value:.6g}, {how}, fitted on {fitted.num_samples} {rows} of the "
        f"{escaped(fitted_on)} split, {apart}. What it did there, with {fitted.num_bins} bins: ECE "
        f"{100 * fitted.ece_before:.2f} → {100 * fitted.ece_after:.2f} %, NLL {fitted.nll_before:.3f} → "
        f"{fitted.nll_after:.3f}."
    )
    if fitted.at_grid_end:
        text += " It is an end of the grid: the best temperature may lie beyond."
    if folded:
        return text + "\n\nIt is folded into the weights: there is nothing to do.\n"
    template = _APPLY_GENERATIVE if task in _GENERATIVE else _APPLY
    code = template.format(value=repr(float(fitted.value)))
    return f"{text}\n\nIt is **not** in the weights. To apply it:\n\n```python\n{code}```\n"


def _use(model_name: str, task: str, folded: bool, own_code: bool, fitted: bool) -> str:
    template, values = _USE.get(task, (_OTHER, {}))
    name = json.dumps(model_name, ensure_ascii=False)[1:-1]  # inside the quotes of a Python string
    code = template.format(task=task, name=name, **values)
    if own_code:
        code = f"import hf_focal.models  # the code of this model\n{code}"
    note = "T is in the scores of these predictions.\n" if folded else "These scores are those *before* T.\n"
    if task in _GENERATIVE:
        note = "Beam search is on the probabilities with T.\n" if folded else "This is beam search *without* T.\n"
    return f"## Use\n\n```python\n{code}```\n" + (f"\n{note}" if fitted else "")


def _eval_results(
    result: RunResult | TranslationResult, task: str, data_name: str, data_type: str, split: str
) -> list["EvalResult"]:
    from huggingface_hub import EvalResult

    values, fitted = [], result.temperature.is_fitted
    for side, suffix in ((result.post, ""), *([(result.pre, " before temperature scaling")] if fitted else [])):
        # Accuracy does not depend on the temperature.
        values += [
            (key, name + suffix, side.get(key)) for key, name in _METRICS.items() if not (suffix and key == "accuracy")
        ]
    if isinstance(result, TranslationResult):
        values.append(("bleu", "BLEU", result.bleu.get(result.temperature.value)))
        values += [("bleu", "BLEU before temperature scaling", result.bleu.get(1.0))] if fitted else []
    common = {"task_type": task, "dataset_type": data_type, "dataset_name": data_name, "dataset_split": split}
    return [
        EvalResult(**common, metric_type=key, metric_name=name, metric_value=float(value))
        for key, name, value in values
        if value is not None and math.isfinite(value)
    ]


def _citations(config: LossConfig | None, objective: str) -> str:
    """The section with the BibTeX of the loss's papers and of temperature scaling's, each once."""
    text = Path(__file__).with_name("citations.bib").read_text(encoding="utf-8")
    entries = {re.findall(r"{(\w+),", entry)[0]: entry.strip() + "\n" for entry in text.split("\n\n")}
    sources = LOSSES[config.name].source.split("; ") if config else []
    sources += {"ece": ["Guo et al. 2017", "Mukhoti et al. 2020"], "nll": ["Guo et al. 2017"]}.get(objective, [])
    # Of a loss that has no paper, and of a blog post, there is none.
    found = "\n".join(entries[_PAPERS[source]] for source in dict.fromkeys(sources) if source in _PAPERS)
    return f"## Citation\n\n```bibtex\n{found}```\n" if found else ""


def _hub_id(name: str | None) -> str | None:
    """The name where it is a Hub id; None for a path, and for data that comes with a library."""
    from huggingface_hub.utils import HFValidationError, validate_repo_id

    if not name or name in _BUILT_IN or name.lower().endswith(_DATA_FILES) or Path(name).exists():
        return None
    try:
        validate_repo_id(name)
    except HFValidationError:
        return None
    return name


def _base_name(name: str | None) -> str | None:
    """A Hub id as it is; of a path its last part."""
    return _hub_id(name) or (PureWindowsPath(name).name if name else None) or None


def _url(path: str) -> str:
    return re.sub(r"[ ()<>]", lambda match: f"%{ord(match[0]):02X}", path.replace("\\", "/"))
