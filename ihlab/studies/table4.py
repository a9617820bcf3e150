"""Table 4: iGSM, trained on few operations and tested on more.

There are two stages. Each curve's learning rate is chosen by held-out loss on a tuning seed, from a grid that is the
same for both. Then each curve is trained at its own rate with other seeds.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float
from matplotlib.figure import Figure

from ihlab.claims import stats
from ihlab.claims.claim import Claim, at_floor, changed, slug
from ihlab.claims.experiment import Planned, Scale, Trained
from ihlab.claims.labels import KV, VANILLA
from ihlab.claims.learning_curves import final_loss, lowest_loss_rates, plan
from ihlab.model.config import ModelConfig
from ihlab.plots.curves import Mark
from ihlab.plots.solved import by_operations, errors_by_class
from ihlab.plots.style import BLACK, BLUE, PAGE, new_figure, printed
from ihlab.training.config import RunConfig
from tasks import IGSMTask
from tasks.config import require
from tasks.igsm import Problems
from tasks.igsm.verify import ERRORS
from tasks.igsm.words import LETTERS

if TYPE_CHECKING:
    from ihlab.model.transformer import Transformer

CURVES: dict[str, dict[str, object]] = {VANILLA: {}, KV: {"attention": "kv_shift"}}
MARKS = {VANILLA: Mark(BLACK, "o"), KV: Mark(BLUE, "s")}
SEEDS = {"smoke": range(2), "laptop": range(5, 17), "gpu": range(3), "paper": range(3)}
"""On a laptop, seeds 0 to 4 favoured two claims but left them undecided. Twelve other seeds were then declared, and the
verdicts use only these."""
TUNING_SEED = 100
RATES = {"smoke": (3e-3,), "laptop": (2e-3, 4e-3, 8e-3), "gpu": (5e-4, 1e-3, 2e-3), "paper": (2e-4, 2e-3)}
"""The paper uses 2e-4. Its footnote 14 says that 2e-3 gives .7 instead of .5."""

PROBLEMS = {"smoke": 8, "laptop": 500, "gpu": 2000, "paper": 4096}
"""Number of test problems per number of operations. All runs solve the same problems."""

OTHER_PROBLEMS = {"smoke": 64, "laptop": 4096, "gpu": 4096, "paper": 4096}
"""Number of problems per number of operations that determine the commonest answer. None of them is a test problem."""

TEST_SEED, OTHER_SEED = 20250601, 20250602
PART_OPS = 4
"""Minimum number of operations of a problem in which a step can have two clauses, the first of them with a letter."""
MEASURES = {
    "lenient": "some step gives the right value (the paper's)",
    "final": "the final answer is right",
    "strict": "every clause is right",
    "minimal": "every clause is right and needed",
}
GUESS = "guess"
"""Name of the measure for a constant answer, the commonest one."""

PARTS = {
    "planned": "in the true solution the likeliest start of every step is a parameter that can come next",
    "looked up": "in the true solution the likeliest word is right wherever one is copied from the step's sentence",
}
"""Two skills that a solution needs: to plan which quantity comes next, and to look up the sentences of the prompt.

