"""Tables 6-13: the paper's own printed losses against the sentences that it writes about them, without training.

- `tables6to13.csv`: every printed cell of Appendix H, one run each; a loss is empty where the table says OOM.
- `tables6to13_stated.csv`: other numbers of the paper, each with a short quote. They are the counts of Table 5, and the
  settings that the paper states more than once, whether or not they agree. (Footnote 6: section 4.1's 1M is 1,048,576;
  elsewhere in the paper it is 1,000,000.)

Page numbers are those of the paper's PDF. All pages except the first begin with the running head "KV Shifting Attention
Enhances Language Modeling". So a passage's page is one more than the number of running heads before it. The first
running head is inside the sentence that leads from page 1 to page 2, the impact statement follows the eighth (page 9),
and Appendix A the eleventh (page 12, after three pages of references).
"""

import math
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from scipy.stats import binomtest, chi2, fisher_exact
from scipy.stats.contingency import odds_ratio

from ihlab.claims import stats
from ihlab.claims.claim import Claim
from ihlab.claims.experiment import Planned, Scale, Trained
from ihlab.plots.curves import Mark
from ihlab.plots.printed_tables import difference_map, differences_by_context
from ihlab.plots.style import BLUE, GREEN, ORANGE, PAGE, PINK, new_figure, printed

PRINTED = Path(__file__).with_name("tables6to13.csv")
STATED = Path(__file__).with_name("tables6to13_stated.csv")

claim = partial(Claim, declared="2026-11-22")
own = partial(claim, of_paper=False)
"""Makes a claim that is our own question."""

VANILLA, KV, QKV, K, V = "vanilla", "KV shifting", "QKV shifting", "K shifting", "V shifting"
DIFFERENTIAL, QK_NORM, SELECTIVE = "Differential", "Differential with QK norm", "Selective"
OURS = (VANILLA, K, V, QKV, KV)
"""Vanilla, and the methods that the paper proposes or ablates: Tables 6-10."""
COMPARATORS = {DIFFERENTIAL: "Table 11", QK_NORM: "Table 12", SELECTIVE: "Table 13"}

ALMOST_EVERY = 0.9
"""Minimum fraction of cells for which a statement counts as true "in almost every" cell."""

STYLES = {K: Mark(PINK, "o", ":"), V: Mark(GREEN, "^", "--"), QKV: Mark(ORANGE, "s", "-."), KV: Mark(BLUE, "D")}

COLOUR_LIMIT = 0.05


OWN_OWN, PREVIOUS_OWN, OWN_PREVIOUS, PREVIOUS_PREVIOUS = (
    "own key, own value", "previous key, own value", "own key, previous value", "previous key, previous value",
)  # fmt: skip
"""Key: own if alpha1 > alpha2, otherwise previous. Value: own if beta1 > beta2, otherwise previous."""

EARLIER_OWN, EARLIER_PREVIOUS = f"{OWN_OWN}, at 20B tokens", f"{PREVIOUS_PREVIOUS}, at 20B tokens"

BATCH = "batch size in tokens"

ROUNDING = 1.25
"""Two batch sizes contradict each other if their ratio is at least this: 3M for 2.95M is rounding, a factor 2 not."""


