"""Upcycling SmolLM2-135M: does a pretrained model use an added shift, if only the taps are trained?

`ihlab.interp.upcycling` has the arms. The text is Python source of the standard library, one sequence per file; files
of training, tuning and held-out text are disjoint. Questions, thresholds, seeds and rates were fixed before the runs.
"""

import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ihlab.claims import stats
from ihlab.claims.claim import Claim
from ihlab.claims.experiment import Planned, Scale, Trained
from ihlab.plots.style import BLACK, BLUE, ORANGE, new_figure, printed
from tasks.config import require

MODEL = Path("models") / "SmolLM2-135M-Instruct"
"""Where `make real` writes the model."""
BOTH, KEYS, VALUES, SCALES = "keys and values", "keys", "values", "scales"
NONE = "none"
"""The pretrained model without added numbers."""


@dataclass(frozen=True)
class Size:
    """What is trained and measured at a scale: `training`, `tuning` and `held_out` are numbers of sequences."""

    positions: int
    training: int
    trial: int
    tuning: int
    held_out: int
    probes: int
    early: int  # number of layers that count as early
    readers: int  # number of previous-token heads that are ablated
    rates: tuple[float, ...]


SIZES = {
    "smoke": Size(24, 4, 2, 2, 4, 3, 1, 1, (3e-3, 1e-2)),
    "laptop": Size(256, 160, 30, 12, 64, 16, 10, 5, (3e-3, 1e-2, 3e-2)),
}
MORE = -0.005
"""Difference of the held-out loss, in nats, beyond which taps help more than scales."""
RISE = 0.02
"""Rise of the mean prefix-matching score of early heads that counts."""
GROUPS = 10
"""Number of key/value heads in each of the two groups that are compared."""


