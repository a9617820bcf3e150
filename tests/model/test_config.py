"""ModelConfig: derived widths, refusals, and that every valid one makes a model."""

import json
from dataclasses import asdict

import pytest

from ihlab.model.config import GPT2, ModelConfig
from tasks import ConfigError
from tasks.codec import from_plain

PLAIN = {"n_layers": 2, "d_model": 24, "n_heads": 4, "d_vocab": 19, "n_ctx": 12}


# Widths


@pytest.mark.parametrize(
    ("given", "widths"),
    [
        ({}, (6, 4, 64)),
        ({"d_head": 10, "n_key_value_heads": 2, "d_mlp": 7}, (10, 2, 7)),
        ({"d_head": 5, "positional": "none"}, (5, 4, 64)),  # odd: nothing rotates pairs
        ({"d_model": 64}, (16, 4, 172)),  # 8/3 d_model, rounded up to an even number
        ({"mlp": "gelu"}, (6, 4, 96)),  # as many weights as SwiGLU's three matrices
    ],
    ids=str,
)
def test_widths_left_out_follow_from_the_others(given, widths):
    cfg = ModelConfig(**{**PLAIN, **given})
    assert (cfg.d_head, cfg.n_key_value_heads, cfg.d_mlp) == widths


def test_a_stored_config_reads_back_the_same():
    parts = {"attention": "kv_shift", "alibi_slopes": (1, 0.5, 2.0, 3.0), "residual": (True, False)}
    cfg = ModelConfig(**PLAIN, **{**GPT2, "positional": "alibi"}, **parts)
    assert ModelConfig(**json.loads(json.dumps(asdict(cfg)))) == cfg


OLD = {
    "mla_rank": None,
    "mla_norm": False,
    "mla_rope_width": None,
    "diff_norm": True,
    "shift_place": "before_rotary",
    "canon_taps": 4,
    "embed_std": None,
    "document_leak": "none",
    "query_window": None,
    "shift_share": "head",
    "bigram_table": 0,
}


def test_a_config_stored_with_removed_fields_still_opens():
    cfg = ModelConfig(**PLAIN)
    stored = {**asdict(cfg), **OLD}
    assert ModelConfig(**stored) == from_plain(ModelConfig, json.loads(json.dumps(stored))) == cfg


@pytest.mark.parametrize(
    ("name", "value"),
    [("mla_rank", 4), ("shift_share", "channel")],
)
def test_a_removed_field_with_another_value_is_refused(name, value):
    sentence = (
        rf"ModelConfig\.{name} is {value!r}, but this field was removed: it must be {OLD[name]!r}\."
    )
    for open_as in (
        lambda fields: ModelConfig(**fields),
        lambda fields: from_plain(ModelConfig, fields),
    ):
        with pytest.raises(ConfigError, match=sentence):
            open_as({**PLAIN, name: value})


# replace


@pytest.mark.parametrize(
    ("given", "changes"),
    [
        ({}, {"d_model": 48}),
        ({}, GPT2),
        # Widths that were given, and those that do not follow from the change, stay:
        ({"d_head": 10, "d_mlp": 7, "n_key_value_heads": 2}, {"n_layers": 3, "d_vocab": 5}),
        ({"d_head": 10, "d_mlp": 7}, {"d_model": 48}),
        ({"n_key_value_heads": 2}, {"n_heads": 12}),
    ],
    ids=str,
)
def test_replace_equals_the_config_written_that_way(given, changes):
    cfg = ModelConfig(**PLAIN, **given)
    assert cfg.replace(**changes) == ModelConfig(**{**PLAIN, **given, **changes})
    assert cfg == ModelConfig(**PLAIN, **given)


# Refusals


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"d_model": 25}, ["ModelConfig.d_model is 25,", "n_heads=4 does not divide", "d_head"]),
        (
            {"n_key_value_heads": 3},
            ["ModelConfig.n_key_value_heads is 3,", "does not divide n_heads=4"],
        ),
        ({"d_head": 5}, ["ModelConfig.d_head is 5,", "must be even"]),
        ({"shift_window": 1}, ["ModelConfig.shift_window is 1,", "at least 2"]),
        ({"eps": 0.0}, ["ModelConfig.eps is 0.0,", "positive"]),
        (
            {"attention": "kvshift"},
            [
                "ModelConfig.attention is 'kvshift' (did you mean 'kv_shift'?),",
                "'vanilla', 'kv_shift'",
            ],
        ),
        (
            {"residual": (True,) * 3},
            ["ModelConfig.residual is (True, True, True),", "each of 2 layers"],
        ),
        ({"alibi_slopes": (0.5,) * 4}, ["ModelConfig.alibi_slopes is", "positional is 'rope'"]),
        (
            {"positional": "alibi", "alibi_slopes": (0.5,) * 3},
            ["alibi_slopes is", "4 finite numbers", "or 8"],
        ),
        (
            {"unembedding": "none", "d_vocab": 25},
            ["ModelConfig.d_vocab is 25,", "the 24 entries", "d_model"],
        ),
        (
            {"unembedding": "none", "tied_embeddings": True},
            ["ModelConfig.tied_embeddings is True,", "nothing to tie"],
        ),
        ({"n_head": 4}, ["no ModelConfig field 'n_head'", "did you mean 'n_heads'?"]),
    ],
    ids=str,
)
def test_bad_settings_are_refused_with_what_would_be_right(changes, said):
    with pytest.raises(ConfigError) as refusal:
        ModelConfig(**{**PLAIN, **changes})
    assert all(part in str(refusal.value) for part in said)
