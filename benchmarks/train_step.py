"""A whole training step: KV shifting against vanilla, ours against Hugging Face's Llama."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from paired import Ratio, ratio, take_turns
from torch.nn import functional as F

from ihlab import ModelConfig, RunConfig, Transformer
from ihlab.model.hf import to_llama
from ihlab.training.loss import summed_loss
from ihlab.training.stream import Scored, Stream
from tasks import IGNORE, InductionTask

SHAPES = {"small": (192, 48, 32, 64), "larger": (512, 64, 64, 64)}
"""Vocabulary, length, d_model, batch; 4 heads."""

BARS = {"eager": 1.10, "compiled": 1.05}
"""How much longer a KV-shifting step may take than a vanilla one."""


@dataclass
class Stepper:
    """A model with its optimiser, and a whole step as a call."""

    model: torch.nn.Module
    loss: Callable[[], torch.Tensor]

    def __post_init__(self) -> None:
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, betas=(0.9, 0.95), fused=True)

    def __call__(self) -> None:
        """Forward, backward, clip, update."""
        self.loss().backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()


def ours(cfg: ModelConfig, batch: Scored, compiled: bool) -> Stepper:
    """Our model and our loss: unembedding at scored positions only."""
    model = Transformer(cfg)
    loss = torch.compile(summed_loss) if compiled else summed_loss
    return Stepper(model, lambda: loss(model, batch.tokens, batch.index, batch.targets) / batch.count)


def llama(cfg: ModelConfig, batch: Scored, compiled: bool) -> Stepper:
    """The same weights in Hugging Face's Llama, and the same loss from its logits at every position."""
    model = to_llama(Transformer(cfg))
    targets = torch.full((batch.tokens.numel(),), IGNORE)
    targets[batch.index[: batch.count]] = batch.targets[: batch.count]

    def full_loss() -> torch.Tensor:
        logits = model(batch.tokens, use_cache=False).logits
        return F.cross_entropy(logits.flatten(0, 1), targets, ignore_index=IGNORE)

    return Stepper(model, torch.compile(full_loss) if compiled else full_loss)


def measure(rounds: int) -> tuple[list[dict[str, str]], list[dict[str, str]], list[str]]:
    """A table of times, a table of ratios, and a sentence for each bar that was missed."""
    torch.set_num_threads(1)
    times: list[dict[str, str]] = []
    ratios: list[dict[str, str]] = []
    missed: list[str] = []
    for shape, (vocabulary, length, d_model, rows) in SHAPES.items():
        task = InductionTask(vocab_size=vocabulary, length=length)
        for n_layers in (1, 2):
            torch.compiler.reset()
            cfg = ModelConfig(n_layers=n_layers, d_model=d_model, n_heads=4, d_vocab=vocabulary, n_ctx=length)
            batch = Stream(task, RunConfig(task=task, model=cfg).seed, rows).step(0)[0]
            kinds = {
                "vanilla": lambda c, cfg=cfg, batch=batch: ours(cfg, batch, c),
                "KV shifting": lambda c, cfg=cfg, batch=batch: ours(cfg.but(attention="kv_shift"), batch, c),
                "Hugging Face Llama": lambda c, cfg=cfg, batch=batch: llama(cfg, batch, c),
            }
            steppers = {(kind, mode): make(mode == "compiled") for kind, make in kinds.items() for mode in BARS}
            _same_loss(steppers["vanilla", "eager"], steppers["Hugging Face Llama", "eager"])
            first = {name: _seconds(stepper) for name, stepper in steppers.items()}
            seconds = take_turns({str(name): stepper for name, stepper in steppers.items()}, rounds)
            where = f"{shape}, {n_layers} layer{'s' if n_layers > 1 else ''}"
            for (kind, mode), start in first.items():
                s = seconds[str((kind, mode))]
                times.append(
                    {
                        "shape": where,
                        "model": kind,
                        "mode": mode,
                        "ms a step": f"{1e3 * statistics.median(s):.1f} ({1e3 * min(s):.1f} .. {1e3 * max(s):.1f})",
                        "k tokens/s": f"{rows * length / statistics.median(s) / 1e3:.0f}",
                        "first step, s": f"{start:.1f}",
                    }
                )
            found = _ratios(seconds)
            ratios.append({"shape": where, **{name: str(value) for name, value in found.items()}})
            bars = {f"KV / vanilla, {mode}": bar for mode, bar in BARS.items()} | {"ours / Llama, best of each": 1.0}
            missed += [
                f"{n} is {found[n]} at {where}, not <= {bar}." for n, bar in bars.items() if found[n].median > bar
            ]
    return times, ratios, missed


def _ratios(seconds: dict[str, list[float]]) -> dict[str, Ratio]:
    def of(kind: str, mode: str) -> list[float]:
        return seconds[str((kind, mode))]

    def best(kind: str) -> list[float]:
        return min((of(kind, mode) for mode in BARS), key=statistics.median)

    found = {f"KV / vanilla, {mode}": ratio(of("KV shifting", mode), of("vanilla", mode)) for mode in BARS}
    found |= {f"ours / Llama, {mode}": ratio(of("vanilla", mode), of("Hugging Face Llama", mode)) for mode in BARS}
    found["ours / Llama, best of each"] = ratio(best("vanilla"), best("Hugging Face Llama"))
    return found


def _same_loss(a: Stepper, b: Stepper) -> None:
    """A benchmark of two different computations is worth nothing."""
    torch.testing.assert_close(a.loss(), b.loss(), rtol=1e-4, atol=1e-4)


def _seconds(run: Callable[[], object]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started
