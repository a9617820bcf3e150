"""The members: a table of valid configs; built again they are equal."""

import numpy as np
import pytest
import torch

from ihlab import Run, kept, suite, train
from ihlab.measure.batches import EVAL_SEED, draw
from ihlab.measure.guess import guess_of
from ihlab.suite import members
from ihlab.training.config import TaughtConfig
from ihlab.training.ensemble import best_stack
from ihlab.training.train import train_ensemble
from tasks import ConfigError

SHIPPED = sorted(members.MEMBERS.keys() & set(kept.names()))


def test_every_member_has_12_to_20_checkpoints_and_stacked_seeds():
    digests = set()
    for name in members.MEMBERS:
        configs = [members.config(name, seed) for seed in members.SEEDS]
        least = 7 if isinstance(configs[0], TaughtConfig) else 12  # a taught run may end early
        assert least <= len(configs[0].checkpoint_steps()) <= 20, name
        stacked = best_stack(configs[0], len(configs), torch.device("cpu"))
        assert configs[0].model.dropout or stacked >= len(configs), name
        digests.update(config.digest for config in configs)
    assert len(digests) == 3 * len(members.MEMBERS)


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_member_is_the_run_of_its_config(name):
    assert suite.run(name).config.digest == members.config(name).digest
    accuracy = suite.run(name).metrics[members.accuracy_of(name)].iloc[-1]
    assert (accuracy >= members.LEARNED) == (name not in members.NEGATIVE)


@pytest.mark.parametrize("name", members.DEEP)
def test_a_deep_member_is_asked_for_the_most_hops_that_it_learned(name):
    run = suite.run(name)
    hops = range(1, run.config.task.max_hops + 1)
    learned = [n for n in hops if run.metrics[f"accuracy_hops_{n}"].iloc[-1] >= members.LEARNED]
    assert learned == list(range(1, members.DEEP[name] + 1))
    suite.problem(run.model(), hops=members.hops_of(name, run.config.task))


@pytest.mark.slow
def test_a_shipped_member_trained_again_is_equal(tmp_path):
    name = "induction-kv-shift-1"

    def stop(row):
        if row["step"] > 180:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        train(members.config(name), tmp_path, device="cpu", report=lambda *_: None, callback=stop)
    again = Run.open(members.config(name).folder(tmp_path))
    for step in (0, 90, 180):
        stored, trained = (run.model(step).state_dict() for run in (suite.run(name), again))
        torch.testing.assert_close(trained, stored, rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.usefixtures("short")
def test_built_twice_or_resumed_the_weights_are_equal(tmp_path):
    name, roots = "recall-kv-shift-1", [tmp_path / root for root in ("one", "two", "resumed")]

    def stop(row):
        if row["step"] == 8:
            raise InterruptedError

    configs = [members.config(name, seed) for seed in members.SEEDS]
    with pytest.raises(InterruptedError):
        train_ensemble(configs, roots[2], "cpu", lambda *_: None, stack=3, callback=stop)
    one, *others = [suite.build([name], root, jobs=1, device="cpu") for root in roots]
    for other in others:
        for run, again in zip(one, other, strict=True):
            states = (each.model().state_dict() for each in (run, again))
            torch.testing.assert_close(*states, rtol=0, atol=0)
    table = suite.models(roots[0]).set_index("name")
    assert table.loc[name, "seeds"] == "0 1 2"
    assert table.loc[name, "accuracy"] == one[0].metrics["accuracy"].iloc[-1]
    assert (table["seeds"] != "").sum() == 1 + len(members.HAND_SET)


def test_the_table_lists_parameters_and_what_can_be_loaded(tmp_path):
    table = suite.models(tmp_path).set_index("name")
    assert {*SHIPPED, *members.DEEP, *members.HAND_SET} == set(table.index[table["seeds"] != ""])
    assert set(table.index[table["kind"] == "negative"]) == members.NEGATIVE
    for name in SHIPPED:
        assert table.loc[name, "parameters"] == suite.run(name).done["n_params"]
    assert table.loc["induction-vanilla-2", "onset"] > table.loc["induction-kv-shift-1", "onset"]


def test_an_onset_is_halfway_from_the_best_guess_to_1_and_only_of_what_was_learned():
    run = suite.run("recall-attention-only-2")
    batch = draw(run.config.task, EVAL_SEED, "eval", 0, run.config.eval_rows)
    reached = run.metrics[run.metrics["accuracy"] >= (1 + guess_of(batch)) / 2]
    assert members.onset_of(run, "accuracy") == reached["step"].iloc[0]
    unlearned = suite.run("2-hop-vanilla-2")  # it ends at .85 after two hops
    assert np.isnan(members.onset_of(unlearned, "accuracy_hops_2"))


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (
            ("induction-vanila-2",),
            "no member of the suite 'induction-vanila-2'; did you mean 'induction-vanilla-2'?",
        ),
        (("induction-vanilla-2", 3), "seed is 3, but the suite has the seeds 0 to 2."),
        (("induction-vanilla-2", 0, 91), "has no checkpoint at step 91; it has 0, 90, 180,"),
        (
            ("2-hop-vanilla-3",),
            "2-hop-vanilla-3 with seed 0 is not in nowhere: 'ihlab suite build 2-hop-vanilla-3' trains",
        ),
        (
            ("hops-vanilla-3-layers", 1),
            "seed is 1, but the suite has only seed 0 of hops-vanilla-3-layers.",
        ),
        (("hand-set-kv-shift", 1), "is set by hand: it has only seed 0 and step 0."),
    ],
)
def test_what_is_not_there_is_a_sentence(asked, sentence):
    with pytest.raises(ConfigError) as error:
        suite.load(*asked, root="nowhere")
    assert sentence in str(error.value)


@pytest.mark.parametrize("name", [["a"], None, "a\0"])
@pytest.mark.parametrize(
    "of_member", [suite.run, suite.load, suite.truth, suite.card, lambda name: suite.build([name])]
)
def test_a_name_of_any_type_is_refused_in_a_sentence(of_member, name):
    with pytest.raises(ConfigError, match="member of the suite"):
        of_member(name)


@pytest.mark.parametrize("folder", ["file", "file/in", "a\0", None])
@pytest.mark.parametrize(
    "use",
    [
        lambda folder: suite.run("2-hop-vanilla-3", root=folder),
        lambda folder: suite.build(["2-hop-vanilla-3"], folder),
        suite.models,
        suite.read_truth,
        lambda folder: suite.export("induction-vanilla-2", folder),
    ],
)
def test_what_is_no_folder_is_refused_in_a_sentence(tmp_path, monkeypatch, use, folder):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(
        ConfigError, match=r"but must be the path of a folder|null character|is not a folder"
    ):
        use(folder)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
