"""TransformerLens' bridges over models of transformers, read at their hook points."""

from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ihlab.interp.foreign import Ends, ForeignModel, Layer
from ihlab.interp.hugging_face import ordinary_ids, reach, stated_length
from tasks.config import require


class BridgedModel(ForeignModel):
    """A `TransformerBridge` of TransformerLens, read at its own hook points and components."""

    def __init__(self, bridge: Any) -> None:
        self.module, cfg = bridge, bridge.cfg
        self.n_layers, self.n_heads, self.d_vocab = cfg.n_layers, cfg.n_heads, cfg.d_vocab
        config: Any = getattr(getattr(bridge, "original_model", None), "config", None)
        theirs = config.get_text_config(decoder=True) if hasattr(config, "get_text_config") else None
        require(
            not getattr(config, "is_encoder_decoder", False),
            "The TransformerBridge has an encoder and a decoder, but induction heads are located in causal language "
            "models.",
        )
        self.n_ctx = stated_length(cfg.n_ctx)
        self.reach = None if theirs is None else reach(theirs)
        self.ids = ordinary_ids(self.d_vocab, *([] if theirs is None else [theirs]))

    def _patterns(self, tokens: Tensor) -> Tensor:
        names = [f"blocks.{layer}.attn.hook_pattern" for layer in range(self.n_layers)]
        _, cache = self.module.run_with_cache(tokens, names_filter=names)  # type: ignore[operator]
        missing = [name for name in names if name not in cache.cache_dict]
        require(not missing, f"The TransformerBridge has no patterns: {', '.join(missing)} did not fire.")
        return torch.stack([cache[name].float().cpu() for name in names])

    def _logits(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.module(tokens, return_type="logits")
        return logits

    @cached_property
    def ends(self) -> Ends:
        """Embedding, final norm and unembedding, as the bridge names them."""
        module: Any = self.module
        return Ends(module.embed, getattr(module, "ln_final", None), module.unembed)

    @cached_property
    def _layers(self) -> list[Layer]:
        blocks: list[Any] = list(self.module.blocks)  # type: ignore[arg-type]
        found = [block for block in blocks if hasattr(block, "attn") and hasattr(block.attn, "o")]
        return [Layer(block.attn, block.attn.o, getattr(block, "ln1", None)) for block in found]
