"""What does the partial key offset buy beyond the key shift?

The stored runs of `shifts` answer a part: on six tasks no difference shows between partial key offset and K only, and
leaving half of the channels unrotated does nothing without a shift. But there the slower half of the channels hardly
rotates anyway. Here rotation is fast in one setting, so that only unrotated channels compare tokens in the same way
at all distances. K only with half of each head unrotated is the offset's rotation without its split of channels,
and K only with taps per channel could learn the split.

How the trained models of one layer match is asked by mean-ablating a part of all keys: the part from the own or from
the previous token, or the channels that are fast or slow in the rotation. The offset shifts the slow ones.
"""

from typing import TYPE_CHECKING, Any

from ihlab.claims.ask import Ask, Cell, mean, ratio
from ihlab.claims.experiment import Scale
from ihlab.claims.labels import K_ONLY, KV
from ihlab.claims.study import Study, cells, steps_to_90
from ihlab.claims.token_shifts import TOY_TUNED
from ihlab.claims.toy_settings import FAST, HOPS, INDUCTION1, setting_config
from ihlab.plots.views import dots
from ihlab.training.config import RunConfig

if TYPE_CHECKING:
    from torch import Tensor

    from ihlab.model.transformer import Transformer
    from ihlab.training.run import Run

OFFSET, CONTROL = "partial key offset", "half unrotated"
CHANNELS, K_HALF = "K only, taps by channel", "K only, half unrotated"
VARIANTS: dict[str, dict[str, Any]] = {
    K_ONLY: {"attention": "k_shift"},
    KV: {"attention": "kv_shift"},
    CHANNELS: {"attention": "k_shift", "shift_share": "channel"},
    K_HALF: {"attention": "k_shift"},  # and the rotation of `config`
    OFFSET: {"attention": "key_offset"},
    CONTROL: {"attention": "partial_rotary"},
}
PARTS = ("own", "previous", "fast", "slow")
"""Parts of a key that are ablated: what comes from the own or the previous token, and the channels of either speed."""

ALIKE, LITTLE, MOST, MARGIN, SPLIT = 1.5, 0.05, 0.5, 0.25, 0.2
"""Thresholds: of a factor of steps, of falls in accuracy (a little, most, a difference), of a difference of taps."""


LATER = {"declared": "2026-11-27"}
"""The date of the questions about KV shifting."""


