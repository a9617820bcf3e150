"""The suite passes the reference and plain models, and catches an implementation with any one of
the public faults.
"""

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import ModuleType

import einops
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from ihlab.hf import add_shift, attention, cache, links, model, shift
from ihlab.hf.conformance import CHECKS, as_tests, black_box, run, shifted, table
from ihlab.hf.conformance.__main__ import main
from ihlab.hf.conformance.families import tiny
from ihlab.hf.links import Links
from tests.hf.conftest import maker, plain

pytestmark = pytest.mark.filterwarnings("ignore")  # transformers' and dynamo's own

ALL = [
    ("llama", {}),
    ("mistral", {"window": 3, "first": "own"}),
    ("qwen3", {"window": 4, "values": False}),
]


@pytest.fixture
def traced(monkeypatch):
    """torch.compile traces, and compiles nothing."""
    monkeypatch.setattr(shifted, "BACKEND", "eager")


def failed(results):
    return [row for row in results if row.outcome == "FAIL"]


COMPILING = {"compiled", "lifecycle"}
"""Checks that take as long as all others together."""


@pytest.mark.slow
@pytest.mark.parametrize(("family", "shift"), ALL, ids=str)
def test_reference_passes_every_check_that_applies(family, shift, traced):
    checks = [name for name in CHECKS if family == "mistral" or name not in COMPILING]
    results = run(maker(family, **shift), checks)
    assert not failed(results), table(results)
    without = {row.check for row in results if row.outcome == "-"}
    assert without == ({"window"} if family != "mistral" else set())
    assert "refuses" not in {row.outcome for row in results}


OTHERS = [
    pytest.param(name, marks=pytest.mark.rare) for name in ("llama", "mistral", "qwen3", "olmo2")
]


@pytest.mark.slow
@pytest.mark.parametrize("family", ["gemma3_text", *OTHERS])
def test_plain_families_pass(family):
    results = run(partial(tiny, family), black_box.CHECKS.keys() - COMPILING)
    assert {row.outcome for row in results if row.check != "window"} == {"pass"}, table(results)


@pytest.mark.rare
def test_lifecycle_with_the_default_compiler():
    """In a process of its own: the shape checks that pytest adds cannot be compiled."""
    script = """
from ihlab.hf.conformance import run
from tests.hf.conftest import maker
(row,) = run(maker(), ["lifecycle"])
assert row.outcome == "pass", row.detail
"""
    subprocess.run([sys.executable, "-c", script], cwd=Path(__file__).parents[2], check=True)


def fault(owner, name):
    """Return a decorator that makes a mutant of a function: it takes a method's place, and gets the
    method first.
    """

    def decorate(wrong):
        def mutant(patch):
            method = getattr(owner, name)
            patch.setattr(owner, name, lambda *given, **named: wrong(method, *given, **named))

        return mutant

    return decorate


@fault(shift.Taps, "mix")
def swapped_taps(mix, self, side, raw, earlier):
    return mix(self, side, earlier[0], [raw])


@fault(shift.Taps, "mix")
def identity_not_exact(mix, self, side, raw, earlier):
    return mix(self, side, raw, earlier) * (1 + 1e-6)


@fault(shift.Taps, "mix")
def branches_on_numbers(mix, self, side, raw, earlier):
    return mix(self, side, raw, earlier) if raw.sum() else raw


@fault(shift.Taps, "mix")
def unshifted_when_compiled(mix, self, side, raw, earlier):
    return raw if torch.compiler.is_compiling() else mix(self, side, raw, earlier)


@fault(shift.Taps, "mix")
def without_gradient(mix, self, side, raw, earlier):
    return mix(self, side, raw, [x.detach() for x in earlier])


@fault(shift.Taps, "mix")
def unshifted_in_autocast(mix, self, side, raw, earlier):
    if torch.is_autocast_enabled("cpu"):
        earlier = [torch.zeros_like(x) for x in earlier]
    return mix(self, side, raw, earlier)


