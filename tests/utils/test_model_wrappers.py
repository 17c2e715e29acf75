"""Wrappers of models: `torch.compile` and `DataParallel`, however nested, and compiled submodules."""

import pytest
import torch
from torch import nn

from hf_focal.utils.model_wrappers import plain_submodules, unwrap


def compiled(module):
    return torch.compile(module, backend="eager")


@pytest.mark.parametrize(
    "wrap",
    [
        lambda module: module,
        compiled,
        nn.DataParallel,
        lambda module: compiled(nn.DataParallel(module)),
        lambda module: nn.DataParallel(compiled(module)),
        lambda module: nn.DataParallel(compiled(nn.DataParallel(module))),
    ],
    ids=["none", "compile", "DataParallel", "compile(DP)", "DP(compile)", "DP(compile(DP))"],
)
def test_the_model_inside_all_wrappers(wrap):
    module = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    assert unwrap(wrap(module)) is module


def test_what_is_no_wrapper_stays():
    class Own(nn.Module):
        def __init__(self, module):
            super().__init__()
            self.module = module

    module = Own(nn.Linear(2, 2))
    assert unwrap(module) is module
    assert unwrap(None) is None and unwrap(1.5) == 1.5


def test_compiled_submodules_have_plain_names_in_the_context_only():
    module = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2)))
    names = list(module.state_dict())
    module[0], module[1][0] = first, second = compiled(module[0]), compiled(module[1][0])
    with pytest.raises(KeyError), plain_submodules(module):
        assert list(module.state_dict()) == names
        raise KeyError
    assert module[0] is first and module[1][0] is second
    assert all("_orig_mod" in name for name in module.state_dict())