class Upcycle:
    """Taps of keys and values, trained in a pretrained model whose other weights are frozen."""

    name = "upcycle"

    def runs(self, scale: Scale) -> list[Planned]:
        """Plan no runs: the model is not one of ihlab's own."""
        return []

    def gather(self, trained: Trained, scale: Scale) -> pd.DataFrame:
        """Train every arm, each in its own process, and measure it. The rows of the table differ by `kind`:

        - tuning: `loss` of an `arm` on tuning text at a rate `lr`; `chosen`: whether it was the lowest;
        - held-out: `loss` of an arm on held-out sequence `number`;
        - head: scores of a head (`prefix_matching`, `previous_token`), and the fractions `alpha` and `beta` that its
          key and value take from the previous token;
        - probe: for sequence `number` of repeated random tokens, `loss`, and `rise` without the previous-token heads
          that are strongest before training; `early`: mean prefix matching of early heads.
        """
        require(scale in SIZES, f"upcycle is made at laptop scale, not at {scale} scale: it trains one model.")
        require(
            scale == "smoke" or (MODEL / "model.safetensors").exists(),
            f"upcycle needs the model in {MODEL}: `make real` downloads it.",
        )
        jobs = min(2, os.cpu_count() or 1)
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
            found = list(pool.map(partial(_measured, scale=scale), (NONE, BOTH, SCALES, KEYS, VALUES)))
        return pd.concat(found, ignore_index=True)

    def claims(self, data: pd.DataFrame, scale: Scale) -> list[Claim]:
        """Judge the declared questions."""
        size = SIZES[scale]
        claim = partial(
            Claim, source="beside the paper", of_paper=False, declared="2026-11-26", seeds=1, right_side="above"
        )
        losses = {arm: data[(data["kind"] == "held-out") & (data["arm"] == arm)]["loss"].to_numpy() for arm in ARMS}
        heads, probes = data[data["kind"] == "head"], data[data["kind"] == "probe"]
        before, after = (probes[probes["arm"] == arm] for arm in (NONE, BOTH))
        movers = head_groups(heads)
        n = min(GROUPS, len(movers) // 2)
        induction, previous = (movers.nlargest(n, by)["alpha"].tolist() for by in ("prefix", "previous"))
        return [
            *(
                claim(
                    sentence=f"Taps on {arm} lower the held-out loss by more than as many scales do.",
                    measure=f"loss with taps on {arm} less that with scales, nats per token, mean of "
                    f"{len(losses[arm])} files (before {losses[NONE].mean():.3f}, scales {losses[SCALES].mean():.3f})",
                    estimate=stats.mean((losses[arm] - losses[SCALES]).tolist(), stats.DIFFERENCE),
                    threshold=MORE,
                    right_side="below",
                )
                for arm in (BOTH, KEYS, VALUES)
            ),
            claim(
                sentence="Keys of induction heads take more from the previous token than keys of previous-token heads.",
                measure=f"mean fraction of the key from the previous token: the {n} key/value heads with the highest "
                f"prefix matching before training ({np.mean(induction):.3f}) less the {n} with the highest attention "
                f"to the previous token ({np.mean(previous):.3f})",
                estimate=stats.difference(induction, previous, stats.DIFFERENCE),
                threshold=0.0,
            ),
            claim(
                sentence="With the shift, the model needs its previous-token heads less.",
                measure=f"rise of the loss on repeated random tokens without the {size.readers} strongest "
                f"previous-token heads, with the shift less before (before {before['rise'].mean():.2f})",
                estimate=stats.mean((after["rise"].to_numpy() - before["rise"].to_numpy()).tolist(), stats.DIFFERENCE),
                threshold=0.0,
                right_side="below",
            ),
            claim(
                sentence="With the shift, heads of early layers match prefixes.",
                measure=f"mean prefix matching of the heads of layers 0 to {size.early - 1}, with the shift "
                f"less before (before {before['early'].mean():.3f})",
                estimate=stats.mean(
                    (after["early"].to_numpy() - before["early"].to_numpy()).tolist(), stats.DIFFERENCE
                ),
                threshold=RISE,
            ),
        ]

    @printed
    def draw(self, data: pd.DataFrame, scale: Scale) -> Figure:
        """Draw each key/value head: its layer, the fraction of its key from the previous token, and its scores."""
        figure = new_figure(8.8, 4.2)
        axes = figure.subplots(1, 2, sharey=True)
        movers = head_groups(data[data["kind"] == "head"])
        for panel, side, title in zip(axes, ("alpha", "beta"), ("keys", "values"), strict=True):
            for by, color, label in (
                ("previous", ORANGE, "attention to the previous token"),
                ("prefix", BLUE, "prefix matching (induction)"),
            ):
                panel.scatter(
                    movers["layer"], movers[side], s=4 + 160 * movers[by], color=color, alpha=0.55, lw=0, label=label
                )
            panel.axhline(0, color=BLACK, lw=0.8)
            panel.set(title=title, xlabel="layer")
        axes[0].set_ylabel("fraction from the previous token")
        handles, labels = axes[0].get_legend_handles_labels()
        legend = figure.legend(
            handles, labels, loc="outside lower center", ncols=2, title="dot size: score before training"
        )
        for handle in legend.legend_handles:
            handle.set_sizes([60])  # type: ignore[union-attr]  # the dots of a scatter
        figure.suptitle("Which heads of SmolLM2-135M use a shift that only its taps are trained for?")
        return figure

    def summary(self, data: pd.DataFrame, scale: Scale) -> str:
        """State the held-out losses."""
        means = data[data["kind"] == "held-out"].groupby("arm")["loss"].mean()
        told = ", ".join(f"{means[arm]:.3f} ({arm})" for arm in ARMS)
        return f"Held-out loss in nats per token, by what was trained: {told}."


ARMS = (NONE, SCALES, KEYS, VALUES, BOTH)


def head_groups(heads: pd.DataFrame) -> pd.DataFrame:
    """Return one row per key/value head: its highest scores before training over its query heads, and its fractions."""
    before, after = (heads[heads["arm"] == arm].set_index(["layer", "head"]) for arm in (NONE, BOTH))
    table = before[["kv_head", "prefix_matching", "previous_token"]].join(after[["alpha", "beta"]]).reset_index()
    return table.groupby(["layer", "kv_head"], as_index=False).agg(
        prefix=("prefix_matching", "max"), previous=("previous_token", "max"), alpha=("alpha", "first"),
        beta=("beta", "first"),
    )  # fmt: skip


# Measurement


def _measured(arm: str, scale: Scale) -> pd.DataFrame:
    """Return the rows of one arm."""
    import torch

    from ihlab.interp.heads import head_scores
    from ihlab.interp.upcycling import held_out_losses, shares, train_arm

    torch.set_num_threads(1)
    size, (model, encode) = SIZES[scale], _pretrained(scale)
    training, tuning, held_out = _texts(scale, encode)
    rows: list[dict[str, Any]] = []
    readers = _readers(head_scores(model, rows=size.probes, bos=False), size.readers)
    changed = model
    if arm != NONE:
        trained = train_arm(model, arm, training, tuning, size.rates, size.trial, size.training)
        changed = trained.model
        rows += [
            {"kind": "tuning", "lr": lr, "loss": loss, "chosen": lr == trained.lr} for lr, loss in trained.tried.items()
        ]
    rows += [{"kind": "held-out", "number": i, "loss": x} for i, x in enumerate(held_out_losses(changed, held_out))]
    if arm in (NONE, BOTH):
        table = head_scores(changed, rows=size.probes, bos=False)
        table = table[table["pattern"] == "raw"]
        each = model.config.num_attention_heads // model.config.num_key_value_heads
        table = table.assign(kind="head", kv_head=table["head"] // each)
        if arm == BOTH:
            for side in ("alpha", "beta"):
                of = shares(changed, side).numpy()
                table[side] = [of[layer, head] for layer, head in zip(table["layer"], table["kv_head"], strict=True)]
        kept = [
            c
            for c in ("kind", "layer", "head", "kv_head", "prefix_matching", "previous_token", "alpha", "beta")
            if c in table
        ]
        rows += table[kept].to_dict("records")  # type: ignore[arg-type]
        rows += _probed(changed, readers, size)
    return pd.DataFrame(rows).assign(arm=arm)


def _readers(scores: pd.DataFrame, n: int) -> list[tuple[int, int]]:
    """Return the heads with the highest attention to the previous token."""
    raw = scores[scores["pattern"] == "raw"].nlargest(n, "previous_token")
    return list(zip(raw["layer"].tolist(), raw["head"].tolist(), strict=True))


def _probed(model: Any, readers: list[tuple[int, int]], size: Size) -> list[dict[str, Any]]:
    """Return a row for each probe sequence, of random tokens read twice."""
    from ihlab.interp.ablation import CleanRun
    from ihlab.interp.heads import head_scores
    from ihlab.interp.sources import opened_model
    from ihlab.measure.probe import repeated_batch

    opened = opened_model(model)
    tokens = opened.probe_rows(2, size.probes, None, None, 1)
    clean = CleanRun(opened, repeated_batch(tokens, 2))
    without = clean.without(readers, "mean", 0)
    rise = (without["loss"] - clean.whole["loss"]) / clean.whole["targets"]
    rows = []
    for number in range(size.probes):
        scores = head_scores(model, rows=1, seed=100 + number, bos=False)
        early = scores[(scores["pattern"] == "raw") & (scores["layer"] < size.early)]["prefix_matching"].mean()
        loss = clean.whole["loss"].iloc[number] / clean.whole["targets"].iloc[number]
        rows.append({"kind": "probe", "number": number, "loss": loss, "rise": rise.iloc[number], "early": early})
    return rows


def _pretrained(scale: Scale) -> tuple[Any, Callable[[str], list[int]]]:
    """Return the pretrained model and its tokenizer's encoding; for the smoke test, a random model of bytes."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from ihlab.stored import causal_lm, tokenizer_of

    if scale == "smoke":
        torch.manual_seed(0)
        config = LlamaConfig(
            vocab_size=256, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=256, bos_token_id=None, eos_token_id=None,
            attn_implementation="eager",
        )  # fmt: skip
        return LlamaForCausalLM(config).eval(), lambda text: list(text.encode())
    model, tokenizer = causal_lm(str(MODEL)).eval(), tokenizer_of(str(MODEL), local=True)
    require(tokenizer is not None, f"{MODEL} has no tokenizer: remove the folder, and `make real` writes it again.")
    assert tokenizer is not None
    return model, lambda text: tokenizer(text, add_special_tokens=False)["input_ids"]


def _texts(scale: Scale, encode: Callable[[str], list[int]]) -> list[Any]:
    """Return training, tuning and held-out sequences [sequence, positions + 1]: each a random part of its own file.

    If there are too few files, training takes several parts of each of its files.
    """
    import torch

    from tasks.text.corpus import read

    size, rng = SIZES[scale], np.random.default_rng(0)
    long = 10 * size.positions
    files = [
        text
        for d in read("sample" if scale == "smoke" else "stdlib")
        if len(text := d.content.decode(errors="replace")) > long
    ]
    files = [files[i] for i in rng.permutation(len(files))]
    rest = files[size.held_out + size.tuning :]
    parts = {
        "training": [rest[i % len(rest)] for i in range(size.training)],
        "tuning": files[size.held_out : size.held_out + size.tuning],
        "held-out": files[: size.held_out],
    }
    found = []
    for texts in parts.values():
        starts = [int(rng.integers(len(text) - long + 1)) for text in texts]
        rows = [encode(text[at : at + long])[: size.positions + 1] for text, at in zip(texts, starts, strict=True)]
        found.append(torch.tensor(rows))
    return found
