"""The network: tokens to logits.

- Llama-style pre-norm blocks: RMSNorm -> attention -> residual -> RMSNorm -> SwiGLU -> residual
- final RMSNorm, untied unembedding, no biases, rotary positions with base 100,000
- grouped-query attention; keys and values shifted by one token if the config says so
- every part can be switched off, or replaced by that of the paper's theorems (ALiBi, the strict mask) or of GPT-2
  (LayerNorm, GELU, learned positions, biases, dropout)
- a TransformerLens `HookedRootModule`, with the same hook names and `run_with_hooks`
- weights start as N(0, 1 / fan in); an embedding reads one token, so its fan in is 1; biases start as 0

`Transformer` (`ihlab.model.transformer`) adds decoding, the residual stream at scored positions only, and the rest of
TransformerLens' interface.
"""

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformer_lens import HookedRootModule
from transformer_lens.hook_points import HookPoint

from ihlab.model.attention import Attention
from ihlab.model.config import ModelConfig
from ihlab.model.documents import Documents, documents_of, packed_now
from ihlab.model.kv_cache import KVCache, Past, earlier, next_positions
from ihlab.model.lens.linear import FirstEntries, PositionEmbedding, TokenEmbedding, Unembedding
from ihlab.model.mixes.bigram import BigramTable
from ihlab.model.mixes.depthwise import make_canon
from ihlab.model.mixes.input_shift import make_stream_shift
from ihlab.model.mixes.smear import OF_EMBEDDING, Smear
from ihlab.model.mlp import make_mlp
from ihlab.model.norm import make_norm
from ihlab.model.registry import VARIANTS
from ihlab.model.shapes import Stream
from ihlab.model.shift import TokenMix
from ihlab.model.variants.make_attention import make_attention, takes_cache
from ihlab.settings import usual_tensors
from tasks.config import ConfigError, choose, require

WITH_MATRIX = (nn.Linear, nn.Bilinear, nn.Embedding, nn.Conv1d, nn.Conv2d)
"""Modules of torch whose `weight` gets weight decay, unless the module has `decays`."""


