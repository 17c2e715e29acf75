import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of the real datasets; the test is skipped where there is none."""
    folder = Path(os.environ.get("HF_FOCAL_DATA", Path(__file__).parents[2] / ".." / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip("needs the real datasets: set HF_FOCAL_DATA")
    return folder
