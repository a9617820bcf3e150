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

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ihlab.claims import stats
from ihlab.claims.ask import Ask, Cell, Number, claim_id, mean, named, pick, values
from ihlab.claims.experiment import Scale
from ihlab.claims.labels import K_ONLY, KV, V_ONLY, VANILLA
from ihlab.claims.real_text import held_out, held_out_classes, text_run
from ihlab.claims.study import Study, Tuned, steps_to_90, wide
from ihlab.claims.token_shifts import (
    CONTROL,
    CONV_ALL,
    CONV_K,
    CONV_M,
    CONV_O,
    CONV_V,
    FEW_TAPS,
    MULTI,
    OFFSET,
    OWN,
    SMEAR_EMBED,
    SMEAR_READ,
    STEPS,
    THREE_TAPS,
    TOY_TUNED,
    TWO_TAPS,
    VARIANTS,
    toy_config,
    toy_seeds,
)
from ihlab.claims.toy_settings import HOPS, INDUCTION1, INDUCTION2, NGRAM
from ihlab.plots.matrix import matrix
from ihlab.training.config import RunConfig
from tasks import TextTask

if TYPE_CHECKING:
    from ihlab.model.transformer import Transformer
    from ihlab.training.run import Run

TEXT = "text, 2 layers"
PUBLISHED = {CONV_ALL: 1.186, THREE_TAPS: 1.178, TWO_TAPS: 1.133, CONV_M: 1.079, CONV_K: 1.051}
"""Effective speed-ups of training in Marin's issue 7585 (single runs)."""
RANKED = tuple(variant for variant in VARIANTS if variant != MULTI)
"""The variants of the first question."""
SHIFTS = (
    KV, K_ONLY, OWN, V_ONLY, OFFSET, SMEAR_EMBED, SMEAR_READ, CONV_K, CONV_V, CONV_O, CONV_M, CONV_ALL,
)  # fmt: skip
"""Those that let a token read the one before, in attention with a softmax and without a table."""
TOYS: dict[str, tuple[str, ...]] = {
    INDUCTION1: RANKED,
    NGRAM: RANKED,
    INDUCTION2: (VANILLA, CONTROL, *(shift for shift in SHIFTS if shift != OWN)),
    HOPS: (VANILLA, KV, K_ONLY, V_ONLY, OFFSET, CONV_K, CONV_V, CONV_O, CONV_M, CONV_ALL),
}
"""The toys and the variants that are trained on each: mostly those of `shifts`, whose runs are used again."""
TRAINED = {toy: (*variants, *FEW_TAPS) for toy, variants in {**TOYS, TEXT: RANKED}.items()}

PREDICTS = 0.5
"""Rank correlation above which one order foretells another."""
CONTEXT = 4
"""Bytes of context by which positions are classified."""
COPIED = "bits_eligible"
"""Bits per byte spent where the last `CONTEXT` bytes occurred earlier, at least once followed by the target."""


def config(cell: Cell, scale: Scale) -> RunConfig:
    """Return the config of a variant on a toy or on text.

    Text is `text_run`, at laptop scale with a smaller model, shorter sequences and half as many steps.
    """
    if cell["setting"] != TEXT:
        return toy_config(cell, scale)
    run, fields = text_run(scale), {**VARIANTS, **FEW_TAPS}[cell["variant"]]
    if scale == "smoke":
        return run.replace(model=run.model.replace(**fields))
    task = TextTask(vocab_size=512, length=128)
    model = run.model.replace(d_model=64, n_heads=2, d_vocab=task.vocab_size, n_ctx=task.length, **fields)
    return run.replace(
        task=task, model=model, steps=300, warmup=30, eval_every=150, eval_rows=128, checkpoints=2, compile=False
    )


def measure_tuning(run: "Run") -> dict[str, float]:
    """Return the steps to 90% on a toy, or the held-out loss on text, in nats."""
    on_text = isinstance(run.config.task, TextTask)
    return {"loss": float(run.metrics["eval_loss"].iloc[-1])} if on_text else steps_to_90(run)


def measure(run: "Run") -> dict[str, float]:
    """Return `measure_tuning`, and `text_columns` on twice the held-out sequences of an evaluation."""
    found, task = measure_tuning(run), run.config.task
    if isinstance(task, TextTask) and not run.diverged:
        found |= text_columns(run.model(), task, 2 * run.config.eval_rows)
    return found


