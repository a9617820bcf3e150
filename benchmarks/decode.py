"""Speed of greedy decoding with a KV cache: ours against Hugging Face's Llama, and KV shifting against vanilla."""

from collections.abc import Callable
from typing import Any

import pandas as pd
from paired import Bar, figure, one_thread, ratio, take_turns, timed

SHAPE = {"n_layers": 4, "d_model": 256, "n_heads": 4, "d_vocab": 512, "n_ctx": 192}
PROMPT, NEW = 64, 128
ROUNDS = {1: 15, 64: 5}  # batch size -> turns
OURS, SHIFTED, LLAMA = "ours, vanilla", "ours, kv_shift", "Hugging Face Llama"
LLAMA_BAR = Bar(1.0)  # ours / Llama


def measure(quick: bool = False) -> pd.DataFrame:
    """Return tokens per second and ratios for batches of one sequence and of many; when quick, only of one."""
    cases = list(ROUNDS.items())[: 1 if quick else None]
    with one_thread():
        return pd.DataFrame([row for rows, rounds in cases for row in _case(rows, 2 if quick else rounds)])


def _case(n_rows: int, rounds: int) -> list[dict[str, object]]:
    """Return the figures of one batch size."""
    table = (
        f"Greedy decoding, prompt {PROMPT}, {NEW} new tokens, batch {n_rows} (vocabulary {SHAPE['d_vocab']}, "
        f"d_model {SHAPE['d_model']}, {SHAPE['n_layers']} layers, {SHAPE['n_heads']} heads)"
    )
    sides = _sides(n_rows)
    wrong = int((sides[OURS]() != sides[LLAMA]()).sum())
    assert wrong == 0, f"{wrong} of {n_rows * NEW} tokens of ours and the Llama differ: their times do not compare"
    seconds = take_turns({name: timed(run) for name, run in sides.items()}, rounds)
    rows = [figure(table, name, n_rows * NEW / s, "new tokens/s") for name, s in seconds.items()]
    rows.append(ratio(table, "ours / Llama, time", seconds[OURS], seconds[LLAMA], LLAMA_BAR))
    rows.append(ratio(table, "kv_shift / vanilla, time", seconds[SHIFTED], seconds[OURS]))
    return rows


def _sides(n_rows: int) -> dict[str, Callable[[], Any]]:
    """Return a function per model that continues the same prompts and returns prompt and new tokens."""
    import torch

    from ihlab.model.config import ModelConfig
    from ihlab.model.hf import to_llama
    from ihlab.model.transformer import Transformer

    vanilla, shifted = (Transformer(ModelConfig(**SHAPE, attention=kind)) for kind in ("vanilla", "kv_shift"))
    llama = to_llama(vanilla).eval()
    prompt = torch.randint(SHAPE["d_vocab"], (n_rows, PROMPT), generator=torch.Generator().manual_seed(0))
    seen = torch.ones_like(prompt)
    return {
        OURS: lambda: vanilla.generate(prompt, NEW),
        SHIFTED: lambda: shifted.generate(prompt, NEW),
        LLAMA: lambda: llama.generate(input_ids=prompt, attention_mask=seen, max_new_tokens=NEW, do_sample=False),
    }
