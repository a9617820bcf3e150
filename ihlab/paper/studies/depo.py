"""How much of the depth that Canon layers add in Depo comes from the key tap alone?

Physics of Language Models 4.1 (arXiv 2512.17351) reports that Canon layers, short convolutions at four places, let
models of equal depth answer deeper questions in Depo (`DepoTask`): which name is k successors after this one? K only
mixes the previous token into keys and into nothing else. The variants see the same tokens, at one learning rate.

**Measure.** The accuracy by k at the first query of a sequence, where no earlier answer helps. A model follows h steps
if its accuracies at k = 1 .. h are all at least `BAR`. Guessing any other name has accuracy 1/7. A model that knows the
nearest successor and predecessor excludes these and reaches 1/5; one that knows the two nearest of each reaches
1/3. On a cycle of eight names no k up to 3 leads to the same name as another k, forward or backward.

**Prediction.** Models of 1, 2, 3 layers follow the law of hops (`ihlab.theory.depth.by_doubling`): 1, 2, 4 steps with a
tap of the previous token, and 0, 1, 2 with vanilla attention, which first has to find that token. Sequences ask for at
most 3 steps, so 4 shows as 3. The law is no upper bound: it says how many hops hand-set weights can follow. Pairs
come in random order and read earlier pairs only. One pair per layer gives 1, 2, 3 and 0, 1, 2 steps in any order, as
the law does up to 3. Two layers can do more if the middle pair has read the last one, which must then be earlier. With
a guess of 1/3 in the other half of the sequences that makes 2/3. With shifted values the later pair can join both.

Pilots with seed 99 were known. K only got 1, 1 and .67 at k = 1, 2, 3 with two layers, and 1, 1 and .69 with three: it
may miss the law there. Two vanilla layers reached k = 1 after 1,400 steps at a rate of .003, and not within 1,500 at
.006, so all have .003. Positions are learned, because each name stands in two pairs and only its position says in which
place: with RoPE one layer of K only had .68 at k = 1 after 1,000 steps. Measures and thresholds were fixed before the
runs.
"""

from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ihlab.measure.batches import EVAL_SEED, draw
from ihlab.model.config import ModelConfig
from ihlab.plots.views import dots
from ihlab.recipes.labels import K_ONLY, KV, VANILLA
from ihlab.study import stats
from ihlab.study.ask import Ask, Cell, Measured, Number, claim_id, pick, untested_if, values
from ihlab.study.study import Run, Scale, Study, cells
from ihlab.theory.depth import by_doubling
from ihlab.training.config import RunConfig
from tasks import IGNORE, DepoTask

CANON = "Canon ABCD"
VARIANTS: dict[str, dict[str, Any]] = {
    VANILLA: {},
    K_ONLY: {"attention": "k_shift"},
    KV: {"attention": "kv_shift"},
    CANON: {"canon": "ABCD"},
}
LAYERS, HOPS = (1, 2, 3), ("k1", "k2", "k3")
TASK = DepoTask(vocab_size=21, length=32, names=8, max_hops=len(HOPS))
SEQUENCES = 4096
TRAINED = "2,000 training steps"
BAR, LOWER_BAR = 0.9, 0.8
"""Accuracy at which a model counts as following a step, and a lower bar to show how much depends on the choice."""
MORE = 0.05
"""Difference in accuracy, averaged over k, that counts as more."""


def config(cell: Cell, scale: Scale) -> RunConfig:
    """Return the config of a variant with a number of layers."""
    model = ModelConfig(
        n_layers=cell["layers"],
        d_model=64,
        n_heads=4,
        d_vocab=TASK.vocab_size,
        n_ctx=TASK.length,
        positional="learned",
        **VARIANTS[cell["variant"]],
    )
    run = RunConfig(
        task=TASK, model=model, steps=2000, batch_size=32, lr=3e-3, warmup=50, schedule="trapezoid", compile=True,
        checkpoints=2, eval_every=200, eval_growth=0.0,
    )  # fmt: skip
    return run.replace(steps=12, batch_size=8, warmup=5, eval_rows=32, compile=False) if scale == "smoke" else run


