"""What does the partial key offset buy beyond the key shift?

The stored runs of `shifts` answer a part: on six tasks no difference shows between partial key offset and K only, and
leaving half of the channels unrotated does nothing without a shift. But there the slower half of the channels hardly
rotates anyway. Here rotation is fast in one setting, so that no channel compares tokens alike at all distances unless
it is left unrotated. K only with half of each head unrotated is the offset's rotation without its split of channels,
and K only with taps per channel could learn the split.

How the trained models of one layer match is asked by mean-ablating a part of all keys: the part from the own or from
the previous token, or the channels that are fast or slow in the rotation. The offset shifts the slow ones.
"""

from functools import partial
from typing import TYPE_CHECKING, Any

import pandas as pd

from ihlab.claims import stats
from ihlab.claims.claim import Claim, at_floor
from ihlab.claims.comparison import RUN, Cell, cell_rows, learned, ratio, ratio_text, steps
from ihlab.claims.experiment import Scale, Trained
from ihlab.claims.labels import K_ONLY
from ihlab.claims.rates import count_in_words
from ihlab.claims.toy_settings import FAST, HOPS, INDUCTION1, InSettings
from ihlab.training.config import RunConfig

if TYPE_CHECKING:
    from torch import Tensor

    from ihlab.model.transformer import Transformer
    from ihlab.training.run import Run

OFFSET, CONTROL = "partial key offset", "half unrotated"
CHANNELS, K_HALF = "K only, taps by channel", "K only, half unrotated"
VARIANTS: dict[str, dict[str, Any]] = {
    K_ONLY: {"attention": "k_shift"},
    CHANNELS: {"attention": "k_shift", "shift_share": "channel"},
    K_HALF: {"attention": "k_shift"},  # and the rotation of `KeyOffset.cell_config`
    OFFSET: {"attention": "key_offset"},
    CONTROL: {"attention": "partial_rotary"},
}
PARTS = ("own", "previous", "fast", "slow")
"""Parts of a key that are ablated: what comes from the own or the previous token, and the channels of either speed."""

ALIKE, LITTLE, MOST, MARGIN, SPLIT = 1.5, 0.05, 0.5, 0.25, 0.2
"""Thresholds: of a factor of steps, of falls in accuracy (a little, most, a difference), of a difference of taps."""


