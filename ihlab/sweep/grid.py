"""Read a sweep's runs from a TOML file: one base run, and lists of values that replace its fields.

The file holds the fields of a `RunConfig`, its task and its model, and the swept values. This one describes
2 x 2 x 3 = 12 runs:

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

Names are those of config fields, with dots: `lr`, `model.d_model`, `task.length`. The product goes over `[grid]`,
each `[[zip]]` and the seeds; the seeds vary fastest. TOML has no null: "none" is None where a field may be None.
"""

import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ihlab.storage.stored import read_toml
from ihlab.training.config import LONGEST_NAME as MOST_NAME_BYTES
from ihlab.training.config import RunConfig
from tasks.codec import from_plain
from tasks.config import ConfigError, require
from tasks.config import shown as in_short

Values = dict[str, Any]
"""Values of fields, keyed by dotted name."""

SWEEPING = ("grid", "zip", "seeds")
LONGEST_NAME = 100
MOST_RUNS = 100_000


@dataclass(frozen=True)
class Point:
    """One run of a sweep: the values of its swept fields, and its config."""

    swept: Values
    config: RunConfig


def read_grid(path: str | Path) -> list[Point]:
    """Return the runs that a TOML file describes (see this module's docstring), each named after its values.

    Raises `ConfigError` for a file that cannot be read, a misspelt field (with the nearest name), lists that are empty
    or of different lengths, a field swept twice, two equal runs, and (naming the run) any value that its config
    rejects.
    """
    try:
        return _points(Path(path))
    except RecursionError:
        raise ConfigError(f"{path} nests tables or lists too deeply for a sweep.") from None


def _points(path: Path) -> list[Point]:
    content = read_toml(path)
    base = {"name": path.stem, **_flat({key: value for key, value in content.items() if key not in SWEEPING})}
    axes = _axes(content)
    swept = [name for axis in axes for name in axis[0]]
    require(bool(swept), "The sweep varies nothing: add a [grid] table of lists, or seeds.")
    require("name" not in swept, "name cannot be swept: runs are named after the swept values.")
    twice = {name for name in swept if swept.count(name) > 1}
    require(not twice, f"{', '.join(sorted(twice))} is swept twice.")
    _require_few(math.prod(map(len, axes)))
    points = [_point(base, _joined(choice)) for choice in itertools.product(*axes)]
    require_distinct(points)
    return points


def require_distinct(points: Sequence[Point]) -> None:
    """Raise `ConfigError` if two runs are the same."""
    first: dict[str, Point] = {}
    for point in points:
        same = first.setdefault(point.config.digest, point)
        require(same is point, f"The sweep's runs ({shown(same.swept)}) and ({shown(point.swept)}) are the same run.")


def shown(values: Mapping[str, Any]) -> str:
    """Return values in readable form: lr=0.01, model.n_layers=2."""
    texts = {name: value if isinstance(value, str) else in_short(value) for name, value in values.items()}
    return ", ".join(f"{name}={text}" for name, text in texts.items())


def _require_few(n_runs: int) -> None:
    require(n_runs <= MOST_RUNS, f"The sweep has {n_runs} runs; the maximum is {MOST_RUNS}.")


def _flat(tables: Mapping[str, Any], prefix: str = "") -> Values:
    """Return nested tables as one table with dotted names."""
    flat: Values = {}
    for key, value in tables.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return flat


def _axes(content: Mapping[str, Any]) -> list[list[Values]]:
    """Return the axes whose product is the sweep. Each axis is a list of points; a point sets one or more fields."""
    grid, zips = content.get("grid", {}), content.get("zip", [])
    require(isinstance(grid, dict), f"grid is {in_short(grid)}, but must be a table: [grid].")
    right = isinstance(zips, list) and all(isinstance(table, dict) for table in zips)
    require(right, f"zip is {in_short(zips)}, but must be tables: [[zip]].")
    axes = [[{name: value} for value in _list(f"grid.{name}", values)] for name, values in _flat(grid).items()]
    for table in map(_flat, zips):
        lists = {name: _list(f"zip.{name}", values) for name, values in table.items()}
        lengths = {name: len(values) for name, values in lists.items()}
        require(bool(lengths), "A [[zip]] is empty, but must hold lists.")
        require(len(set(lengths.values())) == 1, f"The lists of one [[zip]] differ in length: {shown(lengths)}.")
        axes.append([dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True)])
    if "seeds" in content:
        seeds = content["seeds"]
        counted = isinstance(seeds, int) and not isinstance(seeds, bool) and seeds > 0
        right = counted or (isinstance(seeds, list) and len(seeds) > 0)
        require(right, f"seeds is {in_short(seeds)}, but must be a number of seeds, at least 1, or a list of them.")
        _require_few(seeds if counted else len(seeds))
        axes.append([{"seed": seed} for seed in (range(seeds) if counted else seeds)])
    return axes


def _list(name: str, values: Any) -> list[Any]:
    require(
        isinstance(values, list) and len(values) > 0, f"{name} is {in_short(values)}, but must be a list of values."
    )
    return list(values)


def _joined(choice: Iterable[Values]) -> Values:
    return {name: value for values in choice for name, value in values.items()}


def _point(base: Values, swept: Values) -> Point:
    try:
        config = from_plain(RunConfig, _nested(base | swept), null="none")
    except (ConfigError, TypeError) as error:  # TypeError: configs do not check the types of a list's items
        raise ConfigError(f"The sweep's run ({shown(swept)}) is not possible: {error}") from None
    words = [base["name"], *(re.sub(r"[^\w.]+", "-", str(value)).strip("-") for value in swept.values())]
    return Point(
        swept, config.replace(name="-".join(words)[:LONGEST_NAME].encode()[:MOST_NAME_BYTES].decode(errors="ignore"))
    )


def _nested(values: Values) -> dict[str, Any]:
    """Return dotted names as nested tables."""
    nested: dict[str, Any] = {"task": {}, "model": {}}
    for name, value in values.items():
        table, _, field = name.rpartition(".")
        (nested.setdefault(table, {}) if table else nested)[field] = value
    return nested
