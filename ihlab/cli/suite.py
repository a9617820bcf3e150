"""The command `suite`: small trained models whose circuits are known."""

from pathlib import Path
from typing import Annotated, Literal

import tyro

from ihlab.cli.terminal import print_table, text
from tasks.config import require


def suite(
    action: Annotated[Literal["list", "build", "export", "card"], tyro.conf.Positional] = "list",
    names: Annotated[tuple[str, ...], tyro.conf.Positional] = (),
    /,
    seed: int = 0,
    step: int | None = None,
    root: Path = Path("runs"),
    jobs: int | None = None,
) -> None:
    """List small trained models whose circuits are known, train missing ones, or export one for other tools.

    Args:
        action: list; build (train the missing members, about half an hour on two cores for all); export (a
            Hugging Face folder); or card (print the model card).
        names: For build, members (default: all). For export, a member and a new folder. For card, a member.
        seed: The seed of the member, for export and card.
        step: The checkpoint, for export and card; by default the last.
        root: Where trained members are kept.
        jobs: For build, the number of members trained at a time; by default one per core, and 1 on a GPU.
    """
    from ihlab import suite as members

    needed = {"list": 0, "export": 2, "card": 1}.get(action, len(names))
    require(
        len(names) == needed,
        f"'ihlab suite {action}' takes {needed} names, but {len(names)} are given.",
    )
    if action == "build":
        for run in members.build(names, root, jobs):
            seconds = (run.done or {}).get("seconds", 0)
            print(
                text(
                    f"{run.folder}: accuracy {run.metrics['accuracy'].iloc[-1]:.3f}, {seconds:.0f} s"
                )
            )
    elif action == "export":
        print(text(members.export(names[0], names[1], seed, step, root)))
    elif action == "card":
        print(members.card(names[0], seed, step, root))
    else:
        print_table(members.models(root))
