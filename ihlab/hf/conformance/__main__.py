"""The command: check a model, or a tiny model of a family, and print a line as each check ends."""

import argparse
import importlib
import json
import re
import resource
import subprocess
import sys
import warnings
from functools import partial
from typing import Any

import torch
from transformers.utils import logging

from ihlab.hf.conformance import black_box, each, kernels
from ihlab.hf.conformance.families import CAUSAL, has_local_state, tiny
from ihlab.hf.conformance.suite import Result, line, said, verdict
from tasks.config import ConfigError, require

LIMIT = 150  # seconds of processor time for a family in the table
COLUMNS = [
    name for name in black_box.CHECKS if name != "compiled"
]  # to trace every family would take most of the time


def named(where: str) -> Any:
    """Return the function that is named by "module:function"."""
    module, _, function = where.partition(":")
    require(bool(module and function), f"--model is {where!r}, but must be module:function.")
    try:
        return getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"--model is {where!r}, which cannot be imported: {error}.") from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # code of the user, which may also end the process
        raise ConfigError(
            f"--model is {where!r}, which cannot be imported: {said(error)}."
        ) from error


def cell(result: Result) -> str:
    """Return an outcome for a table: a failure's size if known, and in parentheses the check that
    it may follow from.

    It is empty if all is right. An asterisk: the cache says that it cannot crop.
    """
    if "not measurable" in result.detail:
        return "unclear"
    if result.outcome != "FAIL":
        return result.outcome.removeprefix("pass")
    said_size = re.search(r"differ by (\S+)", result.detail)
    if result.crashed:
        text = "error"
    elif said_size:
        text = f"{float(said_size[1]):.1g}"
    else:
        text = "wrong"
    follows = f" ({result.follows})" if result.follows else ""
    return f"**{text}**{'*' * ('is_croppable' in result.detail)}{follows}"


def row(family: str, kind: str) -> str:
    """Return the row of a family in a Markdown table. The family is checked in a separate process."""
    command = [
        sys.executable,
        "-m",
        "ihlab.hf.conformance",
        "--family",
        family,
        "--json",
        "--kernels",
        kind,
    ]
    limit = partial(resource.setrlimit, resource.RLIMIT_CPU, (LIMIT, LIMIT))
    command += ["--checks", *COLUMNS]
    lines = subprocess.run(
        command, capture_output=True, preexec_fn=limit, check=False
    ).stdout.splitlines()
    results = [Result(**json.loads(line)) for line in lines]
    cells = {result.check: cell(result) for result in results}
    return f"|{family}|{'|'.join(cells.get(name, f'over {LIMIT} s') for name in COLUMNS)}|"


def local() -> Any:
    """Yield the families with local state. A family that cannot be tried is named on standard
    error.
    """
    for family in sorted(CAUSAL):
        try:
            if has_local_state(partial(tiny, family)):
                yield family
        except Exception as error:  # transformers may refuse the sizes in any way
            print(
                f"{family} cannot be tried: {' '.join(str(error).split())[:100]}",
                file=sys.stderr,
                flush=True,
            )


def main(arguments: list[str] | None = None) -> int:
    """Run the command. Return 1 if a check fails that `--allow` does not name."""
    parser = argparse.ArgumentParser("python -m ihlab.hf.conformance", description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--model", metavar="MODULE:FUNCTION", help="a function that returns the model"
    )
    what.add_argument(
        "--family", metavar="NAME", help="a tiny random model of a causal family of transformers"
    )
    what.add_argument("--families", action="store_true", help="list the families with local state")
    parser.add_argument("--table", action="store_true", help="with --families: check them all")
    parser.add_argument("--checks", nargs="+", metavar="CHECK", help="only these checks")
    parser.add_argument(
        "--allow",
        nargs="+",
        metavar="CHECK",
        default=[],
        help="a failure of these is a known limit",
    )
    parser.add_argument(
        "--kernels",
        choices=("installed", "stand-in"),
        default="installed",
        help="stand-in: keep packed documents apart on a CPU, by PyTorch code in place of the kernels",
    )
    parser.add_argument(
        "--json", action="store_true", help="print each result as a JSON object in a line"
    )
    options = parser.parse_args(arguments)
    if options.table and not options.families:
        parser.error("--table needs --families.")
    if options.families and (options.checks or options.allow or options.json):
        parser.error("--families takes no --checks, --allow or --json.")
    warnings.simplefilter("ignore")
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.set_num_threads(1)  # small models are fastest so
    results = []
    try:
        if options.kernels == "stand-in":
            kernels.use_stand_ins()
        if options.families:
            if options.table:
                print(f"|family|{'|'.join(COLUMNS)}|\n|{'---|' * (len(COLUMNS) + 1)}", flush=True)
            for family in local():
                listed = row(family, options.kernels) if options.table else family
                print(listed, flush=True)
            return 0
        make = named(options.model) if options.model else partial(tiny, options.family)
        for result in each(make, options.checks, allow=options.allow):
            printed = json.dumps(result._asdict()) if options.json else line(result)
            print(printed, flush=True)
            results.append(result)
        if options.family and not has_local_state(make):
            print(
                f"{options.family} has no local state: tokens see earlier ones only by attention.",
                file=sys.stderr,
            )
    except ConfigError as error:
        parser.error(str(error))
    if said_last := verdict(results):
        print(said_last, file=sys.stderr if options.json else sys.stdout)
    if all(result.outcome in ("-", "refuses") for result in results):
        parser.error("No check was made: none applies, or the model refuses all.")
    return int(any(result.outcome == "FAIL" for result in results))


if __name__ == "__main__":
    sys.exit(main())
