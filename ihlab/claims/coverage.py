"""The statements of the paper, one row each: which figure answers it with which verdicts, or why none does.

Verdicts are read from stored claims, so the page cannot disagree with the figures.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from ihlab.claims.ledger import Folder, title
from ihlab.claims.markdown import MARKS, escaped, table

FIGURE, EXACT, OPEN, OUT = "figure", "exact", "not answered yet", "out of reach"
KINDS = (FIGURE, EXACT, OPEN, OUT)
"""How a statement is answered."""


@dataclass(frozen=True)
class Statement:
    """A statement of the paper.

    - `where`: its place in the paper;
    - `figure`, `words`: the claims that answer it, those of a figure whose sentences contain the words; "" for none;
    - `told`: for a statement without a figure, the answer or the reason; beside a figure, a remark;
    - `kind`: one of `KINDS`.
    """

    sentence: str
    where: str
    figure: str = ""
    words: str = ""
    told: str = ""
    kind: str = FIGURE


def _exact(sentence: str, where: str, told: str) -> Statement:
    return Statement(sentence, where, told=told, kind=EXACT)


def _open(sentence: str, where: str, told: str) -> Statement:
    return Statement(sentence, where, told=told, kind=OPEN)


def _out(sentence: str, where: str, told: str) -> Statement:
    return Statement(sentence, where, told=told, kind=OUT)


STATEMENTS = (
    Statement(
        "One attention layer cannot do induction.",
        "sections 1, 2.1",
        "figure1a",
        "one-layer standard",
        "Asked as: does it learn induction? Row 6 sets weights by hand.",
    ),
    _exact(
        "Virtual heads cannot go through the token they look for (Property 1).",
        "section 2.1",
        "It holds: `tests/theory/test_property_1.py` checks random causal patterns.",
    ),
    _exact(
        "The shift adds 4 parameters per head, or per key/value head.",
        "section 2.2",
        "It holds: `tests/model/test_shift.py` counts them.",
    ),
    _exact(
        "The extra work is O(ND), small beside O(ND^2 + N^2 D).",
        "section 2.2",
        "A training step takes 1.03 to 1.07 times as long in small models (`benchmarks/results.md`).",
    ),
    Statement(
        "The constraint alpha1 + alpha2 = 1 does not affect the initial state of optimisation.",
        "section 2.2",
        "initial_state",
        "initialization of KV shifting",
        "Asked of seven numbers, on two data sets: are they within 10% of vanilla's?",
    ),
    _exact(
        "A one-layer transformer with a strict mask and ALiBi approximates induction, with a bound (Theorem 3.2).",
        "section 3.1",
        "It holds: `ihlab.theory.constructions`, notebook 06.",
    ),
    _exact(
        "One layer of KV shifting does induction exactly (Theorem 3.3).",
        "section 3.1",
        "It holds: `ihlab.theory.constructions`, notebook 06.",
    ),
    Statement(
        "KV shifting is a constant improvement: one layer in multi-hop tasks.", "footnote 3", "saved_layer", "worth"
    ),
    Statement(
        "One layer of KV shifting and two of vanilla learn induction perfectly; the shift is much faster; four "
        "layers are not.",
        "section 3.2, Figure 1a",
        "figure1a",
        "learn",
    ),
    Statement(
        "At hidden size 8, vanilla learns very poorly and does not even cover the previous tokens.",
        "section 3.2, Figure 1b",
        "figure1b",
        "hidden size 8",
    ),
    _open(
        "A narrow model forces few parallel inductions, with noise in superposition.",
        "section 3.2",
        "No task here has several inductions in parallel.",
    ),
    Statement(
        "In MQAR, unlike induction, tokens are keys and values at once.",
        "section 3.2",
        "mqar",
        "disjoint",
        "Asked so: does the shift still help if keys and values are disjoint?",
    ),
    Statement(
        "Gradient descent on the loss of Theorem 3.4 (Table 3, Figure 2).",
        "section 3.2",
        "figure2",
        "",
        "The printed formula has a slip; the corrected one favours the paper.",
    ),
    Statement(
        "With many heads, some start close to (0, 1), which makes learning easier.",
        "section 3.2",
        "many_heads",
        "with many heads",
        "One claim that holds is of the control, whose heads all start alike. The basin map asks it of one head.",
    ),
    Statement(
        "With sequences of period 2, a previous-token head is learned that fails on other periods.",
        "section 3.2",
        "period",
        "[A][B][A][B]",
        "Fails means: an accuracy below .2, where any token but the current one scores .5.",
    ),
    Statement(
        "The shift learns induction easily and bigrams not, the reverse of Bietti et al.",
        "section 3.2",
        "order",
        "KV shifting",
        "Asked as: is induction learned before bigrams?",
    ),
    Statement(
        "With a good initialisation, the model has the ability of induction.",
        "section 3.2",
        "basin_map",
        "good initialization",
    ),
    Statement(
        "Keys and values of the previous token suffice for a meta-learner and a checker (equations 11, 12).",
        "section 3.3",
        "checker",
        "can be seen as",
        "Both are also built by hand: `ihlab.theory.constructions`.",
    ),
    Statement(
        "Vanilla is slower because it must first form a previous-token head.",
        "sections 3.3, 5",
        "robustness",
        "previous-token head is given",
    ),
    Statement(
        "2.9B and 19B models with the shift have better benchmarks.",
        "section 4.2, Table 2",
        "table2",
        "various scales",
        "From the printed table.",
    ),
    Statement(
        "KV shifting models text better with every seed.", "section 4.3, Figure 4a", "text", "models text better"
    ),
    Statement(
        "It does so at every learning rate, and does not diverge where vanilla does.",
        "section 4.3, Figure 4b-c",
        "figure4",
        "rate",
    ),
    _open("Its optimisation space may be flatter.", "section 4.3", "Sharpness is not measured."),
    _out(
        "It is better at every model size, and the gap does not shrink with tokens.",
        "section 4.4, Figures 5, 6",
        "The scaling law is of 1.5B to 13B models.",
    ),
    Statement(
        "The shifts of keys and of values are both important.",
        "section 4.5, Figure 7a",
        "figure7",
        "both play an important role",
    ),
    Statement("Windows of 3 and 4 are no better.", "section 4.5, Figure 7b", "figure7", "longer shift window"),
    Statement("Simple induction helps length generalisation.", "section 5", "lengths", "keeps its accuracy"),
    Statement(
        "The reason is not that local information is fused: 3-grams are learned no better.",
        "sections 5, E.3",
        "figure9",
        "3-grams",
    ),
    Statement(
        "A short convolution of the query simulates n-gram induction heads.",
        "section 5",
        "pairs",
        "one layer learns induction by two tokens",
    ),
    _open(
        "KV shifting makes induction heads easier to locate.", "section 5", "The tools work on both; no score compares."
    ),
    Statement(
        "More controls (a gate, weights in [0, 1]) are no better.",
        "section 5, Appendix F.1",
        "figure10",
        "more controls",
    ),
    _open(
        "After training alpha1 + alpha2 is not 1, and some weights are negative.",
        "Appendix F.1",
        "The data of Table 5 and Figure 2 have the weights of every head; no claim is declared.",
    ),
    Statement(
        "Induction by position, through an MLP and the query of the next layer.",
        "Appendix D",
        "by_position",
        "learn induction by position in more than half",
    ),
    Statement("KV shifting has a good bias for multi-hop.", "Appendix E.1, Figure 8", "figure8", "multi-hop"),
    Statement("KV shifting solves more iGSM problems.", "Appendix E.2, Table 4", "table4", "iGSM"),
    _out(
        "At a rate of 2e-3, vanilla scores .5 and KV shifting .7.",
        "footnote 14",
        "The number is of the paper's iGSM models, which take a GPU.",
    ),
    Statement("KV shifting neither helps nor hurts on 3-grams.", "Appendix E.3, Figure 9", "figure9", "3-grams"),
    Statement(
        "In language models most heads use the key and value of one token, and alpha and beta are coupled.",
        "Appendix F, Table 5",
        "tables6to13",
        "diagonal",
    ),
    Statement(
        "Shifting queries too does not help induction heads.", "Appendix G, Figure 11", "figure11", "shifting of Q"
    ),
    Statement(
        "Shifting elsewhere cannot alleviate the width requirement.", "Appendix G", "elsewhere", "can not alleviate"
    ),
    Statement(
        "In almost every learning rate and context length KV shifting is best.",
        "Appendix H, Tables 6-10",
        "tables6to13",
        "almost every",
        "From the printed tables.",
    ),
    _open(
        "Differential and Selective attention are worse.",
        "Appendix H, Tables 11-13",
        "The zoo has both on toy tasks, each at its own rate; no claim is declared.",
    ),
    _out("Training takes 1.8% more memory.", "Appendix I", "The printed number is of one 8-GPU run."),
    Statement(
        "Under other formats of MMLU the shift is better.",
        "Appendix I, Table 14",
        "table2",
        "evaluation metrics",
        "From the printed table.",
    ),
    Statement(
        "The shift helps multi-head latent attention, the more the longer the sequence.",
        "Appendix J, Table 15",
        "table2",
        "sequence length",
        "From the printed table; the toy version is Table 15's figure.",
    ),
    _exact(
        "The listed code of training and inference.",
        "Appendices K, L, M",
        "The equations are followed. The inference listing stores the taps in the other order.",
    ),
    _out("Batch sizes of the large models.", "sections 4.1, Table 16", "The paper gives three different sets."),
)


def kinds(figures: Path, scale: str = "laptop") -> Counter[str]:
    """Count the statements by `kind`. One whose figure is not stored counts as not yet answered."""
    return Counter(OPEN if s.kind == FIGURE and not verdicts(s, figures, scale) else s.kind for s in STATEMENTS)


def verdicts(statement: Statement, figures: Path, scale: str = "laptop") -> Counter[str]:
    """Count the verdicts of the claims that answer a statement."""
    folder = Folder(figures, statement.figure, scale)  # type: ignore[arg-type]
    if not statement.figure or not (folder.path / "claims.json").exists():
        return Counter()
    return Counter(c["verdict"] for c in folder.claims() if statement.words.lower() in c["sentence"].lower())


def counted(figures: Path) -> str:
    """Return a sentence with the number of statements of each kind."""
    found = kinds(figures)
    return (
        f"Of the paper's {len(STATEMENTS)} statements, {found[FIGURE]} are answered by a figure, {found[EXACT]} are "
        f"checked without training, {found[OPEN]} are open, and {found[OUT]} are out of reach here."
    )


def coverage_page(figures: Path) -> str:
    """Return the page of all statements as Markdown."""
    rows = []
    for number, statement in enumerate(STATEMENTS, start=1):
        found = verdicts(statement, figures)
        answer = " ".join(f"{mark} {found[verdict]}" for verdict, mark in MARKS.items() if found[verdict])
        link = f"[{title(statement.figure)}](../figures/{statement.figure}/README.md)" if found else ""
        told = " ".join(filter(None, [f"*{statement.kind}*." if statement.kind in (OPEN, OUT) else "", statement.told]))
        rows.append([str(number), escaped(statement.sentence), statement.where, answer, link, told])
    legend = ", ".join(f"{mark} {verdict}" for verdict, mark in MARKS.items())
    return "\n\n".join(
        [
            "# Every statement of the paper",
            counted(figures),
            f"Verdicts count claims: {legend}. A statement that was tested in several settings has several. "
            "The figure's "
            "page has the numbers. The verdicts are about the small models that were trained here.",
            table(["", "statement", "where", "verdicts", "figure", "remark"], rows),
        ]
    ) + "\n"  # fmt: skip
