"""What a page can be made of, opened: a run, a model, a cache, or patterns alone."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn
from transformer_lens import ActivationCache

from ihlab.interp.sources import OwnModel, opened_model, require_opened
from ihlab.training.config import even_choice
from ihlab.training.run import Run
from ihlab.viewer.training import described
from tasks import Task
from tasks.config import require


@dataclass(frozen=True)
class Opened:
    """A source: headings, what it is at each step, and what it says of its tokens.

    - `at(step)`: the model (`ihlab.interp.sources.HeadModel`), or a cache or patterns as given; of what is no run, at
      its only step, 0;
    - `task`: the one it was trained on, if known; `vocabulary`, `n_ctx`: of a model, else None.
    """

    title: str
    about: str
    steps: list[int]
    at: Callable[[int], Any]
    task: Task | None = None
    vocabulary: int | None = None
    n_ctx: int | None = None
    strict: bool = False


def opened(source: Any, checkpoints: int) -> Opened:
    """Open a source. Raises `ConfigError` for a run without checkpoints, and for a module that is no model of heads."""
    require_opened(source)
    if isinstance(source, Run):
        require(bool(source.checkpoints), f"{source.folder} has no checkpoints: there is nothing to view.")
        source.require_checkpoint()  # a finished run's page ends where the run did
        steps, cfg, task = even_choice(source.checkpoints, checkpoints), source.config.model, source.config.task
        about = described(cfg, task)
        return Opened(
            source.folder.name, about, steps, lambda step: OwnModel(source.model(step)), task, cfg.d_vocab, cfg.n_ctx,
            cfg.mask == "strict",
        )  # fmt: skip
    if isinstance(source, nn.Module):
        model = opened_model(source, "")
        if not isinstance(model, OwnModel):
            return Opened(model.name, "", [0], lambda _: model, None, model.d_vocab, model.n_ctx)
        cfg, trained_on = model.model.cfg, model.model.trained_on
        return Opened(
            "Transformer", described(cfg, trained_on), [0], lambda _: model, trained_on, cfg.d_vocab, cfg.n_ctx,
            cfg.mask == "strict",
        )  # fmt: skip
    title = "Cached attention" if isinstance(source, ActivationCache) else "Attention patterns"
    return Opened(title, "", [0], lambda _: source)
