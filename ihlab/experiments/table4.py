"""Table 4: iGSM, trained on few operations and tested on more."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ihlab.experiments import stats
from ihlab.experiments.claims import Claim
from ihlab.experiments.curves import plan
from ihlab.experiments.experiment import Planned, Scale
from ihlab.model.config import ModelConfig
from ihlab.plots.solved import Mark, by_operations, error_table
from ihlab.plots.style import BLACK, BLUE, new_figure, printed
from ihlab.training.config import RunConfig
from tasks import IGSMTask
from tasks.igsm.verify import ERRORS

if TYPE_CHECKING:
    from ihlab.training.run import Run

VANILLA, KV = "vanilla", "KV shifting"
CURVES: dict[str, dict[str, object]] = {VANILLA: {}, KV: {"attention": "kv_shift"}}
MARKS = {VANILLA: Mark(BLACK, "o"), KV: Mark(BLUE, "s")}
SEEDS = {"smoke": 2, "laptop": 3, "gpu": 3, "paper": 3}
PROBLEMS = {"smoke": 8, "laptop": 500, "gpu": 2000, "paper": 4096}
"""Problems a run is tested on, at each number of operations; the same ones for all."""

TEST_SEED = 20250601
MEASURES = {
    "lenient": "some step gives the right value (the paper's)",
    "final": "the final answer is right",
    "strict": "every clause is right",
    "minimal": "every clause is right and needed",
}


@dataclass(frozen=True)
class Setting:
    """Trained with up to `train` operations, tested with `test`, and with fewer, in steps of test - train."""

    train: int
    test: int

    @property
    def name(self) -> str:
        """As the paper writes it."""
        return f"Tr{self.train}-Te{self.test}"

    @property
    def tested(self) -> range:
        """The numbers of operations that problems are tested with; Tr12-Te15: 3, 6, 9, 12 and 15."""
        step = self.test - self.train
        return range(step, self.test + 1, step)


SETTINGS = {
    "smoke": (Setting(2, 3),),
    "laptop": (Setting(3, 4),),
    "gpu": (Setting(12, 15),),
    "paper": (Setting(12, 15), Setting(21, 24)),
}


def base(scale: Scale, setting: Setting) -> RunConfig:
    """One run.

    Paper: "similar hyper-parameters" to Ye et al. 2024 (arXiv 2407.20311): a GPT-2 small with rotary positions, AdamW
    (0.9, 0.98), batch 512, 100,000 steps; but a context of 1024 and a learning rate of 2e-4. Llama blocks here.
    """
    hard, ops = setting.train > 15, f"<={setting.train}"
    if scale in ("smoke", "laptop"):
        task = IGSMTask(difficulty="toy", format="compact", ops=ops, length=80)
    else:
        task = IGSMTask(difficulty="hard" if hard else "med", ops=ops, length=1024 if hard else 512)
    sizes: dict[str, dict[str, Any]] = {
        "smoke": {"n_layers": 1, "d_model": 16, "n_heads": 2, "n_ctx": 160},
        # Rows are short: at the paper's rotary base only a few dimensions of a small head tell neighbours apart.
        "laptop": {"n_layers": 3, "d_model": 64, "n_heads": 2, "n_ctx": 160, "rotary_base": 100.0},
        "gpu": {"n_layers": 6, "d_model": 384, "n_heads": 6, "n_ctx": 1024},
        "paper": {"n_layers": 12, "d_model": 768, "n_heads": 12, "n_ctx": 1024},
    }
    model = ModelConfig(d_vocab=task.vocab_size, **sizes[scale])
    run = RunConfig(task=task, model=model, betas=(0.9, 0.98), eval_rows=256, eval_every=50, checkpoints=4)
    if scale == "smoke":
        return run.but(steps=20, batch_size=8, warmup=5, eval_rows=32)
    if scale == "laptop":
        return run.but(steps=8000, batch_size=16, lr=3e-3, warmup=200, schedule="linear", eval_every=500)
    run = run.but(precision="bf16", compile=True, eval_rows=1024, checkpoints=8)
    if scale == "gpu":
        return run.but(steps=6000, batch_size=256, lr=1e-3, warmup=500, schedule="linear")
    rows = 256 if hard else 512
    return run.but(steps=100_000, batch_size=rows, accumulate=rows // 64, lr=2e-4, warmup=1000, schedule="linear")


class Table4:
    """How many problems are solved, in four senses, and what is wrong with the others."""

    name = "table4"

    def runs(self, scale: Scale) -> list[Planned]:
        """Vanilla and KV shifting at every setting."""
        return [
            Planned(f"{planned.curve}, {setting.name}", planned.config)
            for setting in SETTINGS[scale]
            for planned in plan(f"{self.name}-{setting.name.lower()}", base(scale, setting), CURVES, SEEDS[scale])
        ]

    def gather(self, trained: Sequence[tuple[str, "Run"]], scale: Scale) -> pd.DataFrame:
        """A row for each run, number of operations and measure: the share of test problems, or errors a problem.

        Every run solves the same problems of the test split, by greedy decoding, with the model's whole context.
        `guess` is the share of problems whose answer is the commonest one.
        """
        from ihlab.interp.solving import judge, solve
        from ihlab.training.device import pick_device

        setting_of = {setting.name: setting for setting in SETTINGS[scale]}
        parts = []
        for curve, run in trained:
            assert isinstance(run.config.task, IGSMTask)
            model = run.model(device=pick_device())
            task = replace(run.config.task, length=model.cfg.n_ctx)
            who, name = curve.split(", ")
            for ops in setting_of[name].tested:
                problems = task.prompts(PROBLEMS[scale], np.random.default_rng([TEST_SEED, ops]), ops, "test")
                judged = judge(task, problems, solve(model, task, problems))
                judged["unnecessary"] = judged["unnecessary"] > 0
                values = problems.tokens[np.arange(len(judged)), problems.size - 2]
                shares = {**judged.drop(columns="ops").mean(), "guess": np.bincount(values).max() / len(judged)}
                facts: dict[str, Any] = {"setting": name, "model": who, "seed": run.config.seed, "ops": ops}
                table = pd.DataFrame({"measure": shares.keys(), "share": np.round(list(shares.values()), 6)})
                parts.append(table.assign(**facts, problems=len(judged)))
        return pd.concat(parts, ignore_index=True)[[*facts, "problems", "measure", "share"]]

    def claims(self, data: pd.DataFrame, scale: Scale) -> list[Claim]:
        """Is KV shifting above vanilla, in each sense of a solved problem, and does either do more than guess?"""
        claim = partial(Claim, source="ours", seeds=int(data["seed"].nunique()), right_side="above")
        found = []
        for setting in SETTINGS[scale]:
            of_setting = data[data["setting"] == setting.name]
            more = _shares(of_setting[of_setting["ops"] == setting.test])
            seen = _shares(of_setting[of_setting["ops"] <= setting.train])
            found += [
                claim(
                    source="Appendix E.2, Table 4",
                    sentence=f"KV shifting attention solves more iGSM problems than vanilla ({setting.name}).",
                    measure=f"share of problems, {KV} less {VANILLA}: {meaning}",
                    estimate=stats.difference(more[KV, measure], more[VANILLA, measure]),
                    threshold=0.0,
                )
                for measure, meaning in MEASURES.items()
            ]
            found.append(
                claim(
                    sentence=f"It solves more of those with no more operations than in training ({setting.name}).",
                    measure=f"share of problems, {KV} less {VANILLA}: {MEASURES['strict']}; mean over {_seen(setting)}",
                    estimate=stats.difference(seen[KV, "strict"], seen[VANILLA, "strict"]),
                    threshold=0.0,
                )
            )
            found += [
                claim(
                    sentence=f"{model} does more than guess with {operations} operations ({setting.name}).",
                    measure=f"share of problems: {MEASURES['lenient']}; the commonest answer is right in {guess:.2f}",
                    estimate=stats.mean(shares[model, "lenient"]),
                    threshold=guess,
                )
                for shares, operations in ((more, str(setting.test)), (seen, _seen(setting)))
                for guess in [shares[VANILLA, "guess"][0]]
                for model in CURVES
            ]
        return found

    @printed
    def draw(self, data: pd.DataFrame, scale: Scale) -> Figure:
        """A row for each setting: three accuracies against the number of operations, and the classes of errors."""
        settings = SETTINGS[scale]
        figure = new_figure(15.5, 3.9 * len(settings) + 0.6)
        grid = figure.add_gridspec(len(settings), 4, width_ratios=(1, 1, 1, 1.9))
        for row, setting in enumerate(settings):
            of_setting = data[data["setting"] == setting.name]
            for column, measure in enumerate(("lenient", "final", "strict")):
                axes = figure.add_subplot(grid[row, column])
                by_operations(axes, of_setting, measure, MARKS, setting.train, guess=measure != "strict")
                axes.set(title=MEASURES[measure].removesuffix(" (the paper's)"), xlabel="operations")
                axes.set_ylabel(f"{setting.name}: share of problems" if column == 0 else "")
            axes = figure.add_subplot(grid[row, 3])
            error_table(axes, of_setting[of_setting["ops"] == setting.test], [*ERRORS, "unnecessary"], list(CURVES))
            axes.set_title(f"errors in 100 problems of {setting.test} operations (least–most)")
        keys, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(keys, labels, loc="outside lower left", ncols=len(keys))
        figure.suptitle(
            f"iGSM, trained with up to {' or '.join(str(s.train) for s in settings)} operations "
            f"({scale} scale; hollow: {data['seed'].nunique()} seeds, filled: their mean)"
        )
        return figure


def _shares(table: pd.DataFrame) -> dict[tuple[str, str], list[float]]:
    """By model and measure: each seed's mean over numbers of operations."""
    means = table.groupby(["model", "measure", "seed"])["share"].mean()
    pairs = itertools.product(CURVES, means.index.unique("measure"))
    return {(model, measure): means[model, measure].tolist() for model, measure in pairs}


def _seen(setting: Setting) -> str:
    *fewer, most = (str(ops) for ops in setting.tested if ops <= setting.train)
    return f"{', '.join(fewer)} and {most}" if fewer else most
