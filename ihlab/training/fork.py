"""Forks: a checkpoint of a run trained on as a run of its own, with alpha, beta or a pattern held."""

from collections.abc import Sequence
from pathlib import Path

from ihlab.training import checkpoint
from ihlab.training.clamp import Clamp
from ihlab.training.clamp_hooks import impose
from ihlab.training.config import Fork, ForkConfig, RunConfig
from ihlab.training.distributed import require_alone
from ihlab.training.progress import Report
from ihlab.training.run import Run
from ihlab.training.train import train
from tasks.config import ConfigError


def fork(
    run: Run,
    step: int,
    *,
    name: str | None = None,
    clamps: Sequence[Clamp] = (),
    steps: int | None = None,
    compiled: bool | None = None,
    root: str | Path = "runs",
    device: str = "auto",
    report: Report | None = None,
) -> Run:
    """Train the checkpoint of `run` at `step` on, up to step `steps`, under `clamps`; return the new run.

    Everything else goes on as in `run`: the batches of the steps to come, the optimiser's state, the learning rate.
    Without clamps, on the CPU and uncompiled, the fork is bit for bit what `run` would become. Its clamps are
    only those given here: forking a clamped fork without them lets go, from the values that were held.

    - `name`: of the new run; by default that of `run` with "-from-<step>";
    - `steps`: the last step, counted from the start of `run`; by default that of `run`;
    - `compiled`: whether to train through `torch.compile`; by default as `run`. Clamps hold there too;
    - `root`, `device`, `report`: as in `train`.

    The fork's folder needs its parent's no more once it is made. `config.json` names the parent, the step and the
    clamps; `metrics.csv` starts at `step` with the clamped model, before any training under the clamps, and
    `train_loss` is the mean since then. `fork(...).model(step)` behaves as it was trained: clamped values are in its
    parameters, and its clamps hooked in. A finished fork is returned as it is, an interrupted one goes on.

    Raises `ConfigError` for a step without a checkpoint (or without its optimiser's state), a clamp on a layer, head
    or column that does not exist or on the alpha of a vanilla model, `steps` that do not lie past `step`, and under
    `torchrun`.
    """
    require_alone("A fork is trained")
    config = fork_config(run, step, name=name, clamps=clamps, steps=steps, compiled=compiled)
    made = Run.create(config, root)
    with made.lock():
        if not (made.optimizer_path(step).exists() and made.checkpoint_path(step).exists()):
            _start(run, made, config)
    return train(config, root, device, report)


def fork_config(
    run: Run,
    step: int,
    *,
    name: str | None = None,
    clamps: Sequence[Clamp] = (),
    steps: int | None = None,
    compiled: bool | None = None,
) -> ForkConfig:
    """The config of a fork, as `fork` stores it. Raises `ConfigError` as that does."""
    run.require_checkpoint(step)
    if not run.optimizer_path(step).exists():
        raise ConfigError(f"{run.folder} has a model at step {step} but no optimiser state to train it on with.")
    parent = run.config
    origin = Fork(
        parent=parent.digest, parent_name=parent.name, step=step, horizon=parent.horizon, clamps=tuple(clamps)
    )  # fmt: skip
    given = {field: getattr(parent, field) for field in RunConfig.__dataclass_fields__}
    given["name"] = f"{parent.name}-from-{step}" if name is None else name
    given["steps"] = parent.steps if steps is None else steps
    given["compile"] = parent.compile if compiled is None else compiled
    return ForkConfig(**given, fork=origin)


def _start(run: Run, made: Run, config: ForkConfig) -> None:
    """Leave the clamped checkpoint where an interrupted run would have left its last."""
    step = config.first_step
    model, state = run.model(step), checkpoint.load(run.optimizer_path(step))
    impose(model, state, config.clamps)
    # The fork's own tally: loss and seconds from before are not its own.
    for name in ("tally/loss", "tally/steps", "tally/seconds"):
        state[name].zero_()
    checkpoint.save(made.optimizer_path(step), state)
    checkpoint.save(made.checkpoint_path(step), checkpoint.model_state(model))
