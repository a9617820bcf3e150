"""One problem written and solved by hand, in every format.

Edges: Bergen -> Frigate, Corvette; Tromso -> Corvette; Frigate -> CodBox; Corvette -> CodBox,
EelBox (modulus 23). The op by hand: 1 + 1 + 1 + 2 + 1 + 1 + 1 + 3 = 11. Tromso's Corvette is not
needed.
"""

import re

NATURAL = """
The number of each Corvette 's CodBox equals 4 times as much as the sum of each Frigate 's CodBox
    and each Bergen 's Frigate .
The number of each Bergen 's Frigate equals 3 .
The number of each Tromso 's Corvette equals 7 .
The number of each Corvette 's EelBox equals each Frigate 's Crates .
The number of each Frigate 's CodBox equals the difference of each Bergen 's Frigate and each Bergen 's Corvette .
The number of each Bergen 's Corvette equals 5 more than each Bergen 's Frigate .
How many Crates does each Bergen have ?
""".split()

COMPACT = """
Corvette CodBox = 4 * ( Frigate CodBox + Bergen Frigate ) .
Bergen Frigate = 3 .
Tromso Corvette = 7 .
Corvette EelBox = Frigate Crates .
Frigate CodBox = Bergen Frigate - Bergen Corvette .
Bergen Corvette = 5 + Bergen Frigate .
Bergen Crates ?
""".split()

NATURAL_SOLUTION = """
Define Bergen 's Frigate as a ; so a = 3 .
Define Bergen 's Corvette as B ; so B = 5 + a = 5 + 3 = 8 .
Define Frigate 's CodBox as c ; so c = a - B = 3 - 8 = 18 .
Define Corvette 's CodBox as d ; e = c + a = 18 + 3 = 21 ; so d = 4 * e = 4 * 21 = 15 .
Define Frigate 's Crates as f ; so f = c = 18 .
Define Corvette 's EelBox as g ; so g = f = 18 .
Define Corvette 's Crates as h ; so h = d + g = 15 + 18 = 10 .
Define Bergen 's Crates as i ; j = a * f = 3 * 18 = 8 ; k = B * h = 8 * 10 = 11 ; so i = j + k = 8 + 11 = 19 .
<ans> 19 <eos>
""".split()

COMPACT_SOLUTION = (
    re.sub(r"Define (\S+) 's (\S+) as", r"\1 \2", " ".join(NATURAL_SOLUTION))
    .replace("so ", "")
    .split()
)
PAIRS, PAIRS_SOLUTION = (
    re.sub(r"([A-Z]\w+) ([A-Z]\w+)", r"\1/\2", " ".join(words)).split()
    for words in (COMPACT, COMPACT_SOLUTION)
)

PROBLEMS = {
    "natural": (NATURAL, NATURAL_SOLUTION),
    "compact": (COMPACT, COMPACT_SOLUTION),
    "pairs": (PAIRS, PAIRS_SOLUTION),
}
