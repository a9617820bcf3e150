"""Models of other libraries, read from the outside: what Hugging Face's models and bridges over them share.

Nothing is asked of such a model but its patterns, the input of each attention's output projection (every head's z side
by side), and its norms, embeddings and projections as functions. Linear maps are read off by passing the rows of the
identity through them, so that no architecture's names for its weights are needed here. Keys and values that mix tokens
are unknown to these models: a raw pattern is the effective one.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ihlab.measure.probe import repeated_rows
from ihlab.model.modes import evaluating
from tasks.config import require

LONGEST_PROBE = 128
"""Positions of a probe unless a length is given. Contexts of other people's models are long, and n queries have n keys
in every head: at 128, the patterns of GPT-2 on 16 rows take 150 MB."""

NONLINEAR = 0.02
"""Relative error above which values count as not linear in attention's input; half precision rounds by less."""

LATER_MOST = 1e-3
"""The most attention to later tokens that a causal mask, of a large negative number in half precision, may let by."""

ReplaceZ = Callable[[Tensor], Tensor]
"""What a head's z [batch, pos, head, d_head] is replaced by."""


@dataclass(frozen=True)
class Reading:
    """What is read of a model on tokens: patterns by kind, "raw" and "effective", and every layer's z."""

    patterns: dict[str, Float[Tensor, "layer batch head query key"]]
    z: list[Float[Tensor, "batch pos head d_head"]]


@dataclass(frozen=True)
class Layer:
    """The parts of a layer by which its heads are read: attention, its output projection, and the norm before it."""

    attention: nn.Module
    output: nn.Module
    norm: nn.Module | None


@dataclass(frozen=True)
class Ends:
    """The parts before the first layer and after the last."""

    embed: nn.Module
    norm: nn.Module | None
    unembed: nn.Module


