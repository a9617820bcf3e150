"""Check the proofs of a folder, with Python's standard library only: python check.py [FOLDER]

A row of rows.csv is about all sequences of `length` tokens that end in `query`, which came before, always followed by
`answer`. "proved": then the answer's logit is the largest. Other verdicts hold if no proof is found. A position reads
its token b and the token a before it. mass(b after a) is e^score of that key. gain(b after a) is the answer's logit
minus a rival's, if attention read this position alone. The answer leads if the sum of mass * gain over positions is
above 0. This sum is the length of a path: if the shortest is longer than 0 for each rival, the row is proved.
"""

import csv, json, sys
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from itertools import product, repeat, starmap
from operator import add, mul

DOWN, UP = (Context(prec=50, rounding=way, Emin=MIN_EMIN, Emax=MAX_EMAX) for way in (ROUND_FLOOR, ROUND_CEILING))
FAR = Decimal("Infinity")


class Number(tuple):  # (low, high): the exact number is between them
    def __add__(self, other):
        return Number((DOWN.add(self[0], other[0]), UP.add(self[1], other[1])))

    def __mul__(self, other):
        pairs = list(product(self, other))
        return Number((min(starmap(DOWN.multiply, pairs)), max(starmap(UP.multiply, pairs))))

    def rising(self, function):  # exp, ln and sqrt give the nearest decimal: step one decimal outwards
        return Number((DOWN.next_minus(function(self[0])), UP.next_plus(function(self[1]))))

    def cos_sin(self):  # cos, sin, -sin
        sums, term = [ratio(0)] * 4, ratio(1)
        for n in range(100):
            sums[n % 4] += term
            term *= self * ratio(1, n + 1)
        rest = term * Number((Decimal(-1), Decimal(1)))  # Taylor's series leaves out at most its next term
        minus = ratio(-1)
        return sums[0] + sums[2] * minus + rest, sums[1] + sums[3] * minus + rest, sums[3] + sums[1] * minus + rest


def ratio(a, b=1):  # of integers, or a float in hexadecimal
    if isinstance(a, str):
        a, b = float.fromhex(a).as_integer_ratio()
    return Number((DOWN.divide(a, b), UP.divide(a, b)))


def added(one, other):
    return list(map(add, one, other))


def scaled(vector, factors):
    return list(map(mul, vector, factors))


def dot(one, other):
    return sum(map(mul, one, other), ratio(0))


def through(rows, vector):
    return [dot(row, vector) for row in rows]


