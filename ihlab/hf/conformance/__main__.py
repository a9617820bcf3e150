"""The command: check a model, or a tiny model of a family, and print a line as each check ends."""

import argparse
import importlib
import json
import sys
import warnings
from functools import partial
from typing import Any

import torch
from transformers.utils import logging

from ihlab.hf.conformance import each
from ihlab.hf.conformance.families import tiny
from ihlab.hf.conformance.suite import line, said, verdict
from tasks.config import ConfigError, require


def named(where: str) -> Any:
    """Return the function that is named by "module:function"."""
    module, _, function = where.partition(":")
    require(bool(module and function), f"--model is {where!r}, but must be module:function.")
    try:
        return getattr(importlib.import_module(module), function)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # code of the user, which may also end the process
        raise ConfigError(
            f"--model is {where!r}, which cannot be imported: {said(error)}."
        ) from error


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
    parser.add_argument("--checks", nargs="+", metavar="CHECK", help="only these checks")
    parser.add_argument(
        "--allow",
        nargs="+",
        metavar="CHECK",
        default=[],
        help="a failure of these is a known limit",
    )
    parser.add_argument(
        "--json", action="store_true", help="print each result as a JSON object in a line"
    )
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.set_num_threads(1)  # small models are fastest so
    results = []
    try:
        make = named(options.model) if options.model else partial(tiny, options.family)
        for result in each(make, options.checks, allow=options.allow):
            printed = json.dumps(result._asdict()) if options.json else line(result)
            print(printed, flush=True)
            results.append(result)
    except ConfigError as error:
        parser.error(str(error))
    if said_last := verdict(results):
        print(said_last, file=sys.stderr if options.json else sys.stdout)
    if all(result.outcome in ("-", "refuses") for result in results):
        parser.error("No check was made: none applies, or the model refuses all.")
    return int(any(result.outcome == "FAIL" for result in results))


if __name__ == "__main__":
    sys.exit(main())
