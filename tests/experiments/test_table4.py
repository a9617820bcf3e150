"""Table 4: verdicts on tables made by hand, and the whole way at smoke scale."""

import pandas as pd
import pytest
from rich.console import Console

from ihlab.experiments.reproduce import ON_REQUEST, reproduce
from ihlab.experiments.table4 import CURVES, MEASURES, SETTINGS, Table4, base
from ihlab.model.config import ModelConfig
from tasks.igsm.verify import ERRORS


def table(kv, vanilla, spread=0.01, guess=0.3, seen=0.0):
    """Three seeds, `spread` apart, equal in all measures; `seen` more where operations are as few as in training."""
    rows = [
        {"setting": setting.name, "model": model, "seed": seed, "ops": ops, "problems": 100}
        | {
            "measure": measure,
            "share": guess if measure == "guess" else share + spread * (seed - 1) + seen * (ops <= setting.train),
        }
        for setting in SETTINGS["laptop"]
        for model, share in (("KV shifting", kv), ("vanilla", vanilla))
        for seed in range(3)
        for ops in setting.tested
        for measure in (*MEASURES, "guess", *ERRORS, "unnecessary")
    ]
    return pd.DataFrame(rows)


@pytest.mark.parametrize(
    ("kv", "vanilla", "verdicts"),
    [
        (0.9, 0.7, ["holds"] * 5 + ["holds", "holds"] * 2),
        (0.7, 0.9, ["fails"] * 5 + ["holds", "holds"] * 2),
        (0.8, 0.8, ["undecided"] * 5 + ["holds", "holds"] * 2),
        (0.9, 0.1, ["holds"] * 5 + ["fails", "holds"] * 2),  # vanilla comes first
    ],
)
def test_verdicts(kv, vanilla, verdicts):
    claims = Table4().claims(table(kv, vanilla), "laptop")
    assert [claim.verdict for claim in claims] == verdicts * len(SETTINGS["laptop"])
    assert claims[0].estimate.value == pytest.approx(kv - vanilla)


def test_fewer_operations_are_judged_apart():
    claims = Table4().claims(table(0.2, 0.1, seen=0.5), "laptop")
    assert [claim.verdict for claim in claims] == ["holds"] * 5 + ["fails", "fails", "holds", "holds"]
    assert claims[4].estimate.value == pytest.approx(0.1)
    assert claims[-1].estimate.value == pytest.approx(0.7)
    assert "1, 2 and 3 operations" in claims[-1].sentence


def test_tested_in_steps_up_to_the_most():
    assert [list(setting.tested) for setting in SETTINGS["paper"]] == [[3, 6, 9, 12, 15], [3, 6, 9, 12, 15, 18, 21, 24]]


def test_only_the_attention_differs():
    for scale in SETTINGS:
        plans = Table4().runs(scale)
        shapes = {
            (plan.config.but(name="any", seed=0, model=plan.config.model.but(attention="vanilla"))) for plan in plans
        }
        assert len(shapes) == len(SETTINGS[scale])


def test_the_papers_settings():
    assert [setting.name for setting in SETTINGS["paper"]] == ["Tr12-Te15", "Tr21-Te24"]
    for setting in SETTINGS["paper"]:
        run = base("paper", setting)
        assert (run.model.n_ctx, run.lr, run.task.ops) == (1024, 2e-4, f"<={setting.train}")
        assert isinstance(run.model, ModelConfig)


def test_the_whole_way_at_smoke_scale(tmp_path):
    [folder] = reproduce(
        ["table4"], "smoke", runs=tmp_path / "runs", figures=tmp_path / "figures", console=Console(quiet=True)
    )
    data = folder.data()
    assert set(data["model"]) == set(CURVES)
    assert data.groupby("model")["seed"].nunique().eq(2).all()
    assert set(data["measure"]) == {*MEASURES, "guess", *ERRORS, "unnecessary", "errors"}
    assert {path.suffix for path in folder.path.iterdir()} == {".csv", ".json", ".svg", ".png"}
    drawn = Table4().draw(table(0.9, 0.7), "laptop")
    texts = {text.get_text() for axes in drawn.axes for text in axes.texts}
    assert {"91.0", "69.0"} <= {part for text in texts for part in text.replace("(", "–").replace(")", "–").split("–")}


def test_it_is_made_only_if_it_is_named():
    assert "table4" in ON_REQUEST
