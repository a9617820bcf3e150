"""Functions that read a model's own parts, its hook points and weights by head, and so need ihlab's own model."""

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from ihlab.model.transformer import Transformer
from tasks.config import require

P = ParamSpec("P")
T = TypeVar("T")


def of_own_model(function: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Decorate a function of a `Transformer`: for any other model it raises `ConfigError` naming the conversion."""

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
