"""Proofs against brute force over every sequence, for every option that they accept; planted faults; refusals."""

from itertools import pairwise, product

import numpy as np
import pytest
import torch

from ihlab import InductionTask, ModelConfig, Transformer
from ihlab.certify import Certificate, certify, check
from ihlab.certify.certify import _Judged as judging
from ihlab.certify.sequences import alternation, induction, recall, sequences_of
from ihlab.hf import to_hf
from ihlab.theory.constructions import checker, kv_shift_induction_head
from tasks import IGNORE, ConfigError, MQARTask, NGramTask

TASK = InductionTask(vocab_size=4, length=4, min_token=0)
SMALL = {"n_layers": 1, "d_model": 8, "n_heads": 1, "mlp": "none", "attention": "kv_shift", "positional": "none"}


def small(seed, d_vocab=4, n_ctx=8, **fields):
    """A random model with random biases and gains, in float64."""
    model = Transformer(ModelConfig(**{**SMALL, "d_vocab": d_vocab, "n_ctx": n_ctx, **fields}), seed=seed).double()
    generator = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        if name.endswith((".bias", "norm.w", "ln1.w", "ln_final.w")):
            weight.data = 1 + 0.5 * torch.randn(weight.shape, generator=generator, dtype=torch.float64)
    return model.eval()


def is_induction(tokens, query, answer):
    """The rule in words: the query is last and has occurred before, and every earlier one is followed by the answer."""
    *before, last = tokens
    followers = [after for token, after in zip(before, tokens[1:], strict=True) if token == query]
    return last == query and len(followers) > 0 and set(followers) == {answer}


@torch.no_grad()
def smallest_margin(model, sequences, answer):
    """The smallest margin of all sequences, before the final norm's scale, which is 1 / hook_scale."""
    scales = []
    hooks = (
        [("ln_final.hook_scale", lambda scale, hook: scales.append(scale[:, -1]))] if model.cfg.norm == "rms" else []
    )
    logits = model.run_with_hooks(torch.tensor(sequences), fwd_hooks=hooks)[:, -1]
    others = logits.clone()
    others[:, answer] = -torch.inf
    margins = (logits[:, answer] - others.amax(dim=1)) * (scales[0][:, 0] if scales else 1.0)
    return margins.min().item()


ACCEPTED = [
    {},
    {"positional": "alibi"},
    {"positional": "rope"},
    {"positional": "rope", "rotary_frequencies": (0.7, 0.1, 0.05, 2.0), "rotary_scale": 1.2},
    {"positional": "learned"},
    {"attention": "k_shift"},
    {"attention": "v_shift"},
    {"attention": "vanilla"},
    {"attention": "kv_gate"},
    {"attention": "kv_sum1", "shift_share": "channel"},
    {"norm": "none"},
    {"residual": False},
    {"tied_embeddings": True},
    {"mask": "strict"},
    {"mask": "strict", "positional": "learned"},
    {"qk_norm": True},
    {"bias": True},
    {"shift_first": "own"},
    {"d_vocab": 6},
    {"n_heads": 2},
    {"n_heads": 2, "n_key_value_heads": 1, "positional": "alibi"},
    {"n_heads": 2, "positional": "learned", "qk_norm": True},
]


@pytest.mark.parametrize("fields", ACCEPTED, ids=str)
def test_the_worst_of_all_sequences_is_that_of_brute_force(fields):
    model, lengths, one_head = small(1, **fields), range(3, 7), fields.get("n_heads", 1) == 1
    certificate = certify(model, TASK, lengths)
    assert len(certificate.table) == 12 * len(lengths)
    exact = 2e-6 if model.cfg.positional == "rope" else 1e-11  # the model's own rotary tables are float32
    sequences = {length: list(product(range(4), repeat=length)) for length in lengths}
    for row in certificate.table.itertuples():
        every = [tokens for tokens in sequences[row.length] if is_induction(tokens, row.query, row.answer)]
        smallest = smallest_margin(model, every, row.answer)
        assert tuple(row.worst) in every
        assert row.margin == pytest.approx(smallest_margin(model, [row.worst], row.answer), abs=exact)
        assert row.bound <= smallest + exact
        if one_head:
            assert row.margin == pytest.approx(smallest, abs=exact)
            assert row.bound == pytest.approx(smallest, abs=exact)
        assert {"proved": smallest > 0, "refuted": smallest < 0, "unknown": not one_head}[row.verdict]


