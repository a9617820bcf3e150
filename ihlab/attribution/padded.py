"""Padded prompts: find the padding, and apply your own metric to prompts whose padding was moved to
the end.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor

from ihlab.interp.head_model import HeadModel
from ihlab.model.conversion.configs import special_tokens
from ihlab.model.lens.padding import Mask, in_order
from ihlab.model.transformer import Transformer
from tasks.config import require


def prompts_mask(
    model: HeadModel, tokens: Int[Tensor, "batch pos"], attention_mask: Any
) -> Mask | None:
    """Return which positions of prompts are not padding; None: all.

    Raises `ConfigError` without a mask for prompts that seem to begin with padding: with the
    padding token, or with the same special token twice.
    """
    if attention_mask is None:
        special = _special(model)
        pad, begin = special.pop("pad_token_id", None), special.get("bos_token_id")
        first, second = tokens[:, 0], tokens[:, min(1, tokens.shape[1] - 1)]
        twice = [
            id
            for id in {*special.values(), pad}
            if id is not None and bool(((first == id) & (second == id)).any())
        ]
        padded = pad is not None and pad != begin and bool((first == pad).any())
        require(
            not twice and not padded,
            "Some prompts begin with padding, which the model would read as text: give attention_mask [batch, pos], "
            "1 at tokens and 0 at padding.",
        )
    return model.mask(tokens, attention_mask)


def _special(model: HeadModel) -> dict[str, int]:
    module = model.module
    if isinstance(module, Transformer):
        return dict(module.special_tokens)
    config: Any = getattr(getattr(module, "original_model", module), "config", None)
    return (
        special_tokens(config.get_text_config(decoder=True))
        if hasattr(config, "get_text_config")
        else {}
    )


@dataclass(frozen=True)
class Reordered:
    """A metric that gets logits at the positions that the prompts had before `order` moved their
    padding to the end.
    """

    metric: Callable[[Float[Tensor, "batch pos d_vocab"]], Float[Tensor, " batch"]]
    order: Int[Tensor, "batch pos"]

    def __call__(self, logits: Float[Tensor, "batch pos d_vocab"]) -> Float[Tensor, " batch"]:
        """Return the metric of each prompt."""
        return self.metric(in_order(logits, self.order.argsort(dim=1), 1))
