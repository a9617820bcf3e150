"""The bench: three truths, entries made by ihlab and without it, what verification notices, and who
is ranked.
"""

import json
import re
from itertools import permutations, product
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest
import torch

from ihlab import suite
from ihlab.attribution import METHODS, attribute, exact, problem
from ihlab.attribution.problems import POSITIONS
from ihlab.cli import main
from ihlab.suite.bench import SCORES, TRUTHS, measured_settings, new_entry, run_bench, settings
from ihlab.suite.entries import differences, entry_text, read_entries, read_entry
from ihlab.suite.leaderboard import page, scores_table, summary
from ihlab.suite.standard import VERSION
from tasks import ConfigError

ENTRIES = sorted((Path(__file__).parents[2] / "benchmarks" / "entries").glob("*.json"))
SMALL = ["recall-attention-only-2"]
HEADS = "recall-attention-only-2/2000/key/logit-difference/head"


@pytest.fixture(scope="module")
def p():
    return suite.problem(suite.load(SMALL[0]))


@pytest.fixture(scope="module")
def entries():
    methods = [*TRUTHS, "attribution-patching", "constant", "random"]
    return run_bench(dict.fromkeys(methods), settings(True, SMALL))


def write(path, **entry):
    """Write an entry, of the method "x" without estimates if nothing else is said."""
    path.write_text(json.dumps({"method": "x", "standard_set": VERSION, "estimates": {}} | entry))


@torch.no_grad()
def test_positions_are_patched_one_kind_at_a_time(p):
    """The oracle writes z into the corrupted run, position by position, by plain hooks."""
    pair, model = p.metric.pair, p.model.module
    _, cache = model.run_with_cache(p.clean)
    effects = exact(p, "position").set_index(["layer", "head", "position"])["effect"]
    assert (pair.earlier + 1 < pair.position).all()
    masks = {name: torch.zeros(p.clean.shape, dtype=torch.bool) for name in POSITIONS}
    places = {"key": pair.earlier, "after": pair.earlier + 1, "last": pair.position}
    masks["rest"][:] = True
    for name, place in places.items():
        masks[name][range(len(place)), place] = True
        masks["rest"] &= ~masks[name]
    for (layer, head, position), effect in effects.items():

        def hook(z, hook, head=head, chosen=masks[position]):
            z[:, :, head][chosen] = cache[hook.name][:, :, head][chosen]
            return z

        logits = model.run_with_hooks(
            p.corrupted, fwd_hooks=[(f"blocks.{layer}.attn.hook_z", hook)]
        )
        assert effect == pytest.approx((p.metric(logits) - p.ends[1]).mean().item(), abs=1e-4)
    by_position = attribute(p, "eap-ig", "position").groupby(["layer", "head"])["effect"].sum()
    np.testing.assert_allclose(by_position, attribute(p, "eap-ig")["effect"], atol=1e-5)
    assert len(effects) == 4 * len(POSITIONS)
    own = problem(model, clean=p.clean, corrupted=p.corrupted, metric=lambda x: x[:, -1, 3])
    with pytest.raises(ConfigError, match="only the prompts of a task have named positions"):
        exact(own, "position")


def test_truths_are_right_and_controls_are_at_chance(entries):
    table = scores_table(entries.values()).set_index(["nodes", "method"])
    for nodes in ("head", "input", "position", "edge"):
        right = table.loc[(nodes, "exact"), ["rank", "first", "recall", "sign_errors", "largest"]]
        assert right.tolist() == [1, 1, 1, 0, 1]
        assert table.loc[(nodes, "exact-reverse"), "reverse_rank"] == 1
        random, constant = (table.loc[nodes, name] for name in ("random", "constant"))
        assert random["recall"] == pytest.approx(constant["recall"], abs=0.06)
        assert random["rank"] == pytest.approx(0, abs=0.15)
        assert random["sign_errors"] == pytest.approx(0.5, abs=0.1)
    assert table.loc[("head", "shapley"), "shapley_rank"] == 1


