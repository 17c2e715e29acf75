"""What the benchmarks share: times in turn, and files of figures with several parts."""

import json
import time

from benchmarks.common.figures import add_part, parse_options, script_options
from benchmarks.common.timing import times_in_turn


def counting(calls, name, seconds=0.0):
    def run():
        calls.append(name)
        if seconds:
            end = time.perf_counter() + seconds
            while time.perf_counter() < end:
                pass

    return run


def test_runs_take_turns_after_a_warm_up():
    calls = []
    times = times_in_turn({name: counting(calls, name) for name in "ab"}, 3)
    assert "".join(calls) == "ab" + "ab" * 3
    assert {name: (len(of.wall), len(of.cpu)) for name, of in times.items()} == {"a": (3, 3), "b": (3, 3)}
    calls.clear()
    times_in_turn({"a": counting(calls, "a")}, 2, warm_up=False)
    assert calls == ["a", "a"]


def test_a_short_run_is_repeated_and_a_long_one_has_fewer_rounds():
    calls = []
    runs = {"short": counting(calls, "short", 1e-3), "long": counting(calls, "long", 0.03)}
    times = times_in_turn(runs, 4, repeat=True, budget=0.05)
    assert 0.9e-3 < times["short"].milliseconds / 1e3 < 0.03 <= times["long"].milliseconds / 1e3
    assert calls.count("short") > calls.count("long") >= 3
    assert len(times["long"].wall) == 2  # after two rounds, 0.06 s are over


def test_a_part_of_a_file_is_replaced_and_the_others_stay(tmp_path):
    file = tmp_path / "figures.json"
    for name, part in (("a", 1), ("b", 2), ("a", 3)):
        add_part(file, name, part)
    assert json.loads(file.read_text(encoding="utf-8")) == {"a": 3, "b": 2}


def test_scripts_have_the_same_options(monkeypatch):
    monkeypatch.setattr("sys.argv", ["script", "--json", "figures.json", "--rounds", "2"])
    options = parse_options(script_options("What it measures.", rounds=5))
    assert (options.json.name, options.rounds, options.threads) == ("figures.json", 2, None)