def accuracies(run: Run) -> dict[str, float]:
    """Return the accuracy at first queries by k, its mean, and that at k = 3 if pair 3 is before or after pair 2."""
    import torch

    batch = draw(TASK, EVAL_SEED, "eval", 0, SEQUENCES)
    rows, query = np.arange(SEQUENCES), (batch.targets != IGNORE).argmax(axis=1)
    with torch.no_grad():
        answers = run.model()(torch.as_tensor(batch.inputs))[rows, query].argmax(dim=-1).numpy()
    right, k = answers == batch.targets[rows, query], batch.groups["hops"][rows, query]
    _, second, third = walk(batch.inputs, query)
    row = {name: float(right[k == hops].mean()) for hops, name in enumerate(HOPS, 1)}
    parts = {"earlier": (k == 3) & (third < second), "later": (k == 3) & (third > second)}
    row["mean"] = float(np.mean(list(row.values())))
    return row | {name: float(right[mask].mean()) for name, mask in parts.items()}


def walk(inputs: np.ndarray, query: np.ndarray) -> list[np.ndarray]:
    """Return the indices of the pairs that lead one, two and three steps on from the name at `query`."""
    rows, pairs = np.arange(len(inputs)), []
    x, y = (inputs[:, start : start + 2 * TASK.names : 2] for start in (1, 2))
    name = inputs[rows, query]
    for _ in HOPS:
        pairs.append((x == name[:, None]).argmax(axis=1))
        name = y[rows, pairs[-1]]
    return pairs


def followed(data: pd.DataFrame, bar: float = BAR) -> list[int]:
    """Return how many steps each model follows."""
    steps: list[int] = (data[list(HOPS)].to_numpy() >= bar).cumprod(axis=1).sum(axis=1).tolist()
    return steps


def law(cell: Cell) -> Ask:
    """Ask whether a majority of seeds follows as many steps as the law of hops says. It is counted, not sampled."""
    variant, layers = cell["variant"], cell["layers"]
    steps = min(by_doubling(layers, "vanilla" if variant == VANILLA else "k_shift"), len(HOPS))

    def agrees(data: pd.DataFrame) -> Measured:
        rows = pick(data, cell)
        steps_of_seeds, lower = followed(rows), followed(rows, LOWER_BAR)
        words = f"1 if so (steps of each seed at a bar of {BAR}: {steps_of_seeds}, of {LOWER_BAR}: {lower})"
        return Measured(words, stats.exact(float(np.mean(np.equal(steps_of_seeds, steps)) > 0.5)), len(steps_of_seeds))

    return Ask(
        claim_id("law", variant, str(layers)),
        f"{variant}, {in_words(layers)}: after {TRAINED}, most seeds follow {steps} of 3 steps in Depo, as the law of "
        "hops says.",
        untested_if(partial(not_converged, cell), agrees),
        above=0.5,
        setting={"variant": variant, "layers": str(layers)},
        source="a prediction of our own",
        first=agrees,
        changed=CHANGED,
    )


def not_converged(cell: Cell, data: pd.DataFrame) -> str:
    """Return why a model that answers k = 1 worse than a shallower one of its kind says nothing about depth."""
    of_kind = data[data["variant"] == cell["variant"]].groupby("layers")["k1"].mean()
    accuracy, best = of_kind[cell["layers"]], of_kind[of_kind.index < cell["layers"]].max()
    if not best - accuracy > MORE:
        return ""
    name = f"{cell['variant']}, {in_words(cell['layers'])}"
    return f"{name}: not converged after {TRAINED} (k = 1: {accuracy:.2f}, with fewer layers {best:.2f})."


CHANGED = "2026-11-28: a model that is worse at k = 1 than a shallower one has not converged, so nothing is tested"


def in_words(layers: int) -> str:
    """Return a number of layers in words."""
    return f"{layers} layer{'s' * (layers > 1)}"


