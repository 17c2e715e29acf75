"""The commands that results advise parse, and name the user's own files."""

import dataclasses
import re
import shlex

import numpy as np
import pandas as pd
import pytest
import torch
from test_text_summary import DETAILS, result_of

from hf_focal import CalibrationMetrics
from hf_focal.cli.main import command_parser, main
from hf_focal.command_lines import CommandLine, RunCommands, names_held_out_data
from hf_focal.reports import RunResult
from hf_focal.reports.results.result_sections import Labels
from hf_focal.reports.wording.model_warnings import warnings_of
from hf_focal.reports.wording.next_steps import next_steps, steps_after_training, threshold_command
from hf_focal.reports.wording.verdicts import verdict

GIVEN = {"model": "my models/bert", "dataset": "my data/held out.csv", "text_column": "post", "label_map": {"a": "b"}}


def evaluated(**details):
    result = result_of(5.0, **details)
    unfitted = dataclasses.replace(result.temperature, objective="none")
    return dataclasses.replace(result, temperature=unfitted, post={}, pre_intervals={"ece": (0.1, 0.2)})


def steps_of(result, given=None, **options) -> list[str]:
    """The next steps as a console shows them; `given` are the arguments of the run."""
    name = "evaluate" if result.fit.fitted_on is None else "calibrate"
    run = None if given is None else RunCommands(name, given)
    return [str(step) for step in next_steps(result, run, **options)]


def commands(steps: list[str]) -> list[dict]:
    """The arguments of the `hf-focal` commands in some steps, as the command itself reads them."""
    internal = ("to_run",)
    found = re.findall("`(hf-focal .*?)`", " ".join(steps))
    parsed = [vars(command_parser().parse_args(shlex.split(line)[1:])) for line in found]
    return [{name: value for name, value in arguments.items() if name not in internal} for arguments in parsed]


def test_after_measuring_the_measured_file_is_the_test_file():
    given = GIVEN | {"dataset": "data/test.csv", "output": "measured", "num_bins": 10}
    (command,) = commands(steps_of(evaluated(), given))
    assert command == {
        **{"command": "calibrate", "model": "my models/bert", "dataset": "held_out.csv"},
        **{"test_dataset": "data/test.csv", "text_column": "post", "label_map": [("a", "b")], "num_bins": 10},
        "output": "calibrated",
    }


def test_the_next_command_writes_no_file_again():
    result = result_of(5.0, fitted_on="held_out.csv")
    for saved, again in (("scores.parquet", None), ("scores", "scores")):
        found = commands(steps_of(result, GIVEN | {"output": "out", "save_scores": saved}))
        assert found and all(command.get("save_scores") == again for command in found)
        assert all(command["output"] != "out" for command in found)


@pytest.mark.parametrize(
    ("given", "data"),
    [
        ({"dataset": "org/data"}, ("org/data", "test")),
        ({"dataset": "org/data", "split": "dev"}, ("org/data", "dev")),
        ({"dataset": "glue:sst2:validation"}, ("glue:sst2", "validation")),
    ],
)
def test_datasets_with_splits(given, data):
    (command,) = commands(steps_of(evaluated(), {"model": "m"} | given))
    assert (command["dataset"], command["test_split"]) == data and "test_dataset" not in command


def test_scores_need_another_file():
    given = {"scores": "june.csv", "reference": "may.csv", "score_column": "p", "group": "month"}
    (command,) = commands(steps_of(evaluated(task="scores", measured_on="june.csv"), given))
    assert command == {
        **{"command": "calibrate", "scores": "held_out.csv", "test_scores": "june.csv"},
        **{"score_column": "p", "group": "month", "output": "calibrated"},
    }


