"""Induction by two tokens: what is trained, and verdicts on made-up tables."""

from figures.pairs.study import PAIRS, Q2K3
from tests.figures.made_up import table, verdicts


def best(of):
    return set(
        verdicts(
            PAIRS, table(PAIRS, lambda cell: {"best": of(cell["variant"]), "steps_to_90": 100})
        ).values()
    )


def test_verdicts_can_come_out_either_way():
    def expected(variant):
        return 0.97 if variant.startswith(Q2K3) else 1 / 3

    assert best(expected) == {"holds"}
    assert best(lambda variant: 1.3 - expected(variant)) == {"fails"}
    assert best(lambda variant: 0.9 if variant.startswith(Q2K3) else 0.7) == {"undecided"}
