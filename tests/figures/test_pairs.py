"""Induction by two tokens: what is trained, and verdicts on made-up tables."""

from figures.pairs.study import KV3, PAIRS, Q2K3, VARIANTS
from tests.figures.made_up import table, verdicts


def best(of):
    return set(verdicts(PAIRS, table(PAIRS, lambda cell: {"best": of(cell["variant"]), "steps_to_90": 100})).values())


def test_verdicts_can_come_out_either_way():
    def expected(variant):
        return 0.97 if variant.startswith(Q2K3) else 1 / 3

    assert best(expected) == {"holds"}
    assert best(lambda variant: 1.3 - expected(variant)) == {"fails"}
    assert best(lambda variant: 0.9 if variant.startswith(Q2K3) else 0.7) == {"undecided"}


def test_only_the_window_of_the_queries_is_one_shorter():
    models = {p.cell_name: p.config.model for p in PAIRS.runs("laptop")}
    assert models.keys() == VARIANTS.keys()
    assert [models[name].shift_window for name in (KV3, Q2K3)] == [3, 3]
    assert [models[Q2K3].window_of(weight) for weight in ("alpha", "beta", "gamma")] == [3, 3, 2]
