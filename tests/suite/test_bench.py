"""The bench: entries made by ihlab and without it, what verification notices, and the stored entries."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from ihlab import suite
from ihlab.attribution import METHODS, attribute, exact, problem
from ihlab.attribution.problems import POSITIONS
from ihlab.cli import main
from ihlab.suite.bench import SCORES, differences, entry_text, read_entry, run_bench, settings
from ihlab.suite.leaderboard import page, scores_table, summary
from ihlab.suite.standard import VERSION
from tasks import ConfigError

ENTRIES = sorted((Path(__file__).parents[2] / "benchmarks" / "entries").glob("*.json"))
SMALL = ["recall-attention-only-2"]
HEADS = "recall-attention-only-2/2000/key/logit-difference/head"


@pytest.fixture(scope="module")
def entries():
    return run_bench(dict.fromkeys(["exact", "attribution-patching", "constant", "random"]), settings(True, SMALL))


@pytest.fixture
def registered():
    before = dict(METHODS)
    yield
    METHODS.clear()
    METHODS.update(before)


@torch.no_grad()
def test_positions_are_patched_one_kind_at_a_time():
    """The oracle writes z into the corrupted run, position by position, by plain hooks."""
    p = suite.problem(suite.load(SMALL[0]))
    pair, model = p.metric.pair, p.model.module
    _, cache = model.run_with_cache(p.clean)
    effects = exact(p, "position").set_index(["layer", "head", "position"])["effect"]
    assert (pair.earlier + 1 < pair.position).all()
    rows = torch.arange(len(p.clean))
    places = {"key": pair.earlier, "after": pair.earlier + 1, "last": pair.position}
    for (layer, head, position), effect in effects.items():

        def hook(z, hook, layer=layer, head=head, position=position):
            clean, before = cache["z", layer][:, :, head], z[:, :, head].clone()
            if position == "rest":
                z[:, :, head] = clean
            for name, place in places.items():
                z[rows, place, head] = (clean if name == position else before)[rows, place]
            return z

        logits = model.run_with_hooks(p.corrupted, fwd_hooks=[(f"blocks.{layer}.attn.hook_z", hook)])
        assert effect == pytest.approx((p.metric(logits) - p.ends[1]).mean().item(), abs=1e-4)
    by_position = attribute(p, "eap-ig", "position").groupby(["layer", "head"])["effect"].sum()
    np.testing.assert_allclose(by_position, attribute(p, "eap-ig")["effect"], atol=1e-5)
    assert len(effects) == 4 * len(POSITIONS)
    with pytest.raises(ConfigError, match="only the prompts of a task have named positions"):
        exact(problem(model, clean=p.clean, corrupted=p.corrupted, metric=lambda x: x[:, -1, 3]), "position")


def test_the_oracle_is_right_and_controls_are_at_chance(entries):
    table = scores_table(entries.values()).set_index(["nodes", "method"])
    for nodes in ("head", "input", "position", "edge"):
        assert table.loc[(nodes, "exact"), ["rank", "recall", "sign_errors", "largest"]].tolist() == [1, 1, 0, 1]
        true = table.loc[(nodes, "constant"), "recall"]
        assert table.loc[(nodes, "random"), "recall"] == pytest.approx(true, abs=0.06)
        assert table.loc[(nodes, "random"), "rank"] == pytest.approx(0, abs=0.15)
        assert table.loc[(nodes, "random"), "sign_errors"] == pytest.approx(0.5, abs=0.1)


@torch.no_grad()
def test_regret_and_the_worst_ablation_are_over_all_circuits(entries):
    """The oracle patches the heads of every set by plain hooks."""
    p = suite.problem(suite.load(SMALL[0]))
    model, sets = p.model.module, [set(np.flatnonzero([mask >> i & 1 for i in range(4)])) for mask in range(16)]
    _, cache = model.run_with_cache(p.corrupted)

    def metric(heads):
        def hook(z, hook):
            for head in range(2):
                if 2 * hook.layer() + head not in heads:
                    z[:, :, head] = cache[hook.name][:, :, head]
            return z

        return p.metric(model.run_with_hooks(p.clean, fwd_hooks=[(lambda n: n.endswith("hook_z"), hook)])).mean().item()

    values = np.array([metric(heads) for heads in sets])
    f = (values - values[0]) / (values[-1] - values[0])
    best = [max(f[i] for i in range(16) if len(sets[i]) == size) for size in range(5)]
    for method in ("exact", "attribution-patching"):
        estimate, scores = (entries[method][name][HEADS] for name in ("estimates", "scores"))
        order = np.argsort(-np.array(estimate) * np.sign(p.swing))
        nested = [f[sets.index(set(order[:size]))] for size in range(5)]
        n = int((exact(p)["effect"].abs() >= 0.1 * abs(p.swing)).sum())
        chosen = set(np.argsort(-np.abs(estimate))[:n])
        worst = min(f[i] for i in range(16) if sets[i] >= chosen)
        right = [np.trapezoid(best, dx=1 / 4) - np.trapezoid(nested, dx=1 / 4), worst]
        assert scores[SCORES.index("regret") :] == pytest.approx(right, abs=1e-3)


def test_estimates_made_elsewhere_get_the_same_scores(entries, tmp_path, monkeypatch, capsys):
    """A gradient by plain torch, without the package's methods, written as JSON."""
    p = suite.problem(suite.load(SMALL[0]))
    model, z = p.model.module, {}
    names = [f"blocks.{layer}.attn.hook_z" for layer in range(2)]
    _, clean = model.run_with_cache(p.clean, names_filter=names)
    logits = model.run_with_hooks(
        p.corrupted, fwd_hooks=[(name, lambda x, hook: z.update({hook.name: x})) for name in names]
    )
    slopes = torch.autograd.grad(p.metric(logits).mean(), [z[name] for name in names])
    estimates = [((clean[name] - z[name]) * slope).sum((0, 1, 3)) for name, slope in zip(names, slopes, strict=True)]
    entry = {"method": "elsewhere", "standard_set": VERSION, "estimates": {HEADS: torch.cat(estimates).tolist()}}
    (tmp_path / "mine.json").write_text(json.dumps(entry))
    monkeypatch.chdir(tmp_path)
    main(["bench", "mine.json", "--quick", "--member", *SMALL, "--out", "."])
    assert "elsewhere" in capsys.readouterr().out
    scored = read_entry("elsewhere.json")
    right = entries["attribution-patching"]["scores"][HEADS]
    np.testing.assert_allclose(scored["scores"][HEADS], right, atol=1e-3)
    main(["bench", "--verify", "elsewhere.json"])
    assert capsys.readouterr().out == "elsewhere.json: as stored\n"


