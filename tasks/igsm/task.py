"""iGSM: problems of hierarchical arithmetic with solutions that are written out step by step.

A problem of 3 operations (difficulty="toy", format="compact", modulo 7; not a full sequence):

    prompt     Sloop TeaChest = 5 . Sloop SilkChest = 4 + Sloop TeaChest . Sloop Crates ?
    solution   Sloop TeaChest k ; k = 5 . Sloop SilkChest b ; b = 4 + k = 4 + 5 = 2 .
               Sloop Crates P ; P = k + b = 5 + 2 = 0 .
    answer     0

The prompt does not state how many crates a sloop has: it is the sum over its kinds of crate.
"""

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

import numpy as np
from jaxtyping import Bool, Int64

from tasks.batch import IGNORE, Batch
from tasks.config import config, require, require_least
from tasks.igsm.difficulty import DIFFICULTIES, Difficulty
from tasks.igsm.words import JOINT, SPECIAL, Language, language
from tasks.memory import draw_seeds
from tasks.registry import register_task

if TYPE_CHECKING:
    from tasks.igsm.kernels.language import Words

FITTING = (
    0.95  # minimum fraction of problems that must fit in a sequence; longer ones are not drawn
)
_PROBED = 1000  # problems drawn to estimate the fraction that fits


@dataclass(frozen=True)
class Problems:
    """Whole problems, one per row.

    - `tokens`      int64 [row, token]: BOS prompt SOL solution ANS value EOS, then padding (0);
    - `answers`     int64 [row, token - 1]: the next token where it is a clause's result or the value, else `IGNORE`;
    - `prompt_size` int64 [row]: tokens up to SOL; `size` int64 [row]: tokens up to EOS;
    - `ops`         int64 [row]: the number of operations.
    """

    tokens: Int64[np.ndarray, "row token"]
    answers: Int64[np.ndarray, "row token-1"]
    prompt_size: Int64[np.ndarray, " row"]
    size: Int64[np.ndarray, " row"]
    ops: Int64[np.ndarray, " row"]

    def prompt(self, row: int) -> Int64[np.ndarray, " token"]:
        """Return the prompt of a row: the tokens from BOS to SOL."""
        return self.tokens[row, : self.prompt_size[row]]

    def solution(self, row: int) -> Int64[np.ndarray, " token"]:
        """Return the solution of a row, which a model should write: the tokens after SOL, up to EOS."""
        return self.tokens[row, self.prompt_size[row] : self.size[row]]

    def only(self, rows: Bool[np.ndarray, " row"] | slice) -> "Problems":
        """Return the selected problems, in order."""
        return Problems(*(values[rows] for values in vars(self).values()))


