"""Is induction by position learned, the other way of arXiv 2411.19574, Appendix D?

"The model can focus on similar tokens, obtain the hidden location information of the ith position, convert this
information into the information of the (i+1)th position through MLP, and then use it as query information in the next
layer." Two vanilla layers usually learn another way: a previous-token head in layer 0, whose result layer 1 matches in
its keys.

`CUT` makes that way impossible: in layer 0 only the last token attends (`Clamp`, pattern "last"), and only the last
token has an answer (`tasks.RepeatTask`). So in layer 1 each earlier key and value holds its own token and position and
nothing else. Without positions, such a model sees no order (`tests/studies/test_by_position.py`). What it learns can
only be induction by position.

Which way a model took is also measured without the cut. The residual stream after layer 0 at the last token is replaced
by that of another sequence, whose repeated token was first seen at another position j. If layer 1 looks for a position,
the answer becomes the token at j + 1 of its own sequence. If it looks for a token, the answer does not.

Measures and thresholds were fixed before the runs. The setting was chosen on seed 100: sequences of 16 tokens and a
vocabulary of 32 were not learned with the cut in 1500 steps, though in 700 without it.
"""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ihlab.claims import stats
from ihlab.claims.claim import Claim
from ihlab.claims.comparison import RUN, Cell, Comparison, cell_rate, cell_rows, ratio, steps
from ihlab.claims.experiment import Scale
from ihlab.claims.rates import count_in_words
from ihlab.model.config import ModelConfig
from ihlab.plots.style import BLUE, GREEN, ORANGE, PAGE, STEPS, new_figure, printed
from ihlab.training.clamp import Clamp
from ihlab.training.config import RunConfig
from tasks import RepeatTask

if TYPE_CHECKING:
    from ihlab.model.transformer import Transformer
    from ihlab.training.run import Run

CUT = Clamp(what="pattern", layer=0, value="last")
FREE, ONLY, NO_MLP = "free", "only by position", "only by position, no MLP"
MARKS = {FREE: ("o", ORANGE), ONLY: ("s", BLUE), NO_MLP: ("^", GREEN)}
TASK, SETTING = RepeatTask(), "vanilla, 2 layers"
ROWS = 1024
"""Pairs of sequences in which the answer is followed."""


