"""The training loss through `torch.compile`: one compilation for all runs of a process that are alike."""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from ihlab.training.compiler import can_compile, compiler_options
from ihlab.training.config import RunConfig, graph_kind

KEPT = 2
"""Most kinds of runs whose graphs are kept. Of one function torch keeps eight, and silently runs eagerly from then on;
a kind has up to three, with queries at some positions, at all, and with every position scored. A stack has one for each
size of its steps."""

Kind = tuple[Any, ...]

_kept: list[Kind] = []


def compiled_loss(
    loss: Callable[..., Tensor], config: RunConfig, device: torch.device, members: int | None = None
) -> Callable[..., Tensor]:
    """Return the loss of a run, or of a stack of `members`, compiled if its config says so.

    A later one of its kind reuses the graphs. `loss` is a module's function of a model, of stacked weights if it is a
    stack's, and of the tensors of a batch. A graph takes the weights as arguments. The number of scored positions is a
    symbol in it from its first step on; for stacks there is a graph for each of a few sizes
    (`ihlab.training.vmapped.stacked`). So it is the same whichever run it was compiled for, and a run's numbers do not
    depend on those before.

    On a CPU without a C++ compiler it is `loss` itself, with a warning (`can_compile`).
    """
    if not (config.compile and can_compile(device.type)):
        return loss
    _keep((graph_kind(config), device, members), clamped=bool(config.clamps))

    def called(*arguments: Any) -> Tensor:
        if members is None:
            _mark_symbols(*arguments[1:])
        found: Tensor = _compiled(loss, None if members is None else False, device.type)(*arguments)
        return found

    return called


def compiled_share(shared: nn.Module, config: RunConfig, device: torch.device) -> Callable[..., Tensor]:
    """Return what `Ranks.share` made of the loss, compiled likewise. Its graphs, with all-reduces, are its own."""
    if not (config.compile and can_compile(device.type)):
        return shared
    forget()
    share: Callable[..., Tensor] = torch.compile(shared, options=compiler_options(device.type))
    return share


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


def _mark_symbols(tokens: Tensor, index: Tensor, *others: Tensor | None) -> None:
    """Let the number of scored positions, and of queries where some positions have none, be symbols of a graph."""
    if len(index) < tokens.numel():
        for x in (index, *others):
            if x is not None:
                torch._dynamo.maybe_mark_dynamic(x, x.ndim - 1)


@cache
def _compiled(loss: Callable[..., Tensor], dynamic: bool | None, device_type: str) -> Callable[..., Tensor]:
    return torch.compile(loss, dynamic=dynamic, options=compiler_options(device_type))
