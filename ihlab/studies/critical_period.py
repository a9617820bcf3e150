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

from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from ihlab.claims import stats
from ihlab.claims.ask import Ask, Cell, mean, ratio, unless
from ihlab.claims.experiment import Scale, Trained
from ihlab.claims.induction import induction_run
from ihlab.claims.learning_curves import crossings, slug
from ihlab.claims.study import Run, Study, cells
from ihlab.plots.views import dots
from ihlab.training.clamp import Clamp
from ihlab.training.config import ForkConfig, RunConfig

SCORED, UNSCORED = "immediate repeats scored", "immediate repeats not scored"
HELD = Clamp(what="alpha", layer=0, column=1, value=0.0)
RELEASES = {"smoke": (0, 20), "laptop": (0, 100, 200, 400, 800, 1600)}
"""Steps before the release."""
AFTER = {"smoke": 20, "laptop": 600}
"""Largest number of steps after the release."""

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


def config(cell: Cell, scale: Scale) -> RunConfig:
    """Return the config of a model without alpha2, with a checkpoint at every release."""
    smoke = scale == "smoke"
    base = induction_run("smoke" if smoke else "laptop")
    task = replace(base.task, score_immediate=cell["data"] == SCORED)  # type: ignore[type-var]
    return base.replace(
        task=task, model=base.model.replace(attention="kv_shift"), clamped=(HELD,), steps=RELEASES[scale][-1], lr=8e-3,
        schedule="constant", warmup=0, eval_every=10 if smoke else 20, eval_growth=0.0, eval_rows=256,
        checkpoints=3 if smoke else 17, stop_at_accuracy=0.97, stop_at_metric="accuracy",
    )  # fmt: skip


def released(scale: Scale) -> list[Cell]:
    """Return the cells of the released models: every dose, and after the last one every rewound part."""
    doses = RELEASES[scale]
    every = cells(data=(SCORED, UNSCORED), dose=doses, rewound=(AS_IT_IS,))
    return [*every, *cells(data=(SCORED,), dose=doses[-1:], rewound=[part for part in REWOUND if part != AS_IT_IS])]


def release(trained: Trained, scale: Scale) -> list[tuple[Cell, RunConfig]]:
    """Plan the released models, and make the folders that they start from."""
    from ihlab.training.fork import fork_config, start_fork

    planned: list[tuple[Cell, RunConfig]] = []
    for (data, run), cell in product(trained, released(scale)):
        if cell["data"] != data:
            continue
        dose, part = cell["dose"], cell["rewound"]
        names = [f"blocks.0.attn.{name}.weight" for name in REWOUND[part]]
        if part == REST:
            names = [name for name, _ in run.model(0).named_parameters() if name not in names]
        later = fork_config(
            run, dose, steps=dose + AFTER[scale], name=f"{run.config.name}-from-{dose}-{slug(part)}",
            rewound=names, new_moments=part == MOMENTS,
        )  # fmt: skip
        later = replace(later, checkpoints=2)
        start_fork(run, later, run.folder.parent)
        planned.append((cell, later))
    return planned


def measure(run: Run) -> pd.DataFrame:
    """Measure a released model; models that wait for a release have no row.

    - steps_to_90: steps after the release, interpolated between evaluations; inf: not within `horizon`;
    - accuracy: at the last evaluation. Early stopping ends a run at 97% of all answers;
    - alpha1, beta, beta1_share: |alpha1|, |beta1| + |beta2| and |beta1| / (|beta1| + |beta2|) at the release, averaged
      over heads;
    - entropy, w_qk: see `attention_at_release`.
    """
    config, metrics = run.config, run.metrics
    if not isinstance(config, ForkConfig):
        return pd.DataFrame()
    gaps = metrics.filter(like="accuracy_gap_").drop(columns="accuracy_gap_1", errors="ignore").mean(axis=1)
    after = {"step": metrics["step"] - config.first_step, "accuracy": gaps, "curve": "", "seed": 0}
    [steps] = crossings(pd.DataFrame(after).assign(horizon=config.steps - config.first_step), "", 0.9, "accuracy")
    alpha1, beta1, beta2 = (
        metrics.filter(like=name).iloc[0].abs().to_numpy() for name in ("alpha1_", "beta1_", "beta2_")
    )
    measured = {
        "steps_to_90": steps, "accuracy": gaps.iloc[-1], "alpha1": alpha1.mean(), "beta": (beta1 + beta2).mean(),
        "beta1_share": (beta1 / (beta1 + beta2)).mean(), **attention_at_release(run),
    }  # fmt: skip
    return pd.DataFrame([measured])


