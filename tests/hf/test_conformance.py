"""The suite passes the reference, and catches an implementation with any one of the public faults."""

import sys

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from ihlab.hf import attention, cache, model, shift
from ihlab.hf.conformance import ROWS, main, run, table
from ihlab.hf.links import Links, find_links
from tests.hf.conftest import FAMILIES, maker

pytestmark = pytest.mark.filterwarnings("ignore")  # transformers' and dynamo's own

SLIDING = 10
ALL = [
    *((family, {}) for family in FAMILIES),
    *((family, {"rule": "partial_key_offset"}) for family in FAMILIES),
    ("mistral", {"rule": "partial_key_offset", "first": "own"}),
    ("mistral", {"window": 3, "first": "own"}),
    ("qwen3", {"window": 4, "values": False}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("family", "shift"), ALL, ids=str)
def test_reference_passes_every_row_that_applies(family, shift):
    results = run(maker(family, **shift), backend="eager")
    assert not [row for row in results if row.outcome == "FAIL"], table(results)
    taps = "rule" not in shift
    without = ({10} if family != "mistral" else set()) | (set() if taps else {2, 13, 15})
    assert {row.number for row in results if row.outcome == "-"} == without


@pytest.mark.slow
def test_lifecycle_with_the_default_compiler():
    (row,) = run(maker(), [14])
    assert row.outcome == "pass", row.detail


def swapped_taps(patch):
    mix = shift.Taps.mix
    patch.setattr(shift.Taps, "mix", lambda self, side, raw, earlier: mix(self, side, earlier[0], [raw]))


def identity_not_exact(patch):
    mix = shift.Taps.mix
    patch.setattr(shift.Taps, "mix", lambda self, side, raw, earlier: mix(self, side, raw, earlier) * (1 + 1e-6))


def zero_at_each_chunk(patch):
    patch.setattr(cache.RawStates, "exchange", lambda self, side, raw, links, back: F.pad(raw, (0, 0, back, 0)))


def reads_padding(patch):
    patch.setattr(attention, "find_links", lambda window, n, past, *_: Links(past == 0))


def leaks_across_documents(patch):
    patch.setattr(attention, "find_links", lambda window, n, past, mask, *_: find_links(window, n, past, mask))


def links_of_the_first_row(patch):
    def first(window, n, past, mask, positions, starts):
        wide = None if mask is None else mask[:1].expand_as(mask)
        return find_links(window, n, past, wide, None, starts)

    patch.setattr(attention, "find_links", first)


def state_of_the_model(patch):
    states, layer_of = {}, attention.shift_layer

    def shared(given, number):
        layer = layer_of(given, number)
        if layer.get_seq_length() == 0:
            states[number] = {}
        layer.raw = states[number]
        return layer

    patch.setattr(attention, "shift_layer", shared)


def stale_after_rollback(patch):
    def crop(self, tokens_to_remove):
        super(cache.RawStates, self).crop(tokens_to_remove)
        self.recorded = {}

    patch.setattr(cache.RawStates, "crop", crop)


def beams_keep_their_raw_keys(patch):
    patch.delattr(cache.RawStates, "reorder_cache")


def lost_behind_the_window(patch):
    exchange = cache.RawStates.exchange

    def forgetful(self, side, raw, links, back):
        if side in self.raw and self.is_sliding and self.get_seq_length() >= self.sliding_window:
            self.raw[side] = torch.zeros_like(self.raw[side])
        return exchange(self, side, raw, links, back)

    patch.setattr(cache.RawStates, "exchange", forgetful)


def first_token_keeps_its_own(patch):
    forward = shift.Shift.forward

    def own(self, *given):
        self.first = "own"
        return forward(self, *given)

    patch.setattr(shift.Shift, "forward", own)


def one_row_for_all_heads(patch):
    made = shift.Taps.__init__
    patch.setattr(shift.Taps, "__init__", lambda self, heads, *given, **named: made(self, 1, *given, **named))


def taps_in_half_precision(patch):
    patch.setattr(shift.Taps, "_apply", nn.Module._apply)


def branches_on_numbers(patch):
    mix = shift.Taps.mix
    patch.setattr(
        shift.Taps, "mix", lambda self, side, raw, earlier: mix(self, side, raw, earlier) if raw.sum() else raw
    )


def decayed(patch):
    patch.setattr(attention, "SHIFT", "shift")
    patch.setattr(model, "SHIFT", "shift")


def copies_lose_their_state(patch):
    def copied(self, memo):
        made = object.__new__(type(self))
        made.__dict__.update({name: value for name, value in vars(self).items() if name != "raw"})
        made.raw = {side: torch.zeros_like(raw) for side, raw in self.raw.items()}
        return made

    patch.setattr(cache.RawStates, "__deepcopy__", copied, raising=False)


MUTANTS = {
    **{1: swapped_taps, 2: identity_not_exact, 3: zero_at_each_chunk, 4: reads_padding, 5: leaks_across_documents},
    **{6: links_of_the_first_row, 7: state_of_the_model, 8: stale_after_rollback, 9: beams_keep_their_raw_keys},
    **{SLIDING: lost_behind_the_window, 11: first_token_keeps_its_own, 12: one_row_for_all_heads},
    **{13: taps_in_half_precision, 14: branches_on_numbers, 15: decayed, 16: copies_lose_their_state},
}
"""Implementations with one fault each, by the row that must catch it."""


def test_each_row_has_a_mutant():
    assert set(MUTANTS) == set(ROWS)


@pytest.mark.parametrize("number", [pytest.param(n, marks=[pytest.mark.slow] * (n == 14)) for n in MUTANTS])
def test_suite_catches_the_mutant(number, monkeypatch):
    make = maker("mistral" if number == SLIDING else "llama")
    if number != 14:  # the slow test above has it
        (right,) = run(make, [number])
        assert right.outcome == "pass", right.detail
    MUTANTS[number](monkeypatch)
    (wrong,) = run(make, [number], backend="eager")
    assert wrong.outcome == "FAIL"
    assert "AttributeError" not in wrong.detail
    assert "TypeError" not in wrong.detail


def test_an_insensitive_model_is_told_so():
    def make():
        made = maker()()
        for part in made.modules():
            if hasattr(part, "v_proj"):
                nn.init.zeros_(part.v_proj.weight)
        return made

    (row,) = run(make, [1])
    assert row.detail == "the shift hardly shows: give the model larger weights"


def test_command_line(tmp_path, monkeypatch, capsys):
    (tmp_path / "my_module.py").write_text("from tests.hf.conftest import maker\nmake_model = maker()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("ihlab.hf.conformance.ROWS", {12: ROWS[12]})
    monkeypatch.setattr("ihlab.hf.conformance.run.__defaults__", ((12,), "eager"))
    assert main(["my_module:make_model"]) == 0
    assert capsys.readouterr().out.splitlines() == ["12  pass  taps of each key/value head, and no other parameters"]
    sys.modules.pop("my_module")
