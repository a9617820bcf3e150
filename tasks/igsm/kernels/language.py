"""Problems and solutions as token ids, in the formats natural, compact and pairs. Compiled."""

from typing import NamedTuple

import numba
import numpy as np

from tasks.igsm.kernels.bits import NONE, bit, draw, pick
from tasks.igsm.kernels.operands import Equations
from tasks.igsm.kernels.solution import ADD, COPY, MOST_CLAUSES, SET, SUBTRACT, Solution
from tasks.igsm.kernels.structure import MOST_ITEMS, Structure

PAD, BOS, SOL, ANS, EOS = range(5)
MOST_TOKENS = 4096  # a sentence has at most 36, a step 7 and a clause 13

_FUNCTION = (
    ". ? ; = + - * ( ) , The number of each 's equals the sum difference and "
    "more than times as much How many does have Define so"
)
FUNCTION = tuple(_FUNCTION.split())
"""Function words, in the order of `Words.function`; X and Y are the two words of a parameter."""
STOP, ASK, SEMICOLON, EQUAL, PLUS, MINUS, TIMES, OPEN, CLOSE, COMMA = range(10)
THE_FIRST, NUMBER, OF, EACH, HAS, EQUALS, THE, SUM, DIFFERENCE, AND = range(10, 20)
MORE, THAN, AS_TIMES, AS, MUCH, HOW, MANY, DOES, HAVE, DEFINE, SO = range(20, 31)
X, Y = 31, 32


class Words(NamedTuple):
    """First ids of each kind of word.

    - `function` [FUNCTION]: one id each;
    - `number`, `letter`: the ids of "0" and "a";
    - `category`: the first category word of the first domain. The domain's other words follow, then the next domain;
    - `noun`: the first noun of the first pool of that category: `pool_size` per pool, `pools` per category;
    - `pair`: the first pair, or -1 if a pair is two tokens. With pairs, category words and nouns are not tokens, and
      their ids serve only as numbers.
    """

    natural: bool
    function: np.ndarray
    number: int
    letter: int
    category: int
    noun: int
    pair: int
    domains: int
    pools: int
    pool_size: int


class Names(NamedTuple):
    """The two words of each parameter, as ids: the owner x, and the item y or the category word."""

    x: np.ndarray
    y: np.ndarray


@numba.njit
def draw_names(structure: Structure, words: Words, names: Names, stream: np.ndarray) -> None:
    """Step J: draw one domain, neighbouring ones of its four categories, one pool per layer, and distinct nouns."""
    category = 4 * draw(stream, words.domains) + draw(stream, 4 - structure.n_layers + 1)
    pool = np.empty(structure.n_layers, np.int64)
    unused = np.empty(structure.n_layers, np.int64)
    for i in range(structure.n_layers):
        pool[i] = words.noun + ((category + i) * words.pools + draw(stream, words.pools)) * words.pool_size
        unused[i] = bit(words.pool_size) - 1
    item = np.empty(MOST_ITEMS, np.int64)
    for x in range(structure.n_items):
        layer = structure.layer[x]
        noun = pick(unused[layer], stream)
        unused[layer] &= ~bit(noun)
        item[x] = pool[layer] + noun
    for p in range(structure.n_parameters):
        x, g = structure.owner[p], structure.level[p]
        names.x[p] = item[x]
        names.y[p] = item[structure.child[p]] if g == 0 else words.category + category + structure.layer[x] + g


@numba.njit
def put(tokens: np.ndarray, n: int, token: int) -> int:
    """Write one token, and return the new number of tokens."""
    tokens[n] = token
    return n + 1


@numba.njit
def put_words(tokens: np.ndarray, n: int, words: Words, names: Names, p: int, wanted: tuple[int, ...]) -> int:
    """Write the function words `wanted`, with X and Y of parameter p."""
    for word in wanted:
        tokens[n] = names.x[p] if word == X else names.y[p] if word == Y else words.function[word]
        n += 1
    return n


@numba.njit
def put_parameter(tokens: np.ndarray, n: int, words: Words, names: Names, p: int) -> int:
    """Write a parameter in an expression: `each X 's Y`, `X Y` or `X/Y`."""
    if words.pair != NONE:
        return put(tokens, n, pair_token(words, names.x[p], names.y[p]))
    if words.natural:
        return put_words(tokens, n, words, names, p, (EACH, X, HAS, Y))
    return put_words(tokens, n, words, names, p, (X, Y))


@numba.njit
def pair_token(words: Words, x: int, y: int) -> int:
    """Return the token of a pair, in the order of `tasks.igsm.words.Language.pairs`."""
    nouns = words.pools * words.pool_size  # per category
    category, place = (x - words.noun) // nouns, (x - words.noun) % nouns
    domain, level = category // 4, category % 4
    owned = nouns + 3 - level  # pairs per owner: with nouns and with the categories below
    before = domain * nouns * (3 * nouns + 6) + level * nouns * (nouns + 3) - nouns * level * (level - 1) // 2
    to = (y - words.noun) % nouns if y >= words.noun else nouns + y - words.category - category - 1
    return words.pair + before + place * owned + to


