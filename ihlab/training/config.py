"""Configs of runs and forks: everything that decides a run's outcome, and the name of its folder. No torch here."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, field, fields, is_dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from ihlab.model.config import ModelConfig
from ihlab.model.registry import VARIANTS
from ihlab.training.clamp import Clamp
from tasks import InductionTask, StoredTask, Task
from tasks.codec import from_plain, kind_and_rule, to_plain
from tasks.config import config, renamed, require, require_least, shown, stored_names
from tasks.registry import kinds

LONGEST_NAME = 244  # bytes: a folder's name has at most 255, including the hash
MOST_EVALUATIONS = 1_000_000

DEFAULT_TASK: dict[str, Any] = {"vocab_size": 128, "length": 32}
"""Fields of the `InductionTask` that a run has if no task is given."""
DEFAULT_MODEL: dict[str, Any] = {
    "n_layers": 1,
    "d_model": 64,
    "n_heads": 4,
    "attention": "kv_shift",
}
"""Fields of the `ModelConfig` that a run has if no model is given. Its vocabulary and context length are the task's."""

if TYPE_CHECKING:
    FilledModel = ModelConfig
else:
    FilledModel = ModelConfig | None  # None is replaced by the default model of the task


@config
class RunConfig:
    """A task, a model and how to train it, with AdamW. A step is one update of the weights, on one batch.

    `RunConfig()` is what `ihlab train` trains: one layer of KV shifting learns induction in 20 seconds on one core.

    Attributes:
        task: The task. By default induction with 128 token ids and sequences of 32.
        model: The model. None: one layer of KV shifting with d_model=64 and 4 heads, and the task's vocabulary and
            length.
        name: Name of the run. Its folder's name is this name and the hash of the settings. It changes nothing else.
        seed: Seed of the initial weights and of the training batches; evaluation batches have their own. Seeds that
            differ by a multiple of 2**32 share most initial weights.
        steps: Steps of training.
        batch_size: Sequences per step.
        accumulate: Number of microbatches per step. More need less memory; the gradient is the same (up to dropout).
        lr: Learning rate of AdamW, after the warmup.
        warmup: Steps over which the learning rate rises linearly from 0.
        schedule: The learning rate after the warmup: constant; cosine or linear, which would be 0 one step after
            the last; or trapezoid, constant and then linear over the last fifth of the steps.
        betas: AdamW's decay rates, per step, for the running averages of the gradient and of its square.
        weight_decay: AdamW's weight decay: each step shrinks a weight by this fraction times the learning rate. It
            acts on matrices, never on norms, alpha or beta. Embeddings that no batch reads have no gradient, so weight
            decay alone moves them: towards 0.
        undecayed: Names of parameters that weight decay leaves alone, such as pos_embed.weight (learned positions).
        clip: Largest norm of the gradient; None: no clipping.
        precision: Number format of the forward pass: fp32, or bf16 (autocast).
        compile: Train through torch.compile. Steps are faster, but compiling takes some seconds to a minute, once per
            process for all similar runs. On a CPU it needs a C++ compiler.
        eval_every: Steps between evaluations, at first. There is always one at step 0 and one at the end.
        eval_growth: Steps between evaluations as a fraction of the steps done so far, once that exceeds eval_every, so
            that early phase changes are resolved. 0: always eval_every.
        eval_rows: Held-out sequences per evaluation.
        checkpoints: Number of checkpoints, with the optimiser's state, spread evenly over the evaluations.
        init_shift: Initial alpha1 and beta1 of every head of every layer, with alpha2 = 1 - alpha1 and
            beta2 = 1 - beta1. None: each head draws its own from the seed. A gate starts within .001 and .999.
        stop_at_accuracy: Early stopping threshold: training ends at the first evaluation at which stop_at_metric
            reaches this accuracy, from 0 to 1. None: training ends after the last step.
        stop_at_metric: The accuracy that early stopping compares: of a sequence's first answer (accuracy_first), or
            of all answers (accuracy).
        clamped: Clamps from the first step to the last, such as a head with a fixed previous-token pattern. A fork
            has its own clamps and ignores these.
    """

    task: Task = field(default_factory=lambda: InductionTask(**DEFAULT_TASK))
    model: FilledModel = None  # type: ignore[assignment]
    name: str = "run"
    seed: int = 0
    steps: int = 1000
    batch_size: int = 64
    accumulate: int = 1
    lr: float = 1e-3
    warmup: int = 100
    schedule: Literal["constant", "cosine", "linear", "trapezoid"] = "constant"
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.1
    clip: float | None = 1.0
    precision: Literal["fp32", "bf16"] = "fp32"
    compile: bool = False
    eval_every: int = 10
    eval_growth: float = 0.05
    eval_rows: int = 512
    checkpoints: int = 16
    init_shift: tuple[float, float] | None = None
    stop_at_accuracy: float | None = renamed(default=None, was="until")
    stop_at_metric: Literal["accuracy_first", "accuracy"] = renamed(
        default="accuracy_first", was="until_metric"
    )
    clamped: tuple[Clamp, ...] = ()
    undecayed: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.model is None:
            sizes = {"d_vocab": self.task.vocab_size, "n_ctx": self.task.length}
            object.__setattr__(self, "model", ModelConfig(**DEFAULT_MODEL, **sizes))
        require_least(self, steps=1, batch_size=1, accumulate=1, eval_every=1, eval_rows=1)
        require_least(self, checkpoints=2, warmup=0, seed=0, weight_decay=0, eval_growth=0)
        for name in ("lr", "clip"):
            value = getattr(self, name)
            require(
                value is None or value > 0, f"RunConfig.{name} is {value}, but must be positive."
            )
        require(
            all(0 <= beta < 1 for beta in self.betas),
            f"RunConfig.betas is {self.betas}, but both must be in [0, 1).",
        )
        require(
            self.init_shift is None or self.model.learns_both,
            f"RunConfig.init_shift is {self.init_shift}, but a {self.model.attention} model does not learn both "
            "alpha and beta: use an attention that does, such as 'kv_shift'.",
        )
        for clamp in self.clamped:
            clamp.check(self.model)
        require(
            self.stop_at_accuracy is None or 0 < self.stop_at_accuracy <= 1,
            f"RunConfig.stop_at_accuracy is {self.stop_at_accuracy}, but must be above 0 and at most 1.",
        )
        require(
            self.batch_size % self.accumulate == 0,
            f"RunConfig.accumulate is {self.accumulate}, which does not divide batch_size={self.batch_size}.",
        )
        # A leading "-" looks like a command-line option. A spreadsheet reads "=", "+", "-" and "@" as a formula.
        named = (
            self.name.isprintable() and "/" not in self.name and self.name[:1] not in ("", *".=+-@")
        )
        require(
            named and len(self.name.encode()) <= LONGEST_NAME,
            f"RunConfig.name is {shown(self.name)}, but must be usable as a folder name: printable, without '/', at "
            f"most {LONGEST_NAME} bytes, and beginning with none of . = + - @.",
        )
        self._check_evaluations()
        require(
            self.task.length >= 4,
            f"The task's length is {self.task.length}, but must be at least 4: heads are probed with 4 repeats.",
        )
        require(
            self.task.length <= self.model.n_ctx,
            f"The task's length is {self.task.length}, but the model's n_ctx is {self.model.n_ctx}: too short.",
        )
        require(
            self.task.vocab_size <= self.model.d_vocab,
            f"The task's vocab_size is {self.task.vocab_size}, but the model's d_vocab is only {self.model.d_vocab}.",
        )

    def _check_evaluations(self) -> None:
        """Raise `ConfigError` for more evaluations than a table of metrics can hold."""
        # An upper bound: growth widens the gaps after 1 / eval_growth of them.
        dense = self.steps / self.eval_every
        if self.eval_growth * dense > 1:
            dense = 1 / self.eval_growth
        require(
            dense <= MOST_EVALUATIONS,
            f"RunConfig.eval_every is {self.eval_every}, which with eval_growth={self.eval_growth} makes more than "
            f"{MOST_EVALUATIONS} evaluations in {self.steps} steps: it must be larger.",
        )

    def replace(self, **changes: Any) -> "RunConfig":
        """Return a copy of this config with some fields replaced."""
        return replace(self, **changes)

    @property
    def recipe(self) -> str:
        """The task, model, steps and learning rate in one line."""
        task, model = self.task, self.model
        layers = f"{model.n_layers} layer" + "s" * (model.n_layers > 1)
        return (
            f"task {task.kind} (vocab_size {task.vocab_size}, length {task.length}); "
            f"model {model.attention} ({layers}, d_model {model.d_model}, n_heads {model.n_heads}); "
            f"{self.steps} steps of {self.batch_size} sequences; lr {self.lr:g}, {self.warmup} steps of warmup"
        )

    @property
    def digest(self) -> str:
        """A hash of the version of the task's rule and of all fields that differ from their defaults, except the name.

        Defaults are left out so that adding a field does not rename stored runs: its default is the old behaviour.
        """
        content = {**_altered(self), "name": None}
        # The kind and rule of the run's own task stand beside it, as they always have.
        content |= {"task": _altered(self.task), **kind_and_rule(self.task)}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:10]

    def folder(self, root: str | Path) -> Path:
        """Return the run's folder under `root`: a stored folder with its hash and any name, else `<name>-<hash>`."""
        stored = sorted(Path(root).glob(f"*-{self.digest}/config.json"))
        if stored:
            return stored[0].parent
        return Path(root) / f"{self.name}-{self.digest}"

    @property
    def first_step(self) -> int:
        """The step at which the run starts."""
        return 0

    @property
    def horizon(self) -> int:
        """The step at which a falling learning rate reaches 0."""
        return self.steps

    @property
    def clamps(self) -> tuple[Clamp, ...]:
        """The clamps that apply while the run trains."""
        return self.clamped

    @property
    def graph(self) -> tuple[object, ...] | None:
        """The key of a compiled graph: unstacked runs with equal keys and no clamps share it. None if not compiled."""
        if not self.compile:
            return None
        rows = self.batch_size // self.accumulate
        return (self.model, self.clamps, self.task.length, rows, self.precision)

    def reached(self, row: Mapping[str, float]) -> bool:
        """Return whether training ends early, after an evaluation with this row of metrics."""
        return (
            self.stop_at_accuracy is not None and row[self.stop_at_metric] >= self.stop_at_accuracy
        )

    def eval_steps(self) -> list[int]:
        """Return the steps after which the run is evaluated: dense early, sparse late, with the first and the last."""
        steps = [0]
        while steps[-1] < self.steps:
            gap = max(self.eval_every, int(min(steps[-1] * self.eval_growth, self.steps)))
            steps.append(min(steps[-1] + gap, self.steps))
        return [self.first_step, *(step for step in steps if step > self.first_step)]

    def checkpoint_steps(self) -> list[int]:
        """Return the evaluation steps at which a checkpoint is kept: the first, the last, and evenly spaced ones."""
        return even_choice(self.eval_steps(), self.checkpoints)


