"""Table 4: iGSM, trained on few operations and tested on more."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float
from matplotlib.figure import Figure

from ihlab.experiments import stats
from ihlab.experiments.claims import Claim
from ihlab.experiments.curves import plan
from ihlab.experiments.experiment import Planned, Scale
from ihlab.model.config import ModelConfig
from ihlab.plots.curves import Mark
from ihlab.plots.solved import by_operations, error_table
from ihlab.plots.style import BLACK, BLUE, new_figure, printed
from ihlab.training.config import RunConfig
from tasks import IGSMTask
from tasks.igsm import Problems
from tasks.igsm.check.verify import ERRORS

if TYPE_CHECKING:
    from ihlab.training.run import Run

VANILLA, KV = "vanilla", "KV shifting"
CURVES: dict[str, dict[str, object]] = {VANILLA: {}, KV: {"attention": "kv_shift"}}
MARKS = {VANILLA: Mark(BLACK, "o"), KV: Mark(BLUE, "s")}
SEEDS = {"smoke": 2, "laptop": 3, "gpu": 3, "paper": 3}
PROBLEMS = {"smoke": 8, "laptop": 500, "gpu": 2000, "paper": 4096}
"""Test problems of each run at each number of operations; the same ones for all runs."""

OTHER_PROBLEMS = {"smoke": 64, "laptop": 4096, "gpu": 4096, "paper": 4096}
"""Problems per number of operations that give the commonest answer, drawn apart from those tested on."""

TEST_SEED, OTHER_SEED = 20250601, 20250602
MEASURES = {
    "lenient": "some step gives the right value (the paper's)",
    "final": "the final answer is right",
    "strict": "every clause is right",
    "minimal": "every clause is right and needed",
}
GUESS = "guess"
"""Measure of a constant answer, the commonest one."""

LEARNED = 0.5
"""A curve has learned its training data if it solves more than this share of the problems with most operations."""

DECLARED = "2026-11-22"


@dataclass(frozen=True)
class Setting:
    """Trained with up to `train` operations, tested with `test`, and with fewer, in steps of test - train."""

    train: int
    test: int

    @property
    def name(self) -> str:
        """Name of the setting in the paper."""
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
        # Rows are short: with the paper's rotary base only a few dimensions of a small head distinguish neighbours.
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
    """Share of problems solved, in four senses, and the errors in the others."""

    name = "table4"

    def runs(self, scale: Scale) -> list[Planned]:
        """Plan vanilla and KV shifting at every setting."""
        return [
            Planned(f"{planned.curve}, {setting.name}", planned.config)
            for setting in SETTINGS[scale]
            for planned in plan(f"{self.name}-{setting.name.lower()}", base(scale, setting), CURVES, SEEDS[scale])
        ]

    def gather(self, trained: Sequence[tuple[str, "Run"]], scale: Scale) -> pd.DataFrame:
        """Gather a row for each run, number of operations and measure: share of test problems, or errors per problem.

        Every run solves the same problems of the test split, by greedy decoding, with the model's whole context. `hits`
        has a digit for each problem, in the same order for every run ("0b0110": the second and the third are solved);
        errors have none. The measure `guess` is of the constant answer of `commonest_answer`.
        """
        from ihlab.interp.igsm_decoding import judge, solve
        from ihlab.training.distributed import pick_device

        setting_of = {setting.name: setting for setting in SETTINGS[scale]}
        parts = []
        for curve, run in trained:
            assert isinstance(run.config.task, IGSMTask)
            model = run.model(device=pick_device())
            task = replace(run.config.task, length=model.cfg.n_ctx)
            who, name = curve.split(", ")
            for ops in setting_of[name].tested:
                problems = task.prompts(PROBLEMS[scale], np.random.default_rng([TEST_SEED, ops]), ops, "test")
                judged = judge(task, problems, solve(model, task, problems)).drop(columns="ops")
                judged["unnecessary"] = judged["unnecessary"] > 0
                judged[GUESS] = _answers(problems) == commonest_answer(task, ops, OTHER_PROBLEMS[scale])
                hits = {measure: packed(judged[measure].to_numpy(dtype=bool)) for measure in (*MEASURES, GUESS)}
                facts: dict[str, Any] = {"setting": name, "model": who, "seed": run.config.seed, "ops": ops}
                shares = judged.mean().round(6).rename_axis("measure").reset_index(name="share")
                parts.append(shares.assign(**facts, problems=len(judged), hits=shares["measure"].map(hits)))
        return pd.concat(parts, ignore_index=True)[[*facts, "problems", "measure", "share", "hits"]]

    def claims(self, data: pd.DataFrame, scale: Scale) -> list[Claim]:
        """Compare KV shifting with vanilla, in each sense of a solved problem, and both with a constant answer.

        Every estimate is a paired difference of hits on the same problems, and its interval counts seeds and problems
        as samples.
        """
        return [claim for setting in SETTINGS[scale] for claim in _claims(data, setting, OTHER_PROBLEMS[scale])]

    @printed
    def draw(self, data: pd.DataFrame, scale: Scale) -> Figure:
        """Draw a row for each setting: three accuracies against the number of operations, and classes of errors."""
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

    def summary(self, data: pd.DataFrame, scale: Scale) -> str:
        """State the share of problems solved strictly, and with the most operations leniently."""
        seeds, problems = data["seed"].nunique(), data["problems"].iloc[0]
        parts = [_summed_up(data[data["setting"] == setting.name], setting) for setting in SETTINGS[scale]]
        return f"Of {problems} problems for each number of operations ({seeds} seeds), {'; '.join(parts)}."


@lru_cache
def commonest_answer(task: IGSMTask, ops: int, problems: int) -> int:
    """Return the token that is most often the answer in so many problems of the test split, drawn with another seed."""
    answers = _answers(task.prompts(problems, np.random.default_rng([OTHER_SEED, ops]), ops, "test"))
    return int(np.bincount(answers).argmax())


def packed(hits: Bool[np.ndarray, " problem"]) -> str:
    """Return hits and misses as a binary literal, which stays text in a CSV file."""
    return "0b" + "".join("1" if hit else "0" for hit in hits)


def unpacked(literal: str) -> Bool[np.ndarray, " problem"]:
    """Return the hits and misses of `packed`."""
    return np.array([digit == "1" for digit in literal.removeprefix("0b")])


def _answers(problems: Problems) -> np.ndarray:
    """Return the token of each problem's value: a row ends with ANS value EOS."""
    return problems.tokens[np.arange(len(problems.tokens)), problems.size - 2]


