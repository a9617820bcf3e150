"""Run a method on a copy of its problem, undo what it changed elsewhere, and say what that was."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.modules import module as torch_hooks

from ihlab.attribution.problems import HOOKS, Problem
from ihlab.settings import own_settings
from tasks.config import require

OF_ALL_MODULES = [
    name for name, table in vars(torch_hooks).items() if name.startswith("_global_") and isinstance(table, dict)
]
"""Names of torch's dictionaries of the hooks that run for every module."""


@contextmanager
def isolated(problem: Problem, method: str) -> Iterator[tuple[Problem, list[str]]]:
    """Yield a copy of a problem, and a list that is filled at the end with what the method changed.

    The copy has a model, prompts and a metric of its own (a plain function cannot be copied). Inside, torch and NumPy
    have the settings of a new process (`own_settings`). Afterwards the number of threads, the random generators, hooks
    on all modules, and the given problem's weights, modes, hooks and prompts are as before. Raises `ConfigError` if the
    metric of the given problem still differs afterwards.
    """
    changed: list[str] = []
    original, ends = _State(problem), problem.ends
    try:
        with _same_process(changed), own_settings():
            try:
                copied = replace(deepcopy(problem))  # without the cached metric of the original
            except (RuntimeError, TypeError, NotImplementedError):  # some models of other libraries
                copied = replace(problem, clean=problem.clean.clone(), corrupted=problem.corrupted.clone())
            _ = copied.ends
            before = _State(copied)
            yield copied, changed
            changed += before.differences(copied)
    finally:
        changed += [f"{what} of the original" for what in original.differences(problem)]
        original.restore(problem)
    same = all(torch.allclose(*pair, rtol=1e-3, atol=1e-5) for pair in zip(replace(problem).ends, ends, strict=True))
    require(same, f"The method {method!r} changed what the metric measures: no later number would be comparable.")


class _State:
    """What a method can change of a problem: prompts, weights and their flags, modes, and hooks."""

    def __init__(self, problem: Problem) -> None:
        self.tensors = {name: tensor.detach().clone() for name, tensor in _tensors(problem).items()}
        self.others = _others(problem)

    def differences(self, problem: Problem) -> list[str]:
        """Return in words what differs now."""
        now = _tensors(problem)
        names = {name for name, tensor in self.tensors.items() if name not in now or not _equal(tensor, now[name])}
        prompts = [name for name in ("clean prompts", "corrupted prompts") if name in names]
        weights = ["weights"] if len(names) > len(prompts) else []
        others = _others(problem)
        return [*prompts, *weights, *(what for what, value in self.others.items() if others[what] != value)]

    @torch.no_grad()
    def restore(self, problem: Problem) -> None:
        """Put everything back."""
        now = _tensors(problem)
        for name, tensor in self.tensors.items():
            if not _equal(now[name], tensor):
                now[name].data = tensor
        for name, module in problem.model.module.named_modules():
            module.training = self.others["training mode"][name]
            for table, hooks in self.others["hooks"][name].items():
                getattr(module, table).clear()
                getattr(module, table).update(hooks)
        for name, weight in problem.model.module.named_parameters():
            if weight.requires_grad != self.others["frozen weights"][name]:
                weight.requires_grad = not weight.requires_grad
            if not self.others["gradients of weights"][name]:
                weight.grad = None


def _equal(x: Tensor, y: Tensor) -> bool:
    return (x.dtype, x.device) == (y.dtype, y.device) and torch.equal(x, y)


def _tensors(problem: Problem) -> dict[str, Tensor]:
    module = problem.model.module
    weights = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    return {"clean prompts": problem.clean, "corrupted prompts": problem.corrupted} | {
        name: weight for name, weight in weights.items() if not weight.is_meta
    }


def _others(problem: Problem) -> dict[str, dict[str, Any]]:
    modules, weights = dict(problem.model.module.named_modules()), dict(problem.model.module.named_parameters())
    return {
        "training mode": {name: module.training for name, module in modules.items()},
        "hooks": {name: {table: dict(getattr(module, table)) for table in HOOKS} for name, module in modules.items()},
        "frozen weights": {name: weight.requires_grad for name, weight in weights.items()},
        "gradients of weights": {name: weight.grad is not None for name, weight in weights.items()},
    }


@contextmanager
def _same_process(changed: list[str]) -> Iterator[None]:
    """Restore threads, random generators and hooks on all modules, and name those that were left changed."""
    threads, generators = torch.get_num_threads(), (random.getstate(), np.random.get_state())  # noqa: NPY002
    hooks = {name: dict(getattr(torch_hooks, name)) for name in OF_ALL_MODULES}
    try:
        with torch.random.fork_rng():
            yield
    finally:
        random.setstate(generators[0])
        np.random.set_state(generators[1])  # noqa: NPY002
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
            changed.append("number of threads")
        for name, table in hooks.items():
            if dict(getattr(torch_hooks, name)) != table:
                getattr(torch_hooks, name).clear()
                getattr(torch_hooks, name).update(table)
                changed.append("hooks on all modules")
