"""The standard set: the problems on which every attribution method is compared.

It has the members that come with the package, each in the middle of the formation of its circuit (the first checkpoint
at which the swing is at least a tenth of the last one) and after training, under every corruption and every metric.
"""

from hashlib import sha256
from io import BytesIO
from pathlib import Path

import numpy as np
import pandas as pd

from ihlab.attribution import Problem
from ihlab.attribution.metrics import METRICS
from ihlab.model.transformer import Transformer
from ihlab.suite.members import load
from ihlab.suite.truth import problem, prompts
from tasks.config import require

VERSION = 1
"""The version of the standard set. It rises when a problem is added, left out or changed."""

_FILE = Path(__file__).with_name("standard.csv")


def standard_set() -> pd.DataFrame:
    """Return the problems: one row per member, step, corruption and metric.

    `digest` is that of the weights and the prompts, the same for all metrics.
    """
    return pd.read_csv(_FILE).merge(pd.DataFrame({"metric": list(METRICS)}), how="cross")


def standard_problem(member: str, step: int, corruption: str, metric: str) -> Problem:
    """Return a problem of the standard set.

    Raises `ConfigError` for a problem that is not in the set, and if its weights or prompts have another digest.
    """
    table = standard_set()
    row = table[(table[["member", "step", "corruption", "metric"]] == [member, step, corruption, metric]).all(axis=1)]
    require(
        len(row) == 1,
        f"The standard set has no problem ({member}, {step}, {corruption}, {metric}): ihlab.suite.standard_set lists "
        "them.",
    )
    model = load(member, step=step)
    digest = digest_of(model, corruption)
    require(
        digest == row["digest"].item(),
        f"The weights or prompts of {member} at step {step} with the corruption '{corruption}' have the digest "
        f"{digest}, but version {VERSION} of the standard set has {row['digest'].item()}: numbers cannot be compared.",
    )
    return problem(model, corruption, metric)


def digest_of(model: Transformer, corruption: str) -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 of a member's weights and of its prompts."""
    pair, content = prompts(model.trained_on, corruption), BytesIO()
    weights = sorted(model.state_dict().items())
    for array in (
        *(weight for _, weight in weights),
        pair.clean,
        pair.corrupted,
        pair.position,
        pair.answer,
        pair.other,
    ):
        np.save(content, array.detach().cpu().numpy())  # with type and shape
    return sha256(content.getvalue()).hexdigest()[:16]
