"""Figure 8 and four questions about it: how many hops do models follow, by their attention and number of layers?

`ihlab.claims.hop_horizon` has the measurement.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ihlab.claims import stats
from ihlab.claims.claim import Claim, changed
from ihlab.claims.experiment import Planned, Scale
from ihlab.claims.hop_horizon import SMALL_ERROR, Cell, hop_horizons, hop_table
from ihlab.claims.labels import ATTENTION_LABELS, K_ONLY, KV, V_ONLY, VANILLA
from ihlab.claims.learning_curves import plan
from ihlab.model.config import GPT2, ModelConfig
from ihlab.plots.curves import Mark
from ihlab.plots.hops import hop_errors, hop_ticks, horizon_law
from ihlab.plots.style import BLUE, ORANGE, PAGE, PINK, SKY, new_figure, printed
from ihlab.training.config import RunConfig
from tasks import MultiHopTask

if TYPE_CHECKING:
    from ihlab.training.run import Run


# Models and settings


def _task(hops: int, letters: int, alphabet: int = 4) -> MultiHopTask:
    return MultiHopTask(vocab_size=hops + 3 + alphabet, length=letters + 1, max_hops=hops, alphabet=alphabet)


@dataclass(frozen=True, kw_only=True)
class Size:
    """Settings of the experiments at one scale. L is the number of layers in the last three experiments."""

    task: MultiHopTask  # of Figure 8
    layers: tuple[int, ...]  # of Figure 8
    seeds: range  # of Figure 8
    law_hops: int  # hops in a sequence: one more than the law's deepest models follow with pointers alone
    law_layers: dict[str, tuple[int, ...]]  # by attention; one layer without the key shift cannot follow a hop
    law_steps: dict[int, int]  # by number of layers
    L: int
    steps: int  # of the last three experiments, the same for all models
    few: int  # seeds of `saved_layer`, and of the cells that `one_more_layer` compares with its new cell
    # Seeds of all other cells. With eight, exact tests of proportions and ranks can reach significance among five
    # claims. With fewer than six, a proportion of one cell's models can never be significant.
    many: int = 8


_DEEP = {VANILLA: (2, 3, 4), KV: (1, 2, 3, 4), K_ONLY: (1, 2, 3, 4), V_ONLY: (2, 3, 4)}

SIZES: dict[Scale, Size] = {
    "smoke": Size(
        task=_task(2, 15), layers=(2,), seeds=range(2),
        law_hops=3, law_layers={VANILLA: (2,), KV: (1, 2), K_ONLY: (2,), V_ONLY: (2,)}, law_steps={1: 20, 2: 20},
        L=1, steps=20, few=2, many=2,
    ),
    # Figure 8's claims, steps and batch size were fixed before any model with these seeds was trained. In the law, two
    # layers with the shift follow one hop fewer after 1500 steps than after 6000. Three layers have fewer steps,
    # because each step costs more and sequences of 5 hops cannot show the 7 of the construction. After 12,000 steps KV
    # shifting still learns more hops; three vanilla layers follow as many as after 3000.
    "laptop": Size(
        task=_task(8, 48), layers=(2, 3), seeds=range(15, 20),
        law_hops=5, law_layers={VANILLA: (2, 3), KV: (1, 2, 3), K_ONLY: (2,), V_ONLY: (2,)},
        law_steps={1: 1500, 2: 6000, 3: 3000},
        L=3, steps=12_000, few=5,
    ),
    "gpu": Size(
        task=_task(16, 98), layers=(2, 3, 4, 5), seeds=range(5),
        law_hops=9, law_layers=_DEEP, law_steps={1: 3000, 2: 12_000, 3: 24_000, 4: 24_000},
        L=3, steps=48_000, few=8,
    ),
    "paper": Size(
        task=_task(16, 98), layers=(2, 3, 4, 5, 6), seeds=range(3),
        law_hops=9, law_layers=_DEEP, law_steps={1: 10_000, 2: 20_000, 3: 40_000, 4: 80_000},
        L=4, steps=100_000, few=8,
    ),
}  # fmt: skip


def figure8_config(scale: Scale) -> RunConfig:
    """Return the config of Figure 8's vanilla models with two layers.

    `gpu` and `paper` have the original's settings, `gpu` with a tenth of the steps: GPT-2 blocks without unembedding
    (the residual stream is as wide as the logits), dropout 0.1. The smaller scales have Llama blocks, which learn in
    fewer steps, and shorter sequences with fewer hops.
    """
    task = SIZES[scale].task
    if scale not in ("gpu", "paper"):
        return _llama_config(task, scale)
    model = ModelConfig(
        n_layers=2, d_model=128, n_heads=4, d_vocab=128, n_ctx=task.length, dropout=0.1, unembedding="none",
        init_std=0.02, scaled_residual_init=True, **GPT2,  # type: ignore[arg-type]
    )  # fmt: skip
    return RunConfig(
        task=task, model=model, steps=100_000 if scale == "paper" else 10_000, batch_size=32, lr=1e-4,
        warmup=1000, schedule="linear", eval_every=500, eval_rows=850, compile=True,
    )  # fmt: skip


def law_config(scale: Scale, hops: int, steps: int) -> RunConfig:
    """Return the config of the other experiments' vanilla models with two layers: ten letters, no MLPs.

    With Figure 8's four letters, a window of the last few tokens already contains several hops. The law is about
    attention, and its constructions need MLPs only to switch hops on and off. The rate was chosen on three vanilla
    layers, with seeds that no experiment uses: within 3000 steps they learned three hops at 8e-3, but not at 3e-3 or
    1.6e-2.
    """
    run = _llama_config(_task(hops, letters=10 * hops - 2, alphabet=10), scale)
    run = run.replace(steps=steps, model=run.model.replace(mlp="none"))
    return run if scale == "smoke" else run.replace(batch_size=64, lr=8e-3)


def _llama_config(task: MultiHopTask, scale: Scale) -> RunConfig:
    model = ModelConfig(n_layers=2, d_model=64, n_heads=4, d_vocab=task.vocab_size, n_ctx=task.length)
    if scale == "smoke":
        small = model.replace(d_model=16, n_heads=2)
        return RunConfig(task=task, model=small, steps=20, batch_size=8, warmup=5, eval_rows=64, checkpoints=2)
    return RunConfig(
        task=task, model=model, steps=1000, batch_size=32, lr=3e-3, schedule="linear", eval_every=250, eval_rows=256,
        checkpoints=2, compile=True,
    )  # fmt: skip


def models(scale: Scale) -> dict[str, list[tuple[Cell, RunConfig, int | range]]]:
    """Return each experiment's cells, each with its config except attention and layers, and its seeds or their number.

    Sequences of the last three have 2^L hops. Hand-built, L layers with the shift or L + 1 without follow one fewer.
    """
    size, figure8 = SIZES[scale], figure8_config(scale)
    L, long = size.L, law_config(scale, 2**size.L, size.steps)
    learned = figure8.replace(model=figure8.model.replace(positional="learned"))
    beside = Cell(KV, L), Cell(VANILLA, L + 1), Cell(K_ONLY, L + 1), Cell(V_ONLY, L + 1)
    return {
        "figure8": [(Cell(label, layers), figure8, size.seeds) for layers in size.layers for label in (VANILLA, KV)],
        "figure8_learned": [
            (Cell(label, layers), learned, size.many) for layers in size.layers for label in (VANILLA, KV)
        ],
        "figure8_law": [
            (Cell(label, layers), law_config(scale, size.law_hops, size.law_steps[layers]), size.many)
            for label, several in size.law_layers.items()
            for layers in several
        ],
        "saved_layer": [(cell, long, size.few) for cell in (Cell(KV, L), Cell(VANILLA, L), Cell(VANILLA, L + 1))],
        "shift_halves": [(Cell(label, L), long, size.many) for label in (K_ONLY, V_ONLY)],
        "one_more_layer": [(Cell(KV, L + 1), long, size.many), *((cell, long, size.few) for cell in beside)],
    }


def origin() -> pd.DataFrame:
    """Return the paper's Figure 8a: n_layers, hops, error.

    Sanford et al. 2024 (arXiv 2402.09268) published these errors with their code. Their models are vanilla, with the
    settings of `figure8_config("paper")`.
    """
    table = pd.read_csv(Path(__file__).with_name("figure8a_origin.csv"))
    same = (table["d_model"] == 128) & (table["n_heads"] == 4) & (table["train_sequences"] == "fresh")
    return table[same][["n_layers", "hops", "error"]]


# The common part of the experiments

Ask = Callable[..., Claim]
"""A function that makes a claim: `_claim` with some fields given."""

MARKS = dict(
    zip(
        ATTENTION_LABELS.values(),
        (Mark(ORANGE, "s"), Mark(BLUE, "o"), Mark(SKY, "P"), Mark(PINK, "X")),
        strict=True,
    )
)

MARGIN = 0.3
"""Largest distance from one whole layer, in doublings of k*, that still counts as one layer."""


class HopStudy:
    """An experiment on the number of hops that models follow. Subclasses define the claims."""

    name: str
    title: str = ""
    """Title of the picture of hop horizons."""
    runs_of: str = ""
    """The experiment whose runs it shares; "" if it has its own runs."""

    def cells(self, scale: Scale) -> list[Cell]:
        """Return every cell, in the order of the runs."""
        return [cell for cell, _, _ in models(scale)[self.name]]

    def runs(self, scale: Scale) -> list[Planned]:
        """Plan the runs of every cell: curves such as "vanilla, 2 layers"."""
        planned: list[Planned] = []
        for cell, config, seeds in models(scale)[self.name]:
            fields: dict[str, object] = {"attention": cell.variant, "n_layers": cell.n_layers}
            curve = f"{cell.attention}, {cell.n_layers} layers"
            stacked = scale == "gpu" and not config.model.dropout
            planned += plan(self.runs_of or self.name, config, {curve: fields}, seeds, stacked)
        return planned

    def gather(self, trained: Sequence[tuple[str, "Run"]], scale: Scale) -> pd.DataFrame:
        """Gather each model's error at each number of hops, on the same sequences for all models."""
        return pd.concat([hop_table(run) for _, run in trained], ignore_index=True)

    def summary(self, data: pd.DataFrame, scale: Scale) -> str | pd.DataFrame:
        """Return k* and the hops that each model follows, with those of the constructions."""
        horizons, rows = hop_horizons(data), []
        for cell in self.cells(scale):
            mine = cell.of(horizons).sort_values("log2_hops")
            sign = mine["bound"].map({"above": "≥", "below": "<", "": ""})
            k_star = ", ".join(sign + (2 ** mine["log2_hops"]).map("{:.1f}".format))
            rows.append((str(cell), k_star, _sorted(mine["hops"]), cell.by_hand(), cell.by_pointers()))
        columns = ["model", f"k* by seed (error {SMALL_ERROR})", "whole hops", "by hand", "by pointers alone"]
        return pd.DataFrame(rows, columns=columns)

    def draw(self, data: pd.DataFrame, scale: Scale) -> Figure:
        """Draw k* for each number of layers and variant, with the hops of the constructions in grey."""
        return horizon_law(hop_horizons(data), MARKS, _constructed, self.title)


