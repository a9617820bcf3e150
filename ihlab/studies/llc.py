"""Calibration of the local learning coefficient: does `devinterp` find coefficients that are known exactly?

Hoogland et al. 2024 (arXiv 2402.02364) find stages of training from the estimated coefficient of checkpoints. This
study first asks whether the estimator gives the right number where it is known: at the five minima of
`ihlab.theory.landscape.coefficients`. `devinterp` samples exp(-n_beta K - localization ||w - w0||^2 / 2) by stochastic
gradient Langevin dynamics (SGLD) and returns n_beta times the mean of K. There are two separate errors: the sampler may
miss its exact mean (`Minimum.tempered`, by Metropolis sampling), and at a finite temperature the exact mean differs
from the coefficient.

Settings are relative to the stiffness h of a minimum: n_beta = sharpness / h and a learning rate of step / sharpness.
They were chosen from the exact means, before any estimate. These show that the crossing is out of reach: with
multiplicity 2, the error falls only as 1 / log(n_beta). The calibration passes if every claim about the sampler, the
claims about the four other coefficients and the claim about the order hold. Only then is the estimator applied to
networks.
"""

from functools import partial
from importlib.util import find_spec
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ihlab.claims import stats
from ihlab.claims.claim import Claim
from ihlab.claims.experiment import Planned, Scale, Trained
from ihlab.plots.style import BLACK, BLUE, GREEN, ORANGE, PAGE, new_figure, printed
from tasks.config import require

CENTRE = {"step": 0.2, "localization": 1.0, "sharpness": 1000.0}
SETTINGS = [CENTRE, *({**CENTRE, name: CENTRE[name] * by} for name in CENTRE for by in (0.25, 4.0))]
"""The setting of the claims, and six others, which each change one number by a factor of four."""
GROUPS, COPIES = 8, 16
"""Independent copies of each minimum's parameters: the claims' intervals are over groups of copies.

One model holds all copies of all minima. Its loss per "token" is the excess loss of one copy, over the stiffness."""
STEPS = {"smoke": 20, "laptop": 3000, "gpu": 3000, "paper": 3000}
"""SGLD steps. The first third is burn-in."""

FROM_AIM, FROM_EXACT, ORDERED, ROBUST = 0.1, 0.2, 0.95, 0.8
"""Maximum relative errors of the sampler and the estimate; minimum fractions of ordered pairs and of good settings."""
CROSSING = "crossing"
COLORS = {
    "": (BLACK, "centre"),
    "step": (BLUE, "step size"),
    "localization": (ORANGE, "localization"),
    "sharpness": (GREEN, "inverse temperature"),
}


