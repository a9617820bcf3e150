"""A page of what is no run: models, caches and patterns of any make, with tokens as people write
them.
"""

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from ihlab import ModelConfig, Transformer
from ihlab.interp import head_scores
from ihlab.viewer import view
from ihlab.viewer.data import view_data
from tasks import ConfigError
from tests.viewer.test_data import ROW, decoded, unpacked

WORDS = "the cat sat . the cat".split()


@pytest.fixture(scope="module")
def model():
    cfg = ModelConfig(
        n_layers=2,
        d_model=16,
        n_heads=4,
        n_key_value_heads=2,
        d_vocab=40,
        n_ctx=12,
        attention="kv_shift",
    )
    return Transformer(cfg, seed=0)


@pytest.fixture
def patterns():
    """Random causal patterns [layer, batch, head, query, key] of two rows of the six words."""
    scores = torch.randn(2, 2, 3, 6, 6, generator=torch.Generator().manual_seed(0))
    return scores.masked_fill(torch.ones(6, 6).triu(1).bool(), -torch.inf).softmax(-1)


def shown(data, row=0, causal=True):
    """The pattern of a row [layer, head, query, key] as the page has it, and the error it may have."""
    n = len(data["rows"][row]["tokens"])
    values, error = decoded(data["rows"][row]["panels"]["pattern"], n, causal)
    heads = data["n_layers"], data["n_heads"]
    return values.reshape(*heads, n, n), error.reshape(*heads, n, 1)


def close(data, true, row=0, causal=True):
    values, error = shown(data, row, causal)
    return (np.abs(values - np.asarray(true)) <= error).all()


def test_patterns_are_taken_in_every_form_that_people_hold(patterns):
    one = patterns[:, 0]
    for form in (one, one.numpy(), one[:, None], list(one), tuple(one[:, None].numpy())):
        data = view_data(form, WORDS)
        assert close(data, one)
        assert data["rows"][0]["tokens"] == WORDS
    assert data["metrics"] is data["path"] is data["beta"] is None
    assert close(view_data(one[0], WORDS), one[:1])  # one layer
    assert close(view_data(one.to(torch.bfloat16), WORDS), one.to(torch.bfloat16).float())


def test_patterns_that_see_later_keys_are_kept_whole(patterns):
    full = patterns[:, 0] + patterns[:, 0].transpose(-1, -2)
    data = view_data(full, WORDS)
    assert data["rows"][0]["causal"] is False
    assert close(data, full, causal=False)


def test_words_say_how_ids_read(patterns):
    class Tokenizer:
        def decode(self, ids):
            return f"<{ids[0]}>"

    def named(tokens, words=None):
        return view_data(patterns[:, 0], tokens, words)["rows"][0]["tokens"]

    ids = [7, 8, 9, 5, 7, 8]
    expected = [f"<{i}>" for i in ids]
    for words in (Tokenizer(), "<{}>".format, {i: f"<{i}>" for i in ids}):
        for tokens in (ids, torch.tensor(ids), np.array([ids])):
            assert named(tokens, words) == expected
    for tokens in (ids, "7,8,9,5,7,8"):
        assert named(tokens) == ["7", "8", "9", "5", "7", "8"]


def test_heads_are_tagged_by_what_they_attend_to():
    tokens = [5, 6, 7, 8] * 3
    n = len(tokens)
    heads = torch.zeros(4, n, n)
    heads[:, :, 0] = 1
    for head, back in ((0, 3), (1, 1), (2, 4)):  # a token repeats after four
        for q in range(4 if head != 1 else 1, n):
            heads[head, q] = torch.eye(n)[q - back]
    data = view_data(heads.expand(1, 2, 4, n, n), [tokens, tokens])  # scores are means of both
    [layer] = data["heads"][0]
    assert data["score_names"] == ["induction", "previous token", "duplicate token", "idle"]
    assert data["scored"] == "these rows"
    assert [layer[head]["scores"][head] for head in range(4)] == [1, 1, 1, 1]
    assert all(head in layer[head]["tags"] for head in range(4))
    assert layer[3]["tags"] == [3]
    # Without a token that repeats, only what goes by position can be scored.
    [layer] = view_data(heads, list(range(n)))["heads"][0]
    assert [score is None for score in layer[1]["scores"]] == [True, False, True, False]


GPT2 = Path(__file__).parents[1] / "interp" / "gpt2_induction"


def bridged():
    from transformer_lens.model_bridge import TransformerBridge

    return TransformerBridge.boot_transformers(str(GPT2), device="cpu")