def contrast(layers: int, words: str, weights: dict[str, float]) -> Number:
    """Return the weighted sum of the variants' accuracies averaged over k, within each seed, as a mean over seeds."""

    def number(data: pd.DataFrame) -> Measured:
        mean = {name: np.array(values(data, {"layers": layers, "variant": name}, "mean")) for name in weights}
        means = ", ".join(f"{name} {accuracy.mean():.2f}" for name, accuracy in mean.items())
        sums = np.sum([weight * mean[name] for name, weight in weights.items()], axis=0).tolist()
        return Measured(f"{words} ({means})", stats.mean(sums, stats.DIFFERENCE), len(sums))

    return number


def beside_canon(layers: int) -> tuple[Ask, Ask]:
    """Ask how K only compares with Canon layers in models of one depth."""
    setting, source = {"layers": str(layers)}, "a question to Physics of Language Models 4.1"
    half = contrast(
        layers,
        "mean accuracy of K only minus the middle of vanilla and Canon, within each seed",
        {VANILLA: -0.5, K_ONLY: 1, CANON: -0.5},
    )
    return (
        Ask(
            claim_id("half", str(layers)),
            "The key tap alone gives more than half of what Canon layers gain in Depo "
            f"({in_words(layers)}, {TRAINED}).",
            untested_if(partial(not_converged, {"variant": VANILLA, "layers": layers}), half),
            first=half, changed=CHANGED, above=0.0, setting=setting, source=source,
        ),
        Ask(
            claim_id("canon_more", str(layers)),
            f"Canon layers are more accurate in Depo than the key tap alone ({in_words(layers)}, {TRAINED}).",
            contrast(layers, "mean accuracy of Canon minus K only, within each seed", {CANON: 1, K_ONLY: -1}),
            above=MORE, setting=setting, source=source,
        ),
    )  # fmt: skip


def later_pairs(data: pd.DataFrame) -> Measured:
    """Return the accuracy that two layers of K only lose at k = 3 if the walk's third pair comes after its second."""
    differences = values(data, {"variant": K_ONLY, "layers": 2}, "earlier - later")
    words = (
        "accuracy at k = 3 if the third pair comes before the second minus if after, within each seed, K only, 2 layers"
    )
    return Measured(words, stats.mean(differences, stats.DIFFERENCE), len(differences))


def view(data: pd.DataFrame) -> Figure:
    """Draw the accuracy by k."""
    long = data.melt(["variant", "layers", "seed"], list(HOPS), "hops", "accuracy")
    long = long.assign(hops="k = " + long["hops"].str[1:], layers=long["layers"].map(in_words))
    drawn = dots(
        "variant",
        "accuracy",
        panels="layers",
        colors="hops",
        lines=(1 / (TASK.names - 1), BAR),
        xlabel="accuracy at the first query",
        xlim=(-0.03, 1.05),
    )
    return drawn(long)


def shown(data: pd.DataFrame) -> pd.DataFrame:
    """Return the accuracies of each cell, averaged over seeds, and the steps that each seed follows."""
    table = data.assign(steps=followed(data)).groupby(["variant", "layers"], sort=False)
    means = table[[*HOPS, "earlier", "later"]].mean().round(2)
    names = {"k1": "k = 1", "k2": "k = 2", "k3": "k = 3", "earlier": "third pair earlier", "later": "third pair later"}
    steps = table["steps"].agg(lambda of_cell: ", ".join(map(str, of_cell)))
    return means.rename(columns=names).assign(**{"steps followed": steps}).reset_index()


DEPO = Study(
    name="depo",
    title=f"How many steps do models follow in Depo after {TRAINED}?",
    caption="Dot: a seed. Bar: the median. Dotted: guessing another name, and the accuracy that counts as following.",
    declared="2026-11-27",
    cells=cells(variant=tuple(VARIANTS), layers=LAYERS),
    smoke_cells=cells(variant=tuple(VARIANTS), layers=LAYERS[:1]),
    config=config,
    seeds=range(3),
    measure=accuracies,
    asks=[
        *map(law, cells(variant=tuple(VARIANTS), layers=LAYERS)),
        *(ask for layers in LAYERS for ask in beside_canon(layers)),
        Ask(
            "third_pair_earlier",
            "Two layers of the key tap follow a third step where the third pair comes before the second.",
            later_pairs,
            above=0.5,
        ),
    ],
    view=view,
    summary_columns=shown,
)
