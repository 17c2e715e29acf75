"""The options of `evaluate` and `calibrate`: what each is for, and what refuses it."""

import argparse
from inspect import signature
from typing import get_args

import pytest
from trained_models import error_of

from hf_focal import InputError, calibrate_model, calibrate_scores, evaluate_model, evaluate_scores
from hf_focal.cli.measuring_options import Scope, calibrate_options, evaluate_options

COMMANDS = [
    pytest.param(evaluate_options, evaluate_model, evaluate_scores, id="evaluate"),
    pytest.param(calibrate_options, calibrate_model, calibrate_scores, id="calibrate"),
]


def arguments_of(function) -> set[str]:
    """The names of a function's arguments, with those of its `**arguments`."""
    (others,) = get_args(function.__annotations__["arguments"])
    return {*signature(function).parameters, *others.__optional_keys__} - {"arguments"}


@pytest.mark.parametrize(("add", "of_models", "of_tables"), COMMANDS)
def test_every_option_has_the_scope_of_the_functions_that_take_it(add, of_models, of_tables):
    parser = argparse.ArgumentParser(add_help=False)
    scopes = add(parser).scopes
    assert {action.dest for action in parser._actions} == {*scopes}
    takes_model, takes_table = arguments_of(of_models), arguments_of(of_tables)
    for name, scope in scopes.items():
        expected = {
            (True, True): Scope.BOTH,
            (True, False): Scope.MODEL,
            (False, True): Scope.TABLE,
            (False, False): Scope.BOTH if name == "help" else None,
        }[name in takes_model, name in takes_table]
        assert scope is expected, name


@pytest.mark.parametrize(("add", "of_models", "of_tables"), COMMANDS)
def test_every_option_outside_of_its_scope_is_refused(add, of_models, of_tables):
    options = add(argparse.ArgumentParser(add_help=False))
    for name, scope in options.scopes.items():
        for given, where, refused in (({"scores": "s"}, "with", Scope.MODEL), ({}, "without", Scope.TABLE)):
            if name != "scores" and scope is refused:
                with pytest.raises(InputError, match=f"^{name} must not be given {where} scores, got 'x'$"):
                    options.check(given | {name: "x"})
            else:
                options.check(given | {name: "x"})


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["--scores", "s.csv", "--task", "x"], "task must not be given with scores, got 'x'"),
        (["--scores", "s.csv", "--dataset", "d"], "dataset must not be given with scores, got 'd'"),
        (["model", "--scores", "s.csv"], "model must not be given with scores, got 'model'"),
        (["model", "--dataset", "d", "--kind", "logits"], "kind must not be given without scores, got 'logits'"),
    ],
)
def test_the_command_says_what_is_out_of_scope(capsys, line, message):
    assert error_of(capsys, ["evaluate", *line]) == f"hf-focal evaluate: error: {message}"
