"""How calibrated probabilities differ between runtimes, and what quantization to int8 costs and leaves to correct.

    python -m benchmarks.exactness.serving --data DATA --encoder all-MiniLM-L6-v2 --output_dir out/serving \
        --json benchmarks/results/serving.json

An encoder is fine-tuned briefly with a softmax (SST, 2 classes), a sigmoid for each label (GoEmotions, 28 labels), one
logit (TREC QA), and a softmax for each word (the sentiment of the words of SST, 5 classes), and a small ResNet is
trained on images (CIFAR-10), with each seed. A correction is fitted on held-out samples and folded into the weights: a
temperature or, with sigmoids, a slope and an intercept. Then 1,000 test samples are run in every runtime with the
models of the first seed, and in int8 with those of every seed.
Figures that the JSON file already has are not measured again. `--only` measures some of the runtimes; one that cannot
be imported is left out. The packages of the extra `full` must be installed, and AOTInductor needs a C++ compiler.
"""

import argparse
import platform
import tempfile
from collections.abc import Iterator
from copy import deepcopy
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from benchmarks.common.figures import parse_options, read_figures, script_options, shown, write_figures
from benchmarks.common.lines import RuntimeLine
from benchmarks.common.runtimes import RUNTIMES, Run, in_torch, onnx_int8
from benchmarks.common.served_models import (
    AUTO,
    BATCH,
    HELD_OUT,
    LINKS,
    MAX_LENGTH,
    TASKS,
    TRAIN,
    Batches,
    Samples,
    batches_of,
    by_length,
    drawn,
    encoded,
    read,
    train,
)
from hf_focal import CalibrationMetrics, fit_correction, fold_correction

MEASURED = 1000  # samples
SENTENCES = {"validation": 100, "test": 200}  # of words, which have more than 1,000 words


