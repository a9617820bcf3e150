"""Greedy decoding with a KV cache: ours, and Hugging Face's Llama, which also trains, each with and
without a shift.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pandas as pd
from paired import figure, ratio, timed
from workers import by_turns

SHAPE = {"n_layers": 4, "d_model": 256, "n_heads": 4, "d_vocab": 512, "n_ctx": 192}
PROMPT, NEW = 64, 128
ROUNDS = {1: 5, 64: 1}  # batch size -> turns of a start
OURS, SHIFTED, LLAMA = "ours, vanilla", "ours, KV shifting", "Hugging Face's Llama"

SMOLLM2 = {
    "num_hidden_layers": 30,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "vocab_size": 49_152,
}
SMALL = {"num_hidden_layers": 2, "hidden_size": 36, "intermediate_size": 64, "vocab_size": 100}
HEADS = {"num_attention_heads": 9, "num_key_value_heads": 3}
LENGTH, DECODED = 256, 8
PLAIN_HF, SHIFTED_HF = "Llama", "Llama with add_shift"

STARTS = 3
SHIFT_GOAL, LLAMA_GOAL = 1.05, 1.0


@dataclass(frozen=True)
class Side:
    """A model that continues `rows` prompts."""

    model: str
    rows: int


@dataclass(frozen=True)
class LlamaSide:
    """A Llama of these sizes that trains, or decodes after a prompt."""

    sizes: dict[str, int]
    shifted: bool
    trains: bool


def measure(quick: bool = False) -> pd.DataFrame:
    """Return times and ratios; when quick, few turns of one sequence and of a small Llama."""
    batches = list(ROUNDS)[: 1 if quick else None]
    rows = [
        row
        for batch in batches
        for row in _generation(batch, *((2, 1) if quick else (ROUNDS[batch], STARTS)))
    ]
    for trains in (True, False):
        rows += _hugging_face(
            trains, SMALL if quick else SMOLLM2, *((2, 1) if quick else (4, STARTS))
        )
    return pd.DataFrame(rows)


def _generation(batch: int, rounds: int, starts: int) -> list[dict[str, object]]:
    """Return the rows of our model at one batch size."""
    table = (
        f"Greedy decoding: prompt {PROMPT}, {NEW} new tokens, batch {batch} (vocabulary {SHAPE['d_vocab']}, "
        f"d_model {SHAPE['d_model']}, {SHAPE['n_layers']} layers, {SHAPE['n_heads']} heads)"
    )
    sides = {name: Side(name, batch) for name in (OURS, SHIFTED, LLAMA)}
    seconds, tokens = by_turns(_prepare, sides, rounds, starts)
    assert tokens[OURS] == tokens[LLAMA], (
        "ours and the Llama write different tokens: their times do not compare"
    )
    rows = [figure(table, name, batch * NEW / s, "new tokens/s") for name, s in seconds.items()]
    shifted = seconds[SHIFTED], seconds[OURS]
    rows.append(ratio(table, f"decoding, KV shifting, batch {batch}", *shifted, against="vanilla"))
    rows.append(
        ratio(
            table,
            f"decoding, vanilla, batch {batch}",
            seconds[OURS],
            seconds[LLAMA],
            LLAMA_GOAL,
            LLAMA,
        )
    )
    return rows


def _prepare(side: Side) -> tuple[list[list[int]], Callable[[], float]]:
    """Build a model. Return the tokens that it writes, and a function that returns the seconds of
    writing them.
    """
    import torch

    from ihlab.model.config import ModelConfig
    from ihlab.model.conversion import to_llama
    from ihlab.model.transformer import Transformer

    ours = Transformer(
        ModelConfig(**SHAPE, attention="kv_shift" if side.model == SHIFTED else "vanilla")
    )
    prompt = torch.randint(
        SHAPE["d_vocab"], (side.rows, PROMPT), generator=torch.Generator().manual_seed(0)
    )
    model: Any = ours
    if side.model == LLAMA:
        model = to_llama(ours).eval()
        given = {"attention_mask": torch.ones_like(prompt), "do_sample": False}

    def write() -> torch.Tensor:
        if side.model == LLAMA:
            return model.generate(input_ids=prompt, max_new_tokens=NEW, **given)
        return model.generate(prompt, NEW)

    return write().tolist(), timed(write)


def _hugging_face(
    trains: bool, sizes: dict[str, int], rounds: int, starts: int
) -> list[dict[str, object]]:
    """Return the rows of a Llama with and without `add_shift`."""
    what = f"training step, {LENGTH} tokens" if trains else f"decoding step after {LENGTH} tokens"
    table = f"{PLAIN_HF} of Hugging Face, the size of SmolLM2-135M: {what}, batch 1"
    sides = {name: LlamaSide(sizes, name == SHIFTED_HF, trains) for name in (PLAIN_HF, SHIFTED_HF)}
    seconds, found = by_turns(_prepare_llama, sides, rounds, starts)
    plain, shifted = found.values()
    assert plain == shifted, (
        f"the shifted Llama, which starts as the plain one, computes {shifted}, not {plain}"
    )
    rows = [figure(table, name, 1e3 * times, "ms") for name, times in seconds.items()]
    both = seconds[SHIFTED_HF], seconds[PLAIN_HF]
    return [*rows, ratio(table, f"{what}, {SHIFTED_HF}", *both, SHIFT_GOAL, f"{LLAMA}")]


def _prepare_llama(side: LlamaSide) -> tuple[float, Callable[[], float]]:
    """Build a Llama. Return its first loss or largest logit, and a function that returns the
    seconds of one step.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from ihlab.hf import add_shift

    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(**side.sizes, **HEADS, tie_word_embeddings=True, eos_token_id=None)
    )
    if side.shifted:
        add_shift(model)
    tokens = torch.randint(
        side.sizes["vocab_size"], (1, LENGTH), generator=torch.Generator().manual_seed(0)
    )
    if side.trains:
        optimizer = torch.optim.AdamW(model.train().parameters(), fused=True)

        def train() -> float:
            loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return round(loss.item(), 4)

        return train(), timed(train)
    model.eval()
    with torch.no_grad():
        first = model(input_ids=tokens, use_cache=True)

    @torch.no_grad()
    def decode() -> None:
        for token in tokens[:, :DECODED].split(1, dim=1):
            model(input_ids=token, past_key_values=first.past_key_values, use_cache=True)

    turn = timed(decode)
    return round(first.logits.max().item(), 4), lambda: turn() / DECODED
