"""Which half of the shift checks a claim, and which recalls? (Section 3.3, equations 11 and 12.)

The paper calls the key shift a meta-learner: it infers what follows the current token (equation
11). It calls the value shift a checker: it infers what came before a guessed token, so that an MLP
can compare this with the real token before it (equation 12). It has no experiment.
`tasks.CheckerTask` asks for the two halves of the checker separately: *recall* of the token next to
a copy of the current one, and the *check* of a claimed pair, yes or no. With asked="second", the
token before is needed. Equation 12 then predicts that one layer of V only recalls and checks, and
that K only and vanilla do neither. With asked="first", the token after is needed, and equation 11
predicts the same of K only.

An accuracy of checks is the mean over true and false claims, so it is 1/2 for a model that always
says yes. Each variant has its own learning rate in each task, the one with the lowest loss on seeds
that no claim uses. Measures and thresholds were fixed before the runs. The setting was chosen on
two other seeds.
"""

from ihlab.model.config import ModelConfig
from ihlab.plots.views import dots
from ihlab.recipes.labels import ATTENTION_LABELS, K_ONLY, KV, V_ONLY, VANILLA
from ihlab.study import stats
from ihlab.study.ask import Ask, difference, on_table
from ihlab.study.study import Grid, Run, Study, Tuned
from ihlab.training.config import RunConfig
from tasks import CheckerTask
from tasks.checker import FALSE, RECALL, TRUE

GAP = 0.2
"""Difference of accuracies above which one variant is better than another."""


TASK = CheckerTask()
MODEL = ModelConfig(n_layers=1, d_model=32, n_heads=4, d_vocab=TASK.vocab_size, n_ctx=TASK.length)
GRID = Grid(
    RunConfig(
        task=TASK, model=MODEL, steps=600, batch_size=32, warmup=20, eval_every=50, eval_growth=0.1, eval_rows=512,
        checkpoints=2,
    ),
    {
        "asked": {asked: {"asked": asked} for asked in ("second", "first")},
        "variant": {label: {"attention": name} for name, label in ATTENTION_LABELS.items()},
    },
)  # fmt: skip


def measure(run: Run) -> dict[str, float]:
    """Return the accuracies of recall and of checks at the end of training."""
    last = run.metrics.iloc[-1]
    recall, true, false = (
        float(last[f"accuracy_question_{kind}"]) for kind in (RECALL, TRUE, FALSE)
    )
    return {"recall": recall, "check": (true + false) / 2, "true": true, "false": false}


SIDES = {"second": "of the token before", "first": "of the token after"}
"""What a task asks for, in the words of the claims."""


def better(
    id: str,
    asked: str,
    what: str,
    one: str,
    other: str,
    sentence: str,
    threshold: float = GAP,
    equation: int = 0,
) -> Ask:
    """Ask whether one variant has a higher accuracy than another."""
    guess = 0.5 if what == "check" else 0.0
    high, low = ({"asked": SIDES[asked], "variant": name} for name in (one, other))
    return Ask(
        id,
        sentence,
        on_table(
            lambda data: data.replace({"asked": SIDES}),
            difference(high, low, what, stats.DIFFERENCE, guess),
        ),
        above=threshold,
        source=f"section 3.3, equation {equation}" if equation else "related to section 3.3",
        of_paper=equation > 0,
        statement=18 if equation else None,
    )


CHECKER = Study(
    name="checker",
    heading="Which half recalls, which checks?",
    title="One layer: which half of the shift recalls a token's neighbour, and checks a claimed pair?",
    caption="Asked: the token before (second, equation 12) or after (first, equation 11). Dotted: guessing a check.",
    declared="2026-11-27",
    cells=GRID.cells,
    config=GRID,
    stacked=True,
    tuned=Tuned(rates=(4e-3, 8e-3, 1.6e-2), by="loss", measure=measure),
    measure=measure,
    asks=(
        better("v_is_checker", "second", "check", V_ONLY, VANILLA, "V shifting can be seen as a checker.", equation=12),
        better(
            "checker_needs_values", "second", "check", V_ONLY, K_ONLY,
            "The checker needs the shifted values: shifted keys do not suffice.",
        ),
        better(
            "kv_as_v", "second", "check", KV, V_ONLY, "KV shifting checks as well as V only, within .1.", threshold=-0.1
        ),
        better(
            "k_is_meta_learner", "first", "recall", K_ONLY, VANILLA, "K shifting can be seen as a meta-learner.",
            equation=11,
        ),
        better(
            "meta_learner_needs_keys", "first", "recall", K_ONLY, V_ONLY,
            "The meta-learner needs the shifted keys: shifted values do not suffice.",
        ),
        better(
            "reverse_order_by_keys", "first", "check", K_ONLY, VANILLA,
            "Shifted keys check a pair that is claimed in reverse order.",
        ),
    ),
    summary_columns=("recall", "check"),
    view=dots(
        "variant", ("recall", "check"), panels="asked", xlabel="accuracy after training", lines=(0.5,),
        xlim=(-0.04, 1.04),
    ),
)  # fmt: skip
