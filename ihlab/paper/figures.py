"""The one list of figures: the page of results, `ihlab reproduce`, its help and the guide are made from it."""

from typing import NamedTuple


class Figure(NamedTuple):
    """A figure or table.

    - `title`: a question. The part before a colon is the text of links to the figure;
    - `study`: "module:name" of its experiment in `ihlab.paper.studies`;
    - `by_default`: whether `ihlab reproduce` makes it if no figure is named.
    """

    title: str
    study: str
    by_default: bool = False


FIGURES = {
    "figure1a": Figure("Figure 1a: how fast is induction learned?", "figure1:FIGURE1A", by_default=True),
    "figure1a_learned": Figure(
        "Figure 1a, learned positions: how fast is induction learned?", "figure1:FIGURE1A_LEARNED"
    ),
    "figure1b": Figure("Figure 1b: can narrow models learn induction?", "figure1:FIGURE1B", by_default=True),
    "figure1b_learned": Figure("Figure 1b, learned positions: can narrow models learn it?", "figure1:FIGURE1B_LEARNED"),
    "figure2": Figure("Figure 2: where does gradient descent lead?", "figure2:FIGURE2", by_default=True),
    "figure4": Figure("Figure 4: which learning rates work on text?", "figure4:FIGURE4"),
    "figure7": Figure("Figure 7: do both halves matter, and longer windows?", "variants:FIGURE7"),
    "figure8": Figure("Figure 8: how many hops can a model follow?", "hops:FIGURE8", by_default=True),
    "figure8_learned": Figure("Figure 8, learned positions: how many hops?", "hops:FIGURE8_LEARNED"),
    "figure9": Figure("Figure 9: does the shift help with 3-grams?", "figure9:FIGURE9", by_default=True),
    "figure10": Figure("Figure 10: do more controls help?", "variants:FIGURE10"),
    "figure11": Figure("Figure 11: does shifting queries help?", "variants:FIGURE11"),
    "table4": Figure("Table 4: are more iGSM problems solved?", "table4:TABLE4"),
    "table5": Figure("Table 5: what do alpha and beta become?", "table5:TABLE5", by_default=True),
    "table15": Figure("Table 15: does the shift help latent attention?", "variants:TABLE15"),
    "basin_map": Figure("Which starts lead to induction?", "basin_map:BASIN_MAP"),
    "robustness": Figure("Which settings change the speed?", "robustness:ROBUSTNESS"),
    "width": Figure("Widths: is the shift faster from 32 to 256?", "width:WIDTH"),
    "many_heads": Figure("Do more heads learn faster?", "many_heads:MANY_HEADS"),
    "fusion": Figure("Fusion or decoupling: what makes vanilla slow?", "fusion:FUSION"),
    "period": Figure("Is training on one period enough?", "period:PERIOD"),
    "formation_laws": Figure("How do steps grow with the length?", "formation_laws:FORMATION_LAWS"),
    "lengths": Figure("What happens on longer sequences?", "lengths:LENGTHS"),
    "lengths_16": Figure("Does the shift help on longer sequences?", "lengths:LENGTHS_16"),
    "untrained_positions": Figure("What does decay do to untrained positions?", "lengths:UNTRAINED_POSITIONS"),
    "packing": Figure("Packed documents: does a leaking shift matter?", "packing:PACKING"),
    "by_position": Figure("Is induction by position learned?", "by_position:BY_POSITION"),
    "mqar": Figure("MQAR: does the shift help?", "mqar:MQAR"),
    "checker": Figure("Which half recalls, which checks?", "checker:CHECKER"),
    "parallel": Figure("Parallel inductions: do narrow models find fewer?", "parallel:PARALLEL"),
    "pairs": Figure("Which shift gives two-token induction?", "pairs:PAIRS"),
    "depo": Figure("Depo: is the key tap what gives Canon its depth?", "depo:DEPO"),
    "saved_layer": Figure("Is the shift worth one layer?", "hops:SAVED_LAYER"),
    "text": Figure("Does the shift help on text?", "text:TEXT"),
    "flatness": Figure("Flatness: is the loss on text flatter with the shift?", "flatness:FLATNESS"),
    "shifts": Figure("Which token shift is fastest?", "shifts:SHIFTS"),
    "elsewhere": Figure("Does shifting elsewhere help?", "variants:ELSEWHERE"),
    "idle_layers": Figure("Which attention becomes idle beside convolutions?", "idle_layers:IDLE_LAYERS"),
    "recurrences": Figure("Recurrences: induction by state or convolution?", "recurrences:RECURRENCES"),
    "zoo": Figure("How fast are attention variants?", "variants:ZOO"),
    "attribution": Figure("Which attribution methods see the circuit?", "attribution:ATTRIBUTION"),
    "proofs": Figure("Proofs: when is a model right on every sequence?", "proofs:PROOFS"),
    "worst_case": Figure("Worst case: what does a sampled accuracy hide?", "worst_case:WORST_CASE"),
}
"""Every figure by its name, in the order of the page of results."""

THEMES = {
    "figure1a": "The paper's figures and tables",
    "basin_map": "What makes induction fast",
    "lengths": "Longer sequences and other tasks",
    "shifts": "Other token shifts",
    "attribution": "Methods and proofs",
}
"""Headings in the page's list of figures. The key is the first figure below the heading."""


def theme(name: str) -> str:
    """Return the heading below which the page of results lists an experiment."""
    until_it = list(FIGURES)[: list(FIGURES).index(name) + 1] if name in FIGURES else []
    return next((THEMES[each] for each in reversed(until_it) if each in THEMES), "Others")


def title(name: str) -> str:
    """Return the heading of an experiment's page. A name outside `FIGURES`, "my_study", becomes "My study"."""
    return FIGURES[name].title if name in FIGURES else name.replace("_", " ").capitalize()


def link_text(name: str) -> str:
    """Return the text of links to an experiment, the part of its title before a colon: "Figure 1a"."""
    return title(name).partition(":")[0]
