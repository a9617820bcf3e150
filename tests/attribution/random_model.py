"""Problems of random models with shifted keys and values."""

from ihlab import ModelConfig, Transformer
from ihlab.attribution import problem
from tasks import InductionTask

TASK = InductionTask(vocab_size=40, length=16)
SIZES = {
    "n_layers": 2,
    "d_model": 12,
    "n_heads": 3,
    "d_head": 5,
    "d_vocab": 40,
    "n_ctx": 16,
    "positional": "alibi",
    "attention": "kv_shift",
}


def random_problem(size=5, **changes):
    """Return a problem of `size` prompts of TASK, for a model of SIZES with some fields changed."""
    model = Transformer(ModelConfig(**{**SIZES, **changes}), seed=3)
    return problem(model.double().eval(), TASK, size=size)
