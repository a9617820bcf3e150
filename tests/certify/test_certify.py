"""What certificates say, keep and refuse: planted faults, refusals, sets, files and their check."""

import dataclasses
from itertools import product

import numpy as np
import pytest
import torch
from torch.nn.utils.parametrizations import spectral_norm

from ihlab import InductionTask, ModelConfig, Transformer
from ihlab.certify import Certificate, certify, check
from ihlab.certify.sequences import automata_of, induction
from ihlab.theory.constructions import checker, kv_shift_induction_head
from tasks import IGNORE, ConfigError, MQARTask
from tests.certify.brute_force import SMALL, TASK, is_induction, small

ONE_OF_EACH = [{}, {"positional": "learned"}, {"n_heads": 2, "positional": "rope"}]


@pytest.mark.parametrize("fields", ONE_OF_EACH, ids=str)
def test_verdicts_without_margins_are_the_same(fields):
    full, quick = (
        certify(small(2, **fields), TASK, range(2, 7), margins=each).table for each in (True, False)
    )
    assert quick["verdict"].equals(full["verdict"])
    last = full["length"] == 6
    np.testing.assert_allclose(quick["margin"][last], full["margin"][last])


def hand_set(sigma=0.05, slope=0.0, n_ctx=8):
    return kv_shift_induction_head(torch.eye(4, dtype=torch.float64), n_ctx, sigma, slope)


def test_the_construction_of_theorem_3_3_is_proved_far_beyond_brute_force():
    certificate = certify(hand_set(slope=0.3), TASK, [3, 8, 40])
    assert certificate.status == "proved"
    assert certificate.longest == 40
    assert certificate.verdict.startswith(
        "proved: every sequence of 3, 8 and 40 tokens over 4 ids whose last token "
    )


def test_other_constructions_and_one_vanilla_layer_are_refuted():
    eye = torch.eye(4, dtype=torch.float64)
    for model in (checker(eye, 8, 0.05), small(0, attention="vanilla"), small(0)):
        certificate = certify(model, TASK)
        assert certificate.status == "refuted"
        tokens = certificate.worst
        assert is_induction(tokens, tokens[-1], tokens[tokens.index(tokens[-1]) + 1])


@torch.no_grad()
@pytest.mark.parametrize("faults", [12, pytest.param(200, marks=pytest.mark.rare)])
def test_no_planted_fault_is_proved(faults):
    """One weight of a proved model is changed until a sequence fails. Every verdict is that of all
    sequences.
    """
    generator, planted = np.random.default_rng(faults), 0
    every = []
    for tokens in product(range(4), repeat=5):
        for answer in {*range(4)} - {tokens[-1]}:
            if is_induction(tokens, tokens[-1], answer):
                every.append((tokens, answer))
    sequences, answers = (torch.tensor(each) for each in zip(*every, strict=True))
    while planted < faults:
        model = hand_set(sigma=0.2)
        weights = list(model.parameters())
        weight = weights[generator.integers(len(weights))]
        place, wrong = tuple(generator.integers(n) for n in weight.shape), torch.zeros(1)
        for _ in range(20):
            if not wrong.any():
                weight[place] += 0.4 * generator.normal()
                wrong = model(sequences)[:, -1].argmax(dim=1) != answers
        assert certify(model, TASK, [5]).status == ("refuted" if wrong.any() else "proved")
        planted += bool(wrong.any())


CHANGED = {
    "forward hook": lambda m: m.register_forward_hook(lambda *a: -a[2]),
    "hook of a part": lambda m: m.unembed.register_forward_hook(lambda *a: -a[2]),
    "pre-hook": lambda m: m.layers[0].register_forward_pre_hook(lambda *a: None),
    "hook point": lambda m: m.add_hook("blocks.0.hook_attn_out", lambda x, hook: x),
    "parametrisation": lambda m: spectral_norm(m.layers[0].attn.q_proj),
    "method": lambda m: setattr(m, "forward", lambda tokens: -type(m).forward(m, tokens)),
    "method of a part": lambda m: setattr(m.unembed, "forward", lambda x: x),
    "module": lambda m: setattr(m.layers[0], "attn", torch.nn.Identity()),
    "new module": lambda m: m.add_module("own", torch.nn.Linear(2, 2)),
    "setting": lambda m: setattr(m.layers[0], "residual", False),
    "eps": lambda m: setattr(m.layers[0].ln1, "eps", 1.0),
    "buffer": lambda m: m.layers[0].attn.rotary.cos.neg_(),
    "weight": lambda m: m.embed.weight.data.fill_(float("nan")),
    "shape": lambda m: setattr(m.layers[0].attn, "q_proj", torch.nn.Linear(8, 8)),
}


