"""Jobs that die, refuse, wait and are stopped. A fake recipe is started by a script that stands for the launcher."""

import fcntl
import json
import sys
import time
from types import SimpleNamespace

import psutil
import pytest
from papers.runs import launcher as launches
from papers.runs.launcher import ELSEWHERE, Job, devices_of, execute, history

# As `accelerate launch`, it starts the recipe in a process of its own, and waits for it.
LAUNCHER = """
import subprocess, sys
first = next(i for i, part in enumerate(sys.argv[1:], start=1) if part.endswith(".py"))
sys.exit(subprocess.run([sys.executable, *sys.argv[first:]]).returncode)
"""
# What it does is named by --do; "dies:2" dies in its first two starts.
RECIPE = """
import os, pathlib, signal, sys, time
options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
folder, (do, _, detail) = pathlib.Path(options["--output_dir"]), options["--do"].partition(":")
starts = len(list(folder.glob("start_*")))
(folder / f"start_{starts}").write_text(f"{os.getpid()} {os.environ.get('CUDA_VISIBLE_DEVICES')}")
print("start", starts)
if do == "refuses":
    print("recipe.py: error: loss must be a loss", file=sys.stderr)
    sys.exit(2)
if do == "dies" and starts < int(detail):
    (folder / "checkpoint-1").mkdir(exist_ok=True)
    raise RuntimeError("out of memory")
if do == "dies_talking":
    print("[rank1]: ValueError: no such label\\nElasticChildFailedError:\\n======")
    sys.exit(1)
if do == "dies_silently":
    sys.exit(9)
if do == "meets":
    while not (folder.parent / detail / "start_0").exists():
        time.sleep(0.05)
if do == "is_orphaned" and starts == 0:
    os.kill(os.getppid(), signal.SIGKILL)
    do = "hangs"
if do == "hangs":
    time.sleep(600)
(folder / "report").mkdir()
(folder / "report" / "metrics.json").write_text("{}")
"""


@pytest.fixture
def make_job(tmp_path, monkeypatch):
    (tmp_path / "launcher.py").write_text(LAUNCHER)
    (tmp_path / "recipe.py").write_text(RECIPE)
    # Not `.py`, so that the launcher does not take itself for the recipe.
    (tmp_path / "launcher.py").rename(tmp_path / "launcher")
    monkeypatch.setattr(launches, "LAUNCHER", (sys.executable, str(tmp_path / "launcher")))

    def make(name, do, **settings):
        return Job(name, tmp_path / name, tmp_path / "recipe.py", {"do": do}, settings or {"do": do})

    return make


def starts(job):
    return len(list(job.folder.glob("start_*")))


