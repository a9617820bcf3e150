"""The first default of each config field, by its stored name: its default when the field or its class was added.

A run's digest leaves out fields with their first default, and a stored config that lacks a field gets it. Never change
an entry. A field whose default changes keeps its first one here, so that stored runs keep their digest and meaning.
"""

from dataclasses import MISSING
from typing import Any

from tasks.config import stored_names

_RUN: dict[str, Any] = {
    "model": None, "name": "run", "seed": 0, "steps": 1000, "batch_size": 64, "accumulate": 1, "lr": 0.001,
    "warmup": 100, "schedule": "constant", "betas": (0.9, 0.95), "weight_decay": 0.1, "clip": 1.0, "precision": "fp32",
    "compile": False, "eval_every": 10, "eval_growth": 0.05, "eval_rows": 512, "checkpoints": 16, "init_shift": None,
    "until": None, "until_metric": "accuracy_first", "clamped": (),
    "undecayed": (),
}  # fmt: skip

FIRST_DEFAULTS: dict[str, dict[str, Any]] = {
    "RunConfig": _RUN,
    "ForkConfig": _RUN,
    "Fork": {"clamps": (), "rewound": (), "new_moments": False},
    "Clamp": {"head": None, "column": None, "value": None},
    "ModelConfig": {
        "attention": "vanilla", "n_key_value_heads": None, "d_head": None, "d_mlp": None, "mlp": "swiglu",
        "shift_window": 2, "query_window": None, "shift_start": "equal", "shift_share": "head", "shift_first": "zero",
        "stream_shift": "none", "canon": "", "canon_taps": 4, "smear": "none", "bigram_table": 0,
        "document_leak": "none", "positional": "rope", "rotary_base": 100000.0, "rotary_frequencies": None,
        "rotary_scale": 1.0, "rotary_layers": None, "alibi_slopes": None, "mla_rank": None, "qk_norm": False,
        "mask": "causal", "norm": "rms", "eps": 1e-6, "bias": False, "dropout": 0.0, "residual": True,
        "tied_embeddings": False, "unembedding": "linear", "init_std": None, "scaled_residual_init": False,
        "embed_std": None,
    },
    "CheckerTask": {"vocab_size": 64, "length": 32, "asked": "second"},
    "DepoTask": {"vocab_size": 16, "length": 31, "names": 6, "max_hops": 3},
    "IGSMTask": {
        "kind": "igsm", "ops": "<=15", "difficulty": "med", "format": "natural", "split": "train", "length": 512,
        "loss": "solution", "modulus": None, "draw": "smaller", "letters": "random",
    },
    "InductionTask": {
        "vocab_size": 8000, "length": 512, "score": "all", "min_token": 11, "bos": False, "period": None,
        "score_immediate": False,
    },
    "MQARTask": {
        "vocab_size": 8192, "length": 64, "pairs": 4, "power_a": 0.01, "fill": "random", "value_gap": 1, "bos": False,
    },
    "MultiHopTask": {"vocab_size": 23, "length": 99, "max_hops": 16, "alphabet": 4},
    "NGramTask": {"vocab_size": 64, "length": 63, "order": 3, "table_size": 200, "table_seed": 0, "bos": False},
    "PairTask": {"vocab_size": 16, "length": 72, "letters": 4},
    "RepeatTask": {"vocab_size": 16, "length": 8, "followers": 1},
    "TextTask": {"corpus": "stdlib", "vocab_size": 2048, "length": 256, "split": "train", "pack": False, "bos": False},
    "TriggerTask": {"vocab_size": 32, "length": 64, "triggers": 8, "table_seed": 0},
}  # fmt: skip


def first_defaults(cls: Any) -> dict[str, Any]:
    """Return the first defaults of a config class, by stored names; none for a class of another package."""
    return FIRST_DEFAULTS.get(cls.__name__, {}) if cls.__module__.partition(".")[0] in ("ihlab", "tasks") else {}


def digested_defaults(cls: Any) -> dict[str, Any]:
    """Return the defaults that digests leave out: first defaults, and for another package's class its current ones."""
    now = {name: cls.__dataclass_fields__[field].default for field, name in stored_names(cls).items()}
    return {**{name: default for name, default in now.items() if default is not MISSING}, **first_defaults(cls)}
