"""Two iGSM problems and their solutions, in both formats."""

from tasks.igsm.problem import Problem

COMPACT = Problem.parse("Sloop TeaChest = 5 . Sloop SilkChest = 4 + Sloop TeaChest . Sloop Crates ?".split(), 7)
RIGHT = (
    "Sloop TeaChest k ; k = 5 . Sloop SilkChest b ; b = 4 + k = 4 + 5 = 2 . Sloop Crates P ; P = k + b = 5 + 2 = 0 . "
    "<ans> 0 <eos>"
)

NATURAL = Problem.parse(
    """The number of each Riga 's Ketch equals 7 .
    The number of each Bergen 's Sloop equals 3 .
    The number of each Bergen 's Ketch equals 2 times as much as the sum of each Bergen 's Sloop and
    each Riga 's Ketch . How many Ketch does each Bergen have ?""".split(),
    23,
)
LONG = (
    "Define Riga 's Ketch as a ; so a = 7 . Define Bergen 's Sloop as b ; so b = 3 . "
    "Define Bergen 's Ketch as c ; d = b + a = 3 + 7 = 10 ; so c = 2 * d = 2 * 10 = 20 . <ans> 20 <eos>"
)
