"""The pages of results, as Markdown for a code host: an overview of which claims hold, and the
verdicts of a README.
"""

import re
from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import chain, groupby
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import false_discovery_control

from ihlab.storage.files import write_text
from ihlab.study.claim import NOT_TESTED
from ihlab.study.experiment import PUBLISHED, SCALES
from ihlab.study.find import stored
from ihlab.study.ledger import Folder
from ihlab.study.markdown import escaped, table, verdict_counts
from ihlab.study.page import (
    WRITTEN_BY,
    link_text,
    published,
    require_own,
    template,
    write_page,
)
from ihlab.study.stats import CONFIDENCE, holm

from . import coverage
from .headlines import HEADLINES, answer
from .measured import measured_page

FIRST = "figure1a"
"""The experiment whose picture is on the first page."""

THEMES = {
    "The paper's figures and tables": [
        "figure1a",
        "figure1a_learned",
        "figure1b",
        "figure1b_learned",
        "figure2",
        "figure4",
        "figure7",
        "figure8",
        "figure8_learned",
        "figure8_tuned",
        "figure9",
        "figure10",
        "figure11",
        "table4",
        "table5",
        "table15",
    ],
    "What makes induction fast": [
        "basin_map",
        "robustness",
        "width",
        "many_heads",
        "fusion",
        "period",
        "formation_laws",
    ],
    "Longer sequences and other tasks": [
        "lengths",
        "lengths_16",
        "untrained_positions",
        "packing",
        "by_position",
        "mqar",
        "checker",
        "parallel",
        "pairs",
        "depo",
        "saved_layer",
        "text",
        "flatness",
    ],
    "Other token shifts": ["shifts", "elsewhere", "idle_layers", "recurrences", "zoo"],
    "Methods and proofs": ["attribution", "proofs", "worst_case"],
}
"""Figures in the order of the page, below their headings."""

MEASURED = "measured.md"
"""The page on how claims are measured."""

STATEMENTS = "../docs/coverage.md"
"""The page of all statements, as a link relative to the first page."""

START, END = "<!-- verdicts -->", "<!-- /verdicts -->"
"""Markers around the verdicts in a README."""


def write_results_pages(root: Path) -> Path:
    """Write `results_page` to `<root>/README.md`, and the page of every stored figure. Return the
    README's path.

    In a clone of the repository, also write docs/coverage.md and the verdicts in its README. Raises
    `ConfigError` if one of the README.md files under `root` exists and was not written by this
    function.
    """
    path, homes = root / "README.md", stored(root).values()
    for page in (path, root / MEASURED, *(home / "README.md" for home in homes)):
        require_own(page)
    write_text(path, results_page(root))
    write_text(root / MEASURED, measured_page(result_folders(root), root))
    for home in homes:
        write_page(home)
    if _statements(root).exists():
        write_text(_statements(root), coverage.coverage_page(root))
        for readme in root.absolute().parent.glob("README.md"):
            write_text(readme, with_verdicts(readme.read_text(encoding="utf-8"), root))
    return path


def _statements(root: Path) -> Path:
    """Return the path of docs/coverage.md, which only a clone of the repository has."""
    return root.absolute() / STATEMENTS


def results_page(root: Path) -> str:
    """Return the first page of the results under `root` as Markdown."""
    folders = result_folders(root)
    first = next((folder for folder in folders if folder.experiment == FIRST), None)
    return template(Path(__file__).with_name("page.md.jinja")).render(
        written_by=WRITTEN_BY,
        counted=coverage.counted(root),
        statements=STATEMENTS if _statements(root).exists() else "",
        headlines=headlines_table(root),
        how_measured=MEASURED,
        picture=first and first.picture.relative_to(root).as_posix(),
        picture_of=first and link_text(first.home),
        scales=[_scale(list(own), root) for _, own in groupby(folders, lambda each: each.scale)],
    )


