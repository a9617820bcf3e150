"""Table 5: which of alpha1 and alpha2, and of beta1 and beta2, is larger in each key/value head of trained models."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ihlab.claims import stats
from ihlab.claims.claim import Claim
from ihlab.claims.experiment import Planned, Scale, Trained
from ihlab.claims.induction import KV1, SHAPES, kv, kv_runs, width_runs
from ihlab.plots.curves import Mark
from ihlab.plots.quadrants import corners, quadrants
from ihlab.plots.style import BLACK, BLUE, GREEN, ORANGE, PAGE, PINK, new_figure, printed

WIDTHS = [name for name, (*_, positional) in SHAPES.items() if positional == "rope"]
MARKS = (Mark(BLACK, "s"), Mark(GREEN, "D"), Mark(ORANGE, "^"), Mark(PINK, "v"))
STYLES = {KV1: Mark(BLUE, "o"), **{kv(p): mark for p, mark in zip(WIDTHS, MARKS, strict=True)}}

START, END = "initialisation", "end"
RAW, FREE = "raw", "gauge_free"
COUNTS = {RAW: "raw, as the paper counts", FREE: "gauge-free, by size"}
"""Raw: alpha1 > alpha2; c = -1 in (c alpha, W_K / c) reverses it. Gauge-free: |alpha1| > |alpha2|; no c reverses it."""

OWN, PREVIOUS = "own", "previous"


class Table5:
    """The paper's count and a count that does not depend on the gauge, at initialisation and at the end."""

    name = "table5"

    def runs(self, scale: Scale) -> list[Planned]:
        """Plan the KV shifting runs of Figures 1a and 1b."""
        return [planned for planned in (*kv_runs(scale), *width_runs(scale)) if planned.curve in STYLES]

    def gather(self, trained: Trained, scale: Scale) -> pd.DataFrame:
        """Gather each key/value head twice: from the first checkpoint and from the last.

        - alpha1, alpha2, beta1, beta2: as stored;
        - key, value: |alpha1| / (|alpha1| + |alpha2|) and |beta1| / (|beta1| + |beta2|);
        - key_raw, value_raw, key_gauge_free, value_gauge_free: own or previous, whichever is larger.
        """
        from ihlab.interp.shifts import shift_report

        parts = []
        for curve, run in trained:
            for when, step in ((START, run.checkpoints[0]), (END, run.checkpoints[-1])):
                report = shift_report(run.model(step))
                facts = pd.DataFrame(
                    {"curve": curve, "seed": run.config.seed, "when": when, "step": step}, index=report.index
                )
                stored = report[["layer", "head", "alpha1", "alpha2", "beta1", "beta2"]]
                columns = {
                    "key": (1 - report["alpha_share"]).round(6),
                    "value": (1 - report["beta_share"]).round(6),
                    "key_raw": report["alpha_raw"],
                    "value_raw": report["beta_raw"],
                    "key_gauge_free": report["alpha_larger"],
                    "value_gauge_free": report["beta_larger"],
                }
                parts.append(pd.concat([facts, stored.assign(**columns)], axis=1))
        return pd.concat(parts, ignore_index=True)

    def claims(self, data: pd.DataFrame, scale: Scale) -> list[Claim]:
        """Return Appendix F's claims about the table, which this scale cannot test, and claims about our heads.

        Heads of one model share its loss, and models of one seed share their first random numbers. So each seed's heads
        are pooled over all models, and the intervals are over seeds.
        """
        seeds = int(data["seed"].nunique())
        return [*_of_the_paper(), *(_induction_heads(data, count, seeds) for count in COUNTS), _coupled(data, seeds)]

    def summary(self, data: pd.DataFrame, scale: Scale) -> str:
        """State the four cells in one sentence."""
        cells = counted(data[data["when"] == END], FREE)
        return (
            f"Of {cells.sum()} heads trained for induction {cells[0, 1]} end with the key of the token before and "
            f"their own value, the induction head of Theorem 3.3 (own key and value {cells[0, 0]}, both of the token "
            f"before {cells[1, 1]}, own key and value of the token before {cells[1, 0]}); the paper's 2.9B language "
            "model has most of its heads on the diagonal."
        )

    @printed
    def draw(self, data: pd.DataFrame, scale: Scale) -> Figure:
        """Draw each head before and after training, with counts per quadrant, and the paper's own count."""
        figure = new_figure(PAGE, 4.8)
        *panels, table = figure.subplots(1, 3, width_ratios=(1.25, 1.25, 1))
        for axes, when in zip(panels, (START, END), strict=True):
            heads = data[data["when"] == when]
            corners(axes, heads.assign(key=1 - heads["key"]), STYLES)
            axes.set_title("before training" if when == START else "after training", fontsize=11)
            axes.set_xlabel("the token before's fraction of the key\n" r"$|\alpha_2| / (|\alpha_1| + |\alpha_2|)$")
        panels[0].set_ylabel("own fraction of the value\n" r"$|\beta_1| / (|\beta_1| + |\beta_2|)$")
        columns, rows = ([rf"${x}_1 {sign} {x}_2$" for sign in (">", r"\leq")] for x in (r"\alpha", r"\beta"))
        cells = counted(data[data["when"] == END], RAW)
        quadrants(table, cells, columns, rows, "after training, counted\nwith signs, as in the paper")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
        ends = data[data["when"] == END]
        figure.suptitle(
            f"Which token's key and value do heads use? {len(ends)} heads trained for induction, "
            f"{ends['seed'].nunique()} seeds\nNumbers: heads in that quarter. Upper right: an induction head, "
            "as in Theorem 3.3.",
            fontsize=11,
        )
        return figure


