"""Train the GPT-2 of this folder to do induction, using only transformers: `python <this file>`
takes some minutes.

Two layers of width 64 read sequences of 64 random tokens that repeat after 8 to 32 tokens. The
period differs between sequences, so that positions do not tell which token to copy. Id 63 is the
config's special token and never occurs. The weights are stored in float16.
`tests/interp/test_models.py` has the results of a run.
"""

from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel

HERE = Path(__file__).parent
LENGTH, SPECIAL = 64, 63
STEPS, BATCH, RATE = 4000, 64, 3e-3


def rows(batch: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Return sequences [batch, LENGTH], and their labels: -100 where the next token cannot be
    known.
    """
    periods = torch.randint(8, 33, (batch, 1), generator=generator)
    tokens = torch.rand(batch, SPECIAL, generator=generator).argsort(
        dim=1
    )  # distinct within a period
    at = torch.arange(LENGTH)
    tokens = tokens.gather(1, at % periods)
    return tokens, tokens.masked_fill(at < periods, -100)


def main() -> None:
    """Train, store the weights, and print their loss and accuracy on new sequences."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    config = GPT2Config(
        vocab_size=64,
        n_positions=LENGTH,
        n_embd=64,
        n_layer=2,
        n_head=4,
        bos_token_id=SPECIAL,
        eos_token_id=SPECIAL,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
    )
    model = GPT2LMHeadModel(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.98), weight_decay=0.01)
    rate = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=STEPS, pct_start=0.1)
    for step in range(STEPS):
        tokens, labels = rows(BATCH, generator)
        loss = model(tokens, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        rate.step()
        if step % 200 == 0:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)
    model.half().save_pretrained(HERE)
    stored = GPT2LMHeadModel.from_pretrained(HERE, dtype=torch.float32).eval()
    tokens, labels = rows(256, generator)
    with torch.no_grad():
        output = stored(tokens, labels=labels)
    scored = labels[:, 1:] != -100
    hits = output.logits[:, :-1].argmax(dim=-1) == labels[:, 1:]
    print(
        f"stored: loss {output.loss.item():.3f}, accuracy {hits[scored].double().mean().item():.3f}"
    )


if __name__ == "__main__":
    main()