Both are measured after correct steps (`ihlab.igsm.choices`), so that failing at one cannot hide the other."""

IN_TRAINING = "strict, training split"
"""Name of the measure "every clause is right" on training-split problems with the most operations."""

LEARNED = 0.5
"""A curve has learned its training data if this measure is above it."""

DECLARED = "2026-11-23"
CHANGED = "2026-11-26: where neither model has learned anything nothing can be compared"


@dataclass(frozen=True)
class Setting:
    """Trained with up to `train` operations, tested with up to `test`, in steps of test - train.

    With `most`, the steps continue beyond `test`, up to `most` operations.
    """

    train: int
    test: int
    most: int = 0

    @property
    def name(self) -> str:
        """Return the name of the setting in the paper."""
        return f"Tr{self.train}-Te{self.test}"

    @property
    def tested(self) -> range:
        """Return the numbers of operations that problems are tested with; Tr12-Te15: 3, 6, 9, 12 and 15."""
        step = self.test - self.train
        return range(step, max(self.test, self.most) + 1, step)

    @property
    def seen(self) -> list[int]:
        """Return the tested numbers of operations that occur in training."""
        return [ops for ops in self.tested if ops <= self.train]


SETTINGS = {
    "smoke": (Setting(2, 3),),
    "laptop": (Setting(3, 4, most=5),),
    "gpu": (Setting(12, 15),),
    "paper": (Setting(12, 15), Setting(21, 24)),
}


def igsm_run(scale: Scale, setting: Setting) -> RunConfig:
    """Return the vanilla run of a setting.

    The paper has "similar hyper-parameters" to Ye et al. 2024 (arXiv 2407.20311): a GPT-2 small with rotary positions,
    AdamW (0.9, 0.98), batch 512, 100,000 steps; but a context of 1024 and a learning rate of 2e-4. We use Llama blocks.
    The learning rate is replaced by those of `RATES`.
    """
    hard, ops = setting.train > 15, f"<={setting.train}"
    if scale in ("smoke", "laptop"):  # the task was chosen on vanilla models: a small one learns it in minutes
        task = IGSMTask(difficulty="mini", format="pairs", letters="parts", draw="even", ops=ops, length=68)
    else:
        task = IGSMTask(difficulty="hard" if hard else "med", ops=ops, length=1024 if hard else 512)
    sizes: dict[str, dict[str, Any]] = {
        "smoke": {"n_layers": 1, "d_model": 16, "n_heads": 2, "n_ctx": 160},
        # Sequences are short. With the paper's rotary base, few dimensions of a small head distinguish neighbours.
        "laptop": {"n_layers": 3, "d_model": 64, "n_heads": 2, "n_ctx": 160, "rotary_base": 10_000.0},
        "gpu": {"n_layers": 6, "d_model": 384, "n_heads": 6, "n_ctx": 1024},
        "paper": {"n_layers": 12, "d_model": 768, "n_heads": 12, "n_ctx": 1024},
    }
    model = ModelConfig(d_vocab=task.vocab_size, **sizes[scale])
    run = RunConfig(task=task, model=model, betas=(0.9, 0.98), eval_rows=256, eval_every=50, checkpoints=4)
    if scale == "smoke":
        return run.replace(steps=20, batch_size=8, warmup=5, eval_rows=32)
    if scale == "laptop":
        return run.replace(steps=5000, batch_size=32, warmup=100, schedule="linear", eval_every=250, compile=True)
    run = run.replace(precision="bf16", compile=True, eval_rows=1024, checkpoints=8)
    if scale == "gpu":
        return run.replace(steps=6000, batch_size=256, warmup=500, schedule="linear")
    rows = 256 if hard else 512
    return run.replace(steps=100_000, batch_size=rows, accumulate=rows // 64, lr=2e-4, warmup=1000, schedule="linear")


class Table4:
    """Fraction of problems solved, in four senses, and the errors in unsolved problems."""

    name = "table4"

    def runs(self, scale: Scale) -> list[Planned]:
        """Plan the grid of learning rates: vanilla and KV shifting at every setting, with the tuning seed."""
        return [
            Planned(f"{planned.curve}, {setting.name}", planned.config.replace(name=f"{planned.config.name}-lr-{lr:g}"))
            for setting in SETTINGS[scale]
            for lr in RATES[scale]
            for planned in self._plan(
                igsm_run(scale, setting).replace(lr=lr), setting, range(TUNING_SEED, TUNING_SEED + 1)
            )
        ]

    def follow(self, trained: Trained, scale: Scale) -> list[Planned]:
        """Plan each curve with the other seeds, at the rate with the lowest held-out loss at the end of training."""
        rates = lowest_loss_rates(trained)
        return [
            Planned(curve, planned.config.replace(lr=rates[curve]))
            for setting in SETTINGS[scale]
            for planned in self._plan(igsm_run(scale, setting), setting, SEEDS[scale])
            for curve in (f"{planned.curve}, {setting.name}",)
        ]

    def _plan(self, run: RunConfig, setting: Setting, seeds: range) -> list[Planned]:
        return plan(f"{self.name}-{setting.name.lower()}", run, CURVES, seeds)

    def gather(self, trained: Trained, scale: Scale) -> pd.DataFrame:
        """Gather a row per run, number of operations and measure: fraction of test problems, or errors per problem.

        Every run solves the same problems (`problems_like_training`), by greedy decoding, with the model's whole
        context. `hits` has one digit per problem, in the same order for every run ("0b0110": the second and the third
        are solved); error measures have no `hits`. The measure `guess` is for the constant answer of
        `commonest_answer`, the `PARTS` are measured on true solutions, and `IN_TRAINING` on problems of the training
        split. `kind` is "tuning" for runs that choose a learning rate. They solve only problems with as many operations
        as in training.
        """
        from ihlab.training.device import pick_device

        settings = {setting.name: setting for setting in SETTINGS[scale]}
        parts = []
        for curve, run in trained:
            arm, name = curve.split(", ")
            setting, task, tuning = settings[name], cast(IGSMTask, run.config.task), run.config.seed == TUNING_SEED
            model = run.model(device=pick_device())
            facts = {
                "setting": name, "model": arm, "kind": "tuning" if tuning else "run", "seed": run.config.seed,
                "lr": run.config.lr, "loss": round(final_loss(run), 6),
            }  # fmt: skip
            for ops in (setting.train,) if tuning else setting.tested:
                judged = _judged(model, task, ops, scale, known=ops == setting.train)
                shares = judged.mean().round(6).rename_axis("measure").reset_index(name="share")
                hits = {
                    measure: packed(judged[measure].to_numpy(dtype=bool))
                    for measure in (*MEASURES, GUESS, *PARTS, IN_TRAINING)
                    if measure in judged
                }
                numbers = {"ops": ops, "problems": len(judged)}
                columns = pd.DataFrame(facts | numbers, index=shares.index)
                parts.append(pd.concat([columns, shares.assign(hits=shares["measure"].map(hits))], axis=1))
        return pd.concat(parts, ignore_index=True)

    def claims(self, data: pd.DataFrame, scale: Scale) -> list[Claim]:
        """Compare KV shifting with vanilla, in each sense of a solved problem, and both with a constant answer.

        Every estimate is a paired difference of hits on the same problems. Its interval treats both seeds and problems
        as samples.
        """
        runs = _runs(data)
        return [claim for setting in SETTINGS[scale] for claim in _claims(runs, setting, scale)]

    @printed
    def draw(self, data: pd.DataFrame, scale: Scale) -> Figure:
        """Draw one row per setting: three senses of a solved problem against the number of operations."""
        settings, data = SETTINGS[scale], _runs(data)
        figure = new_figure(PAGE, 3.3 * len(settings) + 1.1)
        panels = figure.subplots(len(settings), 3, sharey=True, squeeze=False)
        for row, setting in zip(panels, settings, strict=True):
            for axes, measure in zip(row, ("strict", "final", "lenient"), strict=True):
                by_operations(axes, _at(data, setting), measure, MARKS, setting.train, guess=measure != "strict")
                axes.set(xlabel="operations")
                axes.set_title(MEASURES[measure].removesuffix(" (the paper's)"), fontsize=10)
            row[0].set_ylabel(f"fraction solved (trained on 1 to {setting.train})")
        keys, labels = panels[0, -1].get_legend_handles_labels()
        figure.legend(keys, labels, loc="outside lower center", ncols=2)
        figure.suptitle(
            f"iGSM word problems solved; training has up to {' or '.join(str(s.train) for s in settings)} operations\n"
            f"Small: each of {data['seed'].nunique()} seeds. Large: their mean.",
            fontsize=11,
        )
        return figure

    def draw_more(self, data: pd.DataFrame, scale: Scale) -> dict[str, Figure]:
        """Draw the errors by class, a panel for each setting."""
        return {"errors": _draw_errors(_runs(data), SETTINGS[scale])}

    def summary(self, data: pd.DataFrame, scale: Scale) -> pd.DataFrame:
        """Return the fraction of problems solved for every number of operations, and the rate of each model."""
        runs, tuning, rows = _runs(data), data[data["kind"] == "tuning"], []
        for setting in SETTINGS[scale]:
            table = _at(runs, setting)
            rates = _rates_in_words(_at(tuning, setting), table)
            for ops in setting.tested:
                shares = [_share(table, model, sense, ops) for sense in ("strict", "lenient") for model in CURVES]
                shares.append(_share(table, VANILLA, GUESS, ops))
                rows.append((setting.name, str(ops), *map("{:.3f}".format, shares), rates))
            trained = [f"{_share(table, model, IN_TRAINING, setting.train):.3f}" for model in CURVES]
            rows.append((setting.name, f"{setting.train}, training split", *trained, "", "", "", rates))
        senses = [f"{sense}: {model}" for sense in ("every clause right", "some step right") for model in CURVES]
        return pd.DataFrame(rows, columns=["problems", "operations", *senses, "constant answer", "learning rates"])


@printed
def _draw_errors(data: pd.DataFrame, settings: Sequence[Setting]) -> Figure:
    figure = new_figure(PAGE, 5.2)
    for axes, setting in zip(figure.subplots(1, len(settings), squeeze=False)[0], settings, strict=True):
        rows = _at(data, setting)
        errors_by_class(axes, rows[rows["ops"] == setting.test], [*ERRORS, "unnecessary"], MARKS)
        axes.set_xlabel(f"errors in 100 problems of {setting.test} operations")
        axes.label_outer()
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(MARKS))
    seeds = data["seed"].nunique()
    figure.suptitle(
        f"Errors with more operations than in training\nMarker: mean of {seeds} seeds. Line: all seeds.", fontsize=11
    )
    return figure


def _judged(model: "Transformer", trained_on: IGSMTask, ops: int, scale: Scale, known: bool) -> pd.DataFrame:
    """Judge a model's solutions, one row per problem. With `known`, also judge problems of the training split."""
    from ihlab.igsm.choices import choices
    from ihlab.igsm.decoding import judge, solve

    task = replace(trained_on, length=model.cfg.n_ctx)
    problems = problems_like_training(trained_on, task.length, ops, PROBLEMS[scale], TEST_SEED)
    judged = judge(task, problems, solve(model, task, problems)).drop(columns="ops")
    judged["unnecessary"] = judged["unnecessary"] > 0
    judged[GUESS] = _answers(problems) == commonest_answer(trained_on, task.length, ops, OTHER_PROBLEMS[scale])
    judged = judged.join(choices(model, task, problems))
    if known:
        problems = problems_like_training(trained_on, task.length, ops, PROBLEMS[scale], TEST_SEED, "train")
        judged[IN_TRAINING] = judge(task, problems, solve(model, task, problems))["strict"]
    return judged