class ForeignModel(ABC):
    """A model of another library, whose heads can be scored and ablated.

    - `n_layers`, `n_heads`, `d_vocab`; `n_ctx`: the most positions of a row; None: any number;
    - `reach`: how far back the tokens are that every layer can see (a sliding window's width); None: all;
    - `ids`: the vocabulary without special tokens;
    - `module`: what is called with tokens.
    """

    module: nn.Module
    n_layers: int
    n_heads: int
    d_vocab: int
    n_ctx: int | None
    reach: int | None
    ids: Sequence[int]

    @property
    def name(self) -> str:
        """The class of the model, as sentences name it."""
        return type(self.module).__name__

    @property
    def device(self) -> torch.device:
        """The device that tokens go to. Layers may be elsewhere."""
        weight: Tensor = self.ends.embed.weight  # type: ignore[assignment]
        return weight.device

    def rows(self, tokens: Int[Tensor, "batch pos"]) -> Int[Tensor, "batch pos"]:
        """Return the tokens on the model's device.

        Raises `ConfigError` for ids outside the vocabulary, rows that are too long, and a model without weights.
        """
        longest = self.n_ctx
        require(
            longest is None or tokens.shape[1] <= longest,
            f"The tokens have {tokens.shape[1]} positions, but the model's n_ctx is {longest}.",
        )
        low, high = int(tokens.min()), int(tokens.max())
        require(
            low >= 0 and high < self.d_vocab,
            f"The tokens have ids from {low} to {high}, but the vocabulary is 0 to {self.d_vocab - 1}.",
        )
        require(self.device.type != "meta", f"The {self.name} is on the meta device: it has no weights to measure.")
        return tokens.to(self.device)

    def probe_rows(
        self, repeats: int, rows: int, length: int | None, ids: Sequence[int] | None, seed: int
    ) -> Int[Tensor, "rows pos"]:
        """Repeated random tokens for the model; see `head_scores`.

        Raises `ConfigError` for a length over n_ctx, one that a sliding window does not see whole, and ids outside the
        vocabulary.
        """
        limits = [limit for limit in (self.n_ctx, self.reach) if limit is not None]
        length = min([LONGEST_PROBE, *limits]) if length is None else length
        require(
            self.n_ctx is None or length <= self.n_ctx,
            f"length is {length}, but the model's n_ctx is {self.n_ctx}: too long.",
        )
        require(
            self.reach is None or length <= self.reach,
            f"length is {length}, but some layers of the {self.name} see the last {self.reach} tokens only, and so no "
            f"earlier repeat: give a length of at most {self.reach}.",
        )
        return self.rows(repeated_rows(self.ids if ids is None else ids, rows, length // repeats, repeats, seed))

    @property
    def writes_known(self) -> bool:
        """True if the output projections were found, so that it is known what each head writes."""
        return len(self._layers) == self.n_layers

    @torch.no_grad()
    def read(self, tokens: Int[Tensor, "batch pos"], kinds: Sequence[str] = ("raw", "effective")) -> Reading:
        """Run the model on tokens, in evaluation mode, and return its patterns (float32, on the CPU) and every z.

        Raises `ConfigError` for a model without patterns, or whose patterns are not causal or not finite.
        """
        rows = self.rows(tokens)
        with evaluating(self.module), self._noting_z() as z:
            patterns = self._patterns(rows)
        require(bool(patterns.isfinite().all()), f"The patterns of the {self.name} are not finite: load it in float32.")
        require(
            patterns.triu(1).sum(dim=-1).max().item() < LATER_MOST,
            f"The {self.name} attends to later tokens, but heads are scored in causal language models only.",
        )
        return Reading(dict.fromkeys(kinds, patterns), [z[layer] for layer in sorted(z)])

    @torch.no_grad()
    def z(self, tokens: Int[Tensor, "batch pos"]) -> list[Float[Tensor, "batch pos head d_head"]]:
        """Return every layer's z, of the model in evaluation mode. Raises `ConfigError` as `replacing` does."""
        self._require_outputs()
        with evaluating(self.module), self._noting_z() as z:
            self._logits(self.rows(tokens))
        return [z[layer] for layer in sorted(z)]

    @torch.no_grad()
    def logits(self, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch pos d_vocab"]:
        """Return the logits in float32, of the model in evaluation mode."""
        with evaluating(self.module):
            return self._logits(self.rows(tokens)).float()

    @contextmanager
    def replacing(self, replace: Mapping[int, ReplaceZ]) -> Iterator[None]:
        """Replace the z of some layers, each by a function of it, by a hook on the output projection's input."""
        self._require_outputs()
        with self._replacing(replace):
            yield

    def _require_outputs(self) -> None:
        require(
            self.writes_known,
            f"The output projections of the {self.name}'s attention were not found: its patterns can be read "
            "(`ihlab.interp.sources.attention_patterns`), but its heads cannot be ablated.",
        )

    @contextmanager
    def _noting_z(self) -> Iterator[dict[int, Tensor]]:
        z = dict[int, Tensor]()

        def note(layer: int) -> ReplaceZ:
            return lambda x: z.setdefault(layer, x)

        with self._replacing({layer: note(layer) for layer in range(len(self._layers))}):
            yield z

    @contextmanager
    def _replacing(self, replace: Mapping[int, ReplaceZ]) -> Iterator[None]:
        with ExitStack() as hooks:
            for layer, function in replace.items():

                def hook(module: nn.Module, args: tuple[Any, ...], function: ReplaceZ = function) -> tuple[Any, ...]:
                    x = args[0]
                    z = function(x.unflatten(-1, (self.n_heads, -1))).to(x)
                    return (z.flatten(-2), *args[1:])

                hooks.enter_context(hooked(self._layers[layer].output.register_forward_pre_hook(hook)))
            yield

    # Copying

    @cached_property
    @torch.no_grad()
    def unembedding(self) -> Float[Tensor, "d_model d_vocab"]:
        """The final norm and the unembedding as one matrix, the norm's scale and biases left out, in float32."""
        ends = self.ends
        weight = _linear(ends.unembed, self._width(ends.unembed)).to(self.device)
        return _linear(ends.norm, len(weight)).to(self.device) @ weight

    @torch.no_grad()
    def direct_logits(
        self, layer: int, head: int, z: Float[Tensor, "batch pos head d_head"]
    ) -> Float[Tensor, "batch pos d_vocab"]:
        """Return a head's own output z W_O, unembedded directly, up to one positive factor.

        A norm after attention, as Gemma 2 has, is left out.
        """
        return z[:, :, head].float().to(self.device) @ self._W_O[layer][head] @ self.unembedding

    @torch.no_grad()
    def eigenvalue_copying(self) -> Float[Tensor, "layer head"]:
        """sum Re(lambda) / sum |lambda| over the eigenvalues of W_E W_OV W_U; see `ihlab.interp.copying`.

        NaN where what attention reads of a token is not linear in it (a latent vector that is normalised, a gate), and
        for embeddings of another width than the residual stream.
        """
        shares = torch.full((self.n_layers, self.n_heads), torch.nan)
        embedding: Tensor = self.ends.embed.weight.detach().float().to(self.device)  # type: ignore[operator]
        if embedding.shape[1] != len(self.unembedding):
            return shares
        between = self.unembedding @ embedding  # from the last residual stream to the first
        for layer, values in enumerate(self._values()):
            if values is None:
                continue
            for head in range(self.n_heads):
                small = self._W_O[layer][head] @ between @ values[:, head]  # has the eigenvalues of the product
                eigenvalues = torch.linalg.eigvals(small.double())
                size = eigenvalues.abs().sum()
                shares[layer, head] = eigenvalues.real.sum() / size if size > 0 else 0.0
        return shares

    @cached_property
    @torch.no_grad()
    def _W_O(self) -> list[Float[Tensor, "head d_head d_model"]]:
        outputs = [layer.output for layer in self._layers]
        weights = [_linear(output, self._width(output)) for output in outputs]
        return [weight.unflatten(0, (self.n_heads, -1)).to(self.device) for weight in weights]

    def _values(self) -> list[Float[Tensor, "d_model head d_head"] | None]:
        """Return the layers' norms and value projections as one matrix each, in the order of query heads.

        A row of one token attends to that token alone, so that its z is its value. Every attention is given the rows of
        the identity in one forward pass; then two random rows, which tell whether it is linear.
        """
        width = len(self.unembedding)
        random = torch.randn(2, width, generator=torch.Generator().manual_seed(0))
        probe = torch.cat([torch.zeros(1, width), torch.eye(width), random, random.sum(dim=0, keepdim=True)])[:, None]

        def given(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
            if args:
                return (probe.to(args[0]), *args[1:]), kwargs
            return args, {**kwargs, "hidden_states": probe.to(kwargs["hidden_states"])}

        with ExitStack() as stack:
            stack.enter_context(evaluating(self.module))
            z = stack.enter_context(self._noting_z())
            for parts in self._layers:
                stack.enter_context(hooked(parts.attention.register_forward_pre_hook(given, with_kwargs=True)))
            first = int(self.ids[0])
            self._logits(torch.full((len(probe), 1), first, device=self.device))
        matrices: list[Tensor | None] = []
        for layer, parts in enumerate(self._layers):
            values = z[layer][:, 0].float().to(self.device)
            values = values[1:] - values[:1]
            one, other, both = values[-3:]
            error = (one + other - both).norm() / both.norm().clamp_min(1e-12)
            norm = _linear(parts.norm, width).to(self.device)
            linear = torch.einsum("ij,jhd->ihd", norm, values[:-3])
            matrices.append(linear if error < NONLINEAR else None)
        return matrices

    def _width(self, module: nn.Module) -> int:
        """Return how wide the input of a linear map is, as it was when the model ran."""
        return self._widths[module]

    @cached_property
    @torch.no_grad()
    def _widths(self) -> dict[nn.Module, int]:
        widths = dict[nn.Module, int]()
        parts = [*(layer.output for layer in self._layers), self.ends.unembed]
        with ExitStack() as stack:
            stack.enter_context(evaluating(self.module))
            for part in parts:

                def note(module: nn.Module, args: tuple[Any, ...]) -> None:
                    widths[module] = args[0].shape[-1]

                stack.enter_context(hooked(part.register_forward_pre_hook(note)))
            self._logits(torch.tensor([[int(self.ids[0])]], device=self.device))
        return widths

    # What libraries differ in

    @property
    @abstractmethod
    def ends(self) -> Ends:
        """Embedding, final norm and unembedding."""

    @property
    @abstractmethod
    def _layers(self) -> list[Layer]:
        """The layers' parts; fewer than `n_layers` where they were not found."""

    @abstractmethod
    def _patterns(self, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "layer batch head query key"]:
        """Return all layers' patterns, float32 on the CPU."""

    @abstractmethod
    def _logits(self, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch pos d_vocab"]:
        """Return the logits."""


def _linear(module: nn.Module | None, width: int) -> Float[Tensor, "d_in d_out"]:
    """Return the matrix of a linear map, or of a norm up to one positive factor, without its bias; None: the identity.

    A norm divides by a scale that depends on its input, but every row of the identity has the same one.
    """
    rows = torch.cat([torch.zeros(1, width), torch.eye(width)])[None]
    if module is None:
        return rows[0, 1:]
    like = next((weight for weight in module.parameters() if weight.is_floating_point()), None)
    out = module(rows if like is None else rows.to(like))[0].float()
    return out[1:] - out[:1]


@contextmanager
def hooked(handle: Any) -> Iterator[None]:
    """Keep a registered hook for a while: `handle` is what registering it returned."""
    try:
        yield
    finally:
        handle.remove()