@torch.no_grad()
@pytest.mark.parametrize("change", CHANGED)
def test_a_model_that_is_more_than_its_weights_is_refused(change, tmp_path):
    model = small(0, positional="rope")
    certify(model, TASK, [3])
    certify(model, TASK, [3], without=["own key"], path=tmp_path / "part")
    CHANGED[change](model)
    for call in (
        lambda: certify(model, TASK, [3]),
        lambda: certify(model, TASK, [3], without=["own key"]),
        lambda: check(tmp_path / "part", model),
    ):
        with pytest.raises(ConfigError):
            call()


def test_a_global_hook_is_refused():
    handle = torch.nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        with pytest.raises(ConfigError, match="global"):
            certify(small(0), TASK, [3])
    finally:
        handle.remove()


@torch.no_grad()
@pytest.mark.parametrize(
    ("dtype", "scale"), [(torch.bfloat16, 1.0), (torch.float16, 1.0), (torch.float32, 1e25)]
)
def test_a_model_that_fails_in_its_own_arithmetic_is_not_proved(dtype, scale):
    model = hand_set(sigma=0.05).to(dtype)
    model.unembed.weight *= scale
    model.layers[0].attn.o_proj.weight *= scale
    table = certify(model, TASK, [4]).table
    for row in table[table["verdict"] == "proved"].itertuples():
        logits = model(torch.tensor([row.worst]))[0, -1]
        assert logits[row.answer] > logits[torch.arange(len(logits)) != row.answer].max()
    assert scale == 1 or not (table["verdict"] == "proved").any()


REFUSED = [
    ({"n_layers": 2}, "second layer"),
    ({"mlp": "gelu"}, "MLP"),
    ({"mlp": "swiglu", "norm": "none"}, "norm='none'"),
    ({"qk_norm": True}, "qk_norm=True"),
    ({"norm": "layer"}, "LayerNorm"),
    ({"shift_window": 3}, "shift_window=3"),
    ({"attention": "qkv_shift"}, "attention='qkv_shift'"),
    ({"attention": "key_offset", "d_head": 4}, "attention='key_offset'"),
    ({"stream_shift": "added"}, "stream_shift='added'"),
    ({"canon": "A"}, "canon='A'"),
    ({"smear": "embedding"}, "smear='embedding'"),
]


@pytest.mark.parametrize(("fields", "part"), REFUSED, ids=str)
def test_what_breaks_the_argument_is_named(fields, part):
    model = Transformer(
        ModelConfig(**{**SMALL, "d_vocab": 4, "n_ctx": 8, "d_model": 16, **fields})
    ).eval()
    with pytest.raises(ConfigError, match=part):
        certify(model, TASK)


def test_other_refusals_name_the_cause(tmp_path):
    model, own = small(0), induction(range(4), 0, 1)
    cases = {
        "task": lambda: certify(model),
        "mqar": lambda: certify(model, MQARTask(vocab_size=4, length=6, pairs=1)),
        "period is 2": lambda: certify(model, InductionTask(vocab_size=20, length=4, period=2)),
        "lengths is": lambda: certify(model, TASK, []),
        "not a question": lambda: certify(model, TASK, questions=[(0, 0)]),
        "d_vocab is 4": lambda: certify(model, InductionTask(vocab_size=9, length=4, min_token=0)),
        "n_ctx=8": lambda: certify(small(0, positional="learned"), TASK, [9]),
        "dropout": lambda: certify(small(0, dropout=0.1).train(), TASK),
        "own automata": lambda: certify(model, None, [3], questions=[own]).save(tmp_path / "x"),
        "leave path out": lambda: certify(model, None, [3], questions=[own], path=tmp_path / "x"),
        "sequence of 2 tokens": lambda: certify(model, TASK, [2]),
        "from 2 to 4096": lambda: certify(model, TASK, [5000]),
        "at least one question": lambda: certify(model, TASK, questions=[]),
        "must be a pair": lambda: certify(model, TASK, questions=[3]),
        "different alphabets": lambda: certify(
            model, None, [3], questions=[own, induction(range(3), 0, 1)]
        ),
    }
    for part, call in cases.items():
        with pytest.raises(ConfigError, match=part):
            call()


