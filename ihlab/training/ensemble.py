"""Ensemble training: runs that differ only in seed, learning rate or initial alpha and beta, stacked (torch.vmap)."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.func import stack_module_state

from ihlab.measure.metrics import CHUNK_POSITIONS, Evaluator
from ihlab.model.shift import projected
from ihlab.training import checkpoint
from ihlab.training.compiled import compiled_loss
from ihlab.training.config import ForkConfig, RunConfig
from ihlab.training.initial import initial_model
from ihlab.training.loop import Loop
from ihlab.training.optim import learning_rate, make_optimizer
from ihlab.training.progress import Report
from ihlab.training.run import Run
from ihlab.training.run_writer import Callback, RunWriter, Stored, TrainingDivergedError
from ihlab.training.vmapped import Stacked, StackedStream, clip_members, member_losses, of_each_member, over_members
from tasks.config import require

FREE = ("name", "seed", "lr", "init_shift")
"""Fields in which members may differ."""

CPU_VALUES = 524_288
"""Most d_model x positions of a stacked step on a CPU.

Where fewer than eight members fit, a member's own step fills the cache, and they train faster one after another: eight
stacked take .54 to .71 of that time at 32,768 values each, .73 to .80 at 65,536, and 1.0 to 1.5 from 131,072 on.
"""

MOST_MEMBERS = 10_000

EVALUATED_LOGITS = 2**28
"""Most logits of members that are evaluated at once: 1 GiB in float32. The other members follow."""


def seeds(config: RunConfig, members: int) -> list[RunConfig]:
    """Return the config with `members` consecutive seeds, its own first."""
    require(members >= 1, f"members is {members}, but must be at least 1.")
    require(members <= MOST_MEMBERS, f"members is {members}, but must be at most {MOST_MEMBERS}: each has a folder.")
    return [config.but(seed=config.seed + i) for i in range(members)]


def check_members(configs: Sequence[RunConfig]) -> None:
    """Raise `ConfigError` for members that cannot be stacked, naming the field."""
    require(bool(configs), "An ensemble needs at least one member.")
    first = configs[0]
    for config in configs:
        require(not isinstance(config, ForkConfig), f"'{config.name}' is a fork, but forks are trained one at a time.")
        dropout = config.model.dropout
        require(not dropout, f"ModelConfig.dropout is {dropout}, but members of an ensemble are trained without.")
        differs = _difference(config, first)
        require(
            differs is None,
            f"Members of an ensemble may differ in {', '.join(FREE)}, but {differs} is not the same in all of them.",
        )
    known: dict[str, RunConfig] = {}
    for config in configs:
        require(config.digest not in known, f"Two members are the same run: seed {config.seed}, lr {config.lr}.")
        known[config.digest] = config


def _difference(one: Any, other: Any, prefix: str = "", free: Sequence[str] = FREE) -> str | None:
    """Return the first field, such as "model.d_model", in which two configs differ, the free ones excepted."""
    if type(one) is not type(other):
        return prefix.rstrip(".")
    for name in (field.name for field in fields(one) if field.name not in free):
        a, b = getattr(one, name), getattr(other, name)
        if is_dataclass(a) and a != b:
            return _difference(a, b, f"{prefix}{name}.", ())
        if a != b:
            return prefix + name
    return None


def kind(config: RunConfig) -> str:
    """Return what members have in common: the digest of a config whose `FREE` fields are at their defaults."""
    return config.but(**{field.name: field.default for field in fields(RunConfig) if field.name in FREE}).digest


def best_stack(config: RunConfig, members: int, device: torch.device) -> int:
    """Return the number of members to stack: on a CPU as many as `CPU_VALUES` has room for, or one if not eight."""
    if device.type != "cpu":
        return max(1, members)
    values = config.batch_size // config.accumulate * config.task.length * config.model.d_model
    fit = CPU_VALUES // values
    return fit if fit >= 8 else 1


def stacks(runs: Sequence[Run], most: int) -> list[list[Run]]:
    """Split the runs into as few groups of at most `most` as possible, about equally large."""
    groups = math.ceil(len(runs) / most)
    return [[runs[i] for i in part] for part in np.array_split(np.arange(len(runs)), groups)] if groups else []


class Ensemble(Loop[list[Stacked]]):
    """Stacked weights of all members, their optimiser, their batches and the step they have reached.

    `finish` ends early, with everything saved, once at least half of the members have ended: the others are then
    cheaper as an ensemble of their own, resumed from there. `resumed_from`: the step recorded as the one resumed
    from; None: the current step.
    """

    def __init__(
        self,
        runs: list[Run],
        device: torch.device,
        report: Report,
        resumed_from: int | None = None,
        callback: Callback | None = None,
    ) -> None:
        self.records = [RunWriter(run, callback) for run in runs]
        self.config, self.device, self.report = runs[0].config, device, report
        configs = [run.config for run in runs]
        self.stream = StackedStream(configs, pin=device.type == "cuda")
        self.step = self._common_step()
        self.resumed_from = self.step if resumed_from is None else resumed_from
        models = [initial_model(config).to(device) for config in configs]
        stored = [
            record.load(self.step, model, device) if self.step else None
            for record, model in zip(self.records, models, strict=True)
        ]
        for record in self.records:  # once all can be resumed
            record.forget_after(self.step)
        for model, state in zip(models, stored, strict=True):
            if state is not None:
                checkpoint.load_model_state(model, state.weights)
        self.parameters: dict[str, Tensor] = stack_module_state(models)[0]
        self.model = models[0]  # the module that is called with stacked weights
        # The optimiser has the largest learning rate; a member with a smaller one takes that fraction of each step.
        self.fastest = max(configs, key=lambda config: config.lr)
        self.part = torch.tensor([config.lr / self.fastest.lr for config in configs], device=device)
        self.one_rate = len({config.lr for config in configs}) == 1
        self.optimizer = make_optimizer(self.model, self.config, self.parameters)
        self.projected = projected(self.model)
        self.evaluate = Evaluator(self.config, device, len(runs))
        at_once = max(1, EVALUATED_LOGITS // (CHUNK_POSITIONS * self.config.model.d_vocab))
        self.numbers = of_each_member(self.model, self.evaluate.numbers, partial(over_members, at_once=at_once))
        self.running_loss, self.loss_steps = torch.zeros(len(runs), device=device), 0
        self._load_optimizer([state for state in stored if state is not None])
        self.losses = member_losses(self.model, compiled_loss(over_members, self.config, device, len(runs)))
        self.alive = list(range(len(runs)))
        self.n_members = len(runs)

    @property
    def where(self) -> str:
        """Folder or folders of the members, in words."""
        first, last = (self.records[i].run.folder for i in (0, -1))
        return f"the folders of its {self.n_members} members, {first} to {last}" if self.n_members > 1 else str(first)

    @property
    def evaluated(self) -> bool:
        """True after the first evaluation."""
        return bool(self.records[0].rows)

    def _batches(self, start: int, stop: int) -> Iterator[list[Stacked]]:
        for microbatches in self.stream.steps(start, stop):
            if not self.alive:
                return
            yield microbatches

    def train_step(self, microbatches: list[Stacked]) -> None:
        """Take one optimiser step on the microbatches of a batch."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.fastest, self.step)
        for microbatch in microbatches:
            batch = microbatch.to(self.device)
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.config.precision == "bf16"):
                losses = self.losses(self.parameters, *batch.tensors) / batch.totals
            losses.sum().backward()
            self.running_loss += losses.detach()
        if self.config.clip is not None:
            clip_members(self.parameters.values(), self.config.clip)
        before = {} if self.one_rate else {name: p.detach().clone() for name, p in self.parameters.items()}
        self.optimizer.step()
        with torch.no_grad():
            # AdamW's step, weight decay included, is proportional to its learning rate.
            for name, old in before.items():
                now = self.parameters[name]
                now.copy_(old.lerp(now, self.part.view(-1, *[1] * (now.ndim - 1))))
            for name in self.projected:
                self.parameters[name].clamp_(0, 1)
        self.optimizer.zero_grad()
        self.loss_steps += 1
        self.step += 1

    def _reached(self) -> bool:
        """Conclude the members that reached `until`, as if trained alone; return whether at most half are left."""
        for i in [i for i in self.alive if self.records[i].reached]:
            self._save(i)
            self._conclude_member(i)
            self.alive.remove(i)
        return 2 * len(self.alive) <= self.n_members

    def _member(self, i: int) -> dict[str, Tensor]:
        return {name: stacked[i] for name, stacked in self.parameters.items()}

    def _train_losses(self) -> list[float]:
        """Mean training loss of each member over the steps since the last evaluation; NaN if there were none."""
        return (self.running_loss / self.loss_steps).tolist() if self.loss_steps else [math.nan] * self.n_members

    def _evaluate(self) -> None:
        train_losses = self._train_losses()
        with torch.no_grad():
            numbers = self.numbers(self.parameters).tolist()
        for i in list(self.alive):
            measured = self.evaluate.row(numbers[i])
            losses = (measured["eval_loss"], *([train_losses[i]] if self.loss_steps else []))
            if self._is_finite(i, *losses):
                self.records[i].note(self.step, train_losses[i], measured)
        self.running_loss.zero_()
        self.loss_steps = 0

    def _is_finite(self, i: int, *losses: float) -> bool:
        try:
            self.records[i].check_finite(self.step, *losses)
        except TrainingDivergedError:
            self.alive.remove(i)
            return False
        return True

    def _check(self) -> None:
        if self.loss_steps:  # none right after an evaluation, which has checked
            losses = self._train_losses()
            for i in list(self.alive):
                self._is_finite(i, losses[i])

    def _report(self) -> None:
        if self.alive:
            self.report(self.step, self.records[self.alive[0]].rows[-1])

    def _save(self, *members: int) -> None:
        """Write checkpoints of the given members, by default of all that still train."""
        state = checkpoint.optimizer_state(self.parameters, self.optimizer)
        for i in members or self.alive:
            # All members share one step count; every other tensor has a leading member dimension.
            own = {name: tensor[i] if tensor.ndim else tensor for name, tensor in state.items()}
            self.records[i].save(self.step, Stored(self._member(i), own, self.running_loss[i], self.loss_steps))

    def _common_step(self) -> int:
        """Return the last step at which every member has a resumable checkpoint; 0 if there is none."""
        return max(set.intersection(*(set(record.resumable()) for record in self.records)), default=0)

    def _load_optimizer(self, stored: list[Stored]) -> None:
        if not stored:
            return
        first = stored[0].optimizer
        state = {
            name: torch.stack([member.optimizer[name] for member in stored]) if tensor.ndim else tensor
            for name, tensor in first.items()
        }
        checkpoint.load_optimizer_state(self.parameters, self.optimizer, state)
        self.running_loss, self.loss_steps = torch.stack([member.loss for member in stored]), stored[0].steps

    def _conclude(self, start: int) -> None:
        for i in self.alive if self.step == self.config.steps else []:
            self._conclude_member(i)

    def _conclude_member(self, i: int) -> None:
        self.records[i].conclude(self.resumed_from, self.model.n_params, self.device, ensemble=self.n_members)