def constant_steps(run: RunConfig) -> int:
    """Return the number of steps before the decay of a "trapezoid" schedule (its last fifth); otherwise all steps."""
    if run.schedule == "trapezoid":
        return run.horizon - run.horizon // 5
    return run.steps


def even_choice(steps: Sequence[int], most: int) -> list[int]:
    """Return at most `most` (two or more) of the sorted steps: the first, the last, and others evenly between them."""
    count = min(most, len(steps))
    return sorted({steps[round(i * (len(steps) - 1) / max(count - 1, 1))] for i in range(count)})


@config
class Fork:
    """The origin and the clamps of a fork.

    - `parent`: the digest of the parent run; `parent_name`: the parent's name, which only people read;
    - `step`: the step of the checkpoint from which the fork starts;
    - `horizon`: the step at which a falling learning rate reaches 0: the parent's, since the fork keeps its schedule;
    - `clamps`: clamps from that step on;
    - `new_moments`: whether AdamW's moments start again at zero.
    """

    parent: str
    parent_name: str = field(compare=False)
    step: int
    horizon: int
    clamps: tuple[Clamp, ...] = ()
    new_moments: bool = False

    removed: ClassVar[Mapping[str, object]] = {"rewound": []}
    """As `ModelConfig.removed`."""


@config
class ForkConfig(RunConfig):
    """A `RunConfig` that continues from a checkpoint of another run (`ihlab.training.fork`).

    `steps` is the last step, counted from the start of that run.
    """

    fork: Fork

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            0 <= self.first_step < self.steps,
            f"ForkConfig.steps is {self.steps}, but must be more than {self.first_step}, the step of the fork.",
        )
        require(
            self.schedule == "constant" or self.steps <= self.horizon,
            f"ForkConfig.steps is {self.steps}, but the parent's {self.schedule} learning rate is 0 "
            f"from step {self.horizon} on: at most {self.horizon}.",
        )
        for clamp in self.clamps:
            clamp.check(self.model)

    @property
    def first_step(self) -> int:
        """The step at which the run starts: the step of the fork."""
        return self.fork.step

    @property
    def horizon(self) -> int:
        """The step at which the parent's falling learning rate reaches 0."""
        return self.fork.horizon

    @property
    def clamps(self) -> tuple[Clamp, ...]:
        """The clamps of the fork."""
        return self.fork.clamps


