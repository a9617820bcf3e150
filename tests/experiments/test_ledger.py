"""The printed ledger: what is in square brackets is text, not markup."""

import io
import json

from rich.console import Console

from ihlab.experiments.ledger import Folder, print_ledger


def test_an_unbounded_interval_is_printed(tmp_path):
    folder = Folder(tmp_path, "figure1a", "smoke")
    folder.path.mkdir(parents=True)
    claim = {
        "sentence": "Heads form [early].",
        "source": "equation [5]",
        "measure": "steps [0, 10]",
        "value": None,
        "interval": [None, None],
        "confidence": 0.95,
        "threshold": 0.5,
        "right_side": "above",
        "verdict": "undecided",
        "seeds": 2,
    }
    (folder.path / "claims.json").write_text(json.dumps([claim]), encoding="utf-8")
    printed = io.StringIO()
    print_ledger(Console(file=printed, width=300), [folder])
    for text in ("Heads form [early].", "equation [5]", "steps [0, 10]: nothing [unbounded, unbounded] 95%, 2 seeds"):
        assert text in printed.getvalue()
