"""Whatever is killed, and whenever, ends as if it had not been; and a campaign of kills notices
what would not.
"""

import pytest

from tests.faults.kills import WRITE, campaign

pytestmark = pytest.mark.slow


KINDS = ["train", "sweep", "certify", "view"]


def test_killed_commands_end_as_if_nobody_had_killed_them(tmp_path, capsys):
    """One kill of a few kinds: `make campaigns` kills all of them, hundreds of times."""
    rows = campaign(len(KINDS), 0, tmp_path, kinds=KINDS)
    assert {row.what.partition(",")[0] for row in rows} == set(KINDS)
    assert [row for row in rows if row.failed] == [], capsys.readouterr().err


def test_a_campaign_notices_an_optimiser_that_is_lost_when_a_run_goes_on(tmp_path, capsys):
    """Killed in the middle of counted writes: a kill after some seconds may hit a step that loses
    nothing.
    """
    rows = campaign(4, 0, tmp_path, kinds=["train"], moments={WRITE: 1.0}, sabotage=True)
    assert sum(row.failed for row in rows) > 0
    assert "metrics.csv differs" in capsys.readouterr().err
