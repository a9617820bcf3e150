"""The page of one figure as Markdown: its pictures, what it shows, its claims, and how they were measured."""

from collections.abc import Sequence
from typing import Any

from ihlab.paper.figures import link_text, title
from ihlab.study.ledger import Folder
from ihlab.study.markdown import MARKS, escaped, lines, measured, needed, table, unbroken, verdict, verdict_counts

_HOLDS, _FAILS, _UNDECIDED, _NOT_TESTED = MARKS.values()

LEGEND = f"""## How it was measured

A claim *holds* ({_HOLDS}) or *fails* ({_FAILS}) if the p-value of its threshold is at most 0.05 after Holm's correction
for the number of claims of this figure. Otherwise it is *undecided* ({_UNDECIDED}). A number that is counted, not
sampled, is compared with its threshold directly. A claim is *not tested* ({_NOT_TESTED}) if no result at this scale
could decide it.

| number | its 95% interval and p-value |
| --- | --- |
| mean over seeds, also of differences within a seed | Student's t |
| difference of two means | Student's t, with Welch's degrees of freedom |
| ratio of steps | inverts the Mann-Whitney test; a run that never reaches the accuracy counts as longest |
| fraction of models, difference of two | Clopper and Pearson, Newcombe |
| accuracy; fraction of heads (a model has several) | Korn and Graubard |

An interval is not corrected for the number of claims. So a claim can be undecided although the threshold is outside
its interval. Runs that never reach the accuracy can make a ratio a bound: *at least*, *at most*, or *about* if both
sides have such runs.

<sub>The date under a threshold is the day on which measure and threshold were fixed, before the runs that they judge.
Beside it is the first commit of that day with this measure and threshold. If that commit also brought the results, the
repository does not show which came first. If a measure was changed after the runs, the row says when and why, and gives
the verdict by the first measure. The source of a claim says if the claim was added after the runs. Statements about
large language models are tested on small models, and the verdicts are about the small ones. Replaced claims were
published once. They are no longer asked, or had another verdict before runs, measure or statistics changed.</sub>"""

COLUMNS = ("claim", "measured", "needed", "verdict")
GONE = ("claim", "measured", "needed", "last verdict", "replaced")


def figure_page(written_by: str, folders: Sequence[Folder]) -> str:
    """Return the page of an experiment. `folders` has one folder per scale; `written_by` follows the heading."""
    parts = [f"# {title(folders[0].experiment)}", written_by, "[All figures](../README.md)"]
    for folder in folders:
        parts += [f"## At {folder.scale} scale", *_section(folder)]
    return "\n\n".join([*parts, LEGEND]) + "\n"


def _section(folder: Folder) -> list[str]:
    """Return the pictures, the summary and the claims of one scale."""
    name, claims, summary = f"{link_text(folder.experiment)} ({folder.scale} scale)", folder.claims(), folder.summary()
    parts = [f"![{name}]({folder.scale}/{picture.name})" for picture in folder.pictures]
    parts.append(verdict_counts(claims))
    parts.append(summary if summary.startswith("| ") else escaped(summary))
    papers, ours = ([claim for claim in claims if claim["of_paper"] == of] for of in (True, False))
    if papers:
        parts += ["### The paper's claims", table(COLUMNS, _rows(papers, folder))]
    if ours:
        parts += fold(f"Our own questions ({len(ours)})", table(COLUMNS, _rows(ours, folder)))
    if gone := folder.history():
        parts += fold(f"Replaced claims ({len(gone)})", table(GONE, [_gone(row) for row in gone]))
    return parts


def fold(summary: str, content: str) -> list[str]:
    """Return content that a reader can unfold. The documentation site renders it only with the `markdown` attribute."""
    return [f'<details markdown="1"><summary>{summary}</summary>', content, "</details>"]


def _rows(claims: Sequence[dict[str, Any]], folder: Folder) -> list[list[str]]:
    """Return one table row per claim. Claims that share a statement (the first part of their ids) are grouped."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for claim in claims:
        groups.setdefault(claim.get("id", claim["sentence"]).partition(".")[0], []).append(claim)
    return [row for group in groups.values() for row in _group(group, folder)]


def _group(group: Sequence[dict[str, Any]], folder: Folder) -> list[list[str]]:
    """Return the rows of claims that share a statement. Text that repeats the row above is left out."""
    alike, measures = len({claim["sentence"] for claim in group}) == 1, {claim["measure"] for claim in group}
    shared = measures.pop() if len(measures) == 1 and len(group) > 1 else ""
    rows, above = [], ("", "")
    for claim in group:
        sentence, condition = (claim["sentence"], "") if alike else _apart(claim)
        said = [escaped(sentence), escaped(shared)] if sentence != above[0] else []
        said.append(f"<sub>{escaped(claim['source'])}</sub>" if (sentence, claim["source"]) != above else "")
        measure = "" if shared or not claim["measure"] else f"{escaped(claim['measure'])}:"
        value = [f"*{escaped(condition)}*" if condition else "", measure, measured(claim) + _first(claim)]
        rows.append([lines(said), lines(value), needed(claim, folder.declared(claim)), verdict(claim)])
        above = (sentence, claim["source"])
    return rows


def _apart(claim: dict[str, Any]) -> tuple[str, str]:
    """Return a sentence without its setting, and the setting, if each condition is in brackets or follows a colon."""
    sentence, conditions = claim["sentence"], list(claim.get("setting", {}).values())
    for condition in conditions:
        shorter = sentence.replace(f" ({condition})", "").replace(f": {condition}.", ".")
        if shorter == sentence:
            return claim["sentence"], ""
        sentence = shorter
    return sentence, "; ".join(conditions)


def _gone(row: dict[str, Any]) -> list[str]:
    """Return the table cells of a replaced claim, with the date and the commit of its replacement."""
    sentence = lines([escaped(row["sentence"]), f"<sub>{escaped(row['source'])}</sub>"])
    value = lines([f"{escaped(row['measure'])}:" if row["measure"] else "", measured(row)])
    when = lines([unbroken(row["replaced"]), f"`{row['commit']}`" if row["commit"] else ""])
    return [sentence, value, needed(row, row["declared"]), verdict(row), when]


def _first(claim: dict[str, Any]) -> str:
    """Return the number and verdict by the measure declared before the runs; "" if the measure was not changed."""
    if "first" not in claim:
        return ""
    first = claim["first"]
    sentence = f"“{escaped(first['sentence'])}” " if first["sentence"] != claim["sentence"] else ""
    text = f"Changed after the runs ({escaped(claim['changed'])}). As declared: {sentence}"
    numbers = [escaped(first["measure"]), measured(first), verdict(first)]
    return f"<br><sub>{text}{': '.join(filter(None, numbers))}</sub>"
