"""The command line: `ihlab reproduce`, `train`, `sweep`, `sample`, `runs`, `heads`, `shift`, `view`.

Nothing here imports torch before a command needs it: `ihlab --help` answers at once.
"""

import os
import shlex
import sys
from collections.abc import Callable, Sequence

import tyro

from ihlab.cli.commands import reproduce, runs, sample, sampler, train, trainer
from ihlab.cli.inspect import heads, shift, view
from ihlab.cli.named import registered_task
from ihlab.cli.sweep import sweep
from ihlab.training.interrupt import exit_code, interruptible
from tasks import TASKS, InductionTask
from tasks.config import ConfigError

OF_TASKS = {"train": trainer, "sample": sampler}
"""Commands whose options depend on the task."""

COMMANDS: dict[str, Callable[..., None]] = {
    "reproduce": reproduce,
    "train": train,
    "sweep": sweep,
    "sample": sample,
    "runs": runs,
    "heads": heads,
    "shift": shift,
    "view": view,
}


@interruptible()
def main(args: Sequence[str] | None = None) -> None:
    """Run the `ihlab` command. Exits with 2 for a bad input, 130 after Ctrl-C, 143 after SIGTERM."""
    given = list(sys.argv[1:] if args is None else args)
    argv = list(given)
    try:
        if argv == ["train"] or (argv[:1] == ["train"] and argv[1].startswith("--") and argv[1] != "--help"):
            argv.insert(1, InductionTask.kind)  # the default task
        if argv and argv[0] in OF_TASKS and argv[1:2] and ":" in argv[1]:
            argv[1] = registered_task(argv[1])
        if argv and argv[0] in OF_TASKS and argv[1:2] and argv[1] in TASKS:
            tyro.cli(OF_TASKS[argv[0]](argv[1]), prog=f"ihlab {argv[0]} {argv[1]}", args=argv[2:])
            return
        tyro.extras.subcommand_cli_from_dict(COMMANDS, prog="ihlab", args=argv, description=__doc__.splitlines()[0])
    except KeyboardInterrupt as stopped:
        message = str(stopped) or "Stopped."
        again = "the same torchrun command" if "WORLD_SIZE" in os.environ else f"ihlab {shlex.join(given)}"
        if os.environ.get("RANK", "0") == "0":  # under torchrun, rank 0 alone prints
            print(f"\nihlab: {message} To go on: {again}", file=sys.stderr)
        raise SystemExit(exit_code(stopped)) from None
    except ConfigError as error:
        print(f"ihlab: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except RuntimeError as error:  # a diverged run, or out of memory: a message without a traceback
        if type(error).__module__.partition(".")[0] != "ihlab":
            raise
        print(f"ihlab: {error}", file=sys.stderr)
        raise SystemExit(1) from None
