"""Score heads during training, for models of ihlab or other libraries, in any training loop."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from ihlab.interp.heads import PREFIX_LEAST, per_head, probe_scores
from ihlab.interp.onset import onset
from ihlab.interp.sources import opened_model
from ihlab.measure.probe import PREFIX_REPEATS
from ihlab.runtime.settings import own_settings
from tasks.config import require

ROWS = 8
"""Sequences of random tokens in each measurement. Each is read twice: as it is, and with its last
repeat rolled.
"""


class HeadMonitor:
    """Score every head of a model while it is trained.

        monitor = HeadMonitor(model, every=100)
        for step in range(steps):
            monitor(step)
            ...                                  # the training step
        monitor.table                            # step, layer, head, prefix_matching, previous_token, ...
        monitor.onsets()                         # when each head's prefix matching rises
        Trainer(..., callbacks=[monitor.callback()])

    `model` is any model that `locate_induction_heads` takes. If it is wrapped for training, give
    the inner model. `rows`, `length`, `ids`, `seed` and `bos` are those of `head_scores`. The same
    random tokens are read each time. A measurement runs the model without gradients, in evaluation
    mode, and changes neither its mode nor any random state.

    `table` has one row per measured step and head. Its columns are the scores of `head_scores` on
    random tokens, from effective patterns if these are exact and raw ones otherwise.
    """

    @own_settings()
    def __init__(
        self,
        model: Any,
        every: int = 100,
        rows: int = ROWS,
        length: int | None = None,
        ids: Sequence[int] | None = None,
        seed: int = 0,
        bos: bool | None = None,
    ) -> None:
        require(every >= 1, f"every is {every}, but must be at least 1 step.")
        self.model, self.every, self.seed = opened_model(model, prepend_bos=bos), every, seed
        self.probe = self.model.probe_rows(PREFIX_REPEATS, rows, length, ids, seed)
        self._tables: list[pd.DataFrame] = []

    @own_settings()
    def __call__(self, step: int) -> None:
        """Score the heads if the step is a multiple of `every`. The last measured step is not
        measured again. Raises `ConfigError` for a step before it.
        """
        last = int(self._tables[-1]["step"].iloc[0]) if self._tables else -1
        require(
            step >= last,
            f"step is {step}, but step {last} was measured already: steps must increase.",
        )
        if step == last or step % self.every:
            return
        kind = self.model.exact_kind
        scores = probe_scores(self.model, self.probe.to(self.model.device), self.seed, (kind,))[
            kind
        ]
        table = per_head(scores)
        table.insert(0, "step", step)
        self._tables.append(table)

    @property
    def table(self) -> pd.DataFrame:
        """Every measurement. Raises `ConfigError` if there is none yet."""
        require(
            bool(self._tables),
            "Nothing was measured yet: call the monitor with the step.",
        )
        return pd.concat(self._tables, ignore_index=True)

    def onsets(self) -> pd.DataFrame:
        """Return when prefix matching changes phase in each head (`ihlab.interp.onset`), the
        earliest first.

        Columns: layer, head, final (the last score), start, middle, end (steps; missing without a
        change) and matches_prefix (at the last measurement). Raises `ConfigError` for fewer than 12
        measurements.
        """
        table = self.table
        rows = []
        for (layer, head), of_head in table.groupby(["layer", "head"]):
            change = onset(of_head["step"], of_head["prefix_matching"])
            last = of_head.iloc[-1]
            matches = (
                min(last["prefix_matching"], 1 - last["same_distance_control"]) >= PREFIX_LEAST
            )
            when = (np.nan,) * 3 if change is None else (change.start, change.middle, change.end)
            rows.append((layer, head, last["prefix_matching"], *when, bool(matches)))
        names = ["layer", "head", "final", "start", "middle", "end", "matches_prefix"]
        return pd.DataFrame(rows, columns=names).sort_values(
            "middle", kind="stable", ignore_index=True
        )

    def callback(self) -> Any:
        """Return a `transformers.TrainerCallback` that measures before training and after every
        `every` steps.
        """
        from transformers import TrainerCallback

        monitor = self

        class Measures(TrainerCallback):
            def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
                monitor(state.global_step)

            def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
                monitor(state.global_step)

        return Measures()
