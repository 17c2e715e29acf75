"""How calibrated probabilities differ between runtimes, and what quantization to int8 costs and leaves to correct.

    python -m benchmarks.exactness.serving --data DATA --encoder all-MiniLM-L6-v2 --output_dir out/serving \
        --json benchmarks/results/serving.json --page benchmarks/README.md

An encoder is fine-tuned briefly with a softmax (SST, 2 classes), a sigmoid for each label (GoEmotions, 28 labels), one
logit (TREC QA), and a softmax for each word (the sentiment of the words of SST, 5 classes), and a small ResNet is
trained on images (CIFAR-10), with each seed. A correction is fitted on held-out samples and folded into the weights: a
temperature or, with sigmoids, a slope and an intercept. Then 1,000 test samples are run in every runtime with the
models of the first seed, and in int8 with those of every seed. The tables go to the page, between their comments.
Figures that the JSON file already has are not measured again. `--only` measures some of the runtimes; one that cannot
be imported is left out. The packages of the extra `full` must be installed, and AOTInductor needs a C++ compiler.
"""

import argparse
import io
import json
import platform
import re
import tempfile
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from datasets import Dataset
from papers.pages.page import fill_page
from PIL import Image
from transformers import (
    AutoModelForImageClassification,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    DataCollatorForTokenClassification,
    DataCollatorWithPadding,
    DefaultDataCollator,
    ResNetConfig,
    ResNetForImageClassification,
    set_seed,
)

from benchmarks.measuring import write_measurements
from hf_focal import CalibrationMetrics, FocalTrainer, FocalTrainingArguments, fit_correction, fold_correction
from hf_focal.reports.wording.markdown_tables import rows_table

MULTI_LABEL = "multi_label_classification"
TASKS = {"softmax": "sst", "sigmoid": "goemotions", "one logit": "trec_qa", "words": "sst_words", "images": "cifar10"}
TRAIN = {"softmax": 300, "sigmoid": 500, "one logit": 400, "words": 200, "images": 3000}  # samples
EPOCHS = {"softmax": 4, "sigmoid": 4, "one logit": 4, "words": 3, "images": 15}
HELD_OUT, MEASURED = 500, 1000  # samples
SENTENCES = {"validation": 100, "test": 200}  # of words, which have more than 1,000 words
BATCH, MAX_LENGTH = 32, 64
LINKS = {"sigmoid": "sigmoid", "one logit": "sigmoid"}  # of the others, "softmax"
AUTO = {"words": AutoModelForTokenClassification, "images": AutoModelForImageClassification}
Inputs = dict[str, torch.Tensor]
Batches = list[tuple[Inputs, torch.Tensor]]  # inputs and labels
Run = Callable[[Inputs], torch.Tensor]  # logits of a batch


@dataclass
class Samples:
    """Texts, with a second text or None, lists of words, or images (3, 32, 32); and the labels of each."""

    inputs: list[Any]
    pairs: list[str] | None
    labels: list[Any]

    def select(self, rows: np.ndarray) -> "Samples":
        inputs, labels = ([column[row] for row in rows] for column in (self.inputs, self.labels))
        return Samples(inputs, self.pairs and [self.pairs[row] for row in rows], labels)


def read(data: Path, head: str, part: str) -> Samples:
    """Read the part "train", "validation", or "test" of the data for a head."""
    folder = TASKS[head].removesuffix("_words")
    name = "dev" if (folder, part) == ("sst", "validation") else part
    name = "train" if (folder, part) == ("cifar10", "validation") else name  # its last samples
    table = pd.read_parquet(data / folder / f"{name}.parquet")
    if head == "images":
        if part != "test":
            table = table[-HELD_OUT:] if part == "validation" else table[:-HELD_OUT]
        return Samples([pixels(image["bytes"]) for image in table["image"]], None, table["label"].tolist())
    if head == "words":  # the leaves of the trees, as in (2 word)
        sentences = [re.findall(r"\((\d) ([^()]+)\)", tree) for tree in table["tree"]]
        words = [[word for _, word in leaves] for leaves in sentences]
        return Samples(words, None, [[int(sentiment) for sentiment, _ in leaves] for leaves in sentences])
    if head == "softmax":
        table = table[table["label"] >= 0]
        return Samples(table["text"].tolist(), None, table["label"].tolist())
    if head == "sigmoid":
        labels = [np.isin(np.arange(28), ids).astype(np.float32).tolist() for ids in table["labels"]]
        return Samples(table["text"].tolist(), None, labels)
    return Samples(table["question"].tolist(), table["answer"].tolist(), [[float(label)] for label in table["label"]])


