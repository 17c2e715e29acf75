"""Trial runs of a model on one small batch: its logits, and which of its layers compute them."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

_LENGTHS = 16, 4  # of texts, in tokens
_NEAREST = 6  # of the layers that run last, how many may compute the logits


class TrialModel:
    """A model with a batch on which it runs. Each run has the same random numbers, and leaves the model as it was.

    Args:
        model: a model of Transformers, or one with the same interface.
        example: inputs of the model, such as a batch of the data without labels. Without it, or if it does not run, a
            batch is made from the model's config.

    Raises:
        TypeError: no batch runs, or the output has no logits.
    """

    def __init__(self, model: Any, example: Mapping[str, Any] | None = None) -> None:
        self.model, self.inputs, problem = model, dict[str, Tensor](), None
        parameter = next(model.parameters())
        self.device, dtype = (getattr(model, name, getattr(parameter, name)) for name in ("device", "dtype"))
        for inputs in chain([] if example is None else [example], _dummy_inputs(model)):
            self.inputs = {
                name: value.to(self.device, dtype if value.is_floating_point() else None)
                for name, value in inputs.items()
                if isinstance(value, Tensor) and name != "labels"
            }
            try:
                logits = self.logits()
            except _NoLogitsError:
                raise
            except Exception as error:  # inputs of other shapes or names raise anything
                problem = problem or error
                continue
            if not logits.nan_to_num(0, 0, 0).any():
                raise TypeError(f"model must have logits other than 0 to try a correction on, got {self.name}")
            self._check_precision(logits)
            return
        raise TypeError(
            f"model must run on a small batch, on which the correction is tried, got {self.name}: give one as"
            " `example`" + ("" if problem is None else f" ({type(problem).__name__}: {problem})")
        )

    def _check_precision(self, logits: Tensor) -> None:
        """Raise TypeError if all logits are so small that halves of them are rounded, as below 0.006 in float16."""
        info, largest = torch.finfo(logits.dtype), float(logits.nan_to_num(0, 0, 0).abs().max())
        if largest < (smallest := 1e5 * info.tiny * info.eps):
            raise TypeError(
                f"model must have logits above {smallest:.2g} in {logits.dtype}, which rounds smaller ones, got "
                f"{self.name} with up to {largest:.2g} on a trial batch: load it in float32"
            )

    @property
    def name(self) -> str:
        return type(self.model).__name__

    @torch.no_grad()
    def logits(
        self, scales: Mapping[nn.Module, float] | None = None, watch: Callable[..., Any] | None = None
    ) -> Tensor:
        """Return the logits (..., K).

        The outputs of the layers in `scales` are multiplied by the given factors, and `watch(layer, output)` is called
        with every layer that runs, in order.
        """
        training = [module for module in self.model.modules() if module.training]
        devices = [self.device] if self.device.type == "cuda" else []
        with ExitStack() as stack:
            stack.enter_context(torch.random.fork_rng(devices))
            torch.manual_seed(0)
            for layer, scale in (scales or {}).items():
                hook = layer.register_forward_hook(lambda _, __, output, scale=scale: output * scale)
                stack.callback(hook.remove)
            if watch is not None:
                for layer in self.model.modules():
                    hook = layer.register_forward_hook(lambda layer, _, output: watch(layer, output))
                    stack.callback(hook.remove)
            self.model.eval()  # without dropout or updates of running statistics
            try:
                output = self.model(**self.inputs)
            finally:
                for module in training:
                    module.training = True
        return _logits(output, self.name)

    def largest_output(self, layers: Sequence[nn.Module]) -> float:
        """Return the largest absolute output of some layers."""
        peaks: list[float] = []
        self.logits(watch=lambda layer, output: peaks.append(float(output.abs().max())) if layer in layers else None)
        return max(peaks, default=0.0)

    def run_order(self) -> list[nn.Module]:
        """Return the modules in the order in which they ran."""
        ran: list[nn.Module] = []
        self.logits(watch=lambda layer, _: ran.append(layer))
        return ran

    def logit_layers(self) -> list[nn.Module]:
        """Return the Linear or Conv2d layers, one or two, whose outputs are the logits up to linear operations.

        Multiplying the outputs of these layers by a number, small or large, multiplies the logits by the same number:
        so it is with two heads that are added, but not with a soft cap. All factors are powers of two, which are exact
        in every dtype. A quantized layer counts as well, although nothing can be folded into it. Raise TypeError if
        there are no such layers.
        """
        before = self.logits()
        ran = [layer for layer in self.run_order() if isinstance(layer, nn.Linear | nn.Conv2d) or is_quantized(layer)]
        last = list(dict.fromkeys(reversed(ran)))[:_NEAREST]
        pairs = [[one, other] for index, one in enumerate(last) for other in last[index + 1 :]]
        for candidate in [*([layer] for layer in last), *pairs]:
            if not scaled_alike(self.logits(dict.fromkeys(candidate, 0.5)), before, 0.5):
                continue
            large = large_power(self.largest_output(candidate))
            if scaled_alike(self.logits(dict.fromkeys(candidate, large)), before, large):
                return candidate
        raise TypeError(
            "model must have logits that are proportional to the outputs of its last Linear or Conv2d layers, got "
            f"{self.name}, whose are not"
        )


def is_quantized(layer: Any) -> bool:
    """Return whether a layer has the features of a Linear, but no plain weight of floating numbers.

    Its weight may be packed (bitsandbytes), of a class of its own (torchao), in float8 with a separate scale, or
    missing (GPTQ, AWQ, and PyTorch's dynamic quantization, whose layers are no `nn.Linear`).
    """
    if not (hasattr(layer, "in_features") and hasattr(layer, "out_features")):
        return False
    if any(isinstance(part, nn.Linear | nn.Conv2d) for part in layer.modules() if part is not layer):
        return False  # a wrapper, such as LoRA's
    weight = getattr(layer, "weight", None)
    if not isinstance(weight, Tensor) or type(weight).__module__.partition(".")[0] != "torch":
        return True
    shape = (layer.out_features, layer.in_features)
    return not weight.is_floating_point() or weight.dtype.itemsize < 2 or tuple(weight.shape) != shape


def first_rows(batch: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the first two rows of a batch's tensors, without labels, on the CPU."""
    return {name: value[:2].cpu() for name, value in batch.items() if isinstance(value, Tensor) and name != "labels"}


def scaled_alike(logits: Tensor, before: Tensor, factor: float, tolerance: float = 1e-5) -> bool:
    """Return whether the logits are those before times a factor; masked ones may be infinite."""
    return close(logits.double(), factor * before.double(), tolerance)


def close(logits: Tensor, expected: Tensor, tolerance: float) -> bool:
    """Return whether no logit is off by more than `tolerance` of the largest expected one."""
    largest = float(expected.nan_to_num(0, 0, 0).abs().max())
    return torch.allclose(logits, expected, rtol=0, atol=tolerance * largest, equal_nan=True)


def large_power(peak: float) -> float:
    """Return the power of two that brings an output up to about 10,000, where any soft cap shows."""
    return 2.0 ** round(math.log2(1e4 / peak)) if 0 < peak < math.inf else 1.0


class _NoLogitsError(TypeError):
    pass


def _logits(output: Any, name: str) -> Tensor:
    """Return the logits (..., K) in a model's output, with the classes of pixels moved to the end."""
    if getattr(output, "start_logits", None) is not None:  # extractive question answering
        return torch.stack([output.start_logits, output.end_logits], -1)
    logits = output[0] if type(output) is tuple else output
    logits = logits if isinstance(logits, Tensor) else getattr(output, "logits", None)
    if not isinstance(logits, Tensor):
        raise _NoLogitsError(
            f"model must be a classifier or a language model, whose output has logits, got {name}, whose output has "
            f"{', '.join(output) if isinstance(output, Mapping) else type(output).__name__}"
        )
    return logits.movedim(1, -1) if logits.ndim == 4 else logits


def _dummy_inputs(model: Any) -> Iterator[dict[str, Tensor]]:
    """Yield batches on which a model may run, made from its config, the likeliest first."""
    config, main = model.config, getattr(model, "main_input_name", "input_ids")
    from transformers import PreTrainedModel  # fitting does not need Transformers

    if getattr(type(model), "dummy_inputs", PreTrainedModel.dummy_inputs) is not PreTrainedModel.dummy_inputs:
        yield model.dummy_inputs
    generator = torch.Generator().manual_seed(0)
    if main in ("pixel_values", "pixel_values_videos"):
        yield from _images(config, main, generator)
        return
    if main in ("input_values", "input_features"):
        yield from _sounds(config, main, generator)
        return
    for length in _LENGTHS:
        ids = _token_ids(config, length)
        inputs = {main: ids}
        if type(model).__name__.endswith("ForMultipleChoice"):
            inputs = {main: torch.stack([ids, ids.flip(0)], 1)}
        inputs |= {"attention_mask": torch.ones_like(inputs[main])}
        if getattr(config, "is_encoder_decoder", False):
            yield inputs | {"decoder_input_ids": ids}
        yield inputs
        yield {main: inputs[main]}


def _token_ids(config: Any, length: int) -> Tensor:
    """Return two texts of tokens that are not special, except for the end of the text."""
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    size = next((value for name in ("vocab_size", "n_vocab") if (value := getattr(text, name, None))), 8)
    special = {
        value
        for part in (config, text)
        for name, value in vars(part).items()
        if name.endswith(("_token_id", "_token_index")) and isinstance(value, int)
    }
    allowed = torch.tensor([token for token in range(min(size, 5000)) if token not in special] or [0])
    ids = allowed[torch.randint(len(allowed), (2, length), generator=torch.Generator().manual_seed(0))]
    end = getattr(text, "eos_token_id", None)
    if isinstance(end, int) and 0 <= end < size:
        ids[:, -1] = end  # where BART's classifier reads
    return ids


def _images(config: Any, main: str, generator: torch.Generator) -> Iterator[dict[str, Tensor]]:
    parts = [config, *(part for name in ("vision_config", "backbone_config") if (part := getattr(config, name, None)))]

    def first(*names: str) -> Any:
        values = (getattr(part, name, None) for part in parts for name in names)
        return next((value for value in values if value is not None), None)

    channels, *size = (getattr(config, "pretrained_cfg", None) or {}).get("input_size", (first("num_channels") or 3,))
    if not size and (image_size := first("image_size", "input_size", "crop_size")):
        size = [*image_size] if isinstance(image_size, list | tuple) else [image_size, image_size]
    frames = [first("num_frames", "frames") or 1] if first("num_frames", "tubelet_size") is not None else []
    for height, width in dict.fromkeys([tuple(size[-2:]) or (64, 64), (64, 64), (224, 224), (512, 512)]):
        shape = [2, *frames, channels if isinstance(channels, int) else 3, int(height), int(width)]
        yield {main: torch.randn(shape, generator=generator)}


def _sounds(config: Any, main: str, generator: torch.Generator) -> Iterator[dict[str, Tensor]]:
    values = vars(config)
    bins = next((values[name] for name in ("num_mel_bins", "feature_projection_input_dim") if name in values), None)
    if bins is None:
        yield {main: torch.randn(2, 16000, generator=generator)}
        return
    positions = (
        2 * values["max_source_positions"] if "max_source_positions" in values else values.get("max_length", 64)
    )
    shapes = [(2, positions, bins), (2, bins, positions), (2, 64, bins), (2, bins, 64)]
    yield from ({main: torch.randn(shape, generator=generator)} for shape in shapes)
