"""The transformer, whole.

- Llama-style pre-norm blocks: RMSNorm -> attention -> residual -> RMSNorm -> SwiGLU -> residual
- final RMSNorm, untied unembedding, no biases, rotary positions with base 100,000
- grouped-query attention; keys and values shifted by one token where the config says so
- every part can be switched off, or exchanged for what the paper's theorems use (ALiBi, the strict mask) and for
  GPT-2's (LayerNorm, GELU, learned positions, biases, dropout)
- a TransformerLens `HookedRootModule`: hook names, `run_with_hooks`, `run_with_cache` and
  `ActivationCache` work as they do there
- weights start as N(0, 1 / fan in); an embedding reads one token, so its fan in is 1; biases start as 0
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int, Int64
from torch import Tensor, nn
from transformer_lens import ActivationCache, HookedRootModule
from transformer_lens.hook_points import HookPoint
from transformer_lens.utilities import Slice

from ihlab.model.attention import Attention, is_hooked, positions_of
from ihlab.model.config import ModelConfig
from ihlab.model.kv_cache import KVCache
from ihlab.model.mlp import make_mlp
from ihlab.model.norm import LayerNorm, RMSNorm, make_norm
from ihlab.model.unembed import FirstEntries
from tasks.config import ConfigError, require


class MissingWeightError(ConfigError, AttributeError):
    """A weight that models of another config have, so that `hasattr` says that this one has it not."""


class Block(nn.Module):
    """One layer: attention, then the MLP, each on the normalised stream and added to it.

    In training, dropout falls on what they add, before hook_attn_out and hook_mlp_out.
    """

    hook_out_is_single_residual_stream = True  # what TransformerLens asks before it reads resid_post

    def __init__(self, cfg: ModelConfig, layer: int, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.residual = cfg.residual_in(layer)
        self.ln1 = make_norm(cfg)
        self.attn = Attention(cfg, generator, layer)
        self.ln2 = None if cfg.mlp == "none" else make_norm(cfg)
        self.mlp = make_mlp(cfg)
        self.dropout = make_dropout(cfg)
        if self.mlp is not None:
            self.hook_mlp_out, self.hook_resid_mid = HookPoint(), HookPoint()
        self.hook_resid_pre, self.hook_attn_out, self.hook_resid_post = HookPoint(), HookPoint(), HookPoint()

    def forward(
        self, x: Float[Tensor, "batch pos d_model"], cache: KVCache | None = None
    ) -> Float[Tensor, "batch pos d_model"]:
        """The stream after this layer; with a cache, of tokens that go on where it ends."""
        return self.feed(self.attend(x, cache))

    def attend(
        self,
        x: Float[Tensor, "batch pos d_model"],
        cache: KVCache | None = None,
        at: Int[Tensor, "batch asked"] | None = None,
    ) -> Float[Tensor, "batch query d_model"]:
        """The stream after the layer's attention; without a cache, `at` some positions of each row if so asked."""
        x = self.hook_resid_pre(x)
        attn_out = self.hook_attn_out(self.dropout(self.attn(x if self.ln1 is None else self.ln1(x), cache, at)))
        if not self.residual:
            return attn_out
        return attn_out + (x if at is None else positions_of(x, at))

    def feed(self, x: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_model"]:
        """The stream after the layer's MLP, which works on each position alone."""
        if self.mlp is not None:
            x = self.hook_resid_mid(x)
            mlp_out = self.hook_mlp_out(self.dropout(self.mlp(x if self.ln2 is None else self.ln2(x))))
            x = x + mlp_out if self.residual else mlp_out
        return self.hook_resid_post(x)

    @property
    def hooks_after_keys(self) -> list[HookPoint]:
        """The hook points that keys and values do not depend on: of the layer's queries, and of all that follows."""
        parts = [part for part in (self.ln2, self.mlp) if part is not None]
        own = [self.hook_attn_out, self.hook_resid_post]
        own += [] if self.mlp is None else [self.hook_resid_mid, self.hook_mlp_out]
        return own + self.attn.asking_hooks + hook_points(*parts)


def hook_points(*parts: nn.Module) -> list[HookPoint]:
    """The hook points inside."""
    return [module for part in parts for module in part.modules() if isinstance(module, HookPoint)]


class Transformer(HookedRootModule):
    """Tokens to next-token logits. `Transformer(cfg, seed)` is a pure function of its arguments."""

    trained_ids: Sequence[int] | None = None
    """The token ids of the task it was trained on, where that is known (`Run.model`): probes are made of these."""

    def __init__(self, cfg: ModelConfig, seed: int = 0) -> None:
        super().__init__()
        self.cfg = cfg
        # Shifts draw from a stream of their own: with one seed, vanilla and shifted models start alike.
        # Spawned, because two generators with one seed would tie alpha to the first weights.
        shifts = torch.Generator().manual_seed(int(np.random.SeedSequence([seed, 1]).generate_state(1)[0]))
        self.embed = nn.Embedding(cfg.d_vocab, cfg.d_model)
        self.hook_embed = HookPoint()
        self.pos_embed = nn.Embedding(cfg.n_ctx, cfg.d_model) if cfg.positional == "learned" else None
        if self.pos_embed is not None:
            self.hook_pos_embed = HookPoint()
        self.dropout = make_dropout(cfg)
        self.blocks = nn.ModuleList(Block(cfg, layer, shifts) for layer in range(cfg.n_layers))
        self.ln_final = make_norm(cfg) or nn.Identity()
        self.unembed: nn.Linear | FirstEntries = (
            FirstEntries(cfg.d_model, cfg.d_vocab)
            if cfg.unembedding == "none"
            else nn.Linear(cfg.d_model, cfg.d_vocab, bias=False)
        )
        if cfg.tied_embeddings:
            self.unembed.weight = self.embed.weight
        self._initialise(torch.Generator().manual_seed(seed))
        self.setup()  # names the hook points

    @torch.no_grad()
    def _initialise(self, generator: torch.Generator) -> None:
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                # An embedding reads one token: fan in 1. Smaller ones drown in the first layer's output,
                # and two-layer models then learn induction several times later or never (docs/LOG.md).
                alone = isinstance(module, nn.Embedding) and not self.cfg.tied_embeddings
                fan_in = 1 if alone else module.weight.shape[1]
                std = fan_in**-0.5 if self.cfg.init_std is None else self.cfg.init_std
                if isinstance(module, nn.Embedding) and self.cfg.embed_std is not None:
                    std = self.cfg.embed_std
                writes_to_stream = name.endswith((".o_proj", ".out_proj"))
                if self.cfg.scaled_residual_init and writes_to_stream:
                    std *= (2 * self.cfg.n_layers) ** -0.5
                module.weight.normal_(std=std, generator=generator)
            if isinstance(module, nn.Linear) and module.bias is not None:
                module.bias.zero_()

    def forward(self, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch pos d_vocab"]:
        """Logits at every position.

        Raises `ConfigError` for ids outside the vocabulary and rows longer than `n_ctx`.
        """
        require(
            tokens.shape[1] <= self.cfg.n_ctx,
            f"The tokens have {tokens.shape[1]} positions, but the model's n_ctx is {self.cfg.n_ctx}.",
        )
        self.require_ids(tokens)
        return self.unembed(self.final_residual(tokens))

    def require_ids(self, tokens: Int[Tensor, "..."]) -> None:
        """Raises `ConfigError` for ids outside the vocabulary.

        Only where ids have values to look at: not while the model is compiled or exported, under `torch.func.vmap` or
        on the meta device.
        """
        if torch.compiler.is_compiling() or tokens.is_meta or torch._C._functorch.is_batchedtensor(tokens):
            return
        low, high = int(tokens.min()), int(tokens.max())
        require(
            low >= 0 and high < self.cfg.d_vocab,
            f"Token id {low if low < 0 else high} is outside the vocabulary: ids run from 0 to {self.cfg.d_vocab - 1}.",
        )

    def final_residual(
        self, tokens: Int[Tensor, "batch pos"], caches: Sequence[KVCache] | None = None
    ) -> Float[Tensor, "batch pos d_model"]:
        """The normalised stream that the unembedding reads.

        With a cache for each layer, the tokens go on where the caches end, and are kept in them (`ihlab.model.decode`).
        """
        x = self._embedded(tokens, 0 if caches is None else caches[0].length)
        for layer, block in enumerate(self.blocks):
            x = block(x, None if caches is None else caches[layer])
        return self.ln_final(x)

    def residual_at(
        self,
        tokens: Int[Tensor, "batch pos"],
        index: Int[Tensor, " scored"],
        queries: Int[Tensor, "batch asked"] | None = None,
    ) -> Float[Tensor, "scored d_model"]:
        """`final_residual` at some positions, an index into the flattened [batch * pos]; training scores no others.

        Of the last layer, keys and values are of every position, and what comes after its attention is done at these
        positions only. So is the attention where `queries` names positions of each row that include all of these; what
        else it names costs time and changes nothing, and for what it leaves out the result is that of another position.
        Where a hook listens to any of that, it is done everywhere, and the hook is given what it always is.
        """
        if self.cfg.positional == "alibi":
            queries = None  # its bias is for each head: picked out for each row too, it is as large as the pattern
        x = self._embedded(tokens)
        *before, last = self.layers
        for block in before:
            x = block(x)
        if is_hooked(*last.hooks_after_keys, *hook_points(self.ln_final)):
            return self.ln_final(last(x)).flatten(0, 1)[index]
        x = last.attend(x, at=queries)
        place = index if queries is None else _places(index, queries, tokens.shape[1])
        return self.ln_final(last.feed(x.flatten(0, 1)[place][None]))[0]

    def _embedded(self, tokens: Int[Tensor, "batch pos"], start: int = 0) -> Float[Tensor, "batch pos d_model"]:
        """The stream before the first layer; the first token is at the position `start`."""
        x = self.hook_embed(self.embed(tokens))
        if self.pos_embed is not None:
            positions = self.pos_embed.weight[start : start + tokens.shape[1]]
            # Copies, one for each row: a hook may write into what it is given.
            x = x + self.hook_pos_embed(positions.repeat(len(tokens), 1, 1))
        return self.dropout(x)

    def generate(
        self, tokens: Int[Tensor, "batch pos"], max_new_tokens: int, stop: int | None = None, pad: int | None = None
    ) -> Int64[Tensor, "batch longer"]:
        """The tokens, and up to `max_new_tokens` after them, each the likeliest: `ihlab.model.decode.generate`."""
        from ihlab.model.decode import generate

        return generate(self, tokens, max_new_tokens, stop, pad)

    @property
    def layers(self) -> list[Block]:
        """The blocks, typed."""
        return [block for block in self.blocks if isinstance(block, Block)]

    @property
    def n_params(self) -> int:
        """Parameters without embedding (of tokens and of positions) and unembedding, as the paper counts them."""
        embeddings = {id(self.embed.weight), id(self.unembed.weight)}
        if self.pos_embed is not None:
            embeddings.add(id(self.pos_embed.weight))
        return sum(p.numel() for p in self.parameters() if id(p) not in embeddings)

    # What TransformerLens asks of a model:

    def run_with_cache(
        self, *args: Any, remove_batch_dim: bool = False, pos_slice: Any = None, **kwargs: Any
    ) -> tuple[Tensor, ActivationCache]:
        """Run, and return the output with a TransformerLens `ActivationCache` of the activations.

        Batch and positions are dropped here and not by TransformerLens, which goes by the names it
        knows and would cut our raw keys along the heads, and alpha and beta along anything.
        """
        require(
            not remove_batch_dim or len(args[0]) == 1,
            f"The batch dimension of {len(args[0])} rows cannot be removed; it can with one row.",
        )
        output, cache = super().run_with_cache(*args, **kwargs)
        positions = Slice.unwrap(pos_slice)
        for name, x in cache.items():
            if "hook_alpha" in name or "hook_beta" in name:
                continue
            kept = positions.apply(x, dim=2 if "hook_pattern" in name or "hook_attn_scores" in name else 1)
            cache[name] = kept[0] if remove_batch_dim else kept
        return output, ActivationCache(cache, self, has_batch_dim=not remove_batch_dim)

    @property
    def W_E(self) -> Float[Tensor, "d_vocab d_model"]:
        """The embedding."""
        return self.embed.weight

    @property
    def W_pos(self) -> Float[Tensor, "n_ctx d_model"]:
        """The learned positions. Raises `MissingWeightError` for a model without."""
        if self.pos_embed is None:
            raise AttributeError  # Python then asks __getattr__, whose sentence is read
        return self.pos_embed.weight

    def __getattr__(self, name: str) -> Any:
        """What is no attribute: a weight that this model has not, or a module or parameter."""
        if name == "W_pos":
            raise MissingWeightError(f"The model's positional is {self.cfg.positional!r}: only 'learned' has W_pos.")
        return super().__getattr__(name)

    @property
    def W_U(self) -> Float[Tensor, "d_model d_vocab"]:
        """The unembedding; the first columns of the identity where the stream itself holds the logits."""
        return self.unembed.weight.T

    @property
    def b_U(self) -> Float[Tensor, " d_vocab"]:
        """The unembedding's bias: none, so zeros. A final LayerNorm's bias is its own, and part of `ln_final`."""
        return torch.zeros_like(self.unembed.weight[:, 0])

    def tokens_to_residual_directions(self, tokens: Int[Tensor, "..."] | int) -> Float[Tensor, "... d_model"]:
        """The direction of the normalised stream (before the final norm's w) that raises each token's logit.

        The final norm's w is folded in because the cache divides by the norm's scale only. A LayerNorm takes the
        mean out of the stream, so it is out of the direction too. Its bias adds `ln_final.b @ W_U` to the logits
        whatever the stream holds, and no direction can show that.
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
        """The biases added to the stream before a layer: b_O and b_out of every layer below it, summed.

        With `mlp_input` also the layer's own b_O; without `include_mlp_biases` no b_out.
        """
        total = torch.zeros_like(self.embed.weight[0])
        for below, block in enumerate(self.layers[: layer + mlp_input]):
            total = total + block.attn.b_O
            if include_mlp_biases and block.mlp is not None and below < layer:
                total = total + block.mlp.b_out
        return total

    def to_tokens(self, tokens: Tensor, *_: Any, **__: Any) -> Tensor:
        """Tokens are tensors already."""
        return tokens


def _places(index: Int[Tensor, " scored"], queries: Int[Tensor, "batch asked"], n_pos: int) -> Int[Tensor, " scored"]:
    """Where the positions `index`, of the flattened [batch * pos], stand in the flattened queries."""
    asked = queries.shape[1]
    nth = torch.arange(asked, device=queries.device).expand_as(queries)
    nth_at = torch.zeros((len(queries), n_pos), dtype=torch.int64, device=queries.device).scatter(1, queries, nth)
    return index // n_pos * asked + nth_at.flatten()[index]


def make_dropout(cfg: ModelConfig) -> nn.Module:
    """The dropout that a config asks for, on where `train()` was called last."""
    return nn.Dropout(cfg.dropout) if cfg.dropout else nn.Identity()
