"""A figure with other numbers: which runs it has, and that the stored table is used and never
touched.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from figures.figure1.study import FIGURE1A
from figures.width.study import WIDTH
from ihlab.recipes.induction import KV1, V2
from ihlab.study.ledger import verdict_table
from notebooks import varied as module
from notebooks.varied import figure, plans
from tasks import ConfigError
from tests.test_notebooks import copy_figures

STORED = Path(__file__).parents[2] / "figures"


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clone") / "figures"
    copy_figures(folder)
    return folder


@pytest.fixture(autouse=True)
def _places(tmp_path, copied, monkeypatch):
    for name, place in (("FIGURES", copied), ("SCRATCH", tmp_path), ("RUNS", tmp_path / "runs")):
        monkeypatch.setattr(module, name, place)


@pytest.mark.parametrize(("seeds", "expected"), [(2, [32, 33]), (20, list(range(32, 52)))])
def test_rates_and_steps_are_factors_and_every_curve_gets_so_many_seeds(seeds, expected):
    changed = plans("figure1a", rate=0.5, steps=0.1, seeds=seeds)
    assert {plan.config.lr for plan in changed} == {
        plan.config.lr / 2 for plan in FIGURE1A.runs("laptop")
    }
    assert {plan.config.steps for plan in changed} == {200}
    for curve in (KV1, V2):
        runs = [plan.config for plan in changed if plan.cell_name == curve]
        assert [config.seed for config in runs] == expected
        assert [config.name.rpartition("-")[2] for config in runs] == [
            str(seed) for seed in expected
        ]
    assert len({plan.config.digest for plan in changed}) == len(changed)


def test_a_model_grows_with_its_task():
    for plan in plans("figure1a", "smoke", vocab_size=96, length=24, d_model=24):
        config = plan.config
        assert (
            (config.task.vocab_size, config.task.length)
            == (config.model.d_vocab, config.model.n_ctx)
            == (96, 24)
        )
        assert config.model.d_model == 24


def test_tuning_keeps_its_seeds_and_the_second_stage_its_rates():
    planned = WIDTH.runs("smoke")
    assert plans("width", "smoke", seeds=1) == planned
    two = [replace(planned[0], config=planned[0].config.replace(seed=seed)) for seed in (0, 1)]
    [second] = module.varied(WIDTH, two, 2, seeds=1, rate=2.0, steps=0.5)
    assert second.config == two[0].config.replace(steps=two[0].config.steps // 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"d_modle": 64}, "'d_modle'; did you mean 'd_model'"),
        ({"n_layers": 3}, "n_layers cannot be set: the curves of figure1a differ in it"),
        ({"name": "figure1c"}, "There is no experiment 'figure1c'"),
        ({"scale": "laptpo"}, "There is no scale 'laptpo'"),
        ({"name": "width", "scale": "gpu"}, "width has no gpu scale, only smoke and laptop"),
        ({"seeds": 0}, "seeds is 0"),
        ({"rate": 0}, "rate is 0"),
    ],
)
def test_what_no_run_can_have_is_refused(tmp_path, arguments, message):
    with pytest.raises(ConfigError, match=message):
        figure(**{"name": "figure1a", **arguments})
    assert list(tmp_path.iterdir()) == []


def test_unchanged_it_is_drawn_from_the_stored_table(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "make", lambda *_: pytest.fail("trained"))
    folder = figure("table5", seeds=None, steps=1.0)
    kept = STORED / "table5"
    assert folder.path == tmp_path / "table5"
    for name in ("claims.json", "data.csv", folder.picture.name):
        assert (folder.path / name).read_bytes() == (kept / name).read_bytes()
    verdicts = folder.verdicts()
    assert verdicts["verdict"].tolist() == [claim["verdict"] for claim in folder.claims()]
    assert verdicts["sentence"].tolist() == [claim["sentence"] for claim in folder.claims()]
    shown = folder._repr_mimebundle_()
    assert shown["text/plain"] == (kept / "summary.md").read_text(encoding="utf-8").strip()
    assert 'src="data:image/svg+xml;base64,' in shown["text/markdown"]
    page = verdict_table(folder, folder).to_html()
    assert page.count("<tr>") == 1 + 2 * len(verdicts)
    assert all(f">{claim['verdict']}</td>" in page for claim in folder.claims())


@pytest.mark.parametrize(
    "changes", [{"seeds": 3}, {"rate": 2.0}, {"d_model": 64}, {"scale": "smoke"}]
)
def test_changed_or_without_a_table_it_is_trained(tmp_path, monkeypatch, changes):
    trained = []
    monkeypatch.setattr(
        module,
        "make",
        lambda chosen, folder, *rest: trained.extend(rest[-1](chosen.runs(folder.scale), 1)),
    )
    figure("figure1a", **changes)
    assert trained == plans("figure1a", **changes)
