"""Write a certificate as a folder that anybody can check: with `standalone.py`, without installing
anything.
"""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ihlab.certify.parts import STORED_AS_MIXED
from ihlab.model.registry import VARIANTS
from ihlab.model.shift import TokenShift
from ihlab.model.transformer import Transformer
from ihlab.storage.files import as_folder, write_text
from tasks.config import require
from tasks.files import remove_partial

MOST_IDS = 32
FASTEST = 8.0
"""Rotary angles, per position, must be smaller: the checker adds up a series of 100 terms."""
README = """# A certificate that anybody can check

The set: {set}.

The verdict: {verdict}

It holds for the weights in `model.json`, in real arithmetic. A right answer has a larger logit than every other id.
To check every row, with Python 3.11 or later and nothing else, run

    python check.py

It exits with 0 if every row holds. Otherwise it names the rows that do not, and exits with 1. A row called proved holds
if the program finds its proof. Any other row holds if the program finds none; its column `worst` is not tested.
It prints the ids and lengths that it took from `model.json`: compare them with the set above.
A changed weight is noticed only if a row then no longer holds: that these are the weights of a run, no file here says.
Export the run's proof again and compare `model.json`.

- `model.json`: the weights as hexadecimal floats, one vector a line. `ids`: the first id, and the last id plus 1.
  `lengths`: numbers of tokens. `own_first`: true if the first token's key and value are not mixed. `alpha` and `beta`
  mix a token's key and value (first row) with those of the token before (second row). `constants`: the eps of the
  norms, 1 if the layer adds to the residual stream, the slope of ALiBi, the factor on rotated vectors. `angles` are the
  rotary angles per position; if `base` is given, they are base^(-2 i / d_head).
- `rows.csv`: a verdict for each length, query and answer. `worst` is a sequence that is answered wrongly.
- `check.py`: the checker. Its first lines say why it is right. Each number is enclosed by two decimals, a low one
  rounded down and a high one rounded up. It computes every row from `model.json` and compares only the verdicts.
"""


def export(certificate: Any, folder: str | Path) -> Path:
    """Write a `Certificate` as a folder with model.json, rows.csv, check.py and README.md, and
    return its path.

    An existing folder must be empty or hold an earlier export. Raises `ConfigError`, with the
    reason, for other files, and for certificates that check.py does not cover.
    """
    require_covered(certificate)
    path = as_folder("folder", folder)
    files = {
        "model.json": _model(certificate),
        "rows.csv": _rows(certificate),
        "check.py": Path(__file__).with_name("standalone.py").read_text(encoding="utf-8"),
        "README.md": README.format(set=certificate.set, verdict=certificate.verdict),
    }
    if path.exists():
        remove_partial(path, "*")
        for each in sorted(path.iterdir()):
            require(
                each.name in files,
                f"{path} holds other files ({each.name}): give a new or an empty folder.",
            )
    for name, text in files.items():
        write_text(path / name, text)
    return path


def require_covered(certificate: Any) -> None:
    """Raise `ConfigError`, with the reason, unless check.py covers a certificate's model, task and
    questions.
    """
    task, model = certificate.task, certificate._network
    require(
        task is not None,
        "The certificate is of your own automata, but check.py knows the induction task only.",
    )
    require(
        model is not None,
        "The certificate was opened from a file, which has no weights: certify again, or export before you save.",
    )
    require(
        certificate.questions is None,
        f"The certificate has {len(certificate.questions or ())} of the task's questions, but check.py expects all.",
    )
    cfg, variant, rules = model.cfg, VARIANTS[model.cfg.attention], {None, *STORED_AS_MIXED}
    fastest = max(map(abs, _angles(model)), default=0.0)
    limits = {
        f"bos={task.bos}": (not task.bos, "tasks without BOS"),
        f"score_immediate={task.score_immediate}": (
            not task.score_immediate,
            "answers other than the query",
        ),
        f"n_heads={cfg.n_heads}": (cfg.n_heads == 1, "one head"),
        f"mlp={cfg.mlp!r}": (cfg.mlp == "none", "attention without an MLP"),
        f"bias={cfg.bias}": (not cfg.bias, "layers without biases"),
        f"mask={cfg.mask!r}": (cfg.mask == "causal", "causal masks"),
        f"attention={cfg.attention!r}": (
            {variant.key, variant.value} <= rules,
            "shifts whose weights are stored",
        ),
        f"{cfg.d_vocab} ids": (cfg.d_vocab <= MOST_IDS, f"at most {MOST_IDS}"),
        f"an angle of {fastest:.3g} per position": (fastest < FASTEST, "those below 8"),
    }
    for setting, (covered, what) in limits.items():
        require(covered, f"The certificate is of {setting}, but check.py covers only {what}.")


