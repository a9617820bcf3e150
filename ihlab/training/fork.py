"""Forks: training continued from a checkpoint as a new run, with clamps or on another task."""

from collections.abc import Sequence
from pathlib import Path

from ihlab.runtime.settings import own_settings
from ihlab.training import checkpoint
from ihlab.training.clamp import Clamp
from ihlab.training.clamp_hooks import impose
from ihlab.training.config import Fork, ForkConfig, RunConfig
from ihlab.training.device import pick_device
from ihlab.training.progress import Report
from ihlab.training.run import Run
from ihlab.training.run_writer import Callback, digests, require_callback
from ihlab.training.stored_checkpoint import stored_about
from ihlab.training.train import train
from tasks import Task
from tasks.config import require


@own_settings()
def fork(
    run: Run,
    step: int,
    *,
    name: str | None = None,
    clamps: Sequence[Clamp] = (),
    steps: int | None = None,
    task: Task | None = None,
    new_moments: bool = False,
    root: str | Path = "runs",
    device: str = "auto",
    report: Report | None = None,
    callback: Callback | None = None,
) -> Run:
    """Continue training from the checkpoint of `run` at `step` up to `steps`, with `clamps`; return
    the new run.

    Batches, optimiser state and learning rate continue as in `run`. Without clamps, on the CPU and
    uncompiled, the fork's weights are exactly those that `run` has, or would have, at that step.
    Lessons (`Lessons`) are not continued: a fork of a taught run trains on its task alone.
    Only the clamps given here apply. If you fork a clamped fork without clamps, its clamped values
    are trained again, starting from their clamped values.

    - `name`: the new run's name; by default `run`'s name and "-from-<step>";
    - `steps`: the last step, counted from the start of `run`; by default the last step of `run`.
      Training still ends early where `run` would (`stop_at_accuracy`);
    - `task`: the task to train on; by default that of `run`. The column `tokens` counts as if all
      steps had its length;
    - `new_moments`: whether AdamW's moments of all parameters start again at zero. AdamW's step
      count, which sets their bias correction, goes on, so the first updates are small. The
      checkpoint then needs no optimiser state;
    - `root`, `device`, `report`, `callback`: as in `train`.

    Once created, the fork's folder does not need its parent's. `config.json` names the parent, the
    step and the clamps. The first row of `metrics.csv` is the clamped model at `step`, before any
    training with the clamps; `train_loss` counts only later steps. `fork(...).model(step)` behaves
    as it was trained: its parameters hold the clamped values, and the clamps are hooked. A finished
    fork is returned unchanged; an interrupted one is resumed.

    Raises `ConfigError` for a step without a checkpoint (or without its optimiser's state), a clamp
    on a layer, head or column that does not exist or on the alpha of a vanilla model, `steps` not
    greater than `step`, a task whose data has changed since, and under `torchrun`.
    """
    pick_device(device)  # raises before anything is written
    require_callback(callback)
    config = fork_config(
        run, step, name=name, clamps=clamps, steps=steps, task=task, new_moments=new_moments
    )
    forked = Run.create(config, root)
    with forked.lock():
        if not (forked.optimizer_path(step).exists() and forked.checkpoint_path(step).exists()):
            _start(run, forked, config)
    return train(config, root, device, report, callback=callback)


def fork_config(
    run: Run,
    step: int,
    *,
    name: str | None = None,
    clamps: Sequence[Clamp] = (),
    steps: int | None = None,
    task: Task | None = None,
    new_moments: bool = False,
) -> ForkConfig:
    """Return the config of a fork, as `fork` stores it. Raises `ConfigError` as `fork` does."""
    run.require_checkpoint(step)
    state = run.optimizer_path(step)
    require(
        new_moments or state.exists(),
        f"{run.folder} has a model at step {step} but no optimiser state to continue with: no {state.name}. "
        "With new_moments=True none is needed.",
    )
    parent = run.config
    run.require_task()
    origin = Fork(
        parent=parent.digest,
        parent_name=parent.name,
        step=step,
        horizon=parent.horizon,
        clamps=tuple(clamps),
        new_moments=new_moments,
    )
    settings = {field: getattr(parent, field) for field in RunConfig.__dataclass_fields__}
    settings |= {"name": f"{parent.name}-from-{step}", "clamped": ()}
    given = {"name": name, "steps": steps, "task": task}
    settings |= {field: value for field, value in given.items() if value is not None}
    return ForkConfig(**settings, fork=origin)


def _start(run: Run, forked: Run, config: ForkConfig) -> None:
    """Write the clamped checkpoint into the fork's folder, from which training resumes."""
    step = config.first_step
    model = run.model(step)
    stored = run.optimizer_path(step)
    if config.fork.new_moments and not stored.exists():
        state = checkpoint.empty_optimizer(step, model)
    else:
        state = checkpoint.load_optimizer(stored, step, model, run.about(step))
    if config.fork.new_moments:
        for key, tensor in state.items():
            if key.startswith("exp_avg"):
                tensor.zero_()
    impose(model, state, config.clamps)
    # The fork's running loss and seconds start at 0.
    state |= {name: tensor.clone() for name, tensor in checkpoint.RUNNING_LOSS.items()}
    about = forked.about(step)
    if config.task == run.config.task:
        about |= digests(stored_about(run.checkpoint_path(step)))
    checkpoint.save(forked.optimizer_path(step), state, about)
    checkpoint.save(forked.checkpoint_path(step), checkpoint.model_state(model), about)
