"""The list of head scores, used by `help(head_scores)`, `ihlab heads` and the viewer's tags."""

import textwrap
from dataclasses import dataclass


@dataclass(frozen=True)
class Column:
    """A column of `ihlab.interp.head_scores`.

    - `name`: its name in the DataFrame, in commands, pictures and guides;
    - `meaning`: what it measures;
    - `printed`: `ihlab heads` prints it;
    - `error`: the column with its standard error;
    - `tag`: the viewer's name for a head that scores at least a half.
    """

    name: str
    meaning: str
    printed: bool = False
    error: str = ""
    tag: str = ""


COLUMNS = (
    Column(
        "prefix_matching",
        "attention to the tokens after earlier occurrences of the token",
        printed=True,
        tag="induction",
    ),
    Column(
        "prefix_matching_sd",
        "standard deviation of prefix_matching over random probes, if there are several",
    ),
    Column(
        "same_distance_control",
        "control: attention to the same distance, with no match there",
        printed=True,
    ),
    Column(
        "induction_stripe",
        "prefix matching on tokens read twice, over every query with a match",
        printed=True,
    ),
    Column("previous_token", "attention to the token before", printed=True, tag="previous token"),
    Column(
        "duplicate_token", "attention to earlier occurrences of the token", tag="duplicate token"
    ),
    Column(
        "first_position",
        "attention to the first token, where a head rests that finds nothing to read",
        tag="idle",
    ),
    Column(
        "best_offset",
        "the distance at which the head attends most where nothing matches: 1 is the token before",
    ),
    Column("best_offset_weight", "attention to that distance"),
    Column("eigenvalue_copying", "1: the weights raise the token that is read; -1: suppress it"),
    Column(
        "loss_rise",
        "rise of the task's loss when the head is mean-ablated",
        printed=True,
        error="loss_rise_error",
    ),
    Column("loss_rise_error", "standard error of loss_rise over sequences"),
    Column("accuracy_fall", "fall of the task's accuracy when the head is mean-ablated"),
)


def explained(indent: str = "") -> str:
    """Return a text list of all columns with their meanings."""
    lines = [
        textwrap.fill(f"- {column.name}: {column.meaning}", 88, subsequent_indent="  ")
        for column in COLUMNS
    ]
    return textwrap.indent("\n".join(lines), indent)