BAD_AUTOMATA = {
    "ascending": {"alphabet": np.array([1, 0, 2, 3])},
    "not in the alphabet": {"answer": 7},
    "not from -1 to 1": {"follow": np.full((3, 4), 2)},
    "not from 0 to 2": {"rule": np.full((2, 4), 3)},
}


@pytest.mark.parametrize("part", BAD_AUTOMATA)
def test_automata_that_do_not_fit_are_refused(part):
    with pytest.raises(ConfigError, match=part):
        dataclasses.replace(induction(range(4), 0, 1), **BAD_AUTOMATA[part])


@pytest.mark.parametrize("bos", [False, True])
@pytest.mark.parametrize("answer", [1, 2], ids=["another", "the query itself"])
def test_automata_hold_and_count_what_their_rule_says(bos, answer):
    automaton = induction(range(4), 2, answer, 4 if bos else None)
    counts = automaton.counts(5)
    for length in (2, 3, 4, 5):
        n_held = 0
        for tokens in product(range(5), repeat=length):
            content = tokens[1:] if bos else tokens
            allowed = 4 not in content and (not bos or tokens[0] == 4)
            right = allowed and len(content) > 0 and is_induction(content, 2, answer)
            assert automaton.holds(tokens) == right
            n_held += right
        assert counts[length] == n_held


@pytest.mark.parametrize("fields", [{}, {"bos": True}, {"score_immediate": True}], ids=str)
def test_every_question_that_a_task_draws_is_in_its_set(fields):
    task = InductionTask(vocab_size=12, length=10, min_token=2, **fields)
    batch = task.batch(5_000, np.random.default_rng(0))
    automata = {(each.query, each.answer): each for each in automata_of(task)}
    for row, position in np.argwhere(batch.answers != IGNORE):
        tokens = batch.inputs[row, : position + 1]
        assert automata[tokens[-1], batch.answers[row, position]].holds(tokens)


def test_the_set_says_what_is_in_it():
    fields = {"vocab_size": 4, "length": 4, "min_token": 0}
    said = certify(small(0), InductionTask(**fields), [4]).set
    assert said == (
        "every sequence of 4 tokens over 4 ids whose last token has come before, always followed by one and the same "
        "other token (28 % of all)"
    )
    immediate = certify(small(0), InductionTask(**fields, score_immediate=True), [2, 3])
    assert "one and the same token (" in immediate.set
    assert (0, 0) in {*immediate.table[["query", "answer"]].itertuples(index=False, name=None)}
    part = certify(small(0), InductionTask(**fields), [3, 5, 6, 7], questions=[(0, 1), (1, 0)])
    assert part.set.startswith("every sequence of 3 and 5 to 7 tokens over 4 ids")
    assert ", for 2 of 12 questions (" in part.set
    own = dataclasses.replace(induction(range(4), 0, 1), sentence="that I like")
    assert (
        certify(small(0), None, [3], questions=[own]).set
        == 'every sequence of 3 tokens over 4 ids, of those that your own automata accept ("that I like")'
    )


@pytest.mark.parametrize("fields", ONE_OF_EACH, ids=str)
def test_the_check_agrees_on_every_row_and_finds_a_false_one(fields, tmp_path):
    model = small(3, **fields)
    certificate = certify(model, TASK, [3, 4] if model.cfg.n_heads > 1 else range(3, 6))
    certificate.save(tmp_path / "proof")
    assert check(tmp_path / "proof", model) == (certificate.table["verdict"] != "unknown").sum()
    for verdict, claimed in (("refuted", "proved"), ("proved", "refuted")):
        for number in certificate.table.index[certificate.table["verdict"] == verdict][:3]:
            certificate.table.loc[number, "verdict"] = claimed
            certificate.save(tmp_path / "false")
            with pytest.raises(ConfigError, match="does not hold"):
                check(tmp_path / "false", model)
            certificate.table.loc[number, "verdict"] = verdict


