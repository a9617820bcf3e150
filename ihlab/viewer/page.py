"""One HTML file: the payload and the page's own style and script, assembled."""

import base64
import hashlib
import html
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from ihlab.files import write_text
from ihlab.viewer.data import MOST_STEPS, ROWS, view_data

SCRIPTS = ("data.js", "draw.js", "overlay.js", "link.js", "save.js", "lists.js", "heads.js", "controls.js", "page.js")
FRAME_HEIGHT = 980  # pixels in a notebook: header, picture and row of tokens without a second scroll bar


@dataclass(frozen=True)
class View:
    """A page of attention. A notebook shows it in a frame of its own; `write` keeps it as a file."""

    html: str = field(repr=False)

    def _repr_html_(self) -> str:
        """Return the page in a frame that may run its script, save its pictures, and nothing else."""
        page = html.escape(self.html, quote=True)
        return (
            f'<iframe srcdoc="{page}" sandbox="allow-scripts allow-downloads" title="Attention heads" width="100%" '
            f'height="{FRAME_HEIGHT}" style="border: 0"></iframe>'
        )

    def write(self, path: str | Path) -> Path:
        """Write the page as one HTML file that opens offline, and return its path."""
        write_text(Path(path), self.html)
        return Path(path)


def view(
    source: Any,
    tokens: Any = None,
    words: Any = None,
    checkpoints: int = MOST_STEPS,
    rows: int = ROWS,
    megabytes: float | None = None,
    title: str | None = None,
    *,
    row: Sequence[int] | None = None,
) -> View:
    """Return a page of attention: every head on rows of tokens, with what else is known of them.

        view(run)                        # a run, at up to `checkpoints` checkpoints, on rows that its task holds out
        view(model, tokens)              # a `Transformer`, or a TransformerLens model
        view(patterns, tokens)           # any patterns, as CircuitsVis takes them

    `source` is a `Run`; a model; an `ActivationCache`; or patterns, as a tensor or array [layer, batch, head, query,
    key], [layer, head, query, key] or [head, query, key] (one layer), or as a list or tuple with one of [batch, head,
    query, key] or [head, query, key] for each layer.

    `tokens` are the rows: ids or words (a list, or a text with spaces between them), or a list of such rows, or a
    tensor [pos] or [batch, pos]. Words of a model are looked up in its vocabulary; one that is not there is an id.
    By default a run, or a model of one, shows the first `rows` rows that its task holds out, without padding.

    `words` say how ids read: a tokenizer with `decode`, a task, a mapping, a function from an id to its text, or the
    text of each position, nested as `tokens` are. By default the task's own words, or else the ids.

    With a model there are predictions, value-weighted patterns, and tags of heads scored on random repeated tokens;
    patterns alone are scored on their own tokens. What passes `megabytes` is left out, and the page says so: first
    the key routes of shifted models, then rows, then checkpoints. None: 3, or 20 where one row at one step needs more
    (32 heads at 1,024 positions need 19).

    `row` is `tokens` under an older name, with which `tokens` were their text.

    Raises `ConfigError` for a run without checkpoints or metrics or with damaged ones; rows that are empty, too long,
    outside the vocabulary, or do not fit the patterns; names of another length than their row; patterns that are not
    finite or not square; fewer than two `checkpoints`; and one row that alone passes `megabytes`.
    """
    if row is not None:
        tokens, words = row, tokens if words is None else words
    return View(assemble(view_data(source, tokens, words, checkpoints, rows, megabytes, title)))


def write_view(source: Any, path: str | Path, *arguments: Any, **options: Any) -> Path:
    """Write the page that `view` returns to `path`, and return that. Other arguments and errors are those of `view`."""
    return view(source, *arguments, **options).write(path)


def assemble(data: dict[str, Any]) -> str:
    """Assemble the page: style, script and data inline, and a policy that allows these and nothing else.

    The policy names the style and the script by their SHA-256 and forbids every load, so neither a token's
    text nor anything else in the payload can run or fetch.
    """
    style, script = _source("page.css"), "\n".join(_source(name) for name in SCRIPTS)
    return Template(_source("page.html")).substitute(
        policy=f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; base-uri 'none'",
        title=html.escape(data["title"]),
        style=style,
        script=script,
        # Only "<" can end or open a tag inside a script element.
        data=json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"),
    )


def _source(name: str) -> str:
    return files("ihlab.viewer").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
