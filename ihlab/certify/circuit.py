"""Prove that a circuit of a one-layer model is sufficient, and that each of its parts is necessary."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from ihlab.certify.certify import certify
from ihlab.certify.parts import parts_of


def certify_circuit(
    source: Any, circuit: Sequence[str], task: Any = None, lengths: Any = None
) -> pd.DataFrame:
    """Prove or refute that a circuit is sufficient, and that each of its parts is necessary.

    `circuit` are parts of a one-layer model (`parts_of`). The other arguments are those of
    `certify`. The table has one row for each model that is tested:

    - `left_out`: the parts that it lacks. The first row lacks all parts outside the circuit, each
      other row also one part of the circuit;
    - `verdict`: of the certificate of this model; `proved`: the fraction of its rows that are
      proved;
    - `sufficient`: True in the first row if the circuit alone answers every sequence rightly. False
      if it does not: then `counterexample` is a sequence that it answers wrongly. Missing if
      neither is known;
    - `necessary`: True if the circuit without this part answers `counterexample` wrongly. False if
      it still answers every sequence rightly. Missing in the first row, and if neither is known.
    """
    others = [removed for removed in parts_of(source) if removed not in circuit]
    rows = []
    for removed in [None, *circuit]:
        lacking = others if removed is None else [*others, removed]
        certificate = certify(source, task, lengths, margins=False, without=lacking)
        table, right = certificate.table, {"proved": True, "refuted": False}.get(certificate.status)
        wrong = table.loc[table["verdict"] == "refuted", "worst"]
        row = {
            "left_out": lacking,
            "verdict": certificate.status,
            "proved": (table["verdict"] == "proved").mean(),
            "sufficient": None,
            "necessary": None,
            "counterexample": next(iter(wrong), []),
        }
        if removed is None:
            row["sufficient"] = right
        elif right is not None:
            row["necessary"] = not right
        rows.append(row)
    return pd.DataFrame(rows).astype({"sufficient": "boolean", "necessary": "boolean"})
