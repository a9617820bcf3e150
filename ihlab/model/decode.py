"""Decoding with a KV cache: each token is read only once."""

import math

import torch
from jaxtyping import Float, Int, Int64
from torch import Tensor

from ihlab.model.attend import Stream
from ihlab.model.kv_cache import KVCache
from ihlab.model.network import Network
from ihlab.model.variants.make_attention import require_decodable
from ihlab.runtime.modes import evaluating
from ihlab.runtime.settings import own_settings
from tasks.config import require


class Decoder:
    """Read token sequences chunk by chunk, with the same logits as a full forward pass on all
    tokens so far.

        decoder = Decoder(model, batch=2, capacity=16)
        decoder.forward(tokens[:, :5])   # [2, 5, d_vocab], as model(tokens[:, :5])
        decoder.forward(tokens[:, 5:6])  # [2, 1, d_vocab], as model(tokens[:, :6])[:, 5:]

    Its buffers hold `capacity` tokens of each sequence. Call `model.eval()` first if the model has
    dropout. Hooks fire on each chunk, as `docs/hooks.md` says. Raises `ConfigError` for a batch or
    capacity below 1, a capacity above `n_ctx`, and for a custom attention that takes no cache.
    """

    def __init__(self, model: Network, batch: int, capacity: int) -> None:
        require(batch >= 1, f"Decoder.batch is {batch}, but must be at least 1.")
        require(
            1 <= capacity <= model.cfg.n_ctx,
            f"Decoder.capacity is {capacity}, but must be from 1 to the model's n_ctx, {model.cfg.n_ctx}.",
        )
        for block in model.layers:
            require_decodable(block.attn)
        self.model, self.batch, self.capacity = model, batch, capacity
        self.caches = [KVCache(capacity) for _ in model.blocks]

    @property
    def length(self) -> int:
        """The number of tokens of each sequence that have been read."""
        return self.caches[0].length

    @torch.no_grad()
    def forward(self, chunk: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch pos d_vocab"]:
        """Return the logits at every position of the next tokens, one or more of each sequence.
        They carry no gradient.

        Raises `ConfigError` for ids outside the vocabulary, another number of sequences, and more
        tokens than fit. After a forward pass that failed, begin again with a new decoder.
        """
        require(
            chunk.shape[0] == self.batch and chunk.shape[1] >= 1,
            f"The chunk is {list(chunk.shape)}, but must be {self.batch} sequences (Decoder.batch) of one or "
            "more tokens.",
        )
        self.model.require_ids(chunk)
        return self.model.unembed(self._read(chunk))

    @torch.no_grad()
    def next_logits(self, chunk: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch d_vocab"]:
        """Read the next tokens without checking their ids, and return the logits of the token after
        them.
        """
        return self.model.unembed(self._read(chunk)[:, -1])

    def _read(self, chunk: Int[Tensor, "batch pos"]) -> Stream:
        room = self.capacity - self.length
        require(
            chunk.shape[1] <= room,
            f"The chunk has {chunk.shape[1]} tokens per sequence, but the decoder has room for {room} more: it "
            f"has read {self.length} and its capacity is {self.capacity}.",
        )
        return self.model.final_residual(chunk, self.caches)


@own_settings()
def generate(
    model: Network,
    tokens: Int[Tensor, "batch pos"],
    max_new_tokens: int,
    stop: int | None = None,
    pad: int | None = None,
    temperature: float = 0.0,
    generator: torch.Generator | None = None,
) -> Int64[Tensor, "batch longer"]:
    """Continue the tokens by up to `max_new_tokens`.

    With `temperature` 0, each new token is the most likely one (the lowest id in a tie). Otherwise
    it is drawn from softmax(logits / temperature), with `generator` or torch's global one.

    A sequence that has emitted `stop` is filled with `pad` (None: with `stop`); a `stop` in the
    prompt does not count. Decoding ends once all sequences have emitted `stop`. Dropout is off; the
    model keeps its mode. Hooks fire on the prompt, then on one token at a time, under
    `torch.inference_mode`. Raises `ConfigError` for an empty prompt, for ids outside the
    vocabulary, for a `pad` without `stop`, for a negative temperature, and when prompt and new
    tokens together exceed `n_ctx`.
    """
    batch, length = tokens.shape
    require(
        tokens.numel() > 0,
        f"The prompt is {list(tokens.shape)}, but must hold at least one sequence and one token.",
    )
    require(max_new_tokens >= 0, f"max_new_tokens is {max_new_tokens}, but must be at least 0.")
    require(
        0 <= temperature < math.inf,
        f"temperature is {temperature}, but must be 0 (greedy) or above.",
    )
    total = length + max_new_tokens
    require(
        total <= model.cfg.n_ctx,
        f"The prompt has {length} tokens and max_new_tokens is {max_new_tokens}, together {total}, "
        f"but the model's n_ctx is {model.cfg.n_ctx}.",
    )
    _require_stop(model, stop, pad)
    model.require_ids(tokens)
    rows = tokens.new_empty(batch, total, dtype=torch.int64)
    rows[:, :length] = tokens
    with evaluating(model), torch.inference_mode():
        decoder = Decoder(model, batch, total)
        stopped = torch.zeros(batch, dtype=torch.bool, device=tokens.device)
        while length < total and not (stop is not None and stopped.all()):
            logits = decoder.next_logits(rows[:, decoder.length : length])
            following = logits.argmax(dim=-1)
            if temperature:
                following = torch.multinomial(
                    (logits / temperature).softmax(dim=-1), 1, generator=generator
                )[:, 0]
            if stop is not None:
                following = following.masked_fill(stopped, stop if pad is None else pad)
                stopped |= following == stop
            rows[:, length] = following
            length += 1
    return rows[:, :length].contiguous()


def _require_stop(model: Network, stop: int | None, pad: int | None) -> None:
    require(
        stop is not None or pad is None,
        f"pad is {pad}, but without stop nothing is padded: also give stop.",
    )
    for name, token in (("stop", stop), ("pad", pad)):
        require(
            token is None or 0 <= token < model.cfg.d_vocab,
            f"{name} is {token}, but must be a token id from 0 to {model.cfg.d_vocab - 1}.",
        )