@torch.no_grad()
def logits_of(run: Run, batches: Batches) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the logits (N, K), float64, of all batches, and the labels; of words, those of each first token."""
    parts = []
    for inputs, labels in batches:
        logits = run(inputs).double()
        rows = labels != -100 if logits.ndim == 3 else slice(None)
        parts.append((logits[rows], labels[rows]))
    logits, labels = map(torch.cat, zip(*parts, strict=True))
    return logits, labels


def probabilities(logits: torch.Tensor, head: str) -> torch.Tensor:
    return logits.sigmoid() if head in LINKS else logits.softmax(-1)


def ece(predicted: torch.Tensor, labels: torch.Tensor, head: str) -> float:
    """The ECE of probabilities, in percent; with sigmoids, over all labels."""
    metrics = CalibrationMetrics(link=LINKS.get(head, "softmax"))
    metrics.update_from_probabilities(predicted, labels)
    return 100 * metrics.compute()["ece"]


def corrections(logits: torch.Tensor, labels: torch.Tensor, head: str) -> Any:
    method = "platt" if head in LINKS else "temperature"
    return fit_correction(logits, labels, method, link=LINKS.get(head, "softmax")).correction


def cross_encoder(model: Any, tokenizer: Any, samples: Samples, folder: Path) -> torch.Tensor:
    """The probabilities that a CrossEncoder with one logit predicts, in the order of the samples."""
    from sentence_transformers import CrossEncoder

    for part in (model, tokenizer):
        part.save_pretrained(folder)
    encoder = CrossEncoder(str(folder), device="cpu", max_length=MAX_LENGTH)
    assert samples.pairs is not None
    scores = encoder.predict([*zip(samples.inputs, samples.pairs, strict=True)], batch_size=BATCH)
    return torch.from_numpy(scores).double()[:, None]


def measure_runtimes(
    model: Any, tokenizer: Any, samples: Samples, head: str, names: list[str], folder: Path
) -> Iterator[RuntimeLine]:
    """Measure each runtime of a calibrated model: its ECE, and the differences of its probabilities."""
    batches = batches_of(tokenizer, samples, head)
    logits, labels = logits_of(in_torch(model, {}, folder), batches)
    expected = probabilities(logits, head)
    for name in names:
        try:
            with torch.no_grad():
                logits, _ = logits_of(RUNTIMES[name](model, batches[-1][0], folder), batches)
        except ImportError as error:
            print(f"{name} is left out: {error}")
            continue
        yield compared(name, probabilities(logits, head), expected, labels, head)
    if head == "one logit" and len(names) == len(RUNTIMES):
        predicted = cross_encoder(model, tokenizer, samples, folder / "cross_encoder")
        predicted = predicted[by_length(encoded(tokenizer, samples, head))]
        yield compared("CrossEncoder, float32", predicted, expected, labels, head)


def compared(
    name: str, predicted: torch.Tensor, expected: torch.Tensor, labels: torch.Tensor, head: str
) -> RuntimeLine:
    differences = (predicted - expected).abs()
    return {
        "head": head,
        "runtime": name,
        "difference": float(differences.max()),
        "mean_difference": float(differences.mean()),
        "ece": ece(predicted, labels, head),
    }


def measure_int8(
    plain: Any, calibrated: Any, tokenizer: Any, held_out: Samples, test: Samples, head: str, folder: Path
) -> dict[str, float]:
    """Return the ECE of a model and its calibrated copy, in float32 and in int8, and of int8 calibrated afterwards."""
    fitting, testing = batches_of(tokenizer, held_out, head), batches_of(tokenizer, test, head)
    inputs = testing[-1][0]
    quantized = onnx_int8(plain, inputs, folder)
    before, labels = logits_of(quantized, testing)
    correction = corrections(*logits_of(quantized, fitting), head)
    logits = {
        "float32": logits_of(in_torch(plain, {}, folder), testing)[0],
        "float32_calibrated": logits_of(in_torch(calibrated, {}, folder), testing)[0],
        "int8": before,
        "int8_calibrated_before": logits_of(onnx_int8(calibrated, inputs, folder), testing)[0],
        "int8_calibrated_after": correction.apply(before),
    }
    return {name: ece(probabilities(values, head), labels, head) for name, values in logits.items()}


def measure_head(
    head: str, seed: int, names: list[str], needs_int8: bool, options: argparse.Namespace
) -> tuple[list[RuntimeLine], list[dict[str, Any]]]:
    """Train the model of a head and a seed, unless it is saved, and return its lines of runtimes and of int8."""
    folder = options.output_dir / f"{TASKS[head]}_{seed}"
    if not (folder / "config.json").exists():
        samples = drawn(read(options.data, head, "train"), TRAIN[head], seed)
        train(options.encoder, head, samples, seed, folder)
    plain = AUTO.get(head, AutoModelForSequenceClassification).from_pretrained(folder).eval()
    tokenizer = None if head == "images" else AutoTokenizer.from_pretrained(folder)
    sizes = SENTENCES if head == "words" else {"validation": HELD_OUT, "test": MEASURED}
    held_out, test = (drawn(read(options.data, head, part), size, 0) for part, size in sizes.items())
    held_out_scores = logits_of(in_torch(plain, {}, folder), batches_of(tokenizer, held_out, head))
    calibrated = fold_correction(deepcopy(plain), corrections(*held_out_scores, head))
    with tempfile.TemporaryDirectory() as name:
        work, int8 = Path(name), []
        if needs_int8:
            errors = measure_int8(plain, calibrated, tokenizer, held_out, test, head, work)
            int8 = shown([{"head": head, "seed": seed, **errors}])
        return shown(measure_runtimes(calibrated, tokenizer, test, head, names, work) if names else []), int8


def main() -> None:
    parser = script_options(__doc__)
    parser.set_defaults(threads=1)
    parser.add_argument("--data", type=Path, required=True, help="the folder of the datasets")
    parser.add_argument("--encoder", required=True, help="the folder of the pretrained encoder, or its Hub id")
    parser.add_argument("--output_dir", type=Path, required=True, help="where the models are kept, to continue")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--heads", nargs="+", choices=TASKS, default=[*TASKS], metavar="HEAD")
    parser.add_argument("--only", nargs="+", choices=RUNTIMES, default=[*RUNTIMES], metavar="RUNTIME")
    options = parse_options(parser)
    packages = ("torch", "transformers", "onnx", "onnxruntime", "openvino", "torchao", "sentence-transformers")
    machine = {"cpu": platform.machine(), "threads": options.threads} | {name: version(name) for name in packages}
    figures: dict[str, Any] = {"machine": machine, "runtimes": [], "int8": []}
    if options.json and options.json.exists():
        figures = read_figures(options.json)
        if figures["machine"] != machine:
            parser.error(f"{options.json} has figures of {figures['machine']}, not {machine}: remove it")
    known_runtimes = {(line["head"], line["runtime"]) for line in figures["runtimes"]}
    known_int8 = {(line["head"], line["seed"]) for line in figures["int8"]}
    for seed in options.seeds:
        for head in options.heads:
            names = [name for name in options.only if (head, name) not in known_runtimes and seed == options.seeds[0]]
            if names or (head, seed) not in known_int8:
                runtimes, int8 = measure_head(head, seed, names, (head, seed) not in known_int8, options)
                figures["runtimes"] += runtimes
                figures["int8"] += int8
                write_figures(options.json, figures)


if __name__ == "__main__":
    main()
