"""The calibration of devinterp: verdicts on made-up tables; where devinterp is installed, a Gaussian by hand."""

import numpy as np
import pandas as pd
import pytest
import torch

from ihlab import ModelConfig, Transformer
from ihlab.claims.claim import judged
from ihlab.studies import llc as study
from ihlab.studies.llc import CENTRE, GROUPS, LLC, SETTINGS, estimates
from ihlab.theory.landscape.coefficients import MINIMA, REGULAR
from tasks.config import ConfigError


def table(miss=1.0, of_aim=0.95):
    """A laptop table in which every estimate is `miss` times its aim, which is `of_aim` times the coefficient."""
    rng, rows = np.random.default_rng(0), []
    for point, minimum in MINIMA.items():
        aim = of_aim * minimum.coefficient
        for setting in SETTINGS:
            for group in range(GROUPS):
                estimate = miss * aim * (1 + 0.01 * rng.normal())
                rows.append({"group": group, "estimate": estimate, "point": point, "aim": aim} | setting)
                rows[-1] |= {"coefficient": minimum.coefficient, "returned": estimate}
    return pd.DataFrame(rows)


def verdicts(data):
    return [claim.verdict for claim in judged(LLC().claims(data, "laptop"))]


def test_verdicts_can_come_out_either_way():
    assert verdicts(table()) == ["holds"] * 12
    assert verdicts(table(miss=0.5)) == ["fails"] * 10 + ["holds", "fails"]
    assert verdicts(table(of_aim=0.5)) == ["holds"] * 5 + ["fails"] * 5 + ["holds", "fails"]


def test_the_order_counts_pairs():
    data = table()
    data["estimate"] = data["estimate"].where(data["point"] != REGULAR, 0.01)
    order = LLC().claims(data, "laptop")[-2]
    assert (order.estimate.value, order.verdict) == (0.6, "fails")


def test_one_setting_is_judged_and_six_change_one_number_by_a_factor_of_four():
    changes = [{k: v / CENTRE[k] for k, v in setting.items() if v != CENTRE[k]} for setting in SETTINGS]
    assert changes[0] == {}
    assert sorted((k, v) for change in changes[1:] for k, v in change.items()) == sorted(
        (name, by) for name in CENTRE for by in (0.25, 4.0)
    )


def test_the_picture_and_the_summary_follow_from_the_table():
    data = table()
    [axes] = LLC().draw(data, "laptop").axes
    assert [label.get_text() for label in axes.get_xticklabels()] == list(MINIMA)
    assert "regular 1.9" in LLC().summary(data, "laptop")


def test_without_devinterp_a_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setattr(study, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="devinterp is not installed: pip install"):
        LLC().gather([], "smoke")


@pytest.mark.slow
def test_devinterp_finds_the_gaussian_mean_at_the_regular_minimum():
    """Euler steps widen each direction of curvature c: E[n K] = sum of 1/2 n c / (n c + g) / (1 - lr (n c + g) / 4)."""
    pytest.importorskip("devinterp")
    minimum, (step, localization, sharpness) = MINIMA[REGULAR], (0.4, 1.0, 1e4)
    hessian = torch.autograd.functional.hessian(minimum.excess, torch.tensor(minimum.at, dtype=torch.float64))
    curvature = torch.linalg.eigvalsh(hessian) * sharpness / minimum.stiffness
    total = curvature + localization
    expected = float((curvature / total / (1 - step / sharpness * total / 4)).sum() / 2)
    found = estimates(step, localization, sharpness, steps=900)
    found = found[found["point"] == REGULAR]
    assert found["estimate"].mean() == pytest.approx(expected, rel=0.05)
    assert found["returned"].mean() < found["estimate"].mean()  # its mean includes the burn-in, which starts at K = 0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_devinterp_reads_a_model_of_ours(tmp_path):
    devinterp = pytest.importorskip("devinterp.slt.llc")
    from datasets import Dataset

    model = Transformer(ModelConfig(n_layers=1, d_model=16, n_heads=2, d_vocab=20, n_ctx=12, attention="kv_shift"))
    tokens = torch.randint(0, 20, (8, 12), generator=torch.Generator().manual_seed(0))
    rows = Dataset.from_dict({"input_ids": tokens.tolist()}).with_format("torch")
    found = devinterp.llc(
        model, rows, {}, lr=1e-5, n_beta=10.0, num_chains=1, num_draws=3, batch_size=4, device="cpu",
        num_init_loss_batches=2, output_path=tmp_path / "samples.zarr",
    )  # fmt: skip
    with torch.no_grad():
        assert float(found["init_loss"]) == pytest.approx(float(model(tokens, return_type="loss")), rel=1e-4)
    assert np.isfinite(found["llc_mean"])