@pytest.mark.parametrize("fields", ACCEPTED[::7], ids=str)
def test_verdicts_without_margins_are_the_same(fields):
    full, quick = (certify(small(2, **fields), TASK, range(2, 7), margins=each).table for each in (True, False))
    assert quick["verdict"].equals(full["verdict"])
    last = full["length"] == 6
    np.testing.assert_allclose(quick["margin"][last], full["margin"][last])


def hand_set(sigma=0.05, slope=0.0, n_ctx=8):
    return kv_shift_induction_head(torch.eye(4, dtype=torch.float64), n_ctx, sigma, slope)


@pytest.mark.parametrize("slope", [0.0, 0.3])
def test_the_construction_of_theorem_3_3_is_proved_far_beyond_brute_force(slope):
    certificate = certify(hand_set(slope=slope), TASK, [3, 8, 40])
    assert certificate.status == "proved"
    assert certificate.longest == 40
    assert certificate.verdict.startswith("proved: every sequence of up to 40 tokens that has one right answer is")
    assert "(12 of 12 questions, " in certificate.verdict


def test_other_constructions_and_one_vanilla_layer_are_refuted():
    eye = torch.eye(4, dtype=torch.float64)
    for model in (checker(eye, 8, 0.05), small(0, attention="vanilla"), small(0)):
        certificate = certify(model, TASK)
        assert certificate.status == "refuted"
        tokens = certificate.worst
        assert is_induction(tokens, tokens[-1], tokens[tokens.index(tokens[-1]) + 1])


WITH_MLP = [{}, {"positional": "rope"}, {"positional": "learned"}, {"n_heads": 2, "attention": "k_shift"}]


@torch.no_grad()
@pytest.mark.parametrize("written", [0.02, 0.3])
@pytest.mark.parametrize("fields", WITH_MLP, ids=str)
def test_with_an_mlp_the_bound_is_below_every_sequence(fields, written):
    """The MLP writes little, so that something is proved, or much, so that the bound is loose."""
    model, verdicts = small(1, mlp="swiglu", **fields), set()
    model.layers[0].mlp.out_proj.weight *= written
    certificate = certify(model, TASK, range(3, 6))
    for row in certificate.table.itertuples():
        every = [t for t in product(range(4), repeat=row.length) if is_induction(t, row.query, row.answer)]
        smallest = smallest_margin(model, every, row.answer)
        assert row.bound <= smallest + 2e-6
        assert tuple(row.worst) in every
        assert row.margin >= smallest - 2e-6
        assert row.verdict != {True: "refuted", False: "proved"}[smallest > 0]
        verdicts.add(row.verdict)
    assert {"proved", "refuted"} <= verdicts or written > 0.1


@torch.no_grad()
@pytest.mark.parametrize("faults", [30, pytest.param(200, marks=pytest.mark.rare)])
def test_no_planted_fault_is_proved(faults):
    """One weight of a proved model is changed until a sequence fails. Every verdict is that of all sequences."""
    generator, planted = np.random.default_rng(faults), 0
    every = [(tokens, answer) for tokens in product(range(4), repeat=5) for answer in range(4)]
    every = [(t, answer) for t, answer in every if answer != t[-1] and is_induction(t, t[-1], answer)]
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