def test_a_corrected_model_is_loaded_from_its_folder_and_a_threshold_gets_another():
    result = result_of(1.0, fitted_on="dataset 'other.csv'")
    better = dataclasses.replace(result, post={key: value / 2 for key, value in result.pre.items()})
    given = GIVEN | {"test_dataset": "test.csv", "output": "calibrated"}
    steps = steps_of(better, given)
    assert "pipeline('text-classification', model='calibrated')" in steps[0]
    assert "hf upload USER/calibrated calibrated" in steps[1]
    (command,) = commands(steps)
    assert command["precision"] == 0.9 and command["dataset"] == given["dataset"] and command["output"] != "calibrated"
    # Without a folder, the same command with one saves the model.
    first, _ = commands(steps_of(better, GIVEN | {"test_dataset": "test.csv"}))
    assert first["output"] and first["test_dataset"] == "test.csv" and "precision" not in first


def test_a_head_that_no_pipeline_loads_is_loaded_by_its_own_class():
    own = {"auto_class": "AutoModelForNextSentencePrediction"}
    result = result_of(1.0, fitted_on="dataset 'other.csv'", **own)
    better = dataclasses.replace(result, post={key: value / 2 for key, value in result.pre.items()})
    steps = steps_of(better, GIVEN | {"test_dataset": "test.csv", "output": "calibrated"})
    assert "AutoModelForNextSentencePrediction.from_pretrained('calibrated')" in steps[0]
    assert not any("pipeline(" in step for step in steps)


def test_a_page_knows_only_what_the_result_holds():
    details = {"fitted_on": "split 'dev' of dataset 'org/d'", "measured_on": "split 'test' of test_dataset 'org/d'"}
    result = result_of(5.0, **details, options={"text_pair_column": "b"})
    (command,) = commands(steps_of(result, folder="calibrated"))
    assert command == {
        **{"command": "calibrate", "model": "m", "dataset": "org/d", "split": "dev", "test_dataset": "org/d"},
        **{"test_split": "test", "text_pair_column": "b", "output": "calibrated_2", "precision": 0.9},
    }


def test_the_folder_of_a_command_is_neither_the_models_nor_the_results():
    (command,) = commands(steps_of(evaluated(), GIVEN | {"model": "./calibrated", "dataset": "test.csv"}))
    assert command["output"] == "calibrated_2"
    given = GIVEN | {"model": "calibrated", "test_dataset": "test.csv", "output": "calibrated_2"}
    (command,) = commands(steps_of(result_of(1.0, fitted_on="dataset 'other.csv'"), given))
    assert command["output"] == "calibrated_3"


def test_a_correction_that_lowers_only_the_nll_is_used():
    result = result_of(1.0, fitted_on="dataset 'other.csv'")
    result = dataclasses.replace(result, post=result.pre | {"nll": result.pre["nll"] / 2})
    assert "pipeline(" in steps_of(result, GIVEN | {"output": "out"})[0]
    worse = dataclasses.replace(result, post=result.pre | {"ece": result.pre["ece"] / 2})
    assert "without this correction" in steps_of(worse, GIVEN | {"output": "out"})[0]


@pytest.mark.parametrize(("link", "goal"), [("sigmoid", "recall"), ("softmax", None)])
def test_after_a_prior_shift_no_precision_is_advised(link, goal):
    shift = {"names": ["spam"], "train_prior": [0.4], "new_prior": [0.2], "estimated_on": None}
    result = result_of(1.0, fitted_on="dataset 'other.csv'", prior_shift=shift)
    if link == "sigmoid":
        result = dataclasses.replace(result, link=link)
    worse = dataclasses.replace(result, post=result.pre | {"nll": result.pre["nll"] * 2})
    steps = steps_of(worse, GIVEN | {"output": "out", "new_prior": 0.2})
    assert "pipeline(" in steps[0]  # on data with the old shares, a shift must raise the NLL
    assert [found for command in commands(steps) for found in command if found in ("precision", "recall")] == (
        [goal] if goal else []
    )
    recorded = [command for command in commands(steps_of(worse)) if command["command"] == "calibrate"]
    assert [command["new_prior"] for command in recorded] == [(0.2,)] * len(recorded)


