"""Check a stored certificate independently: from the weights, in plain NumPy, without the solver's tables and walks.

It shares with the solver only the statement that is checked: which sequences a question has
(`ihlab.certify.sequences`). Backwards from the query and for all rivals at once, it computes the potential of every
token and state: the smallest sum over the positions after it. A certificate could store these potentials, but they take
V^4 T numbers (500 MB for 32 tokens), and checking them takes as long as computing them.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from ihlab.certify.certificate import PROVED, REFUTED, Certificate, model_digest
from ihlab.certify.certify import opened_transformer
from ihlab.certify.sequences import Sequences, sequences_of
from ihlab.certify.tables import lengthened
from ihlab.model.transformer import Transformer
from tasks.config import require

ROUNDS = 50
"""The most steps of Dinkelbach's method, which ends after about five."""


@torch.no_grad()
def check(path: str | Path, model: Any) -> int:
    """Check every proved and every refuted row of a certificate, and return their number.

    `model` is a source as for `certify`. Raises `ConfigError` if the certificate is of another model, if a sequence of
    a proved row may be answered wrongly, or if the sequence of a refuted row is answered rightly or is not in the set.
    """
    certificate, network = Certificate.open(path), opened_transformer(model).cpu()
    require(certificate.model == model_digest(network), f"{path} is the certificate of another model.")
    require(network.cfg.mlp == "none", f"The model has mlp={network.cfg.mlp!r}, but the check has no bound of an MLP.")
    _, of_question = sequences_of(certificate.task)
    refuted = certificate.table[certificate.table["verdict"] == REFUTED]
    for length, query, answer, worst in refuted[["length", "query", "answer", "worst"]].to_numpy().tolist():
        logits = lengthened(network, length)(torch.tensor([worst]))[0, -1]
        others = logits[torch.arange(len(logits)) != answer]
        wrong = len(worst) == length and of_question(query, answer).holds(worst) and logits[answer] <= others.max()
        require(bool(wrong), f"{path} does not hold: {worst} is answered rightly, or is not in the set.")
    proved, slack = certificate.table[certificate.table["verdict"] == PROVED], certificate.rounding["float64"]
    weights = {name: weight.detach().double().numpy() for name, weight in network.state_dict().items()}
    questions: Any = proved.groupby(["query", "answer"])
    for (query, answer), rows in questions:
        sequences, lengths = of_question(query, answer), rows["length"].tolist()
        in_one_pass = network.pos_embed is None and network.cfg.n_heads == 1
        for some in [lengths] if in_one_pass else [[length] for length in lengths]:
            failed = sorted(set(some) - _lengths_that_hold(network, weights, sequences, some, slack))
            require(not failed, f"{path} does not hold: query {query}, answer {answer}, {failed} tokens.")
    return len(refuted) + len(proved)


def _lengths_that_hold(
    model: Transformer, weights: Mapping[str, np.ndarray], sequences: Sequences, lengths: Sequence[int], slack: float
) -> set[int]:
    """Return the lengths at which each rival's margin is above `slack` in every sequence."""
    longest, cfg = max(lengths), model.cfg
    score, read, direct = _scores_and_reads(model, weights, sequences, longest)
    mass = np.exp(score - score.max(axis=(1, 2, 3), keepdims=True))
    rivals = np.delete(np.arange(cfg.d_vocab), sequences.answer)
    gain = read[..., sequences.answer, None] - read[..., rivals]  # [head, place, token, before, rival]
    constant = direct[sequences.answer] - direct[rivals] - slack
    if cfg.n_heads == 1:
        weight, _ = _potentials(sequences, mass[0], gain[0] + constant, longest)
        return {length for length in lengths if (weight[length] > 0).all()}
    for head in range(cfg.n_heads):
        level = np.zeros(len(rivals))
        for _ in range(ROUNDS):  # each head's smallest mean, from above
            weight, total = _potentials(sequences, mass[head], gain[head] - level, longest)
            level = level + weight[longest] / total[longest]
            if (np.abs(weight[longest]) < slack / 9 * total[longest]).all():
                break
        constant = constant + level - slack
        weight, _ = _potentials(sequences, mass[head], gain[head] - level + slack, longest)
        if not (weight[longest] > 0).all():
            return set()
    return {longest} if (constant > 0).all() else set()


