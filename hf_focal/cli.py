"""The `hf-focal` command: which losses there are, and γ from a threshold."""

import argparse
import sys

from . import __version__
from .losses import LOSSES, gamma_for_threshold
from .losses.config import format_value


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="hf-focal", description="Calibrated classifiers with Hugging Face.")
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("losses", help="what each loss is, where it comes from, its options")
    gamma = commands.add_parser("gamma", help="the γ of focal loss whose gradient is cross-entropy's at p0")
    gamma.add_argument("p0", type=float, help="a probability in (0, 0.5)")
    arguments = parser.parse_args(argv)
    if arguments.command == "losses":
        print(describe_losses())
    else:
        try:
            print(f"{gamma_for_threshold(arguments.p0):.6g}")
        except ValueError as error:
            print(f"hf-focal gamma: {error}", file=sys.stderr)
            return 2
    return 0


def describe_losses() -> str:
    """Each loss with its formula, source and options, as text."""
    lines = []
    for name, spec in LOSSES.items():
        lines.append(f"{name}: {spec.summary} ({spec.source})")
        for key, option in spec.options.items():
            default = "" if option.default is None else f" [{format_value(option.default)}]"
            lines.append(f"    {key}: {option.help}{default}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
