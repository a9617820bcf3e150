"""Is there a critical period? A model is kept without alpha2 for some steps (alpha2 = 0) and then released.

One layer of KV shifting cannot do induction without alpha2. Under the first rule of the task, three of five models that
were released after 1000 steps did not learn it in 1000 more (docs/LOG.md, 2026-11-22). That rule scored immediate
repeats, where the answer is the own token. This study varies the steps before the release, with and without these
repeats (`InductionTask.score_immediate`). It rewinds parts of the models released last to their values before training.

The measure counts the steps after the release until the accuracy is 90%. It is the mean accuracy over slices of gaps
from 2 on, so immediate repeats do not count. There is no warm-up, because only models released early would go through
it. The first explanation was that attention has saturated on the shortcut. Then rewinding W_Q and W_K restores
learning. On seed 100, on which the setting was chosen, attention was almost uniform instead, beta1 was almost 0, and
rewinding beta alone helped. Measures and thresholds were fixed before the other runs.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ihlab.claims import stats
from ihlab.claims.claim import Claim
from ihlab.claims.experiment import Planned, Scale, Trained
from ihlab.claims.induction import induction_run
from ihlab.claims.learning_curves import crossings, plan, slug
from ihlab.claims.rates import count_in_words, median_in_words
from ihlab.plots.curves import Line
from ihlab.plots.steps import ABOVE, dots, steps_axis
from ihlab.plots.style import BLUE, ORANGE, PAGE, new_figure, printed
from ihlab.training.clamp import Clamp

if TYPE_CHECKING:
    from ihlab.training.config import ForkConfig
    from ihlab.training.run import Run

SCORED, UNSCORED = "immediate repeats scored", "immediate repeats not scored"
STYLES = {SCORED: Line(ORANGE), UNSCORED: Line(BLUE, "--")}
HELD = Clamp(what="alpha", layer=0, column=1, value=0.0)
RELEASES = (0, 100, 200, 400, 800, 1600)
DOSES: dict[Scale, tuple[int, ...]] = {"smoke": (0, 20), "laptop": RELEASES, "gpu": RELEASES, "paper": RELEASES}
"""Steps before the release."""
AFTER = {"smoke": 20, "laptop": 600, "gpu": 600, "paper": 600}
"""Largest number of steps after the release."""
SEEDS = {"smoke": 2, "laptop": 6, "gpu": 6, "paper": 6}

AS_IT_IS, MOMENTS, QK = "nothing", "AdamW's moments", "W_Q, W_K"
ALPHA, BETA, REST = "alpha", "beta", "all but beta"
REWOUND = {
    AS_IT_IS: (),
    MOMENTS: (),
    QK: ("q_proj", "k_proj"),
    ALPHA: ("key_shift",),
    BETA: ("value_shift",),
    REST: ("value_shift",),
}
"""What is rewound at the last release: these parts of attention, or with `REST` all other parameters."""

MUCH_LATER = 2.0
"""A model is stuck if it needs this many times the steps of one released at once."""
SATURATED = 0.5
"""Attention is saturated below this entropy, as a fraction of that of uniform attention."""
OWN_VALUE = 0.2
"""Values are the tokens before if beta1's part of a value's weights is below this. At the start it is a half."""


class CriticalPeriod:
    """Steps to induction after the release, by the steps before it and by what is rewound."""

    name = "critical_period"

    def runs(self, scale: Scale) -> list[Planned]:
        """Plan the models without alpha2, with a checkpoint at every release."""
        smoke, planned = scale == "smoke", []
        base = induction_run("smoke" if smoke else "laptop")
        for data in STYLES:
            task = replace(base.task, score_immediate=data == SCORED)  # type: ignore[type-var]
            run = base.replace(
                task=task, model=base.model.replace(attention="kv_shift"), clamped=(HELD,), steps=DOSES[scale][-1],
                lr=8e-3, schedule="constant", warmup=0, eval_every=10 if smoke else 20, eval_growth=0.0, eval_rows=256,
                checkpoints=3 if smoke else 17, stop_at_accuracy=0.97, stop_at_metric="accuracy",
            )  # fmt: skip
            planned += plan(self.name, run, {data: {}}, SEEDS[scale])
        return planned

    def follow(self, trained: Trained, scale: Scale) -> list[Planned]:
        """Plan the released models, and make the folders that they start from."""
        from ihlab.training.fork import start_fork

        planned = []
        for data, run in trained:
            for arm, config in _releases(data, run, scale):
                start_fork(run, config, run.folder.parent)
                planned.append(Planned(f"{data} | {arm}", config))
        return planned

    def gather(self, trained: Trained, scale: Scale) -> pd.DataFrame:
        """Gather one row per released model.

        - data, dose (steps before the release), rewound, seed;
        - steps_to_90: steps after the release, interpolated between evaluations; inf: not within `horizon`;
        - accuracy: at the last evaluation. Early stopping ends a run at 97% of all answers;
        - alpha1, beta, beta1_share: |alpha1|, |beta1| + |beta2| and |beta1| / (|beta1| + |beta2|) at the release,
          averaged over heads;
        - entropy, w_qk: see `attention_at_release`.
        """
        return pd.DataFrame([_row(curve, run) for curve, run in trained if " | " in curve])

    def claims(self, data: pd.DataFrame, scale: Scale) -> list[Claim]:
        """Judge whether there is a critical period, and the explanation that attention has saturated."""
        last = DOSES[scale][-1]
        claim = partial(
            Claim, source="docs/LOG.md, 2026-11-22", of_paper=False, declared="2026-11-26", seeds=SEEDS[scale]
        )
        late = {repeats: _ratio(data, repeats, last) for repeats in STYLES}
        stuck = late[SCORED].value > MUCH_LATER

        def ratio(name: str, sentence: str, repeats: str, side: str, arm: str = AS_IT_IS) -> Claim:
            what = "" if arm == AS_IT_IS else f", {arm} rewound"
            return claim(
                id=name,
                sentence=sentence,
                measure=f"steps to 90% after {last} steps without alpha2{what} / after none ({repeats}; "
                f"{count_in_words(_steps(data, repeats, last, arm))} seeds learn)",
                estimate=_ratio(data, repeats, last, arm),
                threshold=MUCH_LATER,
                right_side=side,  # type: ignore[arg-type]
                why="" if arm == AS_IT_IS or stuck else "No model is stuck: nothing can be restored.",
            )

        def at_release(
            name: str, sentence: str, repeats: str, column: str, measure: str, threshold: float, side: str
        ) -> Claim:
            values = _cell(data, repeats, last)[column].tolist()
            return claim(
                id=name,
                sentence=sentence,
                measure=f"{measure} at the release after {last} steps ({repeats})",
                estimate=stats.mean(values, stats.SHARE),
                threshold=threshold,
                right_side=side,  # type: ignore[arg-type]
            )

        of_uniform, share = "entropy of attention / that of uniform attention", "|beta1| / (|beta1| + |beta2|)"
        return [
            ratio(
                "stuck_with_repeats", "Where immediate repeats are scored, a model long without alpha2 is stuck.",
                SCORED, "above",
            ),
            ratio("not_stuck_without_repeats", "Where they are not, it is not.", UNSCORED, "below"),
            at_release(
                "stuck_is_saturated", "A stuck model has saturated attention.", SCORED, "entropy", of_uniform,
                SATURATED, "below",
            ),
            at_release(
                "stuck_values_are_tokens_before", "Its values are the tokens before.", SCORED, "beta1_share", share,
                OWN_VALUE, "below",
            ),
            at_release(
                "free_values_are_not", "Those of a model that is not stuck are not.", UNSCORED, "beta1_share", share,
                OWN_VALUE, "above",
            ),
            ratio("rewind_q_k_restores", "Rewinding W_Q and W_K restores learning.", SCORED, "below", QK),
            ratio("reset_adamw_does_not", "Resetting AdamW's moments does not.", SCORED, "above", MOMENTS),
            ratio("rewind_alpha_does_not", "Rewinding alpha does not.", SCORED, "above", ALPHA),
            ratio("rewind_beta_restores", "Rewinding beta restores learning.", SCORED, "below", BETA),
            ratio("rewind_rest_does_not", "Rewinding everything else does not.", SCORED, "above", REST),
        ]  # fmt: skip

    @printed
    def draw(self, data: pd.DataFrame, scale: Scale) -> Figure:
        """Draw every model's steps after the release, by the steps before it, and by what is rewound."""
        doses, horizon = DOSES[scale], float(data["horizon"].max())
        figure = new_figure(PAGE, 4.8)
        left, right = figure.subplots(1, 2, sharey=True)
        for number, (repeats, style) in enumerate(STYLES.items()):
            for place, dose in enumerate(doses):
                _seeds(left, place + 0.3 * (number - 0.5), _cell(data, repeats, dose), horizon, style, "os"[number])
            left.plot([], [], "os"[number], color=style.color, label=repeats)
        for place, arm in enumerate(REWOUND):
            _seeds(right, place, _cell(data, SCORED, doses[-1], arm), horizon, STYLES[SCORED], "o")
        for axes in (left, right):
            steps_axis(axes, data["steps_to_90"], horizon)
        left.set_ylabel("steps to 90% accuracy after the release")
        right.set_ylabel("")
        left.set_xticks(range(len(doses)), [str(dose) for dose in doses])
        left.set_xlabel("steps without alpha2 before the release")
        right.set_xticks(range(len(REWOUND)), [*REWOUND], rotation=30, ha="right")
        right.set_xlabel(f"rewound at the release after {doses[-1]} steps")
        figure.legend(loc="outside lower center", ncols=2)
        figure.suptitle(
            f"Does a model that was long without alpha2 learn induction? Dot: one of {data['seed'].nunique()} seeds. "
            "Bar: median.",
            fontsize=11,
        )
        return figure

    def summary(self, data: pd.DataFrame, scale: Scale) -> str:
        """State the median steps after the release, for every dose and for what is rewound."""
        doses = DOSES[scale]
        by_dose = [f"{', '.join(_median(data, repeats, dose) for dose in doses)} ({repeats})" for repeats in STYLES]
        by_arm = [f"{arm} {_median(data, SCORED, doses[-1], arm)}" for arm in [*REWOUND][1:]]
        return (
            f"Median steps to 90% after {', '.join(map(str, doses))} steps without alpha2: {'; '.join(by_dose)}. "
            f"After {doses[-1]} steps with immediate repeats scored, by what is rewound: {'; '.join(by_arm)}."
        )


