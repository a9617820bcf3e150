"""Does a toy task foretell what a token shift gains on text, and does the lab foretell a published order?

Two questions about the variants of `ihlab.claims.token_shifts`:

1. Do those that learn a toy fast cost few bits per byte on text? Text is modelled by two layers trained on the standard
   library for a fixed number of tokens, each variant at the best of three rates on a seed that no claim uses. Ranks are
   correlated over variants, all of them and the shifts alone: a toy that only tells shifts from no shifts says nothing
   about which shift to take. Multi-token attention is left out, because a step of it takes four times as long.
2. Marin's issue 7585 gives the speed-up of training, at width 1024, with short convolutions at several places. Is our
   order of the same five models the same? Five models have 120 orders; 5 of them have a rank correlation of .9 or more.
   A convolution of the MLP's output beats one of keys there, though one layer cannot do induction with it. The
   hypothesis: the next layer's keys then have the previous token. Taps of the previous token are set to 0 in trained
   models, for all that reads them or for the next layer's queries, keys or values alone.

The speed of a seed is 2 - steps / allowed steps if it reaches 90% accuracy, so at least 1, and else its highest
accuracy. A variant's speed is the lower median over seeds: it is below 1 unless a majority of seeds learns.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ihlab.claims import stats
from ihlab.claims.claim import Claim
from ihlab.claims.comparison import RUN, TUNING, Cell, cell_rows
from ihlab.claims.experiment import Planned, Scale, Trained
from ihlab.claims.labels import K_ONLY, V_ONLY, VANILLA
from ihlab.claims.learning_curves import lowest_loss_rates
from ihlab.claims.real_text import held_out, held_out_classes, text_run
from ihlab.claims.token_shifts import (
    CONTROL,
    CONV_ALL,
    CONV_K,
    CONV_M,
    CONV_O,
    CONV_V,
    MULTI,
    OFFSET,
    OWN,
    SMEAR_EMBED,
    SMEAR_READ,
    STEPS,
    VARIANTS,
)  # fmt: skip
from ihlab.claims.toy_settings import HOPS, INDUCTION1, INDUCTION2, NGRAM, InSettings
from ihlab.plots.variants import matrix
from ihlab.training.config import RunConfig
from tasks import TextTask

if TYPE_CHECKING:
    from ihlab.model.transformer import Transformer

TEXT = "text, 2 layers"
THREE_TAPS, TWO_TAPS = f"{CONV_ALL}, 3 taps", f"{CONV_ALL}, 2 taps"
PUBLISHED = {CONV_ALL: 1.186, THREE_TAPS: 1.178, TWO_TAPS: 1.133, CONV_M: 1.079, CONV_K: 1.051}
"""Effective speed-ups of training in Marin's issue 7585 (single runs)."""
FEW_TAPS: dict[str, dict[str, Any]] = {
    THREE_TAPS: {**VARIANTS[CONV_ALL], "canon_taps": 3}, TWO_TAPS: {**VARIANTS[CONV_ALL], "canon_taps": 2},
}  # fmt: skip
RANKED = tuple(variant for variant in VARIANTS if variant != MULTI)
"""The variants of the first question."""
SHIFTS = (
    K_ONLY, OWN, V_ONLY, OFFSET, SMEAR_EMBED, SMEAR_READ, CONV_K, CONV_V, CONV_O, CONV_M, CONV_ALL,
)  # fmt: skip
"""Those that let a token read the one before, in attention with a softmax and without a table."""

_TWO_LAYERS = (VANILLA, CONTROL, *(shift for shift in SHIFTS if shift != OWN))
TOYS: dict[str, tuple[str, ...]] = {
    INDUCTION1: RANKED, NGRAM: RANKED, INDUCTION2: _TWO_LAYERS,
    HOPS: (VANILLA, K_ONLY, V_ONLY, OFFSET, CONV_K, CONV_V, CONV_O, CONV_M, CONV_ALL),
}  # fmt: skip
"""The toys and the variants that are trained on each: mostly those of `shifts`, whose runs are used again."""

