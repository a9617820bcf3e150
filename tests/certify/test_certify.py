"""Proofs against brute force over every sequence, for every option that they accept; planted
faults; refusals.
"""

import dataclasses
from itertools import pairwise, product

import numpy as np
import pytest
import torch

from ihlab import InductionTask, ModelConfig, Transformer
from ihlab.certify import Certificate, certify, check
from ihlab.certify.sequences import alternation, induction, recall, sequences_of
from ihlab.hf import to_hf
from ihlab.theory.constructions import checker, kv_shift_induction_head
from tasks import IGNORE, ConfigError, MQARTask, NGramTask

TASK = InductionTask(vocab_size=4, length=4, min_token=0)
SMALL = {
    "n_layers": 1,
    "d_model": 8,
    "n_heads": 1,
    "mlp": "none",
    "attention": "kv_shift",
    "positional": "none",
}


def small(seed, d_vocab=4, n_ctx=8, **fields):
    """A random model with random biases and gains, in float64."""
    model = Transformer(
        ModelConfig(**{**SMALL, "d_vocab": d_vocab, "n_ctx": n_ctx, **fields}), seed=seed
    ).double()
    generator = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        if name.endswith((".bias", "norm.w", "ln1.w", "ln_final.w")):
            weight.data = 1 + 0.5 * torch.randn(
                weight.shape, generator=generator, dtype=torch.float64
            )
    return model.eval()


def is_induction(tokens, query, answer):
    """The rule in words: the query is last and has occurred before, and every earlier one is
    followed by the answer.
    """
    *before, last = tokens
    followers = [after for token, after in zip(before, tokens[1:], strict=True) if token == query]
    return last == query and len(followers) > 0 and set(followers) == {answer}


