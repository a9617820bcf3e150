"""Code specific to Hugging Face causal LMs: their configs, their modules, eager attention."""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache
from typing import Any

from torch import Tensor, nn

from ihlab.model.hf.configs import special_ids
from ihlab.stored import tokenizer_of
from tasks.config import require

OUTPUT_PROJECTIONS = ("o_proj", "out_proj", "c_proj", "dense", "wo", "proj")
"""Names of attention's output projection in Hugging Face models."""


@contextmanager
def eager(model: Any) -> Iterator[None]:
    """Switch a model to eager attention, the only one that returns patterns, and restore its own afterwards.

    Raises `ConfigError` for a model that does not support eager attention.
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


def attention_modules(model: Any) -> list[tuple[nn.Module, nn.Module]]:
    """Return the attention and output projection of each decoder layer in which both are found."""
    decoder = model.get_decoder() if hasattr(model, "get_decoder") else model
    found = []
    for name, module in (decoder or model).named_modules():
        children = [child for child in OUTPUT_PROJECTIONS if isinstance(getattr(module, child, None), nn.Module)]
        if re.search("attention|attn", type(module).__name__, re.IGNORECASE) and children and "cross" not in name:
            found.append((module, getattr(module, children[0])))
    return found


def norms_read_by(model: nn.Module, readers: Iterable[nn.Module], run: Callable[[], Any]) -> list[nn.Module | None]:
    """Run the model and return, for each reader, the norm whose output is its input; None if there is no such norm."""
    made: dict[int, nn.Module] = {}
    kept: list[Tensor] = []  # kept alive: another activation could reuse a freed address
    read: dict[nn.Module, int] = {}

    def note_norm(module: nn.Module, args: Any, output: Any) -> None:
        if isinstance(output, Tensor):
            kept.append(output)
            made.setdefault(output.data_ptr(), module)

    def note_reader(module: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        given = args[0] if args else kwargs["hidden_states"]
        kept.append(given)
        read[module] = given.data_ptr()

    readers = list(readers)
    with ExitStack() as hooks:
        for module in model.modules():
            if "norm" in type(module).__name__.lower():
                hooks.enter_context(module.register_forward_hook(note_norm))
        for reader in readers:
            hooks.enter_context(reader.register_forward_pre_hook(note_reader, with_kwargs=True))
        run()
    return [made.get(read.get(reader, 0)) for reader in readers]


def ordinary_ids(d_vocab: int, *configs: Any) -> list[int]:
    """Return the ids of a vocabulary except the special tokens named in the configs."""
    special = special_ids(*configs)
    return [token for token in range(d_vocab) if token not in special]


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
    return tokenizer is not None and bos is not None and list(tokenizer("a")["input_ids"])[:1] == [bos]