def _constructed(label: str, n_layers: int) -> dict[str, int]:
    cell = Cell(label, n_layers)
    return {"constructed by hand": cell.by_hand(), "constructed, pointers alone": cell.by_pointers()}


def _claim(name: str, sentence: str, *measured: Any, **fields: Any) -> Claim:
    """Return a claim. `measured` are its measure, estimate, threshold and right side; trailing ones may be omitted."""
    names = ("measure", "estimate", "threshold", "right_side")
    return Claim(id=name, sentence=sentence, **dict(zip(names, measured, strict=False)), **fields)


def _own_claim(data: pd.DataFrame, declared: str = "2026-11-23") -> Ask:
    seeds = int(data["seed"].nunique())
    return partial(_claim, source="beside Appendix E.1", seeds=seeds, declared=declared, of_paper=False)


def _most_follow(ask: Ask, horizons: pd.DataFrame, name: str, sentence: str, wanted: Mapping[Cell, int]) -> list[Claim]:
    """Judge whether more than half of the models follow exactly the number of hops given for their cell.

    With eight models or fewer there is no claim, because it could be significant only if all of them agreed.
    """
    hits = [found == hops for cell, hops in wanted.items() for found in cell.of(horizons)["hops"]]
    all_but_one = stats.share(len(hits) - 1, len(hits)) if hits else stats.unknown()
    if (all_but_one.p_value(0.5) or 0.0) > 1 - stats.CONFIDENCE:
        return []
    told = " and ".join(f"{hops} ({str(cell).replace(' with', ',')})" for cell, hops in wanted.items())
    what = f"that follow exactly {told} hops: errors at most {SMALL_ERROR} up to there, and not beyond"
    return [ask(name, sentence, f"share of {len(hits)} models {what}", stats.share(sum(hits), len(hits)), 0.5)]