@config
class Lessons:
    """Questions that are added to the batches of a run, in the sequences that its model answers worst.

    - `rows`: how the sequences are found. "proof": they are those of a certificate, and training ends once it proves
      every length up to the largest. "attack": a search finds them, and training ends once it finds no wrong answer.
      "random": they are drawn from the set of the proof;
    - `lengths`: their numbers of tokens;
    - `start`: the step of the first lessons. `every`: the least number of steps until they are found anew, which
      happens at evaluations;
    - `fraction`: the fraction of a batch's sequences that are lessons.
    """

    lengths: tuple[int, ...]
    rows: Literal["proof", "attack", "random"] = "proof"
    start: int = 100
    every: int = 50
    fraction: float = 2 / 3

    def __post_init__(self) -> None:
        require(
            self.lengths == tuple(sorted({*self.lengths})) and min(self.lengths, default=0) >= 3,
            f"Lessons.lengths is {self.lengths}, but must be ascending numbers of tokens, at least 3.",
        )
        require_least(self, start=0, every=1)
        require(
            0 < self.fraction < 1,
            f"Lessons.fraction is {self.fraction}, but must be between 0 and 1.",
        )


@config
class TaughtConfig(RunConfig):
    """A `RunConfig` whose batches have lessons. `ihlab.certify.train_until_proved` trains it."""

    lessons: Lessons

    def __post_init__(self) -> None:
        super().__post_init__()
        longest, n_ctx = self.lessons.lengths[-1], self.model.n_ctx
        require(
            longest <= n_ctx,
            f"Lessons.lengths has {longest}, but the model's n_ctx is {n_ctx}: too short.",
        )
        for name, only in {"accumulate": 1, "compile": False}.items():
            value = getattr(self, name)
            require(
                value == only,
                f"TaughtConfig.{name} is {value}, but must be {only}: lessons have other shapes.",
            )

    def reached(self, row: Mapping[str, float]) -> bool:
        """Return whether the lessons are learned, or training ends as without them."""
        proved = row.get("proved_length", 0) >= self.lessons.lengths[-1]
        return proved or row.get("attacked_accuracy", 0) == 1 or super().reached(row)

    def renewals(self) -> list[int]:
        """Return the evaluation steps at which lessons are found."""
        steps: list[int] = []
        for step in self.eval_steps():
            if step >= self.lessons.start and (not steps or step - steps[-1] >= self.lessons.every):
                steps.append(step)
        return steps


