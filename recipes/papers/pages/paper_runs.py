"""Our runs of the papers' experiments: what they are of, the names of their losses, and their records.

An experiment's records are in recipes/papers/records/EXPERIMENT.csv. The rows of the papers' tables are in
recipes/papers/tables.
"""

import functools
import re
from dataclasses import dataclass
from pathlib import Path

from hf_focal import losses
from papers import checks as check
from papers.losses import published_mmce  # noqa: F401 (registers the loss)
from papers.pages.page import RECORDS
from papers.pages.paper_tables import Runs, read_rows, row_of_run
from papers.pages.records import add_records, read_records, record_of


@dataclass(frozen=True)
class Experiment:
    """Runs of a row of the papers' tables.

    `row` is the dataset and the model of the row, and `page` the page of docs/results with our table. `setting` tells
    how our runs differ from the paper's, if they do.
    """

    title: str
    row: tuple[str, str]
    page: str
    setting: str = "the paper's"

    @property
    def is_translation(self) -> bool:
        return self.row[0] == "wmt14_en_de"


CLASSIFICATION = {
    "20_newsgroups": Experiment("20 Newsgroups", ("20_newsgroups", "gp_cnn"), "newsgroups.md"),
    "sst_binary": Experiment("SST", ("sst_binary", "tree_lstm"), "sst.md"),
    "cifar10_overfit": Experiment(
        "CIFAR-10, 5,000 images", ("cifar10", "resnet50"), "cifar10.md", "small: ResNet-20, 5,000 images"
    ),
}
# These have a table beside the paper, but are left out of the tests of its claims.
FINE_TUNED = {
    "20_newsgroups_encoder": Experiment(
        "20 Newsgroups, encoder", ("20_newsgroups", "bert"), "newsgroups.md", "small: another encoder"
    )
}
TRANSLATION = {
    name: Experiment(
        f"Multi30k, {epochs} epochs",
        ("wmt14_en_de", "transformer"),
        "multi30k.md",
        f"small: Multi30k, {epochs} epochs",
    )
    for name, epochs in (("multi30k", 8), ("multi30k_20_epochs", 20), ("multi30k_28_epochs", 28))
}
# Those with `--dynamics`, which have figures instead of tables.
DYNAMICS = {"cifar10_dynamics": Experiment("CIFAR-10, dynamics", ("cifar10", "resnet50"), "dynamics.md")}
# The other rows of the papers' tables, in the papers' settings; those with runs have a section in reproduction.md.
_ROWS_WITH_A_PAGE = {CLASSIFICATION[name].row for name in ("20_newsgroups", "sst_binary")}
OTHER_ROWS = {
    "_".join(row): Experiment("/".join(row), row, "reproduction.md")
    for dataset, entry in read_rows()["datasets"].items()
    for row in ((dataset, model) for model in entry["models"])
    if row not in _ROWS_WITH_A_PAGE
}
EXPERIMENTS = CLASSIFICATION | FINE_TUNED | TRANSLATION | OTHER_ROWS
LOSSES = {
    "cross_entropy": "cross-entropy",
    "brier": "Brier",
    "mmce": "MMCE, as the papers' code computes it",
    "published_mmce_lam_8": "MMCE, as the papers' code computes it, λ = 8",
    "mmce_lam_8_weighted_true": "MMCE by definition, weighted, λ = 8",
    "mmce_weighted_true": "MMCE by definition, weighted, λ = 2",
    "label_smoothing_0.05": "label smoothing 0.05",
    "label_smoothing_0.1": "label smoothing 0.1",
    "focal_1": "focal, γ = 1",
    "focal_2": "focal, γ = 2",
    "focal_3": "focal, γ = 3",
    "focal_gamma_4": "focal, γ = 4",
    "focal_gamma_5": "focal, γ = 5",
    "flsc_532": "FLSc-532",
    "flsc_531": "FLSc-531",
    "focal_schedule_5_3_2": "γ = 5, 3, 2, switched after 2/7 and 5/7",
    "focal_schedule_5_3_1": "γ = 5, 3, 1, switched after 2/7 and 5/7",
    "flsd_532": "FLSD-532",
    "flsd_53": "FLSD-53",
    "dual_focal_gamma_5": "dual focal, γ = 5",
    "adafocal": "AdaFocal, γ updated every epoch",
    "adafocal_20": "AdaFocal, γ updated every 20 steps",
    "adafocal_40": "AdaFocal, γ updated every 40 steps",
    "adafocal_10": "AdaFocal, γ updated every 10 steps",
}


@functools.cache
def printed_names(dataset: str) -> dict[str, str]:
    """Return the names of the losses in the papers' tables of a dataset, by their configurations."""
    rows = read_rows()
    specs = rows["losses"] | rows["datasets"][dataset].get("losses", {})
    names = {str(losses.LossConfig.parse(spec)): name for name, spec in specs.items()}
    # With thousands of classes, PyTorch's convention is the papers'.
    return names | {"label_smoothing:alpha=0.1": "label_smoothing_0.1"}


def loss_name(experiment: str, record: dict) -> str:
    """Name the loss of a run as in the papers' tables or, if they do not have the loss, by its configuration.

    If AdaFocal updates γ every few steps, the number of steps is appended.
    """
    loss = str(losses.LossConfig.parse(record["loss"]))
    steps = record["settings"].get("gamma_update_steps")
    dataset, _ = (EXPERIMENTS | DYNAMICS)[experiment].row
    name = printed_names(dataset).get(loss, re.sub(r"[^\w.]+", "_", loss))
    return name + (f"_{steps}" if steps else "")


def run_name(experiment: str, record: dict) -> str:
    return f"{loss_name(experiment, record)}_s{record['seed']}"


def experiment_of(name: str, record: dict) -> str:
    """Return the experiment of a run that is recorded under an experiment's name, or a dataset's in rows.yaml."""
    if name not in read_rows()["datasets"]:
        check.choice("record", name, [*EXPERIMENTS, *DYNAMICS, *read_rows()["datasets"]])
        return name
    row = row_of_run(name, record["settings"])
    return name if name in CLASSIFICATION and row in _ROWS_WITH_A_PAGE else "_".join(row)


def record_runs(name: str, folder: Path) -> None:
    """Add a record of each finished run below a folder to the runs of an experiment, or of the rows of a dataset."""
    new: dict[str, list[dict]] = {}
    for result in sorted(folder.rglob("report/metrics.json")):
        record = record_of(result.parents[1])
        new.setdefault(experiment_of(name, record), []).append(record)
    for experiment, records in new.items():
        add_records(RECORDS / f"{experiment}.csv", records, functools.partial(run_name, experiment))
        print(f"{experiment}: {', '.join(run_name(experiment, record) for record in records)}")


def read_runs(experiment: str) -> Runs:
    """Read the records of an experiment: loss -> seed -> the run's record."""
    runs: dict[str, dict] = {}
    for record in read_records(RECORDS / f"{experiment}.csv"):
        runs.setdefault(loss_name(experiment, record), {})[record["seed"]] = record
    return runs