def _releases(data: str, run: "Run", scale: Scale) -> Iterator[tuple[str, "ForkConfig"]]:
    """Yield what is rewound, and the config of the released model: at every dose, and at the last one each part."""
    from ihlab.training.fork import fork_config

    *_, last = doses = DOSES[scale]
    parts = [part for part in REWOUND if part != AS_IT_IS and data == SCORED]
    for dose, part in [*((dose, AS_IT_IS) for dose in doses), *((last, part) for part in parts)]:
        names = [f"blocks.0.attn.{name}.weight" for name in REWOUND[part]]
        if part == REST:
            names = [name for name, _ in run.model(0).named_parameters() if name not in names]
        config = fork_config(
            run, dose, steps=dose + AFTER[scale], name=f"{run.config.name}-from-{dose}-{slug(part)}",
            rewound=names, new_moments=part == MOMENTS,
        )  # fmt: skip
        yield part, replace(config, checkpoints=2)


def _row(curve: str, run: "Run") -> dict[str, object]:
    config, metrics, (data, arm) = run.config, run.metrics, curve.split(" | ")
    gaps = metrics.filter(like="accuracy_gap_").drop(columns="accuracy_gap_1", errors="ignore").mean(axis=1)
    horizon = config.steps - config.first_step
    table = pd.DataFrame({"step": metrics["step"] - config.first_step, "accuracy": gaps})
    [steps] = crossings(table.assign(curve=arm, seed=config.seed, horizon=horizon), arm, 0.9, "accuracy")
    alpha1, beta1, beta2 = (
        metrics.filter(like=name).iloc[0].abs().to_numpy() for name in ("alpha1_", "beta1_", "beta2_")
    )
    measured = {
        "steps_to_90": steps, "accuracy": gaps.iloc[-1], "alpha1": alpha1.mean(),
        "beta": (beta1 + beta2).mean(), "beta1_share": (beta1 / (beta1 + beta2)).mean(), **attention_at_release(run),
    }  # fmt: skip
    facts = {"data": data, "dose": config.first_step, "rewound": arm, "seed": config.seed, "horizon": horizon}
    return {**facts, **{name: round(float(value), 4) for name, value in measured.items()}}


