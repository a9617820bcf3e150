"""Real text: does the shift help a language model, and does it help at the positions that the paper names?

Models of one to three layers are trained on the sources of the standard library, as byte pairs and as bytes. Each kind
of model uses the rate of a small grid with the lowest held-out bits per byte on a seed that no claim uses. Runs of one
seed see the same sequences in the same order, so differences between two kinds are paired by seed.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ihlab.claims import stats
from ihlab.claims.claim import Claim, changed, slug
from ihlab.claims.experiment import Planned, Scale, Trained
from ihlab.claims.labels import ATTENTION_LABELS
from ihlab.claims.learning_curves import lowest_loss_rates
from ihlab.claims.real_text import held_out, held_out_classes, repeated, text_run
from ihlab.plots.style import PAGE, new_figure, printed
from ihlab.plots.text import CLASSES, gains_by_class, text_curves
from ihlab.sweep.results import first_reach
from tasks import TextTask

if TYPE_CHECKING:
    from ihlab.model.transformer import Transformer
    from ihlab.training.run import Run

PAIRS, BYTES = "byte pairs", "bytes"
LONGER = 4
"""Factor on the steps of the longer vanilla runs, which test whether vanilla also gets a bump."""


@dataclass(frozen=True)
class Arm:
    """A kind of model: its attention, layers and tokens, the factor on its steps, and its seeds."""

    attention: str
    n_layers: int
    tokens: str = PAIRS
    longer: int = 1
    seeds: Literal["few", "usual", "many"] = "usual"

    @property
    def label(self) -> str:
        """Name of the arm in tables and pictures."""
        parts = [ATTENTION_LABELS[self.attention], _layers(self)]
        parts += [self.tokens] if self.tokens == BYTES else []
        parts += [f"{self.longer} times as long"] if self.longer > 1 else []
        return ", ".join(parts)


V1, KV1 = Arm("vanilla", 1, seeds="many"), Arm("kv_shift", 1, seeds="many")
V2, KV2, K2, V_ONLY2 = (Arm(kind, 2) for kind in ATTENTION_LABELS)
V3, KV3 = Arm("vanilla", 3), Arm("kv_shift", 3)
BYTES_V2, BYTES_KV2 = Arm("vanilla", 2, BYTES), Arm("kv_shift", 2, BYTES)
LONG_V2 = Arm("vanilla", 2, longer=LONGER, seeds="few")
FEW_ARMS = (V1, KV1, V2, KV2, K2, V_ONLY2, BYTES_V2, BYTES_KV2, LONG_V2)
ARMS: dict[Scale, tuple[Arm, ...]] = {
    "smoke": FEW_ARMS, "laptop": FEW_ARMS, "gpu": (*FEW_ARMS, V3, KV3), "paper": (*FEW_ARMS, V3, KV3),
}  # fmt: skip
PAIRED = ((KV1, V1), (KV2, V2), (KV3, V3), (BYTES_KV2, BYTES_V2))
"""Pairs of KV shifting and vanilla with the same depth and tokens."""

SEEDS: dict[str, dict[Scale, range]] = {
    "few": {"smoke": range(2), "laptop": range(3), "gpu": range(3), "paper": range(3)},
    "usual": {"smoke": range(2), "laptop": range(5), "gpu": range(5), "paper": range(3)},
    "many": {"smoke": range(2), "laptop": range(9), "gpu": range(5), "paper": range(3)},
}
MORE_SEEDS = "2026-11-26: five seeds left it undecided, so four more were added"
"""When and why one layer got more seeds than first declared."""
TUNING_SEED = 100
RATES: dict[Scale, tuple[float, ...]] = {
    "smoke": (4e-3,), "laptop": (4e-3, 8e-3, 1.6e-2), "gpu": (5e-4, 1e-3, 2e-3), "paper": (2.5e-4, 5e-4, 1e-3),
}  # fmt: skip

BUMP = 0.25
"""Nats that a model must save on the second copy of a text to count as having an induction head."""
CONTEXT = 4
"""Bytes of context by which positions are classified. The table also has 2 and 3."""
CONTEXTS = (2, 3, 4)
ROWS = {"smoke": 8, "laptop": 256, "gpu": 1024, "paper": 1024}
"""Number of held-out sequences for a finished model. Checkpoints are measured on a quarter of them."""
EARLY = 0.02
"""Initial fraction of the longest run that the plot of bits per byte leaves out, because the curves start so high."""
TUNING, RUN = "tuning", "run"


def planned(arm: Arm, lr: float, seed: int, scale: Scale) -> Planned:
    """Plan a run of an arm. Longer runs have the same total number of evaluations."""
    run = text_run(scale)
    assert isinstance(run.task, TextTask)
    task = replace(run.task, vocab_size=256) if arm.tokens == BYTES else run.task
    model = run.model.replace(attention=arm.attention, n_layers=arm.n_layers, d_vocab=task.vocab_size)
    steps, every = run.steps * arm.longer, run.eval_every * arm.longer
    name = f"text {arm.label} {lr:g} {seed}".replace(", ", " ").replace(" ", "-").lower()
    config = run.replace(name=name, task=task, model=model, lr=lr, seed=seed, steps=steps, eval_every=every)
    return Planned(arm.label, config)


class Text:
    """Bits per byte, the induction bump and the positions of the gain, for each kind of model."""

    name = "text"

    def runs(self, scale: Scale) -> list[Planned]:
        """Plan the tuning runs: every rate for every arm except the longer ones."""
        return [planned(arm, lr, TUNING_SEED, scale) for arm in ARMS[scale] if arm.longer == 1 for lr in RATES[scale]]

    def follow(self, trained: Trained, scale: Scale) -> list[Planned]:
        """Plan the runs of the claims, each arm at its rate with the lowest held-out bits per byte."""
        rates = lowest_loss_rates(trained)
        return [
            planned(arm, rates[replace(arm, longer=1).label], seed, scale)
            for arm in ARMS[scale]
            for seed in SEEDS[arm.seeds][scale]
        ]

    def gather(self, trained: Trained, scale: Scale) -> pd.DataFrame:
        """Gather one row per checkpoint of the runs of the claims, and one for the end of each tuning run.

        - kind ("tuning" or "run"), arm, lr, seed, n_params, step, tokens (seen in training);
        - bits_per_byte, in_context (nats), on held-out sequences that are the same for all arms with the same tokens;
        - repeat_gain (nats), and repeat_attention, the maximum over heads;
        - at the end, for contexts of 2, 3 and 4 bytes: bits_eligible_4, ..., the bits per byte (of all bytes) that are
          spent at positions of a class, and positions_eligible_4, ..., the fraction of positions in this class;
        - for arms that learn alpha and beta: own_key_own_value, ..., the number of key/value heads in each cell of
          Table 5 by absolute values, and raw_own_key_own_value, ..., as the paper counts; alpha_sum and beta_sum, the
          mean over heads of |alpha1 + alpha2| and |beta1 + beta2|, 1 at the start; alpha_opposed and beta_opposed, the
          fraction of heads whose two weights have opposite signs. Only the raw counts depend on the sign of W_K or W_V.
        """
        return pd.DataFrame([row for arm, run in trained for row in _rows(arm, run, scale)])

    def claims(self, data: pd.DataFrame, scale: Scale) -> list[Claim]:
        """Judge the paper's sentences and our own questions. Differences are between runs with the same seed.

        If arms got more seeds after the runs, the claim also keeps its verdict by the declared seeds.
        """
        declared = data["seed"].isin([TUNING_SEED, *SEEDS["usual"][scale]])
        claims = zip(self._judged(data, scale), self._judged(data[declared], scale), strict=True)
        return [_with_first(now, then.first or then, scale) for now, then in claims]

    def _judged(self, data: pd.DataFrame, scale: Scale) -> list[Claim]:
        """Judge every claim by all seeds in the table."""
        claim = partial(Claim, declared="2026-11-22", seeds=len(SEEDS["usual"][scale]))
        own = partial(claim, of_paper=False)
        return [
            *(_models_better(data, claim, *pair) for pair in PAIRED if len(_at_end(data, pair[0], "bits_per_byte"))),
            *_where(data, own, KV2, V2),
            *_where_longer(data, own),
            *_bump(data, scale, own),
            _diagonal(data, claim),
            own(
                id="key_matters_more",
                source="Section 4.5, Tables 9 and 10",
                sentence="The key shift matters more than the value shift: with it alone text costs less.",
                measure="bits per byte, K only less V only, two layers",
                estimate=stats.mean(_gap(data, K2, V_ONLY2)),
                threshold=0.0,
                right_side="below",
            ),
        ]

    def summary(self, data: pd.DataFrame, scale: Scale) -> pd.DataFrame:
        """Return what text costs with each arm, where its gain over two vanilla layers lies, the bump and the rate."""
        ends = _ends(data).groupby("arm", sort=False)
        costs, rates, rows = ends["bits_per_byte"].mean(), ends["lr"].first(), []
        for arm in ARMS[scale]:
            gain = _gained(data, arm, V2).mean()
            compared = arm.n_layers == 2 and arm.tokens == PAIRS and arm != V2
            copied = f"{gain['whole']:.3f} ({gain['there'] / gain['whole']:.0%})" if compared else ""
            rate = f"{rates[arm.label]:g}{_edge(data, rates[arm.label])}"
            rows.append((arm.label, f"{costs[arm.label]:.3f}", copied, _onset_in_words(data, arm), rate))
        gained = "gain over two vanilla layers (of it where text can be copied)"
        onset = f"thousand tokens until a second copy saves {BUMP} nats a token"
        return pd.DataFrame(rows, columns=["model", "bits per byte", gained, onset, "learning rate"])

    @printed
    def draw(self, data: pd.DataFrame, scale: Scale) -> Figure:
        """Draw the bump, the bits per byte, and the gain by class of positions."""
        figure = new_figure(PAGE, 7.2)
        panels = figure.subplot_mosaic([["bump", "cost"], ["where", "where"]])
        bump, cost, where = panels["bump"], panels["cost"], panels["where"]
        runs = data[data["kind"] == RUN]
        lines = [arm.label for arm in (V1, KV1, V2, KV2, V3, KV3) if arm in ARMS[scale]]
        text_curves(bump, runs, "repeat_gain", lines)
        bump.axhline(BUMP, color="0.6", lw=0.8, ls=":")
        bump.set(title="the induction bump", ylabel="saved by reading the text before\n(nats a token)")
        bump.legend(fontsize=9)
        text_curves(cost, runs[runs["tokens"] > EARLY * runs["tokens"].max()], "bits_per_byte", lines)
        cost.set(title="what text costs", ylabel="held-out bits per byte")
        gains_by_class(where, _gains(data), CONTEXT)
        unit = f"{text_run(scale).task.vocab_size} byte pairs"
        figure.suptitle(f"Real text ({scale} scale): the standard library's sources, {unit}, a line a seed")
        return figure


def _rows(arm: str, run: "Run", scale: Scale) -> list[dict[str, Any]]:
    """Return the rows of one run."""
    config, n_params = run.config, (run.done or {}).get("n_params")
    tuning = config.seed == TUNING_SEED
    facts = {
        "kind": TUNING if tuning else RUN, "arm": arm, "lr": config.lr, "seed": config.seed, "n_params": n_params,
    }  # fmt: skip
    if run.diverged or not run.checkpoints:
        return [{**facts, "step": np.nan}]
    last = run.checkpoints[-1]
    return [
        {**facts, "step": step, "tokens": step * config.batch_size * config.task.length}
        | _measured(run, step, ROWS[scale] if step == last else max(8, ROWS[scale] // 4), step == last and not tuning)
        for step in ([last] if tuning else run.checkpoints)
    ]


def _measured(run: "Run", step: int, n_rows: int, whole: bool) -> dict[str, float]:
    """Measure a checkpoint, and its heads if it learns alpha and beta. With `whole`, also by class of positions."""
    from ihlab.measure import text

    model, task = run.model(step), run.config.task
    assert isinstance(task, TextTask)
    (batch, n_bytes), twice = held_out(task, n_rows), repeated(task, max(4, n_rows // 4))
    losses = text.token_losses(model, batch.inputs, batch.targets)
    row = {
        "bits_per_byte": text.bits_per_byte(losses, n_bytes),
        "in_context": text.in_context_score(losses),
        "repeat_gain": text.repeat_gain(text.token_losses(model, twice.inputs, twice.targets), twice.period),
        "repeat_attention": float(text.repeat_attention(model, twice).max()),
    }
    if whole:
        for context in CONTEXTS:
            classes = held_out_classes(task, n_rows, context)
            for value, name in text.CLASSES.items():
                of_class = classes == value
                spent = text.bits_per_byte(np.where(of_class, losses, 0.0), n_bytes)
                row |= {f"bits_{name}_{context}": spent, f"positions_{name}_{context}": float(of_class.mean())}
    if model.cfg.learns_both:
        row |= _heads(model)
    return {name: round(value, 6) for name, value in row.items()}


def _heads(model: "Transformer") -> dict[str, float]:
    """Return Table 5 of one model by both counts, and the sums and opposite signs of its heads' weights."""
    from ihlab.interp.shifts import quadrant_table, shift_report

    cells, heads = quadrant_table([model]).set_index(["key", "value"]), shift_report(model)
    row: dict[str, float] = {}
    for prefix, count in (("", "gauge_free"), ("raw_", "raw")):
        row |= {f"{prefix}{key}_key_{value}_value": int(cells[count][key, value]) for key, value in cells.index}
    for name in ("alpha", "beta"):
        own, previous = heads[f"{name}1"], heads[f"{name}2"]
        row |= {
            f"{name}_sum": float((own + previous).abs().mean()),
            f"{name}_opposed": float((own * previous < 0).mean()),
        }
    return row


