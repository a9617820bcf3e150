"""Which half of the shift checks a claim, and which recalls? (Section 3.3, equations 11 and 12.)

The paper calls the key shift a meta-learner: it infers what follows the current token (equation 11). It calls the value
shift a checker: it infers what came before a guessed token, so that an MLP can compare this with the real token before
it (equation 12). It has no experiment. `tasks.CheckerTask` asks for both halves of the checker apart: *recall* of the
token beside a copy of the current one, and the *check* of a claimed pair, yes or no. With asked="second", the token
before is needed. Equation 12 then predicts that one layer of V only recalls and checks, and that K only and vanilla do
neither. With asked="first", the token after is needed, and equation 11 predicts the same of K only.

An accuracy of checks is the mean over true and false claims, so it is 1/2 for a model that always says yes. Each
variant has its own learning rate in each task, the one with the lowest loss on seeds that no claim uses. Measures and
thresholds were fixed before the runs. The setting was chosen on two other seeds.
"""

from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ihlab.claims import stats
from ihlab.claims.claim import Claim, at_floor
from ihlab.claims.experiment import Planned, Scale, Trained
from ihlab.claims.labels import ATTENTION_LABELS, K_ONLY, KV, V_ONLY, VANILLA
from ihlab.claims.learning_curves import lowest_loss_rates, plan
from ihlab.model.config import ModelConfig
from ihlab.plots.style import BLUE, ORANGE, PAGE, new_figure, printed
from ihlab.training.config import RunConfig
from tasks import CheckerTask
from tasks.checker import FALSE, RECALL, TRUE

Asked = Literal["second", "first"]
ASKED: tuple[Asked, Asked] = ("second", "first")
NEEDED = {"second": "token before (equation 12)", "first": "token after (equation 11)"}
RATES = (4e-3, 8e-3, 1.6e-2)
TUNING_SEEDS, SEEDS = range(100, 102), range(8)
STEPS = 600
GAP = 0.2
"""Difference of accuracies above which one variant is better than another."""


@dataclass(frozen=True)
class Comparison:
    """The sentence that `one` has a higher accuracy than `other`."""

    asked: Asked
    what: Literal["recall", "check"]
    one: str
    other: str
    sentence: str
    source: str = "beside section 3.3"
    threshold: float = GAP


EQUATION_11, EQUATION_12 = ("section 3.3, equation 11", "section 3.3, equation 12")
COMPARISONS = (
    Comparison("second", "check", V_ONLY, VANILLA, "V shifting can be seen as a checker.", EQUATION_12),
    Comparison("second", "check", V_ONLY, K_ONLY, "The checker needs the shifted values: shifted keys do not do it."),
    Comparison("second", "check", KV, V_ONLY, "KV shifting checks as well as V only, within .1.", threshold=-0.1),
    Comparison("first", "recall", K_ONLY, VANILLA, "K shifting can be seen as a meta-learner.", EQUATION_11),
    Comparison("first", "recall", K_ONLY, V_ONLY, "The meta-learner needs the shifted keys: shifted values do not."),
    Comparison("first", "check", K_ONLY, VANILLA, "A claim in reverse order is checked by the shifted keys."),
)


