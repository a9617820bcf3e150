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
    for x, y in re.findall(
        r"^(\w+) (\w+) = ", text, re.M
    ):  # every sentence is a line's item and what it has
        assert re.search(rf"^  {x}: (\w+, )*{y}\b", structure, re.M)


@pytest.mark.parametrize(
    ("length", "fits", "would"), [("4", "0", r"\d+"), ("130", r"[5-9]\d", r"1[3-9]\d")]
)
def test_a_length_that_most_problems_exceed_gets_one_sentence_and_no_file(
    fails, tmp_path, monkeypatch, length, fits, would
):
    monkeypatch.chdir(tmp_path)
    code, printed = fails("sample", "igsm", "--length", length)
    assert code == 2
    fitting = rf"fits only {fits}% of the problems; {would} would fit 99%\.\n"
    sentence = rf"ihlab: IGSMTask.length is {length}, which {fitting}"
    assert re.fullmatch(sentence, printed)
    assert not list(tmp_path.iterdir())


def test_the_guide_prints_what_the_command_prints(capsys):
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "igsm.md").read_text(encoding="utf-8")
    command, printed = re.search(
        r"`ihlab (sample igsm [^`]*)` prints[^`]*```text\n(.*?)```", guide, re.S
    ).groups()
    main(command.split())
    assert capsys.readouterr().out.strip() == printed.strip()