@register_task
@config
class IGSMTask:
    """Problems whose quantities depend on one another, and solutions that compute what is needed, in order.

    A problem has items in 2 to 4 layers. Sentences state "each X's Y" for some pairs of items in neighbouring layers;
    these imply how many items of a lower layer an X has in total. A solution defines only what the question needs, one
    parameter per step. Its clauses have at most two operands. Arithmetic is modulo 23 (toy, mini: 7).

    `Batch.answers` holds the results of clauses and the final value, which follow from the tokens before them
    (letters and the order of steps do not). `Batch.groups["ops"]` is the number of operations of each sequence.

    Source: Ye et al. 2024, arXiv 2407.20311, with a vocabulary of our own; arXiv 2411.19574, Table 4.

    Attributes:
        kind: igsm, or igsm_flat: no layers or implied totals; a solution computes everything and has no final value.
        ops: Number of clauses of a solution: 15 is exactly 15, <=15 is 1 .. 15, drawn as `draw` says. Flat problems
            have 4 to 21, by chance; <=15 leaves out the longer ones.
        difficulty: The size of a problem's structure.
        format: natural; compact: without filler words; or pairs: compact, with "X's Y" as one token, X/Y.
        split: train or test. No two solutions of different splits are equal up to names of instances, names of
            totals, and numbers; with fewer than 3 ops, only no whole sequence is in both.
        length: Number of positions in a sequence; problems that do not fit are redrawn with the same number of ops
            (flat: any number).
        loss: Targets of the training loss: the solution's tokens, or all tokens of a problem.
        modulus: Arithmetic is modulo this. None uses the modulus of the difficulty: 7 for toy and mini, else 23.
        draw: Draw numbers of operations as the smaller of two uniform draws (as the source does), or uniformly (even).
        letters: Letters of a solution, all different. random: any of 52, as in the source; a model cannot predict
            them. ordered: a, b, c, ... in order of use. parts: only parts of a step have letters, in order, and the
            value of a step is named by its pair (format="pairs" only).
    """

    kind: Literal["igsm", "igsm_flat"] = "igsm"

    ops: str = "<=15"
    difficulty: Literal["med", "hard", "toy", "mini"] = "med"
    format: Literal["natural", "compact", "pairs"] = "natural"
    split: Literal["train", "test"] = "train"
    length: int = 512
    loss: Literal["solution", "all"] = "solution"
    modulus: int | None = None
    draw: Literal["smaller", "even"] = "smaller"
    letters: Literal["random", "ordered", "parts"] = "random"

    def __post_init__(self) -> None:
        require(
            re.fullmatch(r"(<=)?[0-9]{1,9}", self.ops) is not None,
            f"IGSMTask.ops is {self.ops!r}, but must be a number such as '15', or '<=15' for up to as many.",
        )
        least, most = 1, self.dimensions.most_ops
        if self.flat:
            least, most = 4, 21
            if self.exact:  # more are drawn too seldom to wait for
                most = 16
        require(
            least <= self.most_ops <= most,
            f"IGSMTask.ops is {self.ops!r}, but kind='{self.kind}' with difficulty='{self.difficulty}' "
            f"has problems of {least} to {most} operations.",
        )
        require(
            self.modulus is None or 2 <= self.modulus <= 1000,
            f"IGSMTask.modulus is {self.modulus}, but must be at least 2 and at most 1000.",
        )
        require_least(self, length=4)
        require(
            self.draw == "smaller" or not self.flat,
            f"IGSMTask.draw is '{self.draw}', but with kind='{self.kind}' the number of operations is not drawn: leave "
            "draw out.",
        )
        require(
            self.letters != "parts" or self.format == "pairs",
            f"IGSMTask.letters is 'parts', but with format='{self.format}' a pair is not one token, so it cannot name "
            "a value: use format='pairs'.",
        )
        few = self.dimensions.domains == 1
        require(
            self.format != "pairs" or few,
            f"IGSMTask.format is 'pairs', but difficulty='{self.difficulty}' has too many pairs to be a token each: "
            f"take one of {', '.join(name for name, size in DIFFICULTIES.items() if size.domains == 1)}.",
        )

    @property
    def rule(self) -> int:
        """The version of the drawing rule, stored with every run.

        Under rule 1, an unneeded sentence could contain a constant although a random draw had excluded it, and an
        independent parameter could have dependent operands. Flat problems have no such sentences and still use rule 1.
        """
        return 1 if self.flat else 2

    @property
    def flat(self) -> bool:
        """True if problems have no hierarchy."""
        return self.kind == "igsm_flat"

    @property
    def most_ops(self) -> int:
        """Largest number of operations."""
        return int(self.ops.removeprefix("<="))

    @property
    def exact(self) -> bool:
        """True if every problem has `most_ops` operations."""
        return not self.ops.startswith("<=")

    @property
    def dimensions(self) -> Difficulty:
        """Sizes of `difficulty`."""
        return DIFFICULTIES[self.difficulty]

    @property
    def language(self) -> Language:
        """The vocabulary: token ids as strings and back."""
        return language(self.dimensions, self.format, self.modulus or self.dimensions.modulus)

    @property
    def vocab_size(self) -> int:
        """Token ids are 0 .. vocab_size - 1."""
        return len(self.language.vocabulary)

    @property
    def begins_with(self) -> tuple[int, ...]:
        """The ids at the start of every sequence."""
        return (self.language.ids["<bos>"],)

    @property
    def special_ids(self) -> tuple[int, ...]:
        """The ids that are not content: they mark the parts of a problem, or fill up its sequence."""
        return tuple(self.language.ids[word] for word in SPECIAL)

    @property
    def padding_id(self) -> int:
        """The id that fills up a sequence."""
        return self.language.ids["<pad>"]

    def batch(self, size: int, rng: np.random.Generator) -> Batch:
        """Draw `size` sequences, each a pure function of one 64-bit seed taken from `rng`.

        Raises `ConfigError` if more than 5% of the problems do not fit in `length`, or none can be found.
        """
        problems = self._problems(size, rng)
        t = np.arange(1, self.length + 1)
        first = problems.prompt_size[:, None] if self.loss == "solution" else 1
        scored = (first <= t) & (t < problems.size[:, None])
        targets = np.where(scored, problems.tokens[:, 1:], IGNORE)
        return Batch(problems.tokens[:, :-1], targets, problems.answers, {"ops": problems.ops})

    def prompts(
        self, size: int, rng: np.random.Generator, ops: int | None = None, split: str | None = None
    ) -> Problems:
        """Draw problems with their correct solutions. `ops` (an exact number) and `split` override the task's fields.

        Raises `ConfigError` as `batch` does, and for values of `ops` and `split` that are invalid as fields.
        """
        asked_ops = self.ops if ops is None else str(ops)
        asked_split = self.split if split is None else split
        task = replace(self, ops=asked_ops, split=asked_split)  # type: ignore[arg-type]  # checked by the config
        return task._problems(size, rng)

    def encode(self, text: str) -> Int64[np.ndarray, " token"]:
        """Return the ids of a text with spaces between tokens. Raises `ConfigError` for an unknown token."""
        return self.language.encode(text)

    def decode(self, ids: Int64[np.ndarray, " token"]) -> list[str]:
        """Return ids as tokens, without the padding; join them with spaces for a text."""
        return self.language.decode(ids)

    def words(self, ids: Int64[np.ndarray, " token"]) -> list[str]:
        """Return the token of each id, including padding."""
        return [self.language.vocabulary[i] for i in ids]

    def show(self, batch: Batch, row: int) -> str:
        """Return the problem, one sentence per line, and the solution, one step per line, answers in [brackets]."""
        tokens = self.decode(batch.inputs[row])
        answers = np.flatnonzero(batch.answers[row] != IGNORE) + 1
        text = " ".join(f"[{token}]" if t in answers else token for t, token in enumerate(tokens))
        lines = re.sub(r"(<bos>|<sol>| \.| \?) ", r"\1\n", text)
        return f"{lines}\nTokens in [brackets] follow from what stands before them; accuracy is measured there."

    def _problems(self, size: int, rng: np.random.Generator) -> Problems:
        seeds = draw_seeds(self, size, rng)
        fitting, enough = fit(self)
        require(
            fitting >= FITTING,
            f"IGSMTask.length is {self.length}, which fits only {fitting:.0%} of the problems; {enough} would fit 99%.",
        )
        return _draw(self, seeds, self.length + 1)


