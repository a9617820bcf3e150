"""The paper's printed tables against the sentences that it writes about them, without training.

Each model was trained once. So most numbers count cells, and no interval covers retraining.

- `table2.csv`: every cell of Tables 2, 14 and 15. `shifted` is with shifts. Cells are accuracies in percent, and losses
  in Table 15.
- `tables6to13.csv`: every cell of Appendix H; a loss is empty where the table says OOM.
- `tables6to13_stated.csv`: other numbers of the paper, each with a short quote. They are the counts of Table 5, and the
  settings that the paper states more than once, whether or not they agree. (Footnote 6: section 4.1's 1M is 1,048,576;
  elsewhere in the paper it is 1,000,000.)

Page numbers are those of the paper's PDF.
"""

import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.stats import binomtest, fisher_exact
from scipy.stats.contingency import odds_ratio

from ihlab.paper.plots.printed_tables import benchmark_leads, difference_maps, differences_by_context
from ihlab.plots.curves import Mark
from ihlab.plots.style import BLUE, GREEN, ORANGE, PAGE, PINK, new_figure, printed
from ihlab.study import stats
from ihlab.study.ask import claim_id
from ihlab.study.claim import Claim
from ihlab.study.experiment import Planned, Scale, Trained

FOLDER = Path(__file__).parent
EVERY, MOST = 0.9, 0.5
"""Fraction of cells above which "every" (or "almost every", or a sentence without exceptions) and "most" are true."""


@dataclass(frozen=True)
class Question:
    """A sentence, and the number that answers it: a fraction of cells, or with `number` one of the study's numbers.

    The cells are the rows of a frame that match the query `cells`, and the fraction is of those that match `hit`.
    `measure` may name the study's numbers in braces, and k (hits), n (cells) and p (of a sign test).
    """

    id: str
    statement: int | None
    sentence: str
    source: str
    measure: str
    frame: str = "cells"
    cells: str = ""
    hit: str = ""
    number: str = ""
    threshold: float = MOST
    side: Literal["above", "below"] = "above"
    sampled: bool = False  # the cells are a sample, so the fraction has an interval
    of_paper: bool = True
    declared: str = "2026-11-22"

    def claim(self, frames: dict[str, pd.DataFrame], numbers: dict[str, Any]) -> Claim:
        """Return the answer."""
        if self.number:
            estimate = numbers[self.number]
        else:
            cells = frames[self.frame].query(self.cells) if self.cells else frames[self.frame]
            k, n = len(cells.query(self.hit)), len(cells)
            estimate = stats.share(k, n) if self.sampled else stats.exact(k / n)
            numbers = {**numbers, "k": k, "n": n, "p": binomtest(k, n).pvalue}
        return Claim(
            id=self.id, statement=self.statement,
            source=self.source, sentence=self.sentence, measure=self.measure.format(**numbers), estimate=estimate,
            threshold=self.threshold, right_side=self.side, of_paper=self.of_paper, declared=self.declared,
        )  # fmt: skip


# Tables 2, 14 and 15

DECLARED = "2026-11-23"


