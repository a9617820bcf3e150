"""Slices with made-up stages, the archive between them, and the plain Llama that ours is timed
against.
"""

import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import gpu_slices
import pandas as pd
import pytest
import torch
from gpu_pack import pack, unpack
from gpu_slices import DONE, FAILED, STOPPED, Slice, Stage, run_stages
from gpu_wheels import needed
from plain_llama import PlainLlama

from ihlab import ModelConfig, Run, Transformer, train
from ihlab.measure.loss import summed_loss
from ihlab.training.interrupt import Interrupted
from tasks import IGNORE

SCRIPT = Path(gpu_slices.__file__).with_name("gpu.sh")

ENDLESS = "import time; time.sleep(60)"
STUBBORN = f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); {ENDLESS}"


def stage(name, code, **more):
    return Stage(name, lambda slice_: [sys.executable, "-c", code], **more)


def slice_of(folder, seconds):
    return Slice("cpu", folder, folder / "work", "smoke", 1, ends=time.time() + seconds, grace=0.5)


def states(slice_):
    return {name: known["state"] for name, known in slice_.state.items()}


@pytest.mark.slow
def test_stages_go_in_order_and_on_where_the_last_slice_ended(tmp_path):
    mark = f"open({str(tmp_path / 'order')!r}, 'a').write"
    first, fails = (
        stage("first", f"{mark}('a')"),
        stage("fails", f"{mark}('b'); raise SystemExit(3)"),
    )
    endless, last = stage("endless", f"{mark}('c'); {ENDLESS}"), stage("last", f"{mark}('d')")
    one = slice_of(tmp_path, 4.0)
    run_stages(one, [first, fails, endless, last])
    assert states(one) == {"first": DONE, "fails": FAILED, "endless": STOPPED}
    assert one.state["fails"]["code"] == 3
    assert json.loads((tmp_path / "status.json").read_text())["stages"] == one.state
    two = slice_of(tmp_path, 60.0)
    two.status = json.loads((tmp_path / "status.json").read_text())
    run_stages(two, [first, fails, stage("endless", f"{mark}('c')"), last])
    assert states(two) == {"first": DONE, "fails": FAILED, "endless": DONE, "last": DONE}
    assert (tmp_path / "order").read_text() == "abcbcd"


@pytest.mark.slow
def test_a_command_that_will_not_stop_is_ended(tmp_path):
    slice_ = slice_of(tmp_path, 2.0)
    began = time.time()
    run_stages(slice_, [stage("stubborn", STUBBORN)])
    assert states(slice_) == {"stubborn": STOPPED}
    assert time.time() - began < 30


@pytest.mark.rare
def test_a_dry_run_makes_every_result_and_goes_on_after_a_cut(tmp_path):
    """The first slice is cut off in the second stage. The second slice, with fresh folders, goes on
    from its files.
    """
    environment = os.environ | {"PYTHON": sys.executable, "OMP_NUM_THREADS": "1"}
    state = []
    for seconds, carried in ((24, ()), (240, ("--carried", str(tmp_path / "out-0")))):
        out, work = (str(tmp_path / f"{name}-{len(state)}") for name in ("out", "work"))
        command = [SCRIPT, "--device", "cpu", "--slice", str(seconds), "--out", out, "--work", work]
        subprocess.run([*command, *carried], env=environment, check=True)
        stages = json.loads(Path(out, "status.json").read_text())["stages"]
        state.append({name: known["state"] for name, known in stages.items()})
    assert set(state[0].values()) <= {DONE, STOPPED}
    assert set(state[0]) < set(gpu_slices.STAGES)
    assert state[1] == dict.fromkeys(gpu_slices.STAGES, DONE)
    with tarfile.open(tmp_path / "out-1" / "figures.tar.gz") as file:
        tables = {name for name in file.getnames() if name.endswith("claims.json")}
    made = ("figure1/figure1a", "figure1/figure1b", "hops/figure8")
    assert tables == {f"{name}/smoke/claims.json" for name in made}
    speed = pd.read_csv(tmp_path / "out-1" / "speed.csv")
    assert not speed["note"].astype(str).str.contains("failed").any()
    assert {
        "ours, kv_shift, compiled / ours, vanilla, compiled",
        "ours, vanilla, logits everywhere, compiled / Hugging Face Llama, compiled",
    } <= set(speed["measured"])


@pytest.mark.slow
def test_wheels_are_what_the_machine_lacks_and_what_that_requires():
    lacking = needed("ihlab", set(), {})
    assert {"torch", "numpy", "transformer-lens", "tyro"} <= set(lacking)
    assert "mkdocs-material" not in lacking  # of an extra
    there = set(lacking) - {"tyro", "docstring-parser"}
    assert set(needed("ihlab", there, {})) == {"tyro", "docstring-parser"}


# The archive


@pytest.fixture
def worked(small, tmp_path, monkeypatch):
    """A finished run and an interrupted one, of a stage."""

    def stop(step, row):
        if step == 13:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr("ihlab.training.loop.REPORT_EVERY", 0.0)
    root = tmp_path / "runs"
    done = train(small, root / "figure")
    with pytest.raises(Interrupted):
        train(small.replace(seed=1), root / "figure", report=stop)
    return root, done, Run.open(small.replace(seed=1).folder(root / "figure"))


@pytest.mark.slow
def test_runs_go_on_from_archives(worked, small, tmp_path):
    root, done, _ = worked
    archives = [tmp_path / f"runs-{i}.tar.gz" for i in (1, 2)]
    assert pack(root, {"figure": True}, archives, 20_000) == []
    assert all(0 < archive.stat().st_size <= 20_000 for archive in archives)
    there = tmp_path / "there"
    there.mkdir()
    assert unpack(archives, there, depth=2) > 0
    assert unpack(archives, there, depth=2) == 0
    again = Run.open(there / "figure" / done.folder.name)
    assert all(map(torch.equal, again.model().parameters(), done.model().parameters()))
    assert again.metrics.equals(done.metrics)
    resumed, whole = (
        train(small.replace(seed=1), there / "figure"),
        train(small.replace(seed=1), tmp_path / "whole"),
    )
    assert resumed.done["resumed_from"] == 14
    assert resumed.metrics.equals(whole.metrics)


# The plain Llama


@pytest.mark.slow
@pytest.mark.parametrize("attention", ["vanilla", "kv_shift"])
def test_the_plain_llama_is_ours(attention):
    model = Transformer(
        ModelConfig(n_layers=2, d_model=32, n_heads=4, d_vocab=40, n_ctx=12, attention=attention)
    )
    generator = torch.Generator().manual_seed(0)
    tokens, targets = (torch.randint(40, (3, 12), generator=generator) for _ in range(2))
    targets[:, ::3] = IGNORE
    ours = summed_loss(model, tokens, torch.arange(36), targets.flatten())
    torch.testing.assert_close(PlainLlama(model)(tokens, targets, IGNORE), ours)
