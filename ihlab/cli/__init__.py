"""The command line: train, look at models, attribute, make the suite, and reproduce figures.

torch is imported only when a command needs it, so that `ihlab --help` answers at once.
"""

import atexit
import mmap
import os
import re
import shlex
import sys
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from traceback import walk_tb
from typing import Any, NoReturn

import tyro

from ihlab.cli.attack import attack
from ihlab.cli.attribute import attribute
from ihlab.cli.bench import bench
from ihlab.cli.certify import certify
from ihlab.cli.commands import name_figures, reproduce, runs, sample, sampler, train, trainer
from ihlab.cli.heads import heads
from ihlab.cli.inspect import shift, view
from ihlab.cli.named import registered_task
from ihlab.cli.overview import print_overview
from ihlab.cli.suite import suite
from ihlab.cli.sweep import sweep
from ihlab.cli.terminal import print_anywhere, text
from ihlab.cli.usage import later, refusing_in_one_sentence
from ihlab.training.interrupt import exit_code, interruptible
from tasks import TASKS, InductionTask
from tasks.config import ConfigError, choose, require, shown

SPARE = 2**26
"""Bytes of address space kept in reserve: freed when memory has run out, so that the command can end in order."""

SYSTEM_ERROR = 74
"""Exit code for a full disk, a missing permission, too little memory or a closed output (EX_IOERR of sysexits.h).

It is no verdict: `certify` and `attack` exit with 1 if a sequence is answered wrongly.
"""

OF_TASKS = {"train": trainer, "sample": sampler}
"""Commands whose options depend on the task."""

COMMANDS: dict[str, Callable[..., None]] = {
    command.__name__: command
    for command in (
        train,
        sweep,
        sample,
        runs,
        heads,
        attribute,
        bench,
        shift,
        certify,
        attack,
        view,
        suite,
        reproduce,
    )
}


def main(args: Sequence[str] | None = None) -> None:
    """Run the `ihlab` command.

    Exits with 2 for bad input, with 1 for a run that diverged or failed, with 130 after Ctrl-C, with 143 after SIGTERM,
    and with `SYSTEM_ERROR` if the system refuses something. Each prints one sentence.
    """
    print_anywhere()
    spare = mmap.mmap(-1, SPARE)
    arguments = list(sys.argv[1:] if args is None else args)
    if args is None:
        _watch(f"ihlab {shlex.join(arguments)}")
    try:
        with warnings.catch_warnings():
            warnings.showwarning = partial(_show_warning, warnings.showwarning)
            _run(list(arguments))
    except KeyboardInterrupt as stopped:
        message = str(stopped) or "Stopped."
        print(f"\nihlab: {text(message)} To go on: ihlab {shlex.join(arguments)}", file=sys.stderr)
        raise SystemExit(exit_code(stopped)) from None
    except ConfigError as error:
        _end(str(error), 2)
    except BrokenPipeError:  # the reader of the output has closed it
        os.dup2(
            os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno()
        )  # otherwise the final flush fails too
        raise SystemExit(SYSTEM_ERROR) from None
    except OSError as error:
        _end(_with_its_file(error), SYSTEM_ERROR)
    except UnicodeEncodeError as error:
        _end(
            f"{shown(error.object)} cannot be a name here, where names are {error.encoding}.",
            SYSTEM_ERROR,
        )
    except (
        MemoryError,
        RuntimeError,
    ) as error:  # ihlab's own: a run that diverged, a sweep with failures
        if type(error).__module__.partition(".")[0] == "ihlab":
            _end(str(error), 1)
        if not _is_out_of_memory(error) and not _memory_is_short():
            raise
        reason = str(error).partition("\n")[0] or "there is not enough."
        spare.close()
        _end(f"Out of memory: {reason}", SYSTEM_ERROR)
    except BaseException as error:
        if library := _failed_to_load(error):
            _end(_not_loaded(library, error), SYSTEM_ERROR)
        if isinstance(error, SystemExit) or (
            type(error).__name__ != "PanicException" and not _memory_is_short()
        ):
            raise  # a PanicException comes from a Rust library, which has no other error for too little memory
        spare.close()  # the exit handlers of libraries need memory, too
        reason = " ".join(str(error).split())
        _end(f"A library stopped ({reason}), most likely because memory ran out.", SYSTEM_ERROR)