def taught(run: RunConfig, lessons: Lessons) -> TaughtConfig:
    """Return the config of a run with lessons."""
    return TaughtConfig(**vars(run), lessons=lessons)


def first_defaults(cls: Any) -> dict[str, Any]:
    """Return the defaults of a config class by stored names.

    A run's digest leaves out fields at their default, and a stored config that lacks a field gets
    it. So a default never changes: stored runs would change their digest and their meaning.
    """
    defaults = {
        name: cls.__dataclass_fields__[field].default for field, name in stored_names(cls).items()
    }
    return {name: default for name, default in defaults.items() if default is not MISSING}


def _altered(settings: Any) -> dict[str, Any]:
    """Return the fields of a config that differ from `first_defaults`, nested configs included, without names."""
    stored, usual = stored_names(settings), first_defaults(type(settings))
    altered = {}
    for known in fields(settings):
        name, value = stored[known.name], getattr(settings, known.name)
        if known.compare and (name not in usual or value != usual[name]):
            altered[name] = _content(value)
    return altered


def _content(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_content(item) for item in value]
    if isinstance(value, Task):  # one of several that a task of your own holds
        return {**_altered(value), **kind_and_rule(value)}
    return _altered(value) if is_dataclass(value) else value


def to_dict(run: RunConfig) -> dict[str, Any]:
    """Return the config as a run folder stores it: JSON types, the task with its `kind` and its rule's version."""
    return to_plain(run)


