"""Packing: distances, a planted leak of known size, what cells have in common, and verdicts on made-up tables."""

import math

import numpy as np
import pytest
import torch

from ihlab.model.config import ModelConfig
from ihlab.model.transformer import Transformer
from ihlab.paper.studies.packing import CELLS, LEAK, OPEN, PACKING, by_distance, config, distances, error_alone, losses
from tasks import IGNORE, Batch
from tests.paper.studies.made_up import table, verdicts

V, GATE, GAIN = 12, 0.8, 5.0


def packed_batch(bos, rows=40, length=30):
    """Documents of three to six tokens. The second token of text is the last token of the document before (planted)."""
    rng, stream, starts = np.random.default_rng(0), [0], [True]
    while len(stream) <= rows * length:
        last, first = stream[-1], [V - 1] * bos
        text = rng.permutation(np.setdiff1d(np.arange(V - 1), last))[: rng.integers(2, 6)].tolist()
        new = [*first, text[0], last, *text[1:]]
        stream, starts = stream + new, [*starts, True, *[False] * (len(new) - 1)]
    stream, starts = np.array(stream), np.array(starts)
    shape, n = (rows, length), rows * length
    targets = np.where(starts, IGNORE, stream)[1 : n + 1].reshape(shape)
    return Batch(stream[:n].reshape(shape), targets, document_starts=starts[:n].reshape(shape))


@pytest.mark.parametrize("bos", [False, True])
def test_distances_count_from_the_first_token_of_text(bos):
    batch = packed_batch(bos)
    for starts, row in zip(batch.document_starts, distances(batch, bos), strict=True):
        since = None
        for start, distance in zip(starts, row, strict=True):
            since = 1 - bos if start else None if since is None else since + 1
            assert distance == since if since is not None else distance > 6
    assert error_alone(reader("none"), batch) == 0


def reader(leak):
    """One layer whose logits are GAIN times the token and GAIN * GATE times the one before, by smear alone."""
    cfg = ModelConfig(
        n_layers=1, d_model=V, n_heads=1, d_vocab=V, n_ctx=30, mlp="none", norm="none", positional="none",
        smear="embedding", document_leak=leak,
    )  # fmt: skip
    model = Transformer(cfg).double()
    with torch.no_grad():
        model.embed.weight.copy_(torch.eye(V))
        model.unembed.weight.copy_(GAIN * torch.eye(V))
        model.layers[0].attn.o_proj.weight.zero_()
        model.smear.scale.fill_(2 * GATE)  # the gate's sigmoid is 1/2
    return model


@pytest.mark.parametrize("leak", ["none", "shift"])
def test_a_planted_leak_of_known_size_is_found_at_distance_1_and_nowhere_else(leak):
    batch = packed_batch(bos=False)
    found = by_distance("loss", losses(reader(leak), batch), batch, False)
    reset = by_distance("loss", losses(reader(leak), batch, "none"), batch, False)
    without = math.log(math.exp(GAIN) + V - 1)
    with_leak = math.log(math.exp(GAIN) + math.exp(GAIN * GATE) + V - 2) - GAIN * GATE
    in_row = (distances(batch, False) == 1) & (batch.targets != IGNORE)
    fraction = in_row[:, 1:].sum() / in_row.sum()  # at the first place of a row nothing is before
    wanted = fraction * with_leak + (1 - fraction) * without if leak == "shift" else without
    assert found["loss_1"] == pytest.approx(wanted, abs=1e-6)
    assert reset["loss_1"] == pytest.approx(without, abs=1e-6)
    assert found["loss_2"] == pytest.approx(reset["loss_2"], abs=1e-6)
    assert found["loss_more"] == pytest.approx(reset["loss_more"], abs=1e-6)


def test_cells_of_a_variant_differ_in_packing_and_steps_alone():
    first = config(CELLS[0], "laptop")
    for cell in CELLS:
        run = config(cell, "laptop")
        assert run.replace(model=first.model, task=first.task, steps=first.steps) == first
        model = run.model.replace(document_leak="none", shift_first="zero")
        assert model == config({**CELLS[0], "variant": cell["variant"]}, "laptop").model
        assert run.model.document_leak in ("both", "attention") if cell["attention"] == OPEN else ("shift", "none")


def judge(cost=0.0, whole=0.0, alone=0.2):
    """Return the verdicts if a leak costs so much at distance 1, in the whole loss, and when documents stand alone."""

    def of(cell):
        by = cell["rule"] == LEAK
        first, more = 2.9 + (whole + cost) * by, 3.4 + whole * by
        lost = {"alone_1": first + alone * by, "alone_2": 3.0 + (alone - 0.2) * by}
        whole_loss = more + 0.1 * (cell["attention"] == OPEN)
        return {"loss_1": first, "loss_2": 3.0, "loss_more": more, "loss": whole_loss, **lost}

    data, rng = table(PACKING, of, noise=0.0), np.random.default_rng(1)
    noisy = [column for column in data if column.startswith(("loss", "alone"))]
    data[noisy] += rng.normal(scale=1e-3, size=(len(data), len(noisy)))
    found = verdicts(PACKING, data.assign(alone_error=abs(whole)))
    assert len(found) == len(PACKING.asks)
    return {kind: {verdict for id, verdict in found.items() if id.startswith(kind)} for kind in KINDS}


KINDS = ("leak_helps", "leak_in_whole", "leak_with_bos", "leak_alone", "packed_is_alone")


def test_verdicts_can_come_out_either_way():
    assert judge() == {kind: {"fails" if kind == "leak_helps" else "holds"} for kind in KINDS}
    assert judge(-0.3, 0.2, 0.0) == {kind: {"holds" if kind == "leak_helps" else "fails"} for kind in KINDS}