def test_a_certificate_is_checked(tmp_path):
    path, model = tmp_path / "proof.safetensors", hand_set(slope=0.1)
    certificate = certify(model, TASK, range(3, 9), path=path)
    assert check(path, model) == len(certificate.table) == 72
    stored = Certificate.open(path)
    assert stored.table.equals(certificate.table)
    assert (stored.verdict, stored.key, stored.task) == (certificate.verdict, certificate.key, TASK)
    with pytest.raises(ConfigError, match="another model"):
        check(path, hand_set(slope=0.2))
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(ConfigError, match=r"proof\.safetensors"):
        check(path, model)


def test_a_verdict_on_automata_claims_no_more_than_they_accept():
    """Automata of a task, given by hand, keep its sentence: a verdict on one is not about all."""
    every = certify(small(1), TASK, [3])
    assert every.status == "refuted"
    proved = every.table[every.table["verdict"] == "proved"].iloc[0]
    questions = [
        a for a in every.automata if (a.query, a.answer) == (proved["query"], proved["answer"])
    ]
    said = certify(small(1), None, [3], questions=questions).verdict
    assert said == (
        'proved: every sequence of 3 tokens over 4 ids, of those that your own automata accept ("whose last token has '
        'come before, always followed by one and the same other token") is answered rightly.'
    )


def test_a_file_is_replaced_only_by_the_same_call(tmp_path):
    path, model = tmp_path / "proof.safetensors", hand_set()
    first = certify(model, TASK, [3], path=path)
    assert certify(model, TASK, [3], path=path).key == first.key
    others = {
        "lengths differs": lambda: certify(model, TASK, [3, 4], path=path),
        "questions differs": lambda: certify(model, TASK, [3], questions=[(0, 1)], path=path),
        "margins differs": lambda: certify(model, TASK, [3], margins=False, path=path),
        "model differs": lambda: certify(hand_set(slope=0.1), TASK, [3], path=path),
        # Its own key is 0 by construction, so the weights without it are the same.
        "without differs": lambda: certify(model, TASK, [3], without=["own key"], path=path),
        "task differs": lambda: certify(
            model, InductionTask(vocab_size=4, length=3, min_token=0), [3], path=path
        ),
    }
    for part, call in others.items():
        with pytest.raises(ConfigError, match=part):
            call()
    assert Certificate.open(path).table.equals(first.table)


def forged(certificate, **columns):
    return dataclasses.replace(certificate, table=certificate.table.assign(**columns))


FORGED = {
    "rows dropped": lambda c: dataclasses.replace(c, table=c.table.iloc[1:]),
    "rows of length 2": lambda c: forged(c, length=2),
    "lengths that were not judged": lambda c: dataclasses.replace(c, lengths=[3, 4, 5]),
    "another question": lambda c: forged(c, answer=c.table["answer"].to_numpy()[::-1]),
    "all proved": lambda c: forged(c, verdict="proved", bound=1.0, margin=2.0),
    "all proved, no bounds": lambda c: forged(c, verdict="proved", bound=np.nan),
    "all proved, no margins asked": lambda c: dataclasses.replace(
        forged(c, verdict="proved", bound=np.nan), margins=False
    ),
    "all refuted": lambda c: forged(c, verdict="refuted"),
    "margins plus 1000": lambda c: forged(c, margin=c.table["margin"] + 1000),
    "bounds plus 1": lambda c: forged(c, bound=c.table["bound"] + 1),
    "bounds infinite": lambda c: forged(c, bound=np.inf),
    "margins NaN": lambda c: forged(c, margin=np.nan),
    "sequences of another row": lambda c: forged(
        c, worst=[*c.table["worst"][1:], c.table["worst"][0]]
    ),
    "no sequences": lambda c: forged(c, worst=[[] for _ in c.table["worst"]]),
    "its own rounding": lambda c: dataclasses.replace(
        forged(c, verdict="proved"), rounding={"float64": -1e9}
    ),
}


@pytest.mark.parametrize("forgery", FORGED)
def test_a_forged_file_does_not_hold(forgery, tmp_path):
    model = small(1)
    certificate = certify(model, TASK, [3, 4], path=tmp_path / "true")
    assert set(certificate.table["verdict"]) == {"proved", "refuted"}
    assert check(tmp_path / "true", model) == 24
    FORGED[forgery](certificate).save(tmp_path / "false")
    with pytest.raises(ConfigError, match=r"does not hold|is not a certificate"):
        check(tmp_path / "false", model)
