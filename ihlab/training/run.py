"""A run folder: `config.json`, `metrics.csv`, `checkpoints/step-N.safetensors`, `done.json` (or `diverged.json`)."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from filelock import FileLock, Timeout

from ihlab import kept
from ihlab.files import write_json, write_text
from ihlab.model.transformer import Transformer
from ihlab.training import checkpoint
from ihlab.training.clamp_hooks import install
from ihlab.training.config import RunConfig, even_choice, from_dict, to_dict
from ihlab.training.memory import require_model_fits
from ihlab.training.progress import Row
from tasks.config import ConfigError, require
from tasks.registry import require_registered


class Run:
    """Run folder: training writes it, analysis reads it.

    `Run.open(folder)` reads a stored one; `train` returns one. `run.metrics` is a DataFrame with a row
    for each evaluation; `run.model(step)` the model at a checkpoint.
    """

    def __init__(self, folder: Path, config: RunConfig) -> None:
        self.folder, self.config = folder, config

    @classmethod
    def open(cls, folder: str | Path) -> "Run":
        """Open a stored run by its folder, or one of `ihlab.kept` by its name.

        Raises `ConfigError` if the folder is none, or its config cannot be read.
        """
        folder = Path(folder)
        if not folder.exists() and str(folder) in kept.names():
            folder = kept.path(str(folder))
        try:
            stored = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ConfigError(f"{folder} is not a run folder: it has no config.json.") from None
        except json.JSONDecodeError as error:
            raise ConfigError(f"{folder / 'config.json'} is not JSON ({error}).") from None
        try:
            return cls(folder, from_dict(stored))
        except ConfigError as error:
            raise ConfigError(f"{folder / 'config.json'}: {error}") from None

    @classmethod
    def create(cls, config: RunConfig, root: str | Path) -> "Run":
        """The run folder of a config under `root`, made if new.

        Raises `ConfigError` if it holds another config, and for a task that is not registered.
        """
        require_registered(config.task)
        run = cls(config.folder(root), config)
        path = run.folder / "config.json"
        if path.exists():
            stored = cls.open(run.folder).config
            require(
                stored.but(name=config.name) == config,
                f"{run.folder} is the folder of another config; nothing was changed in it.",
            )
        else:
            write_json(path, to_dict(config))
        return run

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r}, {'done' if self.done else 'not finished'})"

    # Results

    @property
    def metrics(self) -> pd.DataFrame:
        """A row for each evaluation so far: step, tokens, train_loss, eval_loss, accuracy, ..."""
        require(self.has_metrics, f"{self.folder} has no metrics yet.")
        return pd.read_csv(self.folder / "metrics.csv")

    @property
    def has_metrics(self) -> bool:
        """True if the run was evaluated at least once."""
        return (self.folder / "metrics.csv").exists()

    @property
    def done(self) -> dict[str, Any] | None:
        """Summary of how the run ended (seconds, tokens a second, versions, device), or None if it has not."""
        path = self.folder / "done.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    @property
    def diverged(self) -> dict[str, Any] | None:
        """At which step the loss was not finite any more, or None if it always was, as far as the run went."""
        path = self.folder / "diverged.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    @property
    def checkpoints(self) -> list[int]:
        """The steps at which a model can be opened."""
        names = (self.folder / "checkpoints").glob("step-*.safetensors")
        return sorted(int(path.stem.removeprefix("step-")) for path in names if "optimizer" not in path.name)

    def model(self, step: int | None = None, device: str | torch.device = "cpu") -> Transformer:
        """The model at a checkpoint, by default the last, with a fork's clamps hooked in.

        Raises `ConfigError` if there is none at `step`.
        """
        step = self.require_checkpoint(step)
        require_model_fits(self.config.model)
        model = Transformer(self.config.model, seed=self.config.seed)
        path = self.checkpoint_path(step)
        checkpoint.load_model_state(model, checkpoint.load(path), path)
        install(model.to(device), self.config.clamps)
        model.trained_on = self.config.task
        return model.eval()

    def require_checkpoint(self, step: int | None = None) -> int:
        """The step given, by default the last one. Raises `ConfigError` if it has no checkpoint."""
        steps = self.checkpoints
        require(bool(steps), f"{self.folder} has no checkpoints yet.")
        step = steps[-1] if step is None else step
        require(step in steps, f"{self.folder} has no checkpoint at step {step}; it has {', '.join(map(str, steps))}.")
        return step

    def export(self, folder: str | Path, checkpoints: int = 8) -> "Run":
        """Copy what analysis needs to another folder: config, metrics and an even choice of the models.

        The copy opens as a run does, but without optimiser states it can be neither resumed nor forked. Raises
        `ConfigError` for a run without checkpoints, fewer than 2 `checkpoints`, or a folder that already has a config.
        """
        self.require_checkpoint()
        require(checkpoints >= 2, f"checkpoints is {checkpoints}, but must be at least 2: the first and the last.")
        copy = Run(Path(folder), self.config)
        require(not (copy.folder / "config.json").exists(), f"{folder} holds a run already; nothing was changed in it.")
        for step in even_choice(self.checkpoints, checkpoints):
            checkpoint.save(copy.checkpoint_path(step), checkpoint.load(self.checkpoint_path(step)))
        for name in ("metrics.csv", "done.json"):
            if (self.folder / name).exists():
                write_text(copy.folder / name, (self.folder / name).read_text(encoding="utf-8"))
        write_json(copy.folder / "config.json", to_dict(self.config))
        return copy

    # Writing

    def checkpoint_path(self, step: int) -> Path:
        """Path of the model stored at a step."""
        return self.folder / "checkpoints" / f"step-{step}.safetensors"

    def optimizer_path(self, step: int) -> Path:
        """Path of the optimiser state stored at a step."""
        return self.folder / "checkpoints" / f"step-{step}.optimizer.safetensors"

    def write_metrics(self, rows: list[Row]) -> None:
        """Replace the metrics."""
        self.write_table(as_csv(rows))

    def write_table(self, table: str) -> None:
        """Replace the metrics by a table as of `as_csv`."""
        write_text(self.folder / "metrics.csv", table)

    def write_diverged(self, step: int) -> None:
        """Say that the loss was not finite at a step."""
        write_json(self.folder / "diverged.json", {"step": step, "lr": self.config.lr})

    def write_done(self, summary: dict[str, Any]) -> None:
        """Say how the run ended: well, whatever it did the time before."""
        (self.folder / "diverged.json").unlink(missing_ok=True)
        write_json(self.folder / "done.json", summary)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the folder for one writer. Raises `ConfigError` if another process is training this run.

        The kernel lets go of it when the process dies; worker processes do not inherit it.
        """
        try:  # a file system that cannot lock is an error: a lock that outlives its process would be none here
            held = FileLock(self.folder / ".lock", fallback_to_soft=False).acquire(blocking=False)
        except Timeout:
            raise ConfigError(f"Another process is training {self.folder}.") from None
        with held:
            yield


def as_csv(rows: list[Row], header: bool = True) -> str:
    """Metrics as CSV, floats in full so that they read back bit for bit."""
    return pd.DataFrame(rows).to_csv(index=False, header=header)


def run_folders(root: str | Path) -> list[Path]:
    """The folders of all runs under a folder, by name, whether they can be opened or not."""
    return [path.parent for path in sorted(Path(root).glob("*/config.json"))]
