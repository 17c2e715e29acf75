"""Files that are there whole or not at all."""

import resource
import signal
import subprocess
import sys

import pytest

from hf_focal.utils.atomic_write import write_whole


def test_a_file_is_written_and_replaced(tmp_path):
    path = tmp_path / "metrics.json"
    for text in ("größer\n", ""):
        write_whole(path, text)
        assert path.read_text(encoding="utf-8") == text
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_leaves_what_was_there(tmp_path):
    path = tmp_path / "metrics.json"
    write_whole(path, "before")
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        with pytest.raises(OSError, match=r"too large: '.*/metrics\.json'"):
            write_whole(path, "after" * 10_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


# Killed where half of the text is in the file.
_KILLED = """
import os, signal, sys
from pathlib import Path
from hf_focal.utils.atomic_write import write_whole

def write_text(path, text, encoding):
    with open(path, "w") as file:
        file.write(text[:3])
    os.kill(os.getpid(), signal.SIGKILL)

Path.write_text = write_text
write_whole(sys.argv[1], "after")
"""


def test_a_killed_process_leaves_what_was_there(tmp_path):
    path = tmp_path / "metrics.json"
    path.write_text("before")
    killed = subprocess.run([sys.executable, "-c", _KILLED, str(path)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert path.read_text() == "before"