def _ends(data: pd.DataFrame) -> pd.DataFrame:
    """Return the last row of each run of the claims."""
    runs = data[data["kind"] == RUN]
    return runs.groupby(["arm", "seed"], sort=False).tail(1)


def _at_end(data: pd.DataFrame, arm: Arm, column: str) -> "pd.Series[float]":
    """Return a column's final value for each seed of an arm."""
    ends = _ends(data)
    return ends[ends["arm"] == arm.label].set_index("seed")[column].sort_index().astype(float)


def _gap(data: pd.DataFrame, one: Arm, other: Arm, column: str = "bits_per_byte") -> list[float]:
    """Return a column's final difference, `one` - `other`, for each seed that both arms have."""
    a, b = _at_end(data, one, column).align(_at_end(data, other, column), join="inner")
    return (a - b).tolist()


def _with_first(now: Claim, first: Claim, scale: Scale) -> Claim:
    """Return a claim with its declared version as `first`, if it has more seeds or was changed for another reason."""
    if now.first:
        return replace(now, first=first)
    return changed(now, first, scale, MORE_SEEDS) if now.seeds > first.seeds else now


def _models_better(data: pd.DataFrame, claim: "partial[Claim]", shifted: Arm, plain: Arm) -> Claim:
    gap = _gap(data, shifted, plain)
    model = f"{_layers(shifted)}, {shifted.tokens}"
    return claim(
        id=f"better_on_text.{slug(model)}",
        setting={"model": model},
        statement=21,
        source="Section 4.3, Figure 4a",
        sentence=f"KV shifting models text better than vanilla attention ({model}).",
        measure="held-out bits per byte at the end, KV shifting less vanilla, by seed",
        estimate=stats.mean(gap),
        threshold=0.0,
        right_side="below",
        seeds=len(gap),
    )


