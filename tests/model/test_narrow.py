"""Attention of narrow heads against softmax(q k^T / sqrt(d)) v in float64, and where it is used."""

import math
import subprocess
import sys
from inspect import unwrap

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel

from ihlab import ModelConfig, Transformer
from ihlab.model import attention, narrow_kernels
from ihlab.model.narrow import FEWEST_PAIRS, is_narrow, narrow_attention
from ihlab.model.pruned import residual_at

OF_TORCH = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's of itself


def by_formula(q, k, v, last=None):
    at = torch.arange(q.shape[1])[None] if last is None else last
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[3])
    hidden = torch.arange(k.shape[1]) > at[:, None, :, None]
    return torch.einsum("bhqk,bkhd->bqhd", scores.masked_fill(hidden, -torch.inf).softmax(dim=-1), v)


def drawn(*shape, seed=0, n=1):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator) for _ in range(n)]


def with_gradients(function, *inputs, grad):
    inputs = [x.clone().requires_grad_() for x in inputs]
    out = function(*inputs)
    out.backward(grad)
    return [out.detach(), *(x.grad for x in inputs)]


def assert_same(ours, theirs, to=2e-5):
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one.double(), other.double(), rtol=to, atol=to)


@given(
    st.integers(1, 70),
    st.integers(1, 4),
    st.integers(1, 20),
    st.integers(1, 17),
    st.none() | st.integers(1, 9),
    st.data(),
)
def test_attention_and_its_gradients_are_the_formulas(rows, heads, keys, width, queries, data):
    """Also where a tile has spare lanes, and where each row's queries are at positions of their own."""
    seed = data.draw(st.integers(0, 99))
    q, grad = drawn(rows, queries or keys, heads, width, seed=seed, n=2)
    k, v = drawn(rows, keys, heads, width, seed=seed + 1, n=2)
    last = None
    if queries:
        last = torch.from_numpy(np.random.default_rng(seed).integers(0, keys, (rows, queries)))
    ours = with_gradients(lambda *qkv: narrow_attention(*qkv, last), q, k, v, grad=grad)
    exact = with_gradients(lambda *qkv: by_formula(*qkv, last), q.double(), k.double(), v.double(), grad=grad.double())
    assert_same(ours, exact)


def test_inputs_may_be_views():
    q, k, v, grad = drawn(2, 40, 7, 8, n=4)  # [head, batch, pos, channel], as no layer lays them out
    moved = [x.permute(1, 2, 0, 3) for x in (q, k, v, grad)]
    ours = with_gradients(narrow_attention, *moved[:3], grad=moved[3])
    assert_same(ours, with_gradients(narrow_attention, *(x.contiguous() for x in moved[:3]), grad=moved[3]), to=0)


def test_large_scores_are_no_overflow():
    q, k, v = drawn(40, 9, 2, 8, n=3)
    ours, exact = narrow_attention(300 * q, k, v), by_formula(300 * q.double(), k.double(), v.double())
    assert_same([ours], [exact], to=1e-3)


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_number_that_is_none_is_seen_by_the_queries_that_read_it_alone(which):
    qkv = drawn(40, 6, 1, 4, n=3)
    qkv[which][3, 4] = torch.nan
    unseen = narrow_attention(*qkv).isnan()
    reading = slice(4, 5) if which == 0 else slice(4, None)
    assert unseen[3, reading].all()
    assert unseen.sum() == unseen[3, reading].numel()


@pytest.mark.slow
@OF_TORCH
@pytest.mark.parametrize("options", [None, {"cpp_wrapper": True, "cpp_wrapper_build_separate": True}])
def test_compiled_it_is_the_same(options):
    q, k, v, grad = drawn(48, 7, 2, 8, n=4)
    last = torch.arange(48 * 7).reshape(48, 7) % 7
    compiled = torch.compile(unwrap(narrow_attention), options=options, fullgraph=True)  # without its checks of shapes
    for at in (None, last):
        ours = with_gradients(lambda *qkv, at=at: compiled(*qkv, at), q, k, v, grad=grad)
        plain = with_gradients(lambda *qkv, at=at: narrow_attention(*qkv, at), q, k, v, grad=grad)
        assert_same(ours, plain, to=0)


@OF_TORCH
@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_stacked_it_is_every_members(compiled):
    """Torch's own rule for an operation that it does not know would go member by member."""
    q, k, v, grad = drawn(3, 40, 7, 2, 4, n=4)
    last = torch.arange(3 * 40 * 7).reshape(3, 40, 7) % 7
    stacked = torch.vmap(narrow_attention)
    function = torch.compile(stacked, dynamic=False) if compiled else stacked
    ours = with_gradients(lambda *qkv: function(*qkv, last), q, k, v, grad=grad)
    each = [
        with_gradients(lambda *qkv, i=i: narrow_attention(*qkv, last[i]), q[i], k[i], v[i], grad=grad[i])
        for i in range(3)
    ]
    assert_same(ours, [torch.stack(x) for x in zip(*each, strict=True)], to=1e-6)


def test_members_may_share_an_input():
    q, k, v = drawn(3, 40, 7, 2, 4, n=3)
    ours = torch.vmap(narrow_attention, in_dims=(1, None, 0))(q.movedim(0, 1), k[0], v)
    assert_same([ours], [torch.stack([narrow_attention(q[i], k[0], v[i]) for i in range(3)])], to=0)


