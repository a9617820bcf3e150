"""The models of the contracts: an attention variant, and a value of every other option of
`ModelConfig`.

In `pairs()` every two values of two options meet in a model, where the variant is an option, too.
Three values meet in many of them, and others in models of `drawn`.
"""

from collections.abc import Collection, Iterator
from functools import partial
from itertools import combinations, product
from random import Random

from ihlab.model.config import ModelConfig
from ihlab.model.registry import VARIANTS
from tasks import ConfigError

BUILT_IN = [name for name, variant in VARIANTS.items() if not variant.registered]
"""The attention variants of the package: other tests of one process may have registered more."""

# Heads that together are wider than the residual stream, which is wider than what a smear's gate
# reads.
SIZES = {
    "n_layers": 2,
    "d_model": 14,
    "n_heads": 2,
    "d_head": 8,
    "d_mlp": 10,
    "d_vocab": 11,
    "n_ctx": 10,
}

OPTIONS = {
    "attention": {variant: {"attention": variant} for variant in BUILT_IN},
    "positions": {
        "rotary": {},
        "rotary base": {"rotary_base": 10.0},
        "rotary frequencies and scale": {
            "rotary_frequencies": (1.0, 0.5, 0.3, 0.0),
            "rotary_scale": 1.2,
        },
        "rotary in one layer": {"rotary_layers": (False, True)},
        "alibi": {"positional": "alibi"},
        "alibi slopes of each layer": {
            "positional": "alibi",
            "alibi_slopes": (-0.1, 0.2, 0.1, 0.5),
        },
        "learned positions": {"positional": "learned"},
        "no positions": {"positional": "none"},
    },
    "mask": {"causal": {}, "strict": {"mask": "strict"}},
    "heads": {
        "two heads": {},
        "grouped heads": {"n_heads": 4, "n_key_value_heads": 2, "d_head": 4},
        "one key": {"n_key_value_heads": 1},
    },
    "norm of heads": {"none": {}, "norm of queries and keys": {"qk_norm": True}},
    "norm": {
        "rms norm": {},
        "large eps": {"eps": 0.3},
        "layer norm": {"norm": "layer"},
        "no norm": {"norm": "none", "init_std": 0.25},
    },
    "mlp": {"swiglu": {}, "gelu": {"mlp": "gelu"}, "no mlp": {"mlp": "none"}},
    "bias": {"none": {}, "bias": {"bias": True}},
    "unembedding": {
        "linear": {},
        "tied embeddings": {"tied_embeddings": True},
        "no unembedding": {"unembedding": "none"},
    },
    "residual": {
        "all": {},
        "no residual": {"residual": False},
        "residual in one layer": {"residual": (True, False)},
    },
    "dropout": {"none": {}, "dropout, evaluating": {"dropout": 0.5}},
    "canon": {
        "none": {},
        **{f"canon {places}": {"canon": places} for places in ("A", "B", "CD", "D", "KVO", "M")},
    },
    "stream": {
        "unmixed": {},
        "stream before the norm": {"stream_shift": "before_norm"},
        "stream after the norm": {"stream_shift": "after_norm"},
        "stream added": {"stream_shift": "added"},
    },
    "smear": {
        "none": {},
        "smeared embedding": {"smear": "embedding"},
    },
    "window": {
        "window 2": {},
        "window 3": {"shift_window": 3},
        "window 4, uniform": {"shift_window": 4, "shift_start": "uniform"},
    },
    "first": {"zero": {}, "first own": {"shift_first": "own"}},
}
"""Values of each option by their names: the variant, and options of which the first is the default.
"""

USUAL = {option: next(iter(values)) for option, values in OPTIONS.items()}
SHIFTED = tuple(variant for variant in BUILT_IN if VARIANTS[variant].rules)
READERS = {"window": SHIFTED, "first": SHIFTED}
"""The variants that read an option, if not all do."""

Model = dict[str, str]
"""The name of each option's value. Options that are not there have the usual value."""
Pair = frozenset[tuple[str, str]]


def config(model: Model) -> ModelConfig:
    """Return the config of a model."""
    fields = {
        name: field for option in model for name, field in OPTIONS[option][model[option]].items()
    }
    return ModelConfig(**{**SIZES, **fields})


def title(model: Model) -> str:
    """Return the variant and the unusual values."""
    unusual = [
        value for option, value in model.items() if option != "attention" and value != USUAL[option]
    ]
    return f"{model['attention']}-{', '.join(unusual) or 'plain'}"


def is_valid(model: Model) -> bool:
    """Return False if `ModelConfig` refuses a model, or if its variant does not read one of its
    options.
    """
    if any(
        model.get(option, USUAL[option]) != USUAL[option] and model["attention"] not in variants
        for option, variants in READERS.items()
    ):
        return False
    try:
        config(model)
    except ConfigError:
        return False
    return True


def pairs_of(model: Model) -> set[Pair]:
    """Return all pairs of an option's value with another's."""
    return {frozenset(pair) for pair in combinations(model.items(), 2)}


def completed(model: Model, missing: Collection[Pair], rng: Random) -> Model:
    """Give each further option the valid value of most missing pairs; of equal ones, a random one."""

    def gain(option: str, value: str) -> tuple[int, float]:
        return sum(
            frozenset([(option, value), other]) in missing for other in model.items()
        ), rng.random()

    for option, values in OPTIONS.items():
        if option not in model:
            ranked = sorted(values, key=partial(gain, option), reverse=True)
            model = {
                **model,
                option: next(value for value in ranked if is_valid({**model, option: value})),
            }
    return {option: model[option] for option in OPTIONS}


def pairs() -> Iterator[Model]:
    """Yield every variant with usual options, and models until every possible pair of values is in
    one of them.
    """
    rng, plain = Random(0), iter([{**USUAL, "attention": variant} for variant in BUILT_IN])
    missing = {
        frozenset([(one, value), (other, another)]): None  # in this order
        for one, other in combinations(OPTIONS, 2)
        for value, another in product(OPTIONS[one], OPTIONS[other])
    }
    while missing:
        pair = next(iter(missing))
        if not any(is_valid({"attention": variant, **dict(pair)}) for variant in BUILT_IN):
            del missing[pair]
            continue
        model = next(plain, None) or completed(dict(pair), missing, rng)
        yield model
        for pair in pairs_of(model):
            missing.pop(pair, None)


def drawn(seed: str) -> Model:
    """Return a random model."""
    rng = Random(seed)
    return completed({"attention": rng.choice(BUILT_IN)}, (), rng)