class Tables6To13:
    """Vanilla, K, V, QKV and KV shifting and three comparators at six learning rates and five context lengths."""

    name = "tables6to13"

    def runs(self, scale: Scale) -> list[Planned]:
        """Plan no runs."""
        return []

    def gather(self, trained: Trained, scale: Scale) -> pd.DataFrame:
        """Gather three kinds of row in one table: printed losses, counts of Table 5, and settings with their quotes."""
        cells = pd.read_csv(PRINTED).assign(kind="loss")
        cells["source"] = [f"Table {table}" for table in cells.pop("table")]
        table = pd.concat([cells, pd.read_csv(STATED)], ignore_index=True)
        first = ["kind", "source", "page", "method", "lr", "context", "loss", "quantity", "model", "number"]
        return table[[*first, "quote", "note"]]

    def claims(self, data: pd.DataFrame, scale: Scale) -> list[Claim]:
        """Judge Appendices H and F, the gains relative to the noise of a single run, and the stated settings."""
        loss = losses(data)
        others = [_comparator(loss, method, source) for method, source in COMPARATORS.items()]
        return [*_ranks(loss), *others, *_noise(loss), *_table5_claims(data), _batch_sizes(data)]

    @printed
    def draw(self, data: pd.DataFrame, scale: Scale) -> Figure:
        """Draw KV shifting minus vanilla in every setting, and every method at its best learning rate."""
        loss = losses(data)
        figure = new_figure(PAGE, 4.4)
        left, right = figure.subplots(1, 2)
        image = _draw_map(left, loss, KV)
        left.set_ylabel("learning rate")
        _colour_bar(figure, image, [left])
        best = at_best_rate(loss)
        difference = 1000 * best[list(STYLES)].sub(best[VANILLA], axis=0)
        table = difference.melt(ignore_index=False, var_name="method", value_name="difference").reset_index()
        differences_by_context(right, table, STYLES)
        right.set(xlabel="context length", ylabel="loss less vanilla's, thousandths")
        right.set_title("each method at its best learning rate", fontsize=10)
        right.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)
        figure.suptitle(f"Does KV shifting have the lowest loss? The paper's Tables 6 to 10\n{_KEY}", fontsize=11)
        return figure

    def draw_more(self, data: pd.DataFrame, scale: Scale) -> dict[str, Figure]:
        """Draw the maps of the other shifts, and of the three comparators."""
        loss = losses(data)
        shifts = f"Shifting only keys, only values, or queries too: Tables 8 to 10\n{_KEY}"
        others = "Other published attention: Tables 11 to 13\nValidation loss less vanilla's, in thousandths"
        return {
            "shifts": _draw_maps(loss, [method for method in OURS if method not in (VANILLA, KV)], shifts),
            "others": _draw_maps(loss, list(COMPARATORS), f"{others}. OOM: out of memory."),
        }

    def summary(self, data: pd.DataFrame, scale: Scale) -> str:
        """State the printed tables in one sentence."""
        loss = losses(data)
        wins, gain = best_of(loss, OURS).value_counts(), _gain(loss, KV)
        at_best = at_best_rate(loss)
        return (
            f"In the paper's own tables KV shifting has a lower loss than vanilla in {_below(loss, KV, VANILLA)} of "
            f"{len(loss)} cells (median gain {gain:.4g}, {gain / residual_sd(loss, KV)[0]:.1f} times the scatter of a "
            f"single cell) but is the best of five methods in only {wins.get(KV, 0)}, not in almost every one; "
            f"V shifting alone is better than K shifting alone in {_below(loss, V, K)}, and at its best learning rate "
            f"better than KV shifting at {int((at_best[V] < at_best[KV]).sum())} of {len(at_best)} context lengths."
        )


_KEY = "Validation loss less vanilla's, in thousandths. Outlined: the lowest of the five methods."


@printed
def _draw_maps(loss: pd.DataFrame, methods: Sequence[str], title: str) -> Figure:
    figure = new_figure(PAGE, 3.9)
    panels = list(figure.subplots(1, len(methods), sharey=True))
    images = [_draw_map(axes, loss, method) for axes, method in zip(panels, methods, strict=True)]
    panels[0].set_ylabel("learning rate")
    _colour_bar(figure, images[-1], panels)
    figure.suptitle(title, fontsize=11)
    return figure


def _draw_map(axes: Axes, loss: pd.DataFrame, method: str) -> AxesImage:
    difference, best = loss[method] - loss[VANILLA], best_of(loss, OURS) == method
    text = [_thousandths(x) for x in difference]
    cells = difference.rename("difference").reset_index().assign(text=text, best=best.to_numpy())
    wins = f"\nlowest in {best.sum()} of {len(best)}" if method in OURS else ""
    axes.set_title(f"{method}{wins}", fontsize=10)
    axes.set_xlabel("context length")
    return difference_map(axes, cells, COLOUR_LIMIT)


def _colour_bar(figure: Figure, image: AxesImage, panels: Sequence[Axes]) -> None:
    bar = figure.colorbar(image, ax=panels, extend="both", pad=0.02, fraction=0.06)
    ticks = (-COLOUR_LIMIT, 0.0, COLOUR_LIMIT)
    bar.set_ticks(ticks, labels=[_thousandths(x) for x in ticks])


def losses(data: pd.DataFrame) -> pd.DataFrame:
    """Return the printed losses, one row per (lr, context) and one column per method; NaN for OOM."""
    return data[data["kind"] == "loss"].pivot_table(index=["lr", "context"], columns="method", values="loss")


def best_of(loss: pd.DataFrame, methods: Sequence[str]) -> pd.Series:
    """Return the method with the lowest loss in each cell. (There are no ties.)"""
    return loss[list(methods)].idxmin(axis=1)


def at_best_rate(loss: pd.DataFrame) -> pd.DataFrame:
    """Return the lowest loss over learning rates, one row per context length and one column per method."""
    return loss.groupby(level="context").min()