@torch.no_grad()
def test_regret_shapley_values_and_the_worst_ablation_are_over_all_circuits(p, entries):
    """The oracle patches the heads of every set by plain hooks. Bit i of a set is head i."""
    sets, model = np.arange(16), p.model.module
    _, cache = model.run_with_cache(p.corrupted)

    def metric(heads):
        def hook(z, hook):
            for head in range(2):
                if not heads >> 2 * hook.layer() + head & 1:
                    z[:, :, head] = cache[hook.name][:, :, head]
            return z

        hooks = [(lambda name: name.endswith("hook_z"), hook)]
        return p.metric(model.run_with_hooks(p.clean, fwd_hooks=hooks)).mean().item()

    def nested(order):
        """The faithfulness of the sets that keep ever more heads."""
        return f[np.cumsum([0, *(1 << np.array(order))])]

    values = np.array([metric(heads) for heads in sets.tolist()])
    f, shapley = (values - values[0]) / (values[-1] - values[0]), np.zeros(4)
    for order in permutations(range(4)):
        shapley[list(order)] += np.diff(nested(order)) / 24
    found = np.array(entries["shapley"]["estimates"][HEADS]) / p.swing
    assert found == pytest.approx(shapley, abs=1e-3)
    best = [f[np.bitwise_count(sets) == size].max() for size in range(5)]
    n = int((exact(p)["effect"].abs() >= 0.1 * abs(p.swing)).sum())
    for method in ("exact", "attribution-patching"):
        estimate, scores = (entries[method][name][HEADS] for name in ("estimates", "scores"))
        falling = nested(np.argsort(-np.array(estimate) * np.sign(p.swing)))
        chosen = (1 << np.argsort(-np.abs(estimate))[:n]).sum()
        right = [np.trapezoid(best - falling, dx=1 / 4), f[sets & chosen == chosen].min()]
        assert scores[SCORES.index("regret") :] == pytest.approx(right, abs=1e-3)
        rank = pd.Series(np.abs(estimate)).corr(pd.Series(np.abs(shapley)), method="spearman")
        assert scores[SCORES.index("shapley_rank")] == pytest.approx(rank, abs=1e-3)


def test_rounding_errors_of_another_processor_change_no_score():
    """Twelve of the inputs' effects are 0 by construction, and float32 gives each of them another
    sign and size.
    """
    model = suite.load("hand-set-two-layers")
    found = []
    for factor in (1.0, 1.0 + 2e-7):
        for weight in model.parameters():
            weight.data.mul_(factor)
        [setting] = measured_settings([suite.problem(model)], "input")
        found.append(setting.scores(np.array([0.0, 0.0, 3e-8, 1e-7, 1.0, -4e-8])))
    np.testing.assert_allclose(*found, atol=1e-3)
    assert found[0][SCORES.index("first")] in (0, 1)


def test_estimates_made_elsewhere_get_the_same_scores(entries, tmp_path, monkeypatch, capsys):
    stored = entries["attribution-patching"]
    write(tmp_path / "mine.json", method="elsewhere", estimates=stored["estimates"])
    monkeypatch.chdir(tmp_path)
    main(["bench", "mine.json", "--quick", "--member", *SMALL, "--out", "."])
    printed = capsys.readouterr()
    assert "elsewhere" in printed.out
    assert "1 of 1 problems: recall-attention-only-2" in printed.err
    assert read_entry("elsewhere.json")["scores"] == stored["scores"]
    main(["bench", "--verify", "elsewhere.json"])
    assert capsys.readouterr().out == "elsewhere.json: as stored; its method was not run\n"


def test_ranks_costs_and_refusals_that_were_forged_are_noticed(entries):
    """The first two estimates of `eap-ig` differ by less than estimates may: exchanged, they give
    another rank.
    """
    key = "recall-attention-only-2/2000/answer/logit/head"
    stored = read_entry(next(path for path in ENTRIES if path.stem == "eap-ig"))
    stored = stored | {"scores": {key: stored["scores"][key]}}
    a, b, *rest = stored["estimates"][key]
    forged = stored | {"estimates": {key: [b, a, *rest]}, "passes": None, "notes": {}}
    table = settings(members=SMALL)
    scored = run_bench({"eap-ig": forged}, table[table["key"] == key])["eap-ig"]
    assert scored["scores"][key][0] > stored["scores"][key][0] + 0.1
    [found] = differences(forged | {"scores": scored["scores"]})
    assert found.startswith(f"{key}: the scores are")
    entry = entries["attribution-patching"]
    assert differences(entry) == []
    [found] = differences(entry | {"passes": [0.0, 0.0]})
    assert found.startswith("the passes are")
    cut = {field: dict(entry[field]) for field in ("estimates", "scores")}
    for field in cut.values():
        del field[HEADS]
    [found] = differences(entry | cut | {"notes": {HEADS: "refused"}, "passes": None})
    assert found.startswith(f"{HEADS}: the entry has a note")