class Table2:
    """Benchmarks of 2.9B and 19B models at three checkpoints each, MMLU in three ways, and the loss of MLA."""

    name = "table2"
    questions = (
        Question(
            "better_at_scales", 20,
            "KV shifting attention achieved better performance than baseline at various scales and training token "
            "numbers.",
            "section 4.2, Table 2",
            "fraction of the {n} checkpoints, three of 2.9B and three of 19B, whose average of eight benchmarks is "
            "higher than vanilla's",
            cells="table == 2 and quantity == 'average'", hit="shifted > vanilla", threshold=EVERY, declared=DECLARED,
        ),
        Question(
            "better_under_metrics", 44,
            "Under different evaluation metrics KV shifting attention achieved better results.",
            "Appendix I, Table 14",
            "fraction of three formats of MMLU (cloze, zero-shot, few-shot) in which KV shifting is ahead",
            cells="table == 14", hit="shifted > vanilla", threshold=EVERY, declared=DECLARED,
        ),
        Question(
            "mla_better_with_length", 45,
            "As the sequence length increases, the overall performance of shift KV is also better than MLA.",
            "Appendix J, Table 15",
            "fraction of the {n} context lengths at which the loss with shifts is lower (lower by {latent})",
            cells="table == 15", hit="shifted < vanilla", threshold=EVERY, declared=DECLARED,
        ),
    )  # fmt: skip

    def runs(self, scale: Scale) -> list[Planned]:
        """Plan no runs."""
        return []

    def gather(self, trained: Trained, scale: Scale) -> pd.DataFrame:
        """Return the printed cells: table, page, model, tokens (1e9), quantity, context, vanilla, shifted."""
        return pd.read_csv(FOLDER / "table2.csv")

    def claims(self, data: pd.DataFrame, scale: Scale) -> list[Claim]:
        """Answer the questions."""
        latent = data[data["table"] == 15]
        numbers = {"latent": ", ".join(f"{x:.4f}" for x in latent["vanilla"] - latent["shifted"])}
        return [question.claim({"cells": data}, numbers) for question in self.questions]

    def summary(self, data: pd.DataFrame, scale: Scale) -> pd.DataFrame:
        """Return the averages of eight benchmarks, and KV shifting's lead in points, by model and checkpoint."""
        averages = data[(data["table"] == 2) & (data["quantity"] == "average")]
        lead = (averages["shifted"] - averages["vanilla"]).round(2)
        table = averages[["model", "tokens", "vanilla", "shifted"]].assign(lead=lead)
        return table.rename(columns={"tokens": "tokens (1e9)", "shifted": KV})

    @printed
    def draw(self, data: pd.DataFrame, scale: Scale) -> Figure:
        """Draw the lead on every benchmark and on average, and the loss of MLA with shifts minus without."""
        figure = new_figure(PAGE, 4.0)
        left, right = figure.subplots(1, 2, width_ratios=(1.8, 1))
        data = data.assign(lead=data["shifted"] - data["vanilla"])
        table, latent = data[data["table"] == 2], data[data["table"] == 15]
        groups = table["model"] + "\n" + table["tokens"].map("{:.0f}B tokens".format)
        benchmark_leads(left, table.assign(group=groups, total=table["quantity"] == "average"))
        left.set_title("Table 2: KV shifting less vanilla", fontsize=11)
        by_context = latent.assign(method="", difference=1000 * latent["lead"]).astype({"context": int})
        differences_by_context(right, by_context, {"": Mark(BLUE, "o")})
        right.set_ylabel("loss, thousandths")
        right.set_title("Table 15: latent attention\n(MLA) with shifts less without", fontsize=11)
        figure.suptitle("The paper's printed comparisons; each model was trained once", fontsize=11)
        return figure


# Tables 5 to 13, and settings

VANILLA, KV, QKV, K, V = "vanilla", "KV shifting", "QKV shifting", "K shifting", "V shifting"
OURS = (VANILLA, K, V, QKV, KV)
"""Vanilla, and the methods that the paper proposes or ablates: Tables 6-10."""
COMPARATORS = {"Differential": "Table 11", "Differential with QK norm": "Table 12", "Selective": "Table 13"}
BATCH = "batch size in tokens"
ROUNDING = 1.25
"""Two batch sizes contradict each other if their ratio is at least this: 3M for 2.95M is rounding, a factor 2 not."""

STYLES = {K: Mark(PINK, "o", ":"), V: Mark(GREEN, "^", "--"), QKV: Mark(ORANGE, "s", "-."), KV: Mark(BLUE, "D")}
THOUSANDTHS = "Validation loss less vanilla's, in thousandths."
OUTLINED = f"{THOUSANDTHS} Outlined: the lowest of the five methods."