class Checker:
    """Accuracies of recall and checks at the end of training, by variant and asked token."""

    name = "checker"

    def runs(self, scale: Scale) -> list[Planned]:
        """Plan the tuning runs: every rate for every variant and asked token."""
        seeds, rates = (TUNING_SEEDS[:1], RATES[:1]) if scale == "smoke" else (TUNING_SEEDS, RATES)
        return [
            each for asked in ASKED for lr in rates for each in _plan(asked, tuple(ATTENTION_LABELS), lr, seeds, scale)
        ]

    def follow(self, trained: Trained, scale: Scale) -> list[Planned]:
        """Plan every variant at its own rate."""
        seeds, rates = (SEEDS[:2] if scale == "smoke" else SEEDS), lowest_loss_rates(trained)
        return [
            each
            for asked in ASKED
            for attention, variant in ATTENTION_LABELS.items()
            for each in _plan(asked, (attention,), rates[label(variant, asked)], seeds, scale)
        ]

    def gather(self, trained: Trained, scale: Scale) -> pd.DataFrame:
        """Gather one row per run that is not for tuning: asked, variant, lr, seed, and the accuracies at its end."""
        rows = []
        for curve, run in trained:
            if run.config.seed not in TUNING_SEEDS:
                last = run.metrics.iloc[-1]
                recall, true, false = (float(last[f"accuracy_question_{kind}"]) for kind in (RECALL, TRUE, FALSE))
                variant, asked = curve.split(" | ")
                rows.append((asked, variant, run.config.lr, run.config.seed, recall, (true + false) / 2, true, false))
        columns = ["asked", "variant", "lr", "seed", "recall", "check", "true", "false"]
        return pd.DataFrame(rows, columns=columns).round(5)

    def claims(self, data: pd.DataFrame, scale: Scale) -> list[Claim]:
        """Judge the comparisons."""
        return [_judge(data, comparison) for comparison in COMPARISONS]

    @printed
    def draw(self, data: pd.DataFrame, scale: Scale) -> Figure:
        """Draw the accuracy of every seed, one panel per asked token."""
        figure = new_figure(PAGE, 3.6)
        panels = figure.subplots(1, 2, sharey=True)
        for axes, asked in zip(panels, ASKED, strict=True):
            for x, variant in enumerate(ATTENTION_LABELS.values()):
                for what, aside, color, marker in (("recall", -0.16, ORANGE, "o"), ("check", 0.16, BLUE, "s")):
                    y = accuracies(data, asked, what, variant)
                    places = x + aside + np.linspace(-0.09, 0.09, len(y))
                    told = f"{what}, a seed" if asked == ASKED[0] and not x else ""
                    axes.plot(places, y, marker, color=color, mfc="white", ms=5, label=told)
            axes.axhline(0.5, color="#777777", linewidth=1, linestyle=":")
            axes.set_xticks(range(len(ATTENTION_LABELS)), list(ATTENTION_LABELS.values()))
            axes.set(title=f"The answer needs the\n{NEEDED[asked]}", ylim=(-0.04, 1.04))
        panels[0].set_ylabel("accuracy after training")
        figure.legend(loc="outside lower center", ncols=2)
        figure.suptitle(
            "One layer: which half of the shift recalls a token's neighbour, and checks a claimed pair?\n"
            "Dotted: guessing whether a claim is true.",
            fontsize=11,
        )
        return figure

    def summary(self, data: pd.DataFrame, scale: Scale) -> str:
        """State the mean accuracies of every variant."""
        told = []
        for asked in ASKED:
            found = [
                "{} {:.2f} and {:.2f}".format(
                    variant, *(np.mean(accuracies(data, asked, what, variant)) for what in ("recall", "check"))
                )
                for variant in ATTENTION_LABELS.values()
            ]
            told.append(f"where the answer needs the {NEEDED[asked]}: {', '.join(found)}")
        return f"Mean accuracy of recall, and of checks (guessing: .5), of one layer, {'; '.join(told)}."


def label(variant: str, asked: str) -> str:
    """Return the name of a variant's runs on one task."""
    return f"{variant} | {asked}"


def accuracies(data: pd.DataFrame, asked: str, what: str, variant: str) -> list[float]:
    """Return every seed's accuracy of recall or of checks."""
    return data.loc[(data["asked"] == asked) & (data["variant"] == variant), what].tolist()


def _plan(asked: Asked, attentions: tuple[str, ...], lr: float, seeds: range, scale: Scale) -> list[Planned]:
    smoke = scale == "smoke"
    task = CheckerTask(vocab_size=16, length=8, asked=asked) if smoke else CheckerTask(asked=asked)
    width, heads = (8, 2) if smoke else (32, 4)
    model = ModelConfig(n_layers=1, d_model=width, n_heads=heads, d_vocab=task.vocab_size, n_ctx=task.length)
    run = RunConfig(
        task=task, model=model, steps=10 if smoke else STEPS, batch_size=32, lr=lr, warmup=20, eval_every=50,
        eval_growth=0.1, eval_rows=512, checkpoints=2,
    )  # fmt: skip
    curves: dict[str, dict[str, object]] = {
        label(ATTENTION_LABELS[name], asked): {"attention": name} for name in attentions
    }
    return plan(f"checker-{lr:g}", run, curves, seeds, stacked=True)


def _judge(data: pd.DataFrame, comparison: Comparison) -> Claim:
    asked, what, names = comparison.asked, comparison.what, (comparison.one, comparison.other)
    one, other = (accuracies(data, asked, what, name) for name in names)
    rates = [float(data.loc[(data["asked"] == asked) & (data["variant"] == name), "lr"].iloc[0]) for name in names]
    claim = partial(
        Claim,
        source=comparison.source,
        sentence=comparison.sentence,
        of_paper=comparison.source in (EQUATION_11, EQUATION_12),
        declared="2026-11-27",
        seeds=len(one),
        threshold=comparison.threshold,
    )
    if at_floor(float(np.mean(one)), float(np.mean(other)), guess=0.5 if what == "check" else 0.0):
        return claim(why="Neither has learned it.", threshold=np.nan)
    shown = (
        f"{names[0]} ({np.mean(one):.2f}, rate {rates[0]:g}) less {names[1]} ({np.mean(other):.2f}, rate {rates[1]:g})"
    )
    return claim(
        measure=f"accuracy of {what}, the {NEEDED[asked]} is needed: {shown}",
        estimate=stats.shift(one, other, stats.DIFFERENCE),
    )