WHERE = f"positions whose last {CONTEXT} bytes stand earlier in the row before what comes next"
"""Positions that can be copied."""


def _gained(data: pd.DataFrame, arm: Arm, plain: Arm) -> pd.DataFrame:
    """Return an arm's gain over another in bits per byte, one row per seed that both have.

    - whole: the whole gain; there: the gain at positions that can be copied;
    - alike: what `there` would be if every bit of the other arm had become cheaper by the same fraction.
    """
    columns = ["bits_per_byte", f"bits_eligible_{CONTEXT}"]
    ends = _ends(data).set_index("seed")
    one, other = (ends.loc[ends["arm"] == each.label, columns].astype(float) for each in (arm, plain))
    one, other = one.align(other, join="inner", axis="index")
    whole, there = (other[column] - one[column] for column in columns)
    return pd.DataFrame({"whole": whole, "there": there, "alike": other[columns[1]] / other[columns[0]] * whole})


def _where(data: pd.DataFrame, own: "partial[Claim]", shifted: Arm, plain: Arm) -> list[Claim]:
    """Judge whether the gain lies at positions that can be copied, more than their fraction of the bits explains."""
    gained = _gained(data, shifted, plain)
    return [
        own(
            id="half_of_gain_copied",
            source="beside the abstract: KV shifting enhances induction",
            sentence="At least half of the gain of KV shifting lies where induction could make it (two layers, "
            "byte pairs).",
            measure=f"gain in bits per byte at {WHERE}, less half of the whole gain",
            estimate=stats.mean((gained["there"] - gained["whole"] / 2).tolist()),
            threshold=0.0,
        ),
        own(
            id="more_than_alike",
            source="beside the abstract",
            sentence="More of the gain lies there than if every bit had become cheaper alike.",
            measure=f"gain in bits per byte at {WHERE}, less their share of vanilla's bits times the whole gain",
            estimate=stats.mean((gained["there"] - gained["alike"]).tolist()),
            threshold=0.0,
        ),
    ]