@lru_cache
def fit(task: IGSMTask) -> tuple[float, int]:
    """Return the fraction of a thousand problems that fit in the task's length, and a length that holds 99% of them.

    Raises `ConfigError` if no problem can be found.
    """
    from tasks.igsm.kernels.language import MOST_TOKENS

    seeds = np.random.default_rng(0).integers(0, 2**64, _PROBED, dtype=np.uint64)
    _draw(task, seeds[:1], MOST_TOKENS)  # fail after one seed if no problem can be found
    lengths = _draw(task, seeds, MOST_TOKENS).size - 1
    return float((lengths <= task.length).mean()), int(np.ceil(np.quantile(lengths, 0.99)))


def _draw(task: IGSMTask, seeds: np.ndarray, most_tokens: int) -> Problems:
    # Import numba only when problems are drawn.
    from tasks.igsm.kernels.rows import Wanted, draw_rows
    from tasks.igsm.kernels.structure import Limits

    size = task.dimensions
    modulus = task.language.modulus
    even, test = task.draw == "even", task.split == "test"
    in_order, by_pair = task.letters == "ordered", task.letters == "parts"
    wanted = Wanted(
        task.flat, task.most_ops, task.exact, even, test, in_order, by_pair, modulus, most_tokens
    )
    limits = Limits(size.most_edges, size.most_layers, size.most_width)
    tokens, answers, sizes, ops = draw_rows(seeds, wanted, limits, _words(task.language))
    require(
        bool(sizes[:, 1].all()),
        f"IGSMTask(ops={task.ops!r}, difficulty='{task.difficulty}', split='{task.split}') finds no problem: "
        "the split is empty, or there are no problems with that many operations.",
    )
    return Problems(tokens, answers, sizes[:, 0], sizes[:, 1], ops)


@lru_cache
def _words(language: Language) -> "Words":
    """Return the vocabulary for the kernel: the first id of each part."""
    from tasks.igsm.kernels.language import FUNCTION, Words

    starts = np.cumsum([0, *map(len, language.parts[:-1])]).tolist()
    _, _, number, letter, category, noun = starts
    pair = np.empty((0, 0), np.int64)
    if language.format == "pairs":
        owned = (*language.categories, *language.nouns)
        category, noun = 0, len(language.categories)
        pair = np.array([[language.ids.get(f"{x}{JOINT}{y}", 0) for y in owned] for x in owned])
    function = np.array([language.ids.get(word, 0) for word in FUNCTION])
    size, natural = language.difficulty, language.format == "natural"
    sizes = size.domains, size.pools, size.pool_size
    return Words(natural, function, number, letter, category, noun, pair, *sizes)
