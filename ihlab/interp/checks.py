"""Checks that several analyses share: the model is a `Transformer`, its heads exist, its routes are
exact.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from numbers import Integral
from typing import Any, Concatenate, ParamSpec, TypeVar

from ihlab.model.transformer import Transformer
from ihlab.runtime.settings import own_settings
from tasks.config import require

P = ParamSpec("P")
T = TypeVar("T")


def transformer_only(
    function: Callable[Concatenate[Any, P], T],
) -> Callable[Concatenate[Any, P], T]:
    """Make a function of a `Transformer` run in `own_settings` and raise `ConfigError` for any
    other model.
    """

    @wraps(function)
    @own_settings()
    def checked(model: Any, *args: P.args, **kwargs: P.kwargs) -> T:
        require(
            isinstance(model, Transformer),
            f"{function.__name__} needs an ihlab.Transformer, but the model is a {type(model).__name__}: convert a "
            "Llama, Mistral, Qwen or SmolLM3 by ihlab.model.conversion.from_llama, a GPT-2 by from_gpt2; for a run, "
            "give run.model().",
        )
        return function(model, *args, **kwargs)

    return checked


def require_heads(size: Any, heads: Iterable[Any]) -> None:
    """Raise `ConfigError` for a head (layer, head) that does not exist, and for anything except
    pairs of integers.

    `size` has `n_layers` and `n_heads`: a model's config, or a `HeadModel`.
    """
    for each in heads:
        pair = (
            isinstance(each, Sequence)
            and len(each) == 2
            and all(isinstance(number, Integral) for number in each)
        )
        require(
            pair, f"heads holds {each!r}, but must be pairs (layer, head), as in [(1, 0), (1, 3)]."
        )
        layer, head = each
        require(
            0 <= layer < size.n_layers and 0 <= head < size.n_heads,
            f"There is no head {layer}.{head}: the model has layers 0 to {size.n_layers - 1} with heads 0 to "
            f"{size.n_heads - 1}.",
        )


def require_routes(cfg: Any) -> None:
    """Raise `ConfigError` if anything other than alpha and beta mixes earlier tokens into keys or
    values.

    For such a model, no pattern over tokens says what heads read, and no one matrix or route says
    what queries match.
    """
    field = getattr(cfg, "mixes_tokens", None)  # missing in TransformerLens' own configs
    require(
        field is None,
        f"The model has {field}, which mixes keys or values with earlier ones in addition to alpha and beta, so no "
        "effective pattern, route or circuit of its heads is exact: use raw patterns "
        "(`ihlab.interp.patterns.raw_patterns`) and patching.",
    )
