"""The types of arguments on command lines."""

import argparse

import pytest

from hf_focal.cli.parsing import label_pair, numbers, refuse_arguments, text_with_line_breaks, underscored


def test_options_may_have_hyphens():
    assert underscored("--text-column=a-b") == "--text_column=a-b"
    assert underscored("--text-column") == "--text_column"
    assert underscored("a-b") == "a-b"


def test_prompts_have_line_breaks_but_files_keep_their_names(tmp_path):
    file = tmp_path / r"a\name"
    file.write_text("a prompt")
    assert text_with_line_breaks(r"Text: {text}\nLabel:") == "Text: {text}\nLabel:"
    assert text_with_line_breaks(str(file)) == str(file)
    assert text_with_line_breaks(r"@prompts\new.txt") == r"@prompts\new.txt"


def test_pairs_and_numbers():
    assert label_pair("pos=positive=yes") == ("pos", "positive=yes")
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
