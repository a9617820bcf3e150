"""Problems of random models with shifted keys and values, and a random Llama."""

import torch

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


def random_llama(**fields):
    """Return a Llama of transformers for TASK."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"vocab_size": 40, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2}
    sizes |= {"num_attention_heads": 4, "initializer_range": 0.3}
    return LlamaForCausalLM(LlamaConfig(**sizes | fields)).eval()
