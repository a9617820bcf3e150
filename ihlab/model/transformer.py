"""The model of this package: the network, greedy decoding, and TransformerLens' interface.

`run_with_cache` and `ActivationCache` work as with TransformerLens' own models.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, cast

import torch
from jaxtyping import Bool, Float, Int, Int64
from torch import Tensor
from transformer_lens import ActivationCache
from transformer_lens.utilities import Slice

from ihlab.model import decode, query_positions
from ihlab.model.documents import documents_of
from ihlab.model.lens.padding import Mask, mask_of, padded_right
from ihlab.model.lens.task_tokenizer import TaskTokenizer
from ihlab.model.lens.token_ids import token_ids, token_rows
from ihlab.model.lens.weights import LensWeights
from ihlab.model.network import Network
from ihlab.model.norm import LayerNorm, RMSNorm
from tasks import Task
from tasks.config import ConfigError, require, shown

OF_QUERIES = ("hook_pattern", "hook_attn_scores", "hook_kernel")
"""Parts of the names of hook points whose second axis is heads, and whose third axis is query positions."""


class MissingWeightError(ConfigError, AttributeError):
    """The model's config does not have this weight. An `AttributeError`, so that `hasattr` is False."""


class Transformer(LensWeights, Network):
    """Tokens to next-token logits. `Transformer(cfg, seed)` is a pure function of its arguments."""

    trained_on: Task | None = None
    """The task it was trained on, if known (`Run.model`): probes use its token ids."""

    special_tokens: Mapping[str, int] = MappingProxyType({})
    """For a converted model, the ids of special tokens by their name in the Hugging Face config (bos_token_id)."""

    def forward(
        self,
        input: Any,
        return_type: Literal["logits", "loss", "both"] | None = "logits",
        loss_per_token: bool = False,
        prepend_bos: bool | None = None,
        start_at_layer: int | None = None,
        stop_at_layer: int | None = None,
        past_kv_cache: None = None,
        attention_mask: Any = None,
        document_starts: Any = None,
    ) -> Any:
        """Return the logits [batch, pos, d_vocab], or other results as a TransformerLens model does.

        - `input`: ids [batch, pos], or one sequence [pos], as a tensor or as lists;
        - `return_type`: "logits"; "loss", the next-token loss (`loss_fn`; a scalar, or with `loss_per_token`
          [batch, pos - 1]); "both"; or None, to run only for the cache;
        - `stop_at_layer`: return the residual stream before this layer instead; -1 is the last layer;
        - `start_at_layer`: `input` is the residual stream before this layer. It has no loss;
        - `attention_mask` [batch, pos]: 1 at tokens, 0 at padding, which must come last in each sequence. The loss
          leaves out padding;
        - `document_starts` [batch, pos]: True at the first token of each packed document (`ihlab.model.documents`).

        Raises `ConfigError` for ids outside the vocabulary, sequences longer than `n_ctx`, and an unknown layer. Raises
        it for `prepend_bos` and `past_kv_cache` too: a task draws its own first token, `generate` keeps its own cache.
        """
        if attention_mask is not None:
            attention_mask = self._right_padded(input, attention_mask)
        plain = start_at_layer is None and stop_at_layer is None and return_type == "logits" and not prepend_bos
        if plain and past_kv_cache is None:
            return super().forward(self.to_tokens(input), document_starts=document_starts)
        require(not prepend_bos, "prepend_bos is True, but ids are taken as they are: put the token in front yourself.")
        require(past_kv_cache is None, "past_kv_cache is not taken: Transformer.generate keeps its own cache.")
        kinds = ("logits", "loss", "both", None)
        require(return_type in kinds, f"return_type is {return_type!r}, but must be 'logits', 'loss', 'both' or None.")
        wants_loss = return_type in ("loss", "both")
        require(
            start_at_layer is None or not wants_loss,
            f"return_type is '{return_type}', but a run that starts at layer {start_at_layer} has no tokens to score.",
        )
        start = 0 if start_at_layer is None else self._layer(start_at_layer, "start_at_layer")
        stop = self.cfg.n_layers if stop_at_layer is None else self._layer(stop_at_layer, "stop_at_layer")
        tokens = None if start_at_layer is not None else self.to_tokens(input)
        x = self._stream(input) if tokens is None else self.require_rows(tokens)
        documents = documents_of(self, x, document_starts)
        x = x if tokens is None else self.embedded(tokens, documents)
        for block in self.layers[start:stop]:
            x = block(x, documents)
        if stop_at_layer is not None:
            return x
        logits = self.unembed(self.ln_final(x))
        if not wants_loss:
            return logits if return_type == "logits" else None
        loss = self.loss_fn(logits, cast(Tensor, tokens), attention_mask, per_token=loss_per_token)
        return loss if return_type == "loss" else (logits, loss)

    def _right_padded(self, input: Any, attention_mask: Any) -> Mask | None:
        real = mask_of(self.to_tokens(input), attention_mask)
        require(
            real is None or padded_right(real),
            "attention_mask has padding before a token, but positions count from the start of a sequence: pad "
            "on the right.",
        )
        return real

    def _stream(self, x: Tensor) -> Tensor:
        shape, width, most = list(x.shape), self.cfg.d_model, self.cfg.n_ctx
        require(
            len(shape) == 3 and shape[-1] == width and shape[1] <= most,
            f"The residual stream is {shape}, but must be [batch, pos, {width}] with at most n_ctx = {most} positions.",
        )
        return x

    def _layer(self, layer: int, name: str) -> int:
        n_layers = self.cfg.n_layers
        require(-n_layers <= layer <= n_layers, f"{name} is {layer}, but the model has layers 0 to {n_layers - 1}.")
        return layer + n_layers if layer < 0 else layer

    def residual_at(
        self,
        tokens: Int[Tensor, "batch pos"],
        index: Int[Tensor, " scored"],
        queries: Int[Tensor, "batch query"] | None = None,
        document_starts: Bool[Tensor, "batch pos"] | None = None,
    ) -> Float[Tensor, "scored d_model"]:
        """Return `final_residual` at positions of the flattened [batch * pos] (`ihlab.model.query_positions`)."""
        return query_positions.residual_at(self, tokens, index, queries, document_starts)

    def generate(
        self,
        tokens: Any,
        max_new_tokens: int,
        stop: int | None = None,
        pad: int | None = None,
        temperature: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> Int64[Tensor, "batch longer"]:
        """Continue the tokens by up to `max_new_tokens`: greedily, or sampled at a temperature above 0.

        See `ihlab.model.decode.generate`. TransformerLens' own `generate` samples at temperature 1 by default.
        """
        return decode.generate(self, self.to_tokens(tokens), max_new_tokens, stop, pad, temperature, generator)

    # The rest of TransformerLens' interface:

    def to(self, *args: Any, print_details: bool = False, **kwargs: Any) -> Any:
        """Move the model as PyTorch does. `print_details` is for callers of TransformerLens: nothing is printed."""
        return super().to(*args, **kwargs)

    def run_with_cache(
        self, *args: Any, remove_batch_dim: bool = False, pos_slice: Any = None, **kwargs: Any
    ) -> tuple[Tensor, ActivationCache]:
        """Run, and return the output with a TransformerLens `ActivationCache` of the activations.

        The batch axis and unwanted positions are removed here. TransformerLens finds axes by the hook names that it
        knows: it would cut hook_k_raw along its heads, and alpha and beta along a wrong axis.
        """
        given = args[0] if args else kwargs["input"]
        rows = len(given if kwargs.get("start_at_layer") is not None else self.to_tokens(given))
        require(
            not remove_batch_dim or rows == 1,
            f"The batch dimension of {rows} sequences cannot be removed: give one sequence.",
        )
        output, cache = super().run_with_cache(*args, **kwargs)
        positions = Slice.unwrap(pos_slice)
        for name, x in cache.items():
            if name.removesuffix("_grad").endswith(
                ("hook_alpha", "hook_beta", "hook_gamma", "hook_lambda", "hook_taps")
            ):
                continue
            kept = positions.apply(x, dim=2 if any(kind in name for kind in OF_QUERIES) else 1)
            cache[name] = kept[0] if remove_batch_dim else kept
        return output, ActivationCache(cache, self, has_batch_dim=not remove_batch_dim)

    @property
    def W_E(self) -> Float[Tensor, "d_vocab d_model"]:
        """The embedding matrix."""
        return self.embed.W_E

    @property
    def W_pos(self) -> Float[Tensor, "n_ctx d_model"]:
        """The learned positions. Raises `MissingWeightError` for a model without them."""
        if self.pos_embed is None:
            raise AttributeError  # Python then calls __getattr__, which raises the readable error
        return self.pos_embed.W_pos

    def __getattr__(self, name: str) -> Any:
        """Return a module or parameter. Raises `MissingWeightError` for `W_pos` without learned positions."""
        if name == "W_pos":
            raise MissingWeightError(f"The model's positional is {self.cfg.positional!r}: only 'learned' has W_pos.")
        return super().__getattr__(name)

    @property
    def W_U(self) -> Float[Tensor, "d_model d_vocab"]:
        """The unembedding. With unembedding="none" it is the first columns of the identity."""
        return self.unembed.W_U

    @property
    def b_U(self) -> Float[Tensor, " d_vocab"]:
        """Zeros: the unembedding has no bias. The bias of a final LayerNorm is part of `ln_final`."""
        return self.unembed.b_U

    def tokens_to_residual_directions(self, tokens: Int[Tensor, "..."] | int) -> Float[Tensor, "... d_model"]:
        """Return the direction that raises each token's logit, in the normalised residual stream before `ln_final.w`.

        `ln_final.w` is part of the direction because the cache divides only by the norm's scale. A LayerNorm subtracts
        the mean of the residual stream, so the mean is subtracted from the direction too. Its bias adds the constant
        `ln_final.b @ W_U` to the logits, which a direction cannot show.
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
        """Sum the biases added to the residual stream before a layer: b_O and b_out of every layer below it.

        With `mlp_input`, add the layer's own b_O too. Without `include_mlp_biases`, leave out every b_out.
        """
        total = torch.zeros_like(self.embed.weight[0])
        for below, block in enumerate(self.layers[: layer + mlp_input]):
            total = total + block.attn.b_O
            if include_mlp_biases and block.mlp is not None and below < layer:
                total = total + block.mlp.b_out
        return total

    @property
    def tokenizer(self) -> TaskTokenizer | None:
        """The words of the task that the model was trained on; None if the task is unknown or has no words."""
        return TaskTokenizer(self.trained_on) if hasattr(self.trained_on, "words") else None

    def to_tokens(self, tokens: Any, *_: Any, **__: Any) -> Int[Tensor, "batch pos"]:
        """Return ids, given as a tensor or as lists, as sequences [batch, pos].

        A text, or a list of texts of the same number of tokens, is encoded with the words of the model's task.
        Raises `ConfigError` for text if the task has no words, and as `ihlab.model.lens.token_ids.token_rows` does.
        """
        if isinstance(tokens, str):
            tokens = [tokens]
        if isinstance(tokens, list) and tokens and isinstance(tokens[0], str):
            tokens = [TaskTokenizer(self.trained_on).encode(text) for text in tokens]
        return token_rows(tokens, self.embed.weight.device)

    def to_str_tokens(self, tokens: Any, *_: Any, **__: Any) -> list[str] | list[list[str]]:
        """Return the text of each token: of ids [pos], of a text, or of each item of a list of these.

        A task without words has ids only: the token 7 is the text "7".
        """
        if isinstance(tokens, list) and tokens and not isinstance(tokens[0], int):
            return [cast(list[str], self.to_str_tokens(item)) for item in tokens]
        ids = self.to_tokens(tokens)[0] if isinstance(tokens, str) else tokens
        return TaskTokenizer(self.trained_on).convert_ids_to_tokens(ids)

    def to_string(self, tokens: Any) -> str | list[str]:
        """Return the text of ids [pos], or of each sequence of [batch, pos]."""
        ids, tokenizer = token_ids(tokens), TaskTokenizer(self.trained_on)
        return tokenizer.batch_decode(list(ids)) if ids.ndim == 2 else tokenizer.decode(ids)

    def to_single_token(self, text: str) -> int:
        """Return the id of a text. Raises `ConfigError` if it is not one token."""
        ids = TaskTokenizer(self.trained_on).encode(text)
        require(len(ids) == 1, f"The text {shown(text)} is {len(ids)} tokens, but must be one.")
        return ids[0]

    def to_single_str_token(self, token: int) -> str:
        """Return the text of an id."""
        return TaskTokenizer(self.trained_on).convert_ids_to_tokens([token])[0]

    def set_use_attn_result(self, use_attn_result: bool) -> None:
        """Do nothing: `blocks.L.attn.hook_result` fires whenever it is hooked or cached, without a switch."""

    def set_use_split_qkv_input(self, use_split_qkv_input: bool) -> None:
        """Raise `ConfigError` if it is to be switched on: queries, keys and values read one stream here."""
        require(
            not use_split_qkv_input,
            "use_split_qkv_input is True, but a model of ihlab has no separate inputs of queries, keys and values: "
            "patch a path with ihlab.interp.patching.path_patch.",
        )