OTHERS = {
    "transformers": lambda: AutoModelForCausalLM.from_pretrained(GPT2, dtype=torch.float32),
    "bridge": bridged,
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", OTHERS)
def test_another_librarys_model_has_the_tags_of_head_scores_and_its_own_predictions(name):
    other = OTHERS[name]()
    data = view_data(
        other, ROW, {}
    )  # a bridge brings a tokenizer; by no words, ids read as themselves
    assert (data["title"], data["scored"]) == (type(other).__name__, "random tokens, repeated")
    table = head_scores(other).query("pattern == 'effective'")
    found = np.array([head["scores"] for layer in data["heads"][-1] for head in layer])
    names = ["prefix_matching", "previous_token", "duplicate_token", "first_position"]
    assert found == pytest.approx(table[names].to_numpy(), abs=5.1e-4)
    with torch.no_grad():
        output = other(torch.tensor([ROW]))
    best = getattr(output, "logits", output)[0].topk(5).indices
    top = unpacked(data["rows"][0]["predictions"]["top"][0], "<u4").reshape(-1, 5)
    assert [[int(data["words"][i]) for i in at] for at in top] == best.tolist()
    assert list(data["rows"][0]["norms"]) == (["value"] if name == "bridge" else [])


def test_predictions_are_the_models(model):
    names = np.array([f"w{i}" for i in range(40)])
    data = view_data(model, [ROW, ROW[:5]], dict(enumerate(names)))
    assert (data["title"], data["steps"], data["metrics"]) == ("Transformer", [0], None)
    words = np.array(data["words"])
    for row, ids in zip(data["rows"], (ROW, ROW[:5]), strict=True):
        chances = model(torch.tensor([ids]))[0].double().softmax(-1).detach()
        best, found = chances.topk(5), row["predictions"]
        top = unpacked(found["top"][0], "<u4").reshape(-1, 5)
        assert (words[top] == names[best.indices]).all()
        chance = unpacked(found["chance"][0], "<u2").reshape(-1, 5) / 65535
        assert np.abs(chance - best.values.numpy()).max() < 1e-5
        assert list(words[found["target"][:-1]]) == list(names[ids[1:]])
        assert found["target"][-1] == -1
        loss = unpacked(found["loss"][0], "<f4")
        true = -chances[range(len(ids) - 1), ids[1:]].log().numpy()
        assert loss[:-1] == pytest.approx(true, rel=1e-5)
        assert np.isnan(loss[-1])
        assert found["asked"] == "next token"


def test_held_out_rows_have_the_tasks_targets(run):
    data = view_data(run, rows=3)
    assert len({tuple(row["tokens"]) for row in data["rows"]}) == 3
    for row in data["rows"]:
        found = row["predictions"]
        assert found["asked"] == "target"
        scored = [at for at, i in enumerate(found["target"]) if i >= 0]
        assert 0 < len(scored) < 12
        for at in scored[:-1]:
            assert data["words"][found["target"][at]] == row["tokens"][at + 1]


def test_norms_are_those_of_the_values_that_weights_multiply(model):
    data = view_data(model, ROW)
    _, cache = model.run_with_cache(torch.tensor([ROW]))
    for name, kind in (("value", "v"), ("raw", "v_raw")):
        found = unpacked(data["rows"][0]["norms"][name][0], "<f4").reshape(2, 4, 12)
        for layer in range(2):
            for head in range(4):
                true = cache[kind, layer, "attn"][0, :, head // 2].norm(dim=-1).detach()
                assert found[layer, head] == pytest.approx(true.numpy(), rel=1e-6)


def test_a_cache_and_its_model_show_the_same(model):
    rows = [ROW, ROW[::-1]]
    _, cache = model.run_with_cache(torch.tensor(rows))
    of_cache, of_model = view_data(cache, rows), view_data(model, rows)
    for name in ("norms", "tokens", "stripe"):
        assert [row[name] for row in of_cache["rows"]] == [row[name] for row in of_model["rows"]]
    for row in range(2):
        assert close(of_cache, shown(of_model, row)[0], row)
    assert of_cache["beta"] == of_model["beta"]
    assert of_cache["rows"][0]["predictions"] is None
    _, alone = model.run_with_cache(torch.tensor([ROW]), remove_batch_dim=True)
    assert close(view_data(alone, ROW), shown(of_model)[0])
    with pytest.raises(ConfigError, match="tokens has 1 sequences, but the cache has 2"):
        view_data(cache, rows[1:])


def test_a_models_words_are_looked_up(model):
    words = {3: "x", 4: "y", 5: "3"}
    data = view_data(model, "x y 3 7", words)
    assert data["rows"][0]["tokens"] == ["x", "y", "3", "7"]  # "3" is a word, 7 is none: an id
    assert data["rows"][0]["panels"] == view_data(model, [3, 4, 5, 7])["rows"][0]["panels"]
    with pytest.raises(
        ConfigError, match="tokens holds 'why', but must hold words of the vocabulary"
    ):
        view_data(model, ["x", "why"], words)


def test_dropout_and_the_models_mode_do_not_matter(model):
    noisy = Transformer(model.cfg.replace(dropout=0.5), seed=0)
    assert noisy.training
    assert view(noisy, ROW).html == view(noisy, ROW).html
    assert close(view_data(noisy, ROW), shown(view_data(model, ROW))[0])
    assert noisy.training


@pytest.mark.parametrize(
    ("source", "tokens", "sentence"),
    [
        ("patterns", WORDS[:5], "patterns.* 6"),
        ("patterns", [WORDS, WORDS[:3]], "The sequences have 3 to 6 tokens, but patterns must be"),
        ("patterns", None, "tokens are not given, but only a run and its model have sequences"),
        ("patterns", [], "The sequence has 0 positions"),
        (
            "patterns",
            [1.5] * 6,
            "tokens holds 1.5, but must hold words of the vocabulary, ids up to",
        ),
        ("wide", WORDS, r"\[2, 3, 6, 5\].* as many queries as keys|6 queries and 5 keys"),
        ("nan", WORDS, "The pattern of head 0.1 is not finite at query 4"),
        ("model", [1, 40], "tokens holds 40, which is outside the vocabulary: ids are 0 to 39"),
        ("model", [1] * 13, "The tokens have 13 positions, but the model's n_ctx is 12"),
        (
            "linear",
            ROW,
            "The source is a Linear, but must be a Run, a Transformer, a TransformerBridge",
        ),
    ],
)
def test_what_cannot_be_shown_is_one_sentence(model, patterns, source, tokens, sentence):
    one = patterns[:, 0]
    nan = one.clone()
    nan[0, 1, 4, 2] = torch.nan
    sources = {"patterns": one, "wide": one[..., :5], "nan": nan, "model": model}
    sources["linear"] = torch.nn.Linear(2, 2)
    with pytest.raises(ConfigError, match=sentence) as error:
        view_data(sources[source], tokens)
    assert "\n" not in str(error.value)


def test_rows_and_words_that_do_not_fit_are_named(run):
    with pytest.raises(ConfigError, match="rows is 0, but must be 1 to 100"):
        view_data(run, rows=0)
    with pytest.raises(ConfigError, match="words is 3, but must be a tokenizer"):
        view_data(run, ROW, 3)


def test_a_shifted_model_with_qk_norm_is_shown_without_key_routes():
    sizes = {"n_layers": 1, "d_model": 16, "n_heads": 2, "d_vocab": 40, "n_ctx": 12}
    model = Transformer(ModelConfig(**sizes, attention="kv_shift", qk_norm=True))
    data = view_data(model, ROW)
    assert data["beta"] is not None
    assert not any(name.startswith("key") for name in data["rows"][0]["panels"])


def test_mixed_values_alone_have_no_norms_of_a_tokens_own(model):
    """A weight of the effective pattern multiplies the raw value, which this cache lacks."""
    kept = lambda name: name.endswith(("pattern", "hook_v"))  # noqa: E731
    _, cache = model.run_with_cache(torch.tensor([ROW]), names_filter=kept)
    assert view_data(cache, ROW)["rows"][0]["norms"] == {}


def test_a_cache_of_a_strict_mask_marks_no_key_that_is_masked():
    cfg = ModelConfig(n_layers=1, d_model=8, n_heads=2, d_vocab=9, n_ctx=4, mask="strict")
    model, row = Transformer(cfg), [5, 5, 7]
    _, cache = model.run_with_cache(torch.tensor([row]))
    stripes = [view_data(source, row)["rows"][0]["stripe"] for source in (model, cache)]
    assert stripes == [[], []]


def test_a_model_whose_logits_are_nan_is_not_shown(model):
    broken = copy.deepcopy(model)
    broken.unembed.weight.data[3] = torch.nan
    with pytest.raises(ConfigError, match="The model's logits hold a NaN"):
        view_data(broken, ROW)
