"""Problems and solutions as token ids, in the formats natural, compact and pairs. Compiled."""

from typing import NamedTuple

import numba
import numpy as np

from tasks.igsm.kernels.bits import NONE, bit, draw, pick
from tasks.igsm.kernels.operands import Equations
from tasks.igsm.kernels.solution import ADD, COPY, MOST_CLAUSES, SET, Solution
from tasks.igsm.kernels.structure import MOST_ITEMS, Structure

PAD, BOS, SOL, ANS, EOS = range(5)
MOST_TOKENS = 4096  # per problem: a sentence has at most 36, a step 7 and a clause 13

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
    """First token id of each kind of word, and the sizes from which the other ids follow.

    - `function` [FUNCTION]: one id each;
    - `number`, `letter`: the ids of "0" and "a";
    - `category`: the first category word of the first domain. The domain's other words follow, then the next domain;
    - `noun`: the first noun of the first pool of that category: `pool_size` per pool, `pools` per category;
    - `pair` [word, word]: the id of each pair that is one token. It is empty if pairs are two tokens. With pairs,
      category words and nouns are not tokens, and their ids serve only as numbers.
    """

    natural: bool
    function: np.ndarray
    number: int
    letter: int
    category: int
    noun: int
    pair: np.ndarray
    domains: int
    pools: int
    pool_size: int


class Names(NamedTuple):
    """The two words of each parameter, as ids: the owner x, and the item y or the category word."""

    x: np.ndarray
    y: np.ndarray


class Page(NamedTuple):
    """The tokens written so far, `tokens[: end[0]]`, and the ids of the words and names to write."""

    tokens: np.ndarray
    end: np.ndarray
    words: Words
    names: Names


@numba.njit
def draw_names(structure: Structure, words: Words, names: Names, stream: np.ndarray) -> None:
    """Step J: draw a domain, adjacent categories of it for the layers, a noun pool per layer, and distinct nouns."""
    category = 4 * draw(stream, words.domains) + draw(stream, 4 - structure.n_layers + 1)
    pool = np.empty(structure.n_layers, np.int64)
    unused = np.empty(structure.n_layers, np.int64)
    for i in range(structure.n_layers):
        drawn = (category + i) * words.pools + draw(stream, words.pools)
        pool[i] = words.noun + drawn * words.pool_size
        unused[i] = bit(words.pool_size) - 1
    item = np.empty(MOST_ITEMS, np.int64)
    for x in range(structure.n_items):
        layer = structure.layer[x]
        noun = pick(unused[layer], stream)
        unused[layer] &= ~bit(noun)
        item[x] = pool[layer] + noun
    for parameter in range(structure.n_parameters):
        x, g = structure.owner[parameter], structure.level[parameter]
        names.x[parameter] = item[x]
        if g == 0:
            names.y[parameter] = item[structure.child[parameter]]
        else:
            names.y[parameter] = words.category + category + structure.layer[x] + g


@numba.njit
def put(page: Page, token: int) -> None:
    """Write one token."""
    page.tokens[page.end[0]] = token
    page.end[0] += 1


@numba.njit
def put_words(page: Page, parameter: int, wanted: tuple[int, ...]) -> None:
    """Write the function words `wanted`, with X and Y of a parameter."""
    for word in wanted:
        if word == X:
            put(page, page.names.x[parameter])
        elif word == Y:
            put(page, page.names.y[parameter])
        else:
            put(page, page.words.function[word])


@numba.njit
def put_parameter(page: Page, parameter: int) -> None:
    """Write a parameter in an expression: `each X 's Y`, `X Y` or `X/Y`."""
    if len(page.words.pair):
        put(page, page.words.pair[page.names.x[parameter], page.names.y[parameter]])
    elif page.words.natural:
        put_words(page, parameter, (EACH, X, HAS, Y))
    else:
        put_words(page, parameter, (X, Y))


@numba.njit
def put_sentence(page: Page, parameter: int, equations: Equations) -> None:
    """Write the sentence of a parameter: `The number of each X 's Y equals E .`, `X Y = E .` or `X/Y = E .`"""
    natural, n_terms = page.words.natural, equations.n_terms[parameter]
    constant = equations.constant[parameter]
    if natural:
        put_words(page, parameter, (THE_FIRST, NUMBER, OF))
    put_parameter(page, parameter)
    put_words(page, parameter, (EQUALS if natural else EQUAL,))
    if constant != NONE:
        put(page, page.words.number + constant)
        if n_terms > 0 and not natural:
            put_words(page, parameter, (TIMES if equations.times[parameter] else PLUS,))
        elif n_terms > 0 and equations.times[parameter]:
            put_words(page, parameter, (AS_TIMES, AS, MUCH, AS))
        elif n_terms > 0:
            put_words(page, parameter, (MORE, THAN))
    if n_terms > 0:
        _put_terms(page, parameter, equations)
    put_words(page, parameter, (STOP,))


