"""Attention from outside the package: by its name in a config, and assigned to a block."""

import re
from pathlib import Path

import pytest
import torch
from torch import nn
from transformer_lens.hook_points import HookPoint

import ihlab
from ihlab import ModelConfig, Run, RunConfig, Transformer, train
from ihlab.interp import head_scores
from ihlab.model.attention import Attention
from ihlab.model.registry import VARIANTS, register_attention
from ihlab.training.loop import make_optimizer
from tasks import ConfigError, InductionTask

GUIDE = (Path(__file__).parents[2] / "docs" / "extend.md").read_text(encoding="utf-8")
EXAMPLE = re.search(r"## Your own attention.*?```python\n(.*?)```", GUIDE, flags=re.S)[1]  # type: ignore[index]
SIZES = {"n_layers": 2, "d_model": 16, "n_heads": 2, "d_vocab": 40, "n_ctx": 16}
TOKENS = torch.randint(40, (3, 9), generator=torch.Generator().manual_seed(0))


pytestmark = pytest.mark.usefixtures("attentions_as_before")


class Plain(nn.Module):
    """Softmax attention in ten lines, with the hook points that ihlab's tools read and no other
    part of ours.
    """

    def __init__(self, cfg, generator, layer):
        super().__init__()
        self.n_heads = cfg.n_heads
        self.qkv = nn.Linear(cfg.d_model, 3 * cfg.d_model)
        self.o_proj = nn.Linear(cfg.d_model, cfg.d_model)
        self.gain = nn.Parameter(torch.rand(cfg.n_heads))  # of torch's own generator
        self.hook_pattern, self.hook_z = HookPoint(), HookPoint()

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (self.n_heads, -1)) for part in self.qkv(x).chunk(3, dim=-1))
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * self.gain[:, None, None]
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        pattern = self.hook_pattern(scores.masked_fill(later, -torch.inf).softmax(dim=-1))
        return self.o_proj(self.hook_z(torch.einsum("bhqk,bkhd->bqhd", pattern, v)).flatten(-2))


class Sharper(Attention):
    """Queries twice as long; everything else is the package's."""

    def queries(self, x, at=None, cache=None):
        return 2 * super().queries(x, at, cache)


def config(**changes):
    return ModelConfig(**{**SIZES, **changes})


def test_a_module_of_ones_own_is_built_hooked_and_scored():
    assert ihlab.register_attention("plain", Plain) is Plain
    model = Transformer(config(attention="plain"), seed=3)
    _, cache = model.run_with_cache(TOKENS)
    assert cache["pattern", 1].shape == (3, 2, 9, 9)
    _, _, v = model.blocks[0].attn.qkv(cache["normalized", 0, "ln1"]).chunk(3, dim=-1)
    torch.testing.assert_close(cache["z", 0][:, 0].flatten(1), v[:, 0])
    again = Transformer(config(attention="plain"), seed=3)
    assert all(map(torch.equal, model.parameters(), again.parameters()))
    other = Transformer(config(attention="plain"), seed=4)
    assert not torch.equal(model.blocks[0].attn.gain, other.blocks[0].attn.gain)
    assert not torch.equal(model.blocks[0].attn.gain, model.blocks[1].attn.gain)
    scores = head_scores(model)
    assert scores["eigenvalue_copying"].isna().all()  # it has no W_V and W_O
    assert scores.drop(columns="eigenvalue_copying").notna().all(axis=None)


def test_a_subclass_does_all_that_the_packages_own_does():
    """Queries twice as long are those of a model whose W_Q is twice as large, decoded and at query
    positions too.
    """
    register_attention("sharper", Sharper, shifts="kv_shift")
    model, same = (
        Transformer(config(attention="sharper")),
        Transformer(config(attention="kv_shift")),
    )
    same.load_state_dict(model.state_dict())
    with torch.no_grad():
        for layer in same.layers:
            layer.attn.q_proj.weight.mul_(2)
    assert model.blocks[0].attn.alpha.shape == (2, 2)
    torch.testing.assert_close(model(TOKENS), same(TOKENS))
    assert torch.equal(model.generate(TOKENS, 4), same.generate(TOKENS, 4))
    index, queries = torch.tensor([8, 17, 26]), torch.full((3, 1), 8)
    torch.testing.assert_close(
        model.residual_at(TOKENS, index, queries), same.residual_at(TOKENS, index, queries)
    )


