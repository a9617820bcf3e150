"""A system that says no: a full disk, a place that cannot be written, files of another user."""

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from ihlab import Run, train
from ihlab.cli import main
from ihlab.files import write_text
from tests.forked import python

pytestmark = pytest.mark.slow

TINY = (
    "--steps 6 --batch-size 4 --eval-rows 8 --eval-every 2 --checkpoints 3 --task.vocab-size 40 --task.length 12 "
    "--model.n-layers 1 --model.d-model 8 --model.n-heads 2 --model.d-vocab 40 --model.n-ctx 12 --device cpu"
).split()


def contents(folder):
    """All that training leaves but what tells the time."""
    files = {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {name: content for name, content in files.items() if "optimizer" not in name and name != "done.json"}


def test_a_full_disk_ends_in_a_sentence_and_leaves_a_run_that_goes_on(small, tmp_path, monkeypatch):
    """Full at every write in turn, then with room again: the same files as if there had always been room."""
    whole = train(small, tmp_path / "whole", "cpu")
    write, left = os.fsync, 0

    def full(number):
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(28, "No space left on device")
        write(number)

    monkeypatch.setattr("os.fsync", full)
    stopped = 0
    for room in range(200):
        left = room % 15
        try:
            run = train(small, tmp_path / "full", "cpu")
            break
        except OSError as error:
            named = str(error.filename)
        stopped += 1
        assert named.startswith(str(tmp_path / "full"))
        assert not list(tmp_path.rglob("*.partial"))
    assert stopped >= 3
    assert contents(run.folder) == contents(whole.folder)


def test_a_variable_that_torch_refuses_is_named(tmp_path):
    command, given = [sys.executable, "-m", "ihlab", "train", *TINY], {**os.environ, "TORCH_LOGS": "x"}
    done = subprocess.run(command, cwd=tmp_path, env=given, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("ihlab: torch cannot be loaded (Invalid log settings: x, ")
    assert "Check the environment: " in done.stderr
    assert "TORCH_LOGS" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_limit_of_the_system_is_named_with_the_file(tmp_path):
    """A real refusal of the kernel's: files of at most 3000 bytes hold no checkpoint."""
    script = """
import resource, sys
from ihlab.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
main(sys.argv[1:])
"""
    limited = python(script, "train", *TINY, "--root", str(tmp_path))
    assert limited.returncode == 1
    warned, recipe, ended = limited.stderr.splitlines()
    assert ": task induction" in recipe
    assert warned.startswith("ihlab: RunConfig.warmup is 100, but the run has 6 steps: ")
    assert ended.startswith(f"ihlab: {tmp_path}")
    assert ended.endswith("File too large.")
    main(["train", *TINY, "--root", str(tmp_path)])
    [folder] = tmp_path.iterdir()
    assert Run.open(folder).done


@pytest.mark.parametrize(
    ("root", "words"),
    [
        ("/proc/x", "No such file or directory"),
        ("/dev/null", "is a file"),
        ("/dev/null/x", "is a file"),
        ("x" * 300, "File name too long"),
        ("a\0b", "control character"),
    ],
    ids=["proc", "null", "below", "long", "nul"],
)
@pytest.mark.parametrize("command", [["train", *TINY], ["runs"], ["heads", "a"]], ids=lambda words: words[0])
def test_a_place_that_cannot_be_gets_one_sentence(capsys, tmp_path, monkeypatch, command, root, words):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main([*command, root] if command == ["runs"] else [*command, "--root", root])
    printed = capsys.readouterr().err
    assert ended.value.code in (1, 2)
    assert printed.startswith("ihlab: ")
    assert printed.count("\n") == 1
    assert command[0] != "train" or words in printed


def test_files_follow_the_umask(small, tmp_path):
    before = os.umask(0o027)
    try:
        run = train(small, tmp_path, "cpu")
        write_text(tmp_path / "a.txt", "a")
    finally:
        os.umask(before)
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != ".lock"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o640}
    assert run.checkpoint_path(0) in files


CLOSED = ("config.json", "checkpoints", "checkpoints/step-6.safetensors", ".")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_is_told_of_the_permission(request):
    """In a process that has loaded all it needs before it becomes the other user."""
    script = """
import os, sys
from ihlab.cli import main
open_root, *roots = sys.argv[1:]
main(["heads", "run", "--root", open_root])
main(["runs", open_root])
os.chdir("/")
os.setgroups([]); os.setgid(65534); os.setuid(65534)
for root in roots:
    for command in (["heads", "run", "--root", root], ["runs", root]):
        print("=====", flush=True)
        try:
            main(command)
        except SystemExit as ended:
            print(ended.code)
"""
    open_to_all = Path(tempfile.gettempdir())
    if any(path.stat().st_mode & 0o001 == 0 for path in (open_to_all, *open_to_all.parents)):
        pytest.skip("another user has no way to the temporary folder")
    parent = Path(tempfile.mkdtemp(dir=open_to_all))
    request.addfinalizer(lambda: shutil.rmtree(parent))
    parent.chmod(0o755)
    main(["train", *TINY, "--root", str(parent / "open")])
    roots = [shutil.copytree(parent / "open", parent / str(i)) for i in range(len(CLOSED))]
    for root, closed in zip(roots, CLOSED, strict=True):
        [folder] = root.iterdir()
        (folder / closed).chmod(0)
    done = python("import sys; sys.stderr = sys.stdout" + script, *map(str, (parent / "open", *roots)))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    _, *said = done.stdout.split("=====")
    for closed, heads, runs in zip(CLOSED, said[::2], said[1::2], strict=True):
        assert "Permission denied" in heads, (closed, heads)
        assert closed.startswith("checkpoints") or "Permission denied" in runs, (closed, runs)
