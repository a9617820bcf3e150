"""Faults of packed documents, each planted in a shifted Llama, are named."""

import pytest
import torch

from ihlab.hf import attention
from ihlab.hf.conformance import run
from ihlab.hf.links import Links, find_links
from tests.hf.conftest import maker

CHECKS = ["positions", "packed_rows", "seq_idx", "cu_seqlens", "training"]


def late(chain):
    return torch.cat([torch.ones_like(chain[:, :1]), chain[:, :-1]], dim=1)


def only_first_eight(chain):
    return chain | ((~chain).cumsum(dim=1) > 8)  # the start of the sequence is a boundary, too


def after_256(chain):
    return chain | (torch.arange(chain.shape[1]) > 256)[:, None]


def not_of_one_token(chain):
    following = torch.cat([chain[:, 1:], torch.ones_like(chain[:, :1])], dim=1)
    return chain | ~following


def first_row(chain):
    return chain[:1].expand_as(chain)


CHANGES = {
    "documents are ignored": torch.ones_like,
    "a boundary is one token late": late,
    "only eight documents count": only_first_eight,
    "boundaries after 256 tokens are lost": after_256,
    "documents of one token are lost": not_of_one_token,
    "the first row's documents are those of all": first_row,
}


def changed_links(change, when=lambda self, side: True):
    """Return a mutant that changes which tokens belong to the same document as the one before."""

    def mutant(patch):
        shifted = attention._Projecting._shifted

        def wrong(self, side, raw):
            right = self._links
            if right.chain is not None and when(self, side):
                self._links = right._replace(chain=change(right.chain))
            result = shifted(self, side, raw)
            self._links = right
            return result

        patch.setattr(attention._Projecting, "_shifted", wrong)

    return mutant


FAULTS = {
    **{name: changed_links(change) for name, change in CHANGES.items()},
    "values leak": changed_links(torch.ones_like, lambda self, side: side == "value"),
    "the second layer leaks": changed_links(
        torch.ones_like, lambda self, side: self._attention.layer_idx == 1
    ),
    "documents leak in training": changed_links(
        torch.ones_like, lambda self, side: self._attention.training
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_a_shifted_llama_is_named(fault, monkeypatch):
    FAULTS[fault](monkeypatch)
    assert "FAIL" in {result.outcome for result in run(maker(), CHECKS)}


def test_starts_that_are_given_and_not_read_are_named(monkeypatch):
    """The collator's positions restart, too, so the model reads the wrong one of two right
    arguments.
    """

    def wrong(window, n, past, mask, positions, starts):
        return (
            Links(past == 0) if starts is not None else find_links(window, n, past, mask, positions)
        )

    monkeypatch.setattr(attention, "find_links", wrong)
    assert [result.check for result in run(maker(), CHECKS) if result.outcome == "FAIL"] == [
        "cu_seqlens"
    ]
