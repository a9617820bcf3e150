"""Breadth: list everything that a vertex of a graph depends on, dependencies first.

One sequence with 5 vertices (ids 4 to 9), without its padding:

    input    bos   4   9   7   6   4   6   9   5   7   5  ask   6  ans   7   4   6
    role           u   v   u   v   u   v   u   v   u   v        q        a   a   a
    target                                                           7   4   6

v depends on u. So 6 depends on 7 and 4, which depend on nothing. 4 7 6 is right, too; 6 is always the last.
"""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from jaxtyping import Int64

from tasks.batch import Batch, in_lines
from tasks.config import config, require, shown
from tasks.kernels.brevo_ids import ANSWER, ASK, BOS, FIRST_VERTEX, MOST, PADDING
from tasks.memory import require_rows
from tasks.registry import register_task


@register_task
@config
class BrevoTask:
    """The edges of a directed acyclic graph, then a vertex and all it depends on, in a random topological order.

    A sequence draws `vertices` different ids, in an order in which vertices depend on earlier ones only. The first s
    depend on nothing, with s uniform on 1 .. (vertices - 1) // 4 + 1. Each later one depends on 1 to 4 earlier vertices
    (a uniform number), drawn from those on which fewer than 4 depend so far. The edges (u, v), "v depends on u", are
    in random order; a vertex without an edge does not appear. The query is the last vertex. The answer is every vertex
    that it depends on, directly or not, and itself: at each step, one is drawn uniformly of the vertices whose
    dependencies have all been written. Each vertex of the answer is a target, at the position before it.

    Any topological order is right, so the accuracy of a perfect model is not 1. `Batch.groups["choices"]`, int64
    [batch, pos], is the number of valid next vertices at each target (0 elsewhere). The best accuracy is the mean of
    1 / choices, the best loss the mean of log(choices). Where there is one choice, accuracy can reach 1. `accepts`
    judges generated answers. `Batch.groups["depth"]` is the number of edges from the query to the nearest vertex
    without dependencies.

    If m vertices appear in a sequence (m <= vertices), guessing any of them except the query has an accuracy of
    1 / (m - 1) at the first vertex of the answer, and a loss of log(m - 1).

    Ids: 0 is padding, 1 "bos", 2 "ask" (the query follows), 3 "ans" (the answer follows); the others are vertices.

    Source: Allen-Zhu 2025, "Physics of Language Models: Part 4.1", arXiv 2512.17351, the task Brevo; its code is in
    github.com/facebookresearch/PhysicsLM4. docs/guides/differences.md says what differs.

    Attributes:
        vocab_size: Size of the vocabulary: token ids are 0 .. vocab_size - 1.
        length: Number of positions in a sequence.
        vertices: Number of vertices of the graph.
    """

    kind: ClassVar[str] = "brevo"
    padding_id: ClassVar[int] = PADDING
    begins_with: ClassVar[tuple[int, ...]] = (BOS,)
    special_ids: ClassVar[tuple[int, ...]] = (PADDING, BOS, ASK, ANSWER)

    vocab_size: int = 16
    length: int = 38
    vertices: int = 6

    def __post_init__(self) -> None:
        require(self.vertices >= 3, f"BrevoTask.vertices is {self.vertices}, but must be at least 3.")
        least = FIRST_VERTEX + self.vertices
        require(
            self.vocab_size >= least,
            f"BrevoTask.vocab_size is {self.vocab_size}, but must be at least {least}: vertices={self.vertices} have "
            "different ids, besides padding, bos, ask and ans.",
        )
        edges = max(3, MOST * self.vertices - 10)  # vertex i depends on at most min(i, MOST) others
        least = 1 + 2 * edges + 3 + self.vertices
        require(
            self.length >= least,
            f"BrevoTask.length is {self.length}, but must be at least {least}: a graph of vertices={self.vertices} "
            f"has up to {edges} edges of two positions each, and an answer of {self.vertices}.",
        )

    def batch(self, size: int, rng: np.random.Generator) -> Batch:
        """Draw `size` sequences, each a pure function of one 64-bit seed taken from `rng`."""
        from tasks.kernels.brevo import draw_rows  # import numba only when sequences are drawn

        require_rows(self, size, rng, more=8 * self.vocab_size)
        seeds = rng.integers(0, 2**64, size, dtype=np.uint64)
        inputs, targets, choices, depth = draw_rows(seeds, self.vertices, self.vocab_size, self.length)
        return Batch(inputs=inputs, targets=targets, groups={"choices": choices, "depth": depth})

    def accepts(self, question: Sequence[int], answer: Sequence[int]) -> bool:
        """Return whether an answer is right: the query's vertex and all it depends on, each once, in a valid order.

        Args:
            question: The ids of a sequence up to "ans"; what follows is not read.
            answer: The ids of the answer. It ends with the query's vertex; what follows is not read.

        Raises `ConfigError` for a question that is not bos, edges, "ask" and a vertex.
        """
        tokens = [int(token) for token in question]
        ask = tokens.index(ASK) if ASK in tokens else 0
        require(
            ask % 2 == 1 and ask + 1 < len(tokens),
            lambda: f"question is {shown(tokens)}, but must be bos, pairs of vertices, ask and a vertex.",
        )
        before: dict[int, set[int]] = {tokens[ask + 1]: set()}
        for u, v in zip(tokens[1:ask:2], tokens[2:ask:2], strict=True):
            before.setdefault(v, set()).add(u)
        needed, waiting = set(), [tokens[ask + 1]]
        while waiting:
            vertex = waiting.pop()
            if vertex not in needed:
                needed.add(vertex)
                waiting += before.get(vertex, ())
        written: set[int] = set()
        for vertex in map(int, answer):
            if vertex in written or vertex not in needed or not before.get(vertex, set()) <= written:
                return False
            written.add(vertex)
            if vertex == tokens[ask + 1]:  # which depends on all the others
                return True
        return False

    def words(self, ids: Int64[np.ndarray, " token"]) -> list[str]:
        """Return the text of each id; vertices are numbers."""
        return [(".", "bos", "ask", "ans")[i] if i in self.special_ids else str(i) for i in ids]

    def show(self, batch: Batch, row: int) -> str:
        """Return the sequence in lines of 16 positions: token, target."""
        note = "Edges u v: v depends on u. The target is all that the asked vertex depends on, dependencies first."
        return in_lines(self, batch, row, note)
