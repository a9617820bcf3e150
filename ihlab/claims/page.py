"""The pages of results, as Markdown for a code host: an overview of which claims hold, and the verdicts of a README."""

import re
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

from scipy.stats import false_discovery_control

from ihlab.claims import coverage
from ihlab.claims.claim import NOT_TESTED
from ihlab.claims.experiment import SCALES
from ihlab.claims.figure_page import figure_page, fold
from ihlab.claims.headlines import HEADLINES, answer
from ihlab.claims.ledger import Folder, link_text
from ihlab.claims.markdown import COUNTED, escaped, table, tally
from ihlab.claims.stats import CONFIDENCE, holm
from ihlab.files import write_text
from tasks.config import require

WRITTEN_BY = "<!-- Written by `ihlab reproduce`: do not edit. -->"

FIRST = "figure1a"
"""The experiment whose picture is on the first page."""

QUESTION = f"""# Which of the paper's claims hold?

{WRITTEN_BY}

The paper is [KV Shifting Attention Enhances Language Modeling](https://arxiv.org/abs/2411.19574). In *KV shifting*,
each head mixes the previous token's key and value into its own. *Vanilla* is attention without it. *Induction*
predicts the token that followed the current token's earlier occurrence."""

RULE = """A row counts every claim about its sentence, the paper's and our own, in all settings, with the range of
their numbers, or one number and its 95% interval. *At least* and *at most* mark a bound: some runs never got there.
Points are percentage points. Verdicts are about these small models; *undecided* means not significantly on one side of
a threshold. Most thresholds were fixed before the runs"""

STATEMENTS = "../docs/coverage.md"
"""The page of all statements, from the first page."""

START, END = "<!-- verdicts -->", "<!-- /verdicts -->"
"""Markers around the verdicts in a README."""


def write_results_pages(root: Path, order: Sequence[str] = ()) -> Path:
    """Write `results_page` to `<root>/README.md`, and each figure's page to its folder. Return the README's path.

    In a clone of the repository, also write docs/coverage.md and the verdicts in its README. Raises `ConfigError` if
    one of the other README.md files exists and was not written by this function.
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
        for readme in root.absolute().parent.glob("README.md"):
            write_text(readme, with_verdicts(readme.read_text(encoding="utf-8"), root))
    return path


def _statements(root: Path) -> Path:
    """Return the path of docs/coverage.md, which only a clone of the repository has."""
    return root.absolute() / STATEMENTS


def require_own(pages: Iterable[Path]) -> None:
    """Raise `ConfigError` for a page that exists and was not written by `write_results_pages`."""
    for path in pages:
        ours = not path.exists() or WRITTEN_BY.partition(":")[0] in path.read_text(encoding="utf-8")
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
    shown = f"![{link_text(FIRST)}]({picture.picture.relative_to(root).as_posix()})" if picture else ""
    statements = coverage.counted(root)
    if _statements(root).exists():
        statements += f" [Every statement]({STATEMENTS})"
    rule = f"{RULE} ([how it was measured]({folders[0].experiment}/README.md#how-it-was-measured))."
    parts = [QUESTION, statements, headlines_table(root), rule, shown]
    for scale, grouped in groupby(folders, key=lambda folder: folder.scale):
        of_scale = list(grouped)
        figures = "\n\n".join(filter(None, [figures_list(of_scale), counts(of_scale), corrected(of_scale)]))
        parts += fold(f"All figures at {scale} scale ({len(of_scale)})", figures)
    return "\n\n".join(filter(None, parts)) + "\n"


def headlines_table(root: Path) -> str:
    """Return a table of the headlines with their verdicts. If none has stored claims, return ""."""
    answers = _answers(root)
    rows = [[escaped(sentence), *(found or ("not yet measured", ""))] for sentence, found in answers.items()]
    return table(["claim", "verdict", "measured"], rows) if any(answers.values()) else ""


def _answers(root: Path, before: str = "") -> dict[str, tuple[str, str] | None]:
    """Return the answer of each headline, from the largest scale with stored claims of its figures.

    `before`: what stands before an experiment's name in the links to its figure.
    """
    largest = {folder.experiment: folder for folder in result_folders(root)}

    @cache
    def claims_of(experiment: str) -> list[dict[str, Any]]:
        return largest[experiment].claims() if experiment in largest else []

    def link(number: str, experiment: str) -> str:
        return f"[{number}{_at(largest[experiment])}]({before}{experiment}/README.md)"

    return {sentence: answer(asked, claims_of, link) for sentence, asked in HEADLINES.items()}


def _at(folder: Folder) -> str:
    """Return the scale of a folder in brackets, or "" for the default one."""
    return "" if folder.scale == "laptop" else f" ({folder.scale} scale)"


def result_folders(root: Path, order: Sequence[str] = ()) -> list[Folder]:
    """Return every folder with claims, scale by scale. Smoke scale is included only if there is no other."""
    names = {path.parent.parent.name for path in root.glob("*/*/claims.json")}
    ordered = [name for name in order if name in names] + sorted(names.difference(order))
    every = [Folder(root, name, scale) for scale in SCALES for name in ordered]
    found = [folder for folder in every if (folder.path / "claims.json").exists()]
    return [folder for folder in found if folder.scale != "smoke"] or found


def figures_list(folders: Sequence[Folder]) -> str:
    """Return links to the figures of one scale."""
    links = ((f"{link_text(folder.experiment)}{_at(folder)}", folder.experiment) for folder in folders)
    return "\n".join(f"- [{text}]({experiment}/README.md)" for text, experiment in links)


def counts(folders: Sequence[Folder]) -> str:
    """State how many claims of some figures have each verdict, now and as first declared."""
    claims = [claim for folder in folders for claim in folder.claims()]
    total, first = tally(claims), tally([claim.get("first", claim) for claim in claims])
    return f"{COUNTED}: {total}." + (f" As first declared: {first}." if first != total else "")


def corrected(folders: Sequence[Folder]) -> str:
    """State how many p-values stay significant if all claims of some figures are corrected together."""
    tested = (claim for folder in folders for claim in folder.claims() if claim["verdict"] != NOT_TESTED)
    p = [float(claim["p"]) for claim in tested if claim["p"] is not None]
    if not p:
        return ""
    by_holm, by_rate = (sum(x <= 1 - CONFIDENCE for x in f(p)) for f in (holm, false_discovery_control))
    return (
        f"Corrected all together, {by_holm} of {len(p)} stay significant by Holm's method and {by_rate} by Benjamini "
        "and Hochberg's."
    )


def with_verdicts(readme_text: str, root: Path) -> str:
    """Return the text with the first figure's headlines and the counts between its markers, if it has markers."""
    answers = _answers(root, f"{root.name}/")
    bullets = [
        f"- {escaped(sentence)} {found[0]}: {found[1]}."
        for sentence, found in answers.items()
        if found and HEADLINES[sentence][0].experiment == FIRST
    ]
    scales = [
        f"At {scale} scale. {counts(list(folders))}"
        for scale, folders in groupby(result_folders(root), key=lambda folder: folder.scale)
    ]
    parts = [START, "\n".join(bullets), coverage.counted(root), *scales, END]
    between = f"{re.escape(START)}.*?{re.escape(END)}"
    return re.sub(between, lambda _: "\n\n".join(filter(None, parts)), readme_text, flags=re.DOTALL)
