"""The token shift of keys, values and queries: equation 5 of arXiv 2411.19574, its variants, and
initial weights.

    x_hat[t] = w[0] x[t] + w[1] x[t - 1] + ... + w[window - 1] x[t - window + 1],

with zeros before the first token. w is alpha for keys, beta for values and gamma for queries: the
paper's alpha1, beta1 are w[0], and its alpha2, beta2 are w[1]. A variant (`ihlab.model.registry`)
can constrain w by another rule, a class in `SHIFT_RULES`. Hooks, decoding and reports read w only
from `TokenShift.weights()`, whatever the rule.
"""

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from ihlab.model.attend import Heads
from ihlab.model.config import ModelConfig
from ihlab.model.earlier_tokens import shifted
from ihlab.model.kv_cache import Past
from ihlab.model.registry import RULES, VARIANTS


def token_shift(
    x: Heads,
    weight: Float[Tensor, "head window *d_head"],
    before: Float[Tensor, "batch earlier head d_head"] | Past | None = None,
) -> Heads:
    """Mix each head's vector with its vectors at the tokens before (equation 5), with one row of
    weights per head.

    With weights [head, window, d_head], each channel of a head has its own row. If x continues a
    sequence, `before` holds the vectors of the window - 1 tokens before x. They replace the zeros.
    `before` may also be packed documents.
    """
    if weight.ndim == 2:
        # Expand over d_head first: with a broadcast last axis, a CPU multiplies (and sums the
        # gradient) several times slower.
        weight = weight[..., None].expand(-1, -1, x.shape[-1])
    wide = weight.transpose(0, 1).to(x.dtype).contiguous()
    with_earlier = x
    if isinstance(before, Tensor):
        with_earlier = torch.cat([before, x], dim=1)
    total = with_earlier * wide[0]
    for back in range(1, min(len(wide), with_earlier.shape[1])):
        total = total + shifted(with_earlier, before, back) * wide[back]
    return total[:, with_earlier.shape[1] - x.shape[1] :]


def start(current: Float[Tensor, "row 1"], window: int) -> Float[Tensor, "row window"]:
    """Return a shift's initial weights: column 0 is `current`, the others share 1 - `current`
    equally.

    So a row sums to 1. With window 2 it is the paper's alpha2 = 1 - alpha1, beta2 = 1 - beta1.
    """
    earlier = ((1 - current) / (window - 1)).expand(-1, window - 1)
    return torch.cat([current, earlier], dim=1)


def complete(drawn: Float[Tensor, "row drawn"]) -> Float[Tensor, "row window"]:
    """Return rows that sum to 1: the drawn columns, and 1 minus their sum as the last column."""
    return torch.cat([drawn, 1 - drawn.sum(dim=1, keepdim=True)], dim=1)


class TokenMix(nn.Module):
    """A module that mixes each token with previous ones by learned parameters, which have no weight
    decay.
    """


class TokenShift(TokenMix):
    """`token_shift` with learned weights [head, window]: alpha of the keys, beta of the values,
    gamma of the queries.

    A new shift draws column 0 from U(0, 1), and `start` gives the other columns. With `uniform` it
    draws all columns except the last, which `complete` gives. All columns are trained.

    Subclasses for other rules store another parameter and compute the weights from it (`stored`,
    `weights_from`).
    """

    rule = RULES["free"]

    def __init__(
        self,
        n_heads: int,
        window: int,
        generator: torch.Generator | None = None,
        *,
        uniform: bool = False,
    ) -> None:
        super().__init__()
        self.window = window
        if uniform:
            rows = complete(torch.rand(n_heads, window - 1, generator=generator))
        else:
            rows = start(torch.rand(n_heads, 1, generator=generator), window)
        self.weight = nn.Parameter(
            self.stored(rows).contiguous()
        )  # fused AdamW gives wrong results on a strided view

    def weights(self) -> Float[Tensor, "head window *d_head"]:
        """Return the mixing weights of the forward pass."""
        return self.weights_from(self.weight)

    @staticmethod
    def stored(rows: Float[Tensor, "row window *d_head"]) -> Float[Tensor, "row ..."]:
        """Return the parameter for given rows of weights: the inverse of `weights_from`."""
        return rows

    @staticmethod
    def weights_from(weight: Float[Tensor, "row ..."]) -> Float[Tensor, "row window *d_head"]:
        """Return the mixing weights that a parameter gives, one row per head (or layer, or model)."""
        return weight

    def forward(
        self,
        x: Heads,
        hook: Callable[[Tensor], Tensor] | None = None,
        before: Float[Tensor, "batch earlier head d_head"] | Past | None = None,
    ) -> Heads:
        """Shift x with this shift's weights, which `hook` may replace; `before` is as in
        `token_shift`.
        """
        weight = self.weights()
        if hook is not None:
            weight = hook(
                weight.clone()
            )  # a copy: a hook may write into its tensor, but not into the parameter
        return token_shift(x, weight, before)

    @torch.no_grad()
    def restart(self, current: float) -> None:
        """Set every head's row to the initial weights for column 0 = `current`, instead of a random
        draw.
        """
        rows = start(torch.full((len(self.weight), 1), current, dtype=torch.float64), self.window)
        self.weight.copy_(self.stored(rows))

    @torch.no_grad()
    def hold(self, heads: int | slice, columns: int | slice, value: float) -> None:
        """Set columns of some heads' rows to a value. If columns are tied, the others share 1 -
        value equally.
        """
        if not self.rule.tied:
            self.weight[heads, columns] = value
            return
        rows = self.weights_from(self.weight)
        rows[heads] = (1 - value) / (rows.shape[1] - 1)
        rows[heads, columns] = value
        self.weight[heads] = self.stored(rows)[heads]


