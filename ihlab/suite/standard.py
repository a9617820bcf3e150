"""The standard set: the problems on which every attribution method is compared.

It has trained members that come with the package (none of the proved ones), at two checkpoints:
while the circuit forms (the first one whose swing is at least a tenth of the last swing) and after
training. Members of three and four layers are there only after training. The hand-set circuits of
Theorems 3.2 and 3.3 complete it. Every corruption is scored by every metric.
"""

from hashlib import sha256
from io import BytesIO
from pathlib import Path

import numpy as np
import pandas as pd

from ihlab.attribution import Problem
from ihlab.attribution.metrics import METRICS
from ihlab.attribution.problems import pair_problem
from ihlab.interp.prompt_pair import PromptPair
from ihlab.model.transformer import Transformer
from ihlab.runtime.settings import own_settings
from ihlab.suite.members import load
from ihlab.suite.truth import prompts
from tasks.config import require

VERSION = 3
"""The version of the standard set. It rises when a problem is added, left out or changed."""

_FILE = Path(__file__).with_name("standard.csv")


def standard_set() -> pd.DataFrame:
    """Return the problems: one row per member, step, corruption and metric.

    `layers` and `heads` (of all layers) are the model's, `last` is whether the step is the last
    one. `digest` is that of the weights and the prompts, the same for all metrics.
    """
    return pd.read_csv(_FILE).merge(pd.DataFrame({"metric": list(METRICS)}), how="cross")


def digest_of_set() -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 of the list of all problems and their
    digests.
    """
    return sha256(_FILE.read_bytes()).hexdigest()[:16]


def standard_problems(member: str, step: int, corruption: str) -> dict[str, Problem]:
    """Return the problems of the standard set that differ only in their metric, as a dict from the
    metric's name.

    Raises `ConfigError` for problems that are not in the set, and if weights or prompts have
    another digest.
    """
    table = pd.read_csv(_FILE)
    row = table[(table[["member", "step", "corruption"]] == [member, step, corruption]).all(axis=1)]
    require(
        len(row) == 1,
        f"The standard set has no problem ({member}, {step}, {corruption}): ihlab.suite.standard.standard_set lists "
        "them.",
    )
    model = load(member, step=step)
    pair = prompts(model.trained_on, corruption)
    digest = digest_of(model, pair)
    require(
        digest == row["digest"].item(),
        f"The weights or prompts of {member} at step {step} with the corruption '{corruption}' have the digest "
        f"{digest}, but version {VERSION} of the standard set has {row['digest'].item()}: numbers cannot be compared.",
    )
    with own_settings():
        return {metric: pair_problem(model, pair, metric, corruption) for metric in METRICS}


def digest_of(model: Transformer, pair: PromptPair) -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 of a member's weights and of its
    prompts.
    """
    content = BytesIO()
    weights = sorted(model.state_dict().items())
    for array in (*(weight for _, weight in weights), *vars(pair).values()):
        np.save(content, array.detach().cpu().numpy())  # with type and shape
    return sha256(content.getvalue()).hexdigest()[:16]