def _hits(table: pd.DataFrame) -> dict[tuple[str, str], Float[np.ndarray, "seed problem"]]:
    """Return hits by model and measure: for each i, the mean over the i-th problems of every number of operations.

    The i-th problems are drawn independently, so that these means are a sample as problems of one number are.
    """
    counted = table[table["measure"].isin([*MEASURES, GUESS])]
    return {
        (str(model), str(measure)): np.stack(
            [np.mean([unpacked(literal) for literal in run["hits"]], axis=0) for _, run in rows.groupby("seed")]
        )
        for (model, measure), rows in counted.groupby(["model", "measure"])
    }


def _claims(data: pd.DataFrame, setting: Setting, others: int) -> list[Claim]:
    """Return the claims of one setting; `others` is its number of `OTHER_PROBLEMS`."""
    table = data[data["setting"] == setting.name]
    more, seen = _hits(table[table["ops"] == setting.test]), _hits(table[table["ops"] <= setting.train])
    claim = partial(
        Claim,
        source="beside Table 4",
        of_paper=False,
        seeds=int(table["seed"].nunique()),
        threshold=0.0,
        declared=DECLARED,
    )
    paper = partial(
        claim,
        source="Appendix E.2, Table 4",
        of_paper=True,
        sentence=f"KV shifting attention solves more iGSM problems than vanilla ({setting.name}).",
    )
    reason, note = _not_learned(table, setting), ""
    if reason:
        found = [paper(threshold=np.nan, why=reason)]
        by_lenient = stats.two_way_difference(more[KV, "lenient"], more[VANILLA, "lenient"])
        note = (
            f"; with {setting.test}, which nobody has learned, {MEASURES['lenient']}: "
            f"{by_lenient.value:+.3f} [{by_lenient.low:.3f}, {by_lenient.high:.3f}]"
        )
    else:
        found = [_compared(paper, more, measure, str(setting.test)) for measure in MEASURES]
    fewer = partial(
        claim,
        sentence=f"KV shifting solves more of those with no more operations than in training, too ({setting.name}).",
    )
    found.append(_compared(fewer, seen, "strict", _seen(setting), note))
    return found + [
        claim(
            sentence=f"With {operations} operations {model} does more than guess ({setting.name}).",
            measure=f"share of problems, {model} less a constant answer: {MEASURES['lenient']}, and the constant is "
            f"right (the commonest answer of {others} other problems, right in {hits[model, GUESS].mean():.3f})",
            estimate=stats.two_way_difference(hits[model, "lenient"], hits[model, GUESS]),
        )
        for hits, operations in ((more, str(setting.test)), (seen, _seen(setting)))
        for model in CURVES
    ]


