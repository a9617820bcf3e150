"""Do recurrences do induction through their state, or through their short convolutions?

Arora et al. (arXiv 2505.15105) "find novel evidence that Mamba *does* implement induction: not via the SSM, but instead
via short convolutions", and "show that Mamba can learn Attention-like induction on ATR when short convolutions are
removed" (ATR is hierarchical). Here both claims are tested on two small recurrences (`gated_linear`, a small Mamba-2,
and `gated_delta`), with two layers, on induction and recall.

**Measure.** Induction on A B ... A answers B. For this B, the *follower*, has to carry the name of A, so it has to read
the token before it. One route is cut, in all layers:

- convolutions: at the follower, each convolution sees the follower alone;
- state: the follower reads nothing of the state from before it (its row of the kernel z = kernel @ v keeps the
  diagonal). Its own key and value are written as before, and later tokens read it.

The *fall* is what a cut takes from the accuracy on the prompts. As controls, the same is cut at the token before the
follower, where nothing has to be stored, the convolutions lose only the tokens two and three before the follower, and
the state is cut at the last token, which has to read it. (If attention is cut in this way, the token attends to itself.
A previous-token head then writes that token's name instead of the previous one's. So in vanilla attention the cut one
token before the follower costs accuracy, too.)

These models agree with the first sentence if the follower needs its convolutions (fall above `MOST`) and not the state
(fall below `LITTLE`). They can differ in two ways: the state does it, or each can. They agree with the second if
without convolutions the follower needs the state, as a vanilla follower needs attention. A model that finds the answer
at the last token alone ("direct retrieval" in that paper) has a fall near 0.

Pilots were known, one seed (100) of each kind: with convolutions the follower needed them (falls of .93 to .98) and not
the state (0); without them it needed layer 0's state (.87 to .89). Without convolutions, recall was not learned in
2,500 steps, nor induction by the gated linear recurrence without positions in 2,000. With learned positions more seeds
learn it without convolutions. Measures, thresholds and seeds were fixed before the runs; how many seeds must learn was
relaxed later for three questions (`CHANGED`). Runs end at an accuracy of `STOP`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pandas as pd
from matplotlib.figure import Figure

from ihlab.model.config import ModelConfig
from ihlab.plots.views import dots
from ihlab.recipes.labels import DELTA, DELTA_CONV, LINEAR, LINEAR_CONV, VANILLA
from ihlab.recipes.toy_settings import RECALL_GAP1, SETTINGS
from ihlab.study import stats
from ihlab.study.ask import Ask, Cell, Measured, Number, cell_in_words, claim_id, values
from ihlab.study.rates import ACCURACY
from ihlab.study.study import Run, Scale, Study, cells, steps_to_90
from ihlab.training.config import RunConfig
from tasks import InductionTask, Task

if TYPE_CHECKING:
    from torch import Tensor

    from ihlab.model.transformer import Transformer

MODELS: dict[str, dict[str, Any]] = {
    VANILLA: {},
    LINEAR: {"attention": "gated_linear"},
    DELTA: {"attention": "gated_delta"},
    LINEAR_CONV: {"attention": "gated_linear", "canon": "B"},
    DELTA_CONV: {"attention": "gated_delta", "canon": "B"},
}
LEARNED, NONE, RECALL = "induction, learned positions", "induction, no positions", "recall, no positions"
TASKS: dict[str, Task] = {
    LEARNED: InductionTask(vocab_size=64, length=32),
    NONE: InductionTask(vocab_size=64, length=32),
    RECALL: SETTINGS[RECALL_GAP1].task,
}
CELLS = [
    *cells(setting=[LEARNED], model=list(MODELS)),
    *cells(setting=[NONE], model=[DELTA, LINEAR_CONV, DELTA_CONV]),
    *cells(setting=[RECALL], model=[LINEAR_CONV, DELTA_CONV]),
]
PROMPTS = 512
STOP = 0.98
MOST, LITTLE = 0.5, 0.1
"""Falls in accuracy above which a route is needed, and below which it is not."""
MOSTLY, SOME = 0.8, 0.3
"""Fractions of the seeds that must reach 90% accuracy, or nothing is tested. The second is for recurrences without
convolutions, about which the paper only says that they can learn its task."""


def config(cell: Cell, scale: Scale) -> RunConfig:
    """Return the config of a model in a setting."""
    task = TASKS[cell["setting"]]
    model = ModelConfig(
        n_layers=2, d_model=64, n_heads=2, d_vocab=task.vocab_size, n_ctx=task.length,
        positional="learned" if cell["setting"] == LEARNED else "none", **MODELS[cell["model"]],
    )  # fmt: skip
    run = RunConfig(
        task=task, model=model, steps=2000, batch_size=32, lr=4e-3, schedule="trapezoid", eval_rows=256,
        eval_growth=0.05, checkpoints=2, stop_at_accuracy=STOP, stop_at_metric="accuracy",
    )  # fmt: skip
    return run.replace(steps=20, batch_size=8, warmup=5, eval_rows=32) if scale == "smoke" else run


def measure(run: Run) -> dict[str, float]:
    """Return the accuracy on prompts, and by how much every cut lowers it.

    - conv, state: at the follower, in all layers (what layer 1 reads there reaches no other token);
    - conv_far: only from the tokens two and three before the follower;
    - conv_before, state_before: at the token before the follower; state_last: at the last token.
    """
    import torch

    from ihlab.interp.prompt_pair import prompt_pair

    model, prompts = run.model().eval(), prompt_pair(run.config.task, PROMPTS, 0, "key")
    follower, rows = prompts.earlier + 1, torch.arange(PROMPTS)

    def accuracy() -> float:
        with torch.no_grad():
            answers = model(prompts.clean)[rows, prompts.position].argmax(dim=-1)
        return (answers == prompts.answer).double().mean().item()

    whole, layers = accuracy(), range(model.cfg.n_layers)
    places = {"": follower, "_before": prompts.earlier, "_last": prompts.position}
    cuts = {f"state{name}": without_state(model, token, layers) for name, token in places.items()}
    if model.cfg.canon:
        cuts |= {
            "conv": without_convolutions(model, follower),
            "conv_far": without_convolutions(model, follower, seen=2),
            "conv_before": without_convolutions(model, prompts.earlier),
        }
    row = {**steps_to_90(run), "prompts": whole}
    for name, cut in cuts.items():
        with cut:
            row[name] = whole - accuracy()
    return row


@contextmanager
def without_convolutions(model: "Transformer", token: "Tensor", seen: int = 1) -> Iterator[None]:
    """At one token of each sequence [batch], let every convolution see that token alone, or the last `seen` ones."""
    import torch

    from ihlab.model.mixes.depthwise import Depthwise

    def alone(convolution: Depthwise, args: tuple[Any, ...], out: "Tensor") -> "Tensor":
        rows, out = torch.arange(len(out)), out.clone()
        window = token[:, None] + torch.arange(1 - seen, 1)
        out[rows, token] = convolution.forward(args[0][rows[:, None], window], None)[:, -1]
        return out

    hooks = [module.register_forward_hook(alone) for module in model.modules() if isinstance(module, Depthwise)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def without_state(model: "Transformer", token: "Tensor", layers: Any) -> Iterator[None]:
    """At one token of each sequence [batch], let layers read that token alone: attention 1, a kernel its own entry."""
    import torch

    def alone(weights: "Tensor", hook: Any) -> "Tensor":
        rows, weights = torch.arange(len(weights)), weights.clone()
        own = weights[rows, :, token, token]
        weights[rows, :, token] = 0
        weights[rows, :, token, token] = torch.ones_like(own) if hook.name.endswith("pattern") else own
        return weights

    kinds = ("hook_kernel", "hook_pattern")
    names = [f"blocks.{layer}.attn.{kind}" for layer in layers for kind in kinds]
    with model.hooks(fwd_hooks=[(name, alone) for name in names if name in model.hook_dict]):
        yield


def fall(cell: Cell, route: str, least: float) -> Number:
    """Return the mean fall after a cut over seeds that learned the task. `least`: the fraction that must learn it."""
    of_state = "attention to earlier tokens" if cell["model"] == VANILLA else "state"
    what = "convolutions" if route == "conv" else of_state

    def number(data: pd.DataFrame) -> Measured:
        accuracies, falls = values(data, cell, "accuracy"), values(data, cell, route)
        falls = [fall for accuracy, fall in zip(accuracies, falls, strict=True) if accuracy >= ACCURACY]
        seeds = f"{len(falls)} of {len(accuracies)} seeds reach {ACCURACY:.0%} accuracy"
        if len(falls) < least * len(accuracies):
            return Measured("", None, len(falls), f"{cell_in_words(cell)}: {seeds}.")
        measure = f"fall in accuracy without the follower's {what}, mean over seeds, {cell_in_words(cell)} ({seeds})"
        return Measured(measure, stats.mean(falls, stats.DIFFERENCE), len(falls))

    return number


CHANGED = (
    "2026-11-28: the paper says that Mamba can learn its task so, hence the seeds that learned are asked, at least "
    "three; changed when 3 to 5 of 10 had learned, before any fall of these seeds was computed"
)


def ask(cell: Cell, route: str, sentence: str, **fields: Any) -> Ask:
    """Return a question about the fall in accuracy that a cut causes."""
    fields |= {"setting": cell, "source": "our test of a sentence in the abstract of arXiv 2505.15105"}
    first, can = fall(cell, route, MOSTLY), cell["model"] in (LINEAR, DELTA)
    if not can:
        return Ask(claim_id(route, *cell.values()), sentence, first, **fields)
    return Ask(
        claim_id(route, *cell.values()),
        sentence,
        fall(cell, route, SOME),
        first=first,
        changed=CHANGED,
        **fields,
    )


def asks(cell: Cell) -> list[Ask]:
    """Ask which route the follower needs."""
    if not MODELS[cell["model"]].get("canon"):
        what = "attention" if cell["model"] == VANILLA else "the state"
        return [ask(cell, "state", f"Without convolutions, the follower needs {what}.", above=MOST)]
    return [
        ask(cell, "conv", "With convolutions, the follower needs them.", above=MOST),
        ask(cell, "state", "With convolutions, the follower does not need the state.", below=LITTLE),
    ]


def view(data: pd.DataFrame) -> Figure:
    """Draw how much accuracy each cut costs, for each seed that learned the task; at smoke scale for every seed."""
    learned = data[data["accuracy"] >= ACCURACY]
    draw = dots("model", ["conv", "state"], panels="setting", xlabel="fall in accuracy on prompts", log=False)
    return draw(learned if len(learned) else data)


RECURRENCES = Study(
    name="recurrences",
    title="What the token after the earlier occurrence needs",
    caption="Fall in accuracy if one way to read earlier tokens is cut at this token, the follower. Dot: a seed.",
    declared="2026-11-28",
    cells=CELLS,
    config=config,
    seeds=range(10),
    measure=measure,
    asks=[question for cell in CELLS for question in asks(cell)],
    view=view,
    summary_columns=("steps_to_90", "accuracy"),
)
