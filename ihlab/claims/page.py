"""The page of results: every figure with its picture, its sentence and its claims, as Markdown for a code host."""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from ihlab.claims.experiment import SCALES, Scale
from ihlab.claims.ledger import Folder, number
from ihlab.files import write_text
from tasks.config import require

MARKS = {"holds": "✔", "fails": "✘", "undecided": "?", "not tested at this scale": "–"}
"""The mark of each verdict; it reads without colour."""

COUNTED = [f"{mark} {verdict.removesuffix(' at this scale')}" for verdict, mark in MARKS.items()]
"""Headings of the columns that count verdicts."""

TITLES = {
    "formation": "Formation of induction heads",
    "mqar": "MQAR",
    "table2": "Tables 2, 14 and 15, as printed",
    "tables6to13": "Tables 6 to 13",
    "saved_layer": "The shift against one more layer",
    "shift_halves": "Keys or values alone",
    "one_more_layer": "One more layer with the shift",
    "elsewhere": "Shifting elsewhere",
    "zoo": "Attention variants",
    "text": "Real text",
}
"""Titles of experiments that do not follow from the name."""

SCALE_TITLES: dict[Scale, str] = {
    "smoke": "Smoke scale (seconds; it tests the code and shows nothing)",
    "laptop": "Laptop scale (two CPU cores)",
    "gpu": "GPU scale (one GPU)",
    "paper": "Paper scale (the paper's own sizes)",
}

OWN = "our own question: "
"""Prefix to the source of a sentence that is not the paper's."""

WRITTEN_BY = "<!-- Written by `ihlab reproduce` from the folders beside it: do not edit. -->"

_HOLDS, _FAILS, _UNDECIDED, _NOT_TESTED = MARKS.values()

HEAD = f"""{WRITTEN_BY}

# What of the paper holds, claim by claim

Numbers measured over seeds carry a 95% interval and are held against a threshold declared before the runs: a claim
*holds* ({_HOLDS}) or *fails* ({_FAILS}) only if its p-value, adjusted by Holm over the claims of one experiment,
is at most 0.05, and is *undecided* ({_UNDECIDED}) otherwise. Numbers that are counted, not sampled, are compared with
their threshold directly, and a claim that a small scale cannot test is marked *not tested at this scale*
({_NOT_TESTED}). Intervals and p-values are Student's t for means over seeds and their differences, those that invert
the Mann-Whitney test for ratios of steps (a run that never gets there took longer than all its steps), the sign test
for medians of differences within a seed, Clopper and Pearson's or Newcombe's for shares of models, and Korn and
Graubard's for shares of heads, which come in models. An interval is of its claim alone: beside one that is clear of the
threshold a claim can still be undecided. The ratio of two runs of which one never gets there counts as the bound that
its steps set, and that of two such runs only widens the interval.

Small print gives the source of each sentence and the date at which its threshold was declared. Where the measure was
changed after the runs, it says when and why, and gives the number and the verdict by the declared one; the table counts
the new one, and its last row the declared ones. Rows that were asked after their runs say so; those of the paper's
printed tables need no runs, and their thresholds were chosen when the tables had been read. Some sentences are not the
paper's but questions of our own, and say so; the table counts them after a plus. A sentence that the paper says of a
large model is asked here of a small one on toy tasks or a little text, of which alone its verdict speaks."""

START, END = "<!-- verdicts -->", "<!-- /verdicts -->"
"""Markers in a README around the counts."""


def write_results_page(root: Path, order: Sequence[str] = ()) -> Path:
    """Write `results_page` to `<root>/README.md` and return that path.

    Raises `ConfigError` if the README.md there was not written by this function.
    """
    path = require_own(root)
    write_text(path, results_page(root, order))
    return path


def require_own(root: Path) -> Path:
    """Return the path of the page under `root`. Raises `ConfigError` for one not written by `write_results_page`."""
    path = root / "README.md"
    ours = not path.exists() or path.read_text(encoding="utf-8").startswith(WRITTEN_BY)
    require(ours, f"{path} was not written by 'ihlab reproduce' and is kept; the page of results needs another folder.")
    return path