@fault(shift.Taps, "mix")
def loses_its_state_between_blocks(mix, self, side, raw, earlier):
    earlier = [x.clone() for x in earlier]
    for x in earlier:
        x[:, 256::256] = 0
    return mix(self, side, raw, earlier)


@fault(shift.Taps, "mix")
def rows_of_eight(mix, self, side, raw, earlier):
    return mix(self, side, raw, [x[torch.arange(len(x)) % 8] for x in earlier])


@fault(shift.Taps, "__init__")
def one_row_for_all_heads(init, self, heads, *given, **named):
    init(self, 1, *given, **named)


@fault(cache.RawStates, "exchange")
def zero_at_each_chunk(exchange, self, side, raw, links, back):
    return F.pad(raw, (0, 0, back, 0))


@fault(cache.RawStates, "exchange")
def lost_behind_the_window(exchange, self, side, raw, links, back):
    if side in self.raw and self.is_sliding and self.get_seq_length() >= self.sliding_window:
        self.raw[side] = torch.zeros_like(self.raw[side])
    return exchange(self, side, raw, links, back)


@fault(cache.RawStates, "exchange")
def state_in_eight_bits(exchange, self, side, raw, links, back):
    seen = exchange(self, side, raw, links, back)
    self.raw[side] = self.raw[side].to(torch.float8_e4m3fn).to(raw.dtype)
    return seen


@fault(cache.RawStates, "exchange")
def wrong_slot(exchange, self, side, raw, links, back):
    seen = exchange(self, side, raw, links, back)
    if self.is_compileable:
        self.raw[side].copy_(seen[:, -1 - back : -1])
    return seen


@fault(cache.RawStates, "seen")
def cache_detaches(seen, self, side, raw, back, tree):
    if side in self.raw:
        self.raw[side] = self.raw[side].detach()
    return seen(self, side, raw, back, tree)


@fault(cache.RawStates, "crop")
def stale_after_rollback(crop, self, tokens_to_remove):
    super(cache.RawStates, self).crop(tokens_to_remove)
    self.recorded = {}


@fault(cache.RawStates, "crop")
def crop_restores_row_0(crop, self, tokens_to_remove):
    crop(self, tokens_to_remove)
    self._each(lambda raw: raw[:1].expand_as(raw).clone())


def keys_only(method):
    @fault(cache.RawStates, method)
    def mutant(right, self, *given):
        return getattr(super(cache.RawStates, self), method)(*given)

    return mutant


@fault(Links, "stored")
def padding_is_stored(stored, self, *given):
    return stored(self._replace(real=None), *given)


@fault(attention, "find_links")
def reads_padding(find, window, n, past, *_):
    return Links(past == 0)


@fault(attention, "find_links")
def leaks_across_documents(find, window, n, past, mask, *_):
    return find(window, n, past, mask)


@fault(attention, "find_links")
def links_of_the_first_row(find, window, n, past, mask, positions, starts):
    wide = None if mask is None else mask[:1].expand_as(mask)
    return find(window, n, past, wide, None, starts)


@fault(attention, "find_links")
def links_of_the_first_row_of_documents(find, window, n, past, mask, positions, starts):
    return find(window, n, past, mask, None if positions is None else positions[:1], starts)


@fault(attention, "links_of_mask")
def mask_of_four_dimensions_unread(links, *_):
    return Links(False)


@fault(model, "tell_links")
def embeddings_unshifted(tell, decoder, args, kwargs):
    args, kwargs = tell(decoder, args, kwargs)
    if (given := kwargs.get("inputs_embeds")) is not None:
        none = torch.zeros(1, given.shape[1], 1, dtype=torch.long)
        kwargs["kv_shift"] = Links(False, none.bool(), none)
    return args, kwargs


@fault(attention._Projecting, "_shifted")
def unshifted_with_eager_attention(shifted, self, side, raw):
    is_eager = self._attention.config._attn_implementation == "eager"
    return raw if is_eager else shifted(self, side, raw)


@fault(attention._Projecting, "v_proj")
def reads_the_future_in_training(forward, self, hidden):
    values = forward(self, hidden)
    if not self._attention.training:
        return values
    return torch.cat([values[:, :1] + values[:, -1:], values[:, 1:]], 1)


