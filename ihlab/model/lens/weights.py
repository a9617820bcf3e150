"""The weights and losses of a model under the names that TransformerLens' tools expect of a
`TransformerBridge`.

With the shift, `W_K`, `W_V`, `QK` and `OV` use the stored weights. A shifted head multiplies its
keys by alpha and its values by beta. `ihlab.interp` has each route's matrix, such as alpha_2 W_Q
W_K^T for the previous token's key.
"""

from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformer_lens import FactoredMatrix
from transformer_lens.utilities import composition_scores, lm_cross_entropy_loss

from ihlab.model.config import ModelConfig
from ihlab.model.lens.hooks import LensHooks
from ihlab.model.norm import LayerNorm, RMSNorm
from tasks.config import require


def _of_every_layer(submodule: str, name: str) -> property:
    def stacked(model: "LensWeights") -> Tensor:
        parts: list[Any] = [getattr(block, submodule) for block in model.layers]
        require(all(of is not None for of in parts), f"The model has no MLPs, and so no {name}.")
        return torch.stack([getattr(of, name) for of in parts])

    return property(stacked, doc=f"`{name}` of every layer's {submodule}, a copy [layer, ...].")


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
        """The learned position embeddings. Raises `AttributeError` for a model without them."""
        return self.pos_embed.W_pos

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