@lru_cache
def problems_like_training(
    trained_on: IGSMTask, length: int, ops: int, n: int, seed: int, split: Literal["train", "test"] = "test"
) -> Problems:
    """Draw n problems with `ops` operations that differ from training problems only in the number of operations.

    They fit in a training sequence, because later positions were never trained. If letters name only parts of a step
    and training has too few operations for parts, they have no letters. `length` is the length of a test sequence.
    """
    task = replace(trained_on, length=length, split=split)
    rng = np.random.default_rng([seed, ops])
    no_parts = trained_on.letters == "parts" and trained_on.most_ops < PART_OPS
    letters = [task.language.ids[letter] for letter in LETTERS] if no_parts else []
    kept: list[Problems] = []
    while sum(len(problems.size) for problems in kept) < n:
        problems = task.prompts(n, rng, ops)
        alike = (problems.size <= trained_on.length + 1) & ~np.isin(problems.tokens, letters).any(axis=1)
        require(bool(alike.any()), f"Of {n} problems with {ops} operations none is like those of training.")
        kept.append(problems.only(alike))
    columns = [np.concatenate([getattr(problems, field.name) for problems in kept]) for field in fields(Problems)]
    return Problems(*columns).only(slice(n))


@lru_cache
def commonest_answer(trained_on: IGSMTask, length: int, ops: int, problems: int) -> int:
    """Return the most frequent answer token in `problems` other problems that are like the test problems."""
    answers = _answers(problems_like_training(trained_on, length, ops, problems, OTHER_SEED))
    return int(np.bincount(answers).argmax())


