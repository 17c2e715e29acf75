"""The list that `hf-focal losses` prints: that of the losses, read from a file without importing PyTorch."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

from hf_focal.cli.package_commands import listed_losses
from hf_focal.losses import LOSSES


def test_the_file_lists_the_losses():
    code = "from hf_focal.losses.listing import describe_losses; print(describe_losses())"  # without those of tests
    listed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    advice = "run: python -m hf_focal.losses.listing > hf_focal/losses/losses.txt"
    assert listed_losses() + "\n" == listed, advice


def test_neither_the_list_nor_help_nor_advice_imports_pytorch():
    lines = (
        ["losses"],
        ["--help"],
        ["recommend", "--num_classes", "4", "--train_samples", "900", "--held_out_samples", "90"],
    )
    code = (
        "import sys\nfrom contextlib import suppress\nfrom hf_focal.cli.main import main\n"
        f"for line in {lines}:\n    with suppress(SystemExit):\n        main(line)\n"
        "sys.exit([name for name in ('torch', 'numpy', 'transformers') if name in sys.modules] or 0)"
    )
    actual = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert actual.returncode == 0, actual.stderr
    assert "flsd53: focal" in actual.stdout and "loss: " in actual.stdout


def test_each_loss_has_a_docstring_that_names_its_source():
    ours = {name: loss for name, loss in LOSSES.items() if loss.__module__.startswith("hf_focal.")}  # tests add others
    assert len(ours) >= 13
    for name, loss in ours.items():
        years = re.findall(r"[A-Z]\w+ (?:et al\. )?\d{4}", loss.source)
        documented = inspect.getdoc(loss)
        assert documented and not documented.startswith(f"{loss.__name__}("), name
        assert all(year in " ".join(documented.split()) for year in years[:1]), (name, years)


def test_the_guide_has_each_loss_in_its_table():
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "losses.md").read_text(encoding="utf-8")
    table = guide.partition("## All losses")[2].partition("\n\np is")[0]
    first_cells = "".join(re.findall(r"^\| (`.*?) \|", table, flags=re.MULTILINE))
    ours = {name for name, loss in LOSSES.items() if loss.__module__.startswith("hf_focal.losses.")}
    assert {*re.findall(r"`(\w+)", first_cells)} - {"loss"} == ours