@torch.no_grad()
def smallest_margin(model, sequences, answer):
    """The smallest margin of all sequences, before the final norm's scale, which is 1 / hook_scale."""
    scales = []
    hooks = (
        [("ln_final.hook_scale", lambda scale, hook: scales.append(scale[:, -1]))]
        if model.cfg.norm == "rms"
        else []
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
    {"attention": "kv_clip"},
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
    exact = (
        2e-6 if model.cfg.positional == "rope" else 1e-11
    )  # the model's own rotary tables are float32
    sequences = {length: list(product(range(4), repeat=length)) for length in lengths}
    for row in certificate.table.itertuples():
        every = [
            tokens
            for tokens in sequences[row.length]
            if is_induction(tokens, row.query, row.answer)
        ]
        smallest = smallest_margin(model, every, row.answer)
        assert tuple(row.worst) in every
        assert row.margin == pytest.approx(
            smallest_margin(model, [row.worst], row.answer), abs=exact
        )
        assert row.bound <= smallest + exact
        if one_head:
            assert row.margin == pytest.approx(smallest, abs=exact)
            assert row.bound == pytest.approx(smallest, abs=exact)
        assert row.bound <= row.margin
        assert {"proved": smallest > 0, "refuted": smallest < 0, "unknown": not one_head}[
            row.verdict
        ]


CAMPAIGN = [pytest.param(fields, marks=pytest.mark.rare) for fields in ACCEPTED]
SHARP = [
    {"q_proj": 10.0},
    {"q_proj": 100.0},
    {"q_proj": 1000.0},
    {"embed": 1e-6},
    {"embed": 1e3},
    {"embed": 1e6},
]


@torch.no_grad()
@pytest.mark.parametrize("factors", SHARP, ids=str)
@pytest.mark.parametrize("fields", [*ACCEPTED[::6], *CAMPAIGN], ids=str)
def test_sharpened_models_have_no_false_row(fields, factors):
    """A saturated softmax makes masses of e^-1000: they are 0 in float64, and still decide a
    margin.
    """
    model = with_exact_angles(small(7, **{**fields, "d_vocab": 4}))
    given = small(7, **{**fields, "d_vocab": 4})
    for each in (model, given):
        each.layers[0].attn.q_proj.weight *= factors.get("q_proj", 1)
        each.embed.weight *= factors.get("embed", 1)
    for row in certify(given, TASK, [3, 5]).table.itertuples():
        every = [
            t
            for t in product(range(4), repeat=row.length)
            if is_induction(t, row.query, row.answer)
        ]
        smallest, size = smallest_margin(model, every, row.answer), abs(row.margin)
        off = 1e-9 * (1 + size)
        assert row.bound - off <= smallest <= row.margin + off
        assert (
            row.verdict != {True: "refuted", False: "proved"}[smallest > 0] or abs(smallest) < off
        )


def with_exact_angles(model):
    """The same model with rotary tables in float64, as the proof has them. (It would be refused: a
    buffer changed.)
    """
    rotary, cfg = model.layers[0].attn.rotary, model.cfg
    if rotary is not None:
        angles = cfg.rotary_frequencies or cfg.rotary_base ** (
            -np.arange(0, cfg.head_width, 2) / cfg.head_width
        )
        turns = torch.arange(cfg.n_ctx, dtype=torch.float64)[:, None] * torch.tensor(
            np.asarray(angles)
        )
        cos, sin = (cfg.rotary_scale * each[:, None] for each in (turns.cos(), turns.sin()))
        rotary.cos, rotary.signed_sin = (
            torch.cat([cos, cos], dim=-1),
            torch.cat([-sin, sin], dim=-1),
        )
    return model


@pytest.mark.parametrize("fields", ACCEPTED[::7], ids=str)
def test_verdicts_without_margins_are_the_same(fields):
    full, quick = (
        certify(small(2, **fields), TASK, range(2, 7), margins=each).table for each in (True, False)
    )
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


WITH_MLP = [
    {},
    {"positional": "rope"},
    {"positional": "learned"},
    {"n_heads": 2, "attention": "k_shift"},
]


@torch.no_grad()
@pytest.mark.parametrize("written", [0.02, 0.3])
@pytest.mark.parametrize("fields", WITH_MLP, ids=str)
def test_with_an_mlp_the_bound_is_below_every_sequence(fields, written):
    """The MLP writes little, so that something is proved, or much, so that the bound is loose."""
    model, verdicts = small(1, mlp="swiglu", **fields), set()
    model.layers[0].mlp.out_proj.weight *= written
    certificate = certify(model, TASK, range(3, 6))
    for row in certificate.table.itertuples():
        every = [
            t
            for t in product(range(4), repeat=row.length)
            if is_induction(t, row.query, row.answer)
        ]
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
    """One weight of a proved model is changed until a sequence fails. Every verdict is that of all
    sequences.
    """
    generator, planted = np.random.default_rng(faults), 0
    every = [(tokens, answer) for tokens in product(range(4), repeat=5) for answer in range(4)]
    every = [
        (t, answer) for t, answer in every if answer != t[-1] and is_induction(t, t[-1], answer)
    ]
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


HALF = torch.nn.Linear(8, 8, bias=False)


def spectral(module):
    torch.nn.utils.parametrizations.spectral_norm(module)


CHANGED = {
    "forward hook": lambda m: m.register_forward_hook(lambda *a: -a[2]),
    "hook of a part": lambda m: m.unembed.register_forward_hook(lambda *a: -a[2]),
    "pre-hook": lambda m: m.layers[0].register_forward_pre_hook(lambda *a: None),
    "hook point": lambda m: m.add_hook("blocks.0.hook_attn_out", lambda x, hook: x),
    "parametrisation": lambda m: spectral(m.layers[0].attn.q_proj),
    "method": lambda m: setattr(m, "forward", lambda tokens: -type(m).forward(m, tokens)),
    "method of a part": lambda m: setattr(m.unembed, "forward", lambda x: x),
    "module": lambda m: setattr(m.layers[0], "attn", torch.nn.Identity()),
    "module of a subclass": lambda m: setattr(
        m.layers[0].attn, "q_proj", type("Own", (torch.nn.Linear,), {})(8, 8)
    ),
    "new module": lambda m: m.add_module("own", torch.nn.Linear(2, 2)),
    "setting": lambda m: setattr(m.layers[0], "residual", False),
    "eps": lambda m: setattr(m.layers[0].ln1, "eps", 1.0),
    "buffer": lambda m: m.layers[0].attn.rotary.cos.neg_(),
    "weight": lambda m: m.embed.weight.data.fill_(float("nan")),
    "infinite weight": lambda m: m.layers[0].attn.o_proj.weight.data.fill_(float("inf")),
    "shape": lambda m: setattr(m.layers[0].attn, "q_proj", torch.nn.Linear(8, 8)),
}


@torch.no_grad()
@pytest.mark.parametrize("change", CHANGED)
def test_a_model_that_is_more_than_its_weights_is_refused(change):
    model = small(0, positional="rope").float()
    certify(model, TASK, [3])
    CHANGED[change](model)
    with pytest.raises(ConfigError):
        certify(model, TASK, [3])


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
    ({"norm": "layer"}, "LayerNorm"),
    ({"shift_window": 3}, "more than two tokens"),
    ({"attention": "qkv_shift"}, "attention='qkv_shift'"),
    ({"attention": "gated_linear"}, "attention='gated_linear'"),
    ({"stream_shift": "added"}, "stream_shift='added'"),
    ({"canon": "A"}, "canon='A'"),
    ({"smear": "embedding"}, "smear='embedding'"),
    ({"bigram_table": 8}, "bigram_table=8"),
]


