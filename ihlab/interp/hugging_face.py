"""Causal language models of transformers, read from the outside, and what their configs tell of them."""

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from ihlab.interp.foreign import Ends, ForeignModel, Layer, hooked
from ihlab.model.modes import evaluating
from tasks.config import ConfigError, require

OUTPUT_PROJECTIONS = ("o_proj", "out_proj", "c_proj", "dense", "wo", "proj")
"""The names that attention's output projection has in Hugging Face's models."""

SPECIAL = ("bos", "eos", "pad", "unk", "sep", "cls", "mask", "decoder_start")


class HuggingFaceModel(ForeignModel):
    """A causal language model of transformers. Patterns are those of eager attention; nothing of it is changed."""

    def __init__(self, model: Any) -> None:
        self.module, whole = model, model.config
        name = type(model).__name__
        require(
            not whole.is_encoder_decoder,
            f"The {name} has an encoder and a decoder, but induction heads are located in causal language models.",
        )
        config = whole.get_text_config(decoder=True)
        for field in ("num_hidden_layers", "num_attention_heads"):
            require(isinstance(getattr(config, field, None), int), f"The {name} has no attention heads: no {field}.")
        self.n_layers, self.n_heads = config.num_hidden_layers, config.num_attention_heads
        self.d_vocab, self.config = config.vocab_size, config
        self.n_ctx = stated_length(
            getattr(config, "max_position_embeddings", None) or getattr(config, "max_seq_len", None)
        )
        self.reach = reach(config)
        self.ids = ordinary_ids(self.d_vocab, config, getattr(model, "generation_config", None))

    def _patterns(self, tokens: Tensor) -> Tensor:
        with eager(self.module):
            output = self._run(tokens, output_attentions=True)
        patterns = getattr(output, "attentions", None) or ()
        given = sum(isinstance(pattern, Tensor) for pattern in patterns)
        require(
            given == self.n_layers,
            f"The {self.name} returns the attention patterns of {given} of its {self.n_layers} layers "
            "(output_attentions=True), so its heads cannot be scored.",
        )
        return torch.stack([pattern.float().cpu() for pattern in patterns])

    def _logits(self, tokens: Tensor) -> Tensor:
        logits = getattr(self._run(tokens), "logits", None)
        if logits is None:
            raise ConfigError(self._without_unembedding)
        return logits

    def _run(self, tokens: Tensor, **options: Any) -> Any:
        # With a mask, the library does not take ids that happen to be its padding for padding.
        return self.module(input_ids=tokens, attention_mask=torch.ones_like(tokens), use_cache=False, **options)

    @property
    def _without_unembedding(self) -> str:
        return f"The {self.name} has no unembedding: give the whole language model, such as a ...ForCausalLM."

    @cached_property
    def ends(self) -> Ends:
        """Embedding, unembedding, and the norm that the unembedding reads."""
        unembed = self.module.get_output_embeddings()  # type: ignore[operator]
        require(unembed is not None, self._without_unembedding)
        return Ends(self._embed, self._read_by([unembed])[0], unembed)

    @property
    def device(self) -> torch.device:
        """The device of the embedding."""
        weight: Tensor = self._embed.weight  # type: ignore[assignment]
        return weight.device

    @property
    def _embed(self) -> nn.Module:
        return self.module.get_input_embeddings()  # type: ignore[operator]

    @cached_property
    def _layers(self) -> list[Layer]:
        decoder = self.module.get_decoder() if hasattr(self.module, "get_decoder") else self.module  # type: ignore[operator]
        found = []
        for name, module in (decoder or self.module).named_modules():
            children = [child for child in OUTPUT_PROJECTIONS if isinstance(getattr(module, child, None), nn.Module)]
            if re.search("attention|attn", type(module).__name__, re.IGNORECASE) and children and "cross" not in name:
                found.append((module, getattr(module, children[0])))
        if len(found) != self.n_layers:
            return []
        norms = self._read_by([module for module, _ in found])
        return [Layer(*parts, norm) for parts, norm in zip(found, norms, strict=True)]

    @torch.no_grad()
    def _read_by(self, readers: Sequence[nn.Module]) -> list[nn.Module | None]:
        """Return for each module the norm whose output it reads; None if it reads no norm's output."""
        made: dict[int, nn.Module] = {}
        kept: list[Tensor] = []  # kept alive: another activation could reuse a freed address
        read: dict[nn.Module, int] = {}

        def note_norm(module: nn.Module, args: Any, output: Any) -> None:
            if isinstance(output, Tensor):
                kept.append(output)
                made.setdefault(output.data_ptr(), module)

        def note_reader(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            x = args[0] if args else kwargs["hidden_states"]
            kept.append(x)
            read[module] = x.data_ptr()

        with ExitStack() as stack:
            stack.enter_context(evaluating(self.module))
            for module in self.module.modules():
                if "norm" in type(module).__name__.lower():
                    stack.enter_context(hooked(module.register_forward_hook(note_norm)))
            for reader in readers:
                stack.enter_context(hooked(reader.register_forward_pre_hook(note_reader, with_kwargs=True)))
            self._run(torch.tensor([[int(self.ids[0])]], device=self.device))
        return [made.get(read.get(reader, 0)) for reader in readers]


@contextmanager
def eager(model: Any) -> Iterator[None]:
    """Switch a Hugging Face model to eager attention, which alone returns patterns, and restore its own afterwards.

    Raises `ConfigError` for a model that does not let its attention be switched.
    """
    config = model.config
    parts = [config, *(part for name in config.sub_configs if (part := getattr(config, name, None)) is not None)]
    before = [part._attn_implementation for part in parts]
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
        for part, implementation in zip(parts, before, strict=True):
            part._attn_implementation = implementation


def ordinary_ids(d_vocab: int, *configs: Any) -> list[int]:
    """Return the ids of a vocabulary without those that Hugging Face's configs name as special tokens."""
    special = set[Any]()
    for config in configs:
        for name in SPECIAL:
            given = getattr(config, f"{name}_token_id", None)
            special.update(given if isinstance(given, list | tuple) else [given])
    return [token for token in range(d_vocab) if token not in special]


def reach(config: Any) -> int | None:
    """Return the width of the narrowest window through which a layer sees earlier tokens; None: there is none."""
    kinds: list[Any] = list(getattr(config, "layer_types", None) or [])
    widths: list[Any] = []
    windowed = "sliding_attention" in kinds if kinds else getattr(config, "use_sliding_window", True)
    if windowed:
        widths.append(getattr(config, "sliding_window", None))
    if "chunked_attention" in kinds or not kinds:
        widths.append(getattr(config, "attention_chunk_size", None))
    if "local" in (getattr(config, "attention_layers", None) or []):  # GPT-Neo
        widths.append(config.window_size)
    return min((width for width in widths if isinstance(width, int) and width > 0), default=None)


def stated_length(given: Any) -> int | None:
    """Return a number of positions that a config states; None where it states none."""
    return given if isinstance(given, int) and given > 0 else None
