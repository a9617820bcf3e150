"""Training of one model: a step of its optimiser, its evaluations and checkpoints."""

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ihlab.measure.batches import SPLITS
from ihlab.measure.loss import summed_loss
from ihlab.measure.metrics import Evaluator
from ihlab.measure.rows import Scored
from ihlab.model.modes import evaluating
from ihlab.model.shift import projected
from ihlab.model.variants import VARIANTS
from ihlab.training import checkpoint
from ihlab.training.clamp_hooks import install
from ihlab.training.compiled import compiled_loss, compiled_share
from ihlab.training.data import Stream
from ihlab.training.distributed import Ranks
from ihlab.training.initial import initial_model
from ihlab.training.loop import Loop
from ihlab.training.optim import learning_rate, make_optimizer
from ihlab.training.progress import Report
from ihlab.training.run import Run
from ihlab.training.run_writer import Callback, RunWriter, Stored


def dropout_seed(seed: int, step: int, rank: int = 0) -> int:
    """Return the seed of a step's dropout, counter-based like the batches: a resumed run draws the same masks."""
    own = [rank] if rank else []
    return int(np.random.default_rng([len(SPLITS), seed, step, *own]).integers(2**63))


@dataclass
class _RunningLoss:
    """Running loss since the last evaluation. It stays on the device: reading it would stall the GPU."""

    loss: Tensor
    steps: int = 0


class SingleModel(Loop[list[Scored]]):
    """One run's model, optimiser, batches and the step it has reached."""

    def __init__(self, run: Run, ranks: Ranks, report: Report | None, callback: Callback | None = None) -> None:
        self.run, self.config, self.ranks, self.device, self.report = run, run.config, ranks, ranks.device, report
        config = self.config
        pin = self.device.type == "cuda"
        self.stream = Stream(
            config.task, config.seed, config.batch_size, config.accumulate, pin, ranks.rank, ranks.size
        )
        self.model = initial_model(config).to(self.device)
        install(self.model, config.clamps)
        self.parameters = list(self.model.parameters())  # to walk a model's modules takes a fiftieth of a small step
        self.optimizer = make_optimizer(self.model, config)
        self.projected = [self.model.get_parameter(name) for name in projected(self.model)]
        self.drops = config.model.dropout > 0 or VARIANTS[config.model.attention].registered  # no other model draws
        self.evaluate = Evaluator(config, self.device)
        self.running_loss = _RunningLoss(torch.zeros((), device=self.device))
        self.record = RunWriter(run, callback)
        self.step = self._resume()
        self.shared = ranks.share(self.model) if ranks.size > 1 else None
        self.loss = self._loss()

    def _loss(self) -> Callable[..., Tensor]:
        # Train through a compiled function and hook the plain model: hooks added to a module that was
        # compiled in place silently never fire.
        if self.shared is not None:
            return compiled_share(self.shared, self.config, self.device)
        loss = compiled_loss(summed_loss, self.config, self.device)
        return lambda *batch: loss(self.model, *batch)

    @property
    def where(self) -> str:
        """Folder of the run, in words."""
        return str(self.run.folder)

    @property
    def evaluated(self) -> bool:
        """True after the first evaluation."""
        return bool(self.record.rows)

    def _batches(self, start: int, stop: int) -> Iterator[list[Scored]]:
        return self.stream.steps(start, stop)

    def _stops(self, interrupted: threading.Event) -> bool:
        return self.ranks.any_asked(interrupted.is_set())

    def _reached(self) -> bool:
        if self.config.until is None:
            return False
        return bool(self.ranks.from_first(float(self.ranks.first and self.record.reached)))

    def train_step(self, microbatches: list[Scored]) -> None:
        """Take one optimiser step on the microbatches of a batch."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.config, self.step)
        if self.drops:
            self._seed_dropout()
        for i, microbatch in enumerate(microbatches):
            with self._all_reduce(last=i + 1 == len(microbatches)):
                batch = microbatch.to(self.device)
                with torch.autocast(self.device.type, torch.bfloat16, enabled=self.config.precision == "bf16"):
                    loss = self.loss(*batch.tensors) / batch.total
                (loss * self.ranks.size if self.shared else loss).backward()
            self.running_loss.loss += loss.detach()
        if self.config.clip is not None:
            torch.nn.utils.clip_grad_norm_(self.parameters, self.config.clip)
        self.optimizer.step()
        for weight in self.projected:
            weight.data.clamp_(0, 1)
        self.optimizer.zero_grad()
        self.running_loss.steps += 1
        self.step += 1

    def _seed_dropout(self) -> None:
        """Seed this step's dropout: ours, and that of a registered attention."""
        seed = dropout_seed(self.config.seed, self.step, self.ranks.rank)
        # torch.manual_seed asks after every kind of device first, which takes a thirtieth of a small step.
        (torch.default_generator if self.device.type == "cpu" else torch).manual_seed(seed)

    def _all_reduce(self, last: bool) -> AbstractContextManager[None]:
        """Context for backward that all-reduces gradients at the last microbatch of a step only."""
        return nullcontext() if self.shared is None or last else self.shared.no_sync()

    def _train_loss(self) -> float:
        """Mean training loss over the steps since the last evaluation, on all ranks; NaN if there were none."""
        total = self.ranks.collect(self.running_loss.loss)
        return total.item() / self.running_loss.steps if self.running_loss.steps else math.nan

    def _evaluate(self) -> None:
        train_loss, eval_loss = self._train_loss(), math.nan
        if self.ranks.first:
            with evaluating(self.model):
                measured = self.evaluate(self.model)
            eval_loss = measured["eval_loss"]
        eval_loss = self.ranks.from_first(eval_loss)
        self.record.check_finite(self.step, eval_loss, *([train_loss] if self.running_loss.steps else []))
        if self.ranks.first:
            self.record.note(self.step, train_loss, measured)
        self.running_loss.loss.zero_()
        self.running_loss.steps = 0

    def _check(self) -> None:
        if self.running_loss.steps:  # none right after an evaluation, which has checked
            self.record.check_finite(self.step, self._train_loss())

    def _report(self) -> None:
        if self.report is not None and self.ranks.first:
            self.report(self.step, self.record.rows[-1])

    def _save(self) -> None:
        if self.ranks.first:
            state = checkpoint.optimizer_state(dict(self.model.named_parameters()), self.optimizer)
            weights = checkpoint.model_state(self.model)
            self.record.save(self.step, Stored(weights, state, self.running_loss.loss, self.running_loss.steps))

    def _resume(self) -> int:
        """Load the last resumable checkpoint, if there is one, and return its step, else 0."""
        steps = self.record.resumable()
        step = steps[-1] if steps else 0
        self.ranks.require_same("runs resumed at step", step)
        if not steps:
            return 0
        stored = self.record.load(step, self.model, self.device)
        if self.ranks.first:
            self.record.forget_after(step)
        checkpoint.load_model_state(self.model, stored.weights)
        checkpoint.load_optimizer_state(dict(self.model.named_parameters()), self.optimizer, stored.optimizer)
        self.running_loss = _RunningLoss(
            stored.loss if self.ranks.first else torch.zeros_like(stored.loss), stored.steps
        )
        return step

    def _conclude(self, start: int) -> None:
        if self.ranks.first:
            more = {"ranks": self.ranks.size} if self.ranks.size > 1 else {}
            self.record.conclude(start, self.model.n_params, self.device, **more)
