"""Head scores on hand-written patterns, hand-built models, and models that know nothing."""

import pandas as pd
import pytest
import torch

from ihlab import RunConfig, train
from ihlab.interp import head_scores, locate_induction_heads
from ihlab.interp.circuits import eigenvalue_copying
from ihlab.interp.head_model import OurModel
from ihlab.interp.sources import attention_patterns
from ihlab.measure.batches import EVAL_SEED
from ihlab.measure.heads import pattern_scores
from ihlab.measure.metrics import Evaluator
from ihlab.measure.probe import repeated_rows, task_tokens
from ihlab.model.config import ModelConfig
from ihlab.model.transformer import Transformer
from ihlab.theory.constructions import shifted_head
from tasks import ConfigError, InductionTask
from tests.interp.conftest import regauged

KINDS = ("induction", "previous", "duplicate", "first", "uniform", "self")


def places(kind, row, q):
    """The keys that a hand-written head of this kind attends to, all alike."""
    earlier = [k for k in range(q) if row[k] == row[q]]
    return {
        "induction": [k + 1 for k in earlier] or [0],
        "previous": [max(q - 1, 0)],
        "duplicate": earlier or [q],
        "first": [0],
        "uniform": list(range(q + 1)),
        "self": [q],
    }[kind]


def hand_written(tokens, kinds=KINDS):
    """Patterns [1, batch, kind, query, key]."""
    size = tokens.shape[1]
    patterns = torch.zeros(1, len(tokens), len(kinds), size, size)
    for i, row in enumerate(tokens.tolist()):
        for head, kind in enumerate(kinds):
            for q in range(size):
                keys = places(kind, row, q)
                patterns[0, i, head, q, keys] = 1 / len(keys)
    return patterns


# Looking


@pytest.mark.parametrize("repeats", [2, 4])
def test_hand_written_heads_score_one_for_what_they_do(repeats):
    tokens = repeated_rows(range(50), rows=3, period=6, repeats=repeats)
    scores = pattern_scores(hand_written(tokens), tokens)
    names = ("prefix_matching", "previous_token", "duplicate_token", "first_position")
    for head, name in enumerate(names):
        assert scores[name][0, head].item() == pytest.approx(1)
    for head, name in enumerate(names[:3]):
        others = [other for other in range(len(KINDS)) if other != head]
        assert scores[name][0, others].max() < 0.2  # position 0 holds a sixth of the tokens to copy


def test_places_that_looking_one_back_would_find_too_do_not_count():
    """Of 1 2 1 2 and 5 5 5 nothing tells induction from looking back; of 7 8 9 7 the last does."""
    tokens = torch.tensor([[1, 2, 1, 2, 5, 5, 5, 7, 8, 9, 7]])
    heads = pattern_scores(hand_written(tokens), tokens)["prefix_matching"][0].tolist()
    assert heads == pytest.approx([1, 0, 0, 0, 1 / 11, 0])
    with pytest.raises(ConfigError, match="No token occurs again"):
        pattern_scores(hand_written(tokens[:, :7]), tokens[:, :7])


# Whole models


def test_the_head_of_theorem_3_3_has_a_perfect_stripe(theorem_3_3, batch):
    table = head_scores(theorem_3_3, batch)
    assert table["pattern"].tolist() == ["raw", "effective"]
    for _, line in table.iterrows():
        assert line["induction_stripe"] == pytest.approx(1, abs=1e-6)
        assert line["prefix_matching"] == pytest.approx(1, abs=1e-6)
        assert line["eigenvalue_copying"] == pytest.approx(1)
        assert max(line["duplicate_token"], line["same_distance_control"]) < 1e-6
        assert line["previous_token"] < 0.1  # new tokens find nothing, and attend everywhere
        assert line["accuracy_fall"] > 0.9
        assert line["loss_rise"] > 10 * line["loss_rise_error"]


def test_a_head_that_attends_to_itself_and_reads_the_token_before(self_reader):
    raw, effective = head_scores(self_reader)["previous_token"]
    assert (raw, effective) == pytest.approx((0, 1), abs=1e-6)
    assert not locate_induction_heads(self_reader)["induction"].any()


def test_scores_do_not_depend_on_the_gauge(make_model, batch):
    model = make_model()
    pd.testing.assert_frame_equal(head_scores(model, batch), head_scores(regauged(model), batch))


def test_prefix_matching_is_the_score_that_training_records():
    """With the ids of the task and the seed that training probes with."""
    cfg = ModelConfig(n_layers=1, d_model=8, n_heads=2, d_vocab=48, n_ctx=12)
    run = RunConfig(task=InductionTask(vocab_size=48, length=12), model=cfg, eval_rows=8)
    model = Transformer(cfg)
    recorded = Evaluator(run, torch.device("cpu"))(model)
    ids = task_tokens(run.task).content
    table = head_scores(model, ids=ids, seed=EVAL_SEED)
    scores = table[table["pattern"] == "raw"]["prefix_matching"].tolist()
    assert scores == pytest.approx([recorded["prefix_0.0"], recorded["prefix_0.1"]])


def test_a_trained_model_is_probed_with_the_ids_of_its_task(tmp_path):
    """Of ids 20 to 47 alone; a model that is not a run's does not know which are its own."""
    task = InductionTask(vocab_size=48, length=12, min_token=20)
    model = ModelConfig(
        n_layers=1, d_model=8, n_heads=2, d_vocab=48, n_ctx=12, attention="kv_shift"
    )
    run = train(RunConfig(task=task, model=model, steps=1, eval_rows=8, batch_size=4), tmp_path)
    for source, ids in ((run.model(), range(20, 48)), (Transformer(model), range(48))):
        probe = OurModel(source).probe_rows(2, 200, None, None, 0)
        assert set(probe.flatten().tolist()) == set(ids)
    pd.testing.assert_frame_equal(head_scores(run), head_scores(run.model(), ids=range(20, 48)))
    tokens = repeated_rows(range(3), 2, 3, 4)
    _, cache = run.model().run_with_cache(tokens)
    torch.testing.assert_close(attention_patterns(run, tokens)[0], cache["pattern", 0])


