"""The list of the losses, which `hf-focal losses` prints.

The command reads losses.txt, because PyTorch takes seconds to import. After a change, write this file again:

    python -m hf_focal.losses.listing > hf_focal/losses/losses.txt
"""

from . import LOSSES
from .loss_config import format_value


def describe_losses() -> str:
    """Return a text that lists the losses with their formulas, sources, and options."""
    lines = []
    for name, spec in LOSSES.items():
        lines.append(f"{name}: {spec.summary} ({spec.source})")
        for key, option in spec.options.items():
            default = "" if option.default is None else f" [{format_value(option.default)}]"
            lines.append(f"    {key}: {option.help}{default}")
    return "\n".join(lines)


if __name__ == "__main__":
    print(describe_losses())