def alive(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_job_that_dies_is_run_again(make_job):
    job = make_job("a", "dies:2")
    assert job.state == "to run"
    assert execute([job], [None], attempts=3) == {}
    assert job.state == "finished"
    assert [launch["exit_code"] for launch in history(job.folder)["launches"]] == [1, 1, 0]
    assert job.log.read_text().count("RuntimeError: out of memory") == 2
    assert "start 2" in job.log.read_text()


def test_an_error_is_told_from_what_is_printed_after_it(make_job):
    job = make_job("a", "dies_talking")
    assert execute([job], [None], attempts=1) == {job: "died with exit code 1: [rank1]: ValueError: no such label"}
    job = make_job("b", "dies_silently")
    assert execute([job], [None], attempts=1) == {job: "died with exit code 9: start 0"}


def test_refused_arguments_are_not_tried_again(make_job):
    job = make_job("a", "refuses")
    assert execute([job], [None], attempts=5) == {job: "recipe.py: error: loss must be a loss"}
    assert starts(job) == 1


def test_a_job_that_died_is_not_started_again_after_the_budget(make_job, monkeypatch):
    job = make_job("a", "dies:1")
    clock = SimpleNamespace(monotonic=lambda: 1000.0 if starts(job) else 0.0, sleep=time.sleep)
    monkeypatch.setattr(launches, "time", clock)
    assert execute([job], [None], attempts=3, budget=100) == {
        job: "died with exit code 1: RuntimeError: out of memory"
    }
    assert starts(job) == 1


def test_as_many_jobs_run_at_a_time_as_there_are_devices(make_job):
    # Each waits until the other has started.
    first, second = make_job("a", "meets:b"), make_job("b", "meets:a")
    assert execute([first, second], ["0", "1"]) == {}
    devices = {(job.folder / "start_0").read_text().split()[1] for job in (first, second)}
    assert devices == {"0", "1"}


def test_a_job_that_another_process_is_at_is_left_to_it(make_job):
    first, second = make_job("a", "works"), make_job("b", "works")
    first.folder.mkdir()
    with first.log.open("ab") as log:
        fcntl.flock(log, fcntl.LOCK_EX)
        assert execute([first, second], [None]) == {first: ELSEWHERE}
    assert (starts(first), starts(second)) == (0, 1)
    assert execute([first, second], [None]) == {}


def test_whoever_stops_the_jobs_stops_what_they_started(make_job, monkeypatch):
    first, second = make_job("a", "meets:b"), make_job("b", "hangs")

    def sleep_or_stop(seconds):
        if first.state == "finished":
            raise KeyboardInterrupt
        time.sleep(seconds)

    monkeypatch.setattr(launches, "time", SimpleNamespace(monotonic=time.monotonic, sleep=sleep_or_stop))
    with pytest.raises(KeyboardInterrupt):
        execute([first, second], [None, None])
    pid = int((second.folder / "start_0").read_text().split()[0])
    for _ in range(200):
        if not alive(pid):
            break
        time.sleep(0.05)
    assert not alive(pid)
    assert second.state == "to run"
    assert [launch["exit_code"] for launch in history(second.folder)["launches"]] == [-15]


def test_what_a_dead_launcher_leaves_is_ended_before_the_next_start(make_job):
    job = make_job("a", "is_orphaned")
    assert execute([job], [None], attempts=2) == {}
    assert starts(job) == 2
    assert not alive(int((job.folder / "start_0").read_text().split()[0]))


def test_a_folder_belongs_to_one_run(make_job):
    job = make_job("a", "dies:1", epochs="15", loss="brier")
    job.check()
    execute([job], [None], attempts=1)
    job.check()
    assert json.loads((job.folder / "launches.json").read_text())["settings"] == {"epochs": "15", "loss": "brier"}
    with pytest.raises(ValueError, match=r"output_dir must hold .*, got a with epochs 15 there, 20 now"):
        make_job("a", "works", epochs="20", loss="brier").check()
    with pytest.raises(ValueError, match=r"with dropout None there, 0\.5 now"):
        make_job("a", "works", epochs="15", loss="brier", dropout="0.5").check()


# Commands and devices


def fake_gpus(monkeypatch, count, visible=None):
    monkeypatch.setattr(launches.torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(launches.torch.cuda, "device_count", lambda: count)
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)


def options_of(command):
    """What stands between the launcher and the recipe."""
    first = next(i for i, part in enumerate(command) if part.endswith(".py"))
    return command[3:first], command[first:]


def test_without_a_gpu_runs_are_launched_on_the_cpu(tmp_path, monkeypatch):
    fake_gpus(monkeypatch, 0)
    options, recipe = options_of(Job("a", tmp_path / "a", tmp_path / "r.py", {"seed": 3}, {}).command())
    assert "--cpu" in options
    assert options[options.index("--config_file") + 1] == str(tmp_path / "accelerate" / "single_gpu.yaml")
    assert options[options.index("--num_processes") + 1] == "1"
    assert recipe == [str(tmp_path / "r.py"), "--seed", "3", "--output_dir", str(tmp_path / "a")]
    assert devices_of(None, 1) == [None]
    assert devices_of(3, 1) == [None] * 3
    with pytest.raises(ValueError, match="processes_per_run must be 1 without a GPU, got 2"):
        devices_of(None, 2)


def test_gpus_are_shared_out(tmp_path, monkeypatch):
    fake_gpus(monkeypatch, 5)
    assert devices_of(None, 1) == ["0", "1", "2", "3", "4"]
    assert devices_of(2, 1) == ["0", "1"]
    assert devices_of(None, 2) == ["0,1", "2,3"]
    for jobs, processes in ((6, 1), (3, 2), (None, 8)):
        with pytest.raises(ValueError, match="must need at most 5, got"):
            devices_of(jobs, processes)
    options, _ = options_of(Job("a", tmp_path, tmp_path / "r.py", {}, {}, num_processes=2).command())
    assert "--cpu" not in options
    assert options[options.index("--config_file") + 1] == str(tmp_path / "accelerate" / "multi_gpu.yaml")
    assert options[options.index("--num_processes") + 1] == "2"


def test_a_job_that_goes_on_dying_is_left_and_the_others_are_run(make_job):
    first, second = make_job("a", "dies:9"), make_job("b", "works")
    problems = execute([first, second], [None], attempts=2)
    assert problems == {first: "died with exit code 1: RuntimeError: out of memory"}
    assert (starts(first), starts(second)) == (2, 1)
    assert first.state == "to resume"


def test_what_died_is_run_by_the_next_call_and_what_is_finished_is_not(make_job):
    first, second = make_job("a", "dies:1"), make_job("b", "works")
    assert list(execute([first, second], [None], attempts=1)) == [first]
    assert execute([first, second], [None], attempts=1) == {}
    assert (starts(first), starts(second)) == (2, 1)
    assert [launch["exit_code"] for launch in history(first.folder)["launches"]] == [1, 0]
