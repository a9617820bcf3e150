"""Studies that are notebooks: their verdicts are the stored ones, and their code measures right on
small models.
"""

import json

import matplotlib as mpl
import matplotlib.pyplot as plt
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
def coefficients():
    return names_of("12_learning_coefficients")


STORED = {
    "11_upcycling": "upcycling",
    "12_learning_coefficients": "learning_coefficients",
    "15_printed_tables": "printed_tables",
}


@pytest.mark.parametrize("stem", STORED)
def test_claims_are_the_stored_ones(stem):
    """Sentences, measures, numbers, intervals, p-values, thresholds and verdicts."""
    path = ROOT / "notebooks" / "data" / f"{STORED[stem]}_claims.json"
    found = [claim.to_dict() for claim in names_of(stem)["claims"]]
    for claim, stored in zip(found, json.loads(path.read_text("utf-8")), strict=True):
        for name in ("id", "setting", "statement"):  # by which pages of results would find it
            claim.pop(name, None)
            stored.pop(name, None)
        assert claim == stored


def test_the_loss_of_coefficients_is_theorem_3_4s(coefficients):
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
