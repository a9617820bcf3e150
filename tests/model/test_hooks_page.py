"""docs/hooks.md against real models: every hook point is on the page, with its shape, and nothing
else is.
"""

import re
from pathlib import Path

import pytest

from ihlab.model.config import GPT2

PAGE = (Path(__file__).parents[2] / "docs" / "hooks.md").read_text(encoding="utf-8")
ROW = re.compile(
    r"^\| `(?P<name>[^`]+)` \| (?P<shape>[^|]+) \| (?P<when>[^|]+) \| (?P<meaning>[^|]+) \|$",
    re.MULTILINE,
)
BATCH, POS = 3, 9

SWITCHES = {
    "attention": ["vanilla", "kv_shift"],
    "positional": ["rope", "alibi", "learned", "none"],
    "norm": ["rms", "layer", "none"],
    "mlp": ["swiglu", "gelu", "none"],
}
MODELS = [{name: value} for name, values in SWITCHES.items() for value in values]
MODELS += [
    GPT2,
    {"attention": "qkv_shift"},
    {"stream_shift": "added"},
    {"canon": "ABCD"},
    {"qk_norm": True},
]
MODELS += [{"attention": "key_offset", "d_head": 8}, {"smear": "embedding"}]


def rows():
    return [match.groupdict() for match in ROW.finditer(PAGE)]


def is_there(when, cfg):
    """Whether a config meets 'always', 'alpha learned' (or fixed), or conditions such as
    norm="rms"/"layer".
    """
    if when.endswith(" learned"):
        return when.removesuffix(" learned") in cfg.learned_shifts
    conditions = re.findall(r'(\w+)(!?=)((?:"\w+"/?)+)', when)
    assert when == "always" or ", ".join("".join(condition) for condition in conditions) == when
    return all(
        (f'"{getattr(cfg, name)}"' in values.split("/")) == (sign == "=")
        for name, sign, values in conditions
    )


def numbers(shape, cfg):
    known = {"batch": BATCH, "pos": POS, "query": POS, "key": POS, "1": 1}
    return tuple(known[axis] if axis in known else getattr(cfg, axis) for axis in shape.split(", "))


@pytest.mark.parametrize(
    "switches", MODELS, ids=lambda switches: "-".join(map(str, switches.values()))
)
def test_the_page_lists_exactly_the_hook_points_of_a_model_with_their_shapes(
    make_model, tokens, switches
):
    """Sizes are all different in these models, but for batch (3), so that no axis passes for
    another.
    """
    model = make_model(**{"shift_window": 5, **switches})
    _, cache = model.run_with_cache(tokens)
    expected = {}
    for row in rows():
        if is_there(row["when"], model.cfg):
            layers = range(model.cfg.n_layers) if "blocks.L." in row["name"] else [None]
            names = [row["name"].replace("blocks.L.", f"blocks.{layer}.") for layer in layers]
            expected |= dict.fromkeys(names, numbers(row["shape"], model.cfg))
    assert {name: tuple(x.shape) for name, x in cache.items()} == expected
    assert set(model.hook_dict) == set(expected)


def test_every_line_of_a_table_is_read():
    """A row with a slip in it would otherwise be skipped in silence."""
    lines = [line for line in PAGE.splitlines() if line.startswith("| `")]
    assert len(lines) == len(rows()) == len({row["name"] for row in rows()})
