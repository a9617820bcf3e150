"""Atomic files and locks: a failed write leaves the old content and nothing beside it; a lock has
one holder.
"""

import errno
import fcntl
import os
import re
import stat
import threading
import time
from pathlib import Path

import pytest
from safetensors import SafetensorError

from ihlab.storage.files import (
    append_text,
    is_file,
    locked,
    require_writable,
    write_folder,
    write_text,
)
from tasks import ConfigError
from tasks.files import one_at_a_time, write_atomically
from tests.forked import killed


def test_a_failed_write_keeps_the_old_file(tmp_path):
    path = tmp_path / "note.txt"
    write_text(path, "old")

    def fail(aside):
        aside.write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, fail)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_content_and_name_are_forced_to_disk(tmp_path, monkeypatch):
    """A file's name is in its folder: without the folder's own fsync a crash of the machine can
    undo the rename.
    """
    forced, fsync = [], os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda file: forced.append(os.readlink(f"/proc/self/fd/{file}")) or fsync(file)
    )
    write_text(tmp_path / "note.txt", "new")
    aside, folder = forced
    assert re.fullmatch(r"\.note\.txt\.[0-9a-f]{8}\.partial", Path(aside).name)
    assert folder == str(tmp_path)


def test_a_lock_has_one_holder_and_the_next_waits_as_long_as_it_says(tmp_path):
    path = tmp_path / "new" / ".lock"
    with (
        locked(path, "Taken."),
        pytest.raises(ConfigError, match=r"^Taken\.$"),
        locked(path, "Taken."),
    ):
        pass
    taken = threading.Event()

    def hold():
        with locked(path, "Taken."):
            taken.set()
            time.sleep(0.3)

    holder = threading.Thread(target=hold)
    holder.start()
    taken.wait()
    with locked(path, "Taken.", wait=60.0):
        pass
    holder.join()


def test_a_file_that_was_removed_or_replaced_is_not_the_known_one(tmp_path):
    path = tmp_path / ".lock"
    with locked(path, "Taken.") as known:
        assert is_file(path, known)
        path.unlink()
        assert not is_file(path, known)
        path.touch()
        assert not is_file(path, known)


def test_a_folder_to_write_to_is_tried_and_left_as_it_was(tmp_path):
    require_writable("--out", tmp_path / "new" / "newer")
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").write_text("here")
    with pytest.raises(ConfigError, match=r"--out is '.*file/in', but .*file is a file\."):
        require_writable("--out", tmp_path / "file" / "in")
    with pytest.raises(ConfigError, match=r"but nothing can be written to /proc"):
        require_writable("--out", Path("/proc/self"))
    require_writable("--out", Path("/"))


def test_a_row_is_appended_after_the_bytes_that_are_known(tmp_path, monkeypatch):
    path = tmp_path / "table.csv"
    path.write_text("a\n1\nhalf a ro")
    assert append_text(path, "2\n", 4) == 6
    assert path.read_text() == "a\n1\n2\n"
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, content: write(file, content[:1]))
    with pytest.raises(OSError, match="No space left") as full:
        append_text(path, "345\n", 6)
    assert full.value.filename == str(path)
    assert path.read_text() == "a\n1\n2\n"
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(OSError, match="symbolic links"):
        append_text(tmp_path / "link", "4\n", 6)


def test_the_next_write_removes_what_a_killed_one_left_and_keeps_what_another_process_writes(
    tmp_path,
):
    path, other = tmp_path / "a[1].csv", tmp_path / ".a[1].csv.12.partial"
    killed(lambda: write_text(path, "half"))
    assert [left.name.startswith(".a[1].csv.") for left in tmp_path.iterdir()] == [True]
    other.symlink_to(tmp_path / "mine")
    with path.with_name(".a[1].csv.living.partial").open("w") as living:
        fcntl.flock(living, fcntl.LOCK_EX)
        write_text(path, "whole")
    assert {left.name for left in tmp_path.iterdir()} == {
        path.name,
        other.name,
        ".a[1].csv.living.partial",
    }
    assert path.read_text() == "whole"


def test_a_folder_is_written_whole_and_again_but_never_over_other_files(tmp_path):
    folder = tmp_path / "folder"

    def write(aside, text="weights"):
        (aside / "weights").write_text(text)
        (aside / "weights").chmod(0o600)
        (aside / "card").write_text("card")

    killed(lambda: write_folder(folder, write))
    assert [left.suffix for left in folder.iterdir()] == [".partial"]
    for _ in range(2):
        write_folder(folder, write)
        assert {path.name: path.read_text() for path in folder.iterdir()} == {
            "weights": "weights",
            "card": "card",
        }
    (tmp_path / "usual").touch()
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "usual", *folder.iterdir())}
    assert len(modes) == 1
    with pytest.raises(
        ConfigError, match=r"is not empty: give a new or an empty folder\. It holds weights"
    ):
        write_folder(folder, lambda aside: write(aside, "others"))
    (folder / "weights").unlink()
    (folder / "mine").touch()
    with pytest.raises(ConfigError, match="It holds mine"):
        write_folder(folder, write)
    assert sorted(path.name for path in folder.iterdir()) == ["card", "mine"]


def test_processes_take_turns_in_a_folder(tmp_path):
    done = tmp_path / "done"
    with one_at_a_time(tmp_path / "folder"):
        child = os.fork()
        if not child:
            with one_at_a_time(tmp_path / "folder"):
                done.touch()
            os._exit(0)
        time.sleep(0.2)
        assert not done.exists()
    os.waitpid(child, 0)
    assert done.exists()


def test_an_error_of_the_system_names_the_file_also_if_a_library_in_rust_raised_it(tmp_path):
    def full(aside):
        raise SafetensorError(
            "Error while serializing: I/O error: No space left on device (os error 28)"
        )

    for write in (write_atomically, write_folder):
        with pytest.raises(OSError, match="No space left on device") as error:
            write(tmp_path / "out", full)
        assert (error.value.errno, error.value.filename) == (errno.ENOSPC, str(tmp_path / "out"))


def test_a_full_disk_is_no_fault_of_the_setting(tmp_path, monkeypatch):
    def full(**_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("ihlab.storage.files.TemporaryFile", full)
    with pytest.raises(OSError, match="No space left") as error:
        require_writable("--out", tmp_path)
    assert error.value.filename == str(tmp_path)
