"""Run a method of the registry, and check what it returns."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from time import perf_counter
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from ihlab.attribution.methods import METHODS
from ihlab.attribution.problems import Problem, counted, table_of
from ihlab.runtime.settings import own_settings
from tasks.config import ConfigError, choose, require


@own_settings()
def attribute(
    problem: Problem, method: str = "attribution-patching", nodes: str = "head", **options: Any
) -> pd.DataFrame:
    """Return the effect of every node as a method estimates it: the columns of `exact` without the
    reverse ones.

    `options` are those of the method, such as `steps` of "eap-ig" and `frozen_norms`.
    `attribute(p.swapped, ...)` estimates the effects of the reverse direction, with the opposite
    sign. The method gets a copy of the problem (`isolated`). Raises `ConfigError` for an unknown
    method, option or kind of nodes, for a method that returns other nodes or numbers that are not
    finite or changes the given problem, and as the method does.
    """
    return table_of(problem, nodes, examined(problem, method, nodes, **options)[0])


class NotFiniteError(ConfigError):
    """Estimates that are NaN or infinite."""


def examined(
    problem: Problem, method: str, nodes: str, **options: Any
) -> tuple[Float[Tensor, "prompt node"], dict[str, float]]:
    """Return a method's estimates, and its passes and seconds. If the method returns a table, every
    prompt gets the effects in the table.
    """
    function = METHODS[choose("method", method, METHODS)]
    known = list(inspect.signature(function).parameters)[2:]
    for name in options:
        require(bool(known), f"The method {method!r} has no options, but {name} is given.")
        choose(f"option of {method}", name, known)
    table = problem.nodes(nodes)
    with isolated(problem, method) as copied, counted(copied) as passes:
        start = perf_counter()
        estimates = function(copied, nodes, **options)
        cost = {"seconds": perf_counter() - start}
    if isinstance(estimates, pd.DataFrame):
        estimates = _of_table(estimates, method, table, problem)
    wanted = [len(problem.clean), len(table)]
    shape = list(estimates.shape) if isinstance(estimates, Tensor) else type(estimates).__name__
    require(
        shape == wanted,
        f"The method {method!r} returned {shape}, but must return {wanted}: [prompt, node].",
    )
    wrong = int((~estimates.detach().isfinite().all(dim=0)).sum())
    if wrong:
        raise NotFiniteError(
            f"The method {method!r} returned NaN or infinite estimates for {wrong} of {len(table)} nodes."
        )
    return estimates.detach(), {**passes, **cost}


@contextmanager
def isolated(problem: Problem, method: str) -> Iterator[Problem]:
    """Yield a copy of a problem, with a model, prompts and a metric of its own (a plain function
    cannot be copied).

    Raises `ConfigError` if the metric of the given problem differs afterwards.
    """
    ends = problem.ends
    with own_settings(), torch.random.fork_rng():
        try:
            copied = replace(deepcopy(problem))  # without the cached metric of the original
        except (RuntimeError, TypeError, NotImplementedError):  # some models of other libraries
            copied = replace(
                problem, clean=problem.clean.clone(), corrupted=problem.corrupted.clone()
            )
        _ = copied.ends
        yield copied
    same = all(
        torch.allclose(*pair, rtol=1e-3, atol=1e-5)
        for pair in zip(replace(problem).ends, ends, strict=True)
    )
    require(
        same,
        f"The method {method!r} changed what the metric measures: no later number would be comparable.",
    )


def _of_table(table: pd.DataFrame, method: str, nodes: pd.DataFrame, problem: Problem) -> Tensor:
    columns = [str(name) for name in nodes]
    missing = [name for name in (*columns, "effect") if name not in table]
    require(not missing, f"The table of the method {method!r} has no column {', '.join(missing)}.")
    effects = table.set_index(columns)["effect"]
    wanted = pd.MultiIndex.from_frame(nodes)
    require(
        effects.index.is_unique and set(effects.index) == set(wanted),
        f"The method {method!r} returned {len(effects)} rows, but must return one row for each of the {len(wanted)} "
        f"nodes ({', '.join(columns)}).",
    )
    return torch.tensor(effects.reindex(wanted).to_numpy(dtype=float)).expand(
        len(problem.clean), -1
    )