def packed(hits: Bool[np.ndarray, " problem"]) -> str:
    """Return hits and misses as a binary literal, which a CSV reader keeps as text."""
    return "0b" + "".join("1" if hit else "0" for hit in hits)


def unpacked(literal: str) -> Bool[np.ndarray, " problem"]:
    """Return the hits and misses of `packed`."""
    return np.array([digit == "1" for digit in literal.removeprefix("0b")])


def _answers(problems: Problems) -> np.ndarray:
    """Return the token of each problem's value. A sequence ends with ANS value EOS."""
    return problems.tokens[np.arange(len(problems.tokens)), problems.size - 2]


Hits = dict[tuple[str, str], Float[np.ndarray, "seed problem"]]
"""Hits by model and measure."""


def _hits(table: pd.DataFrame) -> Hits:
    """Return hits by model and measure: for each i, the mean over the i-th problems of every number of operations.

    The i-th problems are drawn independently, so these means are a sample just like problems of a single number.
    """
    counted = table[table["measure"].isin([*MEASURES, GUESS, *PARTS])]
    return {
        (str(model), str(measure)): np.stack(
            [np.mean([unpacked(literal) for literal in run["hits"]], axis=0) for _, run in rows.groupby("seed")]
        )
        for (model, measure), rows in counted.groupby(["model", "measure"])
    }