# Copying


@pytest.fixture(scope="module")
def suppressor():
    return shifted_head(
        torch.eye(40).double(), 24, alpha=(0.0, 1.0), beta=(-1.0, 0.0), sigma=0.05, slope=0.01
    )


def test_a_head_that_writes_nothing_copies_nothing():
    size = {"alpha": (0.0, 1.0), "beta": (0.0, 0.0), "sigma": 0.05}
    assert eigenvalue_copying(shifted_head(torch.eye(40).double(), 24, **size)).item() == 0


@torch.no_grad()
def test_eigenvalue_copying_is_that_of_the_whole_matrix(make_model):
    model = make_model()
    found = eigenvalue_copying(model)
    for layer, block in enumerate(model.layers):
        for head in range(4):
            norm, final = torch.diag(block.ln1.w), torch.diag(model.ln_final.w)
            W_OV = block.attn.W_V[head // 2] @ block.attn.W_O[head]
            beta = max(block.attn.beta[head // 2].tolist(), key=abs)
            whole = beta * model.W_E @ norm @ W_OV @ final @ model.W_U
            eigenvalues = torch.linalg.eigvals(whole)
            expected = eigenvalues.real.sum() / eigenvalues.abs().sum()
            assert found[layer, head].item() == pytest.approx(expected.item(), abs=1e-6)


# Locating


@pytest.mark.parametrize("repeats", [2, 4])
def test_only_the_induction_head_among_hand_written_ones_is_called_one(repeats):
    tokens = repeated_rows(range(50), rows=3, period=6, repeats=repeats)
    for patterns, given in (
        (hand_written(tokens), tokens),
        (hand_written(tokens)[:, 0], tokens[0]),
    ):
        table = locate_induction_heads(patterns, given)
        assert table["induction"].tolist() == [True] + [False] * 5
        assert KINDS[table["head"][0]] == "induction"
        assert table["prefix_matching"][0] == pytest.approx(1)


@pytest.mark.parametrize("d_vocab", [3, 40, 5000])
def test_no_head_of_an_untrained_model_is_called_one(d_vocab):
    sizes = {"n_layers": 2, "d_model": 32, "n_heads": 4, "d_vocab": d_vocab, "n_ctx": 64}
    cfg = ModelConfig(**sizes, attention="kv_shift")
    for seed in range(5):
        table = locate_induction_heads(Transformer(cfg, seed=seed), seed=seed)
        assert not table["induction"].any()


def test_a_head_that_suppresses_what_it_finds_is_not_what_the_task_needs(suppressor, batch):
    """It looks like an induction head, whatever the sign of beta; the task is better off without
    it.
    """
    assert locate_induction_heads(suppressor)["induction"].item()
    assert not locate_induction_heads(suppressor, batch=batch)["induction"].item()
    tokens = repeated_rows(range(40), rows=4, period=8, repeats=2)
    _, cache = suppressor.run_with_cache(tokens)
    assert locate_induction_heads(cache, tokens)["induction"].item()
    assert set(head_scores(cache, tokens=tokens)["pattern"]) == {"raw", "effective"}


def test_a_head_that_the_task_does_not_need_is_not_called_one(theorem_3_3, batch):
    """It looks like an induction head, but its output goes nowhere."""
    assert locate_induction_heads(theorem_3_3, batch=batch)["induction"].item()
    model = Transformer(theorem_3_3.cfg).double()
    model.load_state_dict(theorem_3_3.state_dict())
    with torch.no_grad():
        model.layers[0].attn.o_proj.weight.zero_()
    assert locate_induction_heads(model)["induction"].item()
    assert not locate_induction_heads(model, batch=batch)["induction"].item()


def test_a_head_that_goes_by_positions_is_not_called_one():
    """A hook that stays makes it attend as far back as the token after the last repeat is."""
    model = Transformer(ModelConfig(n_layers=1, d_model=8, n_heads=1, d_vocab=40, n_ctx=32))
    pattern = torch.zeros(32, 32)
    for q in range(32):
        pattern[q, max(q - 7, 0)] = 1
    name = "blocks.0.attn.hook_pattern"
    model.add_hook(name, lambda p, hook: pattern.expand_as(p), is_permanent=True)
    line = locate_induction_heads(model).iloc[0]
    assert line["prefix_matching"] == line["same_distance_control"] == 1
    assert not line["induction"]


# Bad input


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"length": 11}, "2 distinct tokens would be repeated 4 times, but at least 3"),
        ({"length": 12.5}, r"length is 12\.5, but must be an integer of at least 1"),
        ({"probes": 1.5}, "probes is 1.5, but must be an integer of at least 1"),
        ({"attention_mask": torch.ones(4, 8)}, "attention_mask is given without a batch"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_arguments_that_cannot_be_used_are_refused(theorem_3_3, arguments, message):
    with pytest.raises(ConfigError, match=message):
        head_scores(theorem_3_3, **arguments)


def test_one_row_cannot_say_how_sure_a_rise_of_the_loss_is(theorem_3_3, batch):
    with pytest.raises(ConfigError, match="The batch needs at least 2 sequences, but has 1"):
        locate_induction_heads(theorem_3_3, batch=batch.rows(0, 1))