def _more_go_beyond(ask: Ask, horizons: pd.DataFrame, keys: Cell, values: Cell) -> Claim:
    """Judge whether shifted keys exceed the hops of hand-built vanilla in more models than shifted values do."""
    plain = values.by_hand()
    beyond = [cell.of(horizons)["hops"] > plain for cell in (keys, values)]
    counts = hits, of, others, of_others = [n for mine in beyond for n in (int(mine.sum()), len(mine))]
    return ask(
        "keys_beyond_vanilla_by_hand",
        "More models with shifted keys alone go beyond vanilla by hand than with shifted values alone",
        f"share of models that follow more than {plain} hops, {keys} less {values} ({hits} of {of} and {others} of "
        f"{of_others}; by Fisher's exact test p {stats.fisher(*counts):.2g})",
        stats.share_difference(*counts),
        0.0,
    )


def _errors(data: pd.DataFrame, cell: Cell, least: int, most: int) -> list[float]:
    """Return the mean error over a range of hops, for each seed of a cell."""
    mine = cell.of(data)
    return mine[mine["hops"].between(least, most)].groupby("seed")["error"].mean().tolist()


def _sorted(hops: pd.Series) -> str:
    return ", ".join(map(str, sorted(hops)))


# The experiments


class Figure8(HopStudy):
    """Errors of vanilla and KV shifting attention, one panel each, with one curve per number of layers."""

    name = "figure8"
    positions = "RoPE at laptop scale"

    def claims(self, data: pd.DataFrame, scale: Scale) -> list[Claim]:
        """Judge the claims of Appendix E.1. The two sentences about five layers are also judged for the deepest models.

        L vanilla layers reach 2^(L - 2) hops in the construction of Sanford et al. (2024). KV shifting, which needs no
        previous-token layer, reaches 2^(L - 1). At L = 5 these are the paper's 8 and 16. Other constructions follow
        more hops (`ihlab.theory.k_hop`). `figure8_law` tests how many trained models follow.
        """
        most, deepest = SIZES[scale].task.max_hops, max(SIZES[scale].layers)
        many, seeds, claims = min(4, most), int(data["seed"].nunique()), []
        ask = partial(_claim, source="Appendix E.1, Figure 8", seeds=seeds, declared="2026-11-22")
        for layers in SIZES[scale].layers:
            shifted, plain = (_errors(data, Cell(label, layers), many, most) for label in (KV, VANILLA))
            sentence = f"KV shifting has a very good bias for learning multi-hop ({layers} layers)."
            means = f"KV shifting less vanilla ({np.mean(shifted):.2f} and {np.mean(plain):.2f})"
            less = stats.difference(shifted, plain, stats.DIFFERENCE)
            measure = f"mean error over k = {many} .. {most}, {means}"
            setting = {"layers": f"{layers} layers"}
            fields = {"setting": setting, "statement": 34, "declared": "2026-11-21"}
            claims.append(ask(f"multi_hop_bias.{layers}_layers", sentence, measure, less, 0.0, "below", **fields))

        def contrast(ask: Ask, asked: Mapping[str, str], layers: int, hops: int) -> list[Claim]:
            """Judge whether vanilla degrades from `hops` to 2 * `hops`, and whether KV shifting reaches 2 * `hops`."""
            of = f"with {layers} layers"
            near, far = (_errors(data, Cell(VANILLA, layers), k, k) for k in (hops, 2 * hops))
            growth = stats.mean(np.subtract(far, near).tolist(), stats.DIFFERENCE)
            small = stats.mean(_errors(data, Cell(KV, layers), 2 * hops, 2 * hops), stats.SHARE)
            degrades, reaches = asked.items()
            measure = f"error of vanilla {of}, k = {2 * hops} less k = {hops}, by model"
            return [
                ask(*degrades, measure, growth, SMALL_ERROR),
                ask(*reaches, f"error of KV shifting {of} at k = {2 * hops}", small, SMALL_ERROR, "below"),
            ]

        asked = {
            "vanilla_degrades_beyond_8": "The vanilla model will significantly degrade when the hop number exceeds 8 "
            "(L = 5).",
            "kv_small_error_at_16": "KV shifting attention still has a small error when the hop count reaches 16 "
            "(L = 5).",
        }
        if deepest >= 5 and most >= 16:
            claims += contrast(ask, asked, 5, 8)
        else:
            why = f"The models have {deepest} layers and rows at most {most} hops; the sentence is about five layers."
            claims += [ask(*pair, why=why, seeds=0) for pair in asked.items()]
        hops = 2 ** (deepest - 2)
        if 2 * hops <= most:
            asked = {
                f"vanilla_degrades_{hops}_to_{2 * hops}": f"{deepest} vanilla layers degrade from {hops} hops to "
                f"{2 * hops}.",
                f"kv_reaches_{2 * hops}": f"{deepest} layers of KV shifting reach {2 * hops} hops.",
            }
            law = partial(ask, source="the same at any depth", of_paper=False)
            claims += contrast(law, asked, deepest, hops)
        if scale in ("gpu", "paper"):
            same = data[data["attention"] == VANILLA].merge(origin(), on=["n_layers", "hops"], suffixes=("", "_origin"))
            distance = (same["error"] - same["error_origin"]).abs().groupby(same["seed"]).mean()
            measure = "mean distance of the error from the published one, over depths and hops"
            mean, agree = stats.mean(distance.tolist(), stats.SHARE), partial(ask, source="Figure 8a and 8b")
            sentence = "Our vanilla reproduces the original's."
            claims.append(agree("reproduces_original", sentence, measure, mean, 0.05, "below"))
        return claims

    def summary(self, data: pd.DataFrame, scale: Scale) -> str:
        """State the errors of the deepest models in one sentence."""
        deepest, seeds = max(SIZES[scale].layers), data["seed"].nunique()
        hops = min(2 ** (deepest - 1), SIZES[scale].task.max_hops)
        shifted, plain = (np.mean(_errors(data, Cell(label, deepest), hops, hops)) for label in (KV, VANILLA))
        return (
            f"With {deepest} layers the error at {hops} hops is {shifted:.3f} with KV shifting and {plain:.3f} without "
            f"(means of {seeds} seeds, all at one learning rate that was tuned for neither)."
        )

    @printed
    def draw(self, data: pd.DataFrame, scale: Scale) -> Figure:
        """Draw errors over a log2 axis of hops, as in the paper."""
        figure = new_figure(PAGE, 4.6)
        for axes, label in zip(figure.subplots(1, 2, sharey=True), (VANILLA, KV), strict=True):
            shown = data[(data["attention"] == label) & (data["hops"] > 0)]
            hop_errors(axes, shown, origin() if label == VANILLA else None)
            hop_ticks(axes, {layers: Cell(label, layers).by_hand() for layers in SIZES[scale].layers}, SMALL_ERROR)
            axes.axhline(0.75, color="0.5", lw=1, ls=(0, (1, 3)), label="guessing one of four letters")
            axes.set(xlabel="hops")
            axes.set_title(label, fontsize=11)
            axes.label_outer()
        figure.axes[0].set_ylabel("error")
        figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
        seeds = data["seed"].nunique()
        figure.suptitle(
            f"Do models with KV shifting make fewer errors in multi-hop induction ({self.positions})?\n"
            f"Line: median of {seeds} seeds. Band: all seeds.",
            fontsize=11,
        )
        return figure


