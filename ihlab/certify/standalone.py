"""Check the proofs of a folder, with Python's standard library only: python check.py [FOLDER]

A row of rows.csv is about all sequences of `length` tokens that end in `query` and have it earlier, each time followed
by `answer`. "proved": the answer's logit is then the largest. Other verdicts hold if no proof is found. A position
reads its token b and the token a before it. mass(b after a) is e^score of that key. gain(b after a) is the answer's
logit minus a rival's, if attention read this position alone. The answer leads if the sum of mass * gain over positions
is above 0. This sum is the length of a path: if the shortest is longer than 0 for each rival, the row is proved.
"""

import csv, json, sys
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from operator import add, mul

DOWN, UP = (Context(prec=50, rounding=way, Emin=MIN_EMIN, Emax=MAX_EMAX) for way in (ROUND_FLOOR, ROUND_CEILING))


class Number(tuple):  # (low, high): the exact number is between them
    def __add__(self, other):
        return Number((DOWN.add(self[0], other[0]), UP.add(self[1], other[1])))

    def __mul__(self, other):
        pairs = [(a, b) for a in self for b in other]
        return Number((min(DOWN.multiply(*pair) for pair in pairs), max(UP.multiply(*pair) for pair in pairs)))

    def rising(self, function):  # exp, ln and sqrt give the nearest decimal: step one decimal outwards
        return Number((DOWN.next_minus(function(self[0])), UP.next_plus(function(self[1]))))

    def cos_sin(self):  # [cos, sin, -sin]
        sums, term = [ratio(0)] * 4, ratio(1)
        for n in range(100):
            sums[n % 4] += term
            term *= self * ratio(1, n + 1)
        rest = term * Number((Decimal(-1), Decimal(1)))  # Taylor's series leaves out at most its next term
        return [x + y * ratio(-1) + rest for x, y in (sums[::2], sums[1::2], sums[:0:-2])]


def ratio(a, b=1):  # of integers, or a float in hexadecimal
    a, b = float.fromhex(a).as_integer_ratio() if isinstance(a, str) else (a, b)
    return Number((DOWN.divide(a, b), UP.divide(a, b)))


def through(rows, vector):
    return [sum(map(mul, row, vector), ratio(0)) for row in rows]


class Model:
    def __init__(self, stored):
        self.w = w = {name: [list(map(ratio, row)) for row in rows] for name, rows in stored["weights"].items()}
        self.own_first, self.ids, n = stored["own_first"], range(*stored["ids"]), len(w["q"])
        self.eps, self.residual, self.slope, scale = w["constants"][0]
        angles = [(b.rising(DOWN.ln) * ratio(-i, n)).rising(DOWN.exp) for b in w["base"][0] for i in range(0, n, 2)]
        self.turns = [angle.cos_sin() for angle in angles + w["angles"][0]]
        self.factor = scale * scale * ratio(1, n).rising(DOWN.sqrt)
        self.outputs = [list(map(mul, row, w["final"][0])) for row in w["unembed"]]
        self.written = [through(zip(*w["out"]), row) for row in self.outputs]
        self.places = [self.place(position) for position in w["positions"]]

    def place(self, position):  # logits without attention, queries, keys and values of each token
        streams = normed = [list(map(add, self.w["embed"][i], position)) for i in self.ids]
        for gain in self.w["norm"]:  # x / sqrt(mean(x^2) + eps) * gain, if there is a norm
            means = [through([x], x)[0] * ratio(1, len(x)) + self.eps for x in streams]
            scales = [(mean.rising(DOWN.ln) * ratio(-1, 2)).rising(DOWN.exp) for mean in means]
            normed = [[x * scale for x in map(mul, row, gain)] for row, scale in zip(streams, scales)]
        direct = [[logit * self.residual for logit in through(self.outputs, x)] for x in streams]
        return direct, *([through(self.w[name], x) for x in normed] for name in "qkv")

    def mixed(self, name, now, before):  # shifted keys or values [token before][token]; the last row: a first token
        one, two = ([list(map(mul, x, w)) for x in xs] for w, xs in zip(self.w[name], (now, before)))
        return [*([list(map(add, x, y)) for x in one] for y in two), now if self.own_first else one]

    def tables(self, query, length):  # masses, and logits if a pair alone is read [back][token before][token]
        last, half = (length if len(self.places) > 1 else 1) - 1, len(self.turns)
        direct, point = self.places[last][0][query], [x * self.factor for x in self.places[last][1][query]]
        for back in range(length):
            here, before = self.places[max(last - back, 0)], self.places[max(last - back - 1, 0)]
            far, keys = self.slope * ratio(-back), self.mixed("alpha", here[2], before[2])
            masses = [[(score + far).rising(DOWN.exp) for score in through(row, point)] for row in keys]
            if back <= last:
                values = self.mixed("beta", here[3], before[3])
                logits = [[list(map(add, through(self.written, x), direct)) for x in row] for row in values]
            yield masses, logits
            both = list(zip(point, point[half:], self.turns))  # rotate by one more step
            point = [x * c + y * m for x, y, (c, _, m) in both] + [y * c + x * s for x, y, (c, s, _) in both] or point

    def shortest(self, tables, query, answer, rivals):  # yields the shortest path of 2, 3, .. tokens
        seen, unseen, own = [], [Decimal("Infinity")] * len(self.ids), self.ids[answer]  # the rest after each token
        for masses, logits in tables:
            gains = [[DOWN.subtract(x[own][0], max(x[i][1] for i in rivals)) for x in row] for row in logits]
            *steps, first = [[DOWN.multiply(m[g <= 0], g) for m, g in zip(*row)] for row in zip(masses, gains)]
            if seen:
                unseen[query] = seen[query]
                yield min(map(DOWN.add, first, unseen))
                after_query = DOWN.add(steps[query][answer], seen[answer])
                seen, unseen = ([min(map(DOWN.add, row, rest)) for row in steps] for rest in (seen, unseen))
                seen[query] = after_query
            else:  # the last step leads to the query
                seen = [unseen[0] if before == query else row[query] for before, row in enumerate(steps)]


def check(folder):
    stored, found = json.load(open(f"{folder}/model.json")), {}
    model, lengths = Model(stored), [n for n in stored["lengths"] if 2 < n < 4097]
    for some in [[n] for n in lengths] if len(model.places) > 1 else [lengths]:
        for q, query in enumerate(model.ids):
            tables = list(model.tables(q, some[-1]))
            for a, answer in [pair for pair in enumerate(model.ids) if pair[0] != q]:
                rivals = [i for i in range(len(model.outputs)) if i != answer]
                paths = list(model.shortest(tables, q, a, rivals))
                if min(paths[n - 2] for n in some) <= 0:  # not against all rivals together: try them one by one
                    paths = list(map(min, zip(*(model.shortest(tables, q, a, [rival]) for rival in rivals))))
                found |= {(str(n), str(query), str(answer)): paths[n - 2] > 0 for n in some}
    rows = list(csv.reader(open(f"{folder}/rows.csv")))[1:]
    claims = {tuple(row[:3]): row[3] == "proved" for row in rows}
    failed = [row for row in {**found, **claims} if found.get(row) != claims.get(row)]
    print(f"{model.ids}, lengths {lengths}: {len(found)} rows, {sum(found.values())} proved. Not as claimed: {failed}")
    return len(failed) + len(rows) - len(claims)


if __name__ == "__main__":
    sys.exit(check(sys.argv[1] if len(sys.argv) > 1 else __file__.removesuffix("check.py") or ".") > 0)
