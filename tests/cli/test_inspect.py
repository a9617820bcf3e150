"""`ihlab heads`, `shift` and `view`: what they print and write is what the run's model says."""

import re
import subprocess
import sys
import xml.etree.ElementTree as ET

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
    [folder] = root.glob("small-[!2]*")
    return Run.open(folder)


def opened(command, root, *args):
    main([*command.split(), "--root", str(root), *map(str, args)])


def line_of(printed, head):
    """The line of a printed table that begins with a head."""
    [line] = re.findall(rf"^ *{head.layer}\.{head.head} .*", printed, flags=re.M)
    return line


@pytest.mark.parametrize(("name", "n_heads"), [("small", 2), ("plain", 4)])
def test_heads_prints_a_line_and_writes_two_rows_a_head(
    root, tmp_path, capsys, monkeypatch, name, n_heads
):
    monkeypatch.setenv("COLUMNS", "80")
    csv, picture = tmp_path / "heads.csv", tmp_path / "heads.svg"
    opened(f"heads {name}", root, "--csv", csv, "--out", picture)
    printed, table = capsys.readouterr().out, pd.read_csv(csv)
    assert "…" not in printed  # nothing is cut off at 80 columns
    effective = table[table["pattern"] == "effective"]
    for head in effective.itertuples():
        line = line_of(printed, head)
        assert (" induction " in line) == head.induction
        assert f"{head.prefix_matching:z.3f}" in line
        assert f"{head.loss_rise:z.3f}±{head.loss_rise_error:.3f}" in line
    assert ("There are no induction heads at step 12." in printed) == (not table["induction"].any())
    assert len(effective.groupby(["layer", "head"])) == n_heads
    assert table["pattern"].tolist() == ["raw", "effective"] * n_heads
    assert effective["prefix_matching"].is_monotonic_decreasing
    assert ET.parse(picture).getroot().tag.endswith("svg")


def test_heads_and_the_viewer_say_which_learned_positions_are_untrained(small, tmp_path, capsys):
    config = small.config
    longer = config.model.replace(positional="learned", n_ctx=config.task.length + 4)
    run = train(config.replace(model=longer), tmp_path)
    opened(f"heads {run.folder.name}", tmp_path)
    words = f"earned positions from {config.task.length} on are untrained"
    assert words in " ".join(capsys.readouterr().out.split())
    assert described(longer, config.task).endswith(words)
    assert "untrained" not in described(longer.replace(n_ctx=config.task.length), config.task)


def test_the_loss_without_a_head_is_that_of_the_held_out_rows(root, small, tmp_path):
    opened("heads small --step 8 --rows 20", root, "--csv", tmp_path / "heads.csv")
    batch = draw(small.config.task, EVAL_SEED, "eval", 0, 20)
    tokens, targets = torch.from_numpy(batch.inputs.copy()), torch.from_numpy(batch.targets.copy())
    model = small.model(8)

    def off(z, hook):
        z[:, :, 1] = z[:, :, 1].mean(dim=(0, 1))
        return z

    def loss(*hooks):
        with torch.no_grad():
            logits = model.run_with_hooks(tokens, fwd_hooks=list(hooks))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten()).item()

    table = pd.read_csv(tmp_path / "heads.csv")
    rises = table.loc[table["head"] == 1, "loss_rise"].tolist()
    rise = loss(("blocks.0.attn.hook_z", off)) - loss()
    assert rises == pytest.approx([rise, rise], abs=1e-6)


def test_shift_reports_the_checkpoints_weights(root, small, tmp_path, capsys):
    csv, page = tmp_path / "shift.csv", tmp_path / "shift.html"
    opened("shift small --step 8", root, "--csv", csv, "--out", page)
    printed, table = capsys.readouterr().out, pd.read_csv(csv)
    attn = small.model(8).layers[0].attn
    for name in ("alpha", "beta"):
        stored = getattr(attn, name).detach().numpy()
        assert np.allclose(table[[f"{name}1", f"{name}2"]], stored, atol=1e-12)
        share = np.abs(stored[:, 1]) / np.abs(stored).sum(axis=1)
        assert np.allclose(table[f"{name}_share"], share)
    assert f"{table['alpha2'][1].round(3):g}" in printed
    own_key, own_value = table["alpha1"] > table["alpha2"], table["beta1"] > table["beta2"]
    both = int((own_key & own_value).sum())
    assert re.search(rf"^ *own +own +{both} ", printed, flags=re.M)
    assert "value, token before" in page.read_text(encoding="utf-8")


