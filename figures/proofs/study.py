"""When can a model be proved right on every sequence, and does the proof last?

A sampled accuracy of 1.0 says nothing about the sequences that were not drawn. For one attention-only layer the worst
sequence of all can be computed (`ihlab.certify`). This study asks at which step of training the proof holds, how often
a later step loses it although samples stay perfect, and which positions can be proved.

A model is *proved* if it gives the right answer to every sequence of 3 to 16 tokens in which the query has occurred
before and only the answer has ever followed it. Checkpoints lie 20 steps apart, later an eighth of the steps so far.
A wrong answer in `ROWS` sampled sequences rules a proof out. After the first proof every `STRIDE`-th checkpoint is
tried, and the last one. Times are those of the first checkpoint with perfect samples, and of the first proof.

The learning rate was chosen in trials before the study, with batches of 64. KV shifting of width 8, without positions
and with RoPE, was proved one to three checkpoints after its first perfect samples, and four of six runs lost a proof
after step 2,400. One model of K only with learned positions had perfect samples and no proof at step 900. Measures,
thresholds and seeds were fixed before the runs of the study.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ihlab.model.config import ModelConfig
from ihlab.plots.views import dots
from ihlab.recipes.labels import K_ONLY, KV, VANILLA
from ihlab.study import stats
from ihlab.study.ask import Ask, Number, described, on_table
from ihlab.study.rates import median_in_words
from ihlab.study.study import Grid, Run, Study
from ihlab.sweep.results import first_reach
from ihlab.training.config import RunConfig
from tasks import IGNORE, InductionTask, Task

if TYPE_CHECKING:
    from ihlab.model.transformer import Transformer

NONE, ROPE, ALIBI, LEARNED = "no positions", "RoPE", "ALiBi", "learned positions"
POSITIONS: dict[str, Any] = {NONE: "none", ROPE: "rope", ALIBI: "alibi", LEARNED: "learned"}

ROWS, SAMPLE_SEED = 4096, 2_000_000
"""Number and seed of the sampled sequences at each checkpoint. They have 11,716 answers."""
STRIDE = 4
BEYOND = (24, 32, 48, 64)
"""Maximum lengths that are tried in turn for a model that is proved after training, until one is not proved."""
TIMES = {"perfect samples": "steps_perfect", "a proof": "steps_proved"}
LATER = 1.25
"""Ratio of steps from which a proof counts as later than perfect samples."""


TASK = InductionTask(vocab_size=16, length=16, min_token=0)
MODEL = ModelConfig(n_layers=1, d_model=8, n_heads=1, d_vocab=TASK.vocab_size, n_ctx=TASK.length, mlp="none")
GRID = Grid(
    RunConfig(
        task=TASK, model=MODEL, steps=2400, batch_size=32, warmup=20, lr=1e-2, eval_every=20, eval_growth=0.125,
        eval_rows=256, checkpoints=100,
    ),
    {
        "variant": {
            KV: {"attention": "kv_shift"},
            K_ONLY: {"attention": "k_shift"},
            VANILLA: {"steps": 600},  # it cannot learn
        },
        "setting": {label: {"positional": name} for label, name in POSITIONS.items()},
        "width": {8: {}, 32: {"d_model": 32, "d_mlp": None, "d_head": None}},
    },
)  # fmt: skip


def is_proved(model: "Transformer", task: Task) -> bool:
    """Return whether every sequence is answered rightly. The longest sequences come first, because they fail most."""
    from ihlab.certify import certify

    return all(certify(model, task, lengths, margins=False).status == "proved" for lengths in ([task.length], None))


def measure(run: Run) -> dict[str, float]:
    """Return when samples were perfect and when the proof held, whether it was lost, and what is proved at the end."""
    import torch

    from ihlab.certify import certify
    from ihlab.measure.batches import draw

    task, accuracy = run.config.task, run.metrics.set_index("step")["accuracy"]
    sample = draw(task, SAMPLE_SEED, "eval", 0, ROWS)
    tokens, scored = torch.from_numpy(sample.inputs.copy()), sample.answers != IGNORE
    perfect_at = proved_at = np.inf
    lost = perfect = False
    since = 0
    for step in run.checkpoints:
        model = run.model(step)
        if perfect := accuracy[step] == 1:
            with torch.no_grad():
                perfect = bool((model(tokens).argmax(dim=-1).numpy() == sample.answers)[scored].all())
        perfect_at = min(perfect_at, step if perfect else np.inf)
        since += proved_at < np.inf
        if perfect and (since % STRIDE == 0 or step == run.checkpoints[-1]):
            proved = is_proved(model, task)
            lost = lost or (proved_at < np.inf and not proved)
            proved_at = min(proved_at, step if proved else np.inf)
    trained = certify(model, task, margins=False)
    longest = trained.longest
    for last in BEYOND if longest == task.length and run.config.model.positional != "learned" else ():
        certificate = certify(model, task, range(longest + 1, last + 1), margins=False)
        longest = max(longest, certificate.longest)
        if certificate.status != "proved":
            break
    return {
        "steps_to_999": first_reach(run.metrics["step"], run.metrics["accuracy"], 0.999), "steps_perfect": perfect_at,
        "steps_proved": proved_at, "lost": float(lost), "accuracy": accuracy.iloc[-1], "perfect": float(perfect),
        "proved": float(trained.status == "proved"), "refuted": float(trained.status == "refuted"), "longest": longest,
        "margin": float(trained.table["margin"].min()),
    }  # fmt: skip


def shifted(data: pd.DataFrame) -> pd.DataFrame:
    """Return the runs of shifted models."""
    return data[data["variant"] != VANILLA]


CHANGED = "2026-11-28: runs of one seed share their batches, so they count as one cluster and not as independent runs"


def fraction(id: str, sentence: str, words: str, hit: str, among: str, above: float, **fields: Any) -> Ask:
    """Ask for the fraction of runs that satisfy `hit` among those that satisfy `among`. Both are pandas queries.

    Runs of one seed are a cluster. As first declared, all runs counted as independent.
    """

    def counts(data: pd.DataFrame) -> tuple[list[int], list[int]]:
        runs = data.query(among, engine="python")
        right, all_runs = (rows["seed"].value_counts() for rows in (runs.query(hit, engine="python"), runs))
        return right.reindex(all_runs.index, fill_value=0).tolist(), all_runs.tolist()

    def clustered(data: pd.DataFrame) -> stats.Estimate:
        return stats.clustered_share(*counts(data))

    def independent(data: pd.DataFrame) -> stats.Estimate:
        return stats.share(*map(sum, counts(data)))

    numbers = [described(f"fraction of runs {words}", estimate) for estimate in (clustered, independent)]
    return Ask(id, sentence, numbers[0], above=above, first=numbers[1], changed=CHANGED, **fields)


SHIFTED = f"variant != '{VANILLA}'"


def proved(setting: str) -> Ask:
    """Ask whether most shifted models with one position scheme are proved at the end."""
    return fraction(
        "proved",
        f"Most models of one shifted layer are proved after training ({setting}).",
        f"proved after training, {setting}",
        "proved == 1",
        f"{SHIFTED} and setting == '{setting}'",
        above=0.5,
    ).at(positions=setting)


def longer(setting: str) -> Ask:
    """Ask whether most shifted models are proved at four times the trained length."""
    return fraction(
        "longer",
        f"Most models of one shifted layer are proved up to four times the trained length ({setting}).",
        f"proved after training for all lengths up to {BEYOND[-1]}, {setting}",
        f"longest >= {BEYOND[-1]}",
        f"{SHIFTED} and setting == '{setting}'",
        above=0.5,
    ).at(positions=setting)


def shorter(one: str, other: str) -> Number:
    """Return the longest proved length with one position scheme minus that with another, mean over seeds."""

    def estimate(data: pd.DataFrame) -> stats.Estimate:
        mean = shifted(data).groupby(["setting", "seed"])["longest"].mean()
        return stats.mean((mean[one] - mean[other]).tolist())

    return described(f"longest proved length, {one} minus {other}, mean over seeds of the difference", estimate)


def later(one: str, other: str) -> Number:
    """Return the ratio of steps to the proof: geometric mean over positions and widths, then mean over seeds."""

    def estimate(data: pd.DataFrame) -> stats.Estimate:
        logs = np.log(data.set_index(["variant", "setting", "width", "seed"])["steps_proved"])
        return stats.mean(np.exp((logs[one] - logs[other]).groupby("seed").mean()).tolist())

    return described(f"steps to the proof, {one} / {other}, geometric mean over cells, mean over seeds", estimate)


def times(a: list[float], b: list[float]) -> stats.Estimate:
    """Return the ratio of waiting times, which are cut off at the last step of training of shifted models."""
    return stats.ratio_of_times(a, b, 2400)


def pooled(words: str, statistic: Callable[..., stats.Estimate], column: str, by: str, one: str, other: str) -> Number:
    """Return a statistic of all runs of two sides, as if they were independent: as first declared."""
    return described(
        f"{words}, {one} and {other}, all runs",
        lambda data: statistic(*(data.loc[data[by] == side, column].tolist() for side in (one, other))),
    )


def shown(data: pd.DataFrame) -> pd.DataFrame:
    """Return the median times and lengths of each cell, and how many of its models lost a proof or hold one."""
    rows = []
    for (variant, setting, width), runs in data.groupby(["variant", "setting", "width"], sort=False):
        held = int((runs["steps_proved"] < np.inf).sum())
        lengths = runs["longest"]
        times = {f"steps until {name}": median_in_words(runs[column].tolist()) for name, column in TIMES.items()}
        rows.append(
            {
                "model": variant,
                "positions": setting,
                "width": width,
                **times,
                "ever proved": f"{held} of {len(runs)}",
                "lost it": f"{runs['lost'].sum():.0f} of {held}",
                "perfect samples at the end": f"{runs['perfect'].sum():.0f} of {len(runs)}",
                "proved at the end": f"{runs['proved'].sum():.0f} of {len(runs)}",
                "longest proved length": f"{lengths.median():g} ({lengths.min()}-{lengths.max()})",
            }
        )
    return pd.DataFrame(rows)


CELLS = [
    cell
    for cell in GRID.cells
    if cell["width"] == 8 or (cell["variant"] != VANILLA and cell["setting"] in (NONE, ROPE))
]
LENGTHS = dots("setting", "longest", colors="variant", panels="width", xlabel="longest proved length", lines=(16,))
PROOFS = Study(
    name="proofs",
    heading="Proofs: when is a model right on every sequence?",
    title="Longest length up to which every sequence is answered rightly",
    caption="Dot: a seed, after training. Bar: the median. Dotted: the trained length, where learned positions end.",
    declared="2026-11-28",
    cells=CELLS,
    smoke_cells=[cell for cell in CELLS if cell["setting"] == NONE and cell["width"] == 8],
    config=GRID,
    seeds=range(200, 206),
    stacked=True,
    measure=measure,
    asks=[
        *map(proved, POSITIONS),
        *map(longer, (NONE, ROPE, ALIBI)),
        fraction(
            "after_samples", "The proof comes later than perfect samples, by a quarter of the steps or more.",
            f"whose proof takes {LATER} times the steps of perfect samples, or never comes, of shifted runs with "
            "perfect samples", f"steps_proved >= {LATER} * steps_perfect", f"{SHIFTED} and steps_perfect < 1e9",
            above=0.5,
        ),
        fraction(
            "lost", "A third of the runs that held a proof lose it at a later checkpoint with perfect samples.",
            "that lost a proof, of those that held one", "lost == 1", "steps_proved < 1e9", above=1 / 3,
        ),
        fraction(
            "perfect_not_proved", "A quarter of the shifted models with perfect samples after training are not proved.",
            "without a proof, of shifted runs with perfect samples after the last step", "proved == 0",
            f"{SHIFTED} and perfect == 1", above=0.25,
        ),
        fraction(
            "vanilla_refuted", "One vanilla layer is refuted.", "that are refuted, vanilla", "refuted == 1",
            f"variant == '{VANILLA}'", above=0.75,
        ),
        Ask(
            "rope_shorter", "With RoPE, shifted models are proved up to a shorter length than without positions.",
            shorter(ROPE, NONE), below=0.0, changed=CHANGED,
            first=on_table(shifted, pooled("longest proved length", stats.shift, "longest", "setting", ROPE, NONE)),
        ),
        Ask(
            "k_no_later", "Shifted keys alone are proved no later than shifted keys and values, within a quarter.",
            later(K_ONLY, KV), below=LATER, changed=CHANGED,
            first=pooled("steps to the proof", times, "steps_proved", "variant", K_ONLY, KV),
        ),
    ],
    summary_columns=shown,
    view=lambda data: LENGTHS(data.assign(width="width " + data["width"].astype(str))),
)  # fmt: skip