class Figure8Learned(Figure8):
    """Figure 8's laptop models with learned positions in place of RoPE: does the result depend on RoPE?

    The published models of `gpu` and `paper` have learned positions anyway.
    """

    name = "figure8_learned"
    positions = "learned positions"

    def claims(self, data: pd.DataFrame, scale: Scale) -> list[Claim]:
        """Judge those claims of Figure 8 that apply here. Measures and thresholds were fixed before the runs."""
        asked = [claim for claim in super().claims(data, scale) if claim.estimate is not None]
        fields = {"source": "Figure 8 with learned positions", "of_paper": False, "declared": "2026-11-26"}
        fields["statement"] = None
        return [replace(claim, **fields) for claim in asked]  # type: ignore[arg-type]


class Figure8Law(HopStudy):
    """The number of hops that vanilla, KV shifting and each of its halves follow, by number of layers."""

    name = "figure8_law"
    title = "How many hops do models of so many layers follow?"

    def claims(self, data: pd.DataFrame, scale: Scale) -> list[Claim]:
        """Judge whether trained models follow exactly as many hops as the constructions do.

        A cell counts if two conditions hold. A construction follows fewer hops than a sequence has, so that an extra
        hop would show. And the two constructions differ: one layer with the shift, or two without, follow one hop in
        both. The claim about V only counts all its cells, because it distinguishes V only from K only.
        """
        horizons, ask, hand, pointers = hop_horizons(data), _own_claim(data), Cell.by_hand, Cell.by_pointers

        def follow(
            name: str, sentence: str, label: str, hops: Callable[[Cell], int], all_cells: bool = False
        ) -> list[Claim]:
            cells = [cell for cell in self.cells(scale) if cell.attention == label]
            told_apart = [cell for cell in cells if all_cells or cell.by_pointers() < cell.by_hand()]
            wanted = {cell: hops(cell) for cell in told_apart if hops(cell) < SIZES[scale].law_hops}
            depths = ", ".join(str(cell.n_layers) for cell in wanted)
            return _most_follow(ask, horizons, name, f"{sentence} (L = {depths})", wanted)

        return [
            *follow("vanilla_by_hand", "L vanilla layers follow 2^(L-1) - 1 hops, as by hand", VANILLA, hand),
            *follow("kv_by_hand", "L layers of KV shifting follow 2^L - 1 hops, as by hand", KV, hand),
            *follow("keys_by_hand", "So do those whose keys alone are shifted", K_ONLY, hand),
            *follow(
                "values_by_hand", "Those whose values alone are shifted follow as many as vanilla", V_ONLY, hand,
                all_cells=True,
            ),
            *follow(
                "law_of_pointers", "L layers of KV shifting follow 2^(L-1) hops, as with pointers alone", KV, pointers
            ),
            *follow(
                "vanilla_by_pointers", "L vanilla layers follow 2^(L-2) hops, as with a layer for the token before",
                VANILLA, pointers,
            ),
        ]  # fmt: skip

    def draw(self, data: pd.DataFrame, scale: Scale) -> Figure:
        """Draw k* against layers, the constructions as lines and the published vanilla models as diamonds."""
        published = origin().assign(attention=VANILLA, seed=0)
        there = hop_horizons(published[published["n_layers"].isin(SIZES[scale].law_layers[VANILLA])])
        return horizon_law(hop_horizons(data), MARKS, _constructed, self.title, there)