def residual_sd(loss: pd.DataFrame, method: str) -> tuple[float, int]:
    """Return the standard deviation of a single cell's difference to vanilla, and its degrees of freedom.

    It estimates the run-to-run noise from one run per cell, as the residual of method - vanilla = overall + learning
    rate + context length: an additive model of the loss in which both effects may depend on the method. The highest
    learning rate is left out, because single runs break down there (vanilla's 3.5104 at 2048). Effects that are not
    additive count as noise, so it is an upper estimate.
    """
    x = (loss[method] - loss[VANILLA]).to_numpy().reshape(-1, loss.index.unique("context").size)[:-1]
    residuals = x - x.mean(axis=0) - x.mean(axis=1, keepdims=True) + x.mean()
    freedom = (x.shape[0] - 1) * (x.shape[1] - 1)
    return float(np.sqrt((residuals**2).sum() / freedom)), freedom


def _gain(loss: pd.DataFrame, method: str) -> float:
    """Return the median over all cells of vanilla's loss - the method's. Losses are printed with four decimals."""
    return round(float((loss[VANILLA] - loss[method]).median()), 5)


def gain_in_sds(loss: pd.DataFrame, method: str) -> stats.Estimate:
    """Return the median gain over vanilla in residual standard deviations of a cell.

    The interval is the chi-square interval of the standard deviation. The median over all cells is treated as exact.
    """
    gain, (sd, freedom) = _gain(loss, method), residual_sd(loss, method)

    def at(level: float) -> tuple[float, float]:
        ends = [gain / sd * math.sqrt(chi2.ppf(p, freedom) / freedom) for p in ((1 - level) / 2, (1 + level) / 2)]
        return min(ends), max(ends)

    return stats.Estimate(gain / sd, *at(stats.CONFIDENCE), stats.CONFIDENCE, at)


def _below(loss: pd.DataFrame, a: str, b: str) -> int:
    return int((loss[a] < loss[b]).sum())


def _thousandths(difference: float) -> str:
    """Format a difference for a cell: signed unless 0, and OOM if it is missing."""
    if math.isnan(difference):
        return "OOM"
    x = round(1000 * difference, 1)
    return f"{x:+.{int(abs(x) < 1)}f}".replace("-", "\N{MINUS SIGN}") if x else "0"


def _ranks(loss: pd.DataFrame) -> list[Claim]:
    """Judge Appendix H's main sentence, cell by cell and at each context's best rate; then compare K with V."""
    cells, at_best = len(loss), at_best_rate(loss)
    wins = best_of(loss, OURS).value_counts().reindex(OURS, fill_value=0).sort_values(ascending=False, kind="stable")
    best = partial(
        claim,
        source="Appendix H, Tables 6-10",
        sentence="In almost every learning rate and context length we experimented with, KV shifting attention "
        "achieved the best results.",
        threshold=ALMOST_EVERY,
    )
    by_context = [
        best(
            source="of Tables 6, 7 and 10",
            of_paper=False,
            sentence="KV shifting is the better one where each method has its best learning rate.",
            measure=f"share of context lengths at which KV shifting at its best learning rate is below {other} at its "
            f"own ({_below(at_best, KV, other)} of {len(at_best)})",
            estimate=stats.exact(_below(at_best, KV, other) / len(at_best)),
        )
        for other in (VANILLA, V)
    ]
    return [
        best(
            measure=f"share of the {cells} cells in which KV shifting has the lowest loss of five methods "
            f"({', '.join(f'{method} {count}' for method, count in wins.items())})",
            estimate=stats.exact(int(wins[KV]) / cells),
        ),
        *by_context,
        own(
            source="from section 3.3, of Tables 9 and 10",
            sentence="K shifting is a meta-learner, V shifting its checker: induction in one layer needs the shifted "
            "key, so K shifting alone should be better than V shifting alone.",
            measure=f"share of the {cells} cells in which K shifting is below V shifting ({_below(loss, K, V)})",
            estimate=stats.exact(_below(loss, K, V) / cells),
            threshold=0.5,
        ),
    ]


def _comparator(loss: pd.DataFrame, method: str, source: str) -> Claim:
    run = loss[loss[method].notna()]
    above = _below(run, VANILLA, method)
    return own(
        source=source,
        sentence=f"KV shifting is better than {method} attention, which is worse even than vanilla.",
        measure=f"share of the {len(run)} cells in which {method} is above vanilla ({above}; above KV shifting "
        f"{_below(run, KV, method)}; median {-_gain(run, method):+.4g} to vanilla). A published improvement on "
        "vanilla that loses so much everywhere is a warning that the comparator is untuned",
        estimate=stats.exact(above / len(run)),
        threshold=ALMOST_EVERY,
    )


