"""Models inside `torch.compile`, `DataParallel`, and other wrappers that run a model without being one."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn


def unwrap(model: Any) -> Any:
    """Return the model inside its wrappers, however nested: `torch.compile`, `DataParallel`, or those of Accelerate.

    Modules that hold a model but have a forward pass of their own are not wrappers. A model that is compiled in place,
    by `model.compile()`, has no wrapper.
    """
    if not isinstance(model, nn.Module):
        return model
    # Not at the top: tables of scores need no Accelerate.
    from accelerate.utils import extract_model_from_parallel

    # Accelerate removes the wrappers in one order only.
    while (inner := extract_model_from_parallel(model, keep_torch_compile=False)) is not model:
        model = inner
    return model


@contextmanager
def plain_submodules(model: nn.Module) -> Iterator[None]:
    """Give the parameters of compiled submodules their plain names in this context.

    After ``model.encoder = torch.compile(model.encoder)``, their names contain ``_orig_mod``.
    """
    from accelerate.utils import is_compiled_module

    wrapped = [
        (parent, name, child)
        for parent in model.modules()
        for name, child in parent.named_children()
        if is_compiled_module(child)
    ]
    for parent, name, child in wrapped:
        setattr(parent, name, unwrap(child))
    try:
        yield
    finally:
        for parent, name, child in wrapped:
            setattr(parent, name, child)
