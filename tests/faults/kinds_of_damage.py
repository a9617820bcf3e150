"""Kinds of damage to one file of a run folder. Each replaces the file or its content."""

import json
import os
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

Damage = Callable[[Path, random.Random], None]
"""Damages the file at a path, with random draws from the generator."""

Damages = dict[str, Damage]


def replaced(make: Callable[[bytes, random.Random], bytes]) -> Damage:
    def damage(path: Path, rng: random.Random) -> None:
        path.write_bytes(make(path.read_bytes(), rng))

    return damage


def instead(make: Callable[[Path], Any]) -> Damage:
    def damage(path: Path, rng: random.Random) -> None:
        path.unlink()
        make(path)

    return damage


def flipped(content: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(8 * len(content))
    changed = bytearray(content)
    changed[at // 8] ^= 1 << at % 8
    return bytes(changed)


def huge(path: Path) -> None:
    """Write a sparse file of a terabyte."""
    with path.open("wb") as file:
        file.truncate(2**40)


def exchanged(path: Path, rng: random.Random) -> None:
    """Replace the file by another run's file of the same name."""
    run = next(folder for folder in path.parents if folder.name.startswith("small-"))
    other = next(run.parent.glob("other-*"))
    path.write_bytes((other / path.relative_to(run)).read_bytes())


NO_FILE: dict[str, Callable[[Path], Any]] = {
    "a terabyte": huge,
    "a directory": lambda path: path.mkdir(),
    "a link to nothing": lambda path: path.symlink_to("nowhere"),
    "/dev/zero": lambda path: path.symlink_to("/dev/zero"),
    "a FIFO": os.mkfifo,
}
"""What can stand in the place of a file, by functions that put it there."""

ANY_FILE: Damages = {
    "missing": instead(lambda path: None),
    "empty": replaced(lambda content, rng: b""),
    "cut in the middle": replaced(lambda content, rng: content[: len(content) // 2]),
    "cut anywhere": replaced(lambda content, rng: content[: rng.randrange(1, len(content) - 1)]),
    "an object": replaced(lambda content, rng: b"{}\n"),
    "nested": replaced(lambda content, rng: b"[" * 100_000),
    "random bytes": replaced(lambda content, rng: rng.randbytes(len(content))),
    **{what: instead(make) for what, make in NO_FILE.items()},
    "another run's": exchanged,
    "a flipped bit": replaced(flipped),
    "another flipped bit": replaced(flipped),
}


# JSON

WRONG: dict[str, Any] = {
    "3": 3, "1.5": 1.5, "a word": "x", "a list": [], "an object": {}, "null": None, "NaN": float("nan"),
    "20 digits": 10**19,
}  # fmt: skip


def fields(content: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value in JSON, from the outside in."""
    pairs: Any = ()
    if isinstance(content, dict):
        pairs = content.items()
    elif isinstance(content, list):
        pairs = enumerate(content)
    for name, value in pairs:
        yield (*at, name)
        yield from fields(value, (*at, name))


LEFT_OUT = object()


def put(at: tuple[Any, ...], value: Any, path: Path, rng: random.Random) -> None:
    content = json.loads(path.read_text())
    inner = content
    for name in at[:-1]:
        inner = inner[name]
    if value is LEFT_OUT:
        del inner[at[-1]]
    else:
        inner[at[-1]] = value
    path.write_text(json.dumps(content))


def of_json(path: Path) -> Damages:
    """Return damage that omits each field of a JSON file, gives it each wrong value, or adds an
    unknown field.
    """
    made: Damages = {"one field too many": partial(put, ("betta",), 1)}
    content = json.loads(path.read_text())
    for at in fields(content):
        named = ".".join(map(str, at))
        made[f"without {named}"] = partial(put, at, LEFT_OUT)
        made |= {f"{named} is {what}": partial(put, at, value) for what, value in WRONG.items()}
    return made


# metrics.csv


def rows(change: Callable[[list[str]], list[str]]) -> Damage:
    return replaced(
        lambda content, rng: "".join(change(content.decode().splitlines(keepends=True))).encode()
    )


def cell(column: str, value: str) -> Damage:
    def change(lines: list[str]) -> list[str]:
        cells = lines[1].rstrip("\n").split(",")
        cells[lines[0].rstrip("\n").split(",").index(column)] = value
        return [lines[0], ",".join(cells) + "\n", *lines[2:]]

    return rows(change)


def of_metrics(path: Path) -> Damages:
    """Return damage to rows and columns: missing, duplicated, swapped or with other content."""
    columns = path.read_text().splitlines()[0].split(",")
    made = {
        "no header": rows(lambda lines: lines[1:]),
        "the last row missing": rows(lambda lines: lines[:-1]),
        "a row missing": rows(lambda lines: [*lines[:2], *lines[3:]]),
        "a row twice": rows(lambda lines: [*lines[:2], *lines[1:]]),
        "the last row cut": rows(lambda lines: [*lines[:-1], lines[-1][:-4]]),
        "without the first column": rows(lambda lines: [line.partition(",")[2] for line in lines]),
    }
    for column in columns:
        for value in ("x", "", "9" * 5000, "0.25"):
            made[f"{column} is {value[:5]!r}"] = cell(column, value)
    return made


# safetensors


def tensors(change: Callable[[dict[str, torch.Tensor]], Any]) -> Damage:
    """Return damage that changes a file's tensors, and writes it in the old format without a
    checksum.
    """

    def damage(path: Path, rng: random.Random) -> None:
        held = {name: tensor.clone() for name, tensor in load_file(path).items()}
        change(held)
        path.unlink()
        save_file(held, path)

    return damage


CHANGED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "of size 0": lambda x: x.new_zeros(0),
    "in integers": lambda x: x.to(torch.int32),
    "all NaN": lambda x: torch.full_like(x.float(), float("nan")),
}


def of_tensors(path: Path) -> Damages:
    """Return damage to every third tensor (missing, or of another size, type or value), and an
    additional tensor.
    """
    made = {
        "one tensor too many": tensors(lambda held: held.update(extra=torch.zeros(1))),
        "no tensors": tensors(lambda held: held.clear()),
    }
    for name in sorted(load_file(path))[::3]:
        made[f"{name} missing"] = tensors(lambda held, name=name: held.pop(name))
        for what, change in CHANGED.items():
            made[f"{name} {what}"] = tensors(
                lambda held, name=name, change=change: held.update({name: change(held[name])})
            )
    return made


# Folders


def a_file(path: Path, rng: random.Random) -> None:
    path.rename(path.with_name("moved"))
    path.write_text("checkpoints")


def without_a_step(path: Path, rng: random.Random) -> None:
    content = next(path.glob("step-*.safetensors")).read_bytes()
    (path / "step-x.safetensors").write_bytes(content)


OF_CHECKPOINTS: Damages = {
    "a file": a_file,
    "with step-x.safetensors": without_a_step,
}
