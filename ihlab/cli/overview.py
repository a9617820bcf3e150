"""The page of `ihlab --help`: the commands, grouped by what a person wants, each with an example."""

from collections.abc import Callable, Mapping

from rich.table import Table

from ihlab.cli.terminal import console

GROUPS = {
    "Train": {
        "train": "ihlab train multihop --steps 500 --name hops",
        "sweep": "ihlab sweep sweep.toml --jobs 2",
        "sample": "ihlab sample induction --rows 2",
    },
    "Look": {
        "runs": "ihlab runs",
        "view": "ihlab view small --out small.html",
    },
    "Explain": {
        "heads": "ihlab heads small",
        "attribute": "ihlab attribute small",
        "shift": "ihlab shift small",
    },
    "Every sequence": {
        "certify": "ihlab certify narrow --lengths 3 16",
        "attack": "ihlab attack small",
    },
    "Reproduce": {"reproduce": "ihlab reproduce figure1a"},
    "Check a method of your own": {
        "bench": "ihlab bench eap-ig --quick",
        "suite": "ihlab suite export induction-vanilla-2 folder",
    },
}
"""An example of each command, which is printed below its description."""


def print_overview(commands: Mapping[str, Callable[..., None]]) -> None:
    """Print what each command does, the first paragraph of its docstring, and its example."""
    shown = console()
    shown.print("usage: ihlab COMMAND [OPTIONS]\n")
    shown.print(
        "Train small transformers with token shifts, find induction heads, and reproduce the paper's figures.\n"
    )
    for title, examples in GROUPS.items():
        table = Table(
            title=title, title_justify="left", title_style="bold", box=None, show_header=False
        )
        table.add_column(min_width=max(map(len, commands)))
        for name, example in examples.items():
            table.add_row(name, (commands[name].__doc__ or "").partition("\n\n")[0])
            table.add_row("", example, style="dim")
        shown.print(table, "")
    shown.print(
        "'ihlab COMMAND --help' explains a command's options, and 'ihlab --version' prints the version."
    )
