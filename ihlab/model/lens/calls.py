"""A model's forward pass with the arguments of TransformerLens, and TransformerLens' switches."""

from typing import Any, Literal, cast

from torch import Tensor

from ihlab.model.documents import documents_of
from ihlab.model.lens.padding import Mask, mask_of, padded_right
from ihlab.model.lens.text import LensText
from ihlab.model.lens.weights import LensWeights
from tasks.config import require


class LensCalls(LensText, LensWeights):
    """A mixin for a `Network`: the forward pass and switches of a TransformerLens model."""

    def forward(
        self,
        input: Any,
        return_type: Literal["logits", "loss", "both"] | None = "logits",
        loss_per_token: bool = False,
        start_at_layer: int | None = None,
        stop_at_layer: int | None = None,
        attention_mask: Any = None,
        document_starts: Any = None,
    ) -> Any:
        """Return the logits [batch, pos, d_vocab], or other results as a TransformerLens model
        does.

        - `input`: ids [batch, pos], or one sequence [pos], as a tensor or as lists;
        - `return_type`: "logits"; "loss", the next-token loss (`loss_fn`; a scalar, or with
          `loss_per_token` [batch, pos - 1]); "both"; or None, to run only for the cache;
        - `stop_at_layer`: return the residual stream before this layer instead; -1 is the last
          layer;
        - `start_at_layer`: `input` is the residual stream before this layer. Such a run has no
          loss;
        - `attention_mask` [batch, pos]: 1 at tokens, 0 at padding, which must come last in each
          sequence. The loss leaves out padding;
        - `document_starts` [batch, pos]: True at the first token of each packed document
          (`ihlab.model.documents`).

        Raises `ConfigError` for ids outside the vocabulary, sequences longer than `n_ctx`, and an
        unknown layer. A task draws its own first token, and `generate` keeps its own cache.
        """
        if attention_mask is not None:
            attention_mask = self._right_padded(input, attention_mask)
        kinds = ("logits", "loss", "both", None)
        require(
            return_type in kinds,
            f"return_type is {return_type!r}, but must be 'logits', 'loss', 'both' or None.",
        )
        wants_loss = return_type in ("loss", "both")
        require(
            start_at_layer is None or not wants_loss,
            f"return_type is '{return_type}', but a run that starts at layer {start_at_layer} has no tokens to score.",
        )
        require(
            document_starts is None or not wants_loss,
            f"return_type is '{return_type}', but the loss would cross the borders of documents: take 'logits'.",
        )
        tokens = None
        if start_at_layer is None:
            start = 0
            tokens = self.require_rows(self.to_tokens(input))
            documents = documents_of(self, tokens, document_starts)
            x = self.embedded(tokens, documents)
        else:
            start = self._layer(start_at_layer, "start_at_layer")
            x = input
            documents = documents_of(self, x, document_starts)
        stop = self.cfg.n_layers
        if stop_at_layer is not None:
            stop = self._layer(stop_at_layer, "stop_at_layer")
        for block in self.layers[start:stop]:
            x = block(x, documents)
        if stop_at_layer is not None:
            return x
        logits = self.unembed(self.ln_final(x))
        results: dict[str | None, Any] = {"logits": logits, None: None}
        if wants_loss:
            loss = self.loss_fn(
                logits, cast(Tensor, tokens), attention_mask, per_token=loss_per_token
            )
            results |= {"loss": loss, "both": (logits, loss)}
        return results[return_type]

    def _right_padded(self, input: Any, attention_mask: Any) -> Mask | None:
        real = mask_of(self.to_tokens(input), attention_mask)
        require(
            real is None or padded_right(real),
            "attention_mask has padding before a token, but positions count from the start of a sequence: pad "
            "on the right.",
        )
        return real

    def _layer(self, layer: int, name: str) -> int:
        n_layers = self.cfg.n_layers
        require(
            -n_layers <= layer <= n_layers,
            f"{name} is {layer}, but the model has layers 0 to {n_layers - 1}.",
        )
        if layer < 0:
            layer += n_layers
        return layer

    def set_use_attn_result(self, use_attn_result: bool) -> None:
        """Do nothing: `blocks.L.attn.hook_result` fires whenever it is hooked or cached, without a
        switch.
        """

    def set_use_split_qkv_input(self, use_split_qkv_input: bool) -> None:
        """Raise `ConfigError` if the switch is True: queries, keys and values have one common input
        here.
        """
        require(
            not use_split_qkv_input,
            "use_split_qkv_input is True, but a model of ihlab has no separate inputs of queries, keys and values: "
            "patch a path with ihlab.interp.patching.path_patch.",
        )
