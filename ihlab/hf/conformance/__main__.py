"""The command: check a model, or a tiny model of a family, and print a line as each check ends."""

import json
import sys
import warnings
from contextlib import suppress
from functools import partial
from pkgutil import resolve_name
from typing import Annotated, Any, Literal

import torch
import tyro
from transformers.utils import logging

from ihlab.hf.conformance import each
from ihlab.hf.conformance.families import CAUSAL, has_local_state, shows_state, tiny
from ihlab.hf.conformance.kernels import use_stand_ins
from ihlab.hf.conformance.shifted import taps_of
from ihlab.hf.conformance.suite import line, prepared, said, verdict
from tasks.config import ConfigError, require

COMMAND = "python -m ihlab.hf.conformance"
NO_STATE = (
    "If each token attends to itself only, earlier tokens change no logit: no local state shows, "
    "except perhaps one of the keys, so none was checked."
)


def named(where: str) -> Any:
    """Return the function that is named by "module:function"."""
    require(":" in where, f"--model is {where!r}, but must be module:function.")
    try:
        return resolve_name(where)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # code of the user, which may also end the process
        raise ConfigError(
            f"--model is {where!r}, which cannot be imported: {said(error)}."
        ) from error


def list_local() -> None:
    """Print the families with local state; on standard error, those that cannot be tried."""
    for family in sorted(CAUSAL):
        try:
            if has_local_state(partial(tiny, family)):
                print(family, flush=True)
        except Exception as error:  # transformers may refuse the sizes in any way
            print(f"{family} cannot be tried: {said(error)[:100]}", file=sys.stderr, flush=True)


def check(
    model: str = "",
    family: str = "",
    families: bool = False,
    checks: tuple[str, ...] = (),
    allow: tuple[str, ...] = (),
    kernels: Literal["installed", "stand-in"] = "installed",
    as_json: Annotated[bool, tyro.conf.arg(name="json")] = False,
) -> int:
    """Check a model. Return 1 if a check fails that `--allow` does not name.

    Args:
        model: A function that returns the model, as module:function.
        family: A tiny random model of this causal family of transformers.
        families: List the families with local state.
        checks: Only these checks.
        allow: A failure of these is a known limit.
        kernels: stand-in: keep packed documents apart on a CPU, by PyTorch code in place of the
            kernels.
        as_json: Print each result as a JSON object in a line.
    """
    one = bool(model) + bool(family) + families == 1
    require(one, "Give one of --model MODULE:FUNCTION, --family NAME and --families.")
    if kernels == "stand-in":
        use_stand_ins()
    if families:
        list_local()
        return 0
    make = named(model) if model else partial(tiny, family)
    results = []
    for result in each(make, checks or None, allow):
        print(json.dumps(result._asdict()) if as_json else line(result), flush=True)
        results.append(result)
    if said_last := verdict(results):
        print(said_last, file=sys.stderr if as_json else sys.stdout)
    with suppress(Exception), torch.no_grad():  # a model may not run so
        checked = prepared(make)
        if not taps_of(checked) and not shows_state(checked):
            print(NO_STATE, file=sys.stderr)
    outcomes = {result.outcome for result in results}
    require(
        not outcomes <= {"-", "refuses"},
        "No check was made: none applies, or the model refuses all.",
    )
    return int("FAIL" in outcomes)


def main(arguments: list[str] | None = None) -> int:
    """Run the command. An error is one sentence, with exit status 2."""
    warnings.simplefilter("ignore")
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.set_num_threads(1)  # small models are fastest so
    try:
        return tyro.cli(check, prog=COMMAND, args=arguments, config=(tyro.conf.FlagCreatePairsOff,))
    except ConfigError as error:
        print(f"{COMMAND}: error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
