"""Interactive pictures need no network, and are seen where no script runs."""

import re

import numpy as np
import pandas as pd
import pytest

from ihlab.plots.offline import Interactive
from ihlab.plots.surface import loss_surface, still_surface
from tasks import ConfigError


def table(lengths):
    axis = np.linspace(0, 1, 3)
    alpha1, beta1 = (grid.ravel() for grid in np.meshgrid(axis, axis))
    parts = [{"T": n, "alpha1": alpha1, "beta1": beta1, "loss": n + alpha1 + n * beta1} for n in lengths]
    return pd.concat(map(pd.DataFrame, parts))


@pytest.fixture(scope="module")
def bundle():
    surfaces = table([5, 8, 12, 20, 32])
    title = "The loss </script>"
    return Interactive(loss_surface(surfaces, "T", title), still_surface(surfaces, "T", title))._repr_mimebundle_()


def test_a_page_asks_for_nothing_and_has_a_still_picture(bundle):
    page = bundle["text/html"]
    around = re.sub(r'atob\("[^"]*"\)|base64,[A-Za-z0-9+/=]*', "", page)
    assert not re.search(r"\bsrc=(?!.data:)|https?://", around)
    assert '<img alt="' in page
    assert around.count("</script>") == 1  # no title ends it early


def test_jupyterlab_gets_the_figure_itself(bundle):
    figure = bundle["application/vnd.plotly.v1+json"]
    assert len(figure["data"]) == 5
    assert bundle["text/plain"] == "The loss </script>"


def test_the_still_picture_has_the_first_the_middle_and_the_last():
    titles = [axes.get_title() for axes in still_surface(table([5, 8, 12, 20, 32]), "T", "loss").axes]
    assert titles == ["T = 5", "T = 12", "T = 32"]
    assert len(still_surface(table([5]), "T", "loss").axes) == 1


def test_surfaces_share_the_width_of_their_range():
    ranges = [axes.get_zlim() for axes in still_surface(table([5, 8, 12]), "T", "loss").axes]
    assert {round(high - low, 6) for low, high in ranges} == {13}
    with pytest.raises(ConfigError, match="There is no surface in an empty table"):
        still_surface(table([5]).iloc[:0], "T", "loss")
