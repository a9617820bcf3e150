"""Run folders made without training, with a different model at every step; and a browser that opens
their pages.
"""

import numpy as np
import pytest

from ihlab import ModelConfig, RunConfig
from ihlab.model.transformer import Transformer
from ihlab.training import checkpoint
from ihlab.training.run import Run
from ihlab.viewer import write_view
from tasks import InductionTask


def stored_run(root, steps=(0, 10, 20), vocab=40, length=12, **model):
    sizes = {"n_layers": 2, "d_model": 16, "n_heads": 4, "n_key_value_heads": 2}
    cfg = ModelConfig(d_vocab=vocab, n_ctx=length, **{"attention": "kv_shift", **sizes, **model})
    task = InductionTask(vocab_size=vocab, length=length)
    run = Run.create(RunConfig(task=task, model=cfg, name="made", steps=max(*steps, 1)), root)
    rows = []
    for step in steps:
        made = Transformer(cfg, seed=step)
        row = {"step": step, "eval_loss": 3 - step / 100}
        row |= {"accuracy": step / 100, "accuracy_first": step / 200}
        if cfg.attention == "kv_shift":
            made.layers[0].attn.beta.data[0, 1] *= -1  # a head that subtracts what it reads
            for layer, g in np.ndindex(cfg.n_layers, cfg.kv_heads):
                attn = made.layers[layer].attn
                row[f"alpha1_{layer}.{g}"] = attn.alpha[g, 0].item()
                row[f"beta1_{layer}.{g}"] = attn.beta[g, 0].item()
        checkpoint.save(run.checkpoint_path(step), checkpoint.model_state(made))
        rows.append(row)
    run.write_metrics(rows)
    return run


@pytest.fixture(scope="session")
def make_run(tmp_path_factory):
    """A function that makes runs of `stored_run`, one folder per run."""

    def make(**changes):
        return stored_run(tmp_path_factory.mktemp("runs"), **changes)

    return make


@pytest.fixture(scope="session")
def run(make_run):
    """Two layers of four heads on two key/value heads, 12 tokens, three checkpoints."""
    return make_run()


@pytest.fixture
def show(browser, tmp_path):
    """Opens the page of a source; at the end it must have logged no error and requested nothing but
    itself.
    """
    opened, complaints, requests = [], [], []

    def open_page(
        source, words=None, tokens=(3, 4, 5, 3, 4, 4, 7, 3, 5, 3, 4, 5), fragment="", **context
    ):
        path = write_view(source, tmp_path / "view.html", tokens, words)
        page = browser.new_page(**{"viewport": {"width": 1280, "height": 1000}, **context})
        page.set_default_timeout(60_000)
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(path.as_uri() + fragment)
        page.wait_for_selector("body[data-ready]")
        opened.append(page)
        return page

    yield open_page
    for page in opened:
        page.close()
    assert complaints == []
    assert len(requests) == len(opened)
    assert all(url.startswith("file:") for url in requests)