def counted(heads: pd.DataFrame, count: str) -> np.ndarray:
    """Count the heads in each cell, laid out as in the paper: columns own, previous key; rows own, previous value."""
    key, value = heads[f"key_{count}"], heads[f"value_{count}"]
    return np.array([[int(((key == k) & (value == v)).sum()) for k in (OWN, PREVIOUS)] for v in (OWN, PREVIOUS)])


def coupling(cells: Sequence[np.ndarray]) -> stats.Estimate:
    """Return the fraction of heads on the diagonal minus the fraction expected if key and value were independent.

    d_s, k_s and v_s are the fractions of seed s's heads that are on the diagonal, use their own key, and use their own
    value. The number is the mean over s of d_s, minus the mean over all s != t of k_s v_t + (1 - k_s)(1 - v_t). The
    second mean pairs keys of one seed with values of another, which share no random numbers. So the expected difference
    is 0 if key and value are independent, even if the models of one seed are correlated. The interval
    is the jackknife over seeds (Tukey 1958). `cells`: tables from `counted`, one per seed.
    """
    shares = np.array([c / c.sum() for c in cells])
    return stats.jackknife(lambda kept: _coupling(shares[kept]), len(shares), stats.DIFFERENCE)


def _coupling(shares: np.ndarray) -> float:
    diagonal, key, value = np.trace(shares, axis1=1, axis2=2), shares[:, :, 0].sum(axis=1), shares[:, 0].sum(axis=1)
    untied = np.outer(key, value) + np.outer(1 - key, 1 - value)
    others = ~np.eye(len(shares), dtype=bool)
    return float(diagonal.mean() - untied[others].mean())


LANGUAGE_MODEL = "The paper says it of a 2.9B language model, which has much to learn; here induction is all there is."


def _of_the_paper() -> list[Claim]:
    """Return Appendix F's claims about the table. A model of pure induction cannot test any of them."""
    sentences = {
        "diagonal_dominates": "The numbers on the diagonal dominate: most heads tend to use the key and value of the "
        "same token.",
        "become_coupled": "alpha and beta are independent at initialisation; as training progressed, they became "
        "coupled.",
        "not_symmetrical": "They are not symmetrical: the lower left corner is relatively small.",
    }
    return [
        Claim(id=id, source="Appendix F, Table 5", sentence=sentence, declared="2026-11-22", why=LANGUAGE_MODEL)
        for id, sentence in sentences.items()
    ]


def _by_seed(data: pd.DataFrame, when: str, count: str) -> list[np.ndarray]:
    """Return the table of each seed's heads."""
    return [counted(heads, count) for _, heads in data[data["when"] == when].groupby("seed")]


def _induction_heads(data: pd.DataFrame, count: str, seeds: int) -> Claim:
    """Judge whether heads end at Theorem 3.3's alpha and beta, by the paper's count or by the gauge-free one."""
    tables = _by_seed(data, END, count)
    hits, sizes = [int(table[0, 1]) for table in tables], [int(table.sum()) for table in tables]
    return Claim(
        id=f"induction_key_before_own_value.{'raw' if count == RAW else 'gauge_free'}",
        source="Theorem 3.3 in trained heads, in the layout of Table 5",
        of_paper=False,
        sentence="Heads trained for induction use the key of the token before and their own value.",
        measure=f"share of heads in the upper right corner, {COUNTS[count]} ({sum(hits)} of {sum(sizes)})",
        estimate=stats.clustered_share(hits, sizes),
        threshold=0.5,
        seeds=seeds,
        declared="2026-11-22",
    )


def _coupled(data: pd.DataFrame, seeds: int) -> Claim:
    return Claim(
        id="induction_coupled",
        source="in the measure of Appendix F",
        of_paper=False,
        sentence="alpha and beta of models trained for induction are coupled.",
        measure="share of a seed's heads on the diagonal (mean over seeds), less that of keys of one seed paired with "
        f"values of another (mean over pairs of seeds), {COUNTS[FREE]}; jackknife over seeds (at initialisation "
        f"{coupling(_by_seed(data, START, FREE)).value:.2f})",
        estimate=coupling(_by_seed(data, END, FREE)),
        threshold=0.0,
        seeds=seeds,
        declared="2026-11-22",
    )