def test_view_writes_a_page_here_and_says_how_large(root, small, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    opened("view small", root)
    [page] = tmp_path.iterdir()
    assert page.name == f"{small.folder.name}.html"
    assert capsys.readouterr().out.strip() == f"{page.name}: {page.stat().st_size / 1e3:.1f} kB"
    assert page.read_text().lower().startswith("<!doctype html>")
    opened("view small --tokens 12,13,14,12,13 --checkpoints 2 --out other.html", root)
    assert '"tokens":["12","13","14","12","13"]' in (tmp_path / "other.html").read_text()


def test_view_reads_the_tasks_words(tmp_path):
    page = tmp_path / "page.html"
    main(
        ["view", "igsm-kv-shift", "--tokens", "<bos> Frigate/AppleCrate = 4 .", "--out", str(page)]
    )
    assert '"tokens":["\\u003cbos>","Frigate/AppleCrate","=","4","."]' in page.read_text()


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("heads smal", "give more of its name"),
        ("heads plain --step 5", "has no checkpoint at step 5; it has 0, 8, 12."),
        ("heads plain --csv heads.txt", "--csv is 'heads.txt', but must end in .csv."),
        ("shift plain", "The model's attention is 'vanilla'"),
        (f"view plain --tokens {'3,' * 12}3", "The tokens have 13 positions"),
    ],
)
def test_bad_input_gets_one_sentence_and_writes_nothing(
    fails, root, tmp_path, monkeypatch, command, words
):
    monkeypatch.chdir(tmp_path)
    code, printed = fails(*command.split(), "--root", str(root))
    assert code == 2
    assert words in printed
    assert printed.startswith("ihlab: ")
    assert printed.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_attribute_prints_exact_effects_beside_estimates_and_scores(small, root, tmp_path, capsys):
    csv, page = tmp_path / "effects.csv", tmp_path / "map.html"
    command = "attribute small --rows 8 --corrupt answer"
    opened(f"{command} --method zero-ablation", root, "--csv", csv)
    printed, table = capsys.readouterr().out, pd.read_csv(csv)
    effects = exact(problem(small, size=8, corrupt="answer"))
    np.testing.assert_allclose(table[list(effects)], effects, atol=1e-6)
    largest = table.loc[table["effect"].abs().idxmax(), ["layer", "head"]]
    assert printed.splitlines()[2].split()[:2] == [f"{place:.0f}" for place in largest]
    for head in table.itertuples():
        shown = f"{round(head.effect, 3):zg}"
        assert re.search(rf"^ +{head.layer} +{head.head} +{shown} ", printed, flags=re.M)
    opened(command, root)
    assert "integrated-gradients" in capsys.readouterr().out
    opened(f"{command} --nodes input --layer 0", root, "--out", page)
    assert re.search(r"^ +0 +1 +k ", capsys.readouterr().out, flags=re.M)
    text = page.read_text(encoding="utf-8")
    assert all(f"{name} %{{z:.3f}}" in text for name in ("exact effect", "eap-ig"))
    opened(f"{command} --compare --method random direct-logit-attribution", root)
    printed = capsys.readouterr().out
    methods = ["random", "direct-logit-attribution"]
    assert re.findall("|".join(methods), printed) == methods


@pytest.mark.parametrize("command", ["heads", "attribute", "shift", "view"])
def test_a_run_without_checkpoints_is_named(fails, small, tmp_path, command):
    folder = tmp_path / small.folder.name
    folder.mkdir()
    (folder / "config.json").write_text((small.folder / "config.json").read_text())
    code, printed = fails(command, str(folder))
    assert code == 2
    assert "has no checkpoints" in printed


def test_a_reader_who_leaves_gets_no_traceback(root, tmp_path):
    args = f"view plain --root {root} --out {tmp_path}/page.html".split()
    process = subprocess.Popen(
        [sys.executable, "-m", "ihlab", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    assert process.wait(timeout=60) == SYSTEM_ERROR
    assert errors == b""
