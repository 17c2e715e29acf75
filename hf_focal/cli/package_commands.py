"""The commands about what comes with the package: its demo, losses, recipes, advice, and environment.

Each function that adds the arguments of one is followed by the one that runs it. Modules are imported only in the
command that needs them, because importing takes seconds.
"""

import argparse
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ..errors import InputError
from .commands import Command
from .parsing import refuse_arguments


def add_demo(commands: Any) -> None:
    parser = commands.add_parser("demo", help="train two losses on a generated corpus: a minute, no downloads")
    parser.add_argument("--output_dir", metavar="DIR", default="out/hf_focal", help="models and reports [%(default)s]")
    Command(run_demo, uses_torch=True).register(parser)


def run_demo(output_dir: str) -> None:
    from ..demo import training

    training.run_demo(output_dir)


def add_env(commands: Any) -> None:
    parser = commands.add_parser("env", help="print the versions that a bug report should name")
    Command(run_env, uses_torch=True).register(parser)


def run_env() -> None:
    print(describe_environment())


def describe_environment() -> str:
    """Return a text with the package versions, the platform, and the GPU, which a bug report should name."""
    import torch

    packages = ("torch", "transformers", "accelerate", "datasets", "tokenizers", "numpy", "scipy")
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    return (
        f"hf_focal {version('hf_focal')}, Python {platform.python_version()}, {platform.platform()}\n"
        f"{', '.join(f'{name} {version(name)}' for name in packages)}\n"
        f"GPU: {gpu}, CUDA of torch: {torch.version.cuda or 'none'}"
    )


def add_losses(commands: Any) -> None:
    parser = commands.add_parser("losses", help="list the losses with their sources and options")
    Command(run_losses).register(parser)


def run_losses() -> None:
    print(listed_losses())


def listed_losses() -> str:
    """Return the list of the losses, as `losses.listing` wrote it: importing the losses takes seconds."""
    return (Path(__file__).parents[1] / "losses" / "losses.txt").read_text(encoding="utf-8").rstrip("\n")


def add_gamma(commands: Any) -> None:
    parser = commands.add_parser("gamma", help="the γ of focal loss whose gradient equals cross-entropy's at p0")
    parser.add_argument("p0", type=float, help="a probability in (0, 0.5)")
    Command(run_gamma, uses_torch=True).register(parser)


def run_gamma(p0: float) -> None:
    from ..losses import gamma_for_threshold

    print(f"{gamma_for_threshold(p0):.6g}")


def add_recipe(commands: Any) -> None:
    parser = commands.add_parser("recipe", help="list the training scripts, or copy one to change it")
    actions = parser.add_subparsers(dest="action", required=True, metavar="{list,copy}")
    actions.add_parser("list", help="print their names and what they train")
    copy = actions.add_parser("copy", help="copy a script and its configuration")
    copy.add_argument("name", metavar="NAME", nargs="?", help="such as text_classification")
    copy.add_argument("--output_dir", metavar="DIR", default=".", help="the folder to copy them to [%(default)s]")
    Command(run_recipe, user_errors=(InputError,)).register(parser)


def run_recipe(action: str, name: str | None = None, output_dir: str = ".") -> None:
    from .recipes import copy_recipe, recipes

    if action == "copy" and name is None:
        refuse_arguments("recipe copy", "the name of a recipe is required: `hf-focal recipe list` prints them")
    if action == "list":
        titles = recipes()
        print("\n".join(f"{name:{max(map(len, titles))}}  {title}" for name, title in titles.items()))
        return
    files = copy_recipe(str(name), output_dir)
    print(f"Written: {', '.join(map(str, files))}\nNext: see how it is used: `python {files[0]} --help`")


def add_recommend(commands: Any) -> None:
    text = "a loss and a correction for fine-tuning an encoder or a language model, and why"
    parser = commands.add_parser("recommend", help=text, argument_default=argparse.SUPPRESS)
    task = "text-classification, or causal-lm for a language model (SFT) [text-classification]"
    parser.add_argument("--task", metavar="TASK", help=task)
    parser.add_argument("--num_classes", type=int, metavar="N", help="of classification: the number of classes")
    parser.add_argument("--train_samples", type=int, metavar="N", help="and the number of training samples")
    parser.add_argument("--epochs", type=float, metavar="N", help="and epochs of training [3]")
    parser.add_argument(
        "--held_out_samples", type=int, metavar="N", required=True, help="labeled samples to correct on"
    )
    Command(run_recommend).register(parser)


def run_recommend(**arguments: Any) -> None:
    from ..recommendation import recommend

    print(recommend(**arguments))