def state_of_the_model(patch):
    states, layer_of = {}, attention.shift_layer

    def shared(given, number):
        layer = layer_of(given, number)
        if layer.get_seq_length() == 0:
            states[number] = {}
        layer.raw = states[number]
        return layer

    patch.setattr(attention, "shift_layer", shared)


def beams_keep_their_raw_keys(patch):
    patch.delattr(cache.RawStates, "reorder_cache")


def taps_in_half_precision(patch):
    patch.setattr(shift.Taps, "_apply", nn.Module._apply)


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


def earlier_branches_are_forgotten(patch):
    @fault(cache.RawStates, "seen")
    def forgotten(seen, self, side, raw, back, tree):
        self.tree = {}
        return seen(self, side, raw, back, tree)

    forgotten(patch)
    patch.setattr(links, "require", lambda *_: None)


MUTANTS = {
    "chunks": zero_at_each_chunk,
    "long": loses_its_state_between_blocks,
    "window": lost_behind_the_window,
    "padding": reads_padding,
    "after_padding": padding_is_stored,
    "rows": rows_of_eight,
    "uneven": links_of_the_first_row,
    "positions": leaks_across_documents,
    "packed_rows": links_of_the_first_row_of_documents,
    "seq_idx": leaks_across_documents,
    "cu_seqlens": leaks_across_documents,
    "mask_4d": mask_of_four_dimensions_unread,
    "tree": earlier_branches_are_forgotten,
    "embeds": embeddings_unshifted,
    "interleaved": state_of_the_model,
    "prefix": copies_lose_their_state,
    "rollback": crop_restores_row_0,
    "assisted": stale_after_rollback,
    "reorder": beams_keep_their_raw_keys,
    "select": keys_only("batch_select_indices"),
    "repeat": keys_only("batch_repeat_interleave"),
    "reset": keys_only("reset"),
    "static": wrong_slot,
    "compiled": unshifted_when_compiled,
    "beams": beams_keep_their_raw_keys,
    "attention": unshifted_with_eager_attention,
    "training": reads_the_future_in_training,
    "bf16": state_in_eight_bits,
    "autocast": unshifted_in_autocast,
    "gradient": without_gradient,
    "cached_gradient": cache_detaches,
    "equation_5": swapped_taps,
    "identity": identity_not_exact,
    "padded_chunk": links_of_the_first_row,
    "parameters": one_row_for_all_heads,
    "taps_float32": taps_in_half_precision,
    "lifecycle": branches_on_numbers,
    "no_decay": decayed,
}
"""Implementations with one fault each, by the check that must catch it."""


def test_each_check_has_a_mutant_and_comes_after_those_that_it_builds_on():
    assert set(MUTANTS) == set(CHECKS)
    earlier = set()
    for name, check in CHECKS.items():
        assert earlier >= {*check.after}
        earlier.add(name)


def refusing(error):
    """Return a maker of models that raise an error when they are given position_ids that restart."""

    def make():
        made = plain()
        forward = made.forward

        def checked(input_ids=None, position_ids=None, **given):
            if position_ids is not None and (position_ids.diff() < 0).any():
                error()
            return forward(input_ids=input_ids, position_ids=position_ids, **given)

        made.forward = checked
        return made

    return make


def refuses_in_words():
    raise NotImplementedError("packed documents are not supported")


def raises_without_words():
    raise ValueError


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (refuses_in_words, "refuses"),
        (raises_without_words, "FAIL"),
        (lambda: None.state, "FAIL"),
        (lambda: torch.ones(2) + torch.ones(3), "FAIL"),  # a RuntimeError
        (lambda: int("one"), "FAIL"),  # a ValueError
        (lambda: einops.rearrange(torch.zeros(2, 3), "(a b) c -> a b c", a=4), "FAIL"),
        (lambda: sys.exit(0), "FAIL"),
    ],
)
def test_a_refusal_is_no_crash(error, outcome):
    (row,) = run(refusing(error), ["positions"])
    assert row.outcome == outcome, row.detail
    test = as_tests(refusing(error))
    with pytest.raises(pytest.skip.Exception if outcome == "refuses" else AssertionError):
        test("positions")