def _claims(data: pd.DataFrame, setting: Setting, scale: Scale) -> list[Claim]:
    """Return the claims of one setting."""
    table = _at(data, setting)
    more, seen = _hits(table[table["ops"] == setting.test]), _hits(table[table["ops"] <= setting.train])
    claim = partial(
        Claim,
        setting={"data": setting.name},
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
        statement=35,
        sentence=f"KV shifting attention solves more iGSM problems than vanilla ({setting.name}).",
    )
    reason, note, place = _not_learned(table, setting), "", slug(setting.name)
    if reason:
        found = [paper(id=f"solves_more.untested.{place}", threshold=np.nan, why=reason)]
        lenient = stats.two_way_difference(more[KV, "lenient"], more[VANILLA, "lenient"])
        note = (
            f"; with {setting.test}, which nobody has learned, {MEASURES['lenient']}: "
            f"{lenient.value:+.3f} [{lenient.low:.3f}, {lenient.high:.3f}]"
        )
    else:
        found = [
            _compared(partial(paper, id=f"solves_more.{measure}.{place}"), more, scale, measure, str(setting.test))
            for measure in MEASURES
        ]
    fewer = partial(
        claim,
        id=f"solves_more_in_training_range.{place}",
        sentence=f"KV shifting solves more of those with no more operations than in training, too ({setting.name}).",
    )
    found.append(_compared(fewer, seen, scale, "strict", _and(setting.seen), note))
    # A problem with one operation needs no plan: its only step answers the query.
    planned = _hits(table[table["ops"].between(2, setting.train)])
    for part, name, verb, hits, operations in (
        ("planned", "plans", "plans", planned, _and([ops for ops in setting.seen if ops >= 2])),
        ("looked up", "looks_up", "looks up all that is stated in", seen, _and(setting.seen)),
    ):
        rightly = partial(
            claim,
            id=f"{name}_more.{place}",
            sentence=f"KV shifting {verb} more problems with {operations} operations rightly.",
        )
        found.append(_compared(rightly, hits, scale, part, operations))
    return found + [
        claim(
            id=f"more_than_guess.{kind}.{'kv' if model == KV else 'vanilla'}.{place}",
            sentence=f"With {operations} operations {model} does more than guess ({setting.name}).",
            measure=f"share of problems, {model} less a constant answer: {MEASURES['lenient']}, and the constant is "
            f"right (the commonest answer of {OTHER_PROBLEMS[scale]} other problems, right in "
            f"{hits[model, GUESS].mean():.3f})",
            estimate=stats.two_way_difference(hits[model, "lenient"], hits[model, GUESS]),
        )
        for kind, hits, operations in (("beyond", more, str(setting.test)), ("seen", seen, _and(setting.seen)))
        for model in CURVES
    ]