def rare(is_one_logit, positives_are_rare=True, **details):
    """A result of a model that ranks a class of 5% of the samples, but never predicts it; its logits and labels."""
    random = torch.Generator().manual_seed(0)
    labels = (torch.rand(4000, generator=random) < 0.05).long()
    z = labels + torch.randn(4000, generator=random) - 6
    if not positives_are_rare:
        labels, z = 1 - labels, -z
    logits = z[:, None] if is_one_logit else torch.stack([torch.zeros_like(z), z], 1)
    metrics = CalibrationMetrics(link="sigmoid" if is_one_logit else "softmax")
    metrics.update(logits, labels[:, None] if is_one_logit else labels)
    return RunResult.from_metrics("m", None, metrics, None, details=DETAILS | details), logits, labels[:, None]


@pytest.mark.parametrize("informative", [True, False])
def test_rare_labels_that_a_model_ranks_get_thresholds(informative):
    random = torch.Generator().manual_seed(0)
    labels = (torch.rand(2000, 4, generator=random) < 0.07).float()
    metrics = CalibrationMetrics(link="sigmoid")
    metrics.update(informative * labels + torch.randn(2000, 4, generator=random) - 6, labels)
    result = RunResult.from_metrics("m", None, metrics, None, details=DETAILS)
    first = steps_of(result, GIVEN | {"dataset": "data/test.csv"})[0]
    (warning,) = [text for text in warnings_of(result) if "not shown to be right" in text]
    assert ("so its ranking is useful: choose a threshold" in warning) == informative
    if informative:
        (command,) = commands([first])
        assert command["command"] == "calibrate" and command["recall"] == 0.8 and "rare labels" in first
    else:
        assert first.startswith("look at the model before its calibration")


@pytest.mark.parametrize("fitted_on", [None, "dataset 'other.csv'"])
def test_the_threshold_of_a_rare_positive_class_has_a_command(fitted_on):
    result, _, _ = rare(True, fitted_on=fitted_on)
    first = steps_of(result, GIVEN | {"dataset": "data/test.csv"})[0]
    (command,) = commands([first])
    assert command["command"] == "calibrate" and command["recall"] == 0.8 and "--precision 0.9" in first
    assert command["model"] == "my models/bert" and command["text_column"] == "post" and command["output"]
    assert command["dataset" if fitted_on else "test_dataset"] == "data/test.csv"


