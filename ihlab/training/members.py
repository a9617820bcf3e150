"""The runs that train together, as their folders see them: evaluations, checkpoints, and how each run ends."""

import math
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from ihlab.model.transformer import Transformer
from ihlab.training import checkpoint
from ihlab.training.distributed import Ranks
from ihlab.training.progress import Row
from ihlab.training.run import Run
from ihlab.training.run_writer import Callback, RunWriter, Stored, TrainingDivergedError
from ihlab.training.single import SingleModel
from ihlab.training.stack import Stack


class Members:
    """One run in training, or the members of a stack. `ongoing` are those that have neither ended nor diverged.

    `running_loss` [member] is the sum of the training losses of the `loss_steps` steps since the last evaluation. It
    stays on the device: reading it would stall a GPU.
    """

    def __init__(
        self,
        runs: Sequence[Run],
        ranks: Ranks,
        callback: Callback | None = None,
        stacked: bool = False,
        resumed_from: int | None = None,
    ) -> None:
        self.records = [RunWriter(run, callback) for run in runs]
        self.ranks, self.stacked, self.resumed_from, self.n_params = ranks, stacked, resumed_from, 0
        self.ongoing = list(range(len(runs)))
        self.running_loss, self.loss_steps = torch.zeros(len(runs), device=ranks.device), 0
        self._stored: list[Stored] = []

    @property
    def where(self) -> str:
        """The folder of the run, or the folders of the members, in words."""
        first, last = (self.records[i].run.folder for i in (0, -1))
        n = len(self.records)
        return str(first) if n == 1 else f"the folders of its {n} members, {first} to {last}"

    @property
    def evaluated(self) -> bool:
        """True after the first evaluation."""
        return bool(self.records[0].rows)

    @property
    def latest_row(self) -> Row | None:
        """The last evaluation of the first member that still trains; of the first member if none does."""
        rows = self.records[(self.ongoing or [0])[0]].rows
        return rows[-1] if rows else None

    # Resuming

    def resume(self, models: Sequence[Transformer]) -> int:
        """Load the last checkpoint that all members have into the models, and return its step; 0 if there is none."""
        self.n_params = models[0].n_params
        common = set.intersection(*(set(record.resumable()) for record in self.records))
        step = max(common, default=0)
        self.ranks.require_same("runs resumed at step", step)
        if self.resumed_from is None:
            self.resumed_from = step
        if common:
            pairs = zip(self.records, models, strict=True)
            self._stored = [record.load(step, model, self.ranks.device) for record, model in pairs]
        if self.ranks.first:  # once all can be resumed
            for record in self.records:
                record.forget_after(step)
        for model, stored in zip(models, self._stored, strict=False):
            checkpoint.load_model_state(model, stored.weights)
        return step

    def restore_optimizer(self, trained: SingleModel | Stack, optimizer: torch.optim.Optimizer) -> None:
        """Restore AdamW's state and the running loss of the checkpoints that were resumed, if any were."""
        if not self._stored:
            return
        states = trained.joined_states([stored.optimizer for stored in self._stored])
        checkpoint.load_optimizer_state(trained.parameters, optimizer, states)
        if self.ranks.first:
            self.running_loss = torch.stack([stored.loss for stored in self._stored])
        self.loss_steps = self._stored[0].steps
        self._stored = []

    # Evaluations

    def train_losses(self) -> list[float]:
        """Return each member's mean training loss since the last evaluation, on all ranks; NaN if no step was taken."""
        total = self.ranks.collect(self.running_loss).tolist()
        return [loss / self.loss_steps if self.loss_steps else math.nan for loss in total]

    def note(self, step: int, rows: Sequence[Mapping[str, float]]) -> None:
        """Write an evaluation of every member that still trains. Ranks after the first have empty `rows`."""
        train_losses = self.train_losses()
        eval_losses = [self.ranks.from_first(row.get("eval_loss", math.nan)) for row in rows]
        self.check_finite(step, train_losses, eval_losses)
        if self.ranks.first:
            for i in self.ongoing:
                self.records[i].note(step, train_losses[i], dict(rows[i]))
        self.running_loss.zero_()
        self.loss_steps = 0

    def check_finite(
        self, step: int, train_losses: Sequence[float], eval_losses: Sequence[float] | None = None
    ) -> None:
        """Raise `TrainingDivergedError` if the loss is not finite. In a stack, stop training the member instead."""
        for i in list(self.ongoing):
            losses = [train_losses[i]] if self.loss_steps else []  # there are none right after an evaluation
            losses += [] if eval_losses is None else [eval_losses[i]]
            try:
                self.records[i].check_finite(step, *losses)
            except TrainingDivergedError:
                if not self.stacked:
                    raise
                self.ongoing.remove(i)

    # Checkpoints and the end

    def save(self, i: int, step: int, weights: dict[str, Tensor], optimizer_state: dict[str, Tensor]) -> None:
        """Write a checkpoint of a member."""
        self.records[i].save(step, Stored(weights, optimizer_state, self.running_loss[i], self.loss_steps))

    def reached(self) -> list[int]:
        """Return the members that still train and whose last evaluation reached `RunConfig.stop_at_accuracy`."""
        if self.records[0].config.stop_at_accuracy is None:
            return []
        return [i for i in self.ongoing if self.ranks.from_first(float(self.records[i].reached))]

    def conclude(self, members: Iterable[int]) -> None:
        """Write the summaries of members that have ended, which then no longer train."""
        more = {"ranks": self.ranks.size} if self.ranks.size > 1 else {}
        more |= {"ensemble": len(self.records)} if self.stacked else {}
        for i in list(members):
            if self.ranks.first:
                self.records[i].conclude(self.resumed_from or 0, self.n_params, self.ranks.device, **more)
            self.ongoing.remove(i)