def pixels(file: bytes) -> torch.Tensor:
    """An image file as float32 (3, H, W) within [-1, 1]."""
    return torch.from_numpy(np.array(Image.open(io.BytesIO(file)).convert("RGB"))).permute(2, 0, 1) / 127.5 - 1


def drawn(samples: Samples, size: int, seed: int) -> Samples:
    return samples.select(np.random.default_rng(seed).permutation(len(samples.inputs))[:size])


def encoded(tokenizer: Any, samples: Samples, head: str) -> list[dict[str, Any]]:
    """The inputs and labels of each sample; with words, the first token of each has its label."""
    if head == "images":
        images = zip(samples.inputs, samples.labels, strict=True)
        return [{"pixel_values": image, "labels": label} for image, label in images]
    options = {"truncation": True, "max_length": MAX_LENGTH, "is_split_into_words": head == "words"}
    tokens, labels = tokenizer(samples.inputs, samples.pairs, **options), samples.labels
    if head == "words":
        labels = [token_labels(tokens.word_ids(row), word_labels) for row, word_labels in enumerate(labels)]
    return [{name: tokens[name][row] for name in tokens} | {"labels": labels[row]} for row in range(len(labels))]


def token_labels(word_ids: list[int | None], word_labels: list[int]) -> list[int]:
    """The label of each token: that of its word for the first token of a word, and else -100."""
    return [
        -100 if word is None or word in word_ids[:token] else word_labels[word] for token, word in enumerate(word_ids)
    ]


def collator(tokenizer: Any, head: str) -> Any:
    if head == "images":
        return DefaultDataCollator()
    return (DataCollatorForTokenClassification if head == "words" else DataCollatorWithPadding)(tokenizer)


def untrained(encoder: str, head: str, num_labels: int) -> Any:
    if head == "images":
        sizes = {"embedding_size": 32, "hidden_sizes": [32, 64, 128], "depths": [1, 1, 1]}
        return ResNetForImageClassification(ResNetConfig(**sizes, layer_type="basic", num_labels=num_labels))
    options = {"problem_type": MULTI_LABEL} if head in LINKS else {}
    auto = AUTO.get(head, AutoModelForSequenceClassification)
    return auto.from_pretrained(encoder, num_labels=num_labels, **options)


def train(encoder: str, head: str, samples: Samples, seed: int, folder: Path) -> None:
    """Train a model on all samples, and save it and its tokenizer."""
    tokenizer = None if head == "images" else AutoTokenizer.from_pretrained(encoder)
    features = encoded(tokenizer, samples, head)
    set_seed(seed)  # the head's initial weights
    classes = {"softmax": 2, "words": 5, "images": 10}
    model = untrained(encoder, head, classes[head] if head in classes else len(samples.labels[0]))
    with tempfile.TemporaryDirectory() as checkpoints:
        args = FocalTrainingArguments(
            output_dir=checkpoints,
            loss="cross_entropy",
            seed=seed,
            num_train_epochs=EPOCHS[head],
            learning_rate=1e-3 if head == "images" else 2e-4,
            per_device_train_batch_size=BATCH if head == "images" else 16,
            train_sampling_strategy="random" if head == "images" else "group_by_length",
            use_cpu=True,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        )
        dataset: Any = features if head == "images" else Dataset.from_list(features)
        collate = collator(tokenizer, head)
        FocalTrainer(model, args, train_dataset=dataset, data_collator=collate, processing_class=tokenizer).train()
    for part in (model, tokenizer):
        if part is not None:
            part.save_pretrained(folder)


def by_length(features: list[dict[str, Any]]) -> np.ndarray:
    """The rows of the features, those with similar numbers of tokens together."""
    return np.argsort([len(row.get("input_ids", ())) for row in features], kind="stable")


def batches_of(tokenizer: Any, samples: Samples, head: str, size: int = BATCH) -> Batches:
    """Return the inputs and the labels of each batch: samples of similar length."""
    features, collate, batches = encoded(tokenizer, samples, head), collator(tokenizer, head), []
    order = by_length(features)
    for start in range(0, len(order), size):
        batch = dict(collate([features[row] for row in order[start : start + size]]))
        labels = batch.pop("labels")
        batches.append((batch, labels))
    return batches


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


# Runtimes: a function of a model, a batch of inputs, and a folder returns what runs batches.


def in_torch(model: Any, inputs: Inputs, folder: Path) -> Run:
    return lambda batch: model(**batch).logits


def compiled(model: Any, inputs: Inputs, folder: Path) -> Run:
    run = torch.compile(model, dynamic=True)
    return lambda batch: run(**batch).logits


