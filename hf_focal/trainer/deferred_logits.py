"""Deferred logits: a language model's loss computed from its hidden states and head, without holding all logits.

In a training step, the head returns `DeferredLogits`. If the model then applies a bias, a scale, or a soft cap, this
operation is recorded. Any other operation computes the logits after all, which costs memory but is always correct.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import reduce
from types import MethodType
from typing import Any

import torch
from accelerate.utils import DistributedType
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel
from transformers.integrations import is_deepspeed_zero3_enabled

from ..errors import require
from ..losses import Loss, MarginLoss, linear_loss
from .training_arguments import FocalTrainingArguments


class DeferredLogits:
    """Logits (..., K) that are not computed yet: cap · tanh(scale · (hidden · weightᵀ + bias) / cap).

    Without a `cap`, the logits are scale · (hidden · weightᵀ + bias). `hidden` is (..., H), and the head's `weight` is
    (K, H). `bias` is the sum of `biases`, each (K,) or (1, K), or None if there are no biases.
    """

    def __init__(self, hidden: Tensor, head: nn.Linear):
        self.hidden, self.head, self.weight = hidden, head, head.weight
        self.biases: tuple[Tensor, ...] = () if head.bias is None else (head.bias,)
        self.scale, self.cap = 1.0, None
        self.num_classes = len(head.weight)  # ZeRO-3 empties the weight after the head's forward pass
        device = hidden.device.type
        # Kept because the model's mixed-precision context ends before the loss is computed.
        self._autocast = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
        self._computed: Tensor | None = None

    def loss(self, loss: Loss, labels: Tensor, **reduction: Any) -> Tensor:
        """Return `loss` of these logits and `labels` (...). `reduction` and `num_items` are as in `linear_loss`."""
        if self._computed is not None:
            return loss(self._computed, labels, **reduction)
        reduction |= {"logit_scale": self.scale, "soft_cap": self.cap}
        with self._as_in_forward():
            return self._by_head(lambda hidden: linear_loss(loss, hidden, self.weight, labels, self.bias, **reduction))

    def tensor(self) -> Tensor:
        """Compute the logits (..., K) once, and return them. From then on, this tensor replaces the recorded
        operations, because the model may change it in place."""
        # Compiled code sends `logits + tensor` to `__torch_function__` and so to this method. The graph break here
        # makes Python call the operator itself.
        return (torch.compiler.disable(self._tensor) if torch.compiler.is_compiling() else self._tensor)()

    def _tensor(self) -> Tensor:
        if self._computed is None:
            with self._as_in_forward():
                logits = self._by_head(lambda hidden: F.linear(hidden, self.weight, self.bias)) * self.scale
                self._computed = logits if self.cap is None else self.cap * torch.tanh(logits / self.cap)
        return self._computed

    def _as_in_forward(self) -> AbstractContextManager[Any]:
        return nullcontext() if self._autocast is None else torch.autocast(self.hidden.device.type, self._autocast)

    @property
    def bias(self) -> Tensor | None:
        return reduce(torch.add, [bias.reshape(-1) for bias in self.biases]) if self.biases else None

    def _by_head(self, function: Callable[[Tensor], Tensor]) -> Tensor:
        """Apply `function` to the hidden states. Under ZeRO-3, it runs in place of the head's forward pass, so that
        ZeRO-3's hooks on the head gather its weight on every process, both now and in the backward pass."""
        if not is_deepspeed_zero3_enabled():
            return function(self.hidden)
        with _forward(self.head, lambda head, hidden: function(hidden)):
            return self.head(self.hidden)

    def _with(self, **changed: Any) -> "DeferredLogits":
        other = object.__new__(DeferredLogits)
        for name in _FIELDS:  # compilers do not support `vars(self) | changed`
            setattr(other, name, changed[name] if name in changed else getattr(self, name))
        return other

    def __add__(self, other: Any) -> "DeferredLogits | Tensor":
        biases = ((self.num_classes,), (1, self.num_classes))
        noted = self._computed is None and self.scale == 1 and self.cap is None
        if noted and isinstance(other, Tensor) and other.shape in biases:
            return self._with(biases=(*self.biases, other))
        return self.tensor() + other

    def __mul__(self, factor: Any) -> "DeferredLogits | Tensor":
        known = isinstance(factor, int | float) and (self.cap is None or factor > 0)
        if self._computed is None and known:
            return self._with(scale=self.scale * factor, cap=None if self.cap is None else self.cap * factor)
        return self.tensor() * factor

    def __truediv__(self, divisor: Any) -> "DeferredLogits | Tensor":
        return self * (1 / divisor) if isinstance(divisor, int | float) else self.tensor() / divisor

    def __getitem__(self, index: Any) -> "DeferredLogits | Tensor":
        # If every class is kept, indexing the positions of logits is the same as indexing the hidden states.
        positions = isinstance(index, tuple) and index[0] is Ellipsis and index[-1] == slice(None)
        if self._computed is None and positions:
            return self._with(hidden=self.hidden[index])
        return self.tensor()[index]

    def float(self) -> "DeferredLogits | Tensor":
        # The elementwise loss is float32 anyway.
        return self if self._computed is None else self._computed.float()

    @property
    def dtype(self) -> torch.dtype:
        # The dtype to which Accelerate converts half-precision logits.
        return torch.float32 if self._computed is None else self._computed.dtype

    @property
    def device(self) -> torch.device:
        return self.hidden.device

    def __getattr__(self, name: str) -> Any:
        if name in _FIELDS:  # of a copy that is being made
            raise AttributeError(name)
        return getattr(self.tensor(), name)

    @classmethod
    def __torch_function__(
        cls, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        first = args[0] if args else None
        if function is torch.tanh and isinstance(first, cls) and first._computed is None and first.cap is None:
            return first._with(cap=1.0)
        return function(*map(_computed, args), **{name: _computed(value) for name, value in (kwargs or {}).items()})


def _computed(argument: Any) -> Any:
    """Return an argument with deferred logits, including those in lists and tuples, replaced by computed logits."""
    if isinstance(argument, list | tuple):
        return type(argument)(map(_computed, argument))
    return argument.tensor() if isinstance(argument, DeferredLogits) else argument


_FIELDS = ("hidden", "head", "weight", "biases", "scale", "cap", "num_classes", "_autocast", "_computed")
# Operators to forward to the computed logits, since Python does not look up operators through `__getattr__`.
_OPERATORS = (
    *("radd", "sub", "rsub", "rmul", "rtruediv", "floordiv", "rfloordiv", "mod", "rmod", "pow", "rpow", "matmul"),
    *("rmatmul", "neg", "pos", "abs", "eq", "ne", "gt", "ge", "lt", "le", "bool", "len", "iter", "contains"),
    "setitem",
)
for _name in _OPERATORS:
    _operator = f"__{_name}__"
    setattr(DeferredLogits, _operator, lambda self, *others, _name=_operator: getattr(self.tensor(), _name)(*others))


@contextmanager
def deferred(head: nn.Linear | None) -> Iterator[None]:
    """Make `head` return `DeferredLogits` in this context. If `head` is None, do nothing."""
    if head is None:
        yield
        return
    with _forward(head, _record):
        if not is_deepspeed_zero3_enabled():
            yield
            return
        # ZeRO-3's hooks need a tensor as output, whose gradient starts the head's backward pass. The hook `result`
        # runs after them and replaces this tensor with the deferred logits.
        made: list[DeferredLogits] = []

        def forward(head: nn.Linear, hidden: Tensor) -> Tensor:
            made.append(_record(head, hidden))
            return hidden

        def result(module: nn.Module, inputs: Any, output: Tensor) -> DeferredLogits | None:
            return made.pop()._with(hidden=output) if made else None

        hook = head.register_forward_hook(result)
        try:
            with _forward(head, forward):
                yield
        finally:
            hook.remove()


def _record(head: nn.Linear, hidden: Tensor) -> DeferredLogits:
    return DeferredLogits(hidden, head)


@contextmanager
def _forward(head: nn.Linear, forward: Callable[[nn.Linear, Tensor], Any]) -> Iterator[None]:
    """Replace the forward pass of `head` by `forward` in this context."""
    before = vars(head).get("forward")
    # This overrides the class's method. `torch.compile` would recompile each step for a new closure, but not for a
    # method of the same function.
    vars(head)["forward"] = MethodType(forward, head)
    try:
        yield
    finally:
        del vars(head)["forward"]
        if before is not None:
            vars(head)["forward"] = before


def deferrable_head(model: PreTrainedModel, loss: Loss, args: FocalTrainingArguments) -> nn.Linear | None:
    """Return the head of a language model if its logits can be deferred, or else None.

    Always returns None if `args.linear_loss` is "off". Raises InputError if `args.linear_loss` is "on" and the logits
    cannot be deferred.
    """
    if args.linear_loss == "off":
        return None
    head = model.get_output_embeddings()
    distributed = args.distributed_state.distributed_type
    if distributed is DistributedType.FSDP and isinstance(model, PreTrainedModel) and not _is_sharded(model):
        return None  # until training begins, when FSDP shards the model
    if not (isinstance(loss, MarginLoss) and loss.is_only_form()):
        obstacle = f"the loss {args.loss} needs the logits of all tokens at once"
    elif not _is_plain_linear(head) or "forward" in vars(head):
        obstacle = f"the head of {type(model).__name__} is not a plain nn.Linear"
    elif args.torch_compile and distributed in (DistributedType.FSDP, DistributedType.DEEPSPEED):
        obstacle = f"torch_compile was not tested with a head that {distributed.value} shards"
    elif distributed is DistributedType.FSDP and _is_sharded(model) and _keep_gathered(model, head):
        return head
    elif distributed is DistributedType.FSDP:
        obstacle = "FSDP keeps the head's weight whole only in its forward pass"
    elif args.world_size > 1 and args.ddp_find_unused_parameters is not False:
        obstacle = "DDP looks for unused parameters in the logits (ddp_find_unused_parameters, or layerdrop above 0)"
    else:
        return head
    require(args.linear_loss != "on", "args.linear_loss", f"must be 'auto' or 'off' here, got 'on': {obstacle}")
    return None


def is_sharded_class(kind: type) -> bool:
    """Return whether FSDP2 made a class, of a module that it shards."""
    from torch.distributed.fsdp import FSDPModule  # not in every build of PyTorch

    return issubclass(kind, FSDPModule)


def _is_sharded(module: nn.Module) -> bool:
    return is_sharded_class(type(module))


def set_ddp_default(model: Any, args: FocalTrainingArguments) -> None:
    """Turn off DDP's search for unused parameters of a language model, unless the user has set the option.

    The search, which Trainer turns on by default, starts from the logits, which are not computed here. It stays on for
    models that skip layers at random (layerdrop), because they need it.
    """
    head_of = getattr(model, "get_output_embeddings", None)
    if args.ddp_find_unused_parameters is None and head_of is not None and head_of() is not None:
        settings = model.config.to_dict().items()
        if not any(value for name, value in settings if name.endswith("layerdrop")):
            args.ddp_find_unused_parameters = False


def _is_plain_linear(head: Any) -> bool:
    """Return whether a head is a plain `nn.Linear`, or one to whose class FSDP2 has added its own."""
    return type(head) is nn.Linear or (_is_sharded(head) and type(head).__bases__[1:] == (nn.Linear,))


def _keep_gathered(model: Any, head: Any) -> bool:
    """Make FSDP2 keep the head's weight until the end of the backward pass, and return whether this is possible.

    FSDP2 then gathers the weight only once, in the forward pass. It is not possible in PyTorch 2.7, or if the weight
    belongs to the root module and no other module is sharded separately: FSDP2 would not notice the start of the
    backward pass and would not reduce the gradients.
    """
    owner = head if _is_sharded(head) else model
    alone = owner is model and not any(_is_sharded(module) for module in model.modules() if module is not model)
    if alone or not hasattr(owner, "set_reshard_after_forward"):
        return False
    owner.set_reshard_after_forward(False, recurse=False)
    return True