def _where_longer(data: pd.DataFrame, own: "partial[Claim]") -> list[Claim]:
    """Judge at which positions the gain of longer training lies. It is as large as the gain of KV shifting."""
    kv, longer = (_gained(data, arm, V2) for arm in (KV2, LONG_V2))
    more = (kv["there"] / kv["whole"]).sub(longer["there"] / longer["whole"]).loc[longer.index]
    asked = partial(
        own, source="beside the abstract, asked after the runs", declared="2026-11-26", seeds=len(longer), threshold=0.0
    )
    return [
        asked(
            id="more_than_longer_training",
            sentence="More of KV shifting's gain lies at positions that can be copied than of the gain of longer "
            "training.",
            measure=f"fraction of the gain in bits per byte that lies at {WHERE}, by seed: KV shifting less vanilla "
            f"trained {LONGER} times as long, two layers",
            estimate=stats.mean(more.tolist()),
        ),
        asked(
            id="longer_training_more_than_alike",
            sentence="More of the gain of longer training lies there than if every bit had become cheaper alike.",
            measure=f"gain of vanilla trained {LONGER} times as long in bits per byte at {WHERE}, less their share of "
            "vanilla's bits times the whole gain, by seed",
            estimate=stats.mean((longer["there"] - longer["alike"]).tolist()),
        ),
    ]


