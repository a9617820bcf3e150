"""The help of the commands: every option says in words what it is."""

import re
import shlex
from functools import wraps

import pytest

from ihlab import cli
from ihlab.cli import COMMANDS, OF_TASKS, main
from ihlab.cli.overview import GROUPS
from ihlab.training.config import RunConfig
from tasks import TASKS

KINDS = ("induction", "multihop", "ngram", "mqar", "igsm", "text", "trigger")
PAGES = [[command] for command in sorted(COMMANDS.keys() - OF_TASKS)] + [
    [c, kind] for c in OF_TASKS for kind in KINDS
]


@pytest.fixture
def help_of(capsys, monkeypatch):
    """Returns the help of a command without its boxes, and its options: what stands before the
    default of each.
    """
    monkeypatch.setenv("COLUMNS", "100")

    def read(*command):
        with pytest.raises(SystemExit) as stopped:
            main([*command, "--help"])
        assert stopped.value.code == 0
        page = re.sub(r"[│╭╮╰╯─]|--{2,}", " ", capsys.readouterr().out)
        said = [
            " ".join(part.split()) for part in re.split(r"^ *(?=--[a-z])", page, flags=re.M)[1:]
        ]
        return page, {
            part.split()[0].rstrip(","): re.split(r" \((?:default|required)", part)[0]
            for part in said
        }

    return read


@pytest.mark.parametrize("command", PAGES, ids=" ".join)
def test_every_option_is_explained_in_a_sentence(help_of, command):
    page, options = help_of(*command)
    assert len(options) >= 1
    silent = {name: said for name, said in options.items() if not re.search(r"[\w)]\.$", said)}
    assert not silent
    assert not re.search("type: ignore|noqa", page)


def test_the_help_of_train_shows_the_defaults_of_run_config_and_names_the_other_tasks(help_of):
    page, options = help_of("train")
    text, run = " ".join(page.split()), RunConfig()
    for prefix, config, names in (
        ("", run, ("steps", "lr", "warmup", "batch_size")),
        ("task.", run.task, ("vocab_size", "length")),
        ("model.", run.model, ("n_layers", "d_model", "d_vocab", "n_ctx", "attention")),
    ):
        for name in names:
            option = re.escape(f"--{prefix}{name.replace('_', '-')} ")
            default = re.search(rf"{option}(?:(?!--[a-z]).)*?\(default: ([^)]*)\)", text)[1]
            assert default == str(getattr(config, name)), name
    assert all(re.search(rf"\b{kind}\b", page) for kind in TASKS)
    assert options == help_of("train", "induction")[1]


def test_the_help_of_train_shows_the_context_of_the_task_that_is_named(help_of):
    page = " ".join(help_of("train", "--task.length", "20")[0].split())
    assert re.search(r"--model.n-ctx INT [^(]*\(default: 20\)", page)


def test_the_overview_has_every_command_once_with_an_example_that_is_accepted(capsys, monkeypatch):
    named = [name for examples in GROUPS.values() for name in examples]
    assert sorted(named) == sorted(COMMANDS)
    monkeypatch.setenv("COLUMNS", "200")
    main([])
    page = capsys.readouterr().out
    called = []

    def only_parsed(command):
        return wraps(command)(lambda *args, **options: lambda: called.append(command.__name__))

    monkeypatch.setattr(cli, "later", only_parsed)
    for examples in GROUPS.values():
        for example in examples.values():
            assert example in page
            main(shlex.split(example)[1:])
    assert [name.partition("_")[0] for name in called] == named
