"""The weights and losses of a model under the names that TransformerLens' tools expect of a
`TransformerBridge`.

With the shift, `W_K`, `W_V`, `QK` and `OV` use the stored weights. A shifted head multiplies its
keys by alpha and its values by beta. `ihlab.interp` has each route's matrix, such as alpha_2 W_Q
W_K^T for the previous token's key.
"""

from collections.abc import Iterator
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformer_lens import FactoredMatrix
from transformer_lens.utilities import composition_scores, lm_cross_entropy_loss

from ihlab.model.config import ModelConfig
from ihlab.model.lens.hooks import LensHooks
from ihlab.model.norm import LayerNorm, RMSNorm
from tasks.config import ConfigError, require


def _of_every_layer(submodule: str, name: str) -> property:
    def stacked(model: "LensWeights") -> Tensor:
        parts: list[Any] = [getattr(block, submodule) for block in model.layers]
        require(all(of is not None for of in parts), f"The model has no MLPs, and so no {name}.")
        return torch.stack([getattr(of, name) for of in parts])

    return property(stacked, doc=f"`{name}` of every layer's {submodule}, a copy [layer, ...].")


class MissingWeightError(ConfigError, AttributeError):
    """Raised for a weight that the model does not have. It is an `AttributeError`, so that
    `hasattr` is False.
    """