def attention_at_release(run: Run) -> dict[str, float]:
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


# Questions


def model(data: str, dose: int = RELEASES["laptop"][-1], rewound: str = AS_IT_IS) -> Cell:
    """Return the cell of released models, by default of those released last."""
    return {"data": data, "dose": dose, "rewound": rewound}


def no_model_is_stuck(data: pd.DataFrame) -> str:
    """Return the reason why nothing can be restored, if no model is stuck."""
    late = ratio(model(SCORED), model(SCORED, 0))(data).estimate
    return "" if late is not None and late.value > MUCH_LATER else "No model is stuck: nothing can be restored."


def rewind(id: str, part: str, sentence: str, **threshold: Any) -> Ask:
    """Ask whether a stuck model learns about as early as one released at once, if a part is rewound."""
    number = ratio(model(SCORED, rewound=part), model(SCORED, 0))
    return ask(id, sentence, unless(no_model_is_stuck, number), **threshold)


AS_EARLY = "needs less than twice the steps of one released at once."
LATE = "needs more than twice the steps of one released at once."
ask = partial(Ask, source="docs/LOG.md, 2026-11-22")
_by_dose = dots("dose", colors="data", xlabel="steps to 90% accuracy after the release (rows: steps before it)")
_by_part = dots("rewound", xlabel=f"steps after {RELEASES['laptop'][-1]} steps without alpha2 (rows: what is rewound)")


def last_released(data: pd.DataFrame) -> Figure:
    """Draw the steps of the models released last, by what is rewound."""
    return _by_part(data[(data["data"] == SCORED) & (data["dose"] == data["dose"].max())])


CRITICAL_PERIOD = Study(
    name="critical_period",
    title="Does a model that was long without alpha2 learn induction?",
    key="Marker: a seed. Bar: the median.",
    declared="2026-11-26",
    cells=cells(data=(SCORED, UNSCORED)),
    later=[*released("laptop"), *(cell for cell in released("smoke") if cell["dose"] > 0)],
    config=config,
    seeds=range(6),
    follow_up=release,
    measure=measure,
    asks=(
        ask(
            "stuck_with_repeats",
            "If immediate repeats are scored, a model released after 1600 steps without alpha2 needs more than twice "
            "the steps of one released at once.",
            ratio(model(SCORED), model(SCORED, 0)), above=MUCH_LATER,
        ),
        ask(
            "not_stuck_without_repeats",
            "If immediate repeats are not scored, a model released after 1600 steps without alpha2 needs less than "
            "twice the steps of one released at once.",
            ratio(model(UNSCORED), model(UNSCORED, 0)), below=MUCH_LATER,
        ),
        ask(
            "stuck_is_saturated",
            "The attention of a stuck model is saturated: its entropy is less than half that of uniform attention.",
            mean("entropy", model(SCORED), stats.SHARE), below=SATURATED,
        ),
        ask(
            "stuck_values_are_tokens_before",
            "The values of a stuck model come from the token before: beta1 has less than a fifth of the weight.",
            mean("beta1_share", model(SCORED), stats.SHARE), below=OWN_VALUE,
        ),
        ask(
            "free_values_are_not",
            "If immediate repeats are not scored, beta1 keeps more than a fifth of the weight after 1600 steps.",
            mean("beta1_share", model(UNSCORED), stats.SHARE), above=OWN_VALUE,
        ),
        rewind("rewind_q_k_restores", QK, f"With W_Q and W_K rewound, a stuck model {AS_EARLY}", below=MUCH_LATER),
        rewind("reset_adamw_does_not", MOMENTS, f"With AdamW's moments reset, a stuck model {LATE}", above=MUCH_LATER),
        rewind("rewind_alpha_does_not", ALPHA, f"With alpha rewound, a stuck model {LATE}", above=MUCH_LATER),
        rewind("rewind_beta_restores", BETA, f"With beta rewound, a stuck model {AS_EARLY}", below=MUCH_LATER),
        rewind("rewind_rest_does_not", REST, f"With all but beta rewound, a stuck model {LATE}", above=MUCH_LATER),
    ),
    view=lambda data: _by_dose(data[data["rewound"] == AS_IT_IS]),
    more_views={"rewound": last_released},
)  # fmt: skip