class ByPosition(Comparison):
    """Steps to induction and the way that was learned, with the usual way and without it."""

    def __init__(self) -> None:
        super().__init__(
            name="by_position", title="Induction by position", declared="2026-11-27",
            variants=tuple(MARKS), settings=(SETTING,), questions=(), seeds=range(10),
        )  # fmt: skip

    def cells(self, scale: Scale) -> list[Cell]:
        """Return every arm."""
        return [(arm, SETTING) for arm in MARKS]

    def cell_config(self, cell: Cell, scale: Scale) -> RunConfig:
        """Return the config of an arm."""
        arm, _ = cell
        model = ModelConfig(
            n_layers=2, d_model=32, n_heads=2, d_vocab=TASK.vocab_size, n_ctx=TASK.length, positional="learned",
            mlp="none" if arm == NO_MLP else "swiglu",
        )  # fmt: skip
        config = RunConfig(
            task=TASK, model=model, steps=1000, batch_size=128, warmup=50, eval_rows=512, eval_growth=0.1,
            checkpoints=2, stop_at_accuracy=0.95, clamped=() if arm == FREE else (CUT,),
        )  # fmt: skip
        return config.replace(steps=12, batch_size=8, eval_rows=32) if scale == "smoke" else config

    def grid(self, cell: Cell, scale: Scale) -> tuple[float, ...]:
        """Return the learning rates that are tried for every arm."""
        return (8e-3,) if scale == "smoke" else (4e-3, 8e-3, 1.6e-2)

    def gather(self, trained: Sequence[tuple[str, "Run"]], scale: Scale) -> pd.DataFrame:
        """Return the table of `Comparison`, with `moved`: the fraction of answers that follow the position."""
        return super().gather(trained, scale).assign(moved=[round(moved(run.model()), 4) for _, run in trained])

    def claims(self, data: pd.DataFrame, scale: Scale) -> list[Claim]:
        """Judge what is learned, which way, and how much later than the usual way."""
        claim = partial(Claim, declared=self.declared, seeds=len(self._rows(data, ONLY)))
        ours = partial(claim, source="which way is learned, beside Appendix D", of_paper=False)
        way = "fraction of answers that follow the position when the last token's stream comes from another sequence"
        only, free = (stats.mean(self._rows(data, arm)["moved"].tolist(), stats.SHARE) for arm in (ONLY, FREE))
        return [
            claim(
                source="Appendix D",
                sentence="Two layers learn induction by position in more than half of the seeds, if it is all that is "
                "possible.",
                measure=self._measure(data, ONLY), estimate=self._learned(data, ONLY), threshold=0.5,
            ),
            ours(
                sentence="They learn it without an MLP, too: the next layer's queries and keys can add 1.",
                measure=self._measure(data, NO_MLP), estimate=self._learned(data, NO_MLP), threshold=0.5,
            ),
            ours(
                sentence="What they learn then is induction by position.",
                measure=f"{way}, {ONLY}", estimate=only, threshold=0.8,
            ),
            ours(
                sentence="If both ways are possible, two layers do not learn induction by position.",
                measure=f"{way}, {FREE}", estimate=free, threshold=0.5, right_side="below",
            ),
            ours(
                sentence="Induction by position is learned more slowly than the usual way.",
                measure=f"steps to 90% accuracy, {ONLY} / {FREE}",
                estimate=ratio(data, (ONLY, SETTING), (FREE, SETTING)), threshold=1.25,
            ),
        ]  # fmt: skip

    @staticmethod
    def _rows(data: pd.DataFrame, arm: str) -> pd.DataFrame:
        return cell_rows(data, (arm, SETTING))

    @staticmethod
    def _learned(data: pd.DataFrame, arm: str) -> stats.Estimate:
        taken = steps(data, (arm, SETTING))
        return stats.share(int(np.isfinite(taken).sum()), len(taken))

    def _measure(self, data: pd.DataFrame, arm: str) -> str:
        within = f"{self._rows(data, arm)['horizon'].max():.0f} steps"
        rate = cell_rate(data, (arm, SETTING))
        return f"fraction of seeds with an accuracy of 90% within {within}, {arm} (learning rate {rate})"

    @printed
    def draw(self, data: pd.DataFrame, scale: Scale) -> Figure:
        """Draw every seed's steps to 90% against the fraction of answers that follow the position."""
        figure = new_figure(PAGE, 4.2)
        axes = figure.subplots()
        for arm, (marker, color) in MARKS.items():
            rows = self._rows(data, arm)
            taken = np.minimum(rows["steps_to_90"].astype(float), rows["horizon"])
            label = f"{arm} ({count_in_words(rows['steps_to_90'].tolist())})"
            axes.plot(taken, rows["moved"], marker, color=color, mfc="white", ms=6, label=label)
        axes.axhline(1 / (TASK.length - 2), color="#777777", linewidth=1, linestyle="--")
        axes.set(xscale="log", ylim=(0, 1.03), xlabel="training steps to 90% accuracy")
        last = float(data["horizon"].max())
        ticks = [tick for tick in STEPS if last / 20 < tick < last]
        axes.set_xticks([*ticks, last], [*map(str, ticks), f"not in {last:.0f}"])
        axes.minorticks_off()
        axes.set_ylabel("answers that follow the position")
        figure.legend(loc="outside lower center", ncols=len(MARKS))
        seeds = data.loc[data["kind"] == RUN, "seed"].nunique()
        figure.suptitle(
            "Two vanilla layers can learn induction by position, if the usual way is cut\n"
            f"Marker: one of {seeds} seeds (how many learn). Dashed: guessing.",
            fontsize=11,
        )
        return figure

    def summary(self, data: pd.DataFrame, scale: Scale) -> str:
        """State how many seeds learn, after how many steps, and which way."""
        told = []
        for arm in MARKS:
            rows, taken = self._rows(data, arm), steps(data, (arm, SETTING))
            told.append(
                f"{count_in_words(taken)} seeds learn, after {np.median(taken):.0f} steps (median), and "
                f"{rows['moved'].mean():.0%} of the answers follow the position ({arm})"
            )
        return f"Induction in two vanilla layers with learned positions: {'; '.join(told)}."


def moved(model: "Transformer") -> float:
    """Return the fraction of answers that follow the position of another sequence, as the module explains.

    Only pairs of sequences with different positions count.
    """
    import torch

    own, other = (torch.as_tensor(TASK.batch(ROWS, np.random.default_rng(seed)).inputs) for seed in (0, 1))
    at, there = ((tokens[:, :-1] == tokens[:, -1:]).int().argmax(dim=1) for tokens in (own, other))
    name = "blocks.0.hook_resid_post"
    with torch.no_grad():
        _, cache = model.run_with_cache(other, names_filter=name)

        def exchange(stream: torch.Tensor, hook: object) -> torch.Tensor:
            return torch.cat([stream[:, :-1], cache[name][:, -1:]], dim=1)

        logits = model.run_with_hooks(own, fwd_hooks=[(name, exchange)])
    answers = own.gather(1, there[:, None] + 1)[:, 0]
    return float((logits[:, -1].argmax(dim=1) == answers)[at != there].float().mean())