def test_torch_func_differentiates_it_for_each_row():
    q, k, v = drawn(3, 40, 7, 2, 4, n=3)

    def gradients(function, dtype):
        def loss(q, k, v):
            return function(q, k, v).pow(3).sum()

        return torch.vmap(torch.func.grad(loss, argnums=(0, 1, 2)))(*(x.to(dtype) for x in (q, k, v)))

    assert_same(gradients(narrow_attention, torch.float32), gradients(by_formula, torch.float64), to=1e-4)


@pytest.mark.parametrize("at_some", [False, True])
def test_its_gradient_has_a_gradient(at_some):
    q, k, v, grad = drawn(40, 7, 2, 4, n=4)
    last = torch.arange(40 * 7).reshape(40, 7) % 7 if at_some else None

    def twice(function, dtype):
        inputs = [x.to(dtype).requires_grad_() for x in (q, k, v, grad)]
        first = torch.autograd.grad(function(*inputs[:3], last), inputs[:3], inputs[3], create_graph=True)
        return torch.autograd.grad(sum(x.pow(2).sum() for x in first), inputs)

    assert_same(twice(narrow_attention, torch.float32), twice(by_formula, torch.float64), to=1e-4)


@OF_TORCH
def test_forward_mode_is_left_to_torch():
    """Its plain attention knows it; so do models, on one thread as on several."""
    model = Transformer(ModelConfig(n_layers=1, d_model=16, n_heads=2, d_vocab=9, n_ctx=6))
    tokens = torch.arange(40 * 6).reshape(40, 6) % 9
    weights = dict(model.named_parameters())
    direction = {name: torch.ones_like(weight) for name, weight in weights.items()}

    def loss(weights):
        return torch.func.functional_call(model, weights, (tokens,)).square().mean()

    with sdpa_kernel(SDPBackend.MATH):
        slope = torch.func.jvp(loss, (weights,), (direction,))[1]
    backward = sum((gradient * direction[name]).sum() for name, gradient in torch.func.grad(loss)(weights).items())
    torch.testing.assert_close(slope, backward)


@pytest.mark.slow
def test_a_model_loads_numba_only_when_narrow_heads_attend():
    script = "import sys, ihlab; ihlab.Transformer; assert 'numba' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_torch_finds_the_operation_sound():
    q, k, v = drawn(40, 7, 2, 4, n=3)
    torch.library.opcheck(torch.ops.ihlab.narrow_attention, (q, k, v, None))


def test_exp_is_exp():
    x = np.concatenate([-np.geomspace(1e-7, 87, 20_000), [0.0]]).astype(np.float32)
    found = np.array([narrow_kernels.exp(value) for value in x])
    assert np.abs(found / np.exp(x.astype(np.float64)) - 1).max() < 3e-7
    assert narrow_kernels.exp(np.float32(-87.1)) == narrow_kernels.exp(np.float32(-np.inf)) == 0
    assert np.isnan(narrow_kernels.exp(np.float32(np.nan)))


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, True),
        ({"rows": 15}, False),
        ({"width": 12}, True),
        ({"width": 13}, False),
        ({"kv_heads": 1}, False),
        ({"v_width": 4}, False),
        ({"dtype": torch.bfloat16}, False),
        ({"dtype": torch.float64}, False),
    ],
)
def test_where_it_is_used(changed, expected):
    shape = {
        "rows": 16,
        "width": 8,
        "kv_heads": 2,
        "v_width": changed.get("width", 8),
        "dtype": torch.float32,
    } | changed
    q = torch.zeros(shape["rows"], 5, 2, shape["width"], dtype=shape["dtype"])
    k = q.new_zeros(shape["rows"], 5, shape["kv_heads"], shape["width"])
    v = q.new_zeros(shape["rows"], 5, shape["kv_heads"], shape["v_width"])
    assert is_narrow(q, k, v) is expected


def test_fewest_pairs_are_half_of_a_tile():
    assert 2 * FEWEST_PAIRS == narrow_kernels.LANES


def test_on_two_threads_it_is_torchs():
    q = torch.zeros(16, 5, 2, 8)
    try:
        torch.set_num_threads(2)
        assert not is_narrow(q, q, q)
    finally:
        torch.set_num_threads(1)


@pytest.mark.parametrize(
    ("kind", "used"),
    [
        ({"attention": "kv_shift"}, 2),
        ({"attention": "kv_shift", "positional": "none"}, 2),
        ({"attention": "vanilla", "positional": "learned", "bias": True}, 2),
        ({"positional": "alibi"}, 0),
        ({"mask": "strict"}, 0),
        ({"n_key_value_heads": 2}, 0),
    ],
)
def test_a_model_is_the_same_with_and_without(monkeypatch, kind, used):
    """With queries at all positions, and in the last layer at some; with its gradients."""
    cfg = ModelConfig(n_layers=2, d_model=32, n_heads=4, d_vocab=20, n_ctx=12, **kind)
    tokens = torch.randint(20, (16, 12), generator=torch.Generator().manual_seed(1))
    queries = torch.tensor([[2, 5, 11]]).expand(16, 3)
    index = (torch.arange(16)[:, None] * 12 + queries).flatten()
    calls = []

    def counted(*arguments):
        calls.append(arguments)
        return narrow_attention(*arguments)

    def results():
        model = Transformer(cfg, seed=3)
        at_some = residual_at(model, tokens, index, queries)
        (model(tokens).square().mean() + at_some.square().mean()).backward()
        return [at_some.detach(), *(p.grad for p in model.parameters())]

    monkeypatch.setattr(attention, "narrow_attention", counted)
    ours = results()
    assert len(calls) == 2 * used
    monkeypatch.setattr(attention, "is_narrow", lambda *_: False)
    assert_same(ours, results())
    assert len(calls) == 2 * used
