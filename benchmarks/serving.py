"""How calibrated probabilities differ between runtimes, and what quantization to int8 costs and leaves to correct.

    python benchmarks/serving.py --data ../shared/data --encoder all-MiniLM-L6-v2 --output_dir out/serving \
        --json benchmarks/results/serving.json --page docs/serving.md

An encoder is fine-tuned briefly with a softmax (SST, 2 classes), a sigmoid for each label (GoEmotions, 28 labels), and
one logit (TREC QA), with each seed. A correction is fitted on held-out samples and folded into the weights: a
temperature or, for the last two, a slope and an intercept. Then 1,000 test samples are run in every runtime with the
models of the first seed, and in int8 with those of every seed. The tables go to the page, between its two comments.
`--only` measures some of the runtimes; one whose package is missing is left out. All need the packages of the extra
`full`, and AOTInductor a C++ compiler.
"""

import argparse
import json
import platform
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
from transformers import AutoModelForSequenceClassification, AutoTokenizer, DataCollatorWithPadding, set_seed

from hf_focal import CalibrationMetrics, FocalTrainer, FocalTrainingArguments, fit_calibration, fold_calibration

MULTI_LABEL = "multi_label_classification"
TASKS = {"softmax": "sst", "sigmoid": "goemotions", "one logit": "trec_qa"}
TRAIN = {"softmax": 300, "sigmoid": 500, "one logit": 400}
HELD_OUT, MEASURED = 500, 1000  # samples
BATCH, MAX_LENGTH = 32, 64
Inputs = dict[str, torch.Tensor]
Batches = list[tuple[np.ndarray, Inputs]]
Run = Callable[[Inputs], torch.Tensor]  # logits of a batch


@dataclass
class Samples:
    """Texts, with a second text or None, and labels: (N,) classes, or (N, L) zeros and ones."""

    texts: list[str]
    pairs: list[str] | None
    labels: torch.Tensor

    def select(self, rows: np.ndarray) -> "Samples":
        pairs = None if self.pairs is None else [self.pairs[row] for row in rows]
        return Samples([self.texts[row] for row in rows], pairs, self.labels[rows])


def read(data: Path, head: str, part: str) -> Samples:
    """Read the part "train", "validation", or "test" of the data for a head."""
    name = "dev" if (head, part) == ("softmax", "validation") else part
    table = pd.read_parquet(data / TASKS[head] / f"{name}.parquet")
    if head == "softmax":
        table = table[table["label"] >= 0]
        return Samples(table["text"].tolist(), None, torch.tensor(table["label"].to_numpy()))
    if head == "sigmoid":
        labels = np.array([np.isin(np.arange(28), ids) for ids in table["labels"]], np.float32)
        return Samples(table["text"].tolist(), None, torch.from_numpy(labels))
    labels = torch.tensor(table["label"].to_numpy(np.float32))[:, None]
    return Samples(table["question"].tolist(), table["answer"].tolist(), labels)


def drawn(samples: Samples, size: int, seed: int) -> Samples:
    return samples.select(np.random.default_rng(seed).permutation(len(samples.texts))[:size])


