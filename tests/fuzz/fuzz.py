"""Attack the commands and a recipe with broken files and hostile names: nothing may end in a traceback.

    python tests/fuzz/fuzz.py --minutes 15     # `make fuzz`
    python tests/fuzz/fuzz.py --seed 1234      # one attack again, with its traceback

Every attack follows from its seed. It fails with any exception, with an exit code that was not expected, or where it
takes too long or crashes the process.
"""

import argparse
import contextlib
import faulthandler
import io
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest import mock

SCRATCH = Path(tempfile.mkdtemp(prefix="fuzz-", dir=os.environ.get("FUZZ_FOLDER")))
os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_CACHE": str(SCRATCH / "cache")}
ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "helpers"), str(ROOT / "recipes")]

import pandas  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
import yaml  # noqa: E402
from huggingface_hub import ModelCard  # noqa: E402
from papers import text_classification  # noqa: E402
from papers.figures.ood_report import write_detection_report  # noqa: E402
from papers.metrics.ood_metrics import DetectionResult, detection_by_score  # noqa: E402
from trained_models import build  # noqa: E402

from hf_focal import fit_temperature  # noqa: E402
from hf_focal.cli import main as cli  # noqa: E402
from hf_focal.hub import CardData, CardModel, Training, model_card  # noqa: E402
from hf_focal.reports import RunResult, write_report  # noqa: E402
from hf_focal.utils.folder_lock import unlock_all  # noqa: E402

SECONDS = 120  # that an attack may take
NAMES = ["m|x", "<script>alert(1)</script>", "a\nb", "`x`", r"a$\frac$b", "[name]", "x.yaml", "é☃ 漢", "{a: b}"]
NAMES += ["'\"", "$HOME", "- x", "...", "#", "null", "%s {0}", "\u202eabc", "focal:gamma=x", "name: [", "**x**", " x "]
# A file's name, and that of another which the first is a pattern of.
PATTERNS = [("train[1].csv", "train1.csv"), ("q?.csv", "qq.csv"), ("$HOME.csv", None), ("*.csv", "other.csv")]
PATTERNS += [("{a,b}.csv", "a.csv"), ("~.csv", None), ("a::b.csv", None), ("hf:x.csv", None), ("UPPER.CSV", None)]
PATTERNS += [("a b#c%20.csv", None), ("**.csv", "z.csv"), ("x[!y].csv", "xz.csv")]
VALUES: list[Any] = [
    None,
    True,
    False,
    -1,
    0,
    1,
    2.5,
    float("nan"),
    float("inf"),
    257,
    "",
    "x",
    "0.5",
    "[",
    "a|b\n<c>",
]
VALUES += [[], {}, [None], [1, 2], [[]], {"a": 1}, {"0": None}, "é", "\u0000"]


def mutated(value: Any, random: random.Random) -> Any:
    """The JSON value with one part of it replaced, left out or repeated."""
    if random.random() < 0.15 or not isinstance(value, dict | list) or not value:
        return random.choice(VALUES)
    if isinstance(value, dict):
        key = random.choice(sorted(value))
        if random.random() < 0.15:
            return {name: item for name, item in value.items() if name != key}
        return value | {random.choice([key] * 9 + ["new"]): mutated(value[key], random)}
    place = random.randrange(len(value))
    if random.random() < 0.15:
        return value[:place] + value[place + 1 :] * random.randrange(3)
    return [*value[:place], mutated(value[place], random), *value[place + 1 :]]


def damage(path: Path, random: random.Random) -> str:
    """Change a JSON or YAML file, or cut any file off; what was done."""
    data = path.read_bytes()
    kind = random.choice(["mutate"] * 6 + ["cut", "flip", "replace"])
    if kind == "mutate" and path.suffix in (".json", ".yaml"):
        value = mutated(yaml.safe_load(data) if path.suffix == ".yaml" else json.loads(data), random)
        path.write_text(yaml.safe_dump(value) if path.suffix == ".yaml" else json.dumps(value), encoding="utf-8")
        return f"{path.name} mutated"
    if kind == "flip" and data:
        place = random.randrange(len(data))
        path.write_bytes(data[:place] + bytes([random.randrange(256)]) + data[place + 1 :])
    elif kind == "replace":
        path.write_bytes(random.choice([b"", b"null", b"[]", b"3", b'"x"', b"\xff\xfe", b"{", b"\x80\x04."]))
    else:
        path.write_bytes(data[: random.randrange(max(1, len(data)))])
    return f"{path.name}: {kind}"