@pytest.mark.parametrize(("fields", "part"), REFUSED, ids=str)
def test_what_breaks_the_argument_is_named(fields, part):
    model = Transformer(
        ModelConfig(**{**SMALL, "d_vocab": 4, "n_ctx": 8, "d_model": 16, **fields})
    ).eval()
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
        "period is 3": lambda: certify(
            model, InductionTask(vocab_size=4, length=4, min_token=0, period=3)
        ),
        "lengths is": lambda: certify(model, TASK, []),
        "not a question": lambda: certify(model, TASK, questions=[(0, 0)]),
        "d_vocab is 4": lambda: certify(model, InductionTask(vocab_size=9, length=4, min_token=0)),
        "n_ctx=8": lambda: certify(small(0, positional="learned"), TASK, [9]),
        "dropout": lambda: certify(small(0, dropout=0.1).train(), TASK),
        "own automata": lambda: certify(
            model, None, [3], questions=[induction(range(4), 0, 1)]
        ).save(tmp_path / "x"),
        "leave path out": lambda: certify(
            model, None, [3], questions=[induction(range(4), 0, 1)], path=tmp_path / "x"
        ),
        "sequence of 2 tokens": lambda: certify(model, TASK, [2]),
        "A length is 3.0": lambda: certify(model, TASK, [3.0]),
        "from 2 to 4096": lambda: certify(model, TASK, [5000]),
        "at least one question": lambda: certify(model, TASK, questions=[]),
        "must be a pair": lambda: certify(model, TASK, questions=[3]),
        "different alphabets": lambda: certify(
            model, None, [3], questions=[induction(range(4), 0, 1), induction(range(3), 0, 1)]
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
def test_automata_hold_what_their_rules_say(bos):
    first = 4 if bos else None
    for length in (3, 4, 5):
        for tokens in product(range(5), repeat=length):
            content = tokens[1:] if bos else tokens
            allowed = 4 not in content and (not bos or tokens[0] == 4)
            assert induction(range(4), 2, 1, first).holds(tokens) == (
                allowed and is_induction(content, 2, 1)
            )
            in_turn = all({before, after} == {1, 2} for before, after in pairwise(content))
            alternating = len(content) >= 3 and content[-1] == 2 and in_turn
            assert alternation(range(4), 2, 1, first).holds(tokens) == (allowed and alternating)


@pytest.mark.parametrize(
    "task",
    [
        InductionTask(vocab_size=12, length=10, min_token=2),
        InductionTask(vocab_size=12, length=10, min_token=2, bos=True),
        InductionTask(vocab_size=12, length=10, min_token=2, score_immediate=True),
        InductionTask(vocab_size=6, length=5, min_token=0, period=2),
        MQARTask(vocab_size=12, length=14, pairs=3, fill="blank", power_a=1.0),
        MQARTask(vocab_size=12, length=14, pairs=3, fill="random", power_a=1.0),
    ],
    ids=str,
)
def test_every_question_that_a_task_draws_is_in_its_set(task):
    batch = task.batch(100_000, np.random.default_rng(0))
    questions, of_question = sequences_of(task)
    scored = np.argwhere(batch.answers != IGNORE)
    queries, answers = (each[scored[:, 0], scored[:, 1]] for each in (batch.inputs, batch.answers))
    found = 0
    for question in questions:
        automaton, mine = (
            of_question(*question),
            (queries == question[0]) & (answers == question[1]),
        )
        for position in np.unique(scored[mine, 1]):
            rows = scored[mine & (scored[:, 1] == position), 0]
            assert held(automaton, batch.inputs[rows, : position + 1]).all()
            found += len(rows)
    assert found == len(scored)


def held(automaton, rows):
    """Which rows an automaton holds, all at once; `Sequences.holds` reads one."""
    places = np.searchsorted(automaton.alphabet, rows)
    state, inside = automaton.first[places[:, 0]], np.ones(len(rows), bool)
    for number in range(1, rows.shape[1]):
        inside &= state >= 0
        asks = automaton.asks[state]
        state = automaton.follow[automaton.rule[state, places[:, number - 1]], places[:, number]]
    assert automaton.holds(rows[0]) == (inside & asks & (state >= 0))[0]
    return inside & asks & (state >= 0) & (rows[:, -1] == automaton.query)


@pytest.mark.parametrize(
    "task",
    [
        InductionTask(vocab_size=4, length=4, min_token=0),
        InductionTask(vocab_size=4, length=4, min_token=0, score_immediate=True),
        InductionTask(vocab_size=5, length=4, min_token=0, bos=True),
        InductionTask(vocab_size=4, length=4, min_token=0, period=2),
        MQARTask(vocab_size=6, length=8, pairs=2, fill="random"),
        MQARTask(vocab_size=6, length=8, pairs=2, fill="blank"),
    ],
    ids=str,
)
def test_counts_are_those_of_brute_force(task):
    pairs, of_question = sequences_of(task)
    ids = of_question(*pairs[0]).alphabet
    for pair in pairs[:: max(1, len(pairs) // 3)]:
        automaton = of_question(*pair)
        for length in (2, 3, 5):
            counted = sum(automaton.holds(tokens) for tokens in product(ids, repeat=length))
            assert automaton.counts(5)[length] == counted


def test_the_set_says_what_is_in_it():
    fields = {"vocab_size": 4, "length": 4, "min_token": 0}
    inside = sum(
        is_induction(t, t[-1], a)
        for t in product(range(4), repeat=4)
        for a in range(4)
        if a != t[-1]
    )
    said = certify(small(0), InductionTask(**fields), [4]).set
    assert said == (
        "every sequence of 4 tokens over 4 ids whose last token has come before, always followed by one and the same "
        f"other token ({100 * inside / 4**4:.2g} % of all)"
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
        == "every sequence of 3 tokens over 4 ids that I like"
    )


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


def test_a_certificate_is_checked(tmp_path):
    path, model = tmp_path / "proof.safetensors", hand_set(slope=0.1)
    certificate = certify(model, TASK, range(3, 9), path=path)
    assert check(path, model) == len(certificate.table) == 72
    stored = Certificate.open(path)
    assert stored.table.equals(certificate.table)
    assert (stored.verdict, stored.key, stored.task) == (certificate.verdict, certificate.key, TASK)
    with pytest.raises(ConfigError, match="another model"):
        check(path, hand_set(slope=0.2))
    certify(with_mlp := small(0, mlp="swiglu"), TASK, [3]).save(tmp_path / "mlp")
    with pytest.raises(ConfigError, match="no bound of an MLP"):
        check(tmp_path / "mlp", with_mlp)
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(ConfigError, match=r"proof\.safetensors"):
        check(path, model)


def test_a_file_is_replaced_only_by_the_same_call(tmp_path):
    path, model = tmp_path / "proof.safetensors", hand_set()
    first = certify(model, TASK, [3], path=path)
    assert certify(model, TASK, [3], path=path).key == first.key
    others = {
        "lengths differs": lambda: certify(model, TASK, [3, 4], path=path),
        "questions differs": lambda: certify(model, TASK, [3], questions=[(0, 1)], path=path),
        "margins differs": lambda: certify(model, TASK, [3], margins=False, path=path),
        "model differs": lambda: certify(hand_set(slope=0.1), TASK, [3], path=path),
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
    "a row twice": lambda c: dataclasses.replace(c, table=c.table.iloc[[0, *range(len(c.table))]]),
    "one row for another": lambda c: dataclasses.replace(
        c, table=c.table.iloc[[0, *range(len(c.table) - 1)]]
    ),
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
    "margins minus 1": lambda c: forged(c, margin=c.table["margin"] - 1),
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