def results_page(root: Path, order: Sequence[str] = ()) -> str:
    """Return the page of results of the folders under `root` as Markdown.

    Experiments come in the given `order`, those it does not name after them alphabetically.
    """
    parts = [HEAD, counts_table(root, order) or "There are no figures yet."]
    for scale, folders in groupby(result_folders(root, order), key=lambda folder: folder.scale):
        parts.append(f"## {SCALE_TITLES[scale]}")
        parts.extend(_section(folder) for folder in folders)
    return "\n\n".join(parts) + "\n"


def result_folders(root: Path, order: Sequence[str] = ()) -> list[Folder]:
    """Return every folder with claims, scale by scale; smoke scale only if there is no other."""
    names = {path.parent.parent.name for path in root.glob("*/*/claims.json")}
    ordered = [name for name in order if name in names] + sorted(names.difference(order))
    every = [Folder(root, name, scale) for scale in SCALES for name in ordered]
    found = [folder for folder in every if (folder.path / "claims.json").exists()]
    return [folder for folder in found if folder.scale != "smoke"] or found


def counts(root: Path) -> dict[Scale, dict[str, tuple[int, int]]]:
    """Return, at each scale that the page shows, how many claims have each verdict: the paper's, and our own."""
    return {
        scale: _verdict_counts([claim for folder in folders for claim in folder.claims()])
        for scale, folders in groupby(result_folders(root), key=lambda folder: folder.scale)
    }


def counts_table(root: Path, order: Sequence[str] = (), page: str = "") -> str:
    """Return the counts of each experiment's verdicts as a Markdown table, with their sum at each scale.

    Each row links to its section of `page`, a path relative to the file that contains the table ("": the same file).
    """
    totals, rows = counts(root), []
    for scale, grouped in groupby(result_folders(root, order), key=lambda folder: folder.scale):
        folders = list(grouped)
        for folder in folders:
            link = f"[{heading(folder)}]({page}#{anchor(heading(folder))})"
            rows.append([link, *map(_sum, _verdict_counts(folder.claims()).values())])
        rows.append([f"**{cell}**" for cell in (f"all, {scale}", *map(_sum, totals[scale].values()))])
        declared = _verdict_counts([claim.get("first", claim) for folder in folders for claim in folder.claims()])
        if declared != totals[scale]:
            rows.append([f"all, {scale}, as first declared", *map(_sum, declared.values())])
    return _table(["figure", *COUNTED], rows, align="---:")


def short_table(root: Path) -> str:
    """Return the counts as a Markdown table with one row for each scale, the paper's sentences only."""
    rows = [[scale, *(str(n) for n, _ in tally.values())] for scale, tally in counts(root).items()]
    return _table(["scale", *COUNTED], rows, align="---:")


def update_counts(readme_text: str, root: Path) -> str:
    """Return the text with `short_table` between its markers; a text without markers stays as it is."""
    between = f"{re.escape(START)}.*?{re.escape(END)}"
    return re.sub(between, lambda _: f"{START}\n\n{short_table(root)}\n\n{END}", readme_text, flags=re.DOTALL)


def heading(folder: Folder) -> str:
    """Return the heading of a folder's section, such as "Figure 1a, laptop"."""
    return f"{title(folder.experiment)}, {folder.scale}"


def title(name: str) -> str:
    """Return an experiment's title: "figure1a" is "Figure 1a", "basin_map" is "Basin map"."""
    return TITLES.get(name) or re.sub(r"(?<=[a-z])(?=\d)", " ", name.replace("_", " "), count=1).capitalize()


def anchor(text: str) -> str:
    """Return the anchor that a code host gives a heading: lower case, hyphens for spaces, no other punctuation."""
    return re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-")


def escaped(text: str) -> str:
    r"""Return text as one line of Markdown that reads as written, also in the cell of a table.

    A code host reads dollar signs as mathematics, with or without a backslash; a span keeps them apart.
    """
    line = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|~])", r"\\\1", line).replace("$", "<span>$</span>")