def _compared(
    claim: "partial[Claim]", hits: Hits, scale: Scale, measure: str, operations: str, note: str = ""
) -> Claim:
    """Compare KV shifting with vanilla. The claim is not tested if neither solves more problems than guessing."""
    kv, vanilla = hits[KV, measure], hits[VANILLA, measure]
    guess = float(hits[VANILLA, GUESS].mean()) if measure in ("lenient", "final") else 0.0
    compared = claim(
        measure=f"share of problems (like training's) with {operations} operations, {KV} less {VANILLA}: "
        f"{(MEASURES | PARTS)[measure]}{note}",
        estimate=stats.two_way_difference(kv, vanilla),
    )
    if not at_floor(kv.mean(), vanilla.mean(), guess=guess):
        return compared
    solved = f"{kv.mean():.2g} and {vanilla.mean():.2g}"
    why = f"Neither solves problems with {operations} operations in this sense ({solved}): nothing can be compared."
    return changed(replace(compared, why=why), compared, scale, CHANGED)


def _not_learned(table: pd.DataFrame, setting: Setting) -> str:
    """Return why more operations than in training test nothing, or "" if some curve has learned its training data."""
    shares = {model: _share(table, model, IN_TRAINING, setting.train) for model in CURVES}
    if max(shares.values()) > LEARNED:
        return ""
    return (
        f"No curve has every clause right in more than half of the training split's problems with {setting.train} "
        f"operations, the most there ({KV}: {shares[KV]:.3f}, {VANILLA}: {shares[VANILLA]:.3f}): what was not learned "
        "says nothing of generalisation to more."
    )


def _at(data: pd.DataFrame, setting: Setting) -> pd.DataFrame:
    return data[data["setting"] == setting.name]


def _runs(data: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the runs that are judged, without the tuning runs."""
    return data[data["kind"] == "run"]


def _share(table: pd.DataFrame, model: str, measure: str, ops: int) -> float:
    """Return the measured fraction of problems with `ops` operations, averaged over seeds."""
    rows = (table["model"] == model) & (table["measure"] == measure) & (table["ops"] == ops)
    return float(table.loc[rows, "share"].mean())


def _rates_in_words(tuning: pd.DataFrame, runs: pd.DataFrame) -> str:
    """Return the rate of each model. Say if it is at an edge of the grid, where a rate beyond it might be better."""
    words = []
    for model in CURVES:
        tried = tuning.loc[tuning["model"] == model, "lr"].unique()
        chosen = float(runs.loc[runs["model"] == model, "lr"].iloc[0])
        end = " (end of the grid)" if len(tried) > 1 and chosen in (tried.min(), tried.max()) else ""
        words.append(f"{model} {chosen:g}{end}")
    return ", ".join(words)


def _and(words: Sequence[object]) -> str:
    *fewer, last = map(str, words)
    return f"{', '.join(fewer)} and {last}" if fewer else last