REFUSED = [
    ({"n_layers": 2}, "second layer"),
    ({"mlp": "gelu"}, "MLP"),
    ({"mlp": "swiglu", "norm": "none"}, "norm='none'"),
    ({"norm": "layer"}, "LayerNorm"),
    ({"shift_window": 3}, "more than two tokens"),
    ({"attention": "qkv_shift"}, "attention='qkv_shift'"),
    ({"attention": "differential"}, "attention='differential'"),
    ({"attention": "gated_linear"}, "attention='gated_linear'"),
    ({"attention": "rwkv_shift"}, "attention='rwkv_shift'"),
    ({"stream_shift": "added"}, "stream_shift='added'"),
    ({"canon": "A"}, "canon='A'"),
    ({"smear": "embedding"}, "smear='embedding'"),
    ({"bigram_table": 8}, "bigram_table=8"),
]


@pytest.mark.parametrize(("fields", "part"), REFUSED, ids=str)
def test_what_breaks_the_argument_is_named(fields, part):
    model = Transformer(ModelConfig(**{**SMALL, "d_vocab": 4, "n_ctx": 8, "d_model": 16, **fields})).eval()
    with pytest.raises(ConfigError, match=part):
        certify(model, TASK)


def test_a_hugging_face_folder_has_the_certificate_of_its_model(tmp_path):
    model = small(0, mlp="swiglu", positional="rope").float()
    to_hf(model).save_pretrained(tmp_path)
    one, other = (certify(source, TASK, [4]).table for source in (tmp_path, model))
    assert one["verdict"].equals(other["verdict"])
    np.testing.assert_allclose(one["bound"], other["bound"], rtol=1e-5)


def test_other_refusals_name_the_cause(tmp_path):
    model = small(0)
    cases = {
        "task": lambda: certify(model),
        "ngram": lambda: certify(model, NGramTask(vocab_size=4, length=6, table_size=5)),
        "period is 3": lambda: certify(model, InductionTask(vocab_size=4, length=4, min_token=0, period=3)),
        "lengths is": lambda: certify(model, TASK, []),
        "not a question": lambda: certify(model, TASK, questions=[(0, 0)]),
        "d_vocab is 4": lambda: certify(model, InductionTask(vocab_size=9, length=4, min_token=0)),
        "n_ctx=8": lambda: certify(small(0, positional="learned"), TASK, [9]),
        "dropout": lambda: certify(small(0, dropout=0.1).train(), TASK),
        "own automata": lambda: certify(model, None, [3], questions=[induction(range(4), 0, 1)]).save(tmp_path / "x"),
    }
    for part, call in cases.items():
        with pytest.raises(ConfigError, match=part):
            call()
    model.add_hook("blocks.0.hook_attn_out", lambda x, hook: x)
    with pytest.raises(ConfigError, match="hook_attn_out"):
        certify(model, TASK)


@pytest.mark.parametrize("bos", [False, True])
def test_automata_hold_what_their_rules_say(bos):
    first = 4 if bos else None
    for length in (3, 4, 5):
        for tokens in product(range(5), repeat=length):
            content = tokens[1:] if bos else tokens
            allowed = 4 not in content and (not bos or tokens[0] == 4)
            assert induction(range(4), 2, 1, first).holds(tokens) == (allowed and is_induction(content, 2, 1))
            in_turn = all({before, after} == {1, 2} for before, after in pairwise(content))
            alternating = len(content) >= 3 and content[-1] == 2 and in_turn
            assert alternation(range(4), 2, 1, first).holds(tokens) == (allowed and alternating)


@pytest.mark.parametrize(
    "task",
    [
        InductionTask(vocab_size=12, length=10, min_token=2),
        InductionTask(vocab_size=12, length=10, min_token=2, bos=True),
        InductionTask(vocab_size=6, length=5, min_token=0, period=2),
        MQARTask(vocab_size=12, length=14, pairs=3, fill="blank", power_a=1.0),
        MQARTask(vocab_size=12, length=14, pairs=3, fill="random", power_a=1.0),
    ],
    ids=str,
)
def test_every_question_that_a_task_draws_is_in_its_set(task):
    batch = task.batch(64, np.random.default_rng(0))
    questions, of_question = sequences_of(task)
    for tokens, answers in zip(batch.inputs, batch.answers, strict=True):
        for position in np.flatnonzero(answers != IGNORE):
            question = int(tokens[position]), int(answers[position])
            assert question in questions
            assert of_question(*question).holds(tokens[: position + 1])