def test_a_strangers_file_is_run_and_a_changed_entry_is_noticed(tmp_path, monkeypatch, capsys, registered):
    (tmp_path / "stranger.py").write_text(
        "def size(p, nodes):\n    return p.nodes(nodes).assign(effect=range(len(p.nodes(nodes))))\n"
    )
    monkeypatch.chdir(tmp_path)
    main(["bench", "stranger:size", "--quick", "--member", *SMALL, "--out", "."])
    main(["bench", "stranger:size", "--verify", "size.json"])
    assert capsys.readouterr().out.endswith("size.json: as stored\n")
    entry = read_entry("size.json")
    entry["scores"][HEADS][0] += 0.1
    assert differences(entry)[0].startswith(f"{HEADS}: the scores are")
    entry["scores"][HEADS][0] -= 0.1
    entry["estimates"][HEADS][0] += 1
    (tmp_path / "size.json").write_text(entry_text(entry))
    with pytest.raises(SystemExit):
        main(["bench", "--verify", "size.json"])


BAD = {
    "is not JSON": "{",
    "standard_set is None, but must be a int": {"method": "x", "estimates": {}},
    "is of version 1 of the standard set": {"method": "x", "standard_set": 1, "estimates": {}},
    "there is no setting .*; did you mean": {HEADS[1:]: [1]},
    "must be a finite number": {HEADS: [1, "a", 2, 3]},
    "are 3, but must be a list": {HEADS: 3},
    "notes is '20 steps', but must be an object": {
        "method": "x",
        "standard_set": VERSION,
        "estimates": {},
        "notes": "20 steps",
    },
}


@pytest.mark.parametrize(("said", "content"), BAD.items())
def test_bad_entries_are_refused_in_a_sentence(said, content, tmp_path):
    if isinstance(content, dict) and "estimates" not in content:
        content = {"method": "x", "standard_set": VERSION, "estimates": content}
    (tmp_path / "bad.json").write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(ConfigError, match=said):
        read_entry(tmp_path / "bad.json")


def test_too_few_numbers_are_a_note():
    entry = {"method": "x", "standard_set": VERSION, "estimates": {HEADS: [1.0]}}
    table = settings(True, SMALL)
    [scored] = run_bench({"x": entry}, table[table["key"] == HEADS]).values()
    assert scored["notes"][HEADS] == f"The entry has 1 numbers for {HEADS}, but must have 4."


@pytest.mark.parametrize("path", ENTRIES, ids=lambda path: path.stem)
def test_a_stored_entry_is_what_is_measured_again(path):
    entry = read_entry(path)
    keys = {key for key in entry["scores"] if key.startswith(SMALL[0]) and "/2000/key/logit-difference/" in key}
    assert keys
    some = {name: {key: entry[name][key] for key in keys & entry[name].keys()} for name in ("estimates", "scores")}
    assert differences(entry | some, SMALL) == []


def test_an_entry_is_as_stored_only_if_something_was_measured(entries):
    entry = entries["constant"] | {"method": "nobody", "estimates": {}}
    with pytest.raises(ConfigError, match="'nobody' is no method of ihlab: there is nothing to measure again"):
        differences(entry)
    entry = entries["constant"] | {"estimates": {HEADS: [1.0]}}  # too few: it is scored no more
    assert f"{HEADS}: the entry has scores, but they are missing now" in differences(entry)


def test_the_worst_setting_is_the_lowest_rank(entries):
    table = summary(scores_table(entries.values())).set_index(["nodes", "method"])
    row = table.loc["head", "attribution-patching"]
    assert row["worst_rank"] == entries["attribution-patching"]["scores"][HEADS][SCORES.index("rank")]
    assert f"{row['worst_setting']}/head" == HEADS
    assert "| attribution-patching (1 settings) |" in page(entries.values())


def test_the_leaderboard_is_that_of_the_stored_entries():
    stored = (Path(__file__).parents[2] / "docs" / "leaderboard.md").read_text()
    assert page(map(read_entry, ENTRIES)) == stored
