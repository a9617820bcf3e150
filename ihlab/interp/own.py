"""Check that a model is ihlab's own, for functions that need its hook points and weights per head."""

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from ihlab.model.transformer import Transformer
from tasks.config import require

P = ParamSpec("P")
T = TypeVar("T")


def of_own_model(function: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Make a function of a `Transformer` raise `ConfigError` for any other model, naming the conversion."""

    @wraps(function)
    def checked(model: Any, *args: P.args, **kwargs: P.kwargs) -> T:
        require(
            isinstance(model, Transformer),
            f"{function.__name__} needs an ihlab.Transformer, but the model is a {type(model).__name__}: convert a "
            "Llama, Mistral, Qwen or SmolLM3 by ihlab.model.hf.from_llama, a GPT-2 by from_gpt2; of a run give "
            "run.model().",
        )
        return function(model, *args, **kwargs)

    return checked
