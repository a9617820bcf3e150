"""The command `bench`: run attribution methods on the standard set, check entries, write the leaderboard."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from ihlab.cli.named import registered_method
from ihlab.cli.terminal import print_table, text
from tasks.config import choose, require

if TYPE_CHECKING:
    from ihlab.suite.bench import Entry

ENTRIES = Path("benchmarks/entries")


def bench(
    methods: Annotated[tuple[str, ...], tyro.conf.Positional] = (),
    /,
    quick: bool = False,
    member: tuple[str, ...] = (),
    out: Path | None = None,
    verify: tuple[Path, ...] = (),
    leaderboard: Path | None = None,
) -> None:
    """Score attribution methods on the standard set against three truths, or check entries of others.

    Args:
        methods: Names of methods, your own as my_file:my_method (a function of a problem and a kind of nodes,
            `help(ihlab.attribution.register_method)`), or files with estimates (.json: an entry without
            scores); by default all methods of ihlab.
        quick: Score only one setting of each small member and kind of nodes: about a minute.
        member: Score only on these members of the standard set.
        out: Write one entry per method, METHOD.json, to this folder, after each problem.
        verify: Measure these entries again. At the first entry that differs, the command prints the first difference
            and exits with 1. To run a method of your own again, name it, too.
        leaderboard: Write the page of the entries in benchmarks/entries here, and measure nothing.
    """
    report("Loading.")
    from ihlab.storage.files import write_text
    from ihlab.suite.bench import default_methods, run_bench, settings
    from ihlab.suite.entries import (
        differences,
        entry_text,
        is_known,
        read_entries,
        read_entry,
        require_name,
    )
    from ihlab.suite.leaderboard import page, summary

    if leaderboard is not None:
        paths = sorted(ENTRIES.glob("*.json"))
        require(bool(paths), f"There are no entries in {ENTRIES}: write them with --out {ENTRIES}.")
        write_text(leaderboard, page(read_entries(paths).values()))
        return
    files = [name for name in methods if name.endswith(".json")]
    named = [
        registered_method(name) if ":" in name else name for name in methods if name not in files
    ]
    if verify:
        read = {path: read_entry(path) for path in verify}
        entered = {entry["method"] for entry in read.values()}
        for name in named + files:
            choose("method of these entries", name, entered)
        for path, entry in read.items():
            differ = differences(entry, member, report)
            if differ:
                print(text(f"{path}: {len(differ)} differ, first {differ[0]}"))
                raise SystemExit(1)
            how = "the method was run again" if is_known(entry) else "its method was not run"
            print(text(f"{path}: as stored; {how}"))
        return
    if not methods:
        named = default_methods()
    stored = read_entries(files)
    for name in named:
        require_name(name)
        require(
            name not in stored, f"The method {name!r} is named, and has a file: give one of them."
        )

    def save(entries: "dict[str, Entry]") -> None:
        for name, entry in entries.items():
            if out is not None:
                write_text(out / f"{name}.json", entry_text(entry))

    table = settings(quick, member)
    entries = run_bench(dict.fromkeys(named) | stored, table, report, save)
    columns = [
        "nodes",
        "method",
        "settings",
        "rank",
        "reverse_rank",
        "shapley_rank",
        "worst",
        "recall",
        "regret",
    ]
    print_table(summary(entries.values(), table)[columns].round(2))
    for name, entry in entries.items():
        for note in dict.fromkeys(entry["notes"].values()):
            print(text(f"{name}: {note}"))


def report(line: str) -> None:
    """Print a line of progress."""
    print(text(line), file=sys.stderr, flush=True)
