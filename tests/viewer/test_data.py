"""What the page is given: patterns within the quantisation error, the stripe by brute force, the
promised size.
"""

import base64
import gzip
import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ihlab import ModelConfig, Run, Transformer, train
from ihlab.measure.batches import EVAL_SEED, draw
from ihlab.theory import landscape
from ihlab.viewer import view
from ihlab.viewer.data import induction_stripe, view_data
from ihlab.viewer.packing import quantised, what_fits
from tasks import ConfigError, IGSMTask, TextTask

ROW = [3, 4, 5, 3, 4, 4, 7, 3, 5, 3, 4, 5]


def unpacked(text, dtype):
    return np.frombuffer(gzip.decompress(base64.b64decode(text)), dtype)


def in_page(html):
    """The data that a page holds."""
    return json.loads(html.partition('id="data">')[2].partition("</script>")[0])


def decoded(texts, n, causal=True):
    """Panels [count, n, n] and the error that `quantised` allows each row, read by its formula,
    entry by entry.
    """
    size = n * (n + 1) // 2 if causal else n * n
    values, errors = [], []
    for text in texts:
        content = unpacked(text, np.uint8)
        count = len(content) // (8 * n + size)
        low, high = content[: 8 * n * count].view("<f4").reshape(2, count, n).astype(float)
        levels = content[8 * n * count :].reshape(count, size)
        for panel in range(count):
            stored, value = iter(levels[panel]), np.zeros((n, n))
            for q in range(n):
                for k in range(q + 1 if causal else n):
                    span = high[panel, q] - low[panel, q]
                    value[q, k] = low[panel, q] + span * next(stored) / 255
            values.append(value)
        errors.append((high - low)[:, :, None] / 510 + 1e-6)
    return np.stack(values), np.concatenate(errors)


def cached(model, hook, **hooks):
    with model.hooks(fwd_hooks=list(hooks.items())):
        _, cache = model.run_with_cache(torch.tensor([ROW]))
    return np.stack([cache[hook, layer][0].detach().numpy() for layer in range(model.cfg.n_layers)])


def test_every_pattern_is_the_models_within_the_quantisation_error(run):
    values, error = decoded(view_data(run, ROW)["rows"][0]["panels"]["pattern"], len(ROW))
    true = np.concatenate([cached(run.model(step), "pattern") for step in run.checkpoints])
    off = np.abs(values - true.reshape(values.shape))
    assert (off <= error).all()
    assert off.max() > 1e-5, "it was not quantised"


def test_key_routes_are_the_scores_with_the_other_route_cut(run):
    panels = view_data(run, ROW)["rows"][0]["panels"]
    for route, cut in (("key1", 1), ("key2", 0)):
        values, error = decoded(panels[route], len(ROW))

        def without(alpha, hook, cut=cut):
            alpha[:, cut] = 0
            return alpha

        # Only the first layer: cutting a route changes what later layers read.
        hook = {"blocks.0.attn.hook_alpha": without}
        for step, value, allowed in zip(
            run.checkpoints, values.reshape(3, 8, 12, 12), error.reshape(3, 8, 12, 1), strict=True
        ):
            true = cached(run.model(step), "attn_scores", **hook)[0]
            assert (np.abs(np.tril(value[:4] - true)) <= allowed[:4]).all()


@given(st.integers(1, 9), st.integers(0, 2**32 - 1))
def test_quantised_rows_keep_their_ends_and_stay_within_half_a_level(n, seed):
    rng = np.random.default_rng(seed)
    panels = (rng.normal(size=(2, n, n)) * 10.0 ** rng.integers(-3, 4)).astype(np.float32)
    values, _ = decoded([quantised(panels)], n)
    for panel, value in zip(panels, values, strict=True):
        for q in range(n):
            row, back = panel[q, : q + 1].astype(float), value[q, : q + 1]
            span = row.max() - row.min()
            assert np.abs(row - back).max() <= span / 510 + 1e-6 * np.abs(row).max()
            assert back[row.argmax()] == row.max()
            assert back[row.argmin()] == row.min()


@given(st.lists(st.integers(0, 3), min_size=1, max_size=10), st.booleans())
def test_stripe_is_every_place_after_an_earlier_copy(row, strict):
    expected = []
    for query, token in enumerate(row):
        for key in range(1, query + 1):
            if row[key - 1] == token and not (strict and key == query):
                expected.append([query, key])
    assert induction_stripe(np.array(row), strict) == expected


def test_weights_metrics_and_path_are_the_runs(run):
    data = view_data(run, ROW)
    for i, step in enumerate(run.checkpoints):
        attns = [block.attn for block in run.model(step).layers]
        assert data["alpha"][i] == [attn.alpha.tolist() for attn in attns]
        assert data["beta"][i] == [attn.beta.tolist() for attn in attns]
        assert data["path"]["alpha1"][1][0][i] == attns[1].alpha[0, 0].item()
        assert data["path"]["beta1"][0][1][i] == attns[0].beta[1, 0].item()
    assert data["steps"] == [0, 10, 20]
    assert data["metrics"] == {
        "loss": [3.0, 2.9, 2.8],
        "accuracy": [0.0, 0.1, 0.2],
        "first": [0.0, 0.05, 0.1],
    }
    assert (data["n_layers"], data["n_heads"], data["group"]) == (2, 4, 2)


