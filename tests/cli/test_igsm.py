"""`ihlab sample igsm`: the graphs that it prints and draws, and one sentence for what cannot be."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import matplotlib.image
import pytest

from ihlab.cli import main

pytestmark = pytest.mark.slow

TOY = ("--ops", "3", "--format", "compact", "--length", "128")


def sampled(*args: str) -> None:
    main(["sample", "igsm", *args])


def words_of(path) -> list[str]:
    return [text.text for text in ET.parse(path).iter("{http://www.w3.org/2000/svg}text")]


def test_the_problem_its_solution_and_both_graphs_are_printed(capsys):
    sampled(*TOY)
    text, _, graphs = capsys.readouterr().out.partition("\nStructure\n")
    structure, _, dependencies = graphs.partition("\n\nDependencies\n")
    owner, owned = re.search(r"^(\w+) (\w+) \?$", text, re.M).groups()
    answer = re.search(r"<ans> \[(\d)\] <eos>$", text, re.M).group(1)
    assert re.search(rf"^\? {owner}'s {owned} += {answer} <- ", dependencies, re.M)
    for x, y in re.findall(r"^(\w+) (\w+) = ", text, re.M):  # every sentence is a line's item and what it has
        assert re.search(rf"^  {x}: (\w+, )*{y}\b", structure, re.M)


def test_out_draws_a_picture_of_each_graph_of_each_row(tmp_path, capsys):
    sampled(*TOY, "--rows", "2", "--out", str(tmp_path / "new" / "problem.svg"))
    graphs = ("dependencies", "structure")
    expected = {f"problem-{row}-{graph}.svg" for row in range(2) for graph in graphs}
    assert {path.name for path in (tmp_path / "new").iterdir()} == expected
    printed = capsys.readouterr().out
    asked = re.findall(r"^(\w+) (\w+) \?$", printed, re.M)
    assert len(asked) == 2
    for row, (owner, owned) in enumerate(asked):
        for graph in graphs:
            path = tmp_path / "new" / f"problem-{row}-{graph}.svg"
            assert f"How many {owned} does each {owner} have?  (op = 3)" in words_of(path)
            assert f"{path}: " in printed  # its size


def test_out_draws_png_and_of_a_flat_problem_only_the_dependencies(tmp_path):
    sampled("--kind", "igsm_flat", "--ops", "5", "--length", "400", "--out", str(tmp_path / "flat.png"))
    [path] = tmp_path.iterdir()
    assert path.name == "flat-0-dependencies.png"
    assert min(matplotlib.image.imread(path).shape[:2]) > 100


def test_pictures_are_written_again_and_the_same(tmp_path):
    """As with `heads --out`: a file of that name is replaced."""
    sampled(*TOY, "--out", str(tmp_path / "problem.svg"))
    first = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for path in first:
        path.write_text("something else")
    sampled(*TOY, "--out", str(tmp_path / "problem.svg"))
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == first


@pytest.mark.parametrize(
    ("task", "args", "sentence"),
    [
        ("igsm", ["--out", "x.pdf"], "--out is 'x.pdf', but must end in .png or .svg."),
        (
            "induction",
            ["--out", "x.svg"],
            "--out is 'x.svg', but only igsm has graphs to draw: leave it out for induction.",
        ),
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
    command, printed = re.search(
        r"`ihlab (sample igsm [^`]*)` prints[^`]*`[^`]*`[^`]*```text\n(.*?)```", guide, re.S
    ).groups()
    main(command.split())
    assert capsys.readouterr().out.strip() == printed.strip()