def _verdict_counts(claims: Sequence[dict[str, Any]]) -> dict[str, tuple[int, int]]:
    """Count the paper's sentences and our own with each verdict."""
    found = Counter((claim["verdict"], claim["of_paper"]) for claim in claims)
    return {verdict: (found[verdict, True], found[verdict, False]) for verdict in MARKS}


def _sum(counted: tuple[int, int]) -> str:
    paper, own = counted
    return f"{paper} + {own}" if own else str(paper)


def _section(folder: Folder) -> str:
    """Return heading, picture, sentence and claims of one folder."""
    name = f"{folder.experiment}/{folder.scale}/{folder.experiment}-{folder.scale}.png"
    summary = escaped((folder.path / "summary.md").read_text(encoding="utf-8"))
    claims = _table(["claim", "measured", "needed", "verdict"], [_row(claim) for claim in folder.claims()])
    return "\n\n".join([f"### {heading(folder)}", f"![{heading(folder)}]({name})", summary, claims])


def _row(claim: dict[str, Any]) -> list[str]:
    """Return the cells of one claim."""
    measure = f"{escaped(claim['measure'])}:<br>" if claim["measure"] else ""
    own = "" if claim["of_paper"] else OWN
    return [
        f"{escaped(claim['sentence'])}<br><sub>{own}{escaped(claim['source'])}</sub>",
        f"{measure}{_measured(claim)}{_first(claim)}",
        _needed(claim),
        f"{MARKS[claim['verdict']]}&nbsp;{claim['verdict']}",
    ]


def _first(claim: dict[str, Any]) -> str:
    """Return the number and the verdict by the measure that was declared before the runs, where it was changed."""
    if "first" not in claim:
        return ""
    first = claim["first"]
    verdict = f"{MARKS[first['verdict']]}&nbsp;{first['verdict']}"
    sentence = f"“{escaped(first['sentence'])}” " if first["sentence"] != claim["sentence"] else ""
    text = f"Changed after the runs ({escaped(claim['changed'])}). As declared: {sentence}{escaped(first['measure'])}"
    return f"<br><sub>{text}: {_measured(first)}: {verdict}</sub>"


def _needed(claim: dict[str, Any]) -> str:
    """Return the threshold and the date at which it was declared; "" if the claim has no threshold."""
    if claim["threshold"] is None:
        return ""
    sign = "&gt;" if claim["right_side"] == "above" else "&lt;"
    date = claim["declared"].replace("-", "&#8209;")  # not broken at its hyphens
    return f"{sign}&nbsp;{number(claim['threshold'])}<br><sub>{date}</sub>"


def _measured(claim: dict[str, Any]) -> str:
    """Return the number with interval, seeds and p-value, or the reason why there is none."""
    if claim.get("why"):
        return escaped(claim["why"])
    value = "nothing" if claim["value"] is None else f"**{number(claim['value'])}**"
    seeds = f"{claim['seeds']} seed{'s' if claim['seeds'] > 1 else ''}" if claim["seeds"] else ""
    return ", ".join(filter(None, [f"{value}{_interval(claim)}", seeds, _p_value(claim)]))


def _interval(claim: dict[str, Any]) -> str:
    if claim["confidence"] == 1:
        return ", counted"
    low, high = map(number, claim["interval"])
    level = "" if claim["confidence"] == 0.95 else f" at {claim['confidence']:.0%}"
    return f" [{low}, {high}]{level}"


def _p_value(claim: dict[str, Any]) -> str:
    if claim["p"] is None:
        return ""
    adjusted = "" if claim["p_holm"] is None else f" (Holm&nbsp;{_probability(claim['p_holm'])})"
    return f"p&nbsp;{_probability(claim['p'], '=&nbsp;')}{adjusted}"


def _probability(p: float, equal: str = "") -> str:
    return "&lt;&nbsp;0.001" if p < 0.001 else f"{equal}{number(p)}"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], align: str = "---") -> str:
    """Return a Markdown table, its columns after the first aligned by `align`; "" without rows."""
    lines = [header, ["---", *[align] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) if rows else ""