@numba.njit
def _put_terms(page: Page, parameter: int, equations: Equations) -> None:
    """Write `P`, `the sum of P and Q`, `the sum of P , Q and R` or `the difference of P and Q`.

    Without filler words, `P`, `P + Q`, `P + Q + R` or `P - Q`, in brackets if a constant comes before several.
    """
    natural, n_terms = page.words.natural, equations.n_terms[parameter]
    minus = equations.minus[parameter]
    brackets = not natural and n_terms > 1 and equations.constant[parameter] != NONE
    if natural and n_terms > 1:
        put_words(page, parameter, (THE, DIFFERENCE if minus else SUM, OF))
    if brackets:
        put_words(page, parameter, (OPEN,))
    for j in range(n_terms):
        if j > 0 and natural:
            put_words(page, parameter, (AND if j == n_terms - 1 else COMMA,))
        elif j > 0:
            put_words(page, parameter, (MINUS if minus else PLUS,))
        put_parameter(page, equations.terms[parameter, j])
    if brackets:
        put_words(page, parameter, (CLOSE,))


@numba.njit
def put_question(page: Page, parameter: int) -> None:
    """Write `How many Y does each X have ?`, `X Y ?` or `X/Y ?`"""
    if page.words.natural:
        put_words(page, parameter, (HOW, MANY, Y, DOES, EACH, X, HAVE))
    else:
        put_parameter(page, parameter)
    put_words(page, parameter, (ASK,))


@numba.njit
def put_solution(
    page: Page,
    is_result: np.ndarray,
    n_steps: int,
    solution: Solution,
    in_order: bool,
    by_pair: bool,
    stream: np.ndarray,
) -> None:
    """Write the steps, `Define X 's Y as v ; w = a + b = 3 + 4 = 7 ; so v = 2 * w = 2 * 7 = 14 .` or without fillers.

    Letters are random and all different; with `in_order` they are a, b, c, ... in order of use. With `by_pair` the
    value of a step is named by its pair, and only its parts have letters, in order. Marks the results of the clauses
    in `is_result` [token].
    """
    words, names, ordered = page.words, page.names, in_order or by_pair
    letter = np.empty(MOST_CLAUSES, np.int64)
    unused = bit(MOST_CLAUSES) - 1
    clause, n_letters = 0, 0
    for step in range(n_steps):
        parameter, last = solution.parameter[step], solution.end[step] - 1
        if by_pair:
            letter[last] = words.pair[names.x[parameter], names.y[parameter]]
        elif in_order:  # a step begins with its last letter
            letter[last] = words.letter + n_letters
            n_letters += 1
        for symbol in range(clause, last + 1):
            if ordered and symbol < last:
                letter[symbol] = words.letter + n_letters
                n_letters += 1
            elif not ordered:
                i = pick(unused, stream)
                unused &= ~bit(i)
                letter[symbol] = words.letter + i
        if words.natural:
            put_words(page, parameter, (DEFINE, X, HAS, Y, AS))
        else:
            put_parameter(page, parameter)
        if not by_pair:
            put(page, letter[last])
        while clause <= last:
            put_words(page, parameter, (SEMICOLON,))
            if clause == last and words.natural:
                put_words(page, parameter, (SO,))
            _put_clause(page, clause, solution, letter)
            is_result[page.end[0] - 1] = True
            clause += 1
        put_words(page, parameter, (STOP,))


@numba.njit
def _put_clause(page: Page, clause: int, solution: Solution, letter: np.ndarray) -> None:
    """Write `v = 5`, `v = a = 3`, `v = a + b = 3 + 4 = 7` or `v = 5 + b = 5 + 4 = 9`; the result is the last token."""
    operation, left = solution.operation[clause], solution.left[clause]
    right = solution.right[clause]
    number, function = page.words.number, page.words.function
    equal = function[EQUAL]
    put(page, letter[clause])
    put(page, equal)
    if operation != SET:
        if left == NONE:
            first = number + solution.number[clause]
            put(page, first)
        else:
            first = number + solution.value[left]
            put(page, letter[left])
        if operation != COPY:
            sign = function[PLUS + operation - ADD]  # +, - and * are in the order of the operations
            for token in (sign, letter[right], equal, first, sign, number + solution.value[right]):
                put(page, token)
        put(page, equal)
    put(page, number + solution.value[clause])
