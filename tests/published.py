"""Stored claims and an experiment, made by hand for the tests of what is published."""

import json
from pathlib import Path

from ihlab.plots.style import new_figure
from ihlab.study import stats
from ihlab.study.claim import Claim


def claim(**fields: object) -> dict[str, object]:
    """A stored claim that holds."""
    return {
        "id": "learns",
        "source": "section 3.2",
        "sentence": "It learns.",
        "measure": "final accuracy",
        "value": 0.98765,
        "interval": [0.91234, 1.0],
        "confidence": 0.95,
        "p": 0.01234,
        "p_holm": 0.03702,
        "threshold": 0.9,
        "right_side": "above",
        "seeds": 5,
        "declared": "2026-01-02",
        "of_paper": True,
        "verdict": "holds",
        **fields,
    }


NOT_TESTED = claim(
    measure="", value=None, interval=[None, None], confidence=0.0, p=None, p_holm=None, threshold=None, seeds=0,
    verdict="not tested at this scale", why="It needs 10B tokens.",
)  # fmt: skip


def store(
    root: Path, name: str, scale: str, *claims: dict[str, object], summary: str = "It does.\n"
) -> None:
    """Write the folder of a figure with these claims and an empty picture."""
    folder = root / name if scale == "laptop" else root / name / scale
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "claims.json").write_text(json.dumps(claims), encoding="utf-8")
    (folder / f"{name}.svg").touch()
    (folder / "summary.md").write_text(summary, encoding="utf-8")


class Made:
    """An experiment of claims about a column of numbers: that its mean is above each threshold."""

    name = "made"

    def __init__(self, *thresholds: float, summary: object = "It was measured.") -> None:
        self.thresholds, self.said = thresholds, summary

    def runs(self, scale):
        return []

    def gather(self, trained, scale):
        raise NotImplementedError

    def claims(self, data, scale):
        mean = stats.mean(data["x"].tolist())
        fields = {
            "source": "here",
            "sentence": "It is above.",
            "measure": "x",
            "seeds": len(data),
            "declared": "2026",
        }
        claims = []
        for i, threshold in enumerate(self.thresholds, 1):
            claims.append(Claim(**fields, id=f"above_{i}", estimate=mean, threshold=threshold))
        return claims

    def summary(self, data, scale):
        return self.said

    def draw(self, data, scale):
        return new_figure(1.0, 1.0)