def test_a_report_names_the_first_failure_and_its_cause(monkeypatch):
    checks = ["chunks", "long", "positions", "interleaved"]
    assert "cause" not in table(run(maker(), checks))
    zero_at_each_chunk(monkeypatch)
    leaks_across_documents(monkeypatch)
    *lines, first, other = table(run(maker(), checks)).splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["FAIL", "chunks"],
        ["FAIL", "long"],
        ["FAIL", "positions"],
        ["pass", "interleaved"],  # with one chunk after another, too, so it has no fault of its own
    ]
    cause = f"Usual cause: {CHECKS['chunks'].cause}. It may be why long failed."
    assert first == f"chunks failed. {cause}"
    assert lines[1].endswith("may follow from chunks")
    assert other == f"positions failed. Usual cause: {CHECKS['positions'].cause}."


def test_a_crash_has_no_usual_cause():
    assert table(run(partial(tiny, "lfm2"), ["select"])).endswith("\nselect crashed.")


def test_a_gradient_that_cannot_be_measured_is_no_fault(monkeypatch):
    """Half precision inside a part makes a loss go in steps."""
    mix = shift.Taps.mix
    monkeypatch.setattr(
        shift.Taps, "mix", lambda self, *given: mix(self, *given).half().to(given[1].dtype)
    )
    (gradient,) = run(maker(), ["gradient"])
    assert (gradient.outcome, gradient.detail.split(":")[0]) == ("-", "not measurable")


@pytest.mark.parametrize(
    ("check", "mutant"),
    [
        pytest.param(*pair, marks=[pytest.mark.slow] * (pair[0] in ("lifecycle", "compiled")))
        for pair in MUTANTS.items()
    ],
)
def test_suite_catches_the_mutant(check, mutant, monkeypatch, traced):
    """Without the fault the same models pass: see the first test."""
    mutant(monkeypatch)
    family = "mistral" if check == "window" else "llama"
    (wrong,) = run(maker(family), [check])
    assert wrong.outcome == "FAIL"
    assert "AttributeError" not in wrong.detail
    assert "TypeError" not in wrong.detail


def of_tuples():
    made = plain()
    made.forward = lambda **_: (1, 2)
    return made


def no_weights():
    made = plain()
    for part in made.parameters():
        part.data.mul_(0.01)
    return made


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--model", "my_module"], "--model is 'my_module', but must be module:function."),
        (
            ["--model", "nowhere:make"],
            "--model is 'nowhere:make', which cannot be imported: ModuleNotFoundError: No module",
        ),
        (
            ["--model", "my_module:fails"],
            "The function returns no model that returns logits of token ids: ZeroDivisionError: ",
        ),
        (["--model", "my_module:ends"], "The function returns no model that returns logits"),
        (["--model", "my_module:half"], "The model is in half precision, whose rounding"),
        (
            ["--model", "my_module:number"],
            "The function returns a int, but must return a causal model of transformers.",
        ),
        (
            ["--model", "my_module:tuples"],
            "The function returns no model that returns logits of token ids: AttributeError: ",
        ),
        (["--model", "my_module:weak"], "Earlier tokens change the logits by "),
        (
            ["--model", "my_module:make", "--checks", "chunk"],
            "There is no check 'chunk'; did you mean 'chunks'?",
        ),
        (
            ["--model", "my_module:plain", "--checks", "equation_5"],
            "No check was made: none applies, or the model",
        ),
        (["--family", "lfm22"], "There is no family 'lfm22'; did you mean 'lfm2'?"),
    ],
)
def test_what_cannot_be_checked_is_refused_in_a_sentence(arguments, sentence, my_module, capsys):
    assert main(arguments) == 2
    assert (
        capsys.readouterr()
        .err.splitlines()[-1]
        .startswith(f"python -m ihlab.hf.conformance: error: {sentence}")
    )


def interrupted():
    raise KeyboardInterrupt


def test_an_interrupt_ends_the_command(my_module):
    with pytest.raises(KeyboardInterrupt):
        main(["--model", "my_module:interrupted"])


