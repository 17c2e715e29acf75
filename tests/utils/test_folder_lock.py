"""Folders that one run at a time may write to."""

import pytest
from filelock import FileLock

from hf_focal.utils.folder_lock import LOCK, is_locked, lock_folder, unlock_all, unlock_folder


def test_a_folder_is_locked_once(tmp_path):
    folder = tmp_path / "new"
    lock_folder(folder)
    lock_folder(folder)  # the same process may
    unlock_folder(folder)
    assert list(folder.iterdir()) == []
    with (
        FileLock(folder / LOCK),
        pytest.raises(ValueError, match=r"output must be a folder that no other run is writing to, got .*new"),
    ):
        lock_folder(folder, "output")
    assert not is_locked(folder)
    lock_folder(folder)
    assert is_locked(folder)
    unlock_all()
    with FileLock(folder / LOCK, timeout=0):
        pass


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"output_dir must be a folder to write in, got .*file/x"):
        lock_folder(tmp_path / "file" / "x")


def test_the_way_to_a_folder_leads_through_existing_ones(tmp_path):
    with pytest.raises(ValueError, match=r"output must not lead through a folder that does not exist, .*: no '.*/x'"):
        lock_folder(tmp_path / "x" / ".." / "new", "output")
    assert not any(tmp_path.iterdir())
    (tmp_path / "x").mkdir()
    lock_folder(tmp_path / "x" / ".." / "new", "output")
    unlock_folder(tmp_path / "new")


def test_a_file_system_without_locks(tmp_path, monkeypatch):
    def refuse(*arguments, **options):
        raise NotImplementedError

    monkeypatch.setattr(FileLock, "acquire", refuse)
    lock_folder(tmp_path)
    assert is_locked(tmp_path)
    unlock_folder(tmp_path)
    assert not is_locked(tmp_path)
