"""Training: the optimiser and its learning rate, the batches, the model, the step, and the loop
around it.

`Training.train_step` is one training step. It is the same for one model (`SingleModel`) and for
several stacked models (`ihlab.training.ensemble.Stack`), which return one loss per member; a single
model is one member.
"""

import inspect
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ihlab.measure.batches import SPLITS, draw
from ihlab.measure.gathered import TrainingBatch, document_starts, each_tensor, training_batch
from ihlab.measure.loss import summed_loss
from ihlab.measure.metrics import Evaluator
from ihlab.model.registry import VARIANTS
from ihlab.model.shift import projected
from ihlab.model.transformer import Transformer
from ihlab.runtime.modes import evaluating
from ihlab.training import checkpoint
from ihlab.training.clamp_hooks import impose, install
from ihlab.training.compiled import compiled, explained
from ihlab.training.config import RunConfig, constant_steps
from ihlab.training.ensemble import Stack
from ihlab.training.interrupt import Interrupted
from ihlab.training.lessons import Find, LessonBook
from ihlab.training.progress import Report
from ihlab.training.run import Run
from ihlab.training.run_writer import Callback, RunWriter, Stored, TrainingDivergedError
from tasks import IGNORE
from tasks.config import require, shown

REPORT_EVERY = 0.2  # seconds

T = TypeVar("T")


class EagerAdamW(torch.optim.AdamW):
    """AdamW outside compiled graphs. AdamW imports the compiler at its first step, which takes
    seconds.

    The decorators of torch, which import the compiler, keep these methods out of compiled graphs
    and switch gradients off in `step`.
    """

    add_param_group = inspect.unwrap(torch.optim.AdamW.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.AdamW.zero_grad)
    step = torch.no_grad()(inspect.unwrap(torch.optim.AdamW.step))


def make_optimizer(
    model: Transformer, config: RunConfig, parameters: Mapping[str, Tensor] | None = None
) -> torch.optim.AdamW:
    """Return fused AdamW. Weight decay acts only on the model's `decayed_parameters`, except
    `RunConfig.undecayed`.

    `parameters`: the tensors to optimise, by the model's parameter names; None: the model's own.
    Raises `ConfigError` if `undecayed` names a parameter that has no weight decay anyway.
    """
    decayed = model.decayed_parameters()
    unknown = set(config.undecayed) - decayed
    require(
        not unknown,
        f"RunConfig.undecayed names {shown(sorted(unknown))}, but the parameters with weight decay are "
        f"{', '.join(sorted(decayed))}.",
    )
    decayed -= set(config.undecayed)
    optimized = dict(model.named_parameters()) if parameters is None else parameters
    groups: list[dict[str, Any]] = [
        {"params": [], "weight_decay": config.weight_decay},
        {"params": [], "weight_decay": 0.0},
    ]
    for name, weight in optimized.items():
        groups[name not in decayed]["params"].append(weight)
    return EagerAdamW(groups, lr=config.lr, betas=config.betas, fused=True)


def learning_rate(config: RunConfig, step: int) -> float:
    """Return the learning rate of step `step` (0 .. steps - 1): linear warm-up, then
    `RunConfig.schedule`.
    """
    if step < config.warmup:
        return config.lr * (step + 1) / config.warmup
    if config.schedule == "constant":
        return config.lr
    if config.schedule == "trapezoid":
        falling = config.horizon - constant_steps(config)  # 0 if the run has fewer than five steps
        return config.lr * min(1.0, (config.horizon - step) / max(1, falling))
    done = (step - config.warmup) / max(1, config.horizon - config.warmup)
    if config.schedule == "cosine":
        return config.lr * (0.5 * (1 + math.cos(math.pi * done)))
    return config.lr * (1 - done)


def microbatches(
    config: RunConfig, step: int, lessons: Sequence[TrainingBatch] = ()
) -> list[TrainingBatch]:
    """Return the `RunConfig.accumulate` microbatches of one step of a run, and its lessons."""
    n_rows = config.batch_size - sum(len(lesson.tokens) for lesson in lessons)
    batch = draw(config.task, config.seed, "train", step, n_rows, packed=True)
    require(
        batch.document_starts is None or not config.compile,
        "RunConfig.compile is True, but packed documents are trained without: it must be False.",
    )
    total = int((batch.targets != IGNORE).sum()) + sum(lesson.count for lesson in lessons)
    size = n_rows // config.accumulate
    pieces = []
    for first in range(0, n_rows, size):
        rows = batch.rows(first, first + size)
        piece = training_batch(rows.inputs, rows.targets)
        pieces.append(replace(piece, starts=document_starts(rows)))
    return [replace(piece, total=total) for piece in (*pieces, *lessons)]


