"""The scores of a head, listed once.

`help(head_scores)`, the table and the picture of `ihlab heads` and the viewer's tags are taken from here.
"""

import textwrap
from dataclasses import dataclass


@dataclass(frozen=True)
class Column:
    """A column of `ihlab.interp.head_scores`.

    - `name`: its name in the DataFrame;
    - `meaning`: what it says of a head;
    - `head`: the column head that `ihlab heads` prints; "": the column is not printed;
    - `error`: the column with its standard error;
    - `drawn`: it stands above each pattern in the picture of `ihlab heads --out`;
    - `tag`: what the viewer calls a head with at least half of its attention there.
    """

    name: str
    meaning: str
    head: str = ""
    error: str = ""
    drawn: bool = False
    tag: str = ""


COLUMNS = (
    Column(
        "prefix_matching",
        "attention to the tokens after earlier occurrences of the token",
        head="prefix matching", drawn=True, tag="induction",
    ),
    Column(
        "fixed_distance",
        "control: attention to the same distance, with no match there",
        head="same distance",
    ),
    Column(
        "induction_stripe",
        "tokens read twice: attention to what followed the first time",
        head="induction stripe", drawn=True,
    ),
    Column(
        "previous_token", "attention to the token before", head="previous token", drawn=True, tag="previous token"
    ),
    Column("duplicate_token", "attention to earlier occurrences of the token", tag="duplicate token"),
    Column("first_position", "attention to the first token, where a head attends that finds nothing", tag="idle"),
    Column("copying", "of the logits that the head raises, the fraction on the token it attends to"),
    Column(
        "eigenvalue_copying",
        "1: the weights raise the token that is read; -1: suppress it",
        head="copying", drawn=True,
    ),
    Column("loss_rise_zero", "rise of the task's loss when the head is zero-ablated"),
    Column(
        "loss_rise_mean",
        "rise of the task's loss when the head is mean-ablated",
        head="loss rise", error="loss_rise_mean_error",
    ),
    Column("loss_rise_mean_error", "standard error of loss_rise_mean over sequences"),
    Column("accuracy_fall_zero", "fall of the task's accuracy when the head is zero-ablated"),
    Column("accuracy_fall_mean", "fall of the task's accuracy when the head is mean-ablated"),
)  # fmt: skip


def explained(indent: str = "") -> str:
    """Return a list of all columns and what they mean."""
    lines = [textwrap.fill(f"- {column.name}: {column.meaning}", 88, subsequent_indent="  ") for column in COLUMNS]
    return textwrap.indent("\n".join(lines), indent)
