"""A solution drawn as it was written: its tokens in order, how sure each was, each finding beside its step."""

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from ihlab.igsm.written import MOST_LETTERS, written_solution
from ihlab.plots.style import ORANGE
from tasks import ConfigError
from tasks.igsm.verify import findings
from tests.igsm.readable import assert_readable
from tests.tasks.igsm.solutions_by_hand import COMPACT, LONG, NATURAL, RIGHT


def drawn(figure) -> list[list[str]]:
    """The texts of each line, from left to right, lines from top to bottom; without title."""
    texts = [text for text in figure.axes[0].texts if text.get_position()[1] < 0 and text.get_text()]
    heights = sorted({text.get_position()[1] for text in texts}, reverse=True)
    by_height = [[text for text in texts if text.get_position()[1] == height] for height in heights]
    return [[t.get_text() for t in sorted(line, key=lambda t: t.get_position()[0])] for line in by_height]


def certain(words: str) -> np.ndarray:
    return np.ones(len(words.split()))


def test_a_step_is_a_line_and_so_is_each_clause_after_its_first():
    figure = written_solution(LONG.split(), findings(NATURAL, LONG.split()), certain(LONG), "a title")
    assert [" ".join(line) for line in drawn(figure)] == [
        "Define Riga 's Ketch as a ; so a = 7 . no error",
        "Define Bergen 's Sloop as b ; so b = 3 . no error",
        "Define Bergen 's Ketch as c ; d = b + a = 3 + 7 = 10 ;",
        "so c = 2 * d = 2 * 10 = 20 . no error",
        "<ans> 20 <eos> no error",
    ]
    assert figure.axes[0].texts[0].get_text() == "a title"


def test_an_endless_line_is_wrapped():
    written = ["Sloop"] * 60 + ["."] + ["k", "="] * 60
    figure = written_solution(written, findings(COMPACT, written), np.ones(len(written)))
    lines = drawn(figure)
    assert [word for line in lines for word in line if word != "format"] == [*written, "not judged"]
    assert max(len(" ".join(line[:-1])) for line in lines) <= MOST_LETTERS


def test_white_is_certain_and_orange_is_impossible():
    probability = certain(RIGHT)
    probability[[1, 5]] = 0.0, 0.5
    figure = written_solution(RIGHT.split(), findings(COMPACT, RIGHT.split()), probability)
    boxes = [p for p in figure.axes[0].patches if type(p) is Rectangle]
    colors = [to_hex(box.get_facecolor()).upper() for box in boxes]
    assert len(colors) == len(RIGHT.split())
    assert colors[1] == ORANGE
    assert "#E69F00" < colors[5] < "#FFFFFF"
    assert set(np.delete(colors, [1, 5])) == {"#FFFFFF"}


@pytest.mark.parametrize(("problem", "solution"), [(COMPACT, RIGHT), (NATURAL, LONG), (COMPACT, "<eos>")])
def test_no_text_covers_another_or_leaves_the_page(problem, solution):
    figure = written_solution(
        solution.split(), findings(problem, solution.split()), certain(solution), "KV shifting, a failed problem"
    )
    figure.canvas.draw()
    assert_readable(figure, [text for axes in figure.axes for text in axes.texts if text.get_text()])


def test_each_token_needs_a_probability():
    with pytest.raises(ConfigError, match="There are 2 probabilities for 3 tokens, but each token needs one"):
        written_solution(["<ans>", "0", "<eos>"], ["no error"], np.ones(2))
