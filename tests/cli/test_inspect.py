"""`ihlab heads`, `shift` and `view`: what they print and write is what the run's model says."""

import re
import subprocess
import sys
import xml.etree.ElementTree as ET

import matplotlib.image
import numpy as np
import pandas as pd
import pytest
import torch
from torch.nn import functional as F

from ihlab import Run, train
from ihlab.attribution import exact, problem
from ihlab.cli import SYSTEM_ERROR, main
from ihlab.measure.batches import EVAL_SEED, draw
from ihlab.viewer.training import described

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def small(root):
    """The one-layer KV shifting run."""
    return next(
        Run.open(path) for path in root.iterdir() if path.name.rpartition("-")[0] == "small"
    )


def opened(command, name, root, *args):
    main([command, name, "--root", str(root), *map(str, args)])


def is_picture(path) -> bool:
    if path.suffix == ".svg":
        return ET.parse(path).getroot().tag.endswith("svg")
    pixels = matplotlib.image.imread(path)
    return pixels.ndim == 3 and min(pixels.shape[:2]) > 100 and len(np.unique(pixels)) > 10


@pytest.mark.parametrize(("name", "n_layers"), [("small", 1), ("plain", 2)])
def test_heads_prints_a_line_and_writes_two_rows_a_head(
    root, tmp_path, capsys, monkeypatch, name, n_layers
):
    monkeypatch.setenv("COLUMNS", "80")
    opened("heads", name, root, "--csv", tmp_path / "heads.csv", "--out", tmp_path / "heads.svg")
    printed = capsys.readouterr().out
    table = pd.read_csv(tmp_path / "heads.csv")
    assert "…" not in printed  # nothing is cut off at 80 columns
    for head in table[table["pattern"] == "effective"].itertuples():
        [line] = [
            line
            for line in printed.splitlines()
            if line.split()[:1] == [f"{head.layer}.{head.head}"]
        ]
        assert (" induction " in line) == head.induction
        assert f"{head.prefix_matching:z.3f}" in line
        assert f"{head.loss_rise:z.3f}±{head.loss_rise_error:.3f}" in line
    assert ("There are no induction heads at step 12." in printed) == (not table["induction"].any())
    heads = [(layer, head) for layer in range(n_layers) for head in range(2)]
    assert sorted(zip(table["layer"], table["head"], strict=True)) == sorted(2 * heads)
    assert table["pattern"].tolist() == ["raw", "effective"] * len(heads)
    assert {"same_distance_control", "induction_stripe", "eigenvalue_copying", "induction"} <= set(
        table
    )
    effective = table[table["pattern"] == "effective"]
    assert effective["prefix_matching"].is_monotonic_decreasing
    same = [
        column
        for column in table
        if "loss" in column or "accuracy" in column or column == "induction"
    ]
    raw = table[table["pattern"] == "raw"]
    assert np.array_equal(raw[same], effective[same])
    assert is_picture(tmp_path / "heads.svg")


def test_heads_and_the_viewer_say_which_learned_positions_are_untrained(small, tmp_path, capsys):
    config = small.config
    longer = config.model.replace(positional="learned", n_ctx=config.task.length + 4)
    run = train(config.replace(model=longer), tmp_path)
    opened("heads", run.folder.name, tmp_path)
    words = f"earned positions from {config.task.length} on are untrained"
    assert words in " ".join(capsys.readouterr().out.split())
    assert described(longer, config.task).endswith(words)
    assert "untrained" not in described(longer.replace(n_ctx=config.task.length), config.task)


def test_the_loss_without_a_head_is_that_of_the_held_out_rows(root, small, tmp_path):
    opened("heads", "small", root, "--step", 8, "--rows", 20, "--csv", tmp_path / "heads.csv")
    batch = draw(small.config.task, EVAL_SEED, "eval", 0, 20)
    tokens, targets = (
        torch.from_numpy(np.ascontiguousarray(x)) for x in (batch.inputs, batch.targets)
    )
    model = small.model(8)

    def loss(hooks):
        with torch.no_grad():
            return F.cross_entropy(
                model.run_with_hooks(tokens, fwd_hooks=hooks).flatten(0, 1), targets.flatten()
            )

    def off(z, hook):
        mean = z[:, :, 1:].mean(dim=(0, 1), keepdim=True)
        return torch.cat([z[:, :, :1], mean.expand_as(z[:, :, 1:])], dim=2)

    rise = (loss([("blocks.0.attn.hook_z", off)]) - loss([])).item()
    table = pd.read_csv(tmp_path / "heads.csv")
    assert np.allclose(table.loc[table["head"] == 1, "loss_rise"], rise, atol=1e-6)


def test_shift_reports_the_checkpoints_weights(root, small, tmp_path, capsys):
    opened(
        "shift",
        "small",
        root,
        "--step",
        8,
        "--csv",
        tmp_path / "shift.csv",
        "--out",
        tmp_path / "shift.png",
    )
    printed = capsys.readouterr().out
    table = pd.read_csv(tmp_path / "shift.csv")
    attn = small.model(8).layers[0].attn
    for name in ("alpha", "beta"):
        stored = getattr(attn, name).detach().numpy()
        assert np.allclose(table[[f"{name}1", f"{name}2"]], stored, atol=1e-12)
        assert np.allclose(
            table[f"{name}_share"], np.abs(stored[:, 1]) / np.abs(stored).sum(axis=1)
        )
    assert f"{table['alpha2'][1]:.3f}" in printed
    lines = [line.replace("│", " ").split() for line in printed.splitlines()]
    counts = {(cells[0], cells[1]): cells[2] for cells in lines if len(cells) == 5}
    for key in ("own", "previous"):
        for value in ("own", "previous"):
            keys = (table["alpha1"] > table["alpha2"]) == (key == "own")
            values = (table["beta1"] > table["beta2"]) == (value == "own")
            assert counts[key, value] == str((keys & values).sum())
    assert is_picture(tmp_path / "shift.png")


