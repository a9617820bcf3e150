"""Tables 2, 14 and 15: the paper's own printed comparisons of KV shifting and vanilla, without training.

Each model was trained once, and the three checkpoints of one model are not independent. So claims count printed
numbers, and no interval covers retraining. `table2.csv` has every cell, with its page in the paper's PDF.
"""

from functools import partial
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from ihlab.claims import stats
from ihlab.claims.claim import Claim
from ihlab.claims.experiment import Planned, Scale, Trained
from ihlab.plots.curves import Mark
from ihlab.plots.printed_tables import benchmark_leads, differences_by_context
from ihlab.plots.style import BLUE, PAGE, new_figure, printed

PRINTED = Path(__file__).with_name("table2.csv")
"""Every cell of Tables 2, 14 and 15: accuracies in percent, and losses in Table 15 (`shifted`: with shifts)."""

AVERAGE = "average"
EVERY = 0.9
"""Minimum fraction of cells for which a sentence without exceptions counts as true."""


class Table2:
    """Benchmarks of 2.9B and 19B models at three checkpoints each, MMLU in three ways, and the loss of MLA."""

    name = "table2"

    def runs(self, scale: Scale) -> list[Planned]:
        """Plan no runs."""
        return []

    def gather(self, trained: Trained, scale: Scale) -> pd.DataFrame:
        """Return the printed cells: table, page, model, tokens (1e9), quantity, context, vanilla, shifted."""
        return pd.read_csv(PRINTED)

    def claims(self, data: pd.DataFrame, scale: Scale) -> list[Claim]:
        """Judge the sentences about the three tables, and two questions about the lead in Table 2."""
        averages, single = _table2(data, average=True), _table2(data, average=False)
        single = single[single["tokens"] == single.groupby("model")["tokens"].transform("max")]
        metrics, latent = data[data["table"] == 14], data[data["table"] == 15]
        claim = partial(Claim, declared="2026-11-23")
        own = partial(claim, of_paper=False)
        ahead = int((single["lead"] > 0).sum())
        change = averages.groupby("model", sort=False)["lead"].agg(lambda lead: lead.iloc[-1] - lead.iloc[0])
        leads = "; ".join(f"{model}: {lead}" for model, lead in _leads(averages).items())
        return [
            claim(
                source="section 4.2, Table 2",
                sentence="KV shifting attention achieved better performance than baseline at various scales and "
                "training token numbers.",
                measure=f"share of the {len(averages)} checkpoints, three of 2.9B and three of 19B, whose average of "
                "eight benchmarks is higher than vanilla's",
                estimate=stats.exact(float((averages["lead"] > 0).mean())),
                threshold=EVERY,
            ),
            own(
                source="of Table 2",
                sentence="So it did on most single benchmarks at the last checkpoints.",
                measure=f"share of {len(single)} cells, eight benchmarks of either model, in which KV shifting is "
                f"ahead ({ahead})",
                estimate=stats.exact(ahead / len(single)),  # from only two models, so not a sample of 16
                threshold=0.5,
            ),
            own(
                source="of Table 2, beside sections 4.2 and 4.4",
                sentence="Its lead on the benchmarks does not shrink as training goes on.",
                measure="lead of the average at the last checkpoint less at the first, the larger of both models "
                f"({leads} points)",
                estimate=stats.exact(float(change.max())),
                threshold=0.0,
            ),
            claim(
                source="Appendix I, Table 14",
                sentence="Under different evaluation metrics KV shifting attention achieved better results.",
                measure="share of cloze, zero-shot and few-shot MMLU at which it is ahead",
                estimate=stats.exact(float((metrics["shifted"] > metrics["vanilla"]).mean())),
                threshold=EVERY,
            ),
            claim(
                source="Appendix J, Table 15",
                sentence="As the sequence length increases, the overall performance of shift KV is also better than "
                "MLA.",
                measure=f"share of the {len(latent)} context lengths at which the loss with shifts is lower (less by "
                f"{', '.join(f'{x:.4f}' for x in latent['vanilla'] - latent['shifted'])})",
                estimate=stats.exact(float((latent["shifted"] < latent["vanilla"]).mean())),
                threshold=EVERY,
            ),
        ]

    def summary(self, data: pd.DataFrame, scale: Scale) -> str:
        """State the leads in one sentence."""
        leads = _leads(_table2(data, average=True))
        points = " and ".join(f"{lead} points with {model}" for model, lead in leads.items())
        return (
            f"As printed, KV shifting leads vanilla on the average of eight benchmarks by {points}, from checkpoint to "
            "checkpoint."
        )

    @printed
    def draw(self, data: pd.DataFrame, scale: Scale) -> Figure:
        """Draw the lead on every benchmark and on average, and the loss of MLA with shifts minus without."""
        figure = new_figure(PAGE, 4.0)
        left, right = figure.subplots(1, 2, width_ratios=(1.8, 1))
        table = data[data["table"] == 2].assign(
            lead=data["shifted"] - data["vanilla"],
            group=data["model"] + "\n" + data["tokens"].map("{:.0f}B tokens".format),
            total=data["quantity"] == AVERAGE,
        )
        benchmark_leads(left, table)
        left.set(ylabel="points of accuracy")
        left.set_title("Table 2: KV shifting less vanilla", fontsize=11)
        left.legend(loc="upper right")
        latent = data[data["table"] == 15]
        losses = latent.assign(method="", difference=1000 * (latent["shifted"] - latent["vanilla"]))
        differences_by_context(right, losses.astype({"context": int}), {"": Mark(BLUE, "o")})
        right.set(xlabel="context length", ylabel="loss, thousandths")
        right.set_title("Table 15: latent attention\n(MLA) with shifts less without", fontsize=11)
        figure.suptitle("The paper's printed comparisons; each model was trained once", fontsize=11)
        return figure


def _table2(data: pd.DataFrame, average: bool) -> pd.DataFrame:
    """Return Table 2 with a column `lead`: its averages, one row per checkpoint, or its single benchmarks."""
    rows = data[(data["table"] == 2) & ((data["quantity"] == AVERAGE) == average)]
    return rows.assign(lead=rows["shifted"] - rows["vanilla"])


def _leads(averages: pd.DataFrame) -> dict[str, str]:
    """Return each model's leads from checkpoint to checkpoint as text."""
    groups = averages.groupby("model", sort=False)["lead"]
    return {str(model): ", ".join(f"{lead:.2f}" for lead in leads) for model, leads in groups}
