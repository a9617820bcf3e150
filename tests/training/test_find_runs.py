"""Runs are found by what people type, and a damaged one hides no other."""

import pytest

from ihlab import Run, kept
from ihlab.cli.paths import find_run
from tasks import ConfigError


@pytest.fixture
def made(small, tmp_path, monkeypatch):
    """Runs under `runs` of the working directory: short, short-too and another."""
    monkeypatch.chdir(tmp_path)
    names = ("short", "short-too", "another")
    return {
        name: Run.create(small.replace(name=name, seed=seed), "runs").folder
        for seed, name in enumerate(names)
    }


def test_a_run_opens_by_its_name_or_a_unique_prefix_as_the_commands_find_it(made, tmp_path):
    for name in (
        "another",
        "runs/another",
        made["another"].name,
        str(made["another"]),
        "short",
        "short-t",
    ):
        assert (
            Run.open(name).folder.resolve() == find_run(name, tmp_path / "runs").folder.resolve()
        ), name
    assert Run.open("short").folder == made["short"]  # a whole name goes before the longer one
    assert Run.open("ano", root=tmp_path / "runs").folder == tmp_path / made["another"]
    assert Run.open(kept.names()[0]).folder == kept.path(kept.names()[0])


def test_several_and_none_are_sentences_with_the_names(made):
    with pytest.raises(ConfigError) as error:
        Run.open("sho")
    both = f"{made['short'].name}, {made['short-too'].name}"
    assert str(error.value) == f"2 runs in runs are called 'sho': {both}; give more of its name."
    with pytest.raises(ConfigError, match=r"There is no run 'anther'; did you mean 'another'\?"):
        Run.open("anther")
    with pytest.raises(
        ConfigError, match=r"There are no runs in nowhere \(No such file or directory\)\."
    ):
        Run.open("another", root="nowhere")
    for root in ("runs", "nowhere"):  # runs that come with ihlab are suggested, too
        with pytest.raises(
            ConfigError, match="There is no run 'vanila-2-layers'; did you mean 'vanilla-2-layers'"
        ):
            Run.open("vanila-2-layers", root=root)


def test_a_path_is_not_searched_for(made):
    with pytest.raises(ConfigError, match="another is not a run folder"):
        Run.open(made["short"].parent / "another")
