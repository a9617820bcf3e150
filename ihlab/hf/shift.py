"""The shift, which mixes keys and values with earlier ones: equation 5 of arXiv 2411.19574."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers.utils import logging

from ihlab.hf.links import Links, take

logger = logging.get_logger(__name__)
FROZEN = (
    "The taps of the KV shift are frozen while other parameters are trained. To train them with LoRA, give LoraConfig "
    "modules_to_save=['shift_norm']."
)
Projected = Float[Tensor, "batch pos channel"]
"""Keys or values of all heads, as the projection returns them: kv_head * d_head channels."""
Seen = Float[Tensor, "batch seen channel"]


class Taps(nn.Module):
    """Equation 5: x_hat[t] = w[0] x[t] + w[1] x[t - 1] + ..., with w a row of alpha (keys) or beta
    (values) per head.

    It acts between the projections and the next operation (norm or rotation). `first` says what a
    token without an earlier one gets: "zero" mixes in zeros, "own" leaves its key and value
    unshifted. `alpha` and `beta` are [kv_head, window], with the current token in column 0, or None
    if not shifted. They stay in float32 when the model is cast to half precision, and the sum is rounded
    once. Only FSDP (`fully_shard`), which shards weights of one dtype together, gets them in the
    model's half precision.
    """

    of_model: torch.dtype | None = None
    """The model's dtype, if it is bfloat16 or float16."""

    def __init__(
        self,
        kv_heads: int,
        window: int,
        keys: bool,
        values: bool,
        first: str,
        like: Tensor,
    ) -> None:
        super().__init__()
        self.window, self.first = window, first
        self.sides = frozenset(
            side for side, shifted in (("key", keys), ("value", values)) if shifted
        )
        dtype = torch.promote_types(like.dtype, torch.float32)
        self.of_model = None if like.dtype == dtype else like.dtype
        for name, side in (("alpha", "key"), ("beta", "value")):
            empty = torch.empty(kv_heads, window, dtype=dtype, device=like.device)
            self.register_parameter(name, nn.Parameter(empty) if side in self.sides else None)
        self.alpha: nn.Parameter | None
        self.beta: nn.Parameter | None

    def forward(self, side: str, raw: Projected, links: Links, raw_states: Seen) -> Projected:
        """Mix raw keys (side "key") or values ("value"). `raw_states`: window - 1 earlier vectors,
        then `raw`.
        """
        n, back = raw.shape[1], self.window - 1
        earlier: list[Tensor] = []  # torch.compile does not support list[Tensor]()
        for j in range(1, back + 1):
            keep = None if links.chain is None else links.chain[..., j - 1]
            if links.index is not None:
                earlier.append(take(raw_states, links.index[..., j - 1], keep))
                continue
            piece = raw_states[:, back - j : back - j + n]
            earlier.append(piece if keep is None else torch.where(keep[..., None], piece, 0))
        mixed = self.mix(side, raw, earlier)
        if self.first == "own" and links.chain is not None:
            return torch.where(links.chain[..., :1], mixed, raw)
        if self.first == "own" and links.begins:
            return torch.cat([raw[:, :1], mixed[:, 1:]], dim=1)
        return mixed

    def mix(self, side: str, raw: Projected, earlier: list[Projected]) -> Projected:
        """Return the weighted sum of equation 5."""
        taps = self.alpha if side == "key" else self.beta
        assert taps is not None
        if (
            self.training
            and raw.requires_grad
            and not taps.requires_grad
            and not torch.compiler.is_compiling()
        ):
            logger.warning_once(FROZEN)
        heads = (*raw.shape[:2], len(taps), -1)
        own_tap, *others = (
            taps.to(torch.promote_types(taps.dtype, torch.float32)).T[..., None].unbind()
        )  # each [kv_head, 1]
        total = raw.view(heads) * own_tap
        for weight, piece in zip(others, earlier, strict=True):
            total = total + piece.view(heads) * weight
        return total.flatten(2).to(raw.dtype)

    def _apply(self, fn, recurse=True):  # type: ignore[no-untyped-def]
        def in_float32(tensor: Tensor) -> Tensor:
            moved: Tensor = fn(tensor)
            return (
                tensor.to(moved.device) if moved.dtype in (torch.float16, torch.bfloat16) else moved
            )

        taps = next(self.parameters())
        becomes = fn(torch.empty(0, dtype=self.of_model or taps.dtype, device=taps.device)).dtype
        self.of_model = becomes if becomes in (torch.float16, torch.bfloat16) else None
        return super()._apply(in_float32, recurse)

    def __setattr__(self, name, value):  # type: ignore[no-untyped-def]
        # FSDP puts its sharded parameter here, and takes up another one at its first forward pass.
        if (
            isinstance(value, nn.Parameter)
            and hasattr(value, "device_mesh")
            and self.of_model is not None
        ):
            value = nn.Parameter(value.detach().to(self.of_model), value.requires_grad)
        super().__setattr__(name, value)
