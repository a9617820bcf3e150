"""Facts from Hugging Face's configs: a model's special tokens, and the attention window of its
layers.
"""

from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any

SPECIAL = ("bos", "eos", "pad", "unk", "sep", "cls", "mask", "decoder_start")


def special_tokens(*configs: Any) -> dict[str, int]:
    """Return the ids of special tokens in configs, keyed by their config name (bos_token_id). The
    first config wins.
    """
    tokens = dict[str, int]()
    for name, token in _given(configs):
        tokens.setdefault(name, token)
    return tokens


def special_ids(*configs: Any) -> set[int]:
    """Return the ids of all special tokens in configs: a config may have several end tokens."""
    return {token for _, token in _given(configs)}


def _given(configs: Iterable[Any]) -> Iterator[tuple[str, int]]:
    names = [f"{special}_token_id" for special in SPECIAL]
    for config, name in product(configs, names):
        value = getattr(config, name, None)
        for token in value if isinstance(value, list | tuple) else [value]:
            if isinstance(token, int):
                yield name, token


def reach(config: Any) -> int | None:
    """Return the smallest attention window of a layer; None if no layer has a window."""
    kinds: list[Any] = list(getattr(config, "layer_types", None) or [])
    widths: list[Any] = []
    windowed = (
        "sliding_attention" in kinds if kinds else getattr(config, "use_sliding_window", True)
    )
    if windowed:
        widths.append(getattr(config, "sliding_window", None))
    if "chunked_attention" in kinds or not kinds:
        widths.append(getattr(config, "attention_chunk_size", None))
    if "local" in (getattr(config, "attention_layers", None) or []):  # GPT-Neo
        widths.append(config.window_size)
    return min((width for width in widths if isinstance(width, int) and width > 0), default=None)
