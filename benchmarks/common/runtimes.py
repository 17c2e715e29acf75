"""Runtimes: each is a function of a model, a batch of inputs, and a folder, and returns what runs batches."""

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import torch

Inputs = dict[str, torch.Tensor]
Run = Callable[[Inputs], torch.Tensor]  # logits of a batch


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


RUNTIMES: dict[str, Callable[[Any, Inputs, Path], Run]] = {
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