@pytest.fixture
def my_module(monkeypatch):
    made = ModuleType("my_module")
    made.make, made.number, made.fails, made.plain = maker(), lambda: 3, lambda: 1 / 0, plain
    made.weak, made.tuples, made.ends = no_weights, of_tuples, lambda: sys.exit(0)
    made.half, made.interrupted = lambda: plain().half(), interrupted
    monkeypatch.setitem(sys.modules, "my_module", made)
    return made


def test_command_line(my_module, monkeypatch, capsys):
    monkeypatch.setattr(
        "ihlab.hf.conformance.suite.CHECKS",
        {name: CHECKS[name] for name in ("chunks", "parameters")},
    )
    assert main(["--model", "my_module:make"]) == 0
    assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()] == [
        ["pass", "chunks"],
        ["pass", "parameters"],
    ]
    zero_at_each_chunk(monkeypatch)
    for options, status, outcome in (([], 1, "FAIL"), (["--allow", "chunks"], 0, "limit")):
        assert main(["--model", "my_module:make", "--json", *options]) == status
        rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [(row["check"], row["outcome"]) for row in rows] == [
            ("chunks", outcome),
            ("parameters", "pass"),
        ]
    assert main(["--model", "my_module:make", "--checks", "parameters"]) == 0
    assert capsys.readouterr().out.split()[:2] == ["pass", "parameters"]


def test_tests_of_a_model(monkeypatch):
    test = as_tests(maker())
    assert list(test.pytestmark[0].args[1]) == list(CHECKS)
    test("chunks")
    zero_at_each_chunk(monkeypatch)
    with pytest.raises(AssertionError, match=r"in chunks of"):
        test("chunks")
    with pytest.raises(pytest.xfail.Exception, match=r"in chunks of"):
        as_tests(maker(), allow=["chunks"])("chunks")
    with pytest.raises(pytest.skip.Exception, match="it has no shift"):
        as_tests(plain)("equation_5")


def test_layers_without_keys_of_their_own_read_shifted_ones():
    family = "gemma3n_text"
    assert tiny(family).config.num_kv_shared_layers == 2
    results = run(lambda: add_shift(tiny(family)), ["equation_5", "chunks", "prefix"])
    assert not failed(results), table(results)


@pytest.mark.parametrize(("check", "error"), [("uneven", "padded"), ("beams", "beam search")])
def test_a_model_that_repeats_one_token_shows_faults_in_its_logits(check, error):
    """RecurrentGemma keeps its state on the model, where no cache reorders or masks it. The tiny
    one generates its last token again and again.
    """
    (row,) = run(partial(tiny, "recurrent_gemma"), [check])
    assert row.outcome == "FAIL"
    assert error in row.detail


def smeared(gate):
    """A Llama whose embedding adds a part of the token before, whatever the cache or mask is."""
    model = plain()
    model.model.embed_tokens.register_forward_hook(
        lambda module, args, x: x + gate * F.pad(x, (0, 0, 1, 0))[:, :-1]
    )
    return model


@pytest.mark.parametrize(("gate", "passes"), [(0.5, False), (0.0, True)])
def test_a_state_that_does_not_show_is_not_passed_in_silence(gate, passes, monkeypatch, capsys):
    module = ModuleType("smears")
    module.make = lambda: smeared(gate)
    monkeypatch.setitem(sys.modules, "smears", module)
    status = main(["--model", "smears:make", "--checks", "chunks", "padding"])
    printed = capsys.readouterr()
    assert (status == 0) == passes == ("pass     chunks" in printed.out)
    assert ("no local state shows" in printed.err) == passes


def test_shifted_keys_alone_are_a_state_that_was_checked(monkeypatch, capsys):
    """They change scores only, which nothing shows while each token attends to itself."""
    module = ModuleType("keys")
    module.make = maker(values=False)
    monkeypatch.setitem(sys.modules, "keys", module)
    assert main(["--model", "keys:make", "--checks", "chunks"]) == 0
    assert "no local state" not in capsys.readouterr().err