@pytest.mark.parametrize(("is_one_logit", "positives_are_rare"), [(False, True), (False, False), (True, False)])
def test_the_threshold_of_another_rare_class_has_a_command_for_its_probability(
    is_one_logit, positives_are_rare, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    result, logits, labels = rare(is_one_logit, positives_are_rare)
    first = steps_of(result, GIVEN | {"dataset": "data/test.csv"})[0]
    p = logits.sigmoid() if is_one_logit else logits.softmax(1)[:, [1]]
    p, y = (p, labels) if positives_are_rare else (1 - p, 1 - labels)
    pd.DataFrame({"p": p[:, 0].double(), "label": y[:, 0]}).to_csv("held_out.csv", index=False)
    (found,) = re.findall("`(hf-focal .*?)`", first)
    assert main(shlex.split(found)[1:]) == 0
    (threshold,) = RunResult.load("calibrated/report/metrics.json").thresholds.labels
    assert threshold.recall >= 0.8 and threshold.value < 0.5


def table(kind, size=400, sharpness=3.0, seed=0):
    """Scores with ugly names, and the arguments that name them."""
    rng = np.random.default_rng(seed)
    logits = 4 * rng.normal(size=(size, 3))
    if kind == "classes":
        labels = np.array(["a", "b", "c"])[(logits + rng.gumbel(size=logits.shape)).argmax(1)]
        columns = {f"-{name} it's": sharpness * logits[:, number] for number, name in enumerate("abc")}
        options = ["--score_column=-* it's", "--kind", "logits", "--label_column", "The $Verdict"]
        return pd.DataFrame(columns | {"The $Verdict": labels}), options
    ones = (rng.random(logits.shape) < 1 / (1 + np.exp(-logits))).astype(int)
    if kind == "yes or no":
        columns = {"My P": 1 / (1 + np.exp(-sharpness * logits[:, 0])), "said yes": ones[:, 0]}
        options = ["--score_column", "My P", "--kind", "probabilities", "--label_column", "said yes"]
        return pd.DataFrame(columns), [*options, "--classes", "no,yes"]
    columns = {f"logit_{name}": sharpness * logits[:, number] for number, name in enumerate("abc")}
    return pd.DataFrame(columns | {f"label_{name}": ones[:, number] for number, name in enumerate("abc")}), []


def write_scores(path, seed):
    """Overconfident scores of three classes in the format that the name says."""
    rng = np.random.default_rng(seed)
    logits = 4 * rng.normal(size=(400, 3))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(1)
    if path.suffix == ".npz":
        np.savez(path, logits=3 * logits, labels=labels)
        return
    rows = pd.DataFrame({"logits": (3 * logits).tolist(), "label": labels})
    if path.suffix == ".parquet":
        rows.to_parquet(path)
    else:
        rows.to_json(path, orient="records", lines=path.suffix == ".jsonl")


@pytest.mark.parametrize(
    ("suffix", "written"), [(".npz", ".jsonl"), (".json", ".jsonl"), (".jsonl", ".jsonl"), (".parquet", ".parquet")]
)
def test_commands_name_files_in_the_format_of_the_users_own(suffix, written, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for seed, name in enumerate(("mine", "held_out", "test", "new")):
        write_scores(tmp_path / f"{name}{suffix}", seed)

    def run(*words):
        assert main([*words]) == 0
        printed = capsys.readouterr().out
        return [shlex.split(found)[1:] for found in re.findall("`(hf-focal .*?)`", printed)]

    (calibrating,) = run("evaluate", "--scores", f"mine{suffix}")
    assert calibrating[:5] == ["calibrate", "--scores", f"held_out{suffix}", "--test_scores", f"mine{suffix}"]
    testing, _ = run("calibrate", "--scores", f"mine{suffix}", "--output", "out")
    assert testing[-2:] == ["--test_scores", f"test{suffix}"]
    applying, _ = run(*testing)
    assert applying == ["apply", "out_2/correction.json", f"new{suffix}", "--output", f"corrected{written}"]
    assert run(*applying) == [] and (tmp_path / f"corrected{written}").is_file()
    card = (tmp_path / "out_2" / "README.md").read_text(encoding="utf-8")
    assert f"hf-focal apply correction.json scores{suffix} --output calibrated{written}\n" in card


def test_files_of_a_folder_have_the_format_of_those_to_come(tmp_path):
    write_scores(tmp_path / "part.parquet", 0)
    (command,) = commands(steps_of(evaluated(task="scores"), {"scores": str(tmp_path)}))
    assert command["scores"] == "held_out.parquet"


@pytest.mark.parametrize("kind", ["classes", "yes or no", "labels"])
def test_commands_for_tables_run_as_they_are_printed(kind, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for seed, name in enumerate(("my scores.csv", "held_out.csv", "new.csv")):
        table(kind, seed=seed)[0].to_csv(name, index=False)
    options = table(kind)[1]

    def run(*words):
        assert main([*words]) == 0
        steps = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Next: ")]
        return steps, [shlex.split(found)[1:] for found in re.findall("`(hf-focal .*?)`", " ".join(steps))]

    steps, (calibrating,) = run("evaluate", "--scores", "my scores.csv", *options, "--num_bins", "10")
    assert calibrating[:5] == ["calibrate", "--scores", "held_out.csv", "--test_scores", "my scores.csv"]
    assert "add this to the calibrate command above: `--precision 0.9`" in steps[-1]
    assert ("--cost 1,5" in steps[-1]) == (kind != "classes")
    steps, (applying, choosing) = run(*calibrating)
    assert applying[:3] == ["apply", "calibrated/correction.json", "new.csv"]
    run(*applying)
    assert choosing[choosing.index("--output") + 1] == "calibrated_2" and "--num_bins" in choosing
    steps, _ = run(*choosing)
    assert "calibrated probabilities and decisions" in steps[0]
    if kind != "classes":
        without = choosing[: choosing.index("--precision")]
        without[without.index("--output") + 1] = "mine"
        _, (applying,) = run(*without, "--cost", "1,5")
        assert applying[1] == "mine/correction.json"
        again, (lower, applying) = run(*without[:-1], "other", "--precision", "0.999")
        assert "ask for a precision that these data can show" in again[0] and "decisions" not in again[1]
        assert lower[lower.index("--output") + 1] == "other_2"
        steps, _ = run(*lower)
        assert "decisions" in steps[0]


def test_a_new_folder_is_named_after_the_users_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = result_of(1.0, fitted_on="dataset 'other.csv'")
    given = GIVEN | {"test_dataset": "test.csv", "output": "my out/"}
    (command,) = [found for found in commands(steps_of(result, given)) if "precision" in found]
    assert command["output"] == "my out_2"
    (tmp_path / "my out_2").mkdir()
    (command,) = [found for found in commands(steps_of(result, given)) if "precision" in found]
    assert command["output"] == "my out_3"


def test_costs_and_prompts_are_repeated_as_they_were_typed():
    given = GIVEN | {"prompt": "Review: {text}\nIt is", "labels": "a,b", "cost": (1.0, 0.5), "dataset": "test.csv"}
    steps = " ".join(steps_of(evaluated(), given))
    assert "--cost 1,0.5" in steps and "'Review: {text}\\nIt is'" in steps
    (command,) = commands([steps])
    assert command["prompt"] == given["prompt"] and command["cost"] == given["cost"]


def test_too_few_samples_are_not_called_calibrated(capsys, tmp_path):
    table("yes or no", size=20, sharpness=1.0)[0].to_csv(tmp_path / "s.csv", index=False)
    arguments = ["calibrate", "--scores", str(tmp_path / "s.csv"), *table("yes or no")[1]]
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert (
        "20 samples are too few to tell whether it is calibrated" in printed and "calibrated as it is" not in printed
    )
    assert "Next: fit a correction to at least 50 samples" in printed


@pytest.mark.parametrize("provable", [0.57, 0.579, None])
@pytest.mark.parametrize("no_costs_least", [False, True])
def test_without_a_threshold_the_fields_and_no_words_say_what_to_do(provable, no_costs_least):
    outcome = {"provable_precision": provable, "no_costs_least": no_costs_least}
    labels = [{"name": "cost", "value": None, "reason": "a cost", "precision": None, "recall": None} | outcome]
    section = {"for": "a goal", "conditions": "", "link": "sigmoid", "chosen_on": "d", "labels": labels}
    (step,) = [step for step in steps_of(evaluated(thresholds=section), GIVEN) if "threshold" in step]
    if provable:
        assert "ask for a precision that these data can show" in step and "--precision 0.57 " in step.replace("`", " ")
    else:
        assert ("at these costs, no threshold is better than always no" in step) == no_costs_least


def test_no_precision_below_the_share_of_positives_is_advised():
    labels = [{"name": "a", "value": None, "reason": "few", "precision": None, "recall": None}]
    labels[0] |= {"provable_precision": 0.1, "no_costs_least": False}
    section = {"for": "a goal", "conditions": "", "link": "sigmoid", "chosen_on": "d", "labels": labels}
    result = evaluated(thresholds=section)
    result = dataclasses.replace(result, link="sigmoid")
    (step,) = [step for step in steps_of(result, GIVEN) if "threshold" in step]
    assert "no precision above the" in step and "--precision 0.1" not in step


@pytest.mark.parametrize(
    ("provable", "costs", "step"),
    [
        ((0.876, 0.801), False, "for the 2 labels without a threshold, ask for a precision .* --precision 0.8 "),
        ((0.876, 0.2), False, "for 1 of the 2 labels without a threshold, ask for a precision .* --precision 0.87 "),
        (
            (0.2, None),
            False,
            "for the 2 labels .*, choose it on more labeled data, here held_out.csv: .* --precision 0.9",
        ),
        ((None, None), True, None),
    ],
)
def test_labels_without_a_threshold_beside_others_get_a_step(provable, costs, step):
    labels = [{"name": "a", "value": 0.9, "reason": None, "precision": 0.9, "recall": 0.5}]
    labels += [
        {"name": name, "value": None, "reason": "few", "precision": None, "recall": None}
        | {"provable_precision": shown, "no_costs_least": costs}
        for name, shown in zip("bc", provable, strict=True)
    ]
    section = {"for": "precision >= 90%", "conditions": "", "link": "sigmoid", "chosen_on": "d", "labels": labels}
    result = evaluated(thresholds=section)
    columns = {name: [0.4] * 3 for name in ("frequency", "f1", "before", "after", "temperature")}
    subsets = dataclasses.replace(result.subsets, classes=None, labels=Labels(name=[*"abc"], **columns))
    result = dataclasses.replace(result, link="sigmoid", subsets=subsets)
    given = {"precision": 0.9, "dataset": "data/mine.csv"}
    found = [text.replace("`", " ") for text in steps_of(result, GIVEN | given) if "without a threshold" in text]
    assert len(found) == (step is not None) and all(re.match(step, text) for text in found)


def test_without_a_threshold_for_f1_the_command_asks_for_it_on_other_data():
    labels = [{"name": "a", "value": None, "reason": "no positives", "precision": None, "recall": None}]
    section = {"for": "the largest F1", "conditions": "", "link": "sigmoid", "chosen_on": "d", "labels": labels}
    result = result_of(1.0, fitted_on="dataset 'other.csv'", thresholds=section)
    (step,) = [step for step in steps_of(result, GIVEN | {"f1": True, "split": "dev"}) if "no threshold" in step]
    (command,) = commands([step])
    assert command["f1"] and command["dataset"] == "held_out.csv" and "split" not in command


def test_thresholds_of_a_model_and_of_a_served_graph_are_said():
    labels = [{"name": "a", "value": 0.4, "reason": "", "precision": 0.9, "recall": 0.5}]
    thresholds = {"for": "precision >= 90%", "conditions": "", "link": "softmax", "chosen_on": "d", "labels": labels}
    result = result_of(1.0, fitted_on="dataset 'other.csv'", thresholds=thresholds)
    better = dataclasses.replace(result, post={key: value / 2 for key, value in result.pre.items()})
    given = GIVEN | {"test_dataset": "test.csv", "output": "out"}
    load, decide, *_ = steps_of(better, given)
    assert "pipeline('text-classification', model='out')" in load
    assert "`hf_focal.apply_thresholds(classifier(inputs, top_k=None), classifier.model.config)`" in decide
    serve = steps_of(better, given | {"onnx": "model.onnx"})[0]
    assert serve == (
        "serve `out/model.onnx`, whose logits are corrected: their softmax has the probabilities; the thresholds of "
        "these are in `out/config.json`"
    )


def test_a_trained_model_is_loaded_published_and_compared(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = result_of(1.0)
    loading, publishing = map(str, steps_after_training(result, "out/flsd53", published=False))
    assert "`out/flsd53/README.md`" in loading
    training = "--exclude 'checkpoint-*' --exclude training_args.bin --exclude trainer_state.json"
    assert f"hf upload USER/flsd53 out/flsd53 . --exclude report.html {training}`" in publishing
    assert [*map(str, steps_after_training(result, "out/flsd53", published=True))] == [loading]
    for name in ("flsd53", "brier"):
        result_of(1.0).save(_new_report(tmp_path / "out" / name))
    *_, comparing = map(str, steps_after_training(result, "out/flsd53", published=True))
    assert "`hf-focal report out --output comparison.html`" in comparing
    assert main(["report", "out", "--output", "comparison.html"]) == 0
    result_of(1.0, task="image-classification").save(_new_report(tmp_path / "out" / "another"))
    *_, comparing = map(str, steps_after_training(result, "out/flsd53", published=True))
    assert "`hf-focal report out/brier out/flsd53 --output comparison.html`" in comparing


def _new_report(folder):
    (folder / "report").mkdir(parents=True)
    return folder / "report" / "metrics.json"


@pytest.mark.parametrize(
    ("task", "error", "chance", "warned"),
    [
        ("multiple-choice", 0.74, 0.75, "guessing among the options: an error of 74.0% against 75.0%"),
        ("multiple-choice", 0.6, 0.75, ""),
        ("seq2seq-lm", 1.0, None, " is wrong about 100.0% of the tokens, so its probabilities say next to nothing"),
        ("seq2seq-lm", 0.9, None, ""),
    ],
)
def test_a_model_that_knows_nothing_is_not_published(task, error, chance, warned):
    result = result_of(5.0, fitted_on="dataset 'other.csv'", task=task, chance_error=chance)
    pre = result.pre | {"error": error, "accuracy": 1 - error, "num_samples": 500.0}
    subsets = dataclasses.replace(result.subsets, class_balance=None, class_changes=None)
    post = pre | {"ece": pre["ece"] / 3, "nll": pre["nll"] / 2}
    result = dataclasses.replace(result, pre=pre, post=post, subsets=subsets, pre_intervals={}, post_intervals={})
    told, steps = warnings_of(result), steps_of(result, GIVEN | {"test_dataset": "test.csv", "output": "out"})
    assert any("hf upload" in step for step in steps) == (not warned)
    assert ("improves the calibration" in " ".join(verdict(result))) == (not warned)
    if warned:
        assert warned in told[0] and steps[0].startswith("look at the model before its calibration")
    else:
        assert not told


def test_names_with_backquotes_are_whole_in_one_command():
    given = {"scores": "a`b.csv", "score_column": "`p`"}
    (step, *_) = next_steps(evaluated(task="scores"), RunCommands("evaluate", given))
    (command,) = step.commands
    text, shown, note = step.parts
    assert (text, shown) == ("fit a correction: ", command) and note.startswith(", where held_out.csv")
    words = shlex.split(str(command))
    assert words[words.index("--test_scores") + 1] == "a`b.csv" and words[words.index("--score_column") + 1] == "`p`"


@pytest.mark.parametrize("given", [{"scores": "held_out.csv"}, {"model": "m", "dataset": "held_out.csv"}])
def test_only_a_file_that_stands_for_others_is_explained(given):
    result = evaluated(task="scores" if "scores" in given else "text-classification")
    _, choosing = threshold_command(result, RunCommands("evaluate", given))
    assert names_held_out_data(choosing) and "--coverage GOAL" in str(choosing)
    fitted = result_of(1.0, fitted_on="dataset 'held_out.csv'")
    _, choosing = threshold_command(fitted, RunCommands("calibrate", given))
    assert not names_held_out_data(choosing)  # the user's own file


def test_a_command_extends_one_with_fewer_arguments():
    first = CommandLine("calibrate", {"scores": "a.csv", "output": "out"})
    assert CommandLine("calibrate", {**first.arguments, "recall": 0.8}).extends(first) and first.extends(first)
    assert not CommandLine("evaluate", first.arguments).extends(first)
    assert not CommandLine("calibrate", {"scores": "a.csv", "group": "g", "output": "out"}).extends(first)