def test_field_is_theorem_3_4_around_all_paths(make_run):
    run = make_run()
    metrics = run.metrics
    metrics.loc[1, ["alpha1_0.0", "beta1_1.1"]] = 3.5, -2.0
    run.write_metrics(metrics.to_dict("records"))
    field = view_data(run, ROW)["field"]
    assert field["low"] < -2.0
    assert field["high"] > 3.5
    axis = np.linspace(field["low"], field["high"], len(field["loss"]))
    for row, column in ((0, 0), (3, 50), (40, 7), (60, 60)):
        alpha1, beta1 = axis[column], axis[row]
        true = landscape.loss(alpha1, 1 - alpha1, beta1, 1 - beta1, n_tokens=11)
        assert field["loss"][row][column] == pytest.approx(true, abs=1e-4)


def test_a_vanilla_run_has_patterns_only(make_run):
    data = view_data(make_run(attention="vanilla"), ROW)
    assert list(data["rows"][0]["panels"]) == ["pattern"]
    assert [data[name] for name in ("alpha", "beta", "path", "field")] == [None] * 4


PADDED = IGSMTask(ops="<=2", difficulty="toy", format="compact", length=90)


@pytest.mark.parametrize(
    "task",
    [
        pytest.param(PADDED, marks=pytest.mark.slow),  # its kernel compiles for half a minute
        TextTask(corpus="sample", vocab_size=300, length=12),
    ],
    ids=lambda task: task.kind,
)
def test_tokens_are_the_tasks_words_and_the_theorem_is_left_to_induction(small, tmp_path, task):
    model = small.model.replace(d_vocab=task.vocab_size, n_ctx=task.length)
    run = train(small.replace(task=task, model=model, steps=4), tmp_path)
    data = view_data(run)
    shown = data["rows"][0]["tokens"]
    row = draw(task, EVAL_SEED, "eval", 0, 1).inputs[0]
    assert shown == task.words(row)[: len(shown)]
    assert "<pad>" not in shown
    if task.kind == "igsm":
        assert shown[-1] == "<eos>"
        assert len(shown) < task.length
    assert data["field"]["loss"] is None
    assert view_data(run, [1, 2, 3])["rows"][0]["tokens"] == task.words(np.array([1, 2, 3]))


def test_runs_that_cannot_be_shown_are_named(run, tmp_path):
    with pytest.raises(ConfigError, match="has no checkpoints: there is nothing to view"):
        view_data(Run.create(run.config, tmp_path))
    with pytest.raises(ConfigError, match="checkpoints is 1, but must be at least 2"):
        view_data(run, checkpoints=1)


def test_of_a_model_that_mixes_tokens_elsewhere_too_patterns_alone_are_shown(small, tmp_path):
    """Alpha and beta do not say all that its keys and values hold."""
    model = small.model.replace(attention="kv_shift", canon="A")
    data = view_data(train(small.replace(model=model, steps=4, eval_every=2), tmp_path), ROW)
    assert set(data["rows"][0]["panels"]) == {"pattern"}
    assert data["alpha"] is data["beta"] is None


BASE, ROUTES = [[3, 3, 3], [4, 4, 4]], [[1, 1, 1], [1, 1, 1]]


@pytest.mark.parametrize(
    ("most", "kept"),
    [
        (27, (True, 2, [0, 1, 2])),
        (26, (False, 2, [0, 1, 2])),
        (20, (False, 1, [0, 1, 2])),
        (8, (False, 1, [0, 2])),
        (5, (False, 1, [2])),
    ],
)
def test_what_fits_is_left_out_in_the_order_that_is_promised(most, kept):
    assert what_fits(BASE, ROUTES, most) == kept


def test_a_page_says_what_it_has_no_room_for(make_run):
    run = make_run(steps=range(6), vocab=60, length=40)
    assert view_data(run, rows=3)["left_out"] == ""
    page = view(run, rows=3, megabytes=0.2).html
    assert len(page) <= 200_000
    data = in_page(page)
    [row], n_steps = data["rows"], len(data["steps"])
    said = f"key routes, 2 of 3 rows, {6 - n_steps} of 6 checkpoints."
    assert data["left_out"] == f"Left out, for the size of the page: {said}"
    assert data["metrics"]["loss"] == [3 - step / 100 for step in data["steps"]]
    of_steps = [data["heads"], data["alpha"], data["beta"], row["panels"]["pattern"]]
    assert [len(values) for values in of_steps] == [n_steps] * 4
    with pytest.raises(ConfigError, match=r"one sequence need .* more with `megabytes`"):
        view_data(run, megabytes=0.12)


def test_a_page_of_many_rows_is_filled_to_its_limit_and_no_further():
    """Tokens and targets of a row count, and only those of rows that are shown."""
    cfg = {"n_layers": 1, "d_model": 8, "n_heads": 1, "d_vocab": 9, "n_ctx": 120}
    rows = np.random.default_rng(0).integers(0, 9, (60, 120)).tolist()
    page = view(Transformer(ModelConfig(**cfg)), rows, megabytes=0.64).html
    assert 0.7 * 640_000 < len(page) <= 640_000
