"""Training until a model is proved: against a certificate of the trained model, and resumed bit for
bit.
"""

from collections import Counter
from itertools import product

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from ihlab import InductionTask, ModelConfig, Run, RunConfig, train
from ihlab.certify import certify, train_until_proved
from ihlab.certify.sequences import induction
from ihlab.training.config import from_dict, to_dict
from tasks import ConfigError

TASK = InductionTask(vocab_size=8, length=8, min_token=0)
SETTINGS = {"start": 40, "every": 20, "device": "cpu", "report": lambda step, row: None}


def small(name="taught", task=TASK, **fields):
    model = {
        "n_layers": 1,
        "d_model": 8,
        "n_heads": 1,
        "mlp": "none",
        "attention": "kv_shift",
        **fields,
    }
    return RunConfig(
        name=name, task=task, model=ModelConfig(d_vocab=task.vocab_size, n_ctx=12, **model), steps=300, batch_size=24,
        lr=6e-3, warmup=10, schedule="linear", eval_every=20, eval_growth=0, eval_rows=32, checkpoints=3,
    )  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return train_until_proved(small(), [8, 12], root=tmp_path_factory.mktemp("runs"), **SETTINGS)


def test_training_ends_with_the_proof(run):
    lengths = run.metrics["proved_length"]
    assert lengths.iloc[-1] == 12 > lengths.iloc[:-1].max()
    assert run.done["steps"] < 300
    assert certify(run, lengths=range(2, 13)).status == "proved"
    assert Run.open(run.folder).config == run.config == from_dict(to_dict(run.config))
    assert train_until_proved(run.config, root=run.folder.parent, **SETTINGS).folder == run.folder


class StoppedError(Exception):
    """Raised to interrupt training."""


def stop_at(step):
    def callback(row):
        if row["step"] == step:
            raise StoppedError

    return callback


@pytest.mark.parametrize("at", [40, 140])
def test_a_resumed_run_is_bit_for_bit_the_same(run, tmp_path, at):
    config = run.config.replace(checkpoints=16)
    with pytest.raises(StoppedError):
        train_until_proved(config, root=tmp_path, callback=stop_at(at), **SETTINGS)
    again = train_until_proved(config, root=tmp_path, **SETTINGS)
    assert 0 < again.done["resumed_from"] < at
    assert again.metrics.equals(run.metrics)
    for weight, other in zip(run.model().parameters(), again.model().parameters(), strict=True):
        assert torch.equal(weight, other)


def test_lessons_of_another_run_are_refused(run, tmp_path):
    config = run.config.replace(checkpoints=16)
    with pytest.raises(StoppedError):
        train_until_proved(config, root=tmp_path, callback=stop_at(100), **SETTINGS)
    stored = Run(config.folder(tmp_path), config)
    path = stored.lessons_path(80)
    path.write_bytes(stored.checkpoint_path(80).read_bytes())
    with pytest.raises(ConfigError, match="does not hold lessons"):
        train_until_proved(config, root=tmp_path, **SETTINGS)
    path.unlink()
    with pytest.raises(ConfigError, match=r"lessons"):
        train_until_proved(config, root=tmp_path, **SETTINGS)


def test_lessons_of_an_attack_prove_nothing(tmp_path):

    config = small("attacked", n_layers=2, attention="vanilla", d_model=16).replace(steps=60)
    run = train_until_proved(config, rows="attack", root=tmp_path, **SETTINGS)
    assert "proved_length" not in run.metrics
    assert run.metrics["attacked_accuracy"].between(0, 1).all()
    with pytest.raises(ConfigError, match="n_layers=2"):
        train_until_proved(config, root=tmp_path, **SETTINGS)


def test_random_lessons_are_of_the_set_and_end_nothing(tmp_path):
    run = train_until_proved(
        small("random").replace(steps=60), [12], rows="random", root=tmp_path, **SETTINGS
    )
    assert run.done["steps"] == 60
    assert run.lessons_path(60).exists()


@pytest.mark.parametrize(
    ("lengths", "fields", "message"),
    [
        ([16], {}, "n_ctx is 12"),
        ([8], {"rows": "worst"}, "rows"),
    ],
)
def test_wrong_lessons_are_refused(lengths, fields, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        train_until_proved(small(), lengths, root=tmp_path, **{**SETTINGS, **fields})


def test_plain_training_refuses_lessons(run, tmp_path):
    with pytest.raises(ConfigError, match="train_until_proved"):
        train(run.config, tmp_path)


def test_drawn_sequences_are_equally_likely():
    question = induction(range(3), 0, 1, bos=3)
    every = [ids for ids in product(question.alphabet.tolist(), repeat=5) if question.holds(ids)]
    assert len(every) == question.counts(5)[5]
    drawn = question.drawn(5, 20 * len(every), np.random.default_rng(0))
    counts = Counter(map(tuple, drawn.tolist()))
    assert counts.keys() == {*every}
    assert chisquare([counts[ids] for ids in every]).pvalue > 0.001
