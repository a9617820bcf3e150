"""Ensembles: which runs can be trained as one stacked model (`ihlab.training.stack`), and how many at once."""

import math
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import torch

from ihlab.training.config import ForkConfig, RunConfig
from ihlab.training.run import Run
from tasks.config import require

FREE = ("name", "seed", "lr", "init_shift")
"""Fields in which members may differ."""

CPU_VALUES = 524_288
"""Most d_model x positions of a stacked step on a CPU.

Where fewer than eight members fit, a member's own step fills the cache, and they train faster one after another: eight
stacked take .54 to .71 of that time at 32,768 values each, .73 to .80 at 65,536, and 1.0 to 1.5 from 131,072 on.
"""

MOST_MEMBERS = 10_000


def seeds(config: RunConfig, members: int) -> list[RunConfig]:
    """Return the config with `members` consecutive seeds, its own first."""
    require(members >= 1, f"members is {members}, but must be at least 1.")
    require(members <= MOST_MEMBERS, f"members is {members}, but must be at most {MOST_MEMBERS}: each has a folder.")
    return [config.replace(seed=config.seed + i) for i in range(members)]


def check_members(configs: Sequence[RunConfig]) -> None:
    """Raise `ConfigError` for members that cannot be stacked, naming the field."""
    require(bool(configs), "An ensemble needs at least one member.")
    first = configs[0]
    for config in configs:
        require(not isinstance(config, ForkConfig), f"'{config.name}' is a fork, but forks are trained one at a time.")
        require(not config.clamped, f"RunConfig.clamped of '{config.name}' is set, but stacked runs have no clamps.")
        dropout = config.model.dropout
        require(not dropout, f"ModelConfig.dropout is {dropout}, but members of an ensemble are trained without.")
        differs = _difference(config, first)
        require(
            differs is None,
            f"Members of an ensemble may differ in {', '.join(FREE)}, but {differs} is not the same in all of them.",
        )
    known: dict[str, RunConfig] = {}
    for config in configs:
        require(config.digest not in known, f"Two members are the same run: seed {config.seed}, lr {config.lr}.")
        known[config.digest] = config


def _difference(one: Any, other: Any, prefix: str = "", free: Sequence[str] = FREE) -> str | None:
    """Return the first field, such as "model.d_model", in which two configs differ, the free ones excepted."""
    if type(one) is not type(other):
        return prefix.rstrip(".")
    for name in (field.name for field in fields(one) if field.name not in free):
        a, b = getattr(one, name), getattr(other, name)
        if is_dataclass(a) and a != b:
            return _difference(a, b, f"{prefix}{name}.", ())
        if a != b:
            return prefix + name
    return None


def kind(config: RunConfig) -> str:
    """Return what members have in common: the digest of a config whose `FREE` fields are at their defaults."""
    return config.replace(**{field.name: field.default for field in fields(RunConfig) if field.name in FREE}).digest


def best_stack(config: RunConfig, members: int, device: torch.device) -> int:
    """Return the number of members to stack: on a CPU as many as `CPU_VALUES` has room for, or one if not eight."""
    if device.type != "cpu":
        return max(1, members)
    values = config.batch_size // config.accumulate * config.task.length * config.model.d_model
    fit = CPU_VALUES // values
    return fit if fit >= 8 else 1


def stacks(runs: Sequence[Run], most: int) -> list[list[Run]]:
    """Split the runs into as few groups of at most `most` as possible, about equally large."""
    groups = math.ceil(len(runs) / most)
    return [[runs[i] for i in part] for part in np.array_split(np.arange(len(runs)), groups)] if groups else []