class SavedLayer(HopStudy):
    """Hop horizons of L KV shifting, L vanilla and L + 1 vanilla layers, all trained for the same number of steps."""

    name = "saved_layer"
    title = "Is the shift worth one more layer?"

    def claims(self, data: pd.DataFrame, scale: Scale) -> list[Claim]:
        """Judge differences of log2 k*: whether the shift is worth one layer, and whether one layer doubles k*.

        In both constructions L layers with the shift follow as many hops as L + 1 without, so the claims apply to
        either. In both, one more layer doubles the hops to within the margin. That it does *no more* cannot be tested:
        sequences of 2^L hops leave little room beyond the 2^(L-1) - 1 hops that L vanilla layers follow by hand. Two
        claims tested it as first declared.
        """
        horizons, ask, layers = hop_horizons(data), _own_claim(data), SIZES[scale].L
        kv, vanilla, _ = cells = self.cells(scale)
        shifted, fewer, more = (cell.of(horizons)["log2_hops"].tolist() for cell in cells)
        told = f"{KV} with {layers} layers"
        whole, beyond = kv.by_hand(), kv.by_pointers()

        def between(a: list[float], b: list[float], what: str, name: str, sentence: str, *bar: Any) -> Claim:
            return ask(name, sentence, f"difference in log2 k*, {what}", stats.difference(a, b), *bar)

        def no_more(declared: Claim) -> Claim:
            why = f"From {vanilla.by_hand()} hops, those by hand, rows of {2**layers} leave room for hardly more."
            when = "2026-11-23: a referee of the table saw that rows of so few hops leave hardly any room for more than"
            return changed(ask(declared.id, declared.sentence, why=why), declared, scale, f"{when} a layer")

        depth = partial(between, shifted, fewer, f"{told} less vanilla with {layers}")
        saved = partial(between, shifted, more, f"{told} less vanilla with {layers + 1}")
        layer = partial(between, more, fewer, f"vanilla with {layers + 1} layers less {layers}")
        own, mean = f"mean log2 k*, {told}", stats.mean(shifted)
        return [
            depth("more_hops_at_equal_depth", "At equal depth the shift follows more hops", 0.0),
            replace(
                depth(
                    "worth_no_less_than_a_doubling", "It is worth no less than a layer by hand, one doubling",
                    1 - MARGIN,
                ),
                statement=8,
            ),
            replace(
                no_more(depth("worth_no_more_than_a_doubling", "It is worth no more than that", 1 + MARGIN, "below")),
                statement=8,
            ),
            saved(
                "no_fewer_than_one_more_layer", "The shift follows no fewer hops than one vanilla layer more", -MARGIN
            ),
            saved("no_more_than_one_more_layer", "It follows no more than that", MARGIN, "below"),
            layer("layer_no_less_than_a_doubling", "One more vanilla layer is no less than a doubling", 1 - MARGIN),
            no_more(layer("layer_no_more_than_a_doubling", "It is no more than that", 1 + MARGIN, "below")),
            ask(
                "beyond_pointers", f"Layers with the shift go beyond the {beyond} hops of pointers alone", own, mean,
                math.log2(beyond + 1),
            ),
            ask(
                f"follows_{whole}_by_hand", f"They follow the {whole} hops that they can by hand", own, mean,
                math.log2(whole),
            ),
        ]  # fmt: skip


