"""A run folder: `config.json`, `metrics.csv`, `checkpoints/step-N.safetensors`, `done.json` (or
`diverged.json`).
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from ihlab.model.transformer import Transformer
from ihlab.runtime.settings import own_settings
from ihlab.storage.files import (
    is_file,
    locked,
    require_no_link,
    write_json,
    write_text,
)
from ihlab.storage.stored import present
from ihlab.training import checkpoint
from ihlab.training.clamp_hooks import install
from ihlab.training.config import RunConfig, to_dict
from ihlab.training.find_runs import FILES
from ihlab.training.folder import RunFolder
from ihlab.training.memory import require_model_fits
from ihlab.training.progress import Row
from ihlab.training.stored_metrics import as_csv
from tasks.config import require, shown
from tasks.files import remove_partial
from tasks.registry import require_registered

TO_CREATE = 10.0  # seconds


class Run(RunFolder):
    """Run folder: training writes it, analysis reads it.

    `Run.open` finds a stored run by its folder or name; `train` returns a run. `run.metrics` is a
    DataFrame with one row per evaluation; `run.model(step)` is the model at a checkpoint.
    """

    _lock: os.stat_result | None = None  # the lock file, once this process has locked it

    @classmethod
    def create(cls, config: RunConfig, root: str | Path) -> "Run":
        """Return the run of a config under `root`; make its folder if it is new.

        Raises `ConfigError` if the folder holds another config, and for a task that is not
        registered.
        """
        require_registered(config.task)
        text = str(root)  # safetensors can open no other path than UTF-8
        require(
            text.encode(errors="ignore").decode() == text,
            f"The folder {shown(text)} is not UTF-8, as it must be.",
        )
        run = cls(config.folder(root), config)
        path = run.folder / "config.json"
        if not present(path):
            with run.lock(TO_CREATE):  # another process may create it now
                if not present(path):
                    write_json(path, to_dict(config))
        cls.open(run.folder)  # raises unless the config has the hash in the folder's name
        return run

    @own_settings()
    def model(self, step: int | None = None, device: str | torch.device = "cpu") -> Transformer:
        """Return the model at a checkpoint, by default the last, with the run's clamps as hooks.

        Raises `ConfigError` if there is no checkpoint at `step`, or if its file is damaged.
        """
        step = self.require_checkpoint(step)
        require_model_fits(self.config.model)
        model = Transformer(self.config.model, seed=self.config.seed)
        weights = checkpoint.load_weights(self.checkpoint_path(step), model, self.about(step))
        checkpoint.load_model_state(model, weights)
        install(model.to(device), self.config.clamps)
        model.trained_on = self.config.task
        return model.eval()

    def write_metrics(self, rows: list[Row]) -> int:
        """Replace the metrics, and return their size in bytes."""
        text = as_csv(rows)
        write_text(self.folder / "metrics.csv", text)
        return len(text.encode())

    @contextmanager
    def lock(self, wait: float = 0.0) -> Iterator[None]:
        """Lock the folder for one writer, and remove files that a killed writer left half-written.

        Raises `ConfigError` if after `wait` seconds another process is still training this run.
        """
        for name in ("", ".lock", *FILES):
            require_no_link(self.folder / name)
        with locked(
            self.folder / ".lock", f"Another process is training {self.folder}.", wait
        ) as self._lock:
            for name in FILES:
                remove_partial(self.folder, name)
            for name in ("checkpoints", "lessons"):
                remove_partial(self.folder / name, "step-*.safetensors")
            yield

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Guard writes to the folder: raise `ConfigError` if it is no longer the folder that was
        locked.
        """
        require_no_link(self.folder / "checkpoints")
        require_no_link(self.folder / "lessons")
        self._require_own()
        try:
            yield
        finally:
            self._require_own()  # a removed folder explains a failed write, or was made anew by the write

    def _require_own(self) -> None:
        require(
            self._lock is None or is_file(self.folder / ".lock", self._lock),
            f"{self.folder}, or the file .lock in it, was removed or replaced while the run was trained: "
            f"nothing more is written there.",
        )
