"""The network: tokens to logits.

- Llama-style pre-norm blocks: RMSNorm -> attention -> residual -> RMSNorm -> SwiGLU -> residual
- final RMSNorm, untied unembedding, no biases, rotary positions with base 100,000
- grouped-query attention; keys and values shifted by one token if the config says so
- every part can be switched off, or replaced by a part of the paper's theorems (ALiBi, the strict
  mask) or of GPT-2 (LayerNorm, GELU, learned positions, biases, dropout)
- a TransformerLens `HookedRootModule`, with the same hook names and `run_with_hooks`
- weights start as N(0, 1 / fan in); an embedding reads one token, so its fan in is 1; biases start
  as 0

`Transformer` (`ihlab.model.transformer`) adds decoding, `residual_at` for scored positions, and the
rest of TransformerLens' interface.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformer_lens.hook_points import HookPoint

from ihlab.model.attend import Stream
from ihlab.model.attention import Attention
from ihlab.model.config import ModelConfig
from ihlab.model.documents import Documents, documents_of
from ihlab.model.kv_cache import KVCache, Past, next_positions
from ihlab.model.lens.hooks import LensHooks
from ihlab.model.lens.linear import FirstEntries, PositionEmbedding, TokenEmbedding, Unembedding
from ihlab.model.mixes.places import LayerMixes
from ihlab.model.mixes.smear import Smear
from ihlab.model.mlp import make_mlp
from ihlab.model.norm import RMSNorm, make_norm
from ihlab.model.registry import VARIANTS
from ihlab.model.variants.make_attention import make_attention, takes_cache
from ihlab.runtime.settings import usual_tensors
from tasks.config import ConfigError, require

WITH_MATRIX = (nn.Linear, nn.Bilinear, nn.Embedding, nn.Conv1d, nn.Conv2d)
"""Modules of torch whose `weight` gets weight decay, unless the module has `decays`."""


class Block(LayerMixes):
    """One layer: attention, then the MLP, each on the normalised residual stream and added to it.

    In training, dropout acts on their outputs, before hook_attn_out and hook_mlp_out.
    """

    hook_out_is_single_residual_stream = (
        True  # TransformerLens checks this before it reads resid_post
    )

    def __init__(
        self, cfg: ModelConfig, layer: int, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        self.residual = cfg.residual_in(layer)
        self.ln1 = make_norm(cfg)
        self.attn = make_attention(cfg, generator, layer)
        self.ln2: RMSNorm | None = None
        if cfg.mlp != "none":
            self.ln2 = make_norm(cfg)
        self.mlp = make_mlp(cfg, generator, layer)
        self._make_mixes(cfg, generator, layer)
        self.dropout = nn.Dropout(cfg.dropout)
        if self.mlp is not None:
            self.hook_mlp_out, self.hook_resid_mid = HookPoint(), HookPoint()
        self.hook_resid_pre, self.hook_attn_out = HookPoint(), HookPoint()
        self.hook_resid_post = HookPoint()

    def forward(self, x: Stream, cache: Past | None = None) -> Stream:
        """Return the residual stream after this layer. With a cache, the tokens continue its
        sequences.
        """
        x = self.entering(x, cache)
        return self.add_mlp(self.add_attention(x, self.attend(x, cache), cache), cache)

    def attend(self, x: Stream, cache: Past | None = None) -> Stream:
        """Return the output of attention for the residual stream x that `entering` returns."""
        read = self.attention_input(x, cache)
        if cache is None:
            return self.attn(read)  # a custom attention may take no cache
        return self.attn(read, cache)

    def entering(self, x: Stream, cache: Past | None = None) -> Stream:
        """Return the residual stream at the layer's start, plus its shift if stream_shift is
        "added".
        """
        return self.with_shift(self.hook_resid_pre(x), cache)

    def attention_input(self, x: Stream, cache: Past | None = None) -> Stream:
        """Normalise the residual stream for attention, with earlier tokens mixed in if the config
        says so.
        """
        x = self.mixed("norm", x, cache)
        if self.ln1 is not None:
            x = self.ln1(x)
        return self.mixed("A", x, cache)

    def add_attention(
        self,
        x: Float[Tensor, "batch query d_model"],
        attn_out: Float[Tensor, "batch query d_model"],
        cache: Past | None = None,
    ) -> Float[Tensor, "batch query d_model"]:
        """Add the output of attention to the residual stream x at the same positions."""
        attn_out = self.hook_attn_out(self.dropout(self.mixed("O", attn_out, cache)))
        if not self.residual:
            return attn_out
        return attn_out + x

    def add_mlp(self, x: Stream, cache: Past | None = None) -> Stream:
        """Add the output of the layer's MLP to the residual stream (see `adds_neighbours`)."""
        if self.mlp is None:
            return self.hook_resid_post(x)
        x = self.hook_resid_mid(x)
        read = x
        if self.ln2 is not None:
            read = self.ln2(read)
        read = self.mixed("C", read, cache)
        mlp_out = self.hook_mlp_out(self.dropout(self.mixed("M", self.mlp(read, cache), cache)))
        if self.residual:
            mlp_out = x + mlp_out
        return self.hook_resid_post(mlp_out)


