"""The notebooks run from top to bottom, and the committed outputs are those of such a run."""

import pytest
from documented import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
REPOSITORY = "https://colab.research.google.com/github/hf-focal/hf_focal/blob/main"

pytestmark = [pytest.mark.full, pytest.mark.slow]
notebooks = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def read(path):
    import nbformat

    notebook = nbformat.read(path, as_version=4)
    return notebook, [cell for cell in notebook.cells if cell.cell_type == "code"]


def kinds(cells) -> list[list[list[str]]]:
    """The kinds of the values, tables, and plots below each cell, without what is printed."""
    return [[sorted(output.data) for output in cell.outputs if output.output_type != "stream"] for cell in cells]


@notebooks
def test_committed_outputs_come_from_one_run(path):
    notebook, cells = read(path)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    assert not any(output.output_type == "error" or output.get("name") == "stderr" for output in outputs)
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert f"({REPOSITORY}/notebooks/{path.name})" in notebook.cells[0].source
    assert any(cell.source.startswith("HUB_MODEL = None") for cell in cells)


@notebooks
def test_a_run_has_the_committed_outputs(path, tmp_path, monkeypatch):
    from nbclient import NotebookClient

    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{ROOT / 'recipes'}")
    committed = kinds(read(path)[1])
    notebook, cells = read(path)
    NotebookClient(notebook, timeout=500, kernel_name="python3", resources={"metadata": {"path": tmp_path}}).execute()
    assert kinds(cells) == committed


def test_there_are_three():
    assert len(NOTEBOOKS) == 3
