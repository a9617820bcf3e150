"""Members whose circuit is known by construction: it is written into the weights (`ihlab.theory`)."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import pandas as pd
import torch

from ihlab.model.transformer import Transformer
from ihlab.theory.constructions import kv_shift_induction_head, two_layer_induction_head
from ihlab.theory.depth import by_doubling
from ihlab.theory.edits import add_noise, rotate, split_head
from ihlab.theory.k_hop import k_hop
from tasks import InductionTask, MultiHopTask, Task

INDUCTION = InductionTask(vocab_size=64, length=32, min_token=0)
"""The task of the theorems' models: induction with random repeats."""


@dataclass(frozen=True)
class Constructed:
    """A member with hand-set weights.

    - `build`: builds the model;
    - `task`: the task that it solves;
    - `circuit`: one stage per layer: heads that do the same work, the input (q, k or v) that brings
      the difference of the prompts, and what the heads do. Each head of a stage reads those of the
      stage before through this input.
    """

    build: Callable[[], Transformer]
    task: Task
    circuit: tuple[tuple[tuple[int, ...], str, str], ...]

    def table(self) -> pd.DataFrame:
        """Return the heads of the circuit: `layer`, `head`, `input` (what carries the difference)
        and `does`.
        """
        rows = pd.DataFrame(self.circuit, columns=["head", "input", "does"])
        return rows.rename_axis("layer").explode("head").astype({"head": int}).reset_index()

    def nodes(self, kind: str) -> set[tuple[int | str, ...]]:
        """Return the heads, inputs or edges of the circuit, each as the tuple of the `COLUMNS` that
        name it.
        """
        table = self.table()[["layer", "head", "input"]]
        if kind == "edge":
            senders = table.assign(later=table["layer"] + 1).drop(columns="input")
            edges = senders.merge(table, left_on="later", right_on="layer").drop(columns="later")
            return set(edges.itertuples(index=False, name=None))
        if kind == "head":
            table = table[["layer", "head"]]
        return set(table.itertuples(index=False, name=None))


def _two_layers() -> Constructed:
    model = partial(
        two_layer_induction_head, torch.eye(64), 32, first_slope=20.0, sigma=0.05, slope=0.01
    )
    previous = ((0,), "v", "attends to the token before and writes it into other directions")
    induction = (
        (0,),
        "k",
        "attends to the token after the last occurrence of its own and writes it",
    )
    return Constructed(model, INDUCTION, (previous, induction))


def _one_shifted_layer() -> Constructed:
    model = partial(
        kv_shift_induction_head, torch.eye(64), 32, sigma=0.05, slope=0.01, mask="strict"
    )
    does = "holds the token before in each key, so it attends to the token after the last occurrence of its own"
    return Constructed(model, INDUCTION, (((0,), "k", does),))


def _hops(n_layers: int, attention: str) -> Constructed:
    """Return a model of `k_hop` and its task, with the most hops that doubling them in every layer
    can reach.
    """
    hops = by_doubling(n_layers, attention)
    alphabet = (
        8 if hops > 2 else 12
    )  # with few letters, hops are short, so that many fit, and more paths differ
    task = MultiHopTask(
        vocab_size=hops + alphabet + 3,
        length=40 if hops > 2 else 32,
        max_hops=hops,
        alphabet=alphabet,
    )
    first = "attends to the last occurrence of its token and writes the position after it"
    later = "attends to the position that the stage before wrote, and writes the position and the symbol held there"
    if attention != "vanilla":
        first = "attends to the position after the last occurrence of its token, and writes what stands there"
        later = f"{later}, one hop further"
    circuit = (((0,), "k", first), *(((0,), "q", later) for _ in range(n_layers - 1)))
    return Constructed(lambda: k_hop(n_layers, attention, task).float(), task, circuit)


def _rotated(member: Constructed) -> Constructed:
    return replace(member, build=lambda: rotate(member.build()))


def _noisy(size: float, member: Constructed) -> Constructed:
    return replace(member, build=lambda: add_noise(member.build(), size))


def _split(copies: int, member: Constructed, n_heads: int) -> Constructed:
    """Split the head of the first stage. Each layer of `member` has `n_heads`."""
    (heads, name, does), *later = member.circuit
    stage = (
        (*heads, *range(n_heads, n_heads + copies - 1)),
        name,
        f"{does}; one of {copies} equal copies",
    )
    return replace(
        member, build=lambda: split_head(member.build(), 0, copies), circuit=(stage, *later)
    )


_INDUCTION, _ONE_HOP, _TWO_HOPS = _two_layers(), _hops(2, "vanilla"), _hops(3, "vanilla")
HAND_SET = {
    "hand-set-two-layers": _INDUCTION,
    "hand-set-kv-shift": _one_shifted_layer(),
    "hand-set-two-layers-rotated": _rotated(_INDUCTION),
    "hand-set-two-layers-noise": _noisy(0.1, _INDUCTION),
    "hand-set-two-layers-split": _split(2, _INDUCTION, n_heads=1),
    "hand-set-1-hop": _ONE_HOP,
    "hand-set-1-hop-thirds": _noisy(0.001, _split(3, _ONE_HOP, n_heads=2)),
    "hand-set-2-hop": _TWO_HOPS,
    "hand-set-4-hop": _hops(4, "vanilla"),
    "hand-set-2-hop-kv-shift": _hops(2, "kv_shift"),
    "hand-set-2-hop-rotated": _rotated(_TWO_HOPS),
    "hand-set-2-hop-noise": _noisy(0.001, _TWO_HOPS),
}
"""Members whose weights are set by hand."""