def test_a_forward_of_its_own_is_not_passed_by():
    """Evaluation takes queries at scored positions alone, but not of a class that says nothing of
    it.
    """

    class Doubled(Attention):
        def forward(self, x, cache=None):
            return 2 * super().forward(x, cache)

    register_attention("doubled", Doubled)
    model = Transformer(config(attention="doubled"))
    index, queries = torch.tensor([8, 17, 26]), torch.full((3, 1), 8)
    expected = model.final_residual(TOKENS)[:, 8]
    torch.testing.assert_close(model.residual_at(TOKENS, index, queries), expected)
    assert torch.equal(model.generate(TOKENS, 3)[:, :9], TOKENS)


@pytest.mark.slow
def test_it_is_trained_stored_stacked_and_opened_where_it_is_registered(tmp_path):
    register_attention("plain", Plain)
    task = InductionTask(vocab_size=40, length=16)
    settings = RunConfig(
        task=task, model=config(attention="plain"), steps=3, batch_size=4, eval_rows=8, warmup=1
    )
    members = train(settings, tmp_path, members=2)
    alone = train(settings.replace(seed=1), tmp_path / "alone")
    assert members[1].metrics["eval_loss"].tolist() == pytest.approx(
        alone.metrics["eval_loss"].tolist(), rel=1e-5
    )
    assert alone.metrics["prefix_1.1"].notna().all()
    opened = Run.open(alone.folder)
    assert opened.config == alone.config
    assert torch.equal(opened.model()(TOKENS), alone.model()(TOKENS))
    with pytest.raises(
        ConfigError, match="The forward of Plain takes no cache, so it cannot continue a sequence"
    ):
        opened.model().generate(TOKENS, 2)
    del VARIANTS["plain"]
    with pytest.raises(
        ConfigError,
        match=r"config.json: ModelConfig.attention is 'plain', .* ihlab.register_attention",
    ):
        Run.open(alone.folder)
    assert "ihlab.register_attention" in ihlab.runs(tmp_path / "alone")["problem"].iloc[0]


def test_the_hook_points_of_an_assigned_module_are_named_without_a_further_call():
    model = Transformer(config())
    model.blocks[1].attn = Plain(model.cfg, None, 1)
    _, cache = model.run_with_cache(TOKENS)
    assert cache["pattern", 1].shape == (3, 2, 9, 9)
    assert "blocks.1.attn.hook_q" not in cache.cache_dict
    hook = ("blocks.1.attn.hook_z", lambda z, hook: 0 * z)
    assert not torch.equal(model.run_with_hooks(TOKENS, fwd_hooks=[hook]), model(TOKENS))
    model.blocks[0].attn = Plain(model.cfg, None, 0)
    model.add_hook("blocks.0.attn.hook_pattern", lambda pattern, hook: 0 * pattern)
    assert not torch.equal(model(TOKENS), Transformer(config())(TOKENS))


def function(cfg):
    return None


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("vanilla", Plain), "There is an attention 'vanilla' already: Plain needs another name"),
        (("mine", function), r"cannot be called as function\(cfg, generator, layer\)"),
        (("mine", Plain, "kv"), "shifts is 'kv', but must be one of 'k_shift'"),
        (("taken", Sharper), "There is an attention 'taken' already, Plain: Sharper needs another"),
    ],
)
def test_what_cannot_be_registered_says_why(arguments, sentence):
    register_attention("taken", Plain)
    register_attention("taken", Plain)  # the same again, as a notebook's cell does
    with pytest.raises(ConfigError, match=sentence):
        register_attention(*arguments)