def _potentials(
    sequences: Sequences,
    mass: Float[np.ndarray, "back token before"],
    gain: Float[np.ndarray, "place token before rival"],
    longest: int,
) -> tuple[Float[np.ndarray, "length rival"], Float[np.ndarray, "length rival"]]:
    """Return the smallest sum of mass * gain over the sequences of each length, and the mass of that sequence."""
    n_tokens = len(sequences.alphabet)
    after = sequences.follow[sequences.rule]  # [state, before, token]
    query = int(np.flatnonzero(sequences.alphabet == sequences.query)[0])
    may_ask = (sequences.asks[:, None] & (after[:, :, query] >= 0))[..., None]
    mine, total = mass[0, query, :-1, None], np.zeros((longest + 1, gain.shape[-1]))
    value = np.where(may_ask, mine * gain[0, query, :-1], np.inf)  # [state, before, rival]
    carried = np.broadcast_to(mine, value.shape)
    smallest = np.full((longest + 1, gain.shape[-1]), np.inf)
    begins, every = np.flatnonzero(sequences.first >= 0), np.arange(n_tokens)
    for back in range(1, longest):
        here, place = mass[back][..., None], gain[back % len(gain)]
        alone = value[sequences.first[begins], begins] + (here * place)[begins, -1]
        best = alone.argmin(axis=0)[None]
        smallest[back + 1] = np.take_along_axis(alone, best, 0)[0]
        with_mass = carried[sequences.first[begins], begins] + here[begins, -1]
        total[back + 1] = np.take_along_axis(with_mass, best, 0)[0]
        step = (here * place)[:, :-1].swapaxes(0, 1)  # [before, token, rival]
        candidates = np.where(after[..., None] >= 0, value[after, every] + step, np.inf)
        best = candidates.argmin(axis=2)[:, :, None]
        added = carried[after, every] + here[:, :-1].swapaxes(0, 1)
        value, carried = (np.take_along_axis(each, best, 2)[:, :, 0] for each in (candidates, added))
    return smallest, total


def _scores_and_reads(
    model: Transformer, weights: Mapping[str, np.ndarray], sequences: Sequences, longest: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a query's scores [head, back, token, before], the logits that pairs write, and the query's own logits."""
    cfg, attn = model.cfg, model.layers[0].attn
    d_head, group = cfg.head_width, cfg.n_heads // cfg.kv_heads
    stream = weights["embed.weight"][sequences.alphabet][None]
    if cfg.positional == "learned":
        stream = stream + weights["pos_embed.weight"][longest - 1 :: -1][:, None]

    def normed(x: np.ndarray, gain: str) -> np.ndarray:
        return x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + cfg.eps) * weights[gain] if gain in weights else x

    def heads(side: str) -> np.ndarray:
        name = f"blocks.0.attn.{side}_proj"
        flat = normed(stream, "blocks.0.ln1.w") @ weights[f"{name}.weight"].T + weights.get(f"{name}.bias", 0.0)
        return flat.reshape(*flat.shape[:2], -1, d_head)

    def in_pairs(x: np.ndarray, taps: np.ndarray) -> np.ndarray:
        now, before = (taps[:, back].reshape(len(taps), -1) for back in (0, 1))
        previous = np.concatenate([x[1:], x[-1:]]) if len(x) > 1 else x
        alone = x if cfg.shift_first == "own" and cfg.shifted else now * x
        return np.concatenate([(now * x)[:, :, None] + (before * previous)[:, None], alone[:, :, None]], axis=2)

    query_at = int(np.flatnonzero(sequences.alphabet == sequences.query)[0])
    q = normed(heads("q")[0, query_at], "blocks.0.attn.q_norm.w")
    k = normed(in_pairs(heads("k"), attn.alpha.double().numpy()), "blocks.0.attn.k_norm.w").repeat(group, axis=3)
    v = in_pairs(heads("v"), attn.beta.double().numpy()).repeat(group, axis=3)
    if attn.rotary is not None:  # pairs of channels as complex numbers; keys are `back` positions before the query
        angles = cfg.rotary_frequencies or cfg.rotary_base ** (-np.arange(0, d_head, 2) / d_head)
        turn = cfg.rotary_scale**2 * np.exp(-1j * np.arange(longest)[:, None] * np.asarray(angles))
        q, k = (x[..., : d_head // 2] + 1j * x[..., d_head // 2 :] for x in (q, k))
        k = k * turn[:, None, None, None]
        score = np.einsum("hd,ptahd->hpta", q.conj(), k).real / d_head**0.5
    else:
        score = np.einsum("hd,ptahd->hpta", q, k) / d_head**0.5
    score = np.broadcast_to(score, (cfg.n_heads, longest, *score.shape[2:])).copy()
    if attn.alibi is not None:
        score -= attn.alibi.slopes.numpy()[:, None, None, None] * np.arange(longest)[:, None, None]
    if cfg.mask == "strict":
        score[:, 0] = -np.inf
    unembed = weights["embed.weight" if cfg.tied_embeddings else "unembed.weight"] * weights.get("ln_final.w", 1.0)
    written = weights["blocks.0.attn.o_proj.weight"].reshape(-1, cfg.n_heads, d_head)
    read = np.einsum("ptahd,mhd,om->hptao", v, written, unembed, optimize=True)
    residual = (stream[0, query_at] if cfg.residual_in(0) else 0.0) + weights.get("blocks.0.attn.o_proj.bias", 0.0)
    return score, read, unembed @ (residual * np.ones(cfg.d_model))