def _scale(folders: Sequence[Folder], root: Path) -> dict[str, Any]:
    """Return what the page shows of all figures at one scale."""
    themes: dict[str, list[str]] = {}
    for folder in folders:
        link = _link(link_text(folder.home), folder, root)
        themes.setdefault(theme(folder.experiment), []).append(link)
    counts = verdict_counts([claim for folder in folders for claim in folder.claims()])
    return {
        "name": folders[0].scale,
        "figures": len(folders),
        "themes": themes,
        "counts": counts,
        "corrected": corrected(folders, root),
    }


def headlines_table(root: Path) -> str:
    """Return a table of the headlines with their verdicts. If none has stored claims, return ""."""
    answers = _answers(root)
    if not any(answers.values()):
        return ""
    rows = [
        [escaped(sentence), *(answered or ("not yet measured", ""))]
        for sentence, answered in answers.items()
    ]
    return table(["claim", "answer", "least favourable number"], rows)


def _answers(root: Path, before: str = "") -> dict[str, tuple[str, str] | None]:
    """Return the answer of each headline, from the largest scale with stored claims of its figures.

    `before`: a path prefix for the links to figures.
    """
    largest = {folder.experiment: folder for folder in result_folders(root)}

    @cache
    def claims_of(experiment: str) -> list[dict[str, Any]]:
        return largest[experiment].claims() if experiment in largest else []

    def link(number: str, experiment: str) -> str:
        return _link(number, largest[experiment], root, before)

    return {sentence: answer(asked, claims_of, link) for sentence, asked in HEADLINES.items()}


def _link(text: str, folder: Folder, root: Path, before: str = "") -> str:
    """Return a link to the figure's page, with the scale if it is not the default one."""
    if folder.scale != PUBLISHED:
        text += f" ({folder.scale} scale)"
    return f"[{text}]({before}{folder.home.relative_to(root).as_posix()}/README.md)"


def result_folders(root: Path) -> list[Folder]:
    """Return every folder with claims, scale by scale in the order of `THEMES`. Smoke scale only
    without another.
    """
    homes, ordered = stored(root), list(chain(*THEMES.values()))
    names = [*filter(homes.get, ordered), *sorted(homes.keys() - {*ordered})]
    return published([Folder(homes[name], scale) for scale in SCALES for name in names])


def theme(name: str) -> str:
    """Return the heading below which the page of results lists an experiment."""
    return next((heading for heading, names in THEMES.items() if name in names), "Others")


def corrected(folders: Sequence[Folder], root: Path) -> str:
    """State how many p-values stay significant if all claims are corrected together, and how many
    claims have none.
    """
    p_values: list[float] = []
    without = Counter[Folder]()
    for folder in folders:
        for claim in folder.claims():
            if claim["verdict"] != NOT_TESTED:
                if claim["p"] is None:
                    without[folder] += 1
                else:
                    p_values.append(claim["p"])
    if not p_values:
        return ""
    by_holm = (np.array(holm(p_values)) <= 1 - CONFIDENCE).sum()
    by_rate = (false_discovery_control(p_values) <= 1 - CONFIDENCE).sum()
    said = (
        f"{len(p_values)} of {len(p_values) + without.total()} tests have a p-value (the chance of a number this "
        f"extreme if the truth were on the threshold), corrected within their figure. Corrected across figures, "
        f"{by_holm} stay at most 0.05 by Holm's method, {by_rate} by Benjamini and Hochberg's."
    )
    if not without:
        return said
    ((folder, number),) = without.most_common(1)
    link = _link(link_text(folder.home), folder, root)
    return f"{said} {without.total()} have none: they count, such as correct predictions ({number} in {link})."


def with_verdicts(readme_text: str, root: Path) -> str:
    """Return a README's text with the headlines of figure `FIRST` between the markers, if the text
    has markers.
    """
    answers = _answers(root, f"{root.name}/")
    bullets = []
    for sentence, answered in answers.items():
        if answered and HEADLINES[sentence][0].experiment == FIRST:
            words, number = answered
            bullets.append(f"- {escaped(sentence)} **{words}**: {number}.")
    parts = [START, "\n".join(bullets), coverage.counted(root), END]
    between = f"{re.escape(START)}.*?{re.escape(END)}"
    return re.sub(between, lambda _: "\n\n".join(filter(None, parts)), readme_text, flags=re.DOTALL)
