"""Ten faults of packed documents, each planted in a shifted Llama and, with stand-in kernels, in
LFM2, are named.
"""

import json
import subprocess
import sys

import pytest
import torch

from ihlab.hf import attention
from ihlab.hf.conformance import run, table
from ihlab.hf.links import Links, find_links
from tests.hf.conftest import maker

CHECKS = ["positions", "packed_rows", "seq_idx", "cu_seqlens", "training"]


def late(chain):
    return torch.cat([torch.ones_like(chain[:, :1]), chain[:, :-1]], dim=1)


def only_first(most):
    """Return a change that keeps the first boundaries of documents, and loses the others."""
    return lambda chain: chain | ((~chain).cumsum(dim=1) > most)


def all_but_last(chain):
    return chain | ((~chain).cumsum(dim=1) == (~chain).sum(dim=1, keepdim=True))


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
    "only the first boundary counts": only_first(2),  # the start of the sequence is one, too
    "only eight documents count": only_first(8),
    "the last boundary is lost": all_but_last,
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


OF_LFM2 = """
import json, torch
from functools import partial
from ihlab.hf.conformance import kernels, run
kernels.use_stand_ins()
torch.set_num_threads(1)
from transformers.models.lfm2 import modeling_lfm2 as lfm2
from ihlab.hf.conformance.families import tiny

right = lfm2.Lfm2ShortConv.forward
counted = lambda x: torch.unique_consecutive(x[0], return_inverse=True)[1].int()[None]
faults = {
    "right": lambda x: x,
    "seq_idx is not passed on": lambda x: None,  # as before transformers' pull request 46588
    "a boundary is one token late": lambda x: torch.cat([x[:, :1], x[:, :-1]], 1),
    "only the first boundary counts": lambda x: x.clamp(max=1),
    "only eight documents count": lambda x: x.clamp(max=7),
    "the last boundary is lost": lambda x: torch.minimum(x, x[:, -1:] - 1).clamp(min=0),
    "boundaries after 256 tokens are lost": lambda x: torch.cat([x[:, :256], x[:, 256:] * 0 + x[:, 255:256]], 1),
    "two documents are one": lambda x: x // 2,
    "the first row's documents are those of all": lambda x: x[:1].expand_as(x).contiguous(),
}

def planted(change, when=lambda self: True, check="seq_idx"):
    def forward(self, hidden_states, **given):
        if given.get("seq_idx") is not None and when(self):
            given["seq_idx"] = change(given["seq_idx"])
        return right(self, hidden_states, **given)
    lfm2.Lfm2ShortConv.forward = forward
    results = run(partial(tiny, "lfm2"), [check])
    return [result.check for result in results if result.outcome == "FAIL"]

named = {fault: planted(change) for fault, change in faults.items()}
named["the third layer leaks"] = planted(lambda x: None, lambda self: self.layer_idx == 2)
named["documents leak in training"] = planted(lambda x: None, lambda self: self.training, "training")
print(json.dumps(named))
"""


def test_a_fault_in_lfm2_is_named_with_stand_in_kernels():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", OF_LFM2], capture_output=True, text=True, check=True
    )
    named = json.loads(done.stdout.splitlines()[-1])
    assert named.pop("right") == []
    assert len(named) == 10
    assert all(named.values()), named


def test_right_documents_pass():
    results = run(maker(window=3), CHECKS)
    assert {result.outcome for result in results} == {"pass"}, table(results)


def test_starts_alone_separate_documents():
    links = find_links(3, 6, 0, starts=torch.tensor([0, 1, 4, 6]))
    assert links.chain.int().tolist() == [[[0, 0], [0, 0], [1, 0], [1, 1], [0, 0], [1, 0]]]