def _noise(loss: pd.DataFrame) -> list[Claim]:
    """Judge gains relative to noise. Cells may share seeds and data; only repeated runs could tell."""
    below, cells = _below(loss, KV, VANILLA), len(loss)
    both = [
        claim(
            source=f"section 4.5, said there of Figure 7a; here {tables}",
            sentence="The shifting of key and value both play an important role.",
            measure=f"share of the {cells} cells in which KV shifting is below {alone} alone ({wins}; sign test "
            f"p = {binomtest(wins, cells).pvalue:.1g}): what shifting the {other} adds",
            estimate=stats.share(wins, cells),
            threshold=0.5,
        )
        for alone, other, tables in ((V, "key", "Tables 7 and 10"), (K, "value", "Tables 7 and 9"))
        for wins in (_below(loss, KV, alone),)
    ]
    return [
        own(
            source="of Tables 6 and 7",
            sentence="Although each experiment was conducted only once, KV shifting is better than vanilla.",
            measure=f"share of the {cells} cells in which KV shifting is below vanilla ({below}; sign test "
            f"p = {binomtest(below, cells).pvalue:.1g})",
            estimate=stats.share(below, cells),
            threshold=0.5,
        ),
        own(
            source="of Tables 6 and 7",
            sentence="KV shifting improves on vanilla by more than the noise of one run.",
            measure=f"median gain of {KV} over vanilla ({_gain(loss, KV):.4g}) in residual standard deviations of one "
            f"cell ({residual_sd(loss, KV)[0]:.4f}, additive fit without the highest learning rate)",
            estimate=gain_in_sds(loss, KV),
            threshold=1.0,
        ),
        *both,
    ]


def _table5_claims(data: pd.DataFrame) -> list[Claim]:
    """Judge Table 5. Heads of one model share its loss, so they are dependent and intervals are slightly too narrow."""
    counts = data[data["kind"] == "count"].set_index("quantity")["number"].astype(int)
    upper, lower = int(counts[PREVIOUS_OWN]), int(counts[OWN_PREVIOUS])
    table = np.array([[counts[OWN_OWN], upper], [lower, counts[PREVIOUS_PREVIOUS]]])
    of_table5 = partial(claim, source="Appendix F, Table 5")
    heads = int(table.sum())
    phi = np.linalg.det(table) / math.sqrt(np.prod([*table.sum(axis=0), *table.sum(axis=1)]))
    return [
        *(
            of_table5(
                sentence=f"The numbers on the diagonal {when}dominate: key and value of the same token.",
                measure=f"share of the {heads} heads on the diagonal {at} ({diagonal})",
                estimate=stats.share(diagonal, heads),
                threshold=0.5,
                declared="2026-11-23",
            )
            for when, at, diagonal in (
                ("", "at 500B tokens", int(counts[OWN_OWN] + counts[PREVIOUS_PREVIOUS])),
                ("already ", "at 20B tokens", int(counts[EARLIER_OWN] + counts[EARLIER_PREVIOUS])),
            )
        ),
        of_table5(
            sentence="And they are not symmetrical: the lower left corner will be relatively small.",
            measure="share of the upper right corner (key of the token before, own value) among the heads off the "
            f"diagonal ({upper} of {upper + lower}; binomial p = {binomtest(upper, upper + lower).pvalue:.2g})",
            estimate=stats.share(upper, upper + lower),
            threshold=0.5,
        ),
        of_table5(
            sentence="As training progressed, alpha and beta became coupled with each other.",
            measure=f"odds ratio of the table, conditional on its margins (phi = {phi:.2f}; Fisher exact "
            f"p = {fisher_exact(table).pvalue:.1g})",
            estimate=_odds_ratio(table),
            threshold=1.0,
        ),
    ]


def _odds_ratio(table: np.ndarray) -> stats.Estimate:
    """Return the conditional odds ratio with the exact interval that matches Fisher's test."""
    found = odds_ratio(table)

    @cache  # p-values search over levels and are needed more than once
    def at(level: float) -> tuple[float, float]:
        low, high = found.confidence_interval(level)
        return float(low), float(high)

    return stats.Estimate(float(found.statistic), *at(stats.CONFIDENCE), stats.CONFIDENCE, at)


def _batch_sizes(data: pd.DataFrame) -> Claim:
    stated = data[(data["kind"] == "setting") & (data["quantity"] == BATCH)]
    by_model = stated.groupby("model", sort=False)["number"]
    ratio = by_model.max() / by_model.min()
    contradict = [str(model) for model in ratio.index[ratio >= ROUNDING]]
    return own(
        source="section 4.1 (page 5), Figure 5 (page 7), Table 16 (page 24)",
        sentence="The stated batch sizes agree.",
        measure=f"model sizes for which two statements of the batch size differ by more than a rounding "
        f"({', '.join(contradict) or 'none'} of {len(ratio)}; by a factor of up to {ratio.max():.1f})",
        estimate=stats.exact(float(len(contradict))),
        threshold=0.5,
        right_side="below",
    )