def _angles(model: Transformer) -> list[float]:
    cfg, width = model.cfg, model.cfg.head_width
    if cfg.positional != "rope":
        return []
    if cfg.rotary_frequencies is not None:
        return [float(frequency) for frequency in cfg.rotary_frequencies]
    return [cfg.rotary_base ** (-i / width) for i in range(0, width, 2)]


def _model(certificate: Any) -> str:
    """Return the text of model.json: one vector a line."""
    model, task = certificate._network, certificate.task
    cfg, block = model.cfg, model.layers[0]
    attn, empty = block.attn, torch.zeros(1, 0)
    slope = 0.0 if attn.alibi is None else float(attn.alibi.slopes[0])
    scale = 1.0 if attn.rotary is None else cfg.rotary_scale
    constants = [cfg.eps, block.residual, slope, scale]
    weights: dict[str, Any] = {
        "constants": torch.tensor([constants], dtype=torch.float64),
        "embed": model.embed.weight,
        "positions": torch.zeros(1, cfg.d_model),
        "norm": torch.zeros(0, cfg.d_model),
        "q": attn.q_proj.weight,
        "k": attn.k_proj.weight,
        "v": attn.v_proj.weight,
        "alpha": _mixing(attn.key_shift, attn.d_head),
        "beta": _mixing(attn.value_shift, attn.d_head),
        "base": empty,
        "angles": empty,
        "out": attn.o_proj.weight,
        "final": torch.ones(1, cfg.d_model),
        "unembed": model.unembed.weight,
    }
    if model.pos_embed is not None:
        weights["positions"] = model.pos_embed.weight
    if block.ln1 is not None:
        weights["norm"], weights["final"] = block.ln1.w[None], model.ln_final.w[None]
    if attn.rotary is not None and cfg.rotary_frequencies is None:
        weights["base"] = torch.tensor([[cfg.rotary_base]], dtype=torch.float64)
    elif attn.rotary is not None:
        weights["angles"] = torch.tensor([cfg.rotary_frequencies], dtype=torch.float64)
    facts = {
        "ids": [task.min_token, task.vocab_size],
        "lengths": certificate.lengths,
        "own_first": attn.first_own,
    }
    lines = [f' "{name}": {json.dumps(fact)}' for name, fact in facts.items()]
    named = [f'  "{name}": [{_lines(matrix)}]' for name, matrix in weights.items()]
    lines.append(' "weights": {\n' + ",\n".join(named) + "\n }")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _lines(matrix: Tensor) -> str:
    rows = [json.dumps([x.hex() for x in row]) for row in matrix.detach().cpu().double().tolist()]
    return "\n   " + ",\n   ".join(rows) + "\n  " if rows else ""


def _mixing(shift: TokenShift | None, d_head: int) -> Tensor:
    """Return the weights of a token and of the one before [2, d_head]; 1 and 0 without a shift."""
    if shift is None:
        return torch.tensor([[1.0] * d_head, [0.0] * d_head])
    weights = shift.weights().detach()[0]
    return weights if weights.ndim == 2 else weights[:, None].expand(-1, d_head)


def _rows(certificate: Any) -> str:
    lines = ["length,query,answer,verdict,worst"]
    for row in certificate.table.itertuples():
        worst = " ".join(map(str, row.worst)) if row.verdict == "refuted" else ""
        lines.append(f"{row.length},{row.query},{row.answer},{row.verdict},{worst}")
    return "\n".join(lines) + "\n"