class Fuzz:
    """What the attacks start from: a tiny model and its data, the folder of a run, and reports."""

    def __init__(self) -> None:
        self.trained = build("texts", SCRATCH / "given")
        self.rows = ["--dataset", str(self.trained.validation), *self.trained.arguments, "--max_samples", "20"]
        labels = torch.arange(40) % 4
        logits = 3.0 * torch.nn.functional.one_hot(labels, 4) + torch.linspace(0, 1, 4)
        noisy = logits + torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
        self.result = RunResult.measure("focal:gamma=3", fit_temperature(noisy, labels, "ece"), noisy, labels)
        side = {"ece": 0.1, "accuracy": 0.5, "error": 0.5, "nll": 0.7}
        entry = {"pre": side, "post": side}
        shift = {"noise": [entry | {"severity": 0}, entry | {"severity": 1}]}
        detection = detection_by_score(logits, {"other": logits.roll(1, 0)}, 1.5)
        self.ood = DetectionResult("brier", 1.5, detection, shift, in_distribution=entry)
        write_report(SCRATCH / "run" / "report", self.result)
        write_detection_report(SCRATCH / "run" / "report", [self.ood])
        shutil.copytree(self.trained.folder, SCRATCH / "model")
        write_report(SCRATCH / "model" / "report", self.result)
        assert self.recipe("--output_dir", str(SCRATCH / "trained")) == 0
        self.scores = SCRATCH / "scores.csv"
        table = pandas.DataFrame(noisy.tolist(), columns=[f"logit_{name}" for name in "abcd"])
        table.assign(label=[*"abcd"] * 10).to_csv(self.scores, index=False)
        assert cli.main(["calibrate", "--scores", str(self.scores), "--output", str(SCRATCH / "correction")]) == 0

    def recipe(self, *arguments: str) -> int:
        sizes = "--num_generated 60 --validation_size 30 --max_length 20 --vocab_size 100 --embedding_size 4"
        sizes += " --num_filters 4 --num_layers 1 --num_train_epochs 2 --save_strategy epoch --use_cpu true"
        sys.argv = ["text_classification.py", *arguments, *sizes.split()]
        try:
            text_classification.main(sys.argv[1:])
        except (ValueError, OSError):
            return 2
        return 0

    def prepared_recipe(self, *arguments: str) -> int:
        """The recipe up to its training."""
        with mock.patch.object(text_classification, "train_each_loss", lambda *args, **options: []):
            return self.recipe(*arguments)

    # Each attack takes its random numbers and an empty folder, keeps in `done` what it does, and returns the code.

    def report(self, random: random.Random, folder: Path) -> int:
        shutil.copytree(SCRATCH / "run", folder / "run")
        file = random.choice(["metrics.json", "metrics.json", "detection.json"])
        self.done = damage(folder / "run" / "report" / file, random)
        return cli.main(["report", str(folder / "run"), "--output", str(folder / "page.html")])

    def model(self, random: random.Random, folder: Path) -> int:
        shutil.copytree(SCRATCH / "model", folder / "model")
        if random.random() < 0.4:  # what the temperature's own commands write
            config = json.loads((folder / "model" / "config.json").read_text())
            config["calibration"] = {"temperature": 1.5, "folded": True, "objective": "ece"}
            (folder / "model" / "config.json").write_text(json.dumps(config))
        files = ["report/loss.yaml", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
        self.done = damage(folder / "model" / random.choice(["config.json"] * 6 + files), random)
        command = ["evaluate"] if random.random() < 0.5 else ["calibrate", "--output", str(folder / "out")]
        return cli.main([command[0], str(folder / "model"), *self.rows, *command[1:]])

    def config(self, random: random.Random, folder: Path) -> int:
        path = folder / "config.yaml"
        source = random.choice(sorted((ROOT / "recipes" / "papers" / "configs").glob("**/*.yaml")))
        path.write_bytes(source.read_bytes())
        self.done = f"{source.parent.name}/{source.name}, {damage(path, random)}"
        return self.prepared_recipe("--config", str(path), "--output_dir", str(folder / "out"))

    def run_file(self, random: random.Random, folder: Path) -> int:
        shutil.copytree(SCRATCH / "trained", folder / "run")
        self.done = damage(folder / "run" / random.choice(["run.json", "report/metrics.json"]), random)
        return self.recipe("--output_dir", str(folder / "run"))

    def checkpoint(self, random: random.Random, folder: Path) -> int:
        shutil.copytree(SCRATCH / "trained", folder / "run", ignore=shutil.ignore_patterns("report"))
        newest = max((folder / "run").glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
        path = random.choice(sorted(newest.iterdir()))
        self.done = f"{newest.name}/{path.name} cut or removed"
        if random.random() < 0.3:
            path.unlink()
        else:
            path.write_bytes(path.read_bytes()[: random.randrange(path.stat().st_size)])
        return self.recipe("--output_dir", str(folder / "run"))

    def name(self, random: random.Random, folder: Path) -> int:
        self.done = name = random.choice(NAMES)
        shutil.copytree(SCRATCH / "model", folder / name, ignore=shutil.ignore_patterns("report"))
        out = folder / f"out {name}"
        if code := cli.main(["calibrate", str(folder / name), *self.rows, "--output", str(out)]):
            return code
        ModelCard.load(out / "README.md")
        return cli.main(["report", str(out), "--output", str(folder / f"{name}.html")])

    def reported_name(self, random: random.Random, folder: Path) -> int:
        name, other = random.sample(NAMES, 2)
        self.done = f"{name!r}, {other!r}"
        run = replace(self.result, name=name, loss=None)
        write_report(folder / "run" / "report", run)
        detection = {other: next(iter(self.ood.detection.values()))}
        write_detection_report(folder / "run" / "report", [replace(self.ood, loss=name, detection=detection)])
        model = CardModel(other, "text-classification", base=other)
        ModelCard(str(model_card(run, model, CardData(name, name), Training())))
        return cli.main(["report", str(folder), "--output", str(folder / "page.html")])

    def path(self, random: random.Random, folder: Path) -> int:
        (name, decoy), there = random.choice(PATTERNS), random.random() < 0.7
        self.done = f"{name!r}, {'there' if there else 'not there'}"
        rows = pandas.read_parquet(self.trained.validation)
        for file, count in ((name if there else None, 11), (decoy, 17)):
            if file is not None:
                rows.iloc[:count].to_csv(folder / file, index=False)
        code = cli.main(
            ["evaluate", str(self.trained.folder), "--dataset", str(folder / name), *self.trained.arguments]
        )
        # Refused: `datasets` would take "::" for an archive, and "$" for a variable.
        there = there and not any(part in name for part in ("::", "$"))
        if code != (0 if there else 2) or (there and "On the 11 samples" not in sys.stdout.getvalue()):  # type: ignore[attr-defined]
            raise AssertionError(f"exit code {code}, or samples of another file")
        return code

    def score_file(self, random: random.Random, folder: Path) -> int:
        table = pandas.read_csv(self.scores, dtype=object)
        for _ in range(random.randrange(4)):
            table.iat[random.randrange(len(table)), random.randrange(table.shape[1])] = random.choice(VALUES)
        if random.random() < 0.2:
            table = table.rename(columns={random.choice(list(table)): random.choice(["logit_e", "x,y", "", "1"])})
        file = folder / f"scores.{random.choice(['csv', 'tsv', 'jsonl'])}"
        if file.suffix == ".jsonl":
            table.to_json(file, orient="records", lines=True)
        else:
            table.to_csv(file, index=False, sep="\t" if file.suffix == ".tsv" else ",")
        self.done = f"{file.name} {damage(file, random) if random.random() < 0.5 else 'with other values'}"
        command = random.choice([["evaluate"], ["calibrate", "--output", str(folder / "out")]])
        return cli.main([command[0], "--scores", str(file), *command[1:]])

    def correction(self, random: random.Random, folder: Path) -> int:
        file = shutil.copy(SCRATCH / "correction" / "correction.json", folder)
        self.done = damage(Path(file), random)
        return cli.main(["apply", file, str(self.scores), "--output", str(folder / "corrected.csv")])

    ATTACKS = (
        *[report] * 6,
        *[model] * 6,
        *[config] * 4,
        *[run_file] * 2,
        checkpoint,
        name,
        reported_name,
        *[path] * 2,
        *[score_file] * 6,
        *[correction] * 4,
    )
    # Those that have to succeed; of the others what is broken may be an error of the user's.
    SUCCEED = (checkpoint, name, reported_name)


def attack(fuzz: Fuzz, seed: int) -> tuple[str, str | None, str]:
    """What was done, what is wrong with it, and what it printed."""
    numbers, output, problem, code = random.Random(seed), io.StringIO(), None, 0
    kind, fuzz.done = numbers.choice(fuzz.ATTACKS), ""
    torch.manual_seed(seed)
    signal.alarm(SECONDS)
    with (
        tempfile.TemporaryDirectory(dir=SCRATCH) as folder,
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(output),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        try:
            code = kind(fuzz, numbers, Path(folder))
        except SystemExit as stopped:  # of a recipe
            code = stopped.code
        except Exception as error:
            problem = "".join(traceback.format_exception(error)).rstrip()
        finally:
            signal.alarm(0)
            unlock_all()
    if problem is None and code not in ((0,) if kind in fuzz.SUCCEED else (0, 2)):
        problem = f"exit code {code}: {output.getvalue().strip()[-300:]}"
    if problem is None and "Traceback (most recent" in output.getvalue():
        problem = "a traceback was printed"
    return f"{kind.__name__}: {fuzz.done}", problem, output.getvalue()


def timed_out(*_: Any) -> None:
    raise TimeoutError(f"more than {SECONDS} seconds")


def report(seed: int, kind: str, problem: str | None, output: str = "") -> None:
    """Print what is wrong: of a traceback the last call and the error or, with the `output`, all of it."""
    if problem is not None:
        lines = problem.splitlines()
        shown = [output, problem] if output else [line for line in lines if "hf_focal/" in line][-1:]
        print(f"seed {seed}: {kind}", *shown, lines[-1], "", sep="\n", flush=True)


def new_fuzz() -> Fuzz:
    faulthandler.enable()
    transformers.logging.set_verbosity_error()
    signal.signal(signal.SIGALRM, timed_out)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return Fuzz()


def work(seed: int, end: float, results: Connection) -> None:
    """Send what was done in each attack, and what is wrong with it, until the time `end`."""
    fuzz = new_fuzz()
    while time.monotonic() < end:
        results.send(attack(fuzz, seed)[:2])
        seed += 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=15)
    parser.add_argument("--seed", type=int, help="do this attack alone")
    parser.add_argument("--first_seed", type=int, default=0)
    options = parser.parse_args()
    try:
        if options.seed is None:
            return attack_in_processes(options.first_seed, time.monotonic() + 60 * options.minutes)
        kind, problem, output = attack(new_fuzz(), options.seed)
        report(options.seed, kind, problem, output or "\n")
        return int(problem is not None)
    finally:
        shutil.rmtree(SCRATCH, ignore_errors=True)


def attack_in_processes(seed: int, end: float) -> int:
    """Attack in a process of its own, and in another one after an attack that crashes it or never ends."""
    os.environ["FUZZ_FOLDER"] = str(SCRATCH)
    failures, counts, context = 0, Counter(), multiprocessing.get_context("spawn")
    while time.monotonic() < end:
        results, sender = context.Pipe(duplex=False)
        process = context.Process(target=work, args=(seed, end, sender), daemon=True)
        process.start()
        sender.close()  # so that the process's end is the end of the results
        problem: str | None
        try:
            while results.poll(3 * SECONDS):
                kind, problem = results.recv()
                counts[kind.partition(":")[0]] += 1
                failures += problem is not None
                report(seed, kind, problem)
                seed += 1
            process.kill()
        except EOFError:
            pass
        process.join()
        if process.exitcode == 1:  # an error in this file, which was printed
            return 1
        if process.exitcode:
            counts["crash"] += 1
            failures += 1
            report(seed, "crash", f"the process ended with the exit code {process.exitcode}")
            seed += 1
    print(f"{sum(counts.values())} attacks ({', '.join(f'{n} {k}' for k, n in counts.items())}), {failures} failed")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