def _compared(
    claim: "partial[Claim]", hits: dict[tuple[str, str], np.ndarray], measure: str, operations: str, note: str = ""
) -> Claim:
    """Compare KV shifting with vanilla; not tested where neither solves a single problem."""
    kv, vanilla = hits[KV, measure], hits[VANILLA, measure]
    what = f"share of problems with {operations} operations, {KV} less {VANILLA}: {MEASURES[measure]}{note}"
    if not kv.any() and not vanilla.any():
        why = f"Neither solves a single problem with {operations} operations in this sense: nothing can be compared."
        return claim(measure=what, threshold=np.nan, why=why)
    return claim(measure=what, estimate=stats.two_way_difference(kv, vanilla))


def _not_learned(table: pd.DataFrame, setting: Setting) -> str:
    """Return why more operations than in training test nothing here, or "" if some curve has learned what it saw."""
    of = {model: _share(table, model, "strict", setting.train) for model in CURVES}
    if max(of.values()) > LEARNED:
        return ""
    return (
        f"No curve has every clause right in more than half of the problems with {setting.train} operations, the most "
        f"in training ({KV}: {of[KV]:.3f}, {VANILLA}: {of[VANILLA]:.3f}): what was not learned says nothing of "
        "generalisation to more."
    )


def _share(table: pd.DataFrame, model: str, measure: str, ops: int) -> float:
    """Return the share of problems with that many operations, mean over seeds."""
    rows = (table["model"] == model) & (table["measure"] == measure) & (table["ops"] == ops)
    return float(table.loc[rows, "share"].mean())


def _summed_up(table: pd.DataFrame, setting: Setting) -> str:
    seen = [ops for ops in setting.tested if ops <= setting.train]

    def shares(model: str, measure: str, *operations: int) -> str:
        return _and([f"{_share(table, model, measure, ops):.3f}" for ops in operations])

    return (
        f"{KV} has every clause right in {shares(KV, 'strict', *seen)} of those with {_seen(setting)} operations "
        f"({setting.name}) and {VANILLA} in {shares(VANILLA, 'strict', *seen)}; with {setting.test}, more than in "
        f"training, in {shares(KV, 'strict', setting.test)} and {shares(VANILLA, 'strict', setting.test)}, while some "
        f"step gives the right value in {shares(KV, 'lenient', setting.test)} and "
        f"{shares(VANILLA, 'lenient', setting.test)} and a constant answer is right in "
        f"{shares(VANILLA, GUESS, setting.test)}"
    )


def _seen(setting: Setting) -> str:
    return _and([str(ops) for ops in setting.tested if ops <= setting.train])


def _and(words: Sequence[str]) -> str:
    *fewer, last = words
    return f"{', '.join(fewer)} and {last}" if fewer else last
