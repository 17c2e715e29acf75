"""The types of arguments on command lines."""

import argparse

import pytest

from hf_focal import InputError
from hf_focal.cli.parsing import (
    label_map,
    label_pair,
    numbers,
    prompt_or_file,
    refuse_arguments,
    underscored,
    with_line_breaks,
)


def test_options_may_have_hyphens():
    assert underscored("--text-column=a-b") == "--text_column=a-b"
    assert underscored("--text-column") == "--text_column"
    assert underscored("a-b") == "a-b"


def test_prompts_have_line_breaks_but_files_keep_their_names(tmp_path):
    file = tmp_path / r"a\name"
    file.write_text("a prompt")
    assert prompt_or_file(r"Text: {text}\nLabel:") == "Text: {text}\nLabel:"
    assert prompt_or_file(str(file)) == str(file)
    assert prompt_or_file(r"@prompts\new.txt") == r"@prompts\new.txt"
    assert with_line_breaks(r"@user: {question}\nA:") == "@user: {question}\nA:"


def test_pairs_and_numbers():
    assert label_pair("pos=positive=yes") == ("pos", "positive=yes")
    assert label_map([("pos", "positive"), ("neg", "negative")]) == {"pos": "positive", "neg": "negative"}
    with pytest.raises(InputError, match="label_map must map each label of the data once, got 'a=b a=c'"):
        label_map([("a", "b"), ("a", "c")])
    assert numbers("0.2,0.8") == (0.2, 0.8)
    with pytest.raises(argparse.ArgumentTypeError, match="must hold DATA=MODEL, got 'pos'"):
        label_pair("pos")
    with pytest.raises(argparse.ArgumentTypeError, match="must be a number, or several"):
        numbers("0.2,a")


def test_refused_arguments_are_one_line(capsys):
    with pytest.raises(SystemExit, match="2"):
        refuse_arguments("apply", "with --onnx, scores must not be given")
    expected = "hf-focal apply: error: with --onnx, scores must not be given (see hf-focal apply --help)\n"
    assert capsys.readouterr().err == expected