def from_dict(stored: dict[str, Any]) -> RunConfig:
    """Return the config of a stored dict, the inverse of `to_dict`.

    A task of an unregistered kind becomes a `StoredTask`. Raises `ConfigError` for an unknown field, and for a task
    whose rule has changed since.
    """
    for name in ("task", "model", "betas"):
        require(name in stored, f"The stored config has no '{name}'.")
    for name in ("task", "model"):
        require(
            isinstance(stored[name], dict),
            f"The stored config's {name} is {stored[name]!r}, but must be fields.",
        )
    config_type: type[RunConfig] = RunConfig
    if "fork" in stored:
        config_type = ForkConfig
    elif "lessons" in stored:
        config_type = TaughtConfig
    model = _stored_model(json.dumps(stored["model"]), tuple(VARIANTS))
    parts = {"task": _stored_task(stored["task"], stored["model"]), "model": model}
    if isinstance(stored.get("fork"), dict):
        parts["fork"] = _filled(Fork, stored["fork"])
    return from_plain(config_type, {**_filled(RunConfig, stored), **parts})


@lru_cache
def _stored_model(stored: str, registered: tuple[str, ...]) -> ModelConfig:
    """Return the config of a model stored as JSON. It is cached, because thousands of runs share a few models.

    `registered`: the attention variants registered now, for the cache: a config with another variant is refused.
    """
    return from_plain(ModelConfig, _filled(ModelConfig, json.loads(stored)), name="model")


def _filled(cls: Any, stored: dict[str, Any]) -> dict[str, Any]:
    """Return a config's stored fields, with first defaults for those added since it was stored."""
    return {**first_defaults(cls), **stored}


def _stored_task(stored: dict[str, Any], model: dict[str, Any]) -> dict[str, Any] | StoredTask:
    """Return a task's stored fields. Tasks stored before rules had versions get rule 1.

    A task of an unknown kind becomes a `StoredTask`. If it states no vocab_size or length, the model's are used.
    """
    kind = stored.get("kind")
    if not isinstance(kind, str):
        return stored  # refused by `from_plain`
    if kind in kinds():
        return {"rule": 1, **_filled(kinds()[kind], stored)}
    unread = {name: value for name, value in stored.items() if name != "kind"}
    sizes: Any = {
        "vocab_size": stored.get("vocab_size", model.get("d_vocab")),
        "length": stored.get("length", model.get("n_ctx")),
    }
    return StoredTask(kind=kind, fields=unread, **sizes)