def config(cell: Cell, scale: Scale) -> RunConfig:
    """Return the config of a variant in a setting. It trains on to 99%, so that the match is learned well."""
    run = setting_config(cell["setting"], scale, **VARIANTS[cell["variant"]])
    model, pairs = run.model, run.model.head_width // 2
    if cell["variant"] == K_HALF:
        fast = (model.rotary_base ** (-i / pairs) for i in range(pairs // 2))
        model = model.replace(rotary_frequencies=(*fast, *[0.0] * (pairs // 2)))
    return run.replace(model=model, stop_at_accuracy=0.99)


def measure(run: "Run") -> dict[str, float]:
    """Return the steps to 90% and, for a model of one layer:

    - whole, without_own, ...: the accuracy on first answers, and with a part of `PARTS` ablated;
    - taps_fast, taps_slow: mean fraction |previous| / (|own| + |previous|) of the taps of these channels.
    """
    import torch

    from ihlab.measure.metrics import Evaluator

    found = steps_to_90(run)
    if run.config.model.n_layers > 1:
        return found
    model, evaluate = run.model(), Evaluator(run.config, torch.device("cpu"))
    found["whole"] = evaluate(model)["accuracy_first"]
    for part in PARTS if model.cfg.attention in ("k_shift", "kv_shift", "key_offset") else ():
        with model.hooks(fwd_hooks=ablation(model, part)):
            found[f"without_{part}"] = evaluate(model)["accuracy_first"]
    shift = model.layers[0].attn.key_shift
    if shift is not None and model.cfg.shift_share == "channel":
        weight = shift.weights().detach().abs()
        taps, is_slow = (weight[:, 1] / weight.sum(dim=1)).mean(dim=0), slow(weight.shape[-1])
        found |= {"taps_fast": float(taps[~is_slow].mean()), "taps_slow": float(taps[is_slow].mean())}
    return found


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


def in_steps(id: str, one: str, other: str, setting: str, sentence: str, fewer: bool = False, **fields: Any) -> Ask:
    """Ask whether two variants need about as many steps, or with `fewer` whether the first needs fewer."""
    cell, beside = ({"variant": variant, "setting": setting} for variant in (one, other))
    return Ask(id, sentence, ratio(cell, beside, factor=not fewer), below=1 / ALIKE if fewer else ALIKE, **fields)


def in_match(id: str, variant: str, formula: str, sentence: str, words: str, **threshold: Any) -> Ask:
    """Ask how a trained model matches."""
    return Ask(id, sentence, mean(formula, {"variant": variant, "setting": INDUCTION1}, words=words), **threshold)


KEY_OFFSET = Study(
    name="key_offset",
    title="Partial key offset, and key shifts that share a part of it",
    key="Dot: a seed. Bar: the median. Each variant at its own learning rate.",
    declared="2026-11-26",
    cells=[  # `shifts` has the control in the other settings
        cell
        for cell in cells(variant=tuple(VARIANTS), setting=(INDUCTION1, FAST, HOPS))
        if cell["variant"] != CONTROL or cell["setting"] == FAST
    ],
    config=config,
    stacked=True,
    tuned=TOY_TUNED,
    measure=measure,
    asks=[
        in_steps(
            "slow_rotation_as_k", OFFSET, K_ONLY, INDUCTION1,
            "With slow rotation, partial key offset needs as many steps as K only to learn induction.",
        ),
        in_steps(
            "fast_rotation_faster", OFFSET, K_ONLY, FAST,
            "With fast rotation, partial key offset needs fewer steps than K only to learn induction.", fewer=True,
        ),
        in_steps(
            "unrotated_half_as_fast", OFFSET, K_HALF, FAST,
            "With fast rotation, K only with half of each head unrotated is as fast as partial key offset.",
        ),
        in_steps(
            "two_hops_as_k", OFFSET, K_ONLY, HOPS, "Partial key offset needs as many steps as K only to follow two "
            "hops.",
        ),
        in_match(
            "unshifted_half_unused", OFFSET, "whole - without_own",
            "Partial key offset does not use the half of a key that it does not shift.",
            "accuracy on first answers that is lost without this half",
            below=LITTLE,
        ),
        in_match(
            "shifted_half_matches", OFFSET, "whole - without_previous",
            "Partial key offset matches by the half of a key that it shifts.",
            "accuracy on first answers that is lost without this half",
            above=MOST,
        ),
        in_match(
            "k_own_part_unused", K_ONLY, "whole - without_own",
            "K only does not use a token's own part of its key.",
            "accuracy on first answers that is lost without this part",
            below=LITTLE,
        ),
        in_match(
            "k_matches_by_shifted_channels", K_ONLY, "(whole - without_slow) - (whole - without_fast)",
            "K only loses more without the slow channels, which partial key offset shifts, than without the fast ones.",
            "accuracy on first answers lost without the slow channels, minus that lost without the fast ones",
            above=MARGIN,
        ),
        in_match(
            "taps_find_split", CHANNELS, "taps_slow - taps_fast",
            "K only with taps by channel puts more of the previous token in slow channels than in fast ones.",
            "previous token's fraction of the taps, slow channels minus fast ones",
            above=SPLIT,
        ),
        in_steps(
            "fast_rotation_faster_than_kv", OFFSET, KV, FAST,
            "With fast rotation, partial key offset needs fewer steps than KV shifting to learn induction.",
            fewer=True, **LATER,
        ),
        in_match(
            "kv_own_part_unused", KV, "whole - without_own",
            "KV shifting does not use a token's own part of its key.",
            "accuracy on first answers that is lost without this part",
            below=LITTLE, **LATER,
        ),
        in_match(
            "kv_matches_by_shifted_channels", KV, "(whole - without_slow) - (whole - without_fast)",
            "KV shifting loses more without the slow channels, which partial key offset shifts, than without the fast "
            "ones.",
            "accuracy on first answers lost without the slow channels, minus that lost without the fast ones",
            above=MARGIN, **LATER,
        ),
    ],
    shown=("steps_to_90", *(f"without_{part}" for part in PARTS), "taps_fast", "taps_slow"),
    view=dots("variant", panels="setting"),
)  # fmt: skip
