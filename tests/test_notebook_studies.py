"""Studies that are notebooks: their verdicts are the stored ones, and their code measures right on
small models.
"""

import json
import math

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from ihlab.theory import landscape
from tests.test_notebooks import ROOT, read, run

pytestmark = pytest.mark.rare


def names_of(stem):
    """The names that a notebook defines when it runs."""
    with mpl.rc_context({"backend": "agg"}), pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT / "notebooks")
        names = run(read(ROOT / "notebooks" / f"{stem}.ipynb"), lambda *values: None)
        plt.close("all")
    return names


@pytest.fixture(scope="module")
def upcycling():
    return names_of("11_upcycling")


@pytest.fixture(scope="module")
def coefficients():
    return names_of("12_learning_coefficients")


@pytest.fixture(scope="module")
def printed():
    return names_of("15_printed_tables")


@pytest.mark.parametrize("name", ["upcycling", "coefficients", "printed"])
def test_claims_are_the_stored_ones(name, request):
    """Sentences, measures, numbers, intervals, p-values, thresholds and verdicts."""
    claims = request.getfixturevalue(name)["claims"]
    stored = {
        "upcycling": "upcycling",
        "coefficients": "learning_coefficients",
        "printed": "printed_tables",
    }[name]
    wanted = json.loads((ROOT / "notebooks" / "data" / f"{stored}_claims.json").read_text("utf-8"))
    found = [claim.to_dict() for claim in claims]
    for claim, named in zip(found, wanted, strict=True):
        names = {"id", "setting", "statement"}  # by which pages of results would find it
        assert {k: claim[k] for k in claim.keys() - names} == {
            k: named[k] for k in named.keys() - names
        }


# Upcycling


def test_upcyclings_verdicts_come_out_both_ways(upcycling):
    data = upcycling["data"]

    def verdicts(**change):
        """Verdicts after a number is added to a column of the variant that is named."""
        altered = data.copy()
        for column, (arm, by) in change.items():
            altered.loc[altered["arm"] == arm, column] += by
        return [claim.verdict for claim in upcycling["answers"](altered)]

    assert verdicts(
        loss=("scales", 0.1), rise=("keys and values", -1), early=("keys and values", 0.1)
    ) == [*("holds", "holds", "holds", "undecided", "holds", "holds")]
    assert verdicts() == ["fails", "fails", "fails", "undecided", "fails", "fails"]
    strong = (
        data["prefix_matching"]
        .where(data["arm"] == "none")
        .groupby([data["layer"], data["kv_head"]])
        .transform("max")
    )
    heads = data.assign(alpha=data["alpha"] + strong.where(data["arm"] == "keys and values"))
    assert upcycling["answers"](heads)[3].verdict == "holds"
    assert upcycling["answers"](heads.assign(alpha=1 - heads["alpha"]))[3].verdict == "fails"


# Learning coefficients


@pytest.mark.parametrize(
    ("miss", "of_aim", "expected"),
    [
        (1.0, 0.95, ["holds"] * 12),
        (0.5, 0.95, ["fails"] * 10 + ["holds", "fails"]),
        (1.0, 0.5, ["holds"] * 5 + ["fails"] * 5 + ["holds", "fails"]),
    ],
)
def test_verdicts_on_coefficients_come_out_either_way(coefficients, miss, of_aim, expected):
    """Every estimate is `miss` times its aim, which is `of_aim` times the coefficient, but for a
    little noise.
    """
    data = coefficients["data"].assign(aim=lambda table: of_aim * table["coefficient"])
    noise = 1 + 0.01 * np.random.default_rng(0).normal(size=len(data))
    answers = coefficients["answers"](data.assign(estimate=miss * data["aim"] * noise))
    assert [claim.verdict for claim in answers] == expected


def around(minimum, n):
    """Draw points from the box of half width .5 around a minimum, in its free parameters."""
    generator = torch.Generator().manual_seed(0)
    w = torch.tensor(minimum.at, dtype=torch.float64)[:, None].repeat(1, n)
    w[list(minimum.free)] += (
        torch.rand(len(minimum.free), n, generator=generator, dtype=torch.float64) - 0.5
    )
    return w


@pytest.mark.parametrize("name", ["regular", "line", "quartic", "plane", "crossing"])
def test_every_point_is_a_minimum_whose_volume_scales_with_its_coefficient(coefficients, name):
    """V(eps) ~ eps^lambda (log 1/eps)^(m - 1): the slope of log V, less that of the logarithm, is
    lambda.
    """
    minimum = coefficients["MINIMA"][name]
    assert minimum.excess(torch.tensor(minimum.at, dtype=torch.float64)).item() == pytest.approx(
        0, abs=1e-14
    )
    assert minimum.excess(around(minimum, 10_000)).min() > -1e-15
    k = minimum.excess(around(minimum, 3_000_000)).clamp_min(0).sort().values / minimum.stiffness
    few, many = 300, 3000
    small, large = float(k[few]), float(k[many])
    width = math.log(large / small)
    logarithm = math.log(math.log(1 / large) / math.log(1 / small)) / width
    slope = math.log(many / few) / width - (minimum.multiplicity - 1) * logarithm
    assert slope == pytest.approx(minimum.coefficient, abs=0.05)


def test_the_loss_is_theorem_3_4s(coefficients):
    w = 2 * torch.randn(4, 50, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = coefficients["log_probabilities"](w)
    torch.testing.assert_close(
        -found[0], torch.from_numpy(landscape.loss(*w.numpy(), coefficients["N_TOKENS"]))
    )
    torch.testing.assert_close(found.exp().sum(dim=0), torch.ones(50, dtype=torch.float64))


def test_exact_means_are_the_stored_ones(coefficients):
    rows = coefficients["data"].query(
        "point == 'regular' and group == 0 and localization == 1 and sharpness == 1000"
    )
    assert coefficients["exact_means"](rows) == pytest.approx(rows["aim"].tolist(), abs=1e-5)