def test_recall_needs_the_key_with_this_value():
    task = MQARTask(vocab_size=8, length=8, pairs=2, fill="blank")
    of_pairs = recall(task, 2, 5)
    assert of_pairs.holds([2, 5, 3, 4, 2])
    assert of_pairs.holds([3, 4, 2, 5, 3, 0, 2])
    for other in (
        [2, 4, 3, 5, 2],
        [3, 5, 1, 4, 2],
        [2, 5, 3, 4, 0],
        [2, 5, 3, 4, 0, 2],
        [2, 5, 3, 4, 2, 0, 2],
        [2, 5, 2],
    ):
        assert not of_pairs.holds(other), other


def test_a_certificate_is_checked_by_code_of_its_own(tmp_path):
    path, model = tmp_path / "proof.safetensors", hand_set(slope=0.1)
    certificate = certify(model, TASK, range(3, 9))
    certificate.save(path)
    assert check(path, model) == len(certificate.table) == 72
    stored = Certificate.open(path)
    assert stored.table.equals(certificate.table)
    assert (stored.verdict, stored.rounding, stored.task) == (certificate.verdict, certificate.rounding, TASK)
    with pytest.raises(ConfigError, match="another model"):
        check(path, hand_set(slope=0.2))
    certify(with_mlp := small(0, mlp="swiglu"), TASK, [3]).save(tmp_path / "mlp")
    with pytest.raises(ConfigError, match="no bound of an MLP"):
        check(tmp_path / "mlp", with_mlp)
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(ConfigError, match=r"proof\.safetensors"):
        check(path, model)


@pytest.mark.parametrize("fields", ACCEPTED[::3], ids=str)
def test_the_check_agrees_on_every_row_and_finds_a_false_one(fields, tmp_path):
    model = small(3, **fields)
    certificate = certify(model, TASK, range(3, 6))
    certificate.save(tmp_path / "proof")
    assert check(tmp_path / "proof", model) == (certificate.table["verdict"] != "unknown").sum()
    for verdict, claimed in (("refuted", "proved"), ("proved", "refuted")):
        for number in certificate.table.index[certificate.table["verdict"] == verdict][:3]:
            certificate.table.loc[number, "verdict"] = claimed
            certificate.save(tmp_path / "false")
            with pytest.raises(ConfigError, match="does not hold"):
                check(tmp_path / "false", model)
            certificate.table.loc[number, "verdict"] = verdict


def test_an_interrupted_proof_goes_on(tmp_path, monkeypatch):
    model, path, whole = small(4), tmp_path / "proof", certify(small(4), TASK, [5])

    def judged(self, group, pool):
        if group[0].query == 2:
            raise KeyboardInterrupt
        return rows(self, group, pool)

    rows = judging.rows
    with monkeypatch.context() as patch:
        patch.setattr(judging, "rows", judged)
        with pytest.raises(KeyboardInterrupt):
            certify(model, TASK, [5], path=path)
    assert set(Certificate.open(path).table["query"]) == {0, 1}
    monkeypatch.setattr(judging, "rows", lambda *args: 1 / 0 if args[1][0].query < 2 else rows(*args))
    assert certify(model, TASK, [5], path=path).table.equals(whole.table)
    with pytest.raises(ConfigError, match="another model, task or lengths"):
        certify(small(5), TASK, [5], path=path)


@pytest.mark.parametrize("fields", ACCEPTED[::4], ids=str)
def test_rounding_bounds_the_error_of_float32(fields):
    model = small(5, **fields).float()
    certificate = certify(model, TASK, [6])
    for row in certificate.table.itertuples():
        off = row.margin - smallest_margin(model, [row.worst], row.answer)
        assert abs(off) < certificate.rounding["float32"]