def text_columns(model: "Transformer", task: TextTask, rows: int) -> dict[str, float]:
    """Return what a model costs on held-out text:

    - bits_per_byte, and bits_eligible, its part at positions that can be copied;
    - lost_O1, ...: bits per byte lost if the tap of the previous token is 0 at a place (K, V, O, M) of a layer;
      lost_O1_k, ...: if only the keys (k), queries (q) or values (v) of layer 2 are computed with it at 0.
    """
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
        rows = pick(data, {"variant": variant, "setting": toy})
        steps = rows["steps_to_90"].astype(float)
        found.append(np.where(np.isfinite(steps), 2 - steps / rows["horizon"], np.minimum(rows["best"], 0.999)))
    return np.array(found, dtype=float)


def bits(data: pd.DataFrame, variants: tuple[str, ...], column: str = "bits_per_byte") -> np.ndarray:
    """Return bits per byte on text [variant, seed]."""
    return np.array([values(data, {"variant": variant, "setting": TEXT}, column) for variant in variants])


def rho(
    data: pd.DataFrame, toy: str, group: tuple[str, ...], column: str = "bits_per_byte",
    score: stats.Score = lower_median,
) -> stats.Estimate:  # fmt: skip
    """Return the rank correlation of speed on a toy with bits per byte saved on text."""
    return stats.rank_correlation(speeds(data, toy, group), -bits(data, group, column), score)


def on(toy: str, among: tuple[str, ...] = RANKED) -> tuple[str, ...]:
    """Return the variants that are trained on a toy, in the order of `among`."""
    return tuple(variant for variant in among if variant in TOYS[toy])


# Questions

_OF_TOYS = "a question of practitioners: does a toy foretell text?"
_OF_BOTH = "a question of practitioners: do both halves of the shift help?"
_OF_MARIN = "the order of short convolutions in Marin's issue 7585"
_TEXT: Cell = {"setting": TEXT}
_WITH_KV = "2026-11-27: KV shifting was added after the runs of the other variants."


def costs_less(
    id: str, toy: str, where: str, among: tuple[str, ...] = RANKED, column: str = "bits_per_byte", **fields: Any
) -> Ask:
    """Ask whether variants that learn a toy faster save more on text."""

    def correlation(group: tuple[str, ...]) -> Number:
        words = f"rank correlation of speed with bits per byte saved ({len(group)} variants)"
        return named(words, lambda data: rho(data, toy, group, column), _TEXT)

    return Ask(
        id=id,
        sentence=f"Variants that learn a toy faster cost less {where}: {toy}.",
        number=correlation(on(toy, among)),
        above=PREDICTS,
        source=_OF_TOYS,
        first=correlation(tuple(variant for variant in on(toy, among) if variant != KV)),
        changed=_WITH_KV,
        **fields,
    )


def more_than_one_layer(group: tuple[str, ...]) -> Number:
    """Return the rank correlation of induction with two layers with text, less that of induction with one."""

    def difference(data: pd.DataFrame) -> stats.Estimate:
        two, one = (speeds(data, toy, group) for toy in (INDUCTION2, INDUCTION1))
        return stats.rank_correlation_difference(two, one, -bits(data, group), lower_median)

    words = f"difference of rank correlations with bits per byte saved ({len(group)} variants)"
    return named(words, difference, _TEXT)


def published_order(setting: str) -> Ask:
    """Ask whether our order of the published models is the published one."""
    group, published = tuple(PUBLISHED), np.array([[speed_up] for speed_up in PUBLISHED.values()])

    def correlation(data: pd.DataFrame) -> stats.Estimate:
        ours = -bits(data, group) if setting == TEXT else speeds(data, setting, group)
        score = stats.seed_mean if setting == TEXT else lower_median
        return stats.rank_correlation(ours, published, score, over="seeds")

    words = f"rank correlation with the published speed-up ({len(group)} models, over our seeds)"
    return Ask(
        id=claim_id("published_order", setting),
        setting={"task": setting},
        sentence=f"The order of Marin's five short convolutions is the published one: {setting}.",
        number=named(words, correlation, _TEXT),
        above=PREDICTS,
        source=_OF_MARIN,
    )


def cheaper(id: str, one: str, other: str, **fields: Any) -> Ask:
    """Ask whether text costs less with one variant than with another."""
    return Ask(
        id=id,
        sentence=f"After 300 steps, text costs less with {one} than with {other}.",
        number=named(
            f"bits per byte, {one} less {other}, by seed",
            lambda data: stats.mean((bits(data, (one,)) - bits(data, (other,)))[0].tolist()),
            _TEXT,
        ),
        below=0.0,
        **{"source": _OF_MARIN, **fields},
    )


