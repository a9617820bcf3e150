"""The state of recurrent heads, patched: just before the scored token it is all that differs at the
scored position.
"""

import pytest

from ihlab import suite
from ihlab.attribution import exact, problem
from ihlab.model.config import ModelConfig
from ihlab.model.transformer import Transformer
from ihlab.suite.constructed import HAND_SET, Constructed
from ihlab.suite.state import state_effects
from tasks import ConfigError, InductionTask

TASK = InductionTask(vocab_size=16, length=12, min_token=0)
CONFIG = ModelConfig(
    n_layers=1, d_model=16, n_heads=2, d_vocab=16, n_ctx=12, positional="none", init_std=0.5
)


@pytest.mark.parametrize("attention", ["gated_linear", "gated_delta"])
def test_before_the_scored_token_it_is_what_the_head_writes_there(attention):
    """The scored token is the same in both prompts, so a head of one layer differs there by its
    state alone.
    """
    p = problem(Transformer(CONFIG.replace(attention=attention)).eval(), TASK, size=16)
    effects = state_effects(p).set_index(["position", "head"])["effect"]
    right = exact(p, "position").query("position == 'last'")["effect"]
    assert right.abs().min() > 1e-3
    assert effects["before"].to_list() == pytest.approx(right.to_list(), rel=1e-3, abs=1e-5)
    assert (effects["earlier"] - effects["before"]).abs().min() > 1e-5, (
        "later tokens were swapped, too"
    )


def test_attention_has_no_state():
    with pytest.raises(ConfigError, match="attention is 'vanilla', which has no state"):
        state_effects(problem(Transformer(CONFIG).eval(), TASK, size=4))


def test_the_truth_of_a_recurrent_member_has_its_state(monkeypatch):
    model = Transformer(CONFIG.replace(attention="gated_linear", n_layers=2)).eval()
    monkeypatch.setitem(HAND_SET, "hand-set-recurrent", Constructed(lambda: model, TASK, ()))
    facts = suite.truth("hand-set-recurrent")
    assert len(facts["state"]) == 2 * 2 * 3
    assert not {"attention", "scores", "pairs"} & facts.keys()
    assert {*facts} - {"version", "member", "seed", "step", "ihlab", "torch", "hops", "state"} <= {
        *facts["definitions"],
        "definitions",
    }
