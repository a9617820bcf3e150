"""What a page can be made of, opened: a run, a model, a cache, or patterns alone."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn
from transformer_lens import ActivationCache

from ihlab.model.transformer import Transformer
from ihlab.training.config import even_choice
from ihlab.training.run import Run
from ihlab.viewer.training import described
from tasks import Task
from tasks.config import require


@dataclass(frozen=True)
class Opened:
    """A source: headings, what it is at each step, and what it says of its tokens.

    - `at(step)`: what reads rows or holds their patterns; of what is no run, the source itself at its only step, 0;
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
    """Open a source. Raises `ConfigError` for a run without checkpoints."""
    if isinstance(source, Run):
        require(bool(source.checkpoints), f"{source.folder} has no checkpoints: there is nothing to view.")
        source.require_checkpoint()  # a finished run's page ends where the run did
        steps, cfg, task = even_choice(source.checkpoints, checkpoints), source.config.model, source.config.task
        about = described(cfg, task)
        return Opened(
            source.folder.name, about, steps, source.model, task, cfg.d_vocab, cfg.n_ctx, cfg.mask == "strict"
        )
    if isinstance(source, Transformer):
        cfg = source.cfg
        about = described(cfg, source.trained_on)
        return Opened(
            "Transformer", about, [0], lambda _: source, source.trained_on, cfg.d_vocab, cfg.n_ctx, cfg.mask == "strict"
        )
    if isinstance(source, nn.Module):
        of_other = getattr(source, "cfg", None) or getattr(source, "config", None)
        vocabulary = getattr(of_other, "d_vocab", None) or getattr(of_other, "vocab_size", None)
        n_ctx = getattr(of_other, "n_ctx", None) or getattr(of_other, "max_position_embeddings", None)
        return Opened(type(source).__name__, "", [0], lambda _: source, None, vocabulary, n_ctx)
    title = "Cached attention" if isinstance(source, ActivationCache) else "Attention patterns"
    return Opened(title, "", [0], lambda _: source)