def read_by_keys(variant: str, place: str) -> Ask:
    """Ask whether the next layer's keys are what reads the previous token in the outputs of the first layer."""
    words = (
        "bits per byte lost without the first layer's tap of the previous token in the second layer's keys alone / "
        "without it everywhere"
    )
    return Ask(
        id=f"{claim_id(variant)}_read_by_keys",
        sentence=f"With {variant} in the first layer, the previous token is read mainly by the second layer's keys.",
        number=mean(f"lost_{place}1_k / lost_{place}1", {"variant": variant, "setting": TEXT}, words=words),
        above=PREDICTS,
        source="why a convolution of outputs helps in Marin's issue 7585",
    )


# The picture


def saved(data: pd.DataFrame, variant: str) -> float:
    """Return the mean bits per byte that a variant saves beside vanilla attention."""
    return float((bits(data, (VANILLA,)) - bits(data, (variant,))).mean())


def in_a_matrix(data: pd.DataFrame) -> Figure:
    """Draw the variants in the order of text, with what each saves there and its steps on every toy."""
    there = sorted(set(data["variant"]).intersection(RANKED), key=lambda variant: -saved(data, variant))
    drawn = {(each, "bits per byte, saved on text"): (np.nan, f"{saved(data, each):.3f}") for each in there}
    for toy in TOYS:
        group = tuple(each for each in on(toy) if each in there)
        correlation, with_ties = (rho(data, toy, group, score=score).value for score in (lower_median, tied))
        for variant, speed in zip(group, lower_median(speeds(data, toy, group)), strict=True):
            text = f"{(2 - speed) * STEPS[toy]:.0f}" if speed >= 1 else f"no ({speed:.2f})"
            column = f"{toy}, rho {correlation:.2f}, tied {with_ties:.2f}"
            drawn[variant, column] = (2 - speed if speed >= 1 else np.inf, text)
    return matrix(drawn, "steps / the steps allowed (8: not learned)")


CELLS = [{"variant": variant, "setting": setting} for setting, variants in TRAINED.items() for variant in variants]
_ON_TEXT = Tuned(rates=(8e-3, 1.6e-2, 3.2e-2), by="loss", seeds=(100,), smoke=(1.6e-2,))
TOY_AND_TEXT = Study(
    name="toy_and_text",
    title="Does a toy foretell text? Variants in the order of text, and their steps to 90% on toys",
    key="no: not in a majority of seeds within the steps (highest accuracy). rho: rank correlation with text\n"
    "(tied: if all variants that do not learn are equal).",
    declared="2026-11-26",
    cells=CELLS,
    smoke=[cell for cell in CELLS if cell["variant"] in (VANILLA, CONV_M)],
    config=config,
    stacked=lambda cell: cell["setting"] != TEXT,
    tuned=lambda cell: _ON_TEXT if cell["setting"] == TEXT else TOY_TUNED,
    seeds=lambda cell: range(3) if cell["setting"] == TEXT else toy_seeds(cell),
    measure=measure,
    measure_tuning=measure_tuning,
    asks=[
        *(
            costs_less(f"{claim_id('faster_costs_less', toy)}.{which}", toy, where, among, setting={"task": toy})
            for toy in TOYS
            for which, among, where in (("all", RANKED, "on text"), ("shifts", SHIFTS, "on text among the shifts"))
        ),
        costs_less(
            "induction_and_copied", INDUCTION1, "at positions that can be copied from earlier text", column=COPIED,
        ),
        costs_less(
            "3_grams_and_not_copied", NGRAM, "at positions that cannot be copied", column=f"bits_per_byte - {COPIED}",
        ),
        Ask(
            id="two_layers_say_more",
            sentence="Two-layer induction foretells what two layers cost on text better than one-layer induction does.",
            number=more_than_one_layer(on(INDUCTION2)),
            above=0.0,
            first=more_than_one_layer(tuple(variant for variant in on(INDUCTION2) if variant != KV)),
            changed=_WITH_KV,
            source="a question of practitioners: which toy foretells text?",
        ),
        *map(published_order, (TEXT, *TOYS)),
        cheaper("conv_mlp_out_below_conv_k", CONV_M, CONV_K),
        cheaper("conv_all_below_conv_mlp_out", CONV_ALL, CONV_M),
        cheaper("kv_below_k_only", KV, K_ONLY, source=_OF_BOTH, declared="2026-11-27"),
        cheaper("kv_below_v_only", KV, V_ONLY, source=_OF_BOTH, declared="2026-11-27"),
        read_by_keys(CONV_M, "M"),
        read_by_keys(CONV_O, "O"),
    ],
    shown=wide("variant", "setting", "steps_to_90", "bits_per_byte"),
    view=in_a_matrix,
)  # fmt: skip
