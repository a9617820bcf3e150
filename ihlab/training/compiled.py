"""The training loss through `torch.compile`: one compilation for all runs of a process that are alike."""

import os
import sys
import warnings
from collections.abc import Callable
from functools import cache
from shutil import which
from typing import Any

import torch
from torch import Tensor

from ihlab.measure.loss import summed_loss
from ihlab.training.config import RunConfig, graph_kind

KEPT = 2
"""Most kinds of runs whose graphs are kept. Of one function torch keeps eight, and silently runs eagerly from then on;
a kind has up to three, with queries at some positions, at all, and with every position scored."""

Kind = tuple[Any, ...]

_kept: list[Kind] = []


def compiled_loss(config: RunConfig, device: torch.device) -> Callable[..., Tensor]:
    """Return `summed_loss` compiled, as a function of the model and a batch; a later run of its kind reuses the graphs.

    A graph takes the model's weights as arguments, and knows the number of scored positions by a symbol from its first
    step on. So it is the same whichever run it was compiled for, and a run's numbers do not depend on those before.

    On a CPU without a C++ compiler it is `summed_loss` itself, with a warning: the same but for speed and rounding.
    """
    if device.type == "cpu" and which(compiler := _cpp_compiler()) is None:
        warnings.warn(
            f"RunConfig.compile is True, but there is no C++ compiler '{compiler}' to compile with: the run is trained "
            "without, more slowly. Install one, or name it in the environment variable CXX.",
            stacklevel=2,
        )
        return summed_loss
    _keep((graph_kind(config), device), clamped=bool(config.clamps))
    return _loss


def forget() -> None:
    """Forget every graph: what is compiled next shares none, and counts anew towards those that torch keeps."""
    torch.compiler.reset()
    _kept.clear()


def _keep(kind: Kind, clamped: bool) -> None:
    """Count this kind among those kept; if it is one too many, forget all others first.

    Clamps are hooks: a graph has them in it, and no guard looks at them. So a clamped run shares its graphs with none.
    """
    if clamped or (kind not in _kept and len(_kept) >= KEPT):
        forget()
    if clamped:
        _kept.extend([()] * KEPT)  # no kind: the next run, whichever it is, forgets these graphs
    elif kind not in _kept:
        _kept.append(kind)


def _loss(
    model: torch.nn.Module, tokens: Tensor, index: Tensor, targets: Tensor, queries: Tensor | None = None
) -> Tensor:
    if len(index) < tokens.numel():
        for counted, dim in ((index, 0), (targets, 0), (queries, 1)):
            if counted is not None:
                torch._dynamo.maybe_mark_dynamic(counted, dim)
    loss: Tensor = _compiled()(model, tokens, index, targets, queries)
    return loss


@cache
def _compiled() -> Callable[..., Tensor]:
    return torch.compile(summed_loss)


def _cpp_compiler() -> str:
    """Return the compiler that torch calls."""
    return os.environ.get("CXX", {"darwin": "clang++", "win32": "cl"}.get(sys.platform, "g++"))
