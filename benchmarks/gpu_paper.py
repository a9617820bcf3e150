"""The KV shifting arm of Figure 1a at the paper's scale, one seed, until its accuracy has jumped.

The paper trains 5000 steps. Figure 1a shows the jump to 90% accuracy at first repeats, so this run ends there.
"""

import json
from pathlib import Path

import tyro

from ihlab.claims.experiment import Scale
from ihlab.claims.induction import kv_runs
from ihlab.files import write_text
from ihlab.training.config import RunConfig
from ihlab.training.train import train

JUMPED = 0.9


def config(scale: Scale) -> RunConfig:
    """Return the config of the arm's first seed, ending after the jump, with few checkpoints (each takes 0.25 GB)."""
    first = kv_runs(scale)[0].config
    return first.replace(name=f"{first.name}-until", stop_at_accuracy=JUMPED, checkpoints=2)


def main(out: Path, root: Path = Path("runs"), device: str = "auto", scale: Scale = "paper") -> None:
    """Train, and write the results.

    Args:
        out: A JSON file for seconds, steps, tokens per second, and every evaluation.
        root: The folder of runs. An interrupted run is resumed.
        device: A torch device, or auto: a GPU if there is one.
        scale: paper, or a smaller scale to try the code.
    """
    run = train(config(scale), root, device)
    found = {"run": run.folder.name, "until": JUMPED, **(run.done or {})}
    found["metrics"] = run.metrics.to_dict("list")
    write_text(out, json.dumps(found, indent=1))


if __name__ == "__main__":
    tyro.cli(main)