@patch.dict(METHODS)
def test_a_strangers_file_is_run_and_a_changed_entry_is_noticed(tmp_path, monkeypatch, capsys):
    (tmp_path / "stranger.py").write_text(
        "def size(p, nodes):\n    return p.nodes(nodes).assign(effect=range(len(p.nodes(nodes))))\n"
    )
    monkeypatch.chdir(tmp_path)
    main(["bench", "stranger:size", "--quick", "--member", *SMALL, "--out", "."])
    entry = read_entry("size.json")
    for field in ("estimates", "scores"):
        entry[field] = {HEADS: entry[field][HEADS]}
    (tmp_path / "size.json").write_text(entry_text(entry))
    main(["bench", "stranger:size", "--verify", "size.json"])
    assert capsys.readouterr().out.endswith("size.json: as stored; the method was run again\n")
    entry["scores"][HEADS][0] += 0.1
    assert differences(entry)[0].startswith(f"{HEADS}: the scores are")
    entry["scores"][HEADS][0] -= 0.1
    entry["estimates"][HEADS][0] += 1
    (tmp_path / "size.json").write_text(entry_text(entry))
    with pytest.raises(SystemExit):
        main(["bench", "--verify", "size.json"])


@patch.dict(METHODS)
def test_a_stop_keeps_what_was_measured_and_refusals_are_told(tmp_path, monkeypatch, capsys):
    (tmp_path / "stopper.py").write_text(
        "from tasks.config import ConfigError\n"
        "def stops(p, nodes):\n    if p.model.n_layers == 1:\n        raise KeyboardInterrupt\n"
        "    return p.nodes(nodes).assign(effect=1.0)\n"
        "def refuses(p, nodes):\n    raise ConfigError('I refuse.')\n"
        "def breaks(p, nodes):\n    return p.no_such\n"
        "def lacks(p):\n    pass\n"
    )
    monkeypatch.chdir(tmp_path)
    members = ["--member", *SMALL, "hand-set-kv-shift"]
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        main(["bench", "stopper:stops", "--quick", *members, "--out", "."])
    assert len(read_entry("stops.json")["scores"]) == 4
    methods = [f"stopper:{name}" for name in ("refuses", "breaks", "lacks")]
    main(["bench", *methods, "exact", "--quick", "--member", *SMALL])
    out = capsys.readouterr().out
    assert "refuses: I refuse." in out
    assert "breaks: failed in line 9: AttributeError: 'Problem' object has no attribute" in out
    assert "lacks: failed: TypeError: lacks() takes 1 positional argument but 2 were given" in out
    assert re.search(r"head +exact +1 ", out)


BAD = {
    "standard_set is None, but this ihlab has version": {"standard_set": None},
    "digest is 'x', but the standard set here has": {"digest": "x"},
    "There is no field 'estimate'; did you mean 'estimates'": {"estimate": {}},
    "there is no setting .*; did you mean": {"estimates": {HEADS[1:]: [1]}},
    "have 'a', but must be finite numbers": {"estimates": {HEADS: [1, "a", 2, 3]}},
    "have nan, but must be finite": {"estimates": {HEADS: [float("nan")]}},
    "are empty, but must have one number per node": {"estimates": {HEADS: []}},
    "scores is .*, but must be an object by setting": {"scores": [1]},
    "has 1 scores, but must have": {"scores": {HEADS: [1]}},
    "the note of .* is {}, but must be a sentence": {"notes": {HEADS: {}}},
    r"passes is \[1\], but must be \[forward, backward\]": {"passes": [1]},
    "method is '../../evil', but must be a name": {"method": "../../evil"},
    r"method is 'a\|b<img>', but must be a name": {"method": "a|b<img>"},
}


