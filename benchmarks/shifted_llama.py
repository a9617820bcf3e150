"""A shifted Hugging Face Llama against the plain one: a training step, a decoding step, and the cache's size."""

from collections.abc import Callable
from typing import Any

import pandas as pd
from paired import Bar, figure, one_thread, ratio, take_turns, timed

SMOLLM2 = {"num_hidden_layers": 30, "hidden_size": 576, "intermediate_size": 1536, "vocab_size": 49_152}
HEADS = {"num_attention_heads": 9, "num_key_value_heads": 3}
LENGTH, PROMPT, STEPS = 256, 256, 8
ROUNDS = 10
PLAIN, SHIFTED = "Llama", "shifted Llama"
BAR = Bar(1.05)  # shifted / plain


def measure(quick: bool = False) -> pd.DataFrame:
    """Return milliseconds of each step, their ratios, and the cache's size; when quick, with 2 layers and 2 turns."""
    sizes = {**SMOLLM2, **HEADS, **({"num_hidden_layers": 2} if quick else {})}
    rounds = 2 if quick else ROUNDS
    with one_thread():
        return pd.DataFrame([*_training(sizes, rounds), *_decoding(sizes, rounds)])


def _models(sizes: dict[str, int]) -> dict[str, Any]:
    """Return a Llama and a shifted one with the same weights."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from ihlab.hf import add_shift

    models: dict[str, Any] = {}
    for name in (PLAIN, SHIFTED):
        torch.manual_seed(0)
        models[name] = LlamaForCausalLM(LlamaConfig(**sizes, tie_word_embeddings=True, eos_token_id=None))
    add_shift(models[SHIFTED])
    return models


def _training(sizes: dict[str, int], rounds: int) -> list[dict[str, object]]:
    import torch

    def step(model: Any) -> Callable[[], None]:
        optimiser = torch.optim.AdamW(model.parameters(), fused=True)

        def run() -> None:
            model(input_ids=tokens, labels=tokens, use_cache=False).loss.backward()
            optimiser.step()
            optimiser.zero_grad()

        return run

    tokens = torch.randint(sizes["vocab_size"], (1, LENGTH), generator=torch.Generator().manual_seed(0))
    seconds = take_turns({name: timed(step(model.train())) for name, model in _models(sizes).items()}, rounds)
    return _figures(f"Training step of a Llama, {LENGTH} tokens, {_shape(sizes)}", seconds)


def _decoding(sizes: dict[str, int], rounds: int) -> list[dict[str, object]]:
    import torch

    prompt = torch.randint(sizes["vocab_size"], (1, PROMPT), generator=torch.Generator().manual_seed(0))
    models = {name: model.eval() for name, model in _models(sizes).items()}
    given = {"attention_mask": torch.ones_like(prompt), "do_sample": False}
    caches = {}
    with torch.no_grad():
        for name, model in models.items():
            caches[name] = model(input_ids=prompt, use_cache=True).past_key_values

        def step(name: str) -> Callable[[], None]:
            def run() -> None:
                for token in prompt[:, :STEPS].split(1, dim=1):
                    models[name](input_ids=token, past_key_values=caches[name], use_cache=True)

            return run

        seconds = take_turns({name: timed(step(name)) for name in models}, rounds)
        texts = [model.generate(prompt, max_new_tokens=4, **given) for model in models.values()]
    assert torch.equal(*texts), "identity taps write other tokens: their times do not compare"
    table = f"Decoding step of a Llama behind {PROMPT} tokens, batch 1, {_shape(sizes)}"
    held = {name: sum(map(_bytes, cache.layers)) / len(cache.layers) for name, cache in caches.items()}
    return [
        *_figures(table, {name: turns / STEPS for name, turns in seconds.items()}),
        figure(table, "vectors a layer that the shifted cache holds more", [_more(held, sizes)], "vectors"),
    ]


def _bytes(layer: Any) -> int:
    tensors = [x for x in vars(layer).values() if hasattr(x, "nbytes")] + list(getattr(layer, "raw", {}).values())
    return sum(x.untyped_storage().nbytes() for x in tensors)


def _more(held: dict[str, float], sizes: dict[str, int]) -> float:
    width = sizes["hidden_size"] // sizes["num_attention_heads"] * sizes["num_key_value_heads"]
    return (held[SHIFTED] - held[PLAIN]) / (4 * width)


def _figures(table: str, seconds: dict[str, Any]) -> list[dict[str, object]]:
    rows = [figure(table, name, 1000 * turns, "ms") for name, turns in seconds.items()]
    return [*rows, ratio(table, "shifted / Llama, time", seconds[SHIFTED], seconds[PLAIN], BAR)]


def _shape(sizes: dict[str, int]) -> str:
    return f"{sizes['num_hidden_layers']} layers, d {sizes['hidden_size']}, vocabulary {sizes['vocab_size']}"
