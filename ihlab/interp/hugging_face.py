"""`HeadModel` for Hugging Face causal LMs, and for TransformerLens bridges over them.

PyTorch hooks read the input of each attention's output projection, which is the z of all heads,
concatenated. The matrix of a linear map is read by passing the rows of the identity through it, so
weight names are not needed. The effective patterns of a `KVShiftForCausalLM` include its value
shift (beta). How other models mix values of different tokens is unknown, so their effective
patterns are the raw ones.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from inspect import signature
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ihlab.interp.circuits import eigenvalue_fraction
from ihlab.interp.head_model import HeadModel, Patterns, ReplaceZ
from ihlab.interp.patterns import effective_pattern, gauge_fixed
from ihlab.interp.patterns_alone import LATER_MOST
from ihlab.measure.probe import LONGEST_PROBE, ProbeTokens, beginning
from ihlab.model.conversion.checks import require_finite
from ihlab.model.conversion.configs import reach, special_ids, special_tokens
from ihlab.model.conversion.llama import FAMILY
from ihlab.runtime.modes import evaluating
from ihlab.storage.model_folder import tokenizer_of
from tasks.config import ConfigError, require

NONLINEAR = 0.02
"""Relative error above which values count as not linear in attention's input; half precision rounds
by less.
"""

OUTPUT_PROJECTIONS = ("o_proj", "out_proj", "c_proj", "dense", "wo", "proj")
"""Names of attention's output projection in Hugging Face models."""


@dataclass(frozen=True)
class Layer:
    """The modules of a layer needed to read its heads: attention, its output projection, and the
    norm before it.
    """

    attention: nn.Module
    output: nn.Module
    norm: nn.Module | None