def _onsets(data: pd.DataFrame, arm: Arm) -> list[float]:
    """Return the number of training tokens after which each seed saves `BUMP` nats on a second copy; inf: never."""
    runs = data[(data["kind"] == RUN) & (data["arm"] == arm.label)]
    return [first_reach(run["tokens"], run["repeat_gain"], BUMP) for _, run in runs.groupby("seed")]


HAVE_THE_BUMP: tuple[tuple[Arm, str, Literal["above", "below"], str, str], ...] = (
    (
        KV1, "kv1_enough", "above", "section 3.1 says it of a construction",
        "One layer of KV shifting is enough for induction on text.",
    ),
    (
        V1, "vanilla1_not_enough", "below", "section 3.1 says it of a construction",
        "One layer of vanilla attention is not.",
    ),
    (
        LONG_V2, "vanilla2_bump_later", "above", "beside section 3.2",
        "Two vanilla layers have the bump in four times the tokens, at the rate chosen for one.",
    ),
    (BYTES_KV2, "bump_on_bytes", "above", "beside section 3.2", "KV shifting has the bump on bytes, too."),
)  # fmt: skip
"""Arm, id, the claimed side of the bump, source and sentence."""


def _bump(data: pd.DataFrame, scale: Scale, own: "partial[Claim]") -> list[Claim]:
    """Judge the onset of the bump, and which models have one."""
    runs = data[data["kind"] == RUN]
    horizon = {arm: float(runs.loc[runs["arm"] == arm.label, "tokens"].max()) for arm in (V2, V3)}
    at_end = {arm: _at_end(data, arm, "repeat_gain") for arm in (V1, V2, KV1, LONG_V2, BYTES_KV2)}
    speeds = [
        own(
            id="forms_heads_earlier" + ("_3_layers" if kv == KV3 else ""),
            source="section 3.2 says it of a toy task",
            sentence=f"KV shifting forms induction heads earlier, on text ({layers}).",
            measure=f"training tokens until a second copy of a text saves {BUMP} nats a token, KV shifting / vanilla",
            estimate=stats.ratio_of_times(_onsets(data, kv), _onsets(data, vanilla), horizon[vanilla]),
            threshold=1.0,
            right_side="below",
        )
        for kv, vanilla, layers in ((KV2, V2, "two layers"), (KV3, V3, "three layers"))
        if not _at_end(data, kv, "repeat_gain").empty
    ]
    ends = {
        arm: own(
            id=name,
            source=source,
            sentence=sentence,
            measure=f"nats a token that a second copy of a text saves at the end, less {BUMP}, {arm.label}",
            estimate=stats.mean((at_end[arm] - BUMP).tolist()),
            threshold=0.0,
            right_side=side,
            seeds=len(at_end[arm]),
        )
        for arm, name, side, source, sentence in HAVE_THE_BUMP
    }
    if not any((at_end[arm] > BUMP).any() for arm in (V1, V2, LONG_V2)):
        ends[V1] = _without_control(ends[V1], scale)
    return [*speeds, *ends.values()]


