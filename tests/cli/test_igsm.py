"""`ihlab sample igsm`: the graphs that it prints, and one sentence for what cannot be."""

import re
from pathlib import Path

import pytest

from ihlab.cli import main

pytestmark = pytest.mark.slow

TOY = ("--ops", "3", "--format", "compact", "--length", "128")


def sampled(*args: str) -> None:
    main(["sample", "igsm", *args])


def test_the_problem_its_solution_and_both_graphs_are_printed(capsys):
    sampled(*TOY)
    text, _, graphs = capsys.readouterr().out.partition("\nStructure\n")
    structure, _, dependencies = graphs.partition("\n\nDependencies\n")
    owner, owned = re.search(r"^(\w+) (\w+) \?$", text, re.M).groups()
    answer = re.search(r"<ans> \[(\d)\] <eos>$", text, re.M).group(1)
    assert re.search(rf"^\? {owner}'s {owned} += {answer} <- ", dependencies, re.M)
    for x, y in re.findall(r"^(\w+) (\w+) = ", text, re.M):  # every sentence is a line's item and what it has
        assert re.search(rf"^  {x}: (\w+, )*{y}\b", structure, re.M)


@pytest.mark.parametrize(
    ("task", "args", "sentence"),
    [
        (
            "igsm",
            ["--length", "4"],  # the shortest problem and its solution are longer
            r"IGSMTask.length is 4, which fits only 0% of the problems; \d+ would fit 99%.",
        ),
        (
            "igsm",
            ["--length", "130"],
            r"IGSMTask.length is 130, which fits only [5-9]\d% of the problems; 1[3-9]\d would fit 99%.",
        ),
    ],
)
def test_what_cannot_be_gets_one_sentence_and_no_file(fails, tmp_path, monkeypatch, task, args, sentence):
    monkeypatch.chdir(tmp_path)
    code, printed = fails("sample", task, *args)
    assert code == 2
    pattern = sentence if "\\d" in sentence else re.escape(sentence)
    assert re.fullmatch(f"ihlab: {pattern}\n", printed)
    assert not list(tmp_path.iterdir())


def test_the_guide_prints_what_the_command_prints(capsys):
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "igsm.md").read_text(encoding="utf-8")
    command, printed = re.search(r"`ihlab (sample igsm [^`]*)` prints[^`]*```text\n(.*?)```", guide, re.S).groups()
    main(command.split())
    assert capsys.readouterr().out.strip() == printed.strip()