@pytest.mark.parametrize(
    ("make", "shifts", "sentence"),
    [
        (
            lambda cfg, generator, layer: 3,
            "vanilla",
            "The attention 'mine' made a int, but must make a torch.nn.Module",
        ),
        (
            Plain,
            "kv_shift",
            "registered with shifts of keys or values, but Plain is not a subclass",
        ),
    ],
)
def test_what_makes_no_attention_says_so(make, shifts, sentence):
    register_attention("mine", make, shifts)
    with pytest.raises(ConfigError, match=sentence):
        Transformer(config(attention="mine"))


@pytest.mark.slow
def test_the_guides_example_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(compile(EXAMPLE, "extend.md", "exec"), names)
    assert "prefix_matching" in capsys.readouterr().out


RUN = RunConfig(
    task=InductionTask(vocab_size=40, length=12),
    model=ModelConfig(n_layers=1, d_model=8, n_heads=2, d_vocab=40, n_ctx=12),
    steps=20,
    batch_size=8,
    eval_rows=16,
    checkpoints=5,
)


def test_a_parameter_that_nothing_reads_does_not_stop_a_run_from_being_resumed(tmp_path):
    class Mean(Attention):
        """The mean of the values so far: queries and keys have no gradient."""

        def forward(self, x, cache=None):
            _, v = self.project(x)
            seen = torch.ones(x.shape[1], x.shape[1]).tril()
            z = torch.einsum("qk,bkhd->bqhd", seen / seen.sum(dim=1, keepdim=True), v)
            return self.o_proj(self.hook_z(z).flatten(2))

    register_attention("mean", Mean)
    run = RUN.replace(model=RUN.model.replace(attention="mean"))
    whole = train(run, tmp_path)
    weights = list(whole.model().parameters())
    (whole.folder / "done.json").unlink()
    whole.checkpoint_path(20).unlink()
    assert all(map(torch.equal, train(run, tmp_path).model().parameters(), weights))


def test_a_buffer_that_no_checkpoint_holds_is_refused():
    class Running(Attention):
        def __init__(self, cfg, generator=None, layer=0, persistent=True):
            super().__init__(cfg, generator, layer)
            self.register_buffer("mean", torch.zeros(cfg.d_model), persistent=persistent)

    register_attention("running", Running)
    with pytest.raises(
        ConfigError, match="'running' has the persistent buffer 'mean', but checkpoints"
    ):
        Transformer(config(attention="running"))
    register_attention("made_again", lambda *given: Running(*given, persistent=False))
    assert Transformer(config(attention="made_again")).blocks[0].attn.mean.sum() == 0


class Matrix(Plain):
    """A gain of each head as a column, which does not decay, and a matrix of its own, which does."""

    decays = ("W",)

    def __init__(self, cfg, generator, layer):
        super().__init__(cfg, generator, layer)
        self.gain = nn.Parameter(torch.ones(cfg.n_heads, 1))
        self.W = nn.Parameter(torch.zeros(cfg.d_model, cfg.d_model))


def test_a_module_says_which_of_its_parameters_decay():
    ihlab.register_attention("matrix", Matrix)
    model = Transformer(config(attention="matrix", n_layers=1))
    own = {name for name in model.decayed_parameters() if ".attn." in name}
    assert own == {f"blocks.0.attn.{name}" for name in ("qkv.weight", "o_proj.weight", "W")}
    decaying, others = make_optimizer(model, RUN.replace(model=model.cfg)).param_groups
    assert (decaying["weight_decay"], others["weight_decay"]) == (0.1, 0.0)
    assert any(weight is model.blocks[0].attn.gain for weight in others["params"])
    model.blocks[0].attn.decays = ("W_typo",)
    with pytest.raises(
        ConfigError, match=r"Matrix\.decays names W_typo, which is not one of its parameters"
    ):
        model.decayed_parameters()