def train(encoder: str, head: str, samples: Samples, seed: int, folder: Path, epochs: int) -> tuple[Any, Any]:
    """Return a model fine-tuned on all samples, and its tokenizer."""
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    tokens = tokenizer(samples.texts, samples.pairs, truncation=True, max_length=MAX_LENGTH)
    set_seed(seed)  # the head's initial weights
    options = {"num_labels": 2} if head == "softmax" else {"num_labels": samples.labels.shape[1]}
    options |= {} if head == "softmax" else {"problem_type": MULTI_LABEL}
    model = AutoModelForSequenceClassification.from_pretrained(encoder, **options)
    args = FocalTrainingArguments(
        output_dir=str(folder),
        loss="cross_entropy",
        seed=seed,
        num_train_epochs=epochs,
        learning_rate=2e-4,
        per_device_train_batch_size=16,
        train_sampling_strategy="group_by_length",
        use_cpu=True,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    dataset = Dataset.from_dict({**tokens, "labels": samples.labels.tolist()})
    collate = DataCollatorWithPadding(tokenizer)
    FocalTrainer(model, args, train_dataset=dataset, data_collator=collate, processing_class=tokenizer).train()
    return model.eval(), tokenizer


def batches_of(tokenizer: Any, samples: Samples, size: int = BATCH) -> Batches:
    """Return the rows and the inputs of each batch: samples of similar length."""
    tokens = tokenizer(samples.texts, samples.pairs, truncation=True, max_length=MAX_LENGTH)
    order = np.argsort([len(ids) for ids in tokens["input_ids"]], kind="stable")
    parts = [order[start : start + size] for start in range(0, len(order), size)]
    columns = [{name: [tokens[name][row] for row in rows] for name in tokens} for rows in parts]
    return [
        (rows, dict(tokenizer.pad(inputs, return_tensors="pt"))) for rows, inputs in zip(parts, columns, strict=True)
    ]


@torch.no_grad()
def logits_of(run: Run, batches: Batches) -> torch.Tensor:
    """Return the logits (N, K), float64, of all batches in the order of the samples."""
    rows = torch.from_numpy(np.concatenate([rows for rows, _ in batches]))
    logits = torch.cat([run(inputs).double() for _, inputs in batches])
    return torch.empty_like(logits).index_copy_(0, rows, logits)


# Runtimes: a function of a model, a batch of inputs, and a folder returns what runs batches.


def in_torch(model: Any, inputs: Inputs, folder: Path) -> Run:
    return lambda batch: model(**batch).logits


def compiled(model: Any, inputs: Inputs, folder: Path) -> Run:
    run = torch.compile(model, dynamic=True)
    return lambda batch: run(**batch).logits


def exported_program(model: Any, inputs: Inputs) -> Any:
    batch, length = torch.export.Dim("batch", max=4096), torch.export.Dim("length", max=512)
    shapes = {name: {0: batch, 1: length} for name in inputs}
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
        dynamic_shapes={name: {0: dynamic, 1: dynamic} for name in inputs},
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
    """One text at a time, without padding: the scale of the activations depends on the batch."""
    run = onnx_int8(model, inputs, folder)

    def run_alone(batch: Inputs) -> torch.Tensor:
        lengths = batch["attention_mask"].sum(1).tolist()
        rows = ({name: ids[[row], :length] for name, ids in batch.items()} for row, length in enumerate(lengths))
        return torch.cat([run(row) for row in rows])

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
    "ONNX Runtime, dynamic int8, one text at a time": onnx_int8_alone,
}
# Those that also compute in float32, and only add in another order.
FLOAT32 = ("torch.compile", "torch.export", "torch.export + AOTInductor", "ONNX Runtime, float32", "OpenVINO, float32")


def probabilities(logits: torch.Tensor, head: str) -> torch.Tensor:
    return logits.softmax(-1) if head == "softmax" else logits.sigmoid()


def ece(predicted: torch.Tensor, labels: torch.Tensor, head: str) -> float:
    """The ECE of probabilities, in percent; with sigmoids, over all labels."""
    metrics = CalibrationMetrics(link="softmax" if head == "softmax" else "sigmoid")
    metrics.update_from_probabilities(predicted, labels)
    return 100 * metrics.compute()["ece"]


def corrections(logits: torch.Tensor, labels: torch.Tensor, head: str) -> Any:
    method, link = ("temperature", "softmax") if head == "softmax" else ("platt", "sigmoid")
    return fit_calibration(logits, labels, method, link=link).correction


def cross_encoder(model: Any, tokenizer: Any, samples: Samples, folder: Path) -> torch.Tensor:
    """The probabilities that a CrossEncoder with one logit predicts."""
    from sentence_transformers import CrossEncoder

    for part in (model, tokenizer):
        part.save_pretrained(folder)
    encoder = CrossEncoder(str(folder), device="cpu", max_length=MAX_LENGTH)
    assert samples.pairs is not None
    scores = encoder.predict([*zip(samples.texts, samples.pairs, strict=True)], batch_size=BATCH)
    return torch.from_numpy(scores).double()[:, None]


def measure_runtimes(
    model: Any, tokenizer: Any, samples: Samples, head: str, names: list[str], folder: Path
) -> list[dict[str, Any]]:
    """Return a line for each runtime of a calibrated model: its ECE, and the largest difference of a probability."""
    batches, lines = batches_of(tokenizer, samples), []
    expected = probabilities(logits_of(in_torch(model, {}, folder), batches), head)
    for name in names:
        try:
            with torch.no_grad():
                logits = logits_of(RUNTIMES[name](model, batches[-1][1], folder), batches)
        except ImportError as error:
            print(f"{name} is left out: {error}")
            continue
        lines.append(compared(name, probabilities(logits, head), expected, samples, head))
    if head == "one logit" and len(names) == len(RUNTIMES):
        predicted = cross_encoder(model, tokenizer, samples, folder / "cross_encoder")
        lines.append(compared("CrossEncoder, float32", predicted, expected, samples, head))
    return lines


def compared(
    name: str, predicted: torch.Tensor, expected: torch.Tensor, samples: Samples, head: str
) -> dict[str, Any]:
    differences = (predicted - expected).abs()
    line = {"head": head, "runtime": name, "difference": float(differences.max())}
    line |= {"mean_difference": float(differences.mean()), "ece": ece(predicted, samples.labels, head)}
    print(line, flush=True)
    return line