def changing_sizes(inputs: Inputs, batch: Any, length: Any) -> dict[str, dict[int, Any]]:
    """The sizes of the inputs that change from batch to batch: images have a fixed size."""
    return {name: {0: batch, 1: length} if tensor.ndim == 2 else {0: batch} for name, tensor in inputs.items()}


def exported_program(model: Any, inputs: Inputs) -> Any:
    shapes = changing_sizes(inputs, torch.export.Dim("batch", max=4096), torch.export.Dim("length", max=512))
    return torch.export.export(model, (), inputs, dynamic_shapes=shapes)


def exported(model: Any, inputs: Inputs, folder: Path) -> Run:
    run = exported_program(model, inputs).module()
    return lambda batch: run(**batch).logits


def inductor(model: Any, inputs: Inputs, folder: Path) -> Run:
    program = exported_program(model, inputs)
    package = torch._inductor.aoti_compile_and_package(program, package_path=str(folder / "model.pt2"))
    run = torch._inductor.aoti_load_package(package)
    return lambda batch: run(**batch).logits


def torchao_int8(model: Any, inputs: Inputs, folder: Path) -> Run:
    from torchao.quantization import Int8WeightOnlyConfig, quantize_

    quantized = deepcopy(model)
    quantize_(quantized, Int8WeightOnlyConfig())
    return lambda batch: quantized(**batch).logits


def onnx_file(model: Any, inputs: Inputs, folder: Path) -> Path:
    path, dynamic = folder / "model.onnx", torch.export.Dim.DYNAMIC
    torch.onnx.export(
        model,
        (),
        path,
        kwargs=inputs,
        input_names=[*inputs],
        output_names=["logits"],
        dynamic_shapes=changing_sizes(inputs, dynamic, dynamic),
        dynamo=True,
        external_data=False,
        verbose=False,
    )
    return path


def onnx_session(path: Path) -> Run:
    from onnxruntime import InferenceSession

    session = InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [part.name for part in session.get_inputs()]
    return lambda batch: torch.from_numpy(session.run(["logits"], {name: batch[name].numpy() for name in names})[0])


def onnx_float32(model: Any, inputs: Inputs, folder: Path) -> Run:
    return onnx_session(onnx_file(model, inputs, folder))


def onnx_float16(model: Any, inputs: Inputs, folder: Path) -> Run:
    import onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16

    half = convert_float_to_float16(onnx.load(onnx_file(model, inputs, folder)), keep_io_types=True)
    onnx.save(half, folder / "float16.onnx")
    return onnx_session(folder / "float16.onnx")


def onnx_int8(model: Any, inputs: Inputs, folder: Path) -> Run:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(onnx_file(model, inputs, folder), folder / "int8.onnx", weight_type=QuantType.QInt8)
    return onnx_session(folder / "int8.onnx")


def onnx_int8_alone(model: Any, inputs: Inputs, folder: Path) -> Run:
    """One sample at a time, without padding: the scale of the activations depends on the batch."""
    run = onnx_int8(model, inputs, folder)

    def run_alone(batch: Inputs) -> torch.Tensor:
        size = len(next(iter(batch.values())))
        lengths = batch["attention_mask"].sum(1).tolist() if "attention_mask" in batch else [None] * size
        rows = ({name: tensor[[row], :length] for name, tensor in batch.items()} for row, length in enumerate(lengths))
        # Those of words have the lengths of their texts.
        return torch.nn.utils.rnn.pad_sequence([run(row)[0] for row in rows], batch_first=True)

    return run_alone


def openvino(model: Any, inputs: Inputs, folder: Path, **options: str) -> Run:
    import openvino as ov

    run = ov.Core().compile_model(str(onnx_file(model, inputs, folder)), "CPU", options)
    names = [part.any_name for part in run.inputs]
    return lambda batch: torch.from_numpy(run({name: batch[name].numpy() for name in names})[0].copy())