class Tables6To13:
    """Vanilla, K, V, QKV and KV shifting and three comparators at six learning rates and five context lengths."""

    name = "tables6to13"
    questions = (
        Question(
            "best_in_almost_every", 41,
            "In almost every learning rate and context length we experimented with, KV shifting attention achieved the "
            "best results.",
            "Appendix H, Tables 6-10",
            "fraction of the {n} cells in which KV shifting has the lowest loss of five methods ({wins})",
            hit="best == 'KV shifting'", threshold=EVERY,
        ),
        *(
            Question(
                claim_id("kv_better_than", method.replace(" with", "")), 42,
                f"KV shifting is better than {method} attention.",
                f"Appendix H, {source}, added after the other questions",
                f"fraction of the {{n}} cells in which KV shifting is below {method} ({{k}})",
                cells=f"`{method}`.notna()", hit=f"`KV shifting` < `{method}`", threshold=EVERY, declared="2026-11-27",
            )
            for method, source in COMPARATORS.items()
        ),
        # Cells may share seeds and data; only repeated runs could tell.
        *(
            Question(
                f"both_halves.{other}", 25,
                f"The shifting of key and value both play an important role: shifting the {other} as well helps.",
                f"section 4.5, about Figure 7a; here about {tables}",
                f"fraction of the {{n}} cells in which KV shifting is below {alone} alone ({{k}}; sign test "
                f"p = {{p:.1g}}), which is what shifting the {other} adds",
                hit=f"`KV shifting` < `{alone}`", sampled=True,
            )
            for alone, other, tables in ((V, "key", "Tables 7 and 10"), (K, "value", "Tables 7 and 9"))
        ),
        # Heads of one model share its loss, so they are dependent and intervals are slightly too narrow.
        *(
            Question(
                f"diagonal_{already.replace(' ', '_')}dominates", 38,
                f"Heads with key and value of the same token, the diagonal of Table 5, {already}dominate at {tokens} "
                "tokens.",
                "Appendix F, Table 5",
                f"fraction of the {{n}} heads on the diagonal at {tokens} tokens ({{k}})",
                frame="heads", hit=hit, sampled=True, declared=DECLARED,
            )
            for already, tokens, hit in (("", "500B", "key == value"), ("already ", "20B", "diagonal_at_20B"))
        ),
        Question(
            "not_symmetrical", None,
            "Table 5 is not symmetrical: the lower left corner is relatively small.",
            "Appendix F, Table 5",
            "fraction of the heads off the diagonal that are in the upper right corner (previous token's key, own "
            "value) ({k} of {n}; binomial p = {p:.2g})",
            frame="heads", cells="key != value", hit="value == 'own'", sampled=True,
        ),
        Question(
            "become_coupled", 38,
            "As training progressed, alpha and beta became coupled with each other.",
            "Appendix F, Table 5",
            "odds ratio of Table 5, conditional on its margins (phi = {phi:.2f}; Fisher exact p = {fisher:.1g})",
            number="odds ratio", threshold=1.0,
        ),
        Question(
            "batch_sizes_agree", 47,
            "The batch sizes that the paper states in several places agree.",
            "section 4.1 (page 5), Figure 5 (page 7), Table 16 (page 24)",
            "model sizes for which two statements of the batch size differ by more than a rounding ({contradicted}; by "
            "a factor of up to {factor:.1f})",
            number="contradictions", side="below", of_paper=False,
        ),
    )  # fmt: skip

    def runs(self, scale: Scale) -> list[Planned]:
        """Plan no runs."""
        return []

    def gather(self, trained: Trained, scale: Scale) -> pd.DataFrame:
        """Gather three kinds of row in one table: printed losses, counts of Table 5, and settings with their quotes."""
        cells = pd.read_csv(FOLDER / "tables6to13.csv").assign(kind="loss")
        cells["source"] = [f"Table {table}" for table in cells.pop("table")]
        table = pd.concat([cells, pd.read_csv(FOLDER / "tables6to13_stated.csv")], ignore_index=True)
        first = ["kind", "source", "page", "method", "lr", "context", "loss", "quantity", "model", "number"]
        return table[[*first, "quote", "note"]]

    def claims(self, data: pd.DataFrame, scale: Scale) -> list[Claim]:
        """Answer the questions."""
        loss, of_heads = losses(data), heads(data)
        frames = {"cells": loss.assign(best=best_of(loss)), "heads": of_heads}
        wins = best_of(loss).value_counts().reindex(OURS, fill_value=0).sort_values(ascending=False, kind="stable")
        table = pd.crosstab(of_heads["value"], of_heads["key"]).to_numpy()
        batch = data[(data["kind"] == "setting") & (data["quantity"] == BATCH)].groupby("model", sort=False)["number"]
        ratio = batch.max() / batch.min()
        contradicted = ratio.index[ratio >= ROUNDING]
        numbers = {
            "wins": ", ".join(f"{method} {count}" for method, count in wins.items()),
            "phi": np.linalg.det(table) / math.sqrt(np.prod([*table.sum(axis=0), *table.sum(axis=1)])),
            "fisher": fisher_exact(table).pvalue,
            "odds ratio": conditional_odds_ratio(table),
            "contradictions": stats.exact(float(len(contradicted))),
            "contradicted": f"{', '.join(contradicted) or 'none'} of {len(ratio)}",
            "factor": ratio.max(),
        }
        return [question.claim(frames, numbers) for question in self.questions]

    def summary(self, data: pd.DataFrame, scale: Scale) -> pd.DataFrame:
        """Return in how many cells each method is below vanilla, and the lowest of the five, and its median gain."""
        loss = losses(data)
        at_best, best = at_best_rate(loss), best_of(loss)
        rows = [
            {
                "method": method,
                f"below vanilla, of {len(loss)} cells": (loss[method] < loss[VANILLA]).sum(),
                "lowest of five": (best == method).sum(),
                "median gain over vanilla": f"{median_gain(loss, method):.4f}",
                f"below KV shifting at its best rate, of {len(at_best)}": (at_best[method] < at_best[KV]).sum(),
            }
            for method in OURS
        ]
        return pd.DataFrame(rows)

    @printed
    def draw(self, data: pd.DataFrame, scale: Scale) -> Figure:
        """Draw KV shifting minus vanilla in every setting, and every method at its best learning rate."""
        figure = new_figure(PAGE, 4.4)
        left, right = figure.subplots(1, 2)
        difference_maps([left], [_map(data, KV)])
        best = at_best_rate(losses(data))
        difference = 1000 * best[list(STYLES)].sub(best[VANILLA], axis=0)
        table = difference.melt(ignore_index=False, var_name="method", value_name="difference").reset_index()
        differences_by_context(right, table, STYLES)
        right.set_ylabel("loss less vanilla's, thousandths")
        right.set_title("each method at its best learning rate", fontsize=10)
        right.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)
        figure.suptitle(f"Does KV shifting have the lowest loss? The paper's Tables 6 to 10\n{OUTLINED}", fontsize=11)
        return figure

    @printed
    def draw_more(self, data: pd.DataFrame, scale: Scale) -> dict[str, Figure]:
        """Draw the maps of the other shifts, and of the three comparators."""
        shifts = f"Shifting only keys, only values, or queries too: Tables 8 to 10\n{OUTLINED}"
        others = f"Other published attention: Tables 11 to 13\n{THOUSANDTHS} OOM: out of memory."
        figures = {}
        for name, methods, title in (("shifts", (K, V, QKV), shifts), ("others", COMPARATORS, others)):
            figure = figures[name] = new_figure(PAGE, 3.9)
            difference_maps(figure.subplots(1, 3, sharey=True), [_map(data, method) for method in methods])
            figure.suptitle(title, fontsize=11)
        return figures