class Block(nn.Module):
    """One layer: attention, then the MLP, each on the normalised residual stream and added to it.

    In training, dropout acts on their outputs, before hook_attn_out and hook_mlp_out.
    """

    hook_out_is_single_residual_stream = True  # TransformerLens checks this before it reads resid_post

    def __init__(self, cfg: ModelConfig, layer: int, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.residual = cfg.residual_in(layer)
        self.ln1 = make_norm(cfg)
        self.attn = make_attention(cfg, generator, layer)
        self.ln2 = None if cfg.mlp == "none" else make_norm(cfg)
        self.mlp = make_mlp(cfg, generator, layer)
        canon = {place: make_canon(cfg, place, (1,), cfg.d_model, generator, layer) for place in "ACOM"}
        self.canon = nn.ModuleDict({place: made[0] for place, made in canon.items() if made})
        self.dropout = make_dropout(cfg)
        if self.mlp is not None:
            self.hook_mlp_out, self.hook_resid_mid = HookPoint(), HookPoint()
        self.hook_resid_pre, self.hook_attn_out, self.hook_resid_post = HookPoint(), HookPoint(), HookPoint()
        self.stream_shift, self.shift_at = make_stream_shift(cfg, layer), cfg.stream_shift
        if self.shift_at == "added":
            self.hook_resid_shift = HookPoint()
        self.smear = Smear(cfg.d_model) if cfg.smear == "attention" else None

    def forward(self, x: Stream, cache: Past | None = None) -> Stream:
        """Return the residual stream after this layer. With a cache, the tokens continue its sequences."""
        x = self.entering(x, cache)
        return self.add_mlp(self.add_attention(x, self.attend(x, cache), cache), cache)

    def attend(self, x: Stream, cache: Past | None = None) -> Stream:
        """Return the output of attention for the residual stream x of `entering`."""
        read = self.attention_input(x, cache)
        return self.attn(read) if cache is None else self.attn(read, cache)  # a custom attention may take no cache

    def entering(self, x: Stream, cache: Past | None = None) -> Stream:
        """Return the residual stream at the layer's start, plus its shift if stream_shift is "added"."""
        x = self.hook_resid_pre(x)
        if self.stream_shift is None or self.shift_at != "added":
            return x
        return x + self.hook_resid_shift(self.stream_shift.of_previous(x, earlier(cache, "stream", x, 1)))

    def attention_input(self, x: Stream, cache: Past | None = None) -> Stream:
        """Normalise the residual stream for attention, with earlier tokens mixed in if the config says so."""
        if self.stream_shift is not None and self.shift_at == "before_norm":
            x = self.stream_shift(x, earlier(cache, "stream", x, 1))
        x = x if self.ln1 is None else self.ln1(x)
        if self.stream_shift is not None and self.shift_at == "after_norm":
            x = self.stream_shift(x, earlier(cache, "stream", x, 1))
        x = x if self.smear is None else self.smear(x, cache)
        return self._canon("A", x, cache)

    def add_attention(
        self,
        x: Float[Tensor, "batch query d_model"],
        attn_out: Float[Tensor, "batch query d_model"],
        cache: Past | None = None,
    ) -> Float[Tensor, "batch query d_model"]:
        """Add the output of attention to the residual stream x at the same positions."""
        attn_out = self.hook_attn_out(self.dropout(self._canon("O", attn_out, cache)))
        return attn_out + x if self.residual else attn_out

    def add_mlp(self, x: Stream, cache: Past | None = None) -> Stream:
        """Add the output of the layer's MLP to the residual stream (see `adds_neighbours`)."""
        if self.mlp is not None:
            x = self.hook_resid_mid(x)
            read = self._canon("C", x if self.ln2 is None else self.ln2(x), cache)
            mlp_out = self.hook_mlp_out(self.dropout(self._canon("M", self.mlp(read, cache), cache)))
            x = x + mlp_out if self.residual else mlp_out
        return self.hook_resid_post(x)

    @property
    def adds_neighbours(self) -> bool:
        """True if `add_attention` or `add_mlp` needs every position because one of its modules mixes tokens."""
        of_mlp = [part for part in (self.ln2, self.mlp) if part is not None]
        return bool(self.canon.keys() & set("COM")) or any(
            isinstance(module, TokenMix) for part in of_mlp for module in part.modules()
        )

    def _canon(self, place: str, x: Tensor, cache: Past | None) -> Stream:
        return self.canon[place].of_vectors(x, cache, place) if place in self.canon else x  # type: ignore[operator]


class Network(HookedRootModule):
    """Tokens to next-token logits. `Network(cfg, seed)` is a pure function of its arguments."""

    @usual_tensors()
    def __init__(self, cfg: ModelConfig, seed: int = 0) -> None:
        super().__init__()
        self.cfg = cfg
        # Shifts have their own generator: with one seed, vanilla and shifted models share all other initial weights.
        # It has a spawned seed, because with the same seed alpha would repeat the draws of the first weights.
        shifts = torch.Generator().manual_seed(int(np.random.SeedSequence([seed, 1]).generate_state(1)[0]))
        self.embed = TokenEmbedding(cfg.d_vocab, cfg.d_model)
        self.hook_embed = HookPoint()
        self.bigram = BigramTable(cfg.bigram_table, cfg.d_model) if cfg.bigram_table else None
        self.pos_embed = PositionEmbedding(cfg.n_ctx, cfg.d_model) if cfg.positional == "learned" else None
        if self.bigram is not None:
            self.hook_bigram = HookPoint()
        if self.pos_embed is not None:
            self.hook_pos_embed = HookPoint()
        self.dropout = make_dropout(cfg)
        self.smear = OF_EMBEDDING[cfg.smear](cfg.d_model) if cfg.smear in OF_EMBEDDING else None
        self.blocks = nn.ModuleList(Block(cfg, layer, shifts) for layer in range(cfg.n_layers))
        if cfg.shift_share == "model" and cfg.shifted:
            for block in self.layers[1:]:
                block.attn.share_shifts(self.layers[0].attn)
        self.ln_final = make_norm(cfg) or nn.Identity()
        self.unembed: Unembedding | FirstEntries = (
            FirstEntries(cfg.d_model, cfg.d_vocab)
            if cfg.unembedding == "none"
            else Unembedding(cfg.d_model, cfg.d_vocab)
        )
        if cfg.tied_embeddings:
            self.unembed.weight = self.embed.weight
        self._initialise(torch.Generator().manual_seed(seed))
        self.setup()  # names the hook points

    def name_new_hook_points(self) -> None:
        """Name the hook points of modules assigned after the model was made, such as another attention."""
        named = set(map(id, self.hook_dict.values()))
        if {id(module) for module in self.modules() if isinstance(module, HookPoint)} != named:
            self.setup()

    def hooks(self, fwd_hooks: Any = (), bwd_hooks: Any = (), *args: Any, **kwargs: Any) -> Any:
        """Add temporary hooks as in TransformerLens, after naming the hook points of newly assigned modules.

        Raises `ConfigError` for a name that no hook point has, like every method that takes such a name.
        """
        self._require_hook_points(name for name, _ in (*fwd_hooks, *bwd_hooks))
        return super().hooks(fwd_hooks, bwd_hooks, *args, **kwargs)

    def add_hook(self, name: Any, *args: Any, **kwargs: Any) -> None:
        """Add a hook as in TransformerLens, with the checks of `hooks`."""
        self._require_hook_points([name])
        super().add_hook(name, *args, **kwargs)

    def get_caching_hooks(self, names_filter: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Return caching hooks as in TransformerLens (for `run_with_cache`). Warns of a name without a hook point."""
        self._warn_of_filter(names_filter)
        return super().get_caching_hooks(names_filter, *args, **kwargs)

    def add_caching_hooks(self, names_filter: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Add caching hooks as in TransformerLens. Warns of a name without a hook point."""
        self._warn_of_filter(names_filter)
        return super().add_caching_hooks(names_filter, *args, **kwargs)

    def _warn_of_filter(self, names_filter: Any) -> None:
        self.name_new_hook_points()
        if callable(names_filter):
            if not any(map(names_filter, self.hook_dict)):
                warnings.warn("names_filter is true for no hook point: the cache stays empty.", stacklevel=4)
        elif names_filter is not None:
            for name in [names_filter] if isinstance(names_filter, str) else names_filter:
                try:
                    self._require_hook_points([name])
                except ConfigError as error:
                    warnings.warn(f"names_filter: {error}", stacklevel=4)

    def _require_hook_points(self, names: Iterable[Any]) -> None:
        self.name_new_hook_points()
        for name in names:
            if isinstance(name, str) and name not in self.hook_dict:
                choose("hook point", name, self.hook_dict)

    @torch.no_grad()
    def _initialise(self, generator: torch.Generator) -> None:
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                # An embedding reads one token: fan in 1. Smaller embeddings vanish beside the first layer's output,
                # and two-layer models then learn induction several times later or never (docs/LOG.md).
                alone = isinstance(module, nn.Embedding) and not self.cfg.tied_embeddings
                fan_in = 1 if alone else module.weight.shape[1]
                std = fan_in**-0.5 if self.cfg.init_std is None else self.cfg.init_std
                if isinstance(module, nn.Embedding) and self.cfg.embed_std is not None:
                    std = self.cfg.embed_std
                writes_to_residual = name.endswith((".o_proj", ".out_proj"))
                if self.cfg.scaled_residual_init and writes_to_residual:
                    std *= (2 * self.cfg.n_layers) ** -0.5
                module.weight.normal_(std=std, generator=generator)
            if isinstance(module, nn.Linear) and module.bias is not None:
                module.bias.zero_()

    def forward(
        self, tokens: Int[Tensor, "batch pos"], *, document_starts: Any = None
    ) -> Float[Tensor, "batch pos d_vocab"]:
        """Return the logits at every position. `document_starts` marks the first tokens of packed documents.

        Raises `ConfigError` for ids outside the vocabulary, sequences longer than `n_ctx`, and as `documents_of` does.
        """
        return self.unembed(self.final_residual(self.require_rows(tokens), document_starts=document_starts))

    def require_separable(self) -> None:
        """Raise `ConfigError` if packed documents cannot be kept apart (`ihlab.model.documents`)."""
        require(
            self.cfg.positional != "learned",
            "ModelConfig.positional is 'learned', but positions of packed documents would not start again with each: "
            "it must be 'rope', 'alibi' or 'none'.",
        )
        variant, parts = VARIANTS[self.cfg.attention], [block.attn for block in self.layers]
        alone = all(isinstance(part, Attention) and part.queries_alone and takes_cache(part) for part in parts)
        require(
            alone and not (variant.recurrent or variant.registered),
            f"ModelConfig.attention is {self.cfg.attention!r}, which cannot keep packed documents apart: recurrences, "
            "attention whose queries depend on each other, and attention from outside cannot.",
        )

    def require_rows(self, tokens: Int[Tensor, "batch pos"]) -> Int[Tensor, "batch pos"]:
        """Return the tokens. Raises `ConfigError` for ids outside the vocabulary and sequences longer than `n_ctx`."""
        require(
            tokens.shape[1] <= self.cfg.n_ctx,
            f"The tokens have {tokens.shape[1]} positions, but the model's n_ctx is {self.cfg.n_ctx}.",
        )
        self.require_ids(tokens)
        return tokens

    def require_ids(self, tokens: Int[Tensor, "..."]) -> None:
        """Raise `ConfigError` for ids outside the vocabulary, and for no ids at all.

        Ids are not checked on the meta device, while the model is compiled or exported, or in a transform of
        `torch.func`: they have no values there.
        """
        if torch.compiler.is_compiling() or tokens.is_meta or torch._C._functorch.is_functorch_wrapped_tensor(tokens):
            return
        require(tokens.numel() > 0, f"The tokens are {list(tokens.shape)}: there is none to read.")
        low, high = int(tokens.min()), int(tokens.max())
        require(
            low >= 0 and high < self.embed.num_embeddings,
            f"Token id {low if low < 0 else high} is outside the vocabulary: ids run from 0 to {self.cfg.d_vocab - 1}.",
        )

    def final_residual(
        self,
        tokens: Int[Tensor, "batch pos"],
        caches: Sequence[KVCache] | None = None,
        document_starts: Any = None,
    ) -> Stream:
        """Return the normalised residual stream that the unembedding reads.

        With a cache for each layer, the tokens continue the sequences in the caches and are added to them (`decode`).
        Raises `ConfigError` for a cache while packed documents are read.
        """
        require(
            caches is None or (document_starts is None and packed_now(self) is None),
            "A KV cache continues whole sequences: it cannot be used while packed documents are read.",
        )
        documents = None if caches is not None else documents_of(self, tokens, document_starts)
        x = self.embedded(tokens, documents if caches is None else caches[0])
        for layer, block in enumerate(self.blocks):
            x = block(x, documents if caches is None else caches[layer])
        return self.ln_final(x)

    def embedded(self, tokens: Int[Tensor, "batch pos"], cache: Past | None = None) -> Stream:
        """Return the residual stream before the first layer. With a cache, the tokens continue its sequences."""
        x = self.embed(tokens)
        if self.bigram is not None:
            x = x + self.hook_bigram(self.bigram(tokens, cache))
        x = self.hook_embed(x if self.smear is None else self.smear(x, cache))
        if self.pos_embed is not None:
            own = self.pos_embed.weight[next_positions(cache, tokens.shape[1])]
            # One copy per sequence, because a hook may write into its tensor.
            x = x + self.hook_pos_embed(own.repeat(len(tokens), 1, 1))
        return self.dropout(x)

    def before_last_layer(self, tokens: Int[Tensor, "batch pos"], documents: Documents | None = None) -> Stream:
        """Return the residual stream before the last layer, without checking the tokens."""
        x = self.embedded(tokens, documents)
        for block in self.layers[:-1]:
            x = block(x, documents)
        return x

    @property
    def layers(self) -> list[Block]:
        """Return the blocks, typed."""
        return [block for block in self.blocks if isinstance(block, Block)]

    def decayed_parameters(self) -> set[str]:
        """Return the names of the parameters with weight decay (`own_decayed` of every module)."""
        decayed = {id(p) for module in self.modules() for p in own_decayed(module)}
        return {name for name, p in self.named_parameters() if id(p) in decayed}

    @property
    def n_params(self) -> int:
        """The number of parameters without embeddings (tokens, pairs, positions) and unembedding, as in the paper."""
        embeddings = {id(self.embed.weight), id(self.unembed.weight)}
        embeddings |= {id(part.weight) for part in (self.pos_embed, self.bigram) if part is not None}
        return sum(p.numel() for p in self.parameters() if id(p) not in embeddings)


def own_decayed(module: nn.Module) -> list[nn.Parameter]:
    """Return a module's own parameters, without its submodules', that have weight decay.

    A module lists their names in `decays`. For torch's linear maps, embeddings and convolutions it is the weight. No
    other parameter decays, whatever its shape: a gain per head is not a matrix.
    """
    named: Sequence[str] = getattr(module, "decays", ("weight",) if isinstance(module, WITH_MATRIX) else ())
    found = {name: getattr(module, name, None) for name in named}
    wrong = [name for name, p in found.items() if not isinstance(p, nn.Parameter)]
    require(not wrong, f"{type(module).__name__}.decays names {', '.join(wrong)}, which is not one of its parameters.")
    return [p for p in found.values() if isinstance(p, nn.Parameter)]


def make_dropout(cfg: ModelConfig) -> nn.Module:
    """Return the dropout of a config; it acts in training mode only."""
    return nn.Dropout(cfg.dropout) if cfg.dropout else nn.Identity()
