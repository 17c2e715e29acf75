"""What holds for all tests: no network, caches of their own, and where the real datasets are."""

import gc
import os
import shutil
import tempfile
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Before anything of Hugging Face or PyTorch is imported, which read these once.
_CACHE = tempfile.mkdtemp(prefix="hf_focal-tests-")
for _name in ("HF_HUB_CACHE", "HF_DATASETS_CACHE", "HF_ASSETS_CACHE", "HF_XET_CACHE"):
    os.environ.pop(_name, None)
os.environ |= {"HF_HOME": _CACHE, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
# The models are tiny: a second thread costs more than it brings.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import huggingface_hub  # noqa: E402
import pytest  # noqa: E402
from hub_server import WRITER, Hub, running_hub  # noqa: E402
from hypothesis import settings  # noqa: E402

# A change is judged by examples that are the same each time. `pytest --hypothesis-profile random` looks for new ones.
settings.register_profile("same", derandomize=True)
settings.register_profile("random")
settings.load_profile("same")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "real_data: needs the real datasets")


def pytest_collection_finish() -> None:
    # Each `Trainer.train` collects garbage, and would look at all modules' objects for longer than it trains.
    gc.freeze()


def pytest_unconfigure() -> None:
    shutil.rmtree(_CACHE, ignore_errors=True)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of the real datasets; the test is skipped where there is none."""
    folder = Path(os.environ.get("HF_FOCAL_DATA", Path(__file__).parents[1] / ".." / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip("needs the real datasets: set HF_FOCAL_DATA")
    return folder


# What these folders test is written beside pictures, whose content `tests/reports` and the slow tests check.
_WITHOUT_PICTURES = ("choices", "cli", "hub", "scores", "sources", "trainer", "workflow")
_PIXEL = b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGP4DwABAQEAsTj2FAAAAABJRU5ErkJggg==")


@pytest.fixture(autouse=True)
def pictures_of_one_pixel(request, monkeypatch) -> None:
    """Draw no pictures in quick tests of other things: drawing takes most of the time of a report with a card."""
    folder = request.path.relative_to(Path(__file__).parent).parts[0]
    if folder not in _WITHOUT_PICTURES or request.node.get_closest_marker("slow"):
        return
    from hf_focal.reports import report_folder as reports

    def save(first: Any = None, path: Any = None, **options: Any) -> None:
        Path(path).write_bytes(_PIXEL)

    for name in ("reliability_diagram", "comparison_figure", "group_figure", "gamma_heatmap"):
        monkeypatch.setattr(reports, name, save)
    monkeypatch.setattr(reports, "risk_coverage_of", lambda result: result.subsets.risk_coverage and _Picture())


class _Picture:
    def savefig(self, path: Path, **options: Any) -> None:
        path.write_bytes(_PIXEL)


@pytest.fixture
def hub(monkeypatch) -> Iterator[Hub]:
    """A Hub on loopback, which the client of this process asks with the token of somebody who may write."""
    with running_hub() as hub:
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", hub.url)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setenv("HF_TOKEN", WRITER)
        monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda seconds: None)  # before it tries again
        yield hub
