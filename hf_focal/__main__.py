"""`hf-focal`, which is also `python -m hf_focal`."""

import sys

from .cli.interrupts import exit_at_ctrl_c


def run() -> int:
    """Run the command line of this process, and return the exit code; see `hf_focal.cli.main.main`."""
    exit_at_ctrl_c()
    from .cli.main import main

    return main()


if __name__ == "__main__":
    sys.exit(run())