class HuggingFaceModel(HeadModel):
    """A Hugging Face causal LM. Its patterns are those of eager attention. The model is left
    unchanged.
    """

    module: Any

    def __init__(self, model: Any, prepend_bos: bool | None = None) -> None:
        self.module = model
        self._require_decoder(model.config)
        config = model.config.get_text_config(decoder=True)
        for field in ("num_hidden_layers", "num_attention_heads"):
            known = isinstance(getattr(config, field, None), int)
            require(known, f"The {self.name} has no attention heads: no {field}.")
        longest = getattr(config, "max_position_embeddings", None) or getattr(
            config, "max_seq_len", None
        )
        sizes = config.num_hidden_layers, config.num_attention_heads, config.vocab_size, longest
        configs = [config, getattr(model, "generation_config", None)]
        if prepend_bos is None:
            prepend_bos = tokenizer_prepends(
                model.name_or_path, special_tokens(config).get("bos_token_id")
            )
        self._describe(model.get_input_embeddings(), sizes, prepend_bos, configs)

    @property
    def device(self) -> torch.device:
        """See `HeadModel.device`. For an offloaded embedding, the device that accelerate will load
        it on.
        """
        runs_on = getattr(getattr(self.embed, "_hf_hook", None), "execution_device", None)
        return super().device if runs_on is None else torch.device(runs_on)

    def _require_decoder(self, config: Any) -> None:
        require(
            not getattr(config, "is_encoder_decoder", False),
            f"The {self.name} has an encoder and a decoder, but induction heads are located in causal language models.",
        )

    def _describe(
        self,
        embed: nn.Module,
        sizes: tuple[int, int, int, Any],
        prepend_bos: bool,
        configs: Sequence[Any],
    ) -> None:
        """Store sizes; read the special ids, the id that begins a sequence, and the sliding window
        from the configs.
        """
        require_finite(self.module)
        self.embed = embed
        self.n_layers, self.n_heads, self.d_vocab, longest = sizes
        self.n_ctx = longest if isinstance(longest, int) and longest > 0 else None
        self.reach = reach(configs[0]) if configs else None
        length = min(filter(None, (LONGEST_PROBE, self.n_ctx, self.reach)))
        content = sorted(set(range(self.d_vocab)) - set(special_ids(*configs)))
        ordinary = ProbeTokens(content, (), length)
        self.tokens = beginning(ordinary, prepend_bos, special_tokens(*configs).get("bos_token_id"))

    @property
    def writes_known(self) -> bool:
        """True if the output projections were found."""
        return len(self.layers) == self.n_layers

    def _read(self, tokens: Int[Tensor, "batch pos"], kinds: Sequence[str]) -> Patterns:
        """Return patterns in float32, on the CPU."""
        patterns = self._patterns(tokens)
        require(
            bool(patterns.isfinite().all()),
            f"The patterns of the {self.name} are not finite: load it in float32.",
        )
        require(
            patterns.triu(1).sum(dim=-1).max().item() < LATER_MOST,
            f"The {self.name} attends to later tokens, but heads are scored in causal language models only.",
        )
        found = dict.fromkeys(kinds, patterns)
        if "effective" in kinds:
            found["effective"] = self._effective(patterns)
        return found

    def _effective(
        self, patterns: Float[Tensor, "layer batch head query key"]
    ) -> Float[Tensor, "layer batch head query key"]:
        shifts = self._value_shifts
        if not shifts:
            return patterns
        require(
            self.exact_kind == "effective",
            f"The {self.name} has shift_first='own' and shifted values, so that no effective pattern of its heads is "
            "exact: use raw patterns (`ihlab.interp.sources.attention_patterns`).",
        )
        layers = zip(patterns, shifts, strict=True)
        return torch.stack(
            [effective_pattern(pattern, gauge_fixed(_beta(shift))) for pattern, shift in layers]
        )

    @property
    def exact_kind(self) -> str:
        """See `HeadModel.exact_kind`."""
        first = {shift.first for shift in self._value_shifts}
        return "raw" if "own" in first else "effective"

    @property
    def _value_shifts(self) -> list[Any]:
        """The shift of each layer of a `KVShiftForCausalLM` whose values are shifted; empty for
        another model.
        """
        shifts: list[Any] = []
        for name, module in self.module.named_modules():
            if name.endswith("shift_norm") and "value" in getattr(module, "sides", ()):
                shifts.append(module)
        return shifts

    @contextmanager
    def replacing(self, replace: Mapping[int, ReplaceZ]) -> Iterator[None]:
        """Replace z by a hook on the output projection's input. Raises `ConfigError` without output
        projections.
        """
        require(
            self.writes_known,
            f"The output projections of the {self.name}'s attention were not found: its patterns can be read "
            "(`ihlab.interp.sources.attention_patterns`), but its heads cannot be ablated.",
        )
        with ExitStack() as hooks:
            for layer, function in replace.items():

                def hook(
                    module: nn.Module, args: tuple[Any, ...], function: ReplaceZ = function
                ) -> tuple[Any, ...]:
                    x = args[0]
                    z = function(x.unflatten(-1, (self.n_heads, -1))).to(x)
                    return (z.flatten(-2), *args[1:])

                hooks.enter_context(self.layers[layer].output.register_forward_pre_hook(hook))
            yield

    def changing(self, kind: str, layer: int, function: ReplaceZ) -> Any:
        """Pass an activation of a Llama block through a function while the context is open.

        `kind` is "q", "k" or "v" [batch, pos, head, d_head] (before QK norm, shift and rotary
        embedding; keys and values once for all heads that share them), "resid_pre" [batch, pos,
        d_model] as attention's norm reads it (nothing else reads the change), or "result" [batch,
        pos, head, d_model], what each head writes (only to be read). Raises `ConfigError` for
        models of other families.
        """
        require(
            type(self.module).__name__ in FAMILY,
            f"The {self.name} is none of {', '.join(FAMILY)}, so of its heads only z can be patched: give "
            "nodes='head', or convert it (ihlab.model.conversion.from_llama, from_gpt2).",
        )
        parts = self.layers[layer]
        if kind == "resid_pre":
            assert parts.norm is not None
            return parts.norm.register_forward_pre_hook(
                lambda module, args: (function(args[0]), *args[1:])
            )
        if kind == "result":
            weight = self.output_weight(layer)

            def read(z: Tensor) -> Tensor:
                function(torch.einsum("bphd,hdm->bphm", z, weight.to(z)))
                return z

            return self.replacing({layer: read})
        d_head = self.output_weight(layer).shape[1]
        projection = parts.attention.get_submodule(f"{kind}_proj")
        return projection.register_forward_hook(
            lambda module, args, x: function(x.unflatten(-1, (-1, d_head))).to(x).flatten(-2)
        )

    def require_ids_read_once(self) -> None:
        """See `HeadModel.require_ids_read_once`. Gemma 4, for example, embeds the ids again in each
        layer.
        """
        require(
            self._reads_ids_once,
            f"The {self.name} reads token ids also elsewhere than in its token embedding (as Gemma 4 does in every "
            "layer), so its inputs do not all move with the embedding: use a method without integrated gradients.",
        )

    @cached_property
    @torch.no_grad()
    def _reads_ids_once(self) -> bool:
        """True if two sequences have equal logits once they are given the same embeddings."""
        first = list(map(int, self.tokens.content[:4]))
        ids = torch.tensor([first, first[::-1]], device=self.device)
        same = self.embed.register_forward_hook(
            lambda module, args, x: x[:1].expand_as(x).contiguous()
        )
        try:
            with evaluating(self.module):
                one, other = self._logits(ids)
        finally:
            same.remove()
        rounding = torch.finfo(next(self.module.parameters()).dtype).eps
        return bool((one - other).abs().max() <= 16 * rounding * one.abs().max())

    # Copying

    @cached_property
    @torch.no_grad()
    def unembedding(self) -> Float[Tensor, "d_model d_vocab"]:
        """The final norm and the unembedding as one matrix, without the norm's scale or any biases,
        in float32.
        """
        weight = _matrix(self.unembed, self._widths[self.unembed]).to(self.device)
        return _matrix(self.final_norm, len(weight)).to(self.device) @ weight

    @property
    def unembeds(self) -> bool:
        """True if no projection lies between the residual stream and the unembedding (OPT-350m has
        one).
        """
        return self.writes_known and self.output_weight(0).shape[-1] == len(self.unembedding)

    def output_weight(self, layer: int) -> Float[Tensor, "head d_head d_model"]:
        """Return a layer's W_O in float32. A norm after attention, as in Gemma 2, is left out."""
        return self._output_weights[layer]

    @cached_property
    @torch.no_grad()
    def _output_weights(self) -> list[Float[Tensor, "head d_head d_model"]]:
        weights = []
        for layer in self.layers:
            weight = _matrix(layer.output, self._widths[layer.output])
            weights.append(weight.unflatten(0, (self.n_heads, -1)).to(self.device))
        return weights

    @torch.no_grad()
    def eigenvalue_copying(self) -> Float[Tensor, "layer head"]:
        """Return the copying score of the weights; see `ihlab.interp.circuits.eigenvalue_copying`.

        NaN if values are not linear in attention's input (as with a normalised latent vector or a
        gate), if the embedding or unembedding has another width than the residual stream, and for a
        norm that divides zeros by zero.
        """
        scores = torch.full((self.n_layers, self.n_heads), torch.nan)
        with loaded(self.embed):
            embedding: Tensor = self.embed.weight.detach().float().to(self.device)  # type: ignore[operator]
        if not self.unembeds or embedding.shape[1] != len(self.unembedding):
            return scores
        between = self.unembedding @ embedding  # from the last residual stream to the first
        for layer, values in enumerate(self._values()):
            if values is None:
                continue
            for head in range(self.n_heads):
                small = (
                    self.output_weight(layer)[head] @ between @ values[:, head]
                )  # has the product's eigenvalues
                if small.isfinite().all():  # LAPACK may crash on NaN
                    scores[layer, head] = eigenvalue_fraction(torch.linalg.eigvals(small.double()))
        return scores

    def _values(self) -> Iterator[Float[Tensor, "d_model head d_head"] | None]:
        """Yield each layer's norm and value projection as one matrix, in the order of query heads.

        A sequence of one token attends only to that token, so its z is its value. In one forward
        pass every attention module gets the rows of the identity, and two random vectors and their
        sum, to test whether values are linear. Shifted values get the sign of their largest beta.
        """
        width = len(self.unembedding)
        random = torch.randn(2, width, generator=torch.Generator().manual_seed(0))
        probe = torch.cat(
            [torch.zeros(1, width), torch.eye(width), random, random.sum(dim=0, keepdim=True)]
        )[:, None]

        def probing(
            module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
        ) -> tuple[Any, Any]:
            if args:
                return (probe.to(args[0]), *args[1:]), kwargs
            return args, {**kwargs, "hidden_states": probe.to(kwargs["hidden_states"])}

        def signed(shift: Any, args: tuple[Any, ...], mixed: Tensor) -> Tensor:
            side, raw = args[:2]
            if side != "value":
                return mixed
            beta = _beta(shift).to(raw.device)
            sign = beta.gather(1, beta.abs().argmax(dim=1, keepdim=True)).sign().flatten()
            return raw * sign.repeat_interleave(raw.shape[-1] // len(sign)).to(raw)

        with self._noting_z() as z, ExitStack() as hooks:
            for shift in self._value_shifts:
                hooks.enter_context(shift.register_forward_hook(signed))
            for parts in self.layers:
                hooks.enter_context(
                    parts.attention.register_forward_pre_hook(probing, with_kwargs=True)
                )
            self.logits(self._one_token.expand(len(probe), 1))
        for layer, parts in enumerate(self.layers):
            values = z[layer][:, 0].float().to(self.device)
            values = values[1:] - values[:1]
            one, other, both = values[-3:]
            error = (one + other - both).norm() / both.norm().clamp_min(1e-12)
            norm = _matrix(parts.norm, width).to(self.device)
            linear = torch.einsum("ij,jhd->ihd", norm, values[:-3])
            yield linear if error < NONLINEAR else None

    @cached_property
    def _widths(self) -> dict[nn.Module, int]:
        """The input widths of the output projections and the unembedding, measured in a forward
        pass.
        """
        widths = dict[nn.Module, int]()

        def note(module: nn.Module, args: tuple[Any, ...]) -> None:
            widths[module] = args[0].shape[-1]

        with ExitStack() as hooks:
            for module in (*(layer.output for layer in self.layers), self.unembed):
                hooks.enter_context(module.register_forward_pre_hook(note))
            self.logits(self._one_token)
        return widths

    @property
    def _one_token(self) -> Int[Tensor, "1 1"]:
        return torch.tensor([[int(self.tokens.content[0])]], device=self.device)

    # Overridden by BridgedModel

    @cached_property
    def layers(self) -> list[Layer]:
        """The parts of each layer; empty unless all were found."""
        modules = attention_modules(self.module)
        if len(modules) != self.n_layers:
            return []
        norms = self._norms_read_by([attention for attention, _ in modules])
        return [Layer(*parts, norm) for parts, norm in zip(modules, norms, strict=True)]

    @cached_property
    def unembed(self) -> nn.Module:
        """The unembedding. Raises `ConfigError` for a model without one."""
        unembed = self.module.get_output_embeddings()
        if unembed is None:
            raise self._no_unembedding()
        return unembed

    @cached_property
    def final_norm(self) -> nn.Module | None:
        """The norm whose output the unembedding reads."""
        return self._norms_read_by([self.unembed])[0]

    def _norms_read_by(self, readers: Sequence[nn.Module]) -> list[nn.Module | None]:
        with torch.no_grad(), evaluating(self.module):
            return norms_read_by(self.module, readers, lambda: self._run(self._one_token))

    def _patterns(
        self, tokens: Int[Tensor, "batch pos"]
    ) -> Float[Tensor, "layer batch head query key"]:
        with eager(self.module):
            output = self._run(tokens, output_attentions=True, **self._no_logits)
        patterns = getattr(output, "attentions", None) or ()
        n_returned = sum(isinstance(pattern, Tensor) for pattern in patterns)
        require(
            n_returned == self.n_layers,
            f"The {self.name} returns the attention patterns of {n_returned} of its {self.n_layers} layers "
            "(output_attentions=True), so its heads cannot be scored.",
        )
        return torch.stack([pattern.float().cpu() for pattern in patterns])

    def _logits(self, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch pos d_vocab"]:
        logits = getattr(self._run(tokens), "logits", None)
        if logits is None:
            raise self._no_unembedding()
        return logits.float()

    def _run(self, tokens: Int[Tensor, "batch pos"], **options: Any) -> Any:
        # Without a mask, the library would treat ids that equal its padding id as padding.
        return self.module(
            input_ids=tokens, attention_mask=torch.ones_like(tokens), use_cache=False, **options
        )

    @property
    def _no_logits(self) -> dict[str, int]:
        """Options of a forward pass whose logits are not needed: compute only the last position's,
        if supported.
        """
        return (
            {"logits_to_keep": 1}
            if "logits_to_keep" in signature(self.module.forward).parameters
            else {}
        )

    def _no_unembedding(self) -> ConfigError:
        return ConfigError(
            f"The {self.name} has no unembedding: give the whole language model, such as a ...ForCausalLM."
        )


class BridgedModel(HuggingFaceModel):
    """A TransformerLens `TransformerBridge`, which has named parts and a hook point for patterns."""

    def __init__(self, bridge: Any, prepend_bos: bool | None = None) -> None:
        self.module, cfg = bridge, bridge.cfg
        config: Any = getattr(getattr(bridge, "original_model", None), "config", None)
        self._require_decoder(config)
        configs: list[Any] = []
        if hasattr(config, "get_text_config"):
            configs.append(config.get_text_config(decoder=True))
        if prepend_bos is None:
            prepend_bos = prepends_bos(
                bridge.tokenizer, special_tokens(*configs).get("bos_token_id")
            )
        self._describe(
            bridge.embed, (cfg.n_layers, cfg.n_heads, cfg.d_vocab, cfg.n_ctx), prepend_bos, configs
        )
        self.unembed, self.final_norm = bridge.unembed, getattr(bridge, "ln_final", None)

    @cached_property
    def layers(self) -> list[Layer]:
        """The parts of the layers that have attention with an output projection."""
        found = []
        for block in self.module.blocks:
            attention: Any = getattr(block, "attn", None)
            if hasattr(attention, "o"):
                found.append(Layer(attention, attention.o, getattr(block, "ln1", None)))
        return found

    def _patterns(
        self, tokens: Int[Tensor, "batch pos"]
    ) -> Float[Tensor, "layer batch head query key"]:
        names = [f"blocks.{layer}.attn.hook_pattern" for layer in range(self.n_layers)]
        _, cache = self.module.run_with_cache(tokens, names_filter=names)
        missing = [name for name in names if name not in cache.cache_dict]
        require(
            not missing,
            f"The TransformerBridge has no patterns: {', '.join(missing)} did not fire.",
        )
        return torch.stack([cache[name].float().cpu() for name in names])

    def _logits(self, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch pos d_vocab"]:
        return self.module(tokens, return_type="logits").float()


def _matrix(module: nn.Module | None, width: int) -> Float[Tensor, "d_in d_out"]:
    """Return the matrix of a linear map, or of a norm up to one positive factor, without bias. For
    None, the identity.

    A norm divides by a scale that depends on its input, but the scale is the same for all rows of
    the identity.
    """
    rows = torch.cat([torch.zeros(1, width), torch.eye(width)])[None]
    if module is None:
        return rows[0, 1:]
    for weight in module.parameters():
        if weight.is_floating_point():
            rows = rows.to(weight.dtype)
            if not weight.is_meta:  # offloaded weights are loaded when the module runs
                rows = rows.to(weight.device)
            break
    out = module(rows)[0].float()
    return out[1:] - out[:1]


@contextmanager
def loaded(module: nn.Module) -> Iterator[None]:
    """Load a module's own weights while the context is open, if accelerate has offloaded them."""
    if not hasattr(module, "_hf_hook"):
        yield
        return
    from accelerate.utils import align_module_device  # type: ignore[import-untyped]

    with align_module_device(module):
        yield


def _beta(shift: Any) -> Float[Tensor, "kv_head window"]:
    with loaded(shift):
        return shift.beta.detach().float().cpu()


@contextmanager
def eager(model: Any) -> Iterator[None]:
    """Switch a model to eager attention, the only one that returns patterns; restore the model's
    own afterwards.

    Raises `ConfigError` for a model that does not support eager attention.
    """
    config = model.config
    parts = [getattr(config, name, None) for name in config.sub_configs]
    configs = [config, *filter(None, parts)]
    before = [each._attn_implementation for each in configs]
    if set(before) <= {"eager", None}:
        yield
        return
    try:
        with suppress(ValueError, ImportError):
            model.set_attn_implementation("eager")
        require(
            config._attn_implementation == "eager",
            f"The {type(model).__name__} attends by {before[0]!r}, which gives no patterns, and it cannot be switched: "
            "load it with attn_implementation='eager'.",
        )
        yield
    finally:
        for each, implementation in zip(configs, before, strict=True):
            each._attn_implementation = implementation


def attention_modules(model: Any) -> list[tuple[nn.Module, nn.Module]]:
    """Return the attention and output projection of each decoder layer in which both are found."""
    decoder = model.get_decoder() if hasattr(model, "get_decoder") else model
    modules = []
    for name, module in (decoder or model).named_modules():
        outputs = [
            child
            for child in OUTPUT_PROJECTIONS
            if isinstance(getattr(module, child, None), nn.Module)
        ]
        if (
            re.search("attention|attn", type(module).__name__, re.IGNORECASE)
            and outputs
            and "cross" not in name
        ):
            modules.append((module, getattr(module, outputs[0])))
    return modules


def norms_read_by(
    model: nn.Module, readers: Iterable[nn.Module], run: Callable[[], Any]
) -> list[nn.Module | None]:
    """Run the model and return, for each reader, the norm whose output is its input; None if there
    is no such norm.
    """
    norm_of: dict[int, nn.Module] = {}
    alive: list[Tensor] = []  # kept alive: another activation could reuse a freed address
    read: dict[nn.Module, int] = {}

    def note_norm(module: nn.Module, args: Any, output: Any) -> None:
        if isinstance(output, Tensor):
            alive.append(output)
            norm_of.setdefault(output.data_ptr(), module)

    def note_reader(module: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        x = args[0] if args else kwargs["hidden_states"]
        alive.append(x)
        read[module] = x.data_ptr()

    readers = list(readers)
    with ExitStack() as hooks:
        for module in model.modules():
            if "norm" in type(module).__name__.lower():
                hooks.enter_context(module.register_forward_hook(note_norm))
        for reader in readers:
            hooks.enter_context(reader.register_forward_pre_hook(note_reader, with_kwargs=True))
        run()
    return [norm_of.get(read.get(reader, 0)) for reader in readers]


@lru_cache
def tokenizer_prepends(name: str, bos: int | None) -> bool:
    """Return whether the tokenizer stored with a model begins every text with the token `bos`.

    False if no tokenizer is stored on this machine; nothing is downloaded.
    """
    if bos is None or not name:
        return False
    return prepends_bos(tokenizer_of(name, local=True), bos)


def prepends_bos(tokenizer: Any, bos: int | None) -> bool:
    """Return whether a tokenizer begins every text with the token `bos`."""
    return (
        tokenizer is not None and bos is not None and list(tokenizer("a")["input_ids"])[:1] == [bos]
    )