def measure_int8(
    plain: Any, calibrated: Any, tokenizer: Any, held_out: Samples, test: Samples, head: str, folder: Path
) -> dict[str, float]:
    """Return the ECE of a model and its calibrated copy, in float32 and in int8, and of int8 calibrated afterwards."""
    fitting, testing = batches_of(tokenizer, held_out), batches_of(tokenizer, test)
    inputs, labels = testing[-1][1], test.labels
    quantized = onnx_int8(plain, inputs, folder)
    before, fitted_on = (logits_of(quantized, batches) for batches in (testing, fitting))
    correction = corrections(fitted_on, held_out.labels, head)
    logits = {
        "float32": logits_of(in_torch(plain, {}, folder), testing),
        "float32_calibrated": logits_of(in_torch(calibrated, {}, folder), testing),
        "int8": before,
        "int8_calibrated_before": logits_of(onnx_int8(calibrated, inputs, folder), testing),
        "int8_calibrated_after": correction.apply(before),
    }
    return {name: ece(probabilities(values, head), labels, head) for name, values in logits.items()}


def tables(figures: dict[str, Any]) -> str:
    """The Markdown tables of the page."""
    heads = list(dict.fromkeys(line["head"] for line in figures["runtimes"]))
    cells: dict[str, dict[str, str]] = {}
    for line in figures["runtimes"]:
        cells.setdefault(line["runtime"], {})[line["head"]] = f"{line['difference']:.1e}, {line['ece']:.2f}%"
    lines = [f"| Runtime | {' | '.join(heads)} |", "| --- |" + " ---: |" * len(heads)]
    lines += [
        f"| {name} | {' | '.join(row.get(head, '–') for head in heads)} |".replace("0.0e+00", "0")
        for name, row in cells.items()
    ]
    names = [name for name in figures["int8"][0] if name not in ("head", "seed")]
    titles = ["float32", "calibrated", "int8", "calibrated before int8", "calibrated after int8"]
    lines += ["", f"| Head | seeds | {' | '.join(titles)} |", "| --- |" + " ---: |" * (1 + len(titles))]
    for head in heads:
        own = [line for line in figures["int8"] if line["head"] == head]
        values = [[line[name] for line in own] for name in names]
        row = [f"{np.mean(of):.2f}" + (f" ({min(of):.2f}–{max(of):.2f})" if len(of) > 1 else "") for of in values]
        lines.append(f"| {head} | {len(own)} | {' | '.join(row)} |")
    return "\n".join(lines) + "\n"


BEGIN, END = "<!-- benchmarks/serving.py -->\n", "<!-- end -->\n"


def put_into(page: Path, text: str) -> None:
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder of the datasets")
    parser.add_argument("--encoder", required=True, help="the folder of the pretrained encoder, or its Hub id")
    parser.add_argument("--output_dir", type=Path, required=True, help="where the models are kept, to continue")
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--page", type=Path, help="the page whose tables are replaced")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--only", nargs="+", choices=RUNTIMES, default=[*RUNTIMES], metavar="RUNTIME")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    packages = ("torch", "transformers", "onnx", "onnxruntime", "openvino", "torchao", "sentence-transformers")
    machine = {"cpu": platform.machine(), "threads": options.threads} | {name: version(name) for name in packages}
    figures: dict[str, Any] = {"machine": machine, "runtimes": [], "int8": []}
    for seed in options.seeds:
        for head in TASKS:
            folder = options.output_dir / f"{TASKS[head]}_{seed}"
            if not (folder / "config.json").exists():
                samples = drawn(read(options.data, head, "train"), TRAIN[head], seed)
                with tempfile.TemporaryDirectory() as checkpoints:
                    trained = train(options.encoder, head, samples, seed, Path(checkpoints), options.epochs)
                for part in trained:
                    part.save_pretrained(folder)
            plain = AutoModelForSequenceClassification.from_pretrained(folder).eval()
            tokenizer = AutoTokenizer.from_pretrained(folder)
            held_out = drawn(read(options.data, head, "validation"), HELD_OUT, 0)
            test = drawn(read(options.data, head, "test"), MEASURED, 0)
            fitted_on = logits_of(in_torch(plain, {}, folder), batches_of(tokenizer, held_out))
            calibrated = fold_calibration(deepcopy(plain), corrections(fitted_on, held_out.labels, head))
            with tempfile.TemporaryDirectory() as work:
                measured = measure_int8(plain, calibrated, tokenizer, held_out, test, head, Path(work))
                figures["int8"].append({"head": head, "seed": seed, **measured})
                print(figures["int8"][-1], flush=True)
                if seed == options.seeds[0]:
                    lines = measure_runtimes(calibrated, tokenizer, test, head, options.only, Path(work))
                    figures["runtimes"] += lines
            options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    print(tables(figures))
    if options.page is not None:
        put_into(options.page, tables(figures))


if __name__ == "__main__":
    main()