def _watch(command: str) -> None:
    """Start a process that prints how to continue if the system kills this one, as it may when out of memory."""
    reading, writing = os.pipe()
    if os.fork():
        os.close(reading)
        atexit.register(os.write, writing, b".")
        return
    os.setsid()  # so that Ctrl-C reaches the command only
    os.close(writing)
    os.close(sys.stdout.fileno())
    if not os.read(reading, 1):
        said = "The system ended this command: it was killed, or memory ran out. To go on from the last checkpoint:"
        os.write(sys.stderr.fileno(), f"ihlab: {said} {text(command)}\n".encode(errors="replace"))
    os._exit(0)


def _show_warning(usual: Callable[..., None], message: Warning | str, *more: Any) -> None:
    """Show ihlab's own warnings as one sentence, without their place in the code. Show other warnings as usual."""
    _, filename, *_ = more
    if Path(filename).is_relative_to(Path(__file__).parents[1]):
        print(f"ihlab: {text(str(message))}", file=sys.stderr)
    else:
        usual(message, *more)


@interruptible()
def _run(argv: list[str]) -> None:
    for arg in argv:  # tyro prints arguments to the terminal unescaped
        plain = not re.search(r"[\x00-\x1f\x7f-\x9f]", arg)
        require(plain, f"The argument {shown(arg)} holds a control character.")
    if argv[:1] == ["train"] and (argv == ["train"] or argv[1].startswith("-")):
        argv.insert(1, InductionTask.kind)
    if argv and argv[0] in OF_TASKS and argv[1:2] and not argv[1].startswith("-"):
        argv[1] = registered_task(argv[1]) if ":" in argv[1] else choose("task", argv[1], TASKS)
        with refusing_in_one_sentence():
            command = later(OF_TASKS[argv[0]](argv[1], argv[2:]))
            call = tyro.cli(command, prog=f"ihlab {argv[0]} {argv[1]}", args=argv[2:])
        call()
        return
    if argv == ["--version"]:
        print(f"ihlab {version('ihlab')}")
        return
    if not argv or argv[0] in ("-h", "--help"):
        print_overview(COMMANDS)
        return
    named = COMMANDS[choose("command", argv[0], COMMANDS)]
    if named is reproduce:
        name_figures()
    with refusing_in_one_sentence():
        call = tyro.cli(later(named), prog=f"ihlab {argv[0]}", args=argv[1:])
    call()


def _end(sentence: str, code: int) -> NoReturn:
    print(f"ihlab: {text(sentence)}", file=sys.stderr)
    raise SystemExit(code) from None


def _with_its_file(error: OSError) -> str:
    """Return a sentence of the system, with the file that it is about."""
    said = f"{error.strerror or error}."
    if error.filename is None:
        return said
    return f"{os.fsdecode(error.filename)}: {said}"


def _not_loaded(library: str, error: BaseException) -> str:
    said = f"{library} cannot be loaded ({' '.join(str(error).split())[:100]})."
    named = sorted(name for name in os.environ if library.upper() in name)
    if named:
        said += f" Check the environment: {', '.join(named)}."
    return said


def _failed_to_load(error: BaseException) -> str | None:
    """Return the library whose import raised an error, such as over an environment variable that it refuses."""
    innermost = "ihlab"
    for frame, _ in walk_tb(error.__traceback__):
        if frame.f_code.co_name == "<module>":
            innermost = frame.f_globals["__name__"].partition(".")[0]
    known = isinstance(error, Exception) and innermost not in ("ihlab", "tasks", "__main__")
    return innermost if known and not _memory_is_short() else None


def _memory_is_short() -> bool:
    """Return whether the system refuses memory. A library may then raise an error of any class, even on import."""
    try:
        mmap.mmap(-1, 4 * SPARE).close()
    except OSError:
        return True
    return False


def _is_out_of_memory(error: Exception) -> bool:
    """Return whether Python, NumPy or torch ran out of memory. torch has its own exception class for a GPU only."""
    said = ("can't allocate memory", "out of memory")
    return isinstance(error, MemoryError) or any(words in str(error).lower() for words in said)
