"""What a run records about its model: loss, accuracy, induction-head scores, alpha and beta."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from ihlab.model.transformer import Transformer
from ihlab.training.config import RunConfig
from ihlab.training.scored import Graded, graded
from ihlab.training.stream import draw
from tasks import IGNORE, Batch, Task

EVAL_SEED = 20241129  # one held-out set for every run of a task, whatever the run's own seed
CHUNK_POSITIONS = 8192  # tokens per evaluation forward pass: more leave the CPU's cache and take 1.4 times as long
PROBE_ROWS, PROBE_REPEATS = 16, 4


class Evaluator:
    """Measures a model on a fixed held-out set and on repeated random tokens."""

    def __init__(self, run: RunConfig, device: torch.device) -> None:
        batch = draw(run.task, EVAL_SEED, "eval", 0, run.eval_rows)
        rows = max(1, CHUNK_POSITIONS // run.task.length)
        pieces = [batch.rows(i, i + rows) for i in range(0, run.eval_rows, rows)]
        self.batches = [graded(piece, device) for piece in pieces]
        self.slices = slices(batch)
        self.members = [membership(piece, self.slices).to(device) for piece in pieces]
        self.probe = repeated_tokens(run.task, PROBE_ROWS, PROBE_REPEATS).to(device)
        self.device = device

    @torch.no_grad()
    def __call__(self, model: Transformer) -> dict[str, float]:
        """One row of metrics: eval_loss, accuracy, accuracy_first, accuracy_hops_3, prefix_L.H, alpha1_L.G, ..."""
        return {
            **held_out(model, self.batches, self.device, self.slices, self.members),
            **_prefix_scores(model, self.probe),
            **_shift_weights(model),
        }


def held_out(
    model: Transformer,
    batches: list[Graded],
    device: torch.device,
    slices: Sequence[tuple[str, int]] = (),
    members: Sequence[Bool[Tensor, "slice _"]] = (),
) -> dict[str, float]:
    """Loss over targets, accuracy over all answers, over the first answer of each row, and over each slice.

    A slice's column is `accuracy_<group>_<value>`, such as accuracy_hops_3; `members` holds one `membership`
    a batch. An accuracy is NaN where nothing is asked.
    """
    loss = torch.zeros((), dtype=torch.float64, device=device)
    right = torch.zeros(2 + len(slices), dtype=torch.int64, device=device)  # all answers, first ones, each slice's
    asked = torch.zeros(len(slices), dtype=torch.int64, device=device)
    for i, batch in enumerate(batches):
        logits = model.unembed(model.residual_at(batch.tokens, batch.index, batch.queries)).float()
        loss += F.cross_entropy(logits, batch.targets, ignore_index=IGNORE, reduction="sum")
        hit = logits.argmax(dim=-1) == batch.answers
        right[:2] += torch.stack([hit.sum(), (hit & batch.first).sum()])
        if slices:
            right[2:] += (members[i] & hit).sum(dim=1)
            asked += members[i].sum(dim=1)
    n_right, n_first_right, *in_slices = torch.cat([right, asked]).tolist()  # read once: each reading stalls a GPU
    return {
        "eval_loss": loss.item() / sum(batch.n_targets for batch in batches),
        "accuracy": _share(n_right, sum(batch.n_answers for batch in batches)),
        "accuracy_first": _share(n_first_right, sum(batch.n_first for batch in batches)),
        **{
            f"accuracy_{group}_{value}": _share(n, of)
            for (group, value), n, of in zip(slices, in_slices[: len(slices)], in_slices[len(slices) :], strict=True)
        },
    }


def _share(n: int, of: int) -> float:
    return n / of if of else math.nan


def slices(batch: Batch) -> list[tuple[str, int]]:
    """Every (group, value) that some answer of the batch belongs to, values in order."""
    asked = batch.answers != IGNORE
    return [
        (group, int(value))
        for group, values in batch.groups.items()
        for value in np.unique(_by_position(values, batch)[asked])
    ]


def membership(batch: Batch, slices: Sequence[tuple[str, int]]) -> Bool[Tensor, "slice graded"]:
    """Which of a batch's graded positions, in the order of `Graded.index`, are answers that belong to each slice."""
    asked = batch.answers != IGNORE
    kept = asked | (batch.targets != IGNORE)
    of_group = {group: _by_position(values, batch)[kept] for group, values in batch.groups.items()}
    members = [asked[kept] & (of_group[group] == value) for group, value in slices]
    return torch.from_numpy(np.array(members, dtype=bool).reshape(len(slices), kept.sum()))


def _by_position(values: np.ndarray, batch: Batch) -> Int[np.ndarray, "batch pos"]:
    per_row = values.ndim == 1
    return np.broadcast_to(values[:, None] if per_row else values, batch.inputs.shape)


def repeated_tokens(task: Task, rows: int, repeats: int) -> Int[Tensor, "rows pos"]:
    """Rows of distinct random ids, each row's run of ids repeated to fill the task's length.

    Ids come from the task's own inputs, so that every one of them is a token the model has seen.
    """
    drawn = np.unique(draw(task, EVAL_SEED, "probe", 0, 256).inputs)
    rng = np.random.default_rng(EVAL_SEED)
    period = min(task.length // repeats, len(drawn))
    tokens = np.stack([np.tile(rng.permutation(drawn)[:period], repeats) for _ in range(rows)])
    return torch.from_numpy(tokens)


def prefix_matching_score(
    pattern: Float[Tensor, "batch head query key"], tokens: Int[Tensor, "batch pos"], repeats: int
) -> Float[Tensor, " head"]:
    """Mean attention from each token of the last repeat to the tokens right after its earlier occurrences.

    Summed over the occurrences, averaged over queries and rows: 1 for a head that attends nowhere
    else (Olsson et al. 2022, arXiv 2209.11895, "prefix matching").
    """
    period = tokens.shape[1] // repeats
    query = torch.arange((repeats - 1) * period, repeats * period, device=tokens.device)
    after = torch.stack([query - back * period + 1 for back in range(1, repeats)])  # [occurrence, query]
    return pattern[:, :, query, after].sum(dim=2).mean(dim=(0, 2))


def _prefix_scores(model: Transformer, probe: Tensor) -> dict[str, float]:
    scores: dict[str, float] = {}
    _, cache = model.run_with_cache(probe, names_filter=lambda name: name.endswith("hook_pattern"))
    for layer in range(model.cfg.n_layers):
        by_head = prefix_matching_score(cache["pattern", layer], probe, PROBE_REPEATS)
        scores |= {f"prefix_{layer}.{head}": value for head, value in enumerate(by_head.tolist())}
    return scores


def _shift_weights(model: Transformer) -> dict[str, float]:
    if model.cfg.attention == "vanilla":
        return {}
    weights: dict[str, float] = {}
    for layer, block in enumerate(model.layers):
        for name, parameter in (("alpha", block.attn.alpha), ("beta", block.attn.beta)):
            for head, row in enumerate(parameter.tolist()):
                weights |= {f"{name}{column + 1}_{layer}.{head}": value for column, value in enumerate(row)}
    return weights