RATES: dict[Scale, tuple[float, ...]] = {
    "smoke": (1.6e-2,), "laptop": (8e-3, 1.6e-2, 3.2e-2), "gpu": (5e-4, 1e-3, 2e-3), "paper": (2.5e-4, 5e-4, 1e-3),
}  # fmt: skip
TUNING_SEED, SEEDS = 100, 3
ROWS = {"smoke": 4, "laptop": 256, "gpu": 512, "paper": 512}
"""Held-out sequences on which a finished model is measured."""
PREDICTS = 0.5
"""Rank correlation above which one order foretells another."""
CONTEXT = 4
"""Bytes of context by which positions are classified."""
COPIED = "bits_eligible"
"""Bits per byte spent where the last `CONTEXT` bytes occurred earlier, at least once followed by the target."""


class ToyAndText(InSettings):
    """Speed on toys and bits per byte on text, for the same variants."""

    def __init__(self) -> None:
        super().__init__(
            name="toy_and_text", title="Toys, text, and a published order", declared="2026-11-26",
            variants=(*RANKED, THREE_TAPS, TWO_TAPS), settings=tuple(TOYS), questions=(),
        )  # fmt: skip

    def fields(self, variant: str, n_heads: int) -> dict[str, Any]:
        """Return the fields that make a variant."""
        return {**VARIANTS, **FEW_TAPS}[variant]

    def cells(self, scale: Scale) -> list[Cell]:
        """Return each toy with its variants; at smoke scale vanilla attention and one shift."""
        kept = self.variants if scale != "smoke" else (VANILLA, CONV_M)
        return [(v, toy) for toy, tried in TOYS.items() for v in (*tried, *FEW_TAPS) if v in kept]

    def cell_config(self, cell: Cell, scale: Scale) -> RunConfig:
        """Return the config of a variant on a toy, with the steps that `shifts` allows."""
        config = super().cell_config(cell, scale)
        return config if scale == "smoke" else config.replace(steps=STEPS[cell[1]])

    def seeds_of(self, setting: str) -> range:
        """Return the seeds of `shifts`: eight for induction with one layer, and four for the other toys."""
        return range(8 if setting == INDUCTION1 else 4)

    def runs(self, scale: Scale) -> list[Planned]:
        """Plan the tuning runs, on the toys and on text."""
        texts = [self._text(v, lr, TUNING_SEED, scale) for v in self._of_text(scale) for lr in RATES[scale]]
        return [*super().runs(scale), *texts]

    def follow(self, trained: Trained, scale: Scale) -> list[Planned]:
        """Plan the runs of the claims. On text a variant's rate is the one with the lowest held-out loss."""
        toys, texts = _split(trained)
        rates = lowest_loss_rates(texts)
        return [
            *super().follow(toys, scale),
            *(self._text(v, rates[f"{v} | {TEXT}"], s, scale) for v in self._of_text(scale) for s in range(SEEDS)),
        ]

    def _of_text(self, scale: Scale) -> list[str]:
        return list(dict.fromkeys(variant for variant, _ in self.cells(scale)))

    def _text(self, variant: str, lr: float, seed: int, scale: Scale) -> Planned:
        config = short_text_run(scale)
        model = config.model.replace(**self.fields(variant, config.model.n_heads))
        name = re.sub("[^a-z0-9.]+", "-", f"{self.name} {variant} {lr:g} {seed}".lower())
        return Planned(f"{variant} | {TEXT}", config.replace(name=name, model=model, lr=lr, seed=seed))

    def gather(self, trained: Trained, scale: Scale) -> pd.DataFrame:
        """Gather one row per run: on toys as `Comparison.gather`. On text, with the setting `TEXT`:

        - loss: held-out, in nats, by which the rate is chosen;
        - for the runs of the claims, bits_per_byte, and bits_eligible, its part at positions that can be copied;
        - lost_O1, ...: bits per byte lost if the tap of the previous token is 0 at a place (K, V, O, M) of a layer;
          lost_O1_k, ...: if only the keys (k), queries (q) or values (v) of layer 2 are computed with it at 0.
        """
        toys, texts = _split(trained)
        table = super().gather(toys, scale)
        rows = []
        for curve, run in texts:
            config, tuning = run.config, run.config.seed == TUNING_SEED
            row = {
                "kind": TUNING if tuning else RUN, "variant": curve.split(" | ")[0], "setting": TEXT, "lr": config.lr,
                "seed": config.seed, "n_params": (run.done or {}).get("n_params"),
                "loss": float(run.metrics["eval_loss"].iloc[-1]),
            }  # fmt: skip
            assert isinstance(config.task, TextTask)
            measured = {} if tuning or run.diverged else measure(run.model(), config.task, ROWS[scale])
            rows.append(row | {name: round(value, 6) for name, value in measured.items()})
        return pd.concat([table, pd.DataFrame(rows)], ignore_index=True) if rows else table

    def claims(self, data: pd.DataFrame, scale: Scale) -> list[Claim]:
        """Judge what toys say about text, what both say about the published order, and where taps are read."""
        claim = partial(Claim, of_paper=False, declared=self.declared, threshold=PREDICTS, seeds=SEEDS)
        claims = []
        for toy in TOYS:
            for which, group in (("", _tried(data, toy)), (" among the shifts", _tried(data, toy, SHIFTS))):
                claims.append(
                    claim(
                        source="a question of practitioners: does a toy foretell text?",
                        sentence=f"Variants that learn {toy} faster cost less on text{which}.",
                        measure=f"rank correlation of speed with bits per byte saved ({len(group)} variants)",
                        estimate=stats.rank_correlation(speeds(data, toy, group), -bits(data, group), lower_median),
                    )
                )
        for toy, part, where in (
            (INDUCTION1, lambda group: bits(data, group, COPIED), "that can be copied from earlier text"),
            (NGRAM, lambda group: bits(data, group) - bits(data, group, COPIED), "that cannot be copied"),
        ):
            group = _tried(data, toy)
            claims.append(
                claim(
                    source="a question of practitioners: does a toy foretell text?",
                    sentence=f"Variants that learn {toy} faster cost less at positions {where}.",
                    measure=f"rank correlation of speed with bits per byte saved there ({len(group)} variants)",
                    estimate=stats.rank_correlation(speeds(data, toy, group), -part(group), lower_median),
                )
            )
        group = _tried(data, INDUCTION2)
        two, one = (speeds(data, toy, group) for toy in (INDUCTION2, INDUCTION1))
        claims.append(
            claim(
                source="a question of practitioners: which toy foretells text?",
                sentence="Of two layers of text, induction with two layers says more than with one.",
                measure=f"difference of rank correlations with bits per byte saved ({len(group)} variants)",
                estimate=stats.rank_correlation_difference(two, one, -bits(data, group), lower_median),
                threshold=0.0,
            )
        )
        return [*claims, *self._published(data, claim), *self._read(data, claim)]

    def _published(self, data: pd.DataFrame, claim: "partial[Claim]") -> list[Claim]:
        """Judge our orders of the published models, and two neighbours in that order on text."""
        group, claims = _tried(data, TEXT, tuple(PUBLISHED)), []
        published = np.array([[PUBLISHED[variant]] for variant in group])
        source = "the order of short convolutions in Marin's issue 7585"
        for setting in (TEXT, *TOYS):
            ours, score = (
                (-bits(data, group), stats.seed_mean)
                if setting == TEXT
                else (speeds(data, setting, group), lower_median)
            )
            found = stats.rank_correlation(ours, published, score, over="seeds")
            sentence = f"Our order of the published models is the published one: {setting}."
            measure = f"rank correlation with the published speed-up ({len(group)} models, over our seeds)"
            claims.append(claim(source=source, sentence=sentence, measure=measure, estimate=found))
        for one, other in ((CONV_M, CONV_K), (CONV_ALL, CONV_M)):
            if {one, other} <= set(group):
                gap = bits(data, (one,))[0] - bits(data, (other,))[0]
                sentence = f"Text costs less with {one} than with {other}."
                measure = f"bits per byte, {one} less {other}, by seed"
                found = stats.mean(gap.tolist())
                claims.append(
                    claim(source=source, sentence=sentence, measure=measure, estimate=found, threshold=0.0,
                          right_side="below")
                )  # fmt: skip
        return claims

    def _read(self, data: pd.DataFrame, claim: "partial[Claim]") -> list[Claim]:
        """Judge whether the next layer's keys are what reads the previous token in the outputs of the first layer."""
        claims = []
        for variant, place in ((CONV_M, "M"), (CONV_O, "O")):
            rows = cell_rows(data, (variant, TEXT))
            if len(rows):
                claims.append(
                    claim(
                        source="why a convolution of outputs helps in Marin's issue 7585",
                        sentence=f"With {variant}, the previous token is read mainly by the next layer's keys.",
                        measure="bits per byte lost without the first layer's tap of the previous token in the second "
                        "layer's keys alone / without it everywhere",
                        estimate=stats.mean((rows[f"lost_{place}1_k"] / rows[f"lost_{place}1"]).tolist()),
                    )
                )
        return claims

    def draw(self, data: pd.DataFrame, scale: Scale) -> Figure:
        """Draw the variants in the order of text, with what each saves there and its steps on every toy."""
        group = sorted(_tried(data, TEXT), key=lambda variant: -_saved(data, variant))
        columns = {toy: f"{toy}, rho {_rho(data, toy, _tried(data, toy)):.2f}" for toy in TOYS}
        ratios = pd.DataFrame(np.nan, index=group, columns=["bits per byte, saved on text", *columns.values()])
        labels = ratios.map(lambda _: "")
        for variant in group:
            labels.loc[variant, ratios.columns[0]] = f"{_saved(data, variant):.3f}"
            for toy in (toy for toy in TOYS if variant in _tried(data, toy)):
                speed, within = float(lower_median(speeds(data, toy, (variant,)))[0]), STEPS[toy]
                ratios.loc[variant, columns[toy]] = 2 - speed if speed >= 1 else np.inf
                text = f"{(2 - speed) * within:.0f}" if speed >= 1 else f"no ({speed:.2f})"
                labels.loc[variant, columns[toy]] = text
        title = (
            f"Does a toy foretell text ({scale} scale)? Variants in the order of text, and their steps to 90% on toys\n"
            "no: not in a majority of seeds within the steps (highest accuracy). rho: rank correlation with text."
        )
        return matrix(ratios, labels, title, "steps / the steps allowed (8: not learned)")

    def summary(self, data: pd.DataFrame, scale: Scale) -> str:
        """State each variant's gain on text, each toy's rank correlations, and where taps are read."""
        group = _tried(data, TEXT)
        saved = sorted(((_saved(data, variant), variant) for variant in group), reverse=True)
        told = ", ".join(f"{variant} {gain:.3f}" for gain, variant in saved)
        toys = []
        for toy in TOYS:
            every, shifts = _tried(data, toy), _tried(data, toy, SHIFTS)
            toys.append(
                f"{toy} {_rho(data, toy, every):.2f} ({len(every)} variants), never-learners tied "
                f"{_rho(data, toy, every, tied):.2f}, among the shifts {_rho(data, toy, shifts):.2f} ({len(shifts)})"
            )
        ranked = _tried(data, INDUCTION1)
        params = np.array([[cell_rows(data, (variant, TEXT))["n_params"].iloc[0]] for variant in ranked])
        is_shift = np.array([[float(variant in SHIFTS)] for variant in ranked])
        plain = [stats.rank_correlation(x, -bits(data, ranked), stats.seed_mean).value for x in (params, is_shift)]
        return (
            f"Bits per byte saved on text beside vanilla attention ({bits(data, (VANILLA,)).mean():.3f}): {told}. Rank "
            f"correlation of speed with it: {'; '.join(toys)}. Of the number of parameters alone: {plain[0]:.2f}. Of "
            f"being a shift: {plain[1]:.2f}. Bits per byte lost without a tap of the previous token: {_lost(data)}."
        )