class Network(LensHooks):
    """A model that maps tokens to next-token logits. `Network(cfg, seed)` is a pure function of its
    arguments.
    """

    @usual_tensors()
    def __init__(self, cfg: ModelConfig, seed: int = 0) -> None:
        super().__init__()
        self.cfg = cfg
        # Shifts have their own generator: with one seed, vanilla and shifted models share all other
        # initial weights. It has a spawned seed, because with the same seed alpha would repeat the
        # draws of the first weights.
        shifts = torch.Generator().manual_seed(
            int(np.random.SeedSequence([seed, 1]).generate_state(1)[0])
        )
        self.embed = TokenEmbedding(cfg.d_vocab, cfg.d_model)
        self.hook_embed = HookPoint()
        self.pos_embed: PositionEmbedding | None = None
        if cfg.positional == "learned":
            self.pos_embed = PositionEmbedding(cfg.n_ctx, cfg.d_model)
            self.hook_pos_embed = HookPoint()
        self.smear: Smear | None = None
        if cfg.smear == "embedding":
            self.smear = Smear(cfg.d_model)
        self.dropout = nn.Dropout(cfg.dropout)
        self.blocks = nn.ModuleList(Block(cfg, layer, shifts) for layer in range(cfg.n_layers))
        self.ln_final = make_norm(cfg) or nn.Identity()
        unembedding = FirstEntries if cfg.unembedding == "none" else Unembedding
        self.unembed: Unembedding | FirstEntries = unembedding(cfg.d_model, cfg.d_vocab)
        if cfg.tied_embeddings:
            self.unembed.weight = self.embed.weight
        self._initialise(torch.Generator().manual_seed(seed))
        self.setup()  # names the hook points

    @torch.no_grad()
    def _initialise(self, generator: torch.Generator) -> None:
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                module.weight.normal_(std=self._initial_std(name, module), generator=generator)
            if isinstance(module, nn.Linear) and module.bias is not None:
                module.bias.zero_()

    def _initial_std(self, name: str, module: nn.Linear | nn.Embedding) -> float:
        """Return the standard deviation of a matrix's initial entries."""
        cfg, embeds = self.cfg, isinstance(module, nn.Embedding)
        if cfg.init_std is not None:
            std = cfg.init_std
        elif embeds and not cfg.tied_embeddings:
            # An embedding reads one token: fan in 1. Smaller embeddings vanish beside the first
            # layer's output, and two-layer models then learn induction several times later or never
            # (docs/LOG.md).
            std = 1.0
        else:
            std = module.weight.shape[1] ** -0.5
        if cfg.scaled_residual_init and name.endswith((".o_proj", ".out_proj")):
            std *= (2 * cfg.n_layers) ** -0.5
        return std

    def require_separable(self) -> None:
        """Raise `ConfigError` if packed documents cannot be kept apart (`ihlab.model.documents`)."""
        require(
            self.cfg.positional != "learned",
            "ModelConfig.positional is 'learned', but positions of packed documents would not start again with each: "
            "it must be 'rope', 'alibi' or 'none'.",
        )
        name = self.cfg.attention
        apart = not VARIANTS[name].registered
        for block in self.layers:
            attention = block.attn
            ours = isinstance(attention, Attention) and takes_cache(attention)
            apart = (
                apart
                and ours
                and attention.queries_alone
                and not any(hook.is_permanent for hook in attention.hook_pattern.fwd_hooks)
            )
        require(
            apart,
            f"ModelConfig.attention is {name!r}, which cannot keep packed documents apart: attention whose queries "
            "depend on each other, attention from outside and a clamped pattern cannot.",
        )

    def require_rows(self, tokens: Int[Tensor, "batch pos"]) -> Int[Tensor, "batch pos"]:
        """Return the tokens. Raises `ConfigError` for ids outside the vocabulary and sequences
        longer than `n_ctx`.
        """
        require(
            tokens.shape[1] <= self.cfg.n_ctx,
            f"The tokens have {tokens.shape[1]} positions, but the model's n_ctx is {self.cfg.n_ctx}.",
        )
        self.require_ids(tokens)
        return tokens

    def require_ids(self, tokens: Int[Tensor, "..."]) -> None:
        """Raise `ConfigError` for ids outside the vocabulary, and for no ids at all.

        Ids are not checked on the meta device, while the model is compiled or exported, or in a
        transform of `torch.func`: they have no values there.
        """
        if (
            torch.compiler.is_compiling()
            or tokens.is_meta
            or torch._C._functorch.is_functorch_wrapped_tensor(tokens)
        ):
            return
        require(tokens.numel() > 0, f"The tokens are {list(tokens.shape)}: there is none to read.")
        low, high = int(tokens.min()), int(tokens.max())
        for extreme in (low, high):
            require(
                0 <= extreme < self.embed.num_embeddings,
                f"Token id {extreme} is outside the vocabulary: ids run from 0 to {self.cfg.d_vocab - 1}.",
            )

    def final_residual(
        self,
        tokens: Int[Tensor, "batch pos"],
        caches: Sequence[KVCache] | None = None,
        document_starts: Any = None,
    ) -> Stream:
        """Return the normalised residual stream that the unembedding reads.

        With a cache for each layer, the tokens continue the sequences in the caches and are added
        to them (`decode`).
        """
        # What each layer reads besides the tokens: its cache, or the packed documents.
        pasts: Sequence[Past | None] = caches or [
            documents_of(self, tokens, document_starts)
        ] * len(self.blocks)
        x = self.embedded(tokens, pasts[0])
        for block, past in zip(self.blocks, pasts, strict=True):
            x = block(x, past)
        return self.ln_final(x)

    def embedded(self, tokens: Int[Tensor, "batch pos"], cache: Past | None = None) -> Stream:
        """Return the residual stream before the first layer. With a cache, the tokens continue its
        sequences.
        """
        x = self.embed(tokens)
        if self.smear is not None:
            x = self.smear(x, cache)
        x = self.hook_embed(x)
        if self.pos_embed is not None:
            vectors = self.pos_embed.weight[next_positions(cache, tokens.shape[1])]
            # One copy per sequence, because a hook may write into its tensor.
            x = x + self.hook_pos_embed(vectors.repeat(len(tokens), 1, 1))
        return self.dropout(x)

    def before_last_layer(
        self, tokens: Int[Tensor, "batch pos"], documents: Documents | None = None
    ) -> Stream:
        """Return the residual stream before the last layer, without checking the tokens."""
        x = self.embedded(tokens, documents)
        for block in self.layers[:-1]:
            x = block(x, documents)
        return x

    @property
    def layers(self) -> list[Block]:
        """Return the blocks as a list that type checkers know to hold `Block`s."""
        return [block for block in self.blocks if isinstance(block, Block)]

    def decayed_parameters(self) -> set[str]:
        """Return the names of the parameters with weight decay (`own_decayed` of every module)."""
        decayed = {id(weight) for module in self.modules() for weight in own_decayed(module)}
        return {name for name, weight in self.named_parameters() if id(weight) in decayed}

    @property
    def n_params(self) -> int:
        """The number of parameters without embeddings and unembedding, as in the paper."""
        embeddings = {id(self.embed.weight), id(self.unembed.weight)}
        if self.pos_embed is not None:
            embeddings.add(id(self.pos_embed.weight))
        return sum(weight.numel() for weight in self.parameters() if id(weight) not in embeddings)


def own_decayed(module: nn.Module) -> list[nn.Parameter]:
    """Return the parameters of a module, but not of its submodules, that have weight decay.

    A module lists their names in `decays`. The default for torch's linear maps, embeddings and
    convolutions is `weight`. No other parameter decays, whatever its shape: a gain per head is not
    a matrix.
    """
    names: Sequence[str] = ("weight",) if isinstance(module, WITH_MATRIX) else ()
    decayed: list[nn.Parameter] = []
    for name in getattr(module, "decays", names):
        weight = getattr(module, name, None)
        if not isinstance(weight, nn.Parameter):
            raise ConfigError(
                f"{type(module).__name__}.decays names {name}, which is not one of its parameters."
            )
        decayed.append(weight)
    return decayed