class GatedShift(TokenShift):
    """The paper's KV shifting gate (Appendix F.1): w = (sigmoid(A), 1 - sigmoid(A)), with one
    number A per head.

    It starts with the weights of the free shift, A = logit(w[0]), with w[0] clipped to [0.001,
    0.999].
    """

    rule = RULES["gate"]

    @staticmethod
    def stored(rows: Float[Tensor, "row 2"]) -> Float[Tensor, "row 1"]:
        """Return the logit of the current token's weight."""
        return torch.logit(rows[:, :1], eps=GatedShift.rule.low)

    @staticmethod
    def weights_from(weight: Float[Tensor, "row 1"]) -> Float[Tensor, "row 2"]:
        """Return (sigmoid(A), sigmoid(-A)). The second equals 1 - sigmoid(A), but stays exact where
        it is tiny.
        """
        return torch.cat([weight.sigmoid(), (-weight).sigmoid()], dim=1)


class SumToOneShift(TokenShift):
    """Weights of a row that sum to 1, without bounds (Appendix F.1): all columns except the last
    are parameters.
    """

    rule = RULES["sum1"]

    @staticmethod
    def stored(rows: Float[Tensor, "row window"]) -> Float[Tensor, "row drawn"]:
        """Return all columns except the last."""
        return rows[:, :-1]

    @staticmethod
    def weights_from(
        weight: Float[Tensor, "row drawn"],
    ) -> Float[Tensor, "row window"]:
        """Return the stored columns, and 1 minus their sum as the last column."""
        return complete(weight)


class ClippedShift(TokenShift):
    """Weights clipped to [0, 1] in the forward pass (one reading of Appendix F.1's 0-1 constraint).

    An entry outside [0, 1] gets no gradient, so only AdamW's momentum can bring it back.
    """

    rule = RULES["clip"]

    @staticmethod
    def weights_from(
        weight: Float[Tensor, "row window"],
    ) -> Float[Tensor, "row window"]:
        """Return the weights, clipped."""
        return weight.clamp(0, 1)


class ProjectedShift(TokenShift):
    """Weights that training clips to [0, 1] after each step (another reading of the 0-1
    constraint).
    """

    rule = RULES["project"]


SHIFT_RULES: dict[str, type[TokenShift]] = {
    "free": TokenShift,
    "gate": GatedShift,
    "sum1": SumToOneShift,
    "clip": ClippedShift,
    "project": ProjectedShift,
}
"""The class of each rule that an `ihlab.model.registry.Variant` names for keys, values and queries.
"""


def make_shifts(
    cfg: ModelConfig, generator: torch.Generator | None, layer: int
) -> tuple[TokenShift | None, TokenShift | None, TokenShift | None]:
    """Return the shifts of a layer's keys, values and queries; None for each that `cfg.attention`
    does not shift.

    Keys and values draw from the generator even if they are not shifted, and queries have their own
    generator. So with one seed, parameters that two variants have in common start with the same
    values.
    """
    variant = VARIANTS[cfg.attention]
    if not variant.rules:
        return None, None, None  # and draw nothing

    made: list[TokenShift | None] = []
    for rule, n_heads, source in (
        (variant.key, cfg.kv_heads, generator),
        (variant.value, cfg.kv_heads, generator),
        (variant.query, cfg.n_heads, spawned(generator, layer)),
    ):
        kind = SHIFT_RULES[rule or "free"]
        shift = kind(n_heads, cfg.shift_window, source, uniform=cfg.shift_start == "uniform")
        if cfg.shift_start == "identity":
            shift.restart(1.0)
        made.append(None if rule is None else shift)
    keys, values, queries = made
    return keys, values, queries


def spawned(generator: torch.Generator | None, *key: int) -> torch.Generator | None:
    """Return a generator seeded by the given generator's seed and a key; None if there is no
    generator.

    Zeros at the end of a key are ignored, so two keys must not differ only in zeros at their end.
    """
    if generator is None:
        return None
    seed = np.random.SeedSequence([generator.initial_seed(), *key]).generate_state(1)[0]
    return torch.Generator().manual_seed(int(seed))


def projected(model: nn.Module) -> list[str]:
    """Return the names of the parameters that training clips to [0, 1] after each step."""
    return [
        f"{name}.weight"
        for name, module in model.named_modules()
        if isinstance(module, ProjectedShift)
    ]