class KeyOffset(InSettings):
    """Steps of the offset and of key shifts that share a part of it, and which part of a key the match needs."""

    def __init__(self) -> None:
        super().__init__(
            name="key_offset", title="Partial key offset and the key shift", declared="2026-11-26",
            variants=tuple(VARIANTS), settings=(INDUCTION1, FAST, HOPS), questions=(),
        )  # fmt: skip

    def fields(self, variant: str, n_heads: int) -> dict[str, Any]:
        """Return the fields that make a variant."""
        return VARIANTS[variant]

    def cells(self, scale: Scale) -> list[Cell]:
        """Return every variant in every setting; the control only where `shifts` lacks it."""
        every = [(variant, setting) for setting in self.settings for variant in self.variants]
        return [(variant, setting) for variant, setting in every if variant != CONTROL or setting == FAST]

    def cell_config(self, cell: Cell, scale: Scale) -> RunConfig:
        """Return the config of a variant in a setting. It trains on to 99%, so that the match is learned well."""
        config = super().cell_config(cell, scale)
        model, pairs = config.model, config.model.head_width // 2
        if cell[0] == K_HALF:
            fast = (model.rotary_base ** (-i / pairs) for i in range(pairs // 2))
            model = model.replace(rotary_frequencies=(*fast, *[0.0] * (pairs // 2)))
        return config.replace(model=model, stop_at_accuracy=0.99)

    def gather(self, trained: Trained, scale: Scale) -> pd.DataFrame:
        """Add to the table of a comparison, for the claims' runs of one layer:

        - whole, without_own, ...: the accuracy on first answers, and with a part of `PARTS` ablated;
        - taps_fast, taps_slow: mean fraction |previous| / (|own| + |previous|) of the taps of these channels.
        """
        table = super().gather(trained, scale)
        asked = (table["kind"] == RUN) & (table["setting"] != HOPS)
        rows = [_ablated(run) if is_asked else {} for (_, run), is_asked in zip(trained, asked, strict=True)]
        return pd.concat([table, pd.DataFrame(rows, index=table.index).round(4)], axis=1)

    def claims(self, data: pd.DataFrame, scale: Scale) -> list[Claim]:
        """Judge what was declared before the runs."""
        taps = cell_rows(data, (CHANNELS, INDUCTION1))
        own = partial(Claim, source="a question of our own", of_paper=False, declared=self.declared, seeds=len(taps))
        in_steps = partial(_steps, own, data)
        shared = f"first answers, {INDUCTION1}"

        def fall(variant: str, part: str) -> "pd.Series[float]":
            mine = cell_rows(data, (variant, INDUCTION1))
            return mine["whole"] - mine[f"without_{part}"]

        return [
            in_steps(OFFSET, K_ONLY, INDUCTION1, "Where rotation is slow, the offset needs as many steps as K only."),
            in_steps(
                OFFSET, K_ONLY, FAST, "Where rotation is fast, the offset needs fewer steps than K only.", less=True
            ),
            in_steps(OFFSET, K_HALF, FAST, "There, K only with half of a head unrotated is as fast as the offset."),
            in_steps(OFFSET, K_ONLY, HOPS, "The offset needs as many steps as K only to follow two hops."),
            own(
                sentence="The offset does not use the half of a key that it does not shift.",
                measure=f"accuracy that is lost without this half, {shared}",
                estimate=stats.mean(fall(OFFSET, "own").tolist()),
                threshold=LITTLE,
                right_side="below",
            ),
            own(
                sentence="The offset matches by the half of a key that it shifts.",
                measure=f"accuracy that is lost without this half, {shared}",
                estimate=stats.mean(fall(OFFSET, "previous").tolist()),
                threshold=MOST,
            ),
            own(
                sentence="K only does not use the own token's part of a key.",
                measure=f"accuracy that is lost without this part, {shared}",
                estimate=stats.mean(fall(K_ONLY, "own").tolist()),
                threshold=LITTLE,
                right_side="below",
            ),
            own(
                sentence="K only matches by the channels that the offset shifts, too.",
                measure=f"accuracy lost without the slow channels, less that lost without the fast ones, {shared}",
                estimate=stats.mean((fall(K_ONLY, "slow") - fall(K_ONLY, "fast")).tolist()),
                threshold=MARGIN,
            ),
            own(
                sentence="Taps by channel find the offset's split of channels.",
                measure="previous token's fraction of the taps, slow channels less fast ones, " + INDUCTION1,
                estimate=stats.mean((taps["taps_slow"] - taps["taps_fast"]).tolist()),
                threshold=SPLIT,
            ),
        ]

    def summary(self, data: pd.DataFrame, scale: Scale) -> str:
        """State steps relative to K only, and the accuracy without each part of the keys."""
        told = []
        for setting in self.settings:
            cells = [cell for cell in self.cells(scale) if cell[1] == setting and cell[0] != K_ONLY]
            ratios = [f"{cell[0]} {ratio_text(data, cell, (K_ONLY, setting))}" for cell in cells]
            told.append(f"{setting}: {', '.join(ratios)}")
        parts = []
        for setting in (INDUCTION1, FAST):
            for variant in (K_ONLY, CHANNELS, K_HALF, OFFSET):
                means = cell_rows(data, (variant, setting))[[f"without_{part}" for part in PARTS]].mean()
                parts.append(f"{variant}, {setting} {', '.join(f'{value:.2f}' for value in means)}")
        taps = cell_rows(data, (CHANNELS, INDUCTION1))[["taps_fast", "taps_slow"]].mean()
        return (
            f"Steps to 90% accuracy relative to those of K only: {'; '.join(told)}. Accuracy with the "
            f"{', '.join(PARTS)} part of all keys ablated: {'; '.join(parts)}. Taps by channel give the previous token "
            f"{taps['taps_fast']:.2f} of the weight in fast channels and {taps['taps_slow']:.2f} in slow ones."
        )


def _steps(
    own: "partial[Claim]", data: pd.DataFrame, one: str, other: str, setting: str, sentence: str, less: bool = False
) -> Claim:
    """Return the claim that two variants need about as many steps, or with `less` that the first needs fewer."""
    cells = (one, setting), (other, setting)
    if at_floor(*(learned(data, cell) for cell in cells)):
        return own(sentence=sentence, why="Neither gets there within the steps: nothing is compared.")
    counts, found = [count_in_words(steps(data, cell)) for cell in cells], ratio(data, *cells)
    return own(
        sentence=sentence,
        measure=f"{'' if less else 'factor between the '}steps to 90% accuracy, {one} / {other}, {setting} "
        f"({counts[0]} and {counts[1]} seeds get there)",
        estimate=found if less else stats.factor(found),
        threshold=1 / ALIKE if less else ALIKE,
        right_side="below",
    )


def _ablated(run: "Run") -> dict[str, float]:
    """Return the columns of a run that `KeyOffset.gather` adds."""
    import torch

    from ihlab.measure.metrics import Evaluator

    model, measure = run.model(), Evaluator(run.config, torch.device("cpu"))
    row = {"whole": measure(model)["accuracy_first"]}
    for part in PARTS if model.cfg.attention in ("k_shift", "key_offset") else ():
        with model.hooks(fwd_hooks=ablation(model, part)):
            row[f"without_{part}"] = measure(model)["accuracy_first"]
    shift = model.layers[0].attn.key_shift
    if shift is not None and model.cfg.shift_share == "channel":
        weight = shift.weights().detach().abs()
        taps, is_slow = (weight[:, 1] / weight.sum(dim=1)).mean(dim=0), slow(weight.shape[-1])
        row |= {"taps_fast": float(taps[~is_slow].mean()), "taps_slow": float(taps[is_slow].mean())}
    return row


def slow(d_head: int) -> "Tensor":
    """Return whether each channel of a head is in the slower half of the rotated pairs: the ones the offset shifts."""
    import torch

    return torch.arange(d_head) % (d_head // 2) >= d_head // 4


def ablation(model: "Transformer", part: str) -> list[tuple[str, Any]]:
    """Return the hooks that replace a part (of `PARTS`) of the first layer's keys by its mean over all tokens."""
    attn, name = model.layers[0].attn, "blocks.0.attn.hook_k"
    shift, is_slow = attn.key_shift, slow(attn.d_head)
    raw: list[Tensor] = []

    def mean_ablate(k: "Tensor", hook: Any) -> "Tensor":
        if part in ("fast", "slow") or shift is None:  # the offset's own token is in the fast channels
            kept = is_slow if part in ("slow", "previous") else ~is_slow
            ablated = k * kept
        else:
            weight = shift.weights()[:, 0]
            own = raw.pop() * (weight if weight.ndim == 2 else weight[:, None])
            ablated = own if part == "own" else k - own
        return k - ablated + ablated.mean(dim=(0, 1), keepdim=True)

    keep = [] if shift is None else [(f"{name}_raw", lambda k, hook: raw.append(k))]
    return [*keep, (name, mean_ablate)]