def short_text_run(scale: Scale) -> RunConfig:
    """Return `text_run`, at laptop scale with a smaller model, shorter sequences and half as many steps."""
    config = text_run(scale)
    if scale != "laptop":
        return config
    task = TextTask(vocab_size=512, length=128)
    model = config.model.replace(d_model=64, n_heads=2, d_vocab=task.vocab_size, n_ctx=task.length)
    return config.replace(
        task=task, model=model, steps=300, warmup=30, eval_every=150, eval_rows=128, checkpoints=2, compile=False
    )


def measure(model: "Transformer", task: TextTask, rows: int) -> dict[str, float]:
    """Return the columns of `ToyAndText.gather` that need the trained model."""
    from ihlab.measure import text

    batch, n_bytes = held_out(task, rows)
    inputs, targets = batch.inputs, batch.targets
    losses, copied = text.token_losses(model, inputs, targets), held_out_classes(task, rows, CONTEXT) == text.ELIGIBLE
    found = {"bits_per_byte": text.bits_per_byte(losses, n_bytes)}
    found[COPIED] = text.bits_per_byte(np.where(copied, losses, 0.0), n_bytes)
    few = slice(0, max(1, rows // 4))

    def cost() -> float:
        return text.bits_per_byte(text.token_losses(model, inputs[few], targets[few]), n_bytes[few])

    if model.cfg.recurrent:
        return found
    intact = cost()
    return found | {name: value - intact for name, value in _without_taps(model, inputs[few], cost)}


def _without_taps(model: "Transformer", inputs: np.ndarray, cost: Callable[[], float]) -> Iterator[tuple[str, float]]:
    """Yield the cost without each place's tap of the previous token, for all readers or for one input of layer 2."""
    import torch

    tokens = torch.from_numpy(inputs)
    for number, block in enumerate(model.blocks, 1):
        places = dict(block.canon.items())  # type: ignore[union-attr, operator]
        places |= {part[0].upper(): canon for part, canon in block.attn.convolution.items()}  # type: ignore[union-attr, operator]
        for place, canon in places.items():
            with _zeroed(canon.weight):
                yield f"lost_{place}{number}", cost()
                if place not in "OM" or number > 1:
                    continue
                names = {part: f"blocks.1.attn.hook_{part}" for part in "qkv"}
                _, cache = model.run_with_cache(tokens, names_filter=list(names.values()))
            for part, name in names.items():
                with model.hooks(fwd_hooks=[(name, lambda _, hook, without=cache[name]: without)]):
                    yield f"lost_{place}1_{part}", cost()


@contextmanager
def _zeroed(taps: Any) -> Iterator[None]:
    """Set the taps of the previous token to 0 for a while."""
    kept = taps.data[:, 1].clone()
    taps.data[:, 1] = 0.0
    try:
        yield
    finally:
        taps.data[:, 1] = kept


def lower_median(seeds: np.ndarray) -> np.ndarray:
    """Return the lower median over the last axis."""
    return np.quantile(seeds, 0.5, axis=-1, method="lower")


def tied(seeds: np.ndarray) -> np.ndarray:
    """Return the lower median with equal speeds for all that do not learn."""
    return np.maximum(lower_median(seeds), 1.0 - 1e-9)


def speeds(data: pd.DataFrame, toy: str, variants: tuple[str, ...]) -> np.ndarray:
    """Return the speeds [variant, seed] on a toy, as defined in the module's docstring."""
    found = []
    for variant in variants:
        rows = cell_rows(data, (variant, toy))
        steps = rows["steps_to_90"].astype(float)
        found.append(np.where(np.isfinite(steps), 2 - steps / rows["horizon"], np.minimum(rows["best"], 0.999)))
    return np.array(found, dtype=float)


def bits(data: pd.DataFrame, variants: tuple[str, ...], column: str = "bits_per_byte") -> np.ndarray:
    """Return bits per byte on text [variant, seed]."""
    return np.array([cell_rows(data, (variant, TEXT))[column].astype(float) for variant in variants])


def _split(trained: Trained) -> tuple[Trained, Trained]:
    """Split runs into those on toys and those on text."""
    texts = [pair for pair in trained if pair[0].endswith(TEXT)]
    return [pair for pair in trained if not pair[0].endswith(TEXT)], texts


def _tried(data: pd.DataFrame, setting: str, among: tuple[str, ...] = RANKED) -> tuple[str, ...]:
    """Return those variants among `among` that were trained in a setting, in the order of `among`."""
    there = set(data.loc[(data["setting"] == setting) & (data["kind"] == RUN), "variant"])
    return tuple(variant for variant in among if variant in there)


def _rho(data: pd.DataFrame, toy: str, group: tuple[str, ...], score: stats.Score = lower_median) -> float:
    return stats.rank_correlation(speeds(data, toy, group), -bits(data, group), score).value


def _saved(data: pd.DataFrame, variant: str) -> float:
    """Return the mean bits per byte that a variant saves beside vanilla attention."""
    return float((bits(data, (VANILLA,)) - bits(data, (variant,))).mean())


def _lost(data: pd.DataFrame) -> str:
    """State what each tap of the previous token is worth, by variant."""
    told = []
    for variant in _tried(data, TEXT):
        lost = cell_rows(data, (variant, TEXT)).filter(like="lost_").mean().dropna()
        if len(lost):
            each = (f"{str(name).removeprefix('lost_')} {value:.3f}" for name, value in lost.items())
            told.append(f"{variant}: {', '.join(each)}")
    return "; ".join(told)
