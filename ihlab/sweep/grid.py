"""Read a sweep's runs from a TOML file: one base run, and lists of values that replace its fields.

The file holds the fields of a `RunConfig`, its task and its model, and the swept values. This one
describes 2 x 2 x 3 = 12 runs:

    steps = 300
    eval_every = 10
    seeds = 3                           # 0, 1 and 2; or a list

    [task]
    kind = "induction"
    vocab_size = 64
    length = 16

    [model]
    d_model = 32
    n_heads = 2
    d_vocab = 64
    n_ctx = 16

    [grid]                              # every value with every other
    lr = [3e-3, 1e-2]

    [[zip]]                             # first with first, second with second
    model.attention = ["kv_shift", "vanilla"]
    model.n_layers = [1, 2]

Names are those of config fields, with dots: `lr`, `model.d_model`, `task.length`. The product goes
over `[grid]`, each `[[zip]]` and the seeds; the seeds vary fastest. TOML has no null: "none" is
None where a field may be None.
"""

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ihlab.storage.stored import read_toml
from ihlab.training.config import RunConfig
from tasks.codec import from_plain
from tasks.config import ConfigError, require
from tasks.config import shown as in_short

Values = dict[str, Any]
"""Values of fields, keyed by dotted name."""

SWEEPING = ("grid", "zip", "seeds")
LONGEST_NAME = 100  # bytes
MOST_RUNS = 100_000


@dataclass(frozen=True)
class Point:
    """One run of a sweep: the values of its swept fields, and its config."""

    swept: Values
    config: RunConfig


def read_grid(path: str | Path) -> list[Point]:
    """Return the runs that a TOML file describes (see this module's docstring), each named after
    its values.

    Raises `ConfigError` for a file that cannot be read, a misspelt field (with the nearest name),
    lists that are empty or of different lengths, a field swept twice, two equal runs, and (naming
    the run) any value that its config rejects.
    """
    path = Path(path)
    content = read_toml(path)
    fixed = {key: value for key, value in content.items() if key not in SWEEPING}
    base = {"name": path.stem, **_flat(fixed)}
    axes = _axes(content)
    swept = [name for axis in axes for name in axis[0]]
    require(bool(swept), "The sweep varies nothing: add a [grid] table of lists, or seeds.")
    require("name" not in swept, "name cannot be swept: runs are named after the swept values.")
    twice = {name for name in swept if swept.count(name) > 1}
    require(not twice, f"{', '.join(sorted(twice))} is swept twice.")
    _require_few(math.prod(map(len, axes)))
    points = []
    for choice in itertools.product(*axes):
        values: Values = {}
        for point in choice:
            values |= point
        points.append(_point(base, values))
    require_distinct(points)
    return points


def require_distinct(points: Sequence[Point]) -> None:
    """Raise `ConfigError` if two runs are the same."""
    first: dict[str, Point] = {}
    for point in points:
        same = first.setdefault(point.config.digest, point)
        require(
            same is point,
            f"The sweep's runs ({shown(same.swept)}) and ({shown(point.swept)}) are the same run.",
        )


def shown(values: Mapping[str, Any]) -> str:
    """Return values in readable form: lr=0.01, model.n_layers=2."""
    texts = []
    for name, value in values.items():
        text = in_short(value).strip("'")  # a long word is cut, too
        texts.append(f"{name}={text}")
    return ", ".join(texts)


def _require_few(n_runs: int) -> None:
    require(n_runs <= MOST_RUNS, f"The sweep has {n_runs} runs; the maximum is {MOST_RUNS}.")


def _flat(tables: Mapping[str, Any], prefix: str = "") -> Values:
    """Return nested tables as one table with dotted names."""
    flat: Values = {}
    for key, value in tables.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


def _axes(content: Mapping[str, Any]) -> list[list[Values]]:
    """Return the axes whose product is the sweep. Each axis is a list of points; a point sets one
    or more fields.
    """
    grid, zips = content.get("grid", {}), content.get("zip", [])
    require(isinstance(grid, dict), f"grid is {in_short(grid)}, but must be a table: [grid].")
    axes = [_zipped("grid", {name: values}) for name, values in _flat(grid).items()]
    right = isinstance(zips, list) and all(isinstance(table, dict) for table in zips)
    require(right, f"zip is {in_short(zips)}, but must be tables: [[zip]].")
    for table in zips:
        require(bool(table), "A [[zip]] is empty, but must hold lists.")
        axes.append(_zipped("zip", _flat(table)))
    if "seeds" in content:
        seeds = content["seeds"]
        if isinstance(seeds, int) and not isinstance(seeds, bool):
            _require_few(seeds)
            seeds = list(range(seeds))
        right = isinstance(seeds, list) and len(seeds) > 0
        require(
            right,
            f"seeds is {in_short(content['seeds'])}, but must be a number of seeds, at least 1, or a list of them.",
        )
        axes.append(_zipped("seeds", {"seed": seeds}))
    return axes


def _zipped(table: str, lists: Mapping[str, Any]) -> list[Values]:
    """Return the points of an axis: the first values of all lists, the second ones, ..."""
    for name, values in lists.items():
        right = isinstance(values, list) and len(values) > 0
        require(right, f"{table}.{name} is {in_short(values)}, but must be a list of values.")
    lengths = {name: len(values) for name, values in lists.items()}
    require(
        len(set(lengths.values())) == 1,
        f"The lists of one [[zip]] differ in length: {shown(lengths)}.",
    )
    return [dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True)]


def _point(base: Values, swept: Values) -> Point:
    try:
        config = from_plain(RunConfig, _nested(base | swept), null="none")
    except (
        ConfigError,
        TypeError,
    ) as error:  # TypeError: configs do not check the types of a list's items
        raise ConfigError(f"The sweep's run ({shown(swept)}) is not possible: {error}") from None
    words = [re.sub(r"[^\w.]+", "-", str(value)).strip("-") for value in swept.values()]
    name = "-".join([base["name"], *words]).encode()[:LONGEST_NAME].decode(errors="ignore")
    return Point(swept, config.replace(name=name))


def _nested(values: Values) -> dict[str, Any]:
    """Return dotted names as nested tables."""
    nested: dict[str, Any] = {"task": {}, "model": {}}
    for name, value in values.items():
        table, _, field = name.rpartition(".")
        if table:
            nested.setdefault(table, {})[field] = value
        else:
            nested[field] = value
    return nested
