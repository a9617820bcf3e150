"""Dependencies in topological order, against networkx's list of all valid orders."""

import random
from collections import Counter
from itertools import permutations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2_contingency

import tasks.brevo
from tasks import IGNORE, BrevoTask, ConfigError
from tests.tasks.deep import brevo_graph, brevo_row
from tests.tasks.shown import picture


def drawn(task, n, seed=0):
    """Tokens, answer, choices and depth of each row."""
    batch = task.batch(n, np.random.default_rng(seed))
    for i in range(n):
        scored = batch.targets[i] != IGNORE
        answer, choices = batch.targets[i][scored].tolist(), batch.groups["choices"][i]
        assert (choices[~scored] == 0).all()
        yield batch.inputs[i].tolist(), answer, choices[scored].tolist(), batch.groups["depth"][i]


def test_the_worked_row_in_the_docstring_obeys_the_rule():
    task, cells = BrevoTask(vocab_size=10, vertices=5), picture(tasks.brevo.__doc__)
    words = task.words(np.arange(10))
    tokens = [words.index(word) for word in cells["input"]]
    orders = [list(order) for order in nx.all_topological_sorts(brevo_graph(tokens))]
    assert sorted(orders) == [[4, 7, 6], [7, 4, 6]]
    assert [int(target) for target in cells["target"] if target] in orders
    assert [t for t, target in enumerate(cells["target"]) if target] == [13, 14, 15]


@given(st.integers(3, 7), st.integers(0, 10), st.integers(0, 2**32))
def test_answers_are_valid_orders_and_choices_are_counted(vertices, more, seed):
    task = BrevoTask(vertices=vertices, vocab_size=4 + vertices + more, length=60)
    for tokens, answer, choices, depth in drawn(task, 4, seed):
        graph, front = brevo_graph(tokens), tokens.index(3) + 1
        assert tokens[front : front + len(answer)] == answer
        assert not any(tokens[front + len(answer) :])
        orders = list(nx.all_topological_sorts(graph))
        assert answer in orders
        for step, of in enumerate(choices):
            assert of == len({order[step] for order in orders if order[:step] == answer[:step]})
        sources = [v for v in graph if not graph.in_degree(v)]
        assert depth == min(nx.shortest_path_length(graph, source, answer[-1]) for source in sources)
        edges = list(zip(tokens[1 : front - 3 : 2], tokens[2 : front - 3 : 2], strict=True))
        assert len(set(edges)) == len(edges)
        assert max((Counter(u for u, _ in edges) + Counter()).values()) <= 4
        assert max(Counter(v for _, v in edges).values()) <= 4


def test_exactly_the_valid_orders_are_accepted():
    """Of all orders of all sets of vertices. What follows the last vertex of the answer is not read."""
    for tokens, _, _, _ in drawn(BrevoTask(vertices=5, vocab_size=9), 40):
        orders = {tuple(order) for order in nx.all_topological_sorts(brevo_graph(tokens))}
        for n in range(6):
            for order in permutations(range(4, 9), n):
                assert BrevoTask().accepts(tokens, order) == any(order[: len(valid)] == valid for valid in orders)
        order = min(orders)
        assert BrevoTask().accepts(tokens, [*order, 4, 4])
        assert not BrevoTask().accepts(tokens, [order[0], *order])


@pytest.mark.parametrize("question", [[], [1, 4, 5], [1, 4, 5, 2], [1, 4, 2, 5, 3]])
def test_what_is_not_a_question_is_refused(question):
    with pytest.raises(ConfigError, match=r"^question is \[.*, but must be bos, pairs of vertices, ask and a vertex\."):
        BrevoTask().accepts(question, [4])


@pytest.mark.parametrize("vertices", [3, 6, 11])
def test_graphs_are_drawn_like_those_of_plain_python(vertices):
    """The numbers of edges and of vertices of the answer, jointly."""
    task, rng, n = BrevoTask(vertices=vertices, vocab_size=20, length=100), random.Random(0), 2000
    counts = [
        Counter((tokens.index(2), sum(token > 3 for token in tokens)) for tokens in rows)
        for rows in (
            task.batch(n, np.random.default_rng(0)).inputs.tolist(),
            [brevo_row(task, rng)[0] for _ in range(n)],
        )
    ]
    cells = [key for key in counts[0] | counts[1] if counts[0][key] + counts[1][key] >= 10]
    assert chi2_contingency([[count[key] for key in cells] for count in counts]).pvalue > 1e-3


def test_the_next_vertex_is_uniform_on_the_valid_ones_and_guessing_is_as_good_as_the_docstring_says():
    """Saying the valid vertex with the smallest id is right in 1 / choices; saying any vertex is in 1 / (m - 1)."""
    task = BrevoTask()
    right, best, guessed, chance = [], [], [], []
    for tokens, answer, choices, _ in drawn(task, 1500):
        graph = brevo_graph(tokens)
        for step, vertex in enumerate(answer):
            valid = [v for v in set(graph) - {*answer[:step]} if {*graph.predecessors(v)} <= {*answer[:step]}]
            right.append(min(valid) == vertex)
            best.append(1 / choices[step])
        others = {*tokens[1 : tokens.index(2)]} - {answer[-1]}
        guessed.append(min(others) == answer[0])
        chance.append(1 / len(others))
    assert np.mean(right) == pytest.approx(np.mean(best), abs=4 * np.std(right) / len(right) ** 0.5)
    assert np.mean(guessed) == pytest.approx(np.mean(chance), abs=4 * np.std(guessed) / len(guessed) ** 0.5)