RUNTIMES = {
    "PyTorch, float32": in_torch,
    "torch.compile": compiled,
    "torch.export": exported,
    "torch.export + AOTInductor": inductor,
    "ONNX Runtime, float32": onnx_float32,
    "OpenVINO, float32": partial(openvino, INFERENCE_PRECISION_HINT="f32"),
    "OpenVINO, its default": openvino,  # bfloat16 where the CPU has it
    "ONNX Runtime, float16": onnx_float16,
    "torchao, int8 weights": torchao_int8,
    "ONNX Runtime, dynamic int8": onnx_int8,
    "ONNX Runtime, dynamic int8, one at a time": onnx_int8_alone,
}
# Those that also compute in float32, and only add in another order.
FLOAT32 = ("torch.compile", "torch.export", "torch.export + AOTInductor", "ONNX Runtime, float32", "OpenVINO, float32")


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
) -> list[dict[str, Any]]:
    """Return a line for each runtime of a calibrated model: its ECE, and the largest difference of a probability."""
    batches, lines = batches_of(tokenizer, samples, head), []
    logits, labels = logits_of(in_torch(model, {}, folder), batches)
    expected = probabilities(logits, head)
    for name in names:
        try:
            with torch.no_grad():
                logits, _ = logits_of(RUNTIMES[name](model, batches[-1][0], folder), batches)
        except ImportError as error:
            print(f"{name} is left out: {error}")
            continue
        lines.append(compared(name, probabilities(logits, head), expected, labels, head))
    if head == "one logit" and len(names) == len(RUNTIMES):
        predicted = cross_encoder(model, tokenizer, samples, folder / "cross_encoder")
        predicted = predicted[by_length(encoded(tokenizer, samples, head))]
        lines.append(compared("CrossEncoder, float32", predicted, expected, labels, head))
    return lines


def compared(
    name: str, predicted: torch.Tensor, expected: torch.Tensor, labels: torch.Tensor, head: str
) -> dict[str, Any]:
    differences = (predicted - expected).abs()
    line = {"head": head, "runtime": name, "difference": float(differences.max())}
    line |= {"mean_difference": float(differences.mean()), "ece": ece(predicted, labels, head)}
    print(line, flush=True)
    return line


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


def tables(figures: dict[str, Any]) -> dict[str, str]:
    """Return the tables of the page by the names of their places in it."""
    heads = list(dict.fromkeys(line["head"] for line in figures["runtimes"]))
    cells: dict[str, dict[str, str]] = {}
    for line in figures["runtimes"]:
        cell = f"{line['difference']:.1e}, {line['ece']:.2f}%".replace("0.0e+00", "0")
        cells.setdefault(line["runtime"], {})[line["head"]] = cell
    runtimes = [[name, *(row.get(head, "–") for head in heads)] for name, row in cells.items()]
    names = [name for name in figures["int8"][0] if name not in ("head", "seed")]
    int8 = []
    for head in heads:
        lines = [line for line in figures["int8"] if line["head"] == head]
        int8.append([head, str(len(lines)), *(mean_and_range([line[name] for line in lines]) for name in names)])
    titles = ["float32", "calibrated", "int8", "calibrated before int8", "calibrated after int8"]
    return {
        "runtimes": rows_table(["Runtime", *heads], runtimes),
        "int8": rows_table(["Head", "seeds", *titles], int8),
    }


def mean_and_range(values: list[float]) -> str:
    """The mean and, of several values, their range."""
    return f"{np.mean(values):.2f}" + (f" ({min(values):.2f}–{max(values):.2f})" if len(values) > 1 else "")


def measure_head(
    head: str, seed: int, names: list[str], needs_int8: bool, options: argparse.Namespace
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
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
    runtimes, int8 = [], []
    with tempfile.TemporaryDirectory() as work:
        if needs_int8:
            errors = measure_int8(plain, calibrated, tokenizer, held_out, test, head, Path(work))
            int8.append({"head": head, "seed": seed, **errors})
            print(int8[-1], flush=True)
        if names:
            runtimes = measure_runtimes(calibrated, tokenizer, test, head, names, Path(work))
    return runtimes, int8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder of the datasets")
    parser.add_argument("--encoder", required=True, help="the folder of the pretrained encoder, or its Hub id")
    parser.add_argument("--output_dir", type=Path, required=True, help="where the models are kept, to continue")
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--page", type=Path, help="the page whose tables are replaced")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--heads", nargs="+", choices=TASKS, default=[*TASKS], metavar="HEAD")
    parser.add_argument("--only", nargs="+", choices=RUNTIMES, default=[*RUNTIMES], metavar="RUNTIME")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    packages = ("torch", "transformers", "onnx", "onnxruntime", "openvino", "torchao", "sentence-transformers")
    machine = {"cpu": platform.machine(), "threads": options.threads} | {name: version(name) for name in packages}
    figures: dict[str, Any] = {"machine": machine, "runtimes": [], "int8": []}
    if options.json.exists():
        figures = json.loads(options.json.read_text(encoding="utf-8"))
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
                write_measurements(options.json, figures)
    print("\n".join(tables(figures).values()))
    if options.page is not None:
        fill_page(options.page, tables(figures))


if __name__ == "__main__":
    main()
