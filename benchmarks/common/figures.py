"""Files of figures, the machine that they were measured on, and the options of the scripts that write them."""

import argparse
import datetime
import json
import os
import platform
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

Line = TypeVar("Line", bound=Mapping[str, Any])
RESULTS = Path(__file__).parents[1] / "results"


def script_options(
    description: str | None, rounds: int | None = None, threads: bool = True
) -> argparse.ArgumentParser:
    """Return a parser of the options that most scripts have: `--json`, `--rounds`, and `--threads`."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the machine and the figures to this file")
    if rounds is not None:
        parser.add_argument("--rounds", type=int, default=rounds, help="measurements of each run [%(default)s]")
    if threads:
        parser.add_argument("--threads", type=int, help="of PyTorch; 1 gives steady ratios on a shared machine")
    return parser


def parse_options(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Parse the command line, and set PyTorch's threads if it names a number."""
    options = parser.parse_args()
    if getattr(options, "threads", None) is not None:
        import torch

        torch.set_num_threads(options.threads)
    return options


def machine(device: str = "cpu", packages: Iterable[str] = ()) -> dict[str, Any]:
    """Describe the machine, with the versions of PyTorch, of Python, and of other packages."""
    import torch

    return {
        "torch": str(torch.__version__),  # with the build, which the metadata of some packages lacks
        **{name: version(name) for name in packages},
        "python": platform.python_version(),
        "threads": torch.get_num_threads(),
        "cpus": os.cpu_count(),
        "device": torch.cuda.get_device_name(device) if device.startswith("cuda") else platform.machine(),
    }


def dated_machine(packages: Iterable[str]) -> dict[str, Any]:
    return machine(packages=("numpy", *packages)) | {"date": datetime.date.today().isoformat()}


def write_figures(file: Path | None, figures: Any) -> None:
    """Write figures as JSON, if a file is given."""
    if file is not None:
        file.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


def read_figures(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


def add_part(file: Path | None, name: str, part: Any) -> None:
    """Replace a part of a file of figures, and keep the others."""
    if file is not None:
        write_figures(file, (read_figures(file) if file.exists() else {}) | {name: part})


def add_line(file: Path | None, line: Mapping[str, Any]) -> None:
    """Print a line of JSON, and append it to a file, if one is given."""
    print(json.dumps(line), flush=True)
    if file is not None:
        with file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(line) + "\n")


def shown(lines: Iterable[Line]) -> list[Line]:
    """Print lines of figures as they are measured, with four significant digits, and return them."""
    measured = []
    for line in lines:
        measured.append(line)
        rounded = json.loads(json.dumps(line), parse_float=lambda number: float(f"{float(number):.4g}"))
        print(", ".join(f"{name}: {value}" for name, value in rounded.items()), flush=True)
    return measured