class LLC:
    """Estimates at five minima with seven settings, beside the exact coefficients."""

    name = "llc"

    def runs(self, scale: Scale) -> list[Planned]:
        """Plan no runs."""
        return []

    def gather(self, trained: Trained, scale: Scale) -> pd.DataFrame:
        """Return a row per setting, minimum and group of copies, with `aim`, the exact mean at this temperature.

        `estimate` leaves out the burn-in. `returned` includes it in its mean, as `devinterp`'s `llc_mean` does. Raises
        `ConfigError` if devinterp is not installed.
        """
        require(find_spec("devinterp") is not None, "devinterp is not installed: pip install 'devinterp>=2.0.1'.")
        from ihlab.theory.landscape.coefficients import MINIMA

        aims = {
            (point, at["localization"], at["sharpness"]): minimum.tempered(
                at["sharpness"] / minimum.stiffness, at["localization"], steps=min(1000, STEPS[scale])
            )
            for point, minimum in MINIMA.items()
            for at in SETTINGS
            if at["step"] == CENTRE["step"]
        }
        data = pd.concat([estimates(**setting, steps=STEPS[scale]) for setting in SETTINGS], ignore_index=True)
        keys = zip(data["point"], data["localization"], data["sharpness"], strict=True)
        return data.assign(aim=[aims[key] for key in keys]).round(5)

    def claims(self, data: pd.DataFrame, scale: Scale) -> list[Claim]:
        """Judge the sampler and the coefficient at each minimum, the order, and how much depends on the setting."""
        centre, claims = data[_at(data, CENTRE)], []
        claim = partial(Claim, source="beside Theorem 3.4", of_paper=False, declared="2026-11-26", seeds=GROUPS)
        for column, what, most in (
            ("aim", "mean that it samples", FROM_AIM),
            ("coefficient", "coefficient", FROM_EXACT),
        ):
            for point, rows in centre.groupby("point", sort=False):
                error = stats.size(stats.mean((rows["estimate"] / rows[column] - 1).tolist()))
                sentence = f"{point}: devinterp's estimate equals the exact {what}."
                measure = f"relative error ({rows['estimate'].mean():.3f} against {rows[column].iloc[0]:.3f})"
                told = {"sentence": sentence, "measure": measure, "estimate": error, "threshold": most}
                claims.append(claim(**told, right_side="below"))  # type: ignore[arg-type]
        means = data.groupby(["point", *CENTRE], sort=False)[["estimate", "coefficient"]].mean().reset_index()
        at = means[_at(means, CENTRE)]
        pairs = list(combinations(at[["estimate", "coefficient"]].to_numpy(), 2))
        ordered = float(np.mean([(a - b).prod() > 0 for a, b in pairs]))
        simple = means[means["point"] != CROSSING]
        good = float(((simple["estimate"] / simple["coefficient"] - 1).abs() <= FROM_EXACT).mean())
        return [
            *claims,
            claim(
                sentence="The estimates have the order of the exact coefficients.",
                measure=f"fraction of the {len(pairs)} pairs of minima",
                estimate=stats.exact(ordered),
                threshold=ORDERED,
            ),
            claim(
                sentence="The estimates depend little on the sampler's settings.",
                measure=f"fraction of {len(simple)} estimates within {FROM_EXACT:.0%}: all minima but the crossing, "
                "each setting changed by a factor of four",
                estimate=stats.exact(good),
                threshold=ROBUST,
            ),
        ]

    def summary(self, data: pd.DataFrame, scale: Scale) -> str:
        """State the estimate, the exact mean and the exact coefficient at each minimum."""
        centre = data[_at(data, CENTRE)].groupby("point", sort=False)[["estimate", "aim", "coefficient"]].mean()
        told = [f"{row.Index} {row.estimate:.2f} ({row.aim:.2f}, {row.coefficient:g})" for row in centre.itertuples()]
        return f"Estimate of devinterp (exact mean at this temperature, exact coefficient): {', '.join(told)}."

    @printed
    def draw(self, data: pd.DataFrame, scale: Scale) -> Figure:
        """Draw every estimate beside the exact coefficient and the exact mean of its minimum."""
        figure = new_figure(PAGE, 4.6)
        axes, points = figure.subplots(), list(data["point"].unique())
        for x, point in enumerate(points):
            exact = float(data.loc[data["point"] == point, "coefficient"].iloc[0])
            axes.fill_between(
                [x - 0.42, x + 0.42], exact * (1 - FROM_EXACT), exact * (1 + FROM_EXACT), color="0.9", lw=0
            )
            axes.hlines(
                exact, x - 0.42, x + 0.42, color=BLACK, lw=1.5, label="exact coefficient, and 20%" if not x else ""
            )
        for number, setting in enumerate(SETTINGS):
            changed = next((name for name in CENTRE if setting[name] != CENTRE[name]), "")
            way = "o" if not changed else "v" if setting[changed] < CENTRE[changed] else "^"
            means = data[_at(data, setting)].groupby("point", sort=False)[["estimate", "aim"]].mean()
            at = [x + 0.11 * (number - 3) for x in range(len(points))]
            color, label = COLORS[changed]
            aims = "exact mean at this temperature" if not changed else ""
            axes.plot(at, means["aim"], "_", color="0.35", ms=9, mew=1.5, label=aims)
            axes.plot(at, means["estimate"], way, color=color, ms=6, label=label if way != "v" else "")
        axes.set_xticks(range(len(points)), points)
        axes.set(ylabel="local learning coefficient", ylim=(0, None))
        axes.grid(visible=False, axis="x")
        figure.legend(loc="outside lower center", ncols=3)
        figure.suptitle(
            "Does devinterp find learning coefficients that are known exactly? Triangles: a setting times 4 or 1/4"
        )
        return figure


def estimates(step: float, localization: float, sharpness: float, steps: int) -> pd.DataFrame:
    """Return devinterp's estimates at one setting, with the columns of `LLC.gather`."""
    import torch
    from datasets import Dataset
    from devinterp.slt.sampling import sample

    from ihlab.theory.landscape.coefficients import MINIMA, excess_of

    minima, each = list(MINIMA.values()), GROUPS * COPIES
    at = torch.tensor([minimum.at for minimum in minima], dtype=torch.float64).T[:, :, None]
    free = torch.tensor([[float(i in minimum.free) for minimum in minima] for i in range(4)])[:, :, None]
    stiffness = torch.tensor([[minimum.stiffness] for minimum in minima])

    class Copies(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.moved = torch.nn.Parameter(torch.zeros(4, len(minima), each, dtype=torch.float64))

    def loss(model: Any, input_ids: torch.Tensor) -> torch.Tensor:
        return (excess_of(minima, at + free * model.moved) / stiffness).reshape(1, -1)

    tokens, burn_in = len(minima) * each, steps // 3
    rows: Any = Dataset.from_dict({"input_ids": [[0] * (tokens + 1)]}).with_format("torch")
    with TemporaryDirectory() as folder:
        sampled = sample(
            Copies(), rows, {}, lr=step / sharpness, n_beta=tokens * sharpness, localization=localization, loss_fn=loss,
            num_chains=1, num_draws=steps - burn_in, num_burnin_steps=burn_in, batch_size=1, num_init_loss_batches=1,
            device="cpu", output_path=Path(folder) / "samples.zarr",
        )  # fmt: skip
        losses = sampled.dataset.sampling_loss_micro.to_numpy().reshape(steps, len(minima), GROUPS, COPIES)
    estimate, returned = (sharpness * part.mean(axis=(0, 3)).ravel() for part in (losses[burn_in:], losses))
    names = pd.MultiIndex.from_product([MINIMA, range(GROUPS)], names=["point", "group"]).to_frame(index=False)
    exact = [minimum.coefficient for minimum in minima for _ in range(GROUPS)]
    facts: dict[str, Any] = {"step": step, "localization": localization, "sharpness": sharpness}
    return names.assign(coefficient=exact, **facts, estimate=estimate, returned=returned)


def _at(data: pd.DataFrame, setting: dict[str, float]) -> "pd.Series[bool]":
    return (data[list(setting)] == pd.Series(setting)).all(axis=1)