def _map(data: pd.DataFrame, method: str) -> tuple[str, pd.DataFrame]:
    """Return a method's title, and its differences to vanilla with the cells in which it is the best."""
    loss = losses(data)
    best = best_of(loss) == method
    title = method + (f"\nlowest in {best.sum()} of {len(best)}" if method in OURS else "")
    return title, pd.DataFrame({"difference": loss[method] - loss[VANILLA], "best": best}).reset_index()


def losses(data: pd.DataFrame) -> pd.DataFrame:
    """Return the printed losses, one row per (lr, context) and one column per method; NaN for OOM."""
    return data[data["kind"] == "loss"].pivot_table(index=["lr", "context"], columns="method", values="loss")


def best_of(loss: pd.DataFrame) -> pd.Series:
    """Return which of `OURS` has the lowest loss in each cell. (There are no ties.)"""
    return loss[list(OURS)].idxmin(axis=1)


def at_best_rate(loss: pd.DataFrame) -> pd.DataFrame:
    """Return the lowest loss over learning rates, one row per context length and one column per method."""
    return loss.groupby(level="context").min()


def heads(data: pd.DataFrame) -> pd.DataFrame:
    """Return a row per head of Table 5: whose key and whose value it uses, its own token's or the previous token's.

    Key: own if alpha1 > alpha2. Value: own if beta1 > beta2. At 20B tokens the paper gives only how many heads are on
    the diagonal: `diagonal_at_20B` is true in as many rows, whichever these are.
    """
    counts = data[data["kind"] == "count"].set_index("quantity")["number"].astype(int)
    kinds = [(key, value) for key in ("own", "previous") for value in ("own", "previous")]
    rows = [(key, value) for key, value in kinds for _ in range(counts[f"{key} key, {value} value"])]
    early = counts[[quantity.endswith("at 20B tokens") for quantity in counts.index]].sum()
    return pd.DataFrame(rows, columns=["key", "value"]).assign(diagonal_at_20B=np.arange(len(rows)) < early)


def median_gain(loss: pd.DataFrame, method: str) -> float:
    """Return the median over all cells of vanilla's loss - the method's. Losses are printed with four decimals."""
    return round(float((loss[VANILLA] - loss[method]).median()), 5)


def conditional_odds_ratio(table: np.ndarray) -> stats.Estimate:
    """Return the conditional odds ratio with the exact interval that matches Fisher's test."""
    found = odds_ratio(table)

    @cache  # p-values search over levels and are needed more than once
    def at(level: float) -> tuple[float, float]:
        low, high = found.confidence_interval(level)
        return float(low), float(high)

    return stats.Estimate(float(found.statistic), *at(stats.CONFIDENCE), stats.CONFIDENCE, at)