@pytest.mark.parametrize(("said", "content"), BAD.items())
def test_bad_entries_are_refused_in_a_sentence(said, content, tmp_path):
    write(tmp_path / "bad.json", **content)
    with pytest.raises(ConfigError, match=said):
        read_entry(tmp_path / "bad.json")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["x.json", "y.json"], "there is another entry of the method 'x'"),
        (["exact", "z.json"], "The method 'exact' is named, and has a file"),
        (["eap-igg"], "There is no method 'eap-igg'; did you mean 'eap-ig'"),
        (["--verify", "x.json", "--member", "hand-set-kv-shift"], "nothing to measure again"),
        (
            ["--verify", "w.json"],
            "'nobody' is no method of ihlab: there is nothing to measure again",
        ),
    ],
)
def test_wrong_questions_are_refused(arguments, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name, method in (("x", "x"), ("y", "x"), ("z", "exact")):
        write(tmp_path / f"{name}.json", method=method, estimates={HEADS: [1, 2, 3, 4]})
    write(tmp_path / "w.json", method="nobody", scores={HEADS: [0.0] * len(SCORES)})
    with pytest.raises(SystemExit):
        main(["bench", *arguments])
    assert said in " ".join(capsys.readouterr().err.split())


def test_too_few_numbers_are_a_note_and_no_pass(entries):
    entry = new_entry("x") | {"estimates": {HEADS: [1.0]}, "scores": {HEADS: [1.0] * len(SCORES)}}
    table = settings(True, SMALL)
    [scored] = run_bench({"x": entry}, table[table["key"] == HEADS]).values()
    assert scored["notes"][HEADS] == f"The entry has 1 numbers for {HEADS}, but must have 4."
    assert f"{HEADS}: the entry has scores, but they are missing now" in differences(entry)


def test_a_member_without_a_quick_setting_is_named():
    with pytest.raises(ConfigError, match="hops-vanilla-3-layers has no quick setting"):
        settings(True, ["induction-vanilla-2", "hops-vanilla-3-layers"])


# The leaderboard


def test_cutting_splitting_adding_or_copying_an_entry_raises_no_method(entries):
    """An entry without every setting has no rank, and a second entry of one name is refused."""
    table = settings(True, SMALL)

    def order(listed):
        rows = summary(listed, table)
        return rows[rows["whole"] & (rows["nodes"] == "head")]["method"].tolist()

    first = order(entries.values())
    assert set(first[:3]) == set(TRUTHS)
    whole = dict.fromkeys(settings()["key"]) | entries["random"]["scores"]
    for changed in ({"scores": {}}, {"scores": {}, "notes": dict.fromkeys(whole, "refused")}):
        cut = entries | {"random": entries["random"] | changed}
        assert order(cut.values()) == [name for name in first if name != "random"]
    more = {key: [1.0] * len(SCORES) for key in settings()["key"]}
    added = entries | {"random": entries["random"] | {"scores": more | entries["random"]["scores"]}}
    assert order(added.values()) == first
    copies = [*entries.values(), entries["random"] | {"method": "random-2"}]
    assert [name for name in order(copies) if name != "random-2"] == first


def test_the_leaderboard_is_that_of_the_stored_entries():
    stored = (Path(__file__).parents[2] / "docs" / "leaderboard.md").read_text()
    assert page(read_entries(ENTRIES).values()) == stored


def test_stored_entries_are_what_is_measured_again():
    """Their estimates get the same scores, and their methods give the same estimates."""
    stored, table = read_entries(ENTRIES), settings(True, SMALL)
    again = [run_bench(methods, table) for methods in (stored, dict.fromkeys(stored))]
    for name, entry in stored.items():
        for key, field in product(table["key"], ("estimates", "scores")):
            if key in entry[field]:
                found = [np.array(each[name][field][key], dtype=float) for each in again]
                right = np.array(entry[field][key], dtype=float)
                largest = np.abs(right).max() if field == "estimates" else 1
                np.testing.assert_allclose(found, [right, right], atol=0.01 * largest)
        assert entry["scores"].keys() & set(table["key"])