@numba.njit
def put_sentence(tokens: np.ndarray, n: int, words: Words, names: Names, p: int, equations: Equations) -> int:
    """Write the sentence of a parameter: `The number of each X 's Y equals E .`, `X Y = E .` or `X/Y = E .`"""
    natural, n_terms, constant = words.natural, equations.n_terms[p], equations.constant[p]
    if natural:
        n = put_words(tokens, n, words, names, p, (THE_FIRST, NUMBER, OF))
    n = put_parameter(tokens, n, words, names, p)
    n = put_words(tokens, n, words, names, p, (EQUALS if natural else EQUAL,))
    if constant != NONE:
        n = put(tokens, n, words.number + constant)
        if n_terms > 0 and not natural:
            n = put_words(tokens, n, words, names, p, (TIMES if equations.times[p] else PLUS,))
        elif n_terms > 0 and equations.times[p]:
            n = put_words(tokens, n, words, names, p, (AS_TIMES, AS, MUCH, AS))
        elif n_terms > 0:
            n = put_words(tokens, n, words, names, p, (MORE, THAN))
    if n_terms > 0:
        n = _put_terms(tokens, n, words, names, p, equations)
    return put_words(tokens, n, words, names, p, (STOP,))


@numba.njit
def _put_terms(tokens: np.ndarray, n: int, words: Words, names: Names, p: int, equations: Equations) -> int:
    """Write `P`, `the sum of P and Q`, `the sum of P , Q and R` or `the difference of P and Q`.

    Without filler words, `P`, `P + Q`, `P + Q + R` or `P - Q`, in brackets if a constant comes before several.
    """
    natural, n_terms, minus = words.natural, equations.n_terms[p], equations.minus[p]
    brackets = not natural and n_terms > 1 and equations.constant[p] != NONE
    if natural and n_terms > 1:
        n = put_words(tokens, n, words, names, p, (THE, DIFFERENCE if minus else SUM, OF))
    if brackets:
        n = put_words(tokens, n, words, names, p, (OPEN,))
    for j in range(n_terms):
        if j > 0 and natural:
            n = put_words(tokens, n, words, names, p, (AND if j == n_terms - 1 else COMMA,))
        elif j > 0:
            n = put_words(tokens, n, words, names, p, (MINUS if minus else PLUS,))
        n = put_parameter(tokens, n, words, names, equations.terms[p, j])
    return put_words(tokens, n, words, names, p, (CLOSE,)) if brackets else n


@numba.njit
def put_question(tokens: np.ndarray, n: int, words: Words, names: Names, p: int) -> int:
    """Write `How many Y does each X have ?`, `X Y ?` or `X/Y ?`"""
    if words.natural:
        return put_words(tokens, n, words, names, p, (HOW, MANY, Y, DOES, EACH, X, HAVE, ASK))
    return put_words(tokens, put_parameter(tokens, n, words, names, p), words, names, p, (ASK,))


@numba.njit
def put_solution(
    tokens: np.ndarray,
    is_result: np.ndarray,
    n: int,
    words: Words,
    names: Names,
    n_steps: int,
    solution: Solution,
    in_order: bool,
    by_pair: bool,
    stream: np.ndarray,
) -> int:
    """Write the steps, `Define X 's Y as v ; w = a + b = 3 + 4 = 7 ; so v = 2 * w = 2 * 7 = 14 .` or without fillers.

    Letters are random and all different; with `in_order` they are a, b, c, ... in order of use. With `by_pair` the
    value of a step is named by its pair, and only its parts have letters, in order. Marks the results of the clauses
    in `is_result` [token].
    """
    letter = np.empty(MOST_CLAUSES, np.int64)
    unused = bit(MOST_CLAUSES) - 1
    clause, n_letters = 0, 0
    for step in range(n_steps):
        p, last = solution.parameter[step], solution.end[step] - 1
        if by_pair:
            letter[last] = pair_token(words, names.x[p], names.y[p])
        elif in_order:  # a step begins with its last letter
            letter[last] = words.letter + n_letters
            n_letters += 1
        for symbol in range(clause, last if in_order or by_pair else last + 1):
            if in_order or by_pair:
                letter[symbol] = words.letter + n_letters
                n_letters += 1
            else:
                i = pick(unused, stream)
                unused &= ~bit(i)
                letter[symbol] = words.letter + i
        n = (
            put_words(tokens, n, words, names, p, (DEFINE, X, HAS, Y, AS))
            if words.natural
            else put_parameter(tokens, n, words, names, p)
        )
        if not by_pair:
            n = put(tokens, n, letter[last])
        while clause <= last:
            n = put_words(tokens, n, words, names, p, (SEMICOLON,))
            if clause == last and words.natural:
                n = put_words(tokens, n, words, names, p, (SO,))
            n = _put_clause(tokens, n, words, clause, solution, letter)
            is_result[n - 1] = True
            clause += 1
        n = put_words(tokens, n, words, names, p, (STOP,))
    return n


@numba.njit
def _put_clause(tokens: np.ndarray, n: int, words: Words, clause: int, solution: Solution, letter: np.ndarray) -> int:
    """Write `v = 5`, `v = a = 3`, `v = a + b = 3 + 4 = 7` or `v = 5 + b = 5 + 4 = 9`; the result is the last token."""
    operation, left, right = solution.operation[clause], solution.left[clause], solution.right[clause]
    number, equal = words.number, words.function[EQUAL]
    n = put(tokens, put(tokens, n, letter[clause]), equal)
    if operation != SET:
        first = number + (solution.number[clause] if left == NONE else solution.value[left])
        n = put(tokens, n, first if left == NONE else letter[left])
        if operation != COPY:
            sign = words.function[PLUS if operation == ADD else MINUS if operation == SUBTRACT else TIMES]
            n = put(tokens, put(tokens, n, sign), letter[right])
            n = put(tokens, put(tokens, n, equal), first)
            n = put(tokens, put(tokens, n, sign), number + solution.value[right])
        n = put(tokens, n, equal)
    return put(tokens, n, number + solution.value[clause])