class LensWeights(LensHooks):
    """The weights of a network as TransformerLens names them. Biases are zeros where the config has
    none.
    """

    cfg: ModelConfig

    W_Q = _of_every_layer("attn", "W_Q")  # [layer, head, d_model, d_head]
    W_K = _of_every_layer("attn", "W_K")  # [layer, kv_head, d_model, d_head], before any shift
    W_V = _of_every_layer("attn", "W_V")
    W_O = _of_every_layer("attn", "W_O")  # [layer, head, d_head, d_model]
    b_Q = _of_every_layer("attn", "b_Q")  # [layer, head, d_head]
    b_K = _of_every_layer("attn", "b_K")
    b_V = _of_every_layer("attn", "b_V")
    b_O = _of_every_layer("attn", "b_O")  # [layer, d_model]
    W_in = _of_every_layer("mlp", "W_in")  # [layer, d_model, d_mlp]
    W_out = _of_every_layer("mlp", "W_out")
    b_in = _of_every_layer("mlp", "b_in")
    b_out = _of_every_layer("mlp", "b_out")

    @property
    def W_E(self) -> Float[Tensor, "d_vocab d_model"]:
        """The embedding matrix."""
        return self.embed.W_E

    @property
    def W_pos(self) -> Float[Tensor, "n_ctx d_model"]:
        """The learned position embeddings. Raises `MissingWeightError` for a model without them."""
        if self.pos_embed is None:
            raise AttributeError  # Python then calls __getattr__, which raises the readable error
        return self.pos_embed.W_pos

    def __getattr__(self, name: str) -> Any:
        """Return a module or parameter. Raises `MissingWeightError` for `W_pos` without learned
        positions.
        """
        if name == "W_pos":
            raise MissingWeightError(
                f"The model's positional is {self.cfg.positional!r}: only 'learned' has W_pos."
            )
        return super().__getattr__(name)

    @property
    def W_U(self) -> Float[Tensor, "d_model d_vocab"]:
        """The unembedding. With unembedding="none" it is the first columns of the identity."""
        return self.unembed.W_U

    @property
    def b_U(self) -> Float[Tensor, " d_vocab"]:
        """Zeros: the unembedding has no bias. The bias of a final LayerNorm is part of `ln_final`."""
        return self.unembed.b_U

    def tokens_to_residual_directions(
        self, tokens: Int[Tensor, "..."] | int
    ) -> Float[Tensor, "... d_model"]:
        """Return the direction that raises each token's logit, in the normalised residual stream
        before `ln_final.w`.

        `ln_final.w` is part of it, because `ActivationCache` divides only by the norm's scale. A
        LayerNorm subtracts the mean of the residual stream, so the mean is subtracted from the
        direction too. The norm's bias adds the constant `ln_final.b @ W_U` to the logits, which a
        direction cannot show.
        """
        directions = self.unembed.weight[tokens]
        if isinstance(self.ln_final, RMSNorm):
            directions = directions * self.ln_final.w
        if isinstance(self.ln_final, LayerNorm):
            directions = directions - directions.mean(dim=-1, keepdim=True)
        return directions

    def accumulated_bias(
        self, layer: int, mlp_input: bool = False, include_mlp_biases: bool = True
    ) -> Float[Tensor, " d_model"]:
        """Sum the biases added to the residual stream before a layer: b_O and b_out of every layer
        below it.

        With `mlp_input`, add the layer's own b_O too. Without `include_mlp_biases`, leave out every
        b_out.
        """
        total = torch.zeros_like(self.embed.weight[0])
        for below, block in enumerate(self.layers[: layer + mlp_input]):
            total = total + block.attn.b_O
            if include_mlp_biases and block.mlp is not None and below < layer:
                total = total + block.mlp.b_out
        return total

    @property
    def QK(self) -> FactoredMatrix:
        """W_Q W_K^T of every layer and query head, without alpha and without position encoding."""
        return FactoredMatrix(self.W_Q, self._of_queries(self.W_K).transpose(-2, -1))

    @property
    def OV(self) -> FactoredMatrix:
        """W_V W_O of every layer and query head, from an attended token to the head's output,
        without beta.
        """
        return FactoredMatrix(self._of_queries(self.W_V), self.W_O)

    @property
    def all_head_labels(self) -> list[str]:
        """The names of the heads, layer by layer: L0H0, L0H1, ..."""
        return [
            f"L{layer}H{head}"
            for layer in range(self.cfg.n_layers)
            for head in range(self.cfg.n_heads)
        ]

    def all_composition_scores(self, mode: Literal["Q", "K", "V"]) -> Any:
        """Return TransformerLens' `CompositionScores` of every pair of an earlier and a later head,
        from raw weights.

        ||W_left W_right|| / (||W_left|| ||W_right||), where W_left is the earlier head's OV, and W_right is the later
        head's QK (mode Q), its transpose (K) or its OV (V). 0 if the right head is not in a later layer. Elhage et al.
        2021. Raises `ConfigError` for another mode.
        """
        # Imported here: it loads all architectures of transformers, which would slow down every
        # command.
        from transformer_lens.model_bridge.composition_scores import CompositionScores

        require(mode in ("Q", "K", "V"), f"mode is {mode!r}, but must be 'Q', 'K' or 'V'.")
        right = {"Q": self.QK, "K": self.QK.T, "V": self.OV}[mode]
        scores = composition_scores(self.OV, right, broadcast_dims=True)
        layer = torch.arange(self.cfg.n_layers, device=scores.device)
        later = layer[:, None, None, None] < layer[None, None, :, None]
        return CompositionScores(
            torch.where(later, scores, 0.0), list(range(self.cfg.n_layers)), self.all_head_labels
        )

    def blocks_with(self, submodule: str) -> list[tuple[int, Any]]:
        """Return the blocks that have a part of this name, such as "attn" or "mlp", each with its
        layer number.
        """
        return [
            (n, block)
            for n, block in enumerate(self.layers)
            if getattr(block, submodule, None) is not None
        ]

    def tl_parameters(self) -> dict[str, Tensor]:
        """Return the weights keyed by TransformerLens' names, such as blocks.0.attn.W_Q, for its
        `SVDInterpreter`.

        Shared key and value heads are repeated for each query head, since `SVDInterpreter` indexes
        them by query head.
        """
        named = {"embed.W_E": self.embed.weight, "unembed.W_U": self.unembed.weight.T}
        if self.pos_embed is not None:
            named["pos_embed.W_pos"] = self.pos_embed.weight
        for layer, block in enumerate(self.layers):
            norms = {"ln1": block.ln1, "ln2": block.ln2}
            parts: dict[str, dict[str, Tensor]] = {
                name: dict(norm.named_parameters())
                for name, norm in norms.items()
                if norm is not None
            }
            names = ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V", "b_O")
            parts["attn"] = {name: getattr(block.attn, name) for name in names}
            for name in ("W_K", "W_V", "b_K", "b_V"):
                each = self.cfg.n_heads // len(parts["attn"][name])
                parts["attn"][name] = parts["attn"][name].repeat_interleave(each, dim=0)
            if block.mlp is not None:
                parts["mlp"] = {
                    name: getattr(block.mlp, name) for name in ("W_in", "W_out", "b_in", "b_out")
                }
            named |= {
                f"blocks.{layer}.{submodule}.{name}": x
                for submodule, of in parts.items()
                for name, x in of.items()
            }
        return named | {f"ln_final.{name}": x for name, x in self.ln_final.named_parameters()}

    def tl_named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """Iterate over `tl_parameters`, as PyTorch's `named_parameters` does over its own."""
        return iter(self.tl_parameters().items())

    def loss_fn(
        self,
        logits: Float[Tensor, "batch pos d_vocab"],
        tokens: Int[Tensor, "batch pos"],
        attention_mask: Tensor | None = None,
        per_token: bool = False,
    ) -> Float[Tensor, "*shape"]:
        """Return the next-token cross-entropy in nats: the mean, or [batch, pos - 1] with
        `per_token`.

        This is a language model's loss. Tasks are trained on their targets instead
        (`Batch.targets`).
        """
        return lm_cross_entropy_loss(logits, tokens.to(logits.device), attention_mask, per_token)

    def _of_queries(
        self, weight: Float[Tensor, "layer kv_head a b"]
    ) -> Float[Tensor, "layer head a b"]:
        return weight.repeat_interleave(self.cfg.n_heads // weight.shape[1], dim=1)
