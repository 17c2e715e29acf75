"""The keyword arguments of the functions for models and for tables are those of `evaluate` and `calibrate`."""

import re
from dataclasses import fields
from inspect import getdoc, signature
from typing import get_type_hints

import pytest

from hf_focal import calibrate, calibrate_model, calibrate_scores, evaluate, evaluate_model, evaluate_scores
from hf_focal.scores.table_options import TableOptions
from hf_focal.tasks.input_options import InputOptions
from hf_focal.workflow import keyword_arguments as keywords

MODEL, TABLE = keywords.ModelArguments, keywords.TableArguments


@pytest.mark.parametrize(
    ("function", "of_models", "of_tables", "of_models_alone"),
    [
        (evaluate, keywords.ModelEvaluationArguments, keywords.TableEvaluationArguments, set()),
        (
            calibrate,
            keywords.ModelCalibrationArguments,
            keywords.TableCalibrationArguments,
            {"objective", "push_to_hub", "private", "method"},  # the method of tables has another default
        ),
    ],
)
def test_every_setting_of_a_function_is_handed_on_with_its_type(function, of_models, of_tables, of_models_alone):
    named = {*signature(function).parameters} - {"source", "data", "scores", "options", "threshold_data", "test"}
    types = get_type_hints(function)
    for arguments, options, expected in ((of_models, MODEL, named), (of_tables, TABLE, named - of_models_alone)):
        assert arguments.__optional_keys__ - options.__optional_keys__ == expected
        handed = get_type_hints(arguments)
        assert [name for name in expected - {"reference"} if handed[name] != types[name]] == []


@pytest.mark.parametrize(
    ("arguments", "options", "others"),
    [(MODEL, InputOptions, {"onnx", "task", "batch_size"}), (TABLE, TableOptions, {"text_column"})],
)
def test_the_options_of_a_source_are_the_fields_of_its_options_with_their_types(arguments, options, others):
    handed, types = get_type_hints(arguments), get_type_hints(options)
    names = {field.name for field in fields(options)}
    assert arguments.__optional_keys__ == names | others
    assert {name: handed[name] for name in names} == {name: types[name] for name in names}


FUNCTIONS = [
    (evaluate_model, keywords.ModelEvaluationArguments),
    (calibrate_model, keywords.ModelCalibrationArguments),
    (evaluate_scores, keywords.TableEvaluationArguments),
    (calibrate_scores, keywords.TableCalibrationArguments),
]


@pytest.mark.parametrize(("function", "arguments"), FUNCTIONS)
def test_the_docstring_names_every_argument_but_columns(function, arguments):
    described = {*re.findall(r"\w+", getdoc(function).partition("Args:")[2].partition("Raises:")[0])}
    of_models = function in (evaluate_model, calibrate_model)
    options, name = (InputOptions, "InputOptions") if of_models else (TableOptions, "TableOptions")
    columns = {field.name for field in fields(options)}
    assert ({*signature(function).parameters, name} | arguments.__optional_keys__) - columns <= described


@pytest.mark.parametrize("function", [function for function, _ in FUNCTIONS])
def test_an_unknown_argument_is_refused_before_what_else_is_wrong(function):
    named = rf"^{function.__name__}\(\) got an unexpected keyword argument 'lable_column'$"
    data = ["no/model", "no.csv"] if function in (evaluate_model, calibrate_model) else ["no.csv"]
    with pytest.raises(TypeError, match=named):
        function(*data, precision=7, lable_column="y")