def attention_at_release(run: "Run") -> dict[str, float]:
    """Return two measures of a released model before any step, averaged over heads.

    - entropy: of attention, as a fraction of that of uniform attention, averaged over queries with several keys;
    - w_qk: the Frobenius norm of W_Q W_K^T.
    """
    import torch

    from ihlab.measure.batches import EVAL_SEED, draw

    model = run.model(run.config.first_step)
    tokens = torch.from_numpy(draw(run.config.task, EVAL_SEED, "eval", 0, 64).inputs)
    with torch.no_grad():
        entropy = torch.special.entr(model.run_with_cache(tokens)[1]["pattern", 0]).sum(dim=-1)
        uniform = torch.arange(2, tokens.shape[1] + 1).log()
        w_q, w_k = model.layers[0].attn.W_Q, model.layers[0].attn.W_K
        norm = (w_q @ w_k.transpose(-1, -2)).norm(dim=(-2, -1)).mean()
    return {"entropy": (entropy[..., 1:] / uniform).mean().item(), "w_qk": norm.item()}


def _cell(data: pd.DataFrame, repeats: str, dose: int, arm: str = AS_IT_IS) -> pd.DataFrame:
    return data[(data["data"] == repeats) & (data["dose"] == dose) & (data["rewound"] == arm)]


def _steps(data: pd.DataFrame, repeats: str, dose: int, arm: str = AS_IT_IS) -> list[float]:
    return _cell(data, repeats, dose, arm)["steps_to_90"].astype(float).tolist()


def _ratio(data: pd.DataFrame, repeats: str, dose: int, arm: str = AS_IT_IS) -> stats.Estimate:
    """Return the ratio of steps after a dose to steps after none."""
    return stats.ratio_of_times(_steps(data, repeats, dose, arm), _steps(data, repeats, 0), data["horizon"].min())


def _median(data: pd.DataFrame, repeats: str, dose: int, arm: str = AS_IT_IS) -> str:
    return median_in_words(_steps(data, repeats, dose, arm))


def _seeds(axes: Axes, x: float, rows: pd.DataFrame, horizon: float, style: Line, marker: str) -> None:
    """Draw one dot per seed around x, and a bar at the median."""
    steps = rows["steps_to_90"]
    dots(axes, x + np.linspace(-0.1, 0.1, len(steps)), steps, horizon, style, marker, filled=False)
    middle = float(steps.clip(upper=ABOVE * horizon).median())
    axes.hlines(middle, x - 0.14, x + 0.14, color=style.color, lw=2)
