"""Is KV shifting faster at every width?

Figure 1a and the study `robustness` measure the speed-up at width 32 only. The paper trains at width 1024 (section
3.2, "a relatively relaxed setting"). This study trains one layer of KV shifting and two vanilla layers at widths 32 to
256. Task, vocabulary, sequences and the four heads are Figure 1a's, so heads and MLP grow with the width. Positions are
learned, the scheme with the smallest speed-up in `robustness`.

A pilot on seed 99 gave step ratios of .2 to .3, so the prediction is that all four claims hold. The warm-up is 20 steps
instead of 100, because the wide models learn within 100. Each model tries three learning rates, chosen on the tuning
seeds. KV shifting's grid ends before its fastest rates, because these are unsafe: at width 256 both tuning seeds
learned at .032, within 30 steps, but three of the first seven seeds of the claims did not within 500. So its grid ends
at half of that, and its claims have new seeds. At width 256 vanilla's next rate, .008, is left out to save time: it had
not learned in 284 steps. Vanilla has four seeds and KV shifting eight, whose runs cost a tenth. Measures and
thresholds were fixed before the runs.
"""

from ihlab.plots.views import dots
from ihlab.recipes.induction import DEPTHS, KV1, MUCH_FASTER, V2, figure1_run
from ihlab.study.ask import Ask, Cell, claim_id, ratio
from ihlab.study.rates import ACCURACY
from ihlab.study.study import Scale, Study, Tuned, cells, wide
from ihlab.training.config import RunConfig

WIDTHS = (32, 64, 128, 256)
SMALL, MIDDLE, LARGE = (2e-3, 4e-3, 8e-3), (4e-3, 8e-3, 1.6e-2), (8e-3, 1.6e-2, 3.2e-2)
RATES: dict[str, dict[int, tuple[float, ...]]] = {
    KV1: dict(zip(WIDTHS, (LARGE, LARGE, MIDDLE, MIDDLE), strict=True)),
    V2: dict(zip(WIDTHS, (LARGE, MIDDLE, SMALL, SMALL[:2]), strict=True)),
}
"""The learning rates of each model at each width."""


def config(cell: Cell, scale: Scale) -> RunConfig:
    """Return Figure 1a's config at a width. Training stops at 90% accuracy."""
    run, width = figure1_run(scale), cell["width"]
    sizes = {"d_model": width, "d_head": None, "d_mlp": None}  # None: in proportion to the width
    run = run.replace(
        model=run.model.replace(**sizes, positional="learned", **DEPTHS[cell["variant"]]),
        schedule="constant",
        compile=False,
        checkpoints=2,
        stop_at_accuracy=ACCURACY,
    )
    return run if scale == "smoke" else run.replace(steps=500, warmup=20, eval_every=5, eval_rows=256)


def faster(width: int) -> Ask:
    """Ask whether KV shifting has Figure 1a's speed-up at a width."""
    return Ask(
        claim_id("faster", str(width)),
        "KV shifting attention converges much faster than two-layer transformers with learned positions, each at its "
        f"own learning rate (width {width}).",
        ratio({"variant": KV1, "width": width}, {"variant": V2, "width": width}),
        below=MUCH_FASTER,
        setting={"width": str(width)},
        statement=9,
        source="an objection to Figure 1a; rates and seeds of KV shifting changed after its first runs",
    )


WIDTH = Study(
    name="width",
    heading="Widths: is the shift faster from 32 to 256?",
    title="Figure 1a's models at four widths, with learned positions",
    caption="Dot: a seed. Bar: the median. Each model at its own learning rate.",
    declared="2026-11-27",
    cells=cells(variant=(KV1, V2), width=WIDTHS),
    smoke_cells=cells(variant=(KV1, V2), width=WIDTHS[:1]),
    config=config,
    tuned=Tuned(rates=lambda cell: RATES[cell["variant"]][cell["width"]], smoke=(1e-3, 4e-3)),
    seeds=lambda cell: range(8, 16) if cell["variant"] == KV1 else range(4),
    asks=tuple(map(faster, WIDTHS)),
    view=dots("width", colors="variant"),
    summary_columns=wide("width", "variant"),
)
