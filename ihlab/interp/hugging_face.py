"""`HeadModel` for Hugging Face causal LMs, and for TransformerLens bridges over them.

PyTorch hooks read the input of each attention's output projection, which is the z of all heads,
concatenated. The effective patterns of a `KVShiftForCausalLM` include its value shift (beta). How
other models mix values of different tokens is unknown, so their effective patterns are the raw
ones.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property, lru_cache
from inspect import signature
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

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

OUTPUT_PROJECTIONS = ("o_proj", "out_proj", "c_proj", "dense", "wo", "proj")
"""Names of attention's output projection in Hugging Face models."""

CHANGES_VALUES = {"v_norm", "v_sconv", "groupnorm"}
"""Parts of attention that change values after the shift, or heads' outputs (DiffLlama)."""


class HuggingFaceModel(HeadModel):
    """A Hugging Face causal LM. Its patterns are those of eager attention. The model is left
    unchanged.
    """

    module: Any

    def __init__(self, model: Any, prepend_bos: bool | None = None) -> None:
        self.module, self.embed = model, model.get_input_embeddings()
        require(
            not getattr(model.config, "is_encoder_decoder", False),
            f"The {self.name} has an encoder and a decoder, but induction heads are located in causal language models.",
        )
        config = model.config.get_text_config(decoder=True)
        for field in ("num_hidden_layers", "num_attention_heads"):
            known = isinstance(getattr(config, field, None), int)
            require(known, f"The {self.name} has no attention heads: no {field}.")
        require_finite(model)
        self.n_layers, self.n_heads = config.num_hidden_layers, config.num_attention_heads
        longest = getattr(config, "max_position_embeddings", None)
        longest = longest or getattr(config, "max_seq_len", None)
        self.n_ctx = longest if isinstance(longest, int) and longest > 0 else None
        self.d_vocab, self.reach = config.vocab_size, reach(config)
        if prepend_bos is None:
            bos = special_tokens(config).get("bos_token_id")
            prepend_bos = tokenizer_prepends(model.name_or_path, bos)
        configs = [config, getattr(model, "generation_config", None)]
        length = min(filter(None, (LONGEST_PROBE, self.n_ctx, self.reach)))
        content = sorted(set(range(self.d_vocab)) - set(special_ids(*configs)))
        ordinary = ProbeTokens(content, (), length)
        self.tokens = beginning(ordinary, prepend_bos, special_tokens(*configs).get("bos_token_id"))

    @property
    def device(self) -> torch.device:
        """See `HeadModel.device`. For an offloaded embedding, the device that accelerate will load
        it on.
        """
        runs_on = getattr(getattr(self.embed, "_hf_hook", None), "execution_device", None)
        return super().device if runs_on is None else torch.device(runs_on)

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
            f"The {self.name} has shifted values with shift_first='own', in some layers only, or changed after the "
            "shift, so that no effective pattern of its heads is exact: use raw patterns "
            "(`ihlab.interp.sources.attention_patterns`).",
        )
        betas = [gauge_fixed(_beta(shift)) for shift in shifts]
        return torch.stack(list(map(effective_pattern, patterns, betas)))

    @property
    def exact_kind(self) -> str:
        """See `HeadModel.exact_kind`."""
        shifts = self._value_shifts
        first = {shift.first for shift in shifts}
        names = {name.rpartition(".")[2] for name, _ in self.module.named_modules()}
        inexact = "own" in first or len(shifts) < self.n_layers or names & CHANGES_VALUES
        return "raw" if shifts and inexact else "effective"

    @property
    def _value_shifts(self) -> list[Any]:
        """The shift of each layer of a `KVShiftForCausalLM` whose values are shifted; empty for
        another model.
        """
        named = self.module.named_modules()
        shifts: list[Any] = [module for name, module in named if name.endswith("shift_norm")]
        return [shift for shift in shifts if "value" in getattr(shift, "sides", ())]

    @contextmanager
    def replacing(self, replace: Mapping[int, ReplaceZ]) -> Iterator[None]:
        """Replace z by a hook on the output projection's input. Raises `ConfigError` without output
        projections.
        """
        require(
            len(self.outputs) == self.n_layers,
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

                hooks.enter_context(self.outputs[layer].register_forward_pre_hook(hook))
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
        block = self.module.model.layers[layer]
        if kind == "resid_pre":
            return block.input_layernorm.register_forward_pre_hook(
                lambda module, args: (function(args[0]), *args[1:])
            )
        attention = block.self_attn
        if kind == "result":
            output = attention.o_proj
            hooks = (*output._forward_hooks.values(), *attention._forward_hooks.values())
            foreign = [hook for hook in hooks if not hook.__module__.startswith("transformers.")]
            require(
                type(output) is nn.Linear and not foreign,
                f"The attention of layer {layer} has a hook, or its o_proj is no plain Linear, so its weight does not "
                "say what heads write: merge or remove what was added.",
            )
            with loaded(output):
                weight = output.weight.detach().T.unflatten(0, (self.n_heads, -1))

            def read(z: Tensor) -> Tensor:
                function(torch.einsum("bphd,hdm->bphm", z, weight.to(z)))
                return z

            return self.replacing({layer: read})
        heads = (-1, attention.head_dim)
        return attention.get_submodule(f"{kind}_proj").register_forward_hook(
            lambda module, args, x: function(x.unflatten(-1, heads)).to(x).flatten(-2)
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

    # Overridden by BridgedModel

    @cached_property
    def outputs(self) -> list[nn.Module]:
        """The output projection of each layer's attention; empty unless all were found."""
        found = output_projections(self.module)
        return found if len(found) == self.n_layers else []

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
            raise ConfigError(
                f"The {self.name} has no unembedding: give the whole language model, such as a ...ForCausalLM."
            )
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
        supported = "logits_to_keep" in signature(self.module.forward).parameters
        return {"logits_to_keep": 1} if supported else {}


class BridgedModel(HuggingFaceModel):
    """A TransformerLens `TransformerBridge`, which has named parts and a hook point for patterns."""

    def __init__(self, bridge: Any, prepend_bos: bool | None = None) -> None:
        super().__init__(bridge.original_model, prepend_bos)
        self.module, self.embed = bridge, bridge.embed

    @cached_property
    def outputs(self) -> list[nn.Module]:
        """The output projections of the layers that have attention with one."""
        attentions: list[Any] = [getattr(block, "attn", None) for block in self.module.blocks]
        return [attention.o for attention in attentions if hasattr(attention, "o")]

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


def output_projections(model: Any) -> list[nn.Module]:
    """Return the output projection of each decoder layer's attention, where one is found."""
    decoder = model.get_decoder() if hasattr(model, "get_decoder") else model
    found = []
    for name, module in (decoder or model).named_modules():
        attends = re.search("attention|attn", type(module).__name__, re.IGNORECASE)
        parts = [getattr(module, child, None) for child in OUTPUT_PROJECTIONS]
        outputs = [part for part in parts if isinstance(part, nn.Module)]
        if attends and outputs and "cross" not in name:
            found.append(outputs[0])
    return found


@lru_cache
def tokenizer_prepends(name: str, bos: int | None) -> bool:
    """Return whether the tokenizer stored with a model begins every text with the token `bos`.

    False if no tokenizer is stored on this machine; nothing is downloaded.
    """
    if bos is None or not name:
        return False
    tokenizer = tokenizer_of(name, local=True)
    return tokenizer is not None and list(tokenizer("a")["input_ids"])[:1] == [bos]
