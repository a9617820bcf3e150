"""The page of one figure as Markdown: its pictures, what it shows, its claims, and how they were measured."""

from collections.abc import Sequence
from typing import Any

from ihlab.claims.facts import Fact, facts
from ihlab.claims.ledger import Folder, title
from ihlab.claims.markdown import MARKS, escaped, measured, needed, table, unbroken, verdict

_HOLDS, _FAILS, _UNDECIDED, _NOT_TESTED = MARKS.values()

LEGEND = f"""## How it was measured

A claim *holds* ({_HOLDS}) or *fails* ({_FAILS}) if the p-value of its threshold is at most 0.05 after Holm's correction
for the number of claims of this figure. Otherwise it is *undecided* ({_UNDECIDED}). A number that is counted and not
sampled is compared with its threshold directly. *Not tested* ({_NOT_TESTED}): nothing at this scale could decide it.

| number | its 95% interval and p-value |
| --- | --- |
| mean over seeds, difference of two means | Student's t, with Welch's degrees of freedom |
| ratio of steps | inverts the Mann-Whitney test; a run that never gets there took longer than all its steps |
| median of differences within a seed | inverts the sign test |
| fraction of models, difference of two | Clopper and Pearson, Newcombe |
| accuracy, fraction of heads (several in a model) | Korn and Graubard |

The interval is that of one claim alone, so a claim can be undecided although its interval is clear of the threshold.

<sub>The date under a threshold is the day on which measure and threshold were fixed, before the runs that they judge.
Beside it is the first commit of that day with the claim's words; where this commit also brought the results, the
repository does not show which came first. If the measure was changed after the runs, the row says when and why, and
gives the verdict by the first measure. A claim that was added after the runs says so beside its source. The paper's
printed tables need no runs: their thresholds were chosen after reading them. What the paper says of a large language
model is asked here of a small one, and the verdict is about the small one. Replaced claims were published once and
are no longer asked, or had another verdict before runs, measure or statistics changed.</sub>"""

COLUMNS = ("claim", "measured", "needed", "verdict")
GONE = ("claim", "measured", "needed", "last verdict", "replaced")


def figure_page(written_by: str, folders: Sequence[Folder]) -> str:
    """Return the page of an experiment. `folders` has one folder per scale; `written_by` is the page's first line."""
    parts = [written_by, f"# {title(folders[0].experiment)}", "[All figures](../README.md)"]
    for folder in folders:
        parts += [f"## At {folder.scale} scale", *_section(folder)]
    return "\n\n".join([*parts, LEGEND]) + "\n"


def _section(folder: Folder) -> list[str]:
    """Return the pictures, the summary and the claims of one scale."""
    name, claims = f"{title(folder.experiment)}, {folder.scale}", folder.claims()
    parts = [f"![{name}]({folder.scale}/{picture.name})" for picture in folder.pictures]
    parts.append(escaped((folder.path / "summary.md").read_text(encoding="utf-8")))
    paper, own = (
        [row for fact in facts([claim for claim in claims if claim["of_paper"] == of]) for row in _rows(fact, folder)]
        for of in (True, False)
    )
    if paper:
        parts += ["### The paper's claims", table(COLUMNS, paper)]
    if own:
        parts += _fold(f"Our own questions ({len(own)})", table(COLUMNS, own))
    if gone := folder.history():
        parts += _fold(f"Replaced claims ({len(gone)})", table(GONE, [_gone(row) for row in gone]))
    return parts


def _fold(summary: str, content: str) -> list[str]:
    """Return content that a reader can unfold. The documentation site needs the attribute."""
    return [f'<details markdown="1"><summary>{summary}</summary>', content, "</details>"]


def _rows(fact: Fact, folder: Folder) -> list[list[str]]:
    """Return a fact's table rows, one per claim: condition, number and verdict. The first also has the sentence."""
    measures = {claim["measure"] for _, claim in fact.claims}
    common = measures.pop() if len(measures) == 1 and len(fact.claims) > 1 else ""
    rows, told = [], None
    for i, (condition, claim) in enumerate(fact.claims):
        said = [escaped(fact.sentence), escaped(common)] if i == 0 else []
        source, told = ("" if claim["source"] == told else claim["source"]), claim["source"]
        said.append(f"<sub>{escaped(source)}</sub>" if source else "")
        measure = "" if common or not claim["measure"] else f"{escaped(claim['measure'])}:"
        value = [f"*{escaped(condition)}*" if condition else "", measure, measured(claim) + _first(claim)]
        rows.append([_lines(said), _lines(value), needed(claim, folder.declared(claim)), verdict(claim)])
    return rows


def _gone(row: dict[str, Any]) -> list[str]:
    """Return the table cells of a replaced claim, with the date and the commit of its replacement."""
    sentence = _lines([escaped(row["sentence"]), f"<sub>{escaped(row['source'])}</sub>"])
    value = _lines([f"{escaped(row['measure'])}:" if row["measure"] else "", measured(row)])
    when = _lines([unbroken(row["replaced"]), f"`{row['commit']}`" if row["commit"] else ""])
    return [sentence, value, needed(row, row["declared"]), verdict(row), when]


def _lines(parts: Sequence[str]) -> str:
    return "<br>".join(filter(None, parts))


def _first(claim: dict[str, Any]) -> str:
    """Return the number and verdict by the measure declared before the runs; "" if the measure was not changed."""
    if "first" not in claim:
        return ""
    first = claim["first"]
    sentence = f"“{escaped(first['sentence'])}” " if first["sentence"] != claim["sentence"] else ""
    text = f"Changed after the runs ({escaped(claim['changed'])}). As declared: {sentence}{escaped(first['measure'])}"
    return f"<br><sub>{text}: {measured(first)}: {verdict(first)}</sub>"