class Model:
    def __init__(self, stored):
        self.w = w = {}
        for name, rows in stored["weights"].items():
            w[name] = [list(map(ratio, row)) for row in rows]
        self.own_first, self.ids, n = stored["own_first"], range(*stored["ids"]), len(w["q"])
        self.eps, self.residual, self.slope, scale = w["constants"][0]
        angles = []
        for base, i in product(w["base"][0], range(0, n, 2)):
            angles.append((base.rising(DOWN.ln) * ratio(-i, n)).rising(DOWN.exp))
        self.turns = list(map(Number.cos_sin, angles + w["angles"][0]))
        self.factor = scale * scale * ratio(1, n).rising(DOWN.sqrt)
        self.outputs = list(map(scaled, w["unembed"], repeat(w["final"][0])))
        self.written = list(map(through, repeat(list(zip(*w["out"]))), self.outputs))
        self.places = list(map(self.place, w["positions"]))

    def place(self, position):  # logits without attention, queries, keys and values of each token
        direct, queries, keys, values = [], [], [], []
        for i in self.ids:
            stream = added(self.w["embed"][i], position)
            direct.append(scaled(through(self.outputs, stream), repeat(self.residual)))
            normed = self.normed(stream)
            queries.append(through(self.w["q"], normed))
            keys.append(through(self.w["k"], normed))
            values.append(through(self.w["v"], normed))
        return direct, queries, keys, values

    def normed(self, stream):  # x / sqrt(mean(x^2) + eps) * gain, if there is a norm
        for gain in self.w["norm"]:
            mean = dot(stream, stream) * ratio(1, len(stream)) + self.eps
            stream = scaled(scaled(stream, gain), repeat((mean.rising(DOWN.ln) * ratio(-1, 2)).rising(DOWN.exp)))
        return stream

    def mixed(self, name, now, before):  # shifted keys or values [token before][token]; the last row: a first token
        of_token, of_before = self.w[name]
        one = list(map(scaled, now, repeat(of_token)))
        rows = []
        for vector in before:
            earlier = scaled(vector, of_before)
            rows.append(list(map(added, one, repeat(earlier))))
        return [*rows, now if self.own_first else one]

    def turned(self, point):  # rotated by one more step
        first, second, half = [], [], len(self.turns)
        for x, y, (cos, sin, minus_sin) in zip(point, point[half:], self.turns):
            first.append(x * cos + y * minus_sin)
            second.append(y * cos + x * sin)
        return first + second or point

    def tables(self, query, length):  # masses, and logits if a pair alone is read [back][token before][token]
        last = length - 1 if len(self.places) > 1 else 0
        direct, point = self.places[last][0][query], scaled(self.places[last][1][query], repeat(self.factor))
        logits = []
        for back in range(length):
            here, before = self.places[max(last - back, 0)], self.places[max(last - back - 1, 0)]
            far = self.slope * ratio(-back)
            masses = []
            for row in self.mixed("alpha", here[2], before[2]):
                masses.append([(score + far).rising(DOWN.exp) for score in through(row, point)])
            if back <= last:
                logits = []
                for row in self.mixed("beta", here[3], before[3]):
                    logits.append([added(through(self.written, value), direct) for value in row])
            yield masses, logits
            point = self.turned(point)

    def shortest(self, tables, query, answer, rivals):  # yields the shortest path of 2, 3, .. tokens
        seen, unseen = [], [FAR] * len(self.ids)  # the rest after each token
        for masses, logits in tables:
            *steps, first = map(self.steps, masses, logits, repeat(self.ids[answer]), repeat(rivals))
            if seen:
                unseen[query] = seen[query]
                yield min(map(DOWN.add, first, unseen))
                after_query = DOWN.add(steps[query][answer], seen[answer])
                seen, unseen = nearest(steps, seen), nearest(steps, unseen)
                seen[query] = after_query
            else:  # the last step leads to the query
                seen = [row[query] for row in steps]
                seen[query] = FAR

    def steps(self, masses, logits, answer, rivals):  # the lengths of the steps to each token
        lengths = []
        for mass, logit in zip(masses, logits):
            gain = DOWN.subtract(logit[answer][0], max(logit[i][1] for i in rivals))
            lengths.append(DOWN.multiply(mass[gain <= 0], gain))
        return lengths


def nearest(steps, rest):
    return [min(map(DOWN.add, row, rest)) for row in steps]


def check(folder):
    stored, found = json.load(open(f"{folder}/model.json")), {}
    model, lengths = Model(stored), [n for n in stored["lengths"] if 2 < n < 4097]
    groups = [lengths] if len(model.places) == 1 else [[n] for n in lengths]
    for some, (q, query) in product(groups, enumerate(model.ids)):
        tables = list(model.tables(q, some[-1]))
        for a, answer in enumerate(model.ids):
            if a == q:
                continue
            rivals = [i for i in range(len(model.outputs)) if i != answer]
            paths = list(model.shortest(tables, q, a, rivals))
            if min(paths[n - 2] for n in some) <= 0:  # not against all rivals together: try them one by one
                paths = list(map(min, zip(*(model.shortest(tables, q, a, [rival]) for rival in rivals))))
            for n in some:
                found[str(n), str(query), str(answer)] = paths[n - 2] > 0
    rows, claims = list(csv.reader(open(f"{folder}/rows.csv")))[1:], {}
    for row in rows:
        claims[tuple(row[:3])] = row[3] == "proved"
    failed = [row for row in {**found, **claims} if found.get(row) != claims.get(row)]
    print(f"{len(found) - len(failed)} of {len(found)} rows hold, {sum(found.values())} are proved. Others: {failed}")
    return len(failed) + len(rows) - len(claims)


if __name__ == "__main__":
    sys.exit(check(sys.argv[1] if len(sys.argv) > 1 else __file__.removesuffix("check.py") or ".") > 0)