class ShiftHalves(HopStudy):
    """Hop horizons of L layers with only keys or only values shifted, trained as in `saved_layer`."""

    name = "shift_halves"
    title = "Which half of the shift follows more hops?"

    def claims(self, data: pd.DataFrame, scale: Scale) -> list[Claim]:
        """Judge whether the key shift is the half that saves a layer.

        In both constructions shifted keys are worth one layer, which doubles the hops. Shifted values are worth
        nothing: the previous token's value does not help to find the next token. The claim is about proportions of
        models, not means or ranks, because models fall into two groups. Some stay at three hops, where differences in
        k* of a hundredth mean nothing, and others learn more.
        """
        return [_more_go_beyond(_own_claim(data), hop_horizons(data), *self.cells(scale))]


class OneMoreLayer(HopStudy):
    """Hop horizons of L + 1 layers with the shift or one of its halves. It shares two cells with `saved_layer`."""

    name = "one_more_layer"
    title = "Does one more layer with the shift follow more hops?"
    runs_of = SavedLayer.name

    def claims(self, data: pd.DataFrame, scale: Scale) -> list[Claim]:
        """Judge whether the shift still follows more hops at this depth, and whether one more such layer adds any.

        Sequences have 2^L hops: as many as L + 1 layers with the shift follow with pointers alone, and one more than
        L + 1 vanilla layers follow by hand. More hops cannot be observed, so both differences can only be
        underestimated. The claims are about ranks and proportions, not means, because hop horizons of seeds fall into
        groups. The two claims about the halves were declared after the results of the others were known.
        """
        horizons = hop_horizons(data)
        new, shallower, vanilla, keys, values = self.cells(scale)
        of_new, of_keys = (_own_claim(cell.of(data), declared="2026-11-24") for cell in (new, keys))

        def more(ask: Ask, name: str, sentence: str, one: Cell, other: Cell) -> Claim:
            a, b = (cell.of(horizons)["log2_hops"].tolist() for cell in (one, other))
            measure = f"shift in log2 k*, {one} less {other} ({len(a)} and {len(b)} models)"
            return ask(name, sentence, measure, stats.shift(a, b), 0.0)

        return [
            more(
                of_new, "more_hops_at_equal_depth", "At equal depth the shift follows more hops here, too", new, vanilla
            ),
            more(of_new, "one_more_layer_more_hops", "One more layer with the shift follows more hops", new, shallower),
            more(
                of_keys, "keys_beyond_values",
                "Shifted keys alone follow more hops than shifted values alone, here, too", keys, values,
            ),
            _more_go_beyond(of_keys, horizons, keys, values),
        ]  # fmt: skip