def prefetch(draw_step: Callable[[int], T], start: int, stop: int) -> Iterator[T]:
    """Yield `draw_step(s)` for steps s = start .. stop - 1.

    While step s trains, one background thread draws step s + 1 (most kernels release the GIL).
    """
    with ThreadPoolExecutor(max_workers=1) as thread:
        drawn = thread.submit(draw_step, start)
        for step in range(start, stop):
            now = drawn.result()
            if step + 1 < stop:
                drawn = thread.submit(draw_step, step + 1)
            yield now


def dropout_seed(seed: int, step: int) -> int:
    """Return the seed of a step's dropout. It depends only on the arguments, so a resumed run draws
    the same masks.
    """
    return int(np.random.default_rng([len(SPLITS), seed, step]).integers(2**63))


class SingleModel:
    """One model in training, with the methods of `Stack`: it acts as a stack with one member."""

    def __init__(self, model: Transformer, config: RunConfig, device: torch.device) -> None:
        self.model = model
        self.parameters: dict[str, Tensor] = dict(model.named_parameters())
        # Train through a compiled function and hook the plain model: hooks added to a module that
        # was compiled in place silently never fire.
        self._loss = compiled(summed_loss, config, device)

    def joined(self, batches: Sequence[TrainingBatch]) -> TrainingBatch:
        """Return the only member's batch."""
        return batches[0]

    def joined_states(self, states: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
        """Return the only member's optimiser state."""
        return states[0]

    def member(self, tensors: dict[str, Tensor], i: int) -> dict[str, Tensor]:
        """Return the only member's tensors."""
        return tensors

    def summed_losses(self, batch: TrainingBatch) -> Float[Tensor, " member=1"]:
        """Return the summed loss of a microbatch."""
        return self._loss(self.model, *batch.tensors).reshape(1)

    def clip(self, limit: float) -> None:
        """Scale the gradient to a norm of at most `limit`."""
        torch.nn.utils.clip_grad_norm_(self.parameters.values(), limit)

    def take_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Update the weights."""
        optimizer.step()

    def evaluate(self, evaluator: Evaluator) -> list[dict[str, float]]:
        """Return the metrics of the model."""
        return [evaluator(self.model)]


def initial_model(config: RunConfig) -> Transformer:
    """Return the model with its seed's weights; with `init_shift` (a1, b1), alpha and beta of every
    head start from it.

    Column 0 of alpha is then a1 for every head, and `ihlab.model.shift.start` sets the other
    columns (window 2: alpha2 = 1 - alpha1). The same holds for beta and b1. All other weights are
    the same as without `init_shift`.
    """
    model = Transformer(config.model, seed=config.seed)
    if config.init_shift is not None:
        for block in model.layers:
            for side, column in zip(("key", "value"), config.init_shift, strict=True):
                shift = block.attn.shift_of(side)
                assert shift is not None  # `RunConfig` has checked it
                shift.restart(column)
    impose(model, {}, config.clamped)
    return model


class Training:
    """Runs in training: one, or several `stacked` that differ only in the fields
    `ihlab.training.ensemble.FREE`.

    They continue from the last step for which all have a checkpoint. `resumed_from`: the step of
    resumption that their summaries report; None: the current step. `ongoing` are the members that
    have neither ended nor diverged.

    `find` finds the lessons of a run that has them (`ihlab.training.lessons`).

    `running_loss` [member] is the sum of the training losses of the `loss_steps` steps since the
    last evaluation. It stays on the device: reading it would stall a GPU.
    """

    def __init__(
        self,
        runs: Sequence[Run],
        device: torch.device,
        report: Report | None = None,
        callback: Callback | None = None,
        stacked: bool = False,
        resumed_from: int | None = None,
        find: Find | None = None,
    ) -> None:
        self.device, self.report, self.stacked = device, report, stacked
        self.configs = [run.config for run in runs]
        # Stacked members take fractions of its updates.
        self.config = max(self.configs, key=lambda config: config.lr)
        self.writers = [RunWriter(run, callback) for run in runs]
        self.ongoing = list(range(len(runs)))
        models = [initial_model(config).to(device) for config in self.configs]
        install(models[0], self.config.clamps)  # clamped runs are not stacked
        self.running_loss = torch.zeros(len(runs), device=device)
        self.loss_steps = 0
        self.book = None if find is None else LessonBook(runs[0], find)  # such runs are not stacked
        self.step, states = self._resume(models)
        self.resumed_from = self.step if resumed_from is None else resumed_from
        self.in_training: Stack | SingleModel
        if stacked:
            self.in_training = Stack(models, self.configs)
        else:
            self.in_training = SingleModel(models[0], self.config, device)
        self.parameters = self.in_training.parameters
        self.n_params = models[0].n_params
        self.optimizer = make_optimizer(models[0], self.config, self.parameters)
        if states:
            checkpoint.load_optimizer_state(
                self.parameters, self.optimizer, self.in_training.joined_states(states)
            )
        self.in_unit_interval = [self.parameters[name] for name in projected(models[0])]
        self.evaluator = Evaluator(self.config, device, len(runs))
        # Only dropout and a registered attention draw random numbers.
        model = self.config.model
        self._draws_random_numbers = model.dropout > 0 or VARIANTS[model.attention].registered

    def _resume(self, models: Sequence[Transformer]) -> tuple[int, list[dict[str, Tensor]]]:
        """Load the last checkpoint that all members have into the models.

        Return its step and each member's optimiser state; 0 and an empty list if there is none.
        """
        common = set.intersection(*(set(writer.resumable()) for writer in self.writers))
        step = max(common, default=0)
        stored = []
        for writer, model in zip(self.writers, models, strict=True):
            if common:
                stored.append(writer.load(step, model, self.device))
        for writer in self.writers:  # after checking that all can be resumed
            writer.forget_after(step)
        if not stored:
            return 0, []
        for model, checkpointed in zip(models, stored, strict=True):
            checkpoint.load_model_state(model, checkpointed.weights)
        self.loss_steps = stored[0].steps
        self.running_loss = torch.stack([checkpointed.loss for checkpointed in stored])
        if self.book is not None:
            self.book.resume(step, self.writers[0].rows[-1])
        return step, [checkpointed.optimizer for checkpointed in stored]

    def batches(self, step: int) -> list[TrainingBatch]:
        """Return the microbatches of a step, in page-locked memory for an asynchronous copy to a
        GPU.
        """
        lessons = [] if self.book is None else self.book.batches(step)
        drawn = [microbatches(config, step, lessons) for config in self.configs]
        pieces = [self.in_training.joined(of_members) for of_members in zip(*drawn, strict=True)]
        if self.device.type == "cuda":
            return [each_tensor(piece, Tensor.pin_memory) for piece in pieces]
        return pieces

    def train_step(self, pieces: Sequence[TrainingBatch]) -> None:
        """Take one optimiser step on the microbatches of a batch, and increment `step`."""
        config = self.config
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(config, self.step)
        if self._draws_random_numbers:
            # torch.manual_seed would also seed a GPU, whose state `fork_rng` does not restore here.
            generator = torch.default_generator if self.device.type == "cpu" else torch
            generator.manual_seed(dropout_seed(config.seed, self.step))
        half = torch.autocast(self.device.type, torch.bfloat16, enabled=config.precision == "bf16")
        for piece in pieces:
            batch = piece.to(self.device)
            with explained() if config.compile else nullcontext():
                with half:  # nats per target of the whole step
                    losses = self.in_training.summed_losses(batch) / batch.total
                losses.sum().backward()
            self.running_loss += losses.detach()
        if config.clip is not None:
            self.in_training.clip(config.clip)
        self.in_training.take_step(self.optimizer)
        for weight in self.in_unit_interval:
            weight.data.clamp_(0, 1)
        self.optimizer.zero_grad()
        self.loss_steps += 1
        self.step += 1

    def finish(self, interrupted: threading.Event) -> None:
        """Train to the end. Raises `Interrupted`, with everything saved, at the end of a step after
        Ctrl-C.

        A stack ends early, with everything saved, once at most half of its members still train: it
        is then cheaper to resume these as a smaller stack.
        """
        config = self.config
        evaluations, checkpoints = set(config.eval_steps()), set(config.checkpoint_steps())
        if self.step == config.first_step and not self.writers[0].rows:
            self._evaluate()
            self._save()
        reported = time.perf_counter()
        ended = self._conclude_reached()  # True if too few members are left
        last = self.step if ended else config.steps
        batches: Iterator[list[TrainingBatch]]
        if self.book is None:
            batches = prefetch(self.batches, self.step, last)
        else:  # the next batch needs the lessons found after this step
            batches = map(self.batches, range(self.step, last))
        for pieces in batches:
            self.train_step(pieces)
            if self.step in evaluations:
                self._evaluate()
                ended = self._conclude_reached()
            stopped = ended or interrupted.is_set()
            if stopped and not (ended or self.step in evaluations):
                self._checked_losses()
            if self.step in checkpoints or stopped:
                self._save()
            if stopped or self.step == last or time.perf_counter() - reported > REPORT_EVERY:
                self._report()
                reported = time.perf_counter()
            if stopped:
                break
        if self.step == config.steps:
            self._conclude(*self.ongoing)
        if interrupted.is_set():  # also in the last step: other runs may follow this one
            raise Interrupted(
                f"Stopped at step {self.step} of {config.steps}, saved in {self._where}."
            )

    @torch.no_grad()
    def _evaluate(self) -> None:
        with evaluating(self.in_training.model):
            rows = self.in_training.evaluate(self.evaluator)
        if self.book is not None:
            assert isinstance(self.in_training, SingleModel)
            rows[0] |= self.book.renew(self.step, self.in_training.model)
        train_losses = self._checked_losses([row["eval_loss"] for row in rows])
        for i in self.ongoing:
            self.writers[i].note(self.step, train_losses[i], rows[i])
        self.running_loss.zero_()
        self.loss_steps = 0

    def _checked_losses(self, *eval_losses: Sequence[float]) -> list[float]:
        """Return each member's mean training loss since the last evaluation (NaN after no step).
        Check all losses.
        """
        known = list(eval_losses)
        means = [math.nan] * len(self.writers)  # no training loss yet right after an evaluation
        if self.loss_steps:
            means = (self.running_loss / self.loss_steps).tolist()
            known.append(means)
        self._check_finite(lambda i: [losses[i] for losses in known], "the loss")
        return means

    def _check_finite(self, numbers: Callable[[int], Iterable[float]], what: str) -> None:
        """Raise `TrainingDivergedError` if a member's number is not finite. In a stack, stop
        training it instead.
        """
        for i in list(self.ongoing):
            try:
                self.writers[i].check_finite(self.step, numbers(i), what)
            except TrainingDivergedError:
                if not self.stacked:
                    raise
                self.ongoing.remove(i)

    def _save(self, *only: int) -> None:
        """Write checkpoints of members with finite weights: the given ones, by default all that
        still train.
        """
        weights = partial(self.in_training.member, self.parameters)
        self._check_finite(
            lambda i: [x.detach().abs().amax().item() for x in weights(i).values()], "a weight"
        )
        state = checkpoint.optimizer_state(self.parameters, self.optimizer)
        for i in set(only or self.ongoing) & set(self.ongoing):
            moments = self.in_training.member(state, i)
            contents = Stored(weights(i), moments, self.running_loss[i], self.loss_steps)
            self.writers[i].save(self.step, contents)

    def _conclude_reached(self) -> bool:
        """Conclude the members that have reached the early stopping threshold.

        Return whether at most half of all members still train.
        """
        for i in list(self.ongoing):
            if self.writers[i].reached:
                self._save(i)
                self._conclude(i)
        return 2 * len(self.ongoing) <= len(self.configs)

    def _conclude(self, *members: int) -> None:
        """Write the summaries of members that have ended, and take them out of training."""
        more: dict[str, float] = {}
        if self.stacked:
            more["ensemble"] = len(self.writers)
        if not math.isnan(self.evaluator.guess):
            more["guess"] = round(self.evaluator.guess, 4)
        for i in set(members) & set(self.ongoing):
            self.writers[i].conclude(self.resumed_from, self.n_params, self.device, **more)
            self.ongoing.remove(i)

    def _report(self) -> None:
        """Report the last evaluation of the first member that still trains, or of the first member
        if none does.
        """
        rows = self.writers[(self.ongoing or [0])[0]].rows
        if self.report is not None and rows:
            self.report(self.step, rows[-1])

    @property
    def _where(self) -> str:
        """The folder of the run, or the folders of the members, in words."""
        folders = [writer.run.folder for writer in self.writers]
        if len(folders) == 1:
            return str(folders[0])
        return f"the folders of its {len(folders)} members, {folders[0]} to {folders[-1]}"