def test_view_writes_a_page_here_and_says_how_large(root, small, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    opened("view", "small", root)
    [page] = tmp_path.iterdir()
    assert page.name == f"{small.folder.name}.html"
    assert capsys.readouterr().out.strip() == f"{page.name}: {page.stat().st_size / 1e3:.1f} kB"
    assert page.read_text().lower().startswith("<!doctype html>")
    opened(
        "view",
        "small",
        root,
        "--tokens",
        "12,13,14,12,13",
        "--checkpoints",
        2,
        "--out",
        "other.html",
    )
    text = (tmp_path / "other.html").read_text()
    assert '"tokens":["12","13","14","12","13"]' in text
    assert '"steps":[0,12]' in text
    opened("view", "small", root, "--rows", "2", "--out", "other.html")
    assert (tmp_path / "other.html").read_text().count('"stripe":') == 2


def test_view_reads_the_tasks_words(tmp_path):
    page = tmp_path / "page.html"
    main(
        ["view", "igsm-kv-shift", "--tokens", "<bos> Frigate/AppleCrate = 4 .", "--out", str(page)]
    )
    assert '"tokens":["\\u003cbos>","Frigate/AppleCrate","=","4","."]' in page.read_text()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["heads", "smal"], ["2 runs in", "give more of its name"]),
        (["heads", "plain", "--step", "5"], ["has no checkpoint at step 5; it has 0, 8, 12."]),
        (["heads", "plain", "--csv", "heads.txt"], ["--csv is 'heads.txt', but must end in .csv."]),
        (["shift", "plain"], ["The model's attention is 'vanilla'", "kv_shift"]),
        (
            ["view", "plain", "--tokens", ",".join(["3"] * 13)],
            ["The sequence has 13 positions", "n_ctx=12"],
        ),
        (
            ["view", "plain", "--tokens", "3 four"],
            ["tokens holds 'four', which is not a word of the model's vocabulary"],
        ),
        (["view", "plain", "--checkpoints", "1"], ["checkpoints is 1, but must be at least 2"]),
    ],
)
def test_bad_input_gets_one_sentence_and_writes_nothing(
    fails, root, tmp_path, monkeypatch, args, words
):
    monkeypatch.chdir(tmp_path)
    code, printed = fails(*args, "--root", str(root))
    assert code == 2
    assert all(word in printed for word in words), printed
    assert printed.startswith("ihlab: ")
    assert printed.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_heads_writes_a_map_to_explore(root, tmp_path):
    opened("heads", "small", root, "--out", tmp_path / "heads.html")
    assert "head %{y}.%{x}\\u003cbr\\u003eprefix_matching %{z:.3f}" in (
        tmp_path / "heads.html"
    ).read_text("utf-8")


def test_attribute_prints_exact_effects_beside_estimates_and_scores(
    small, root, tmp_path, capsys, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "80")
    opened("attribute", "small", root, "--rows", 8, "--corrupt", "answer", "--method", "zero-ablation",
           "--csv", tmp_path / "effects.csv", "--out", tmp_path / "map.png")  # fmt: skip
    printed, table = capsys.readouterr().out, pd.read_csv(tmp_path / "effects.csv")
    effects = exact(problem(small, size=8, corrupt="answer"))
    np.testing.assert_allclose(table[list(effects)], effects, atol=1e-6)
    for head in table.itertuples():
        [line] = [
            line
            for line in printed.splitlines()
            if line.split()[:1] == [f"{head.layer}.{head.head}"]
        ]
        assert line.split()[1] == f"{head.effect:z.2f}"
    assert is_picture(tmp_path / "map.png")
    opened("attribute", "small", root, "--rows", 8, "--corrupt", "answer")
    assert re.search(r"integrated\s", capsys.readouterr().out)
    opened("attribute", "small", root, "--rows", 8, "--corrupt", "answer", "--nodes", "input", "--layer", 0,
           "--out", tmp_path / "map.html")  # fmt: skip
    page = (tmp_path / "map.html").read_text(encoding="utf-8")
    assert all(
        f"{name} %{{z:.3f}}" in page for name in ("exact effect", "attribution-patching", "eap-ig")
    )
    assert 4e6 < len(page) < 6e6
    assert re.search(r"^0\.1 k ", capsys.readouterr().out, flags=re.M)
    methods = ["random", "direct-logit-attribution"]
    opened(
        "attribute",
        "small",
        root,
        "--rows",
        8,
        "--corrupt",
        "answer",
        "--compare",
        "--method",
        *methods,
    )
    printed = capsys.readouterr().out
    assert "…" not in printed
    assert [
        line.split()[0] for line in printed.splitlines() if line.startswith(tuple(methods))
    ] == methods


def test_a_run_without_checkpoints_is_named(fails, small, tmp_path):
    folder = tmp_path / small.folder.name
    folder.mkdir()
    (folder / "config.json").write_text((small.folder / "config.json").read_text())
    for command in ("heads", "attribute", "shift", "view"):
        code, printed = fails(command, str(folder))
        assert code == 2
        assert "has no checkpoints" in printed


def test_a_reader_who_leaves_gets_no_traceback(root, tmp_path):
    args = ["view", "plain", "--root", str(root), "--out", str(tmp_path / "page.html")]
    process = subprocess.Popen(
        [sys.executable, "-m", "ihlab", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    assert process.wait(timeout=60) == SYSTEM_ERROR
    assert errors == b""