def _without_control(claim: Claim, scale: Scale) -> Claim:
    """Return the claim that one layer is too few as not tested: two layers have no bump here either."""
    why = "Nor are two at this scale, four times as long or not: nothing shows that depth is what one layer lacks."
    untested = Claim(
        id=claim.id,
        source=claim.source,
        sentence=claim.sentence,
        declared=claim.declared,
        why=why,
        of_paper=claim.of_paper,
    )
    when = "2026-11-23: no model without the shift has the bump, so there is no control"
    return changed(untested, claim, scale, when)


def _diagonal(data: pd.DataFrame, claim: "partial[Claim]") -> Claim:
    """Judge whether most heads take their key and value from the same token, as in the paper's Table 5."""
    same = _at_end(data, KV2, "own_key_own_value") + _at_end(data, KV2, "previous_key_previous_value")
    other = _at_end(data, KV2, "own_key_previous_value") + _at_end(data, KV2, "previous_key_own_value")
    return claim(
        id="diagonal_dominates",
        source="Appendix F, Table 5",
        sentence="In most heads of a language model key and value are of the same token: the diagonal dominates.",
        measure="share of key/value heads with |alpha1| > |alpha2| and |beta1| > |beta2|, or with neither (two layers)",
        estimate=stats.mean((same / (same + other)).tolist(), stats.SHARE),
        threshold=0.5,
    )


def _gains(data: pd.DataFrame) -> pd.DataFrame:
    """Return each arm's gain over vanilla with the same depth and tokens, by context, class of positions and seed."""
    rows = [
        (arm.label, context, name, gain)
        for arm, plain in (*PAIRED, (LONG_V2, V2))
        for context in CONTEXTS
        for name in CLASSES
        for gain in _gap(data, plain, arm, f"bits_{name}_{context}")
    ]
    return pd.DataFrame(rows, columns=["pair", "context", "positions", "gain"])


def _layers(arm: Arm) -> str:
    return "1 layer" if arm.n_layers == 1 else f"{arm.n_layers} layers"


def _edge(data: pd.DataFrame, rate: float) -> str:
    """Return whether a learning rate is at an edge of the grid."""
    grid = data.loc[data["kind"] == TUNING, "lr"]
    edges = {float(grid.max()): " (highest of the grid)", float(grid.min()): " (lowest)"} if len(set(grid)) > 1 else {}
    return edges.get(rate, "")


def _onset_in_words(data: pd.DataFrame, arm: Arm) -> str:
    onsets = np.array(_onsets(data, arm))
    if np.isinf(onsets).all():
        return "never"
    few = "" if np.isfinite(onsets).all() else f" ({np.isfinite(onsets).sum()} of {len(onsets)} seeds get there)"
    middle = float(np.median(onsets))  # never counts as later than any
    return (f"{middle / 1000:.0f}" if np.isfinite(middle) else "not by most") + few
