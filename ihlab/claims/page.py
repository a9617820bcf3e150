"""The pages of results, as Markdown for a code host: an overview of which claims hold, and the counts of a README."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

from scipy.stats import false_discovery_control

from ihlab.claims import coverage
from ihlab.claims.claim import NOT_TESTED, on_statement
from ihlab.claims.experiment import SCALES, Scale
from ihlab.claims.figure_page import figure_page
from ihlab.claims.headlines import HEADLINES, answer
from ihlab.claims.ledger import Folder, title
from ihlab.claims.markdown import MARKS, SHORT, escaped, table
from ihlab.claims.stats import CONFIDENCE, holm
from ihlab.files import write_text
from tasks.config import require

COUNTED = [f"{mark} {SHORT[verdict]}" for verdict, mark in MARKS.items()]
"""Headings of the columns that count verdicts."""

WRITTEN_BY = "<!-- Written by `ihlab reproduce` from the folders beside it: do not edit. -->"

FIRST = "figure1a"
"""The experiment whose picture is on the first page."""

QUESTION = f"""{WRITTEN_BY}

# Which of the paper's claims hold?

The paper is [KV Shifting Attention Enhances Language Modeling](https://arxiv.org/abs/2411.19574). In *KV shifting*,
each head mixes the previous token's key and value into its own. *Vanilla* is attention without it. *Induction* is to
continue a repeated sequence: find the current token's earlier occurrence and predict the token that followed it."""

RULE = """The models are small, and each verdict is about them. A claim *holds* or *fails* if its number, measured over
several seeds, differs significantly from a threshold that was fixed before the runs; otherwise it is *undecided*. A
claim that was tested in several settings has several verdicts and a range."""

FIGURES = """## All figures

The table counts the paper's claims, and after a plus sign our own questions."""

STATEMENTS = "../docs/coverage.md"
"""The page of all statements, from the first page."""

START, END = "<!-- verdicts -->", "<!-- /verdicts -->"
"""Markers around the counts in a README."""


def write_results_pages(root: Path, order: Sequence[str] = ()) -> Path:
    """Write `results_page` to `<root>/README.md`, and each figure's page to its folder. Return the README's path.

    In a clone of the repository, also write docs/coverage.md. Raises `ConfigError` if one of these README.md files
    exists and was not written by this function.
    """
    path, pages = root / "README.md", {}
    folders = sorted(result_folders(root, order), key=lambda folder: folder.experiment)
    for experiment, scales in groupby(folders, key=lambda folder: folder.experiment):
        pages[root / experiment / "README.md"] = figure_page(WRITTEN_BY, list(scales))
    pages[path] = results_page(root, order)
    require_own(pages)
    for page, text in pages.items():
        write_text(page, text)
    if _statements(root).exists():
        write_text(_statements(root), coverage.coverage_page(root))
    return path


def _statements(root: Path) -> Path:
    """Return the path of docs/coverage.md, which only a clone of the repository has."""
    return root.absolute() / STATEMENTS


def require_own(pages: Iterable[Path]) -> None:
    """Raise `ConfigError` for a page that exists and was not written by `write_results_pages`."""
    for path in pages:
        ours = not path.exists() or path.read_text(encoding="utf-8").startswith(WRITTEN_BY)
        kept = f"{path} was not written by 'ihlab reproduce' and is kept"
        require(ours, f"{kept}; the page of results needs another folder.")


def results_page(root: Path, order: Sequence[str] = ()) -> str:
    """Return the first page of the results under `root` as Markdown.

    Experiments named in `order` come first, in that order. The others follow alphabetically.
    """
    folders = result_folders(root, order)
    if not folders:
        return f"{QUESTION}\n\nThere are no figures yet.\n"
    picture = next((f for f in folders if f.experiment == FIRST), None)
    shown = f"![{title(FIRST)}]({picture.picture.relative_to(root).as_posix()})" if picture else ""
    statements = coverage.counted(root)
    if _statements(root).exists():
        statements += f" [Every statement]({STATEMENTS})"
    parts = [QUESTION, headlines_table(root), RULE, statements, shown, FIGURES]
    for scale, grouped in groupby(folders, key=lambda folder: folder.scale):
        of_scale = list(grouped)
        parts += [counts_table(scale, of_scale), corrected(scale, of_scale)]
    return "\n\n".join(filter(None, parts)) + "\n"


def headlines_table(root: Path) -> str:
    """Return a table of the headlines with their verdicts, each from the largest scale with stored claims.

    A headline without claims says so. If none has claims, return "".
    """
    largest = {folder.experiment: folder for folder in result_folders(root)}

    @cache
    def claims_of(experiment: str) -> list[dict[str, Any]]:
        return largest[experiment].claims() if experiment in largest else []

    answers = {sentence: answer(asked, claims_of) for sentence, asked in HEADLINES.items()}
    if not any(answers.values()):
        return ""
    rows = []
    for sentence, found in answers.items():
        verdict, number, experiments = found or ("not yet measured", "", [])
        rows.append([escaped(sentence), verdict, number, ", ".join(_link(largest[name]) for name in experiments)])
    return table(["claim", "verdict", "measured", "figure"], rows)


def _link(folder: Folder) -> str:
    """Return a link to the figure's page, with the scale if it is not the default one."""
    scale = "" if folder.scale == "laptop" else f" ({folder.scale})"
    return f"[{title(folder.experiment)}{scale}]({folder.experiment}/README.md)"


def result_folders(root: Path, order: Sequence[str] = ()) -> list[Folder]:
    """Return every folder with claims, scale by scale. Smoke scale is included only if there is no other."""
    names = {path.parent.parent.name for path in root.glob("*/*/claims.json")}
    ordered = [name for name in order if name in names] + sorted(names.difference(order))
    every = [Folder(root, name, scale) for scale in SCALES for name in ordered]
    found = [folder for folder in every if (folder.path / "claims.json").exists()]
    return [folder for folder in found if folder.scale != "smoke"] or found


def counts(root: Path) -> dict[Scale, dict[str, tuple[int, int]]]:
    """Return, for each scale on the page, how many of the paper's claims and of our own have each verdict."""
    return {
        scale: _verdict_counts([claim for folder in folders for claim in folder.claims()])
        for scale, folders in groupby(result_folders(root), key=lambda folder: folder.scale)
    }


def counts_table(scale: Scale, folders: Sequence[Folder]) -> str:
    """Return the number of verdicts of each figure at one scale as a Markdown table, with totals."""
    rows = [[_link(folder), *map(_sum, _verdict_counts(folder.claims()).values())] for folder in folders]
    claims = [claim for folder in folders for claim in folder.claims()]
    total, declared = _verdict_counts(claims), _verdict_counts([claim.get("first", claim) for claim in claims])
    rows.append([f"**{cell}**" for cell in ("all", *map(_sum, total.values()))])
    if declared != total:
        rows.append(["all, as first declared", *map(_sum, declared.values())])
    return table([f"figure, {scale} scale", *COUNTED], rows, align="---:")


def corrected(scale: Scale, folders: Sequence[Folder]) -> str:
    """State how many p-values stay significant if all claims of a scale are corrected together."""
    tested = (claim for folder in folders for claim in folder.claims() if claim["verdict"] != NOT_TESTED)
    p = [float(claim["p"]) for claim in tested if claim["p"] is not None]
    if not p:
        return ""
    by_holm, by_rate = (sum(x <= 1 - CONFIDENCE for x in f(p)) for f in (holm, false_discovery_control))
    return (
        f"If all claims at {scale} scale are corrected together, {by_holm} of {len(p)} stay significant by Holm's "
        f"method and {by_rate} by Benjamini and Hochberg's."
    )


def short_table(root: Path) -> str:
    """Return the counts as a Markdown table with one row per scale. Only the paper's claims are counted."""
    rows = [[scale, *(str(n) for n, _ in tally.values())] for scale, tally in counts(root).items()]
    return table(["scale", *COUNTED], rows, align="---:")


def update_counts(readme_text: str, root: Path) -> str:
    """Return the text with `short_table` between its markers; a text without markers is returned unchanged."""
    between = f"{re.escape(START)}.*?{re.escape(END)}"
    return re.sub(between, lambda _: f"{START}\n\n{short_table(root)}\n\n{END}", readme_text, flags=re.DOTALL)


def _verdict_counts(claims: Sequence[dict[str, Any]]) -> dict[str, tuple[int, int]]:
    """Count the paper's claims and our own with each verdict. Those against the paper count the other way round."""
    found = Counter((on_statement(c) if c["of_paper"] else c["verdict"], c["of_paper"]) for c in claims)
    return {verdict: (found[verdict, True], found[verdict, False]) for verdict in MARKS}


def _sum(counted: tuple[int, int]) -> str:
    paper, own = counted
    return f"{paper}+{own}" if own else str(paper)
