"""Assemble one HTML file from the payload and the page's style and script."""

import base64
import hashlib
import html
import json
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from ihlab.storage.files import write_text
from ihlab.viewer.data import MOST_STEPS, ROWS, view_data

SCRIPTS = (
    "data.js",
    "draw.js",
    "overlay.js",
    "link.js",
    "save.js",
    "lists.js",
    "heads.js",
    "controls.js",
    "page.js",
)
FRAME_HEIGHT = (
    980  # pixels in a notebook: header, picture and row of tokens without a second scroll bar
)


@dataclass(frozen=True)
class View:
    """A page of attention. A notebook shows it in its own frame; `write` saves it as a file."""

    html: str = field(repr=False)

    def _repr_html_(self) -> str:
        """Return the page in a frame that may only run its script and save its pictures."""
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
) -> View:
    """Return a page of attention: every head on some sequences, with its scores and the model's
    predictions.

        view(run)                        # a run, at up to `checkpoints` checkpoints, on held-out sequences
        view(model, tokens)              # a `Transformer`, or a TransformerLens model
        view(patterns, tokens)           # any patterns, in the format of CircuitsVis

    `source` is a `Run`; a model; an `ActivationCache`; or patterns, as a tensor or array [layer,
    batch, head, query, key], [layer, head, query, key] or [head, query, key] (one layer), or as a
    list or tuple with one array [batch, head, query, key] or [head, query, key] per layer.

    `tokens` are the sequences: ids or words (a list, or a text with spaces between them), or a list
    of such sequences, or a tensor [pos] or [batch, pos]. With a model, words are looked up in its
    vocabulary; unknown words must be ids. By default a run, or the model of a run, shows the first
    `rows` held-out sequences of its task, without padding.

    `words` gives the text of ids: a tokenizer with `decode`, a task, a mapping, or a function from
    an id to its text. By default the task's words, or else the ids.

    For a model, the page has predictions, value-weighted patterns, and head tags from scores on
    random repeated tokens. Patterns alone are scored on their own tokens. If the page exceeds
    `megabytes`, parts are left out, and it says which: first the key routes of shifted models, then
    sequences, then checkpoints. By default `megabytes` is 3, or 20 if one sequence at one step
    needs more than 3 (32 heads at 1,024 positions need 19).

    Raises `ConfigError` for a run without checkpoints or metrics or with damaged ones; sequences
    that are empty, too long, outside the vocabulary, or do not fit the patterns; `words` of another
    kind; patterns that are not finite or not square; fewer than two `checkpoints`; and one sequence
    that alone exceeds `megabytes`.
    """
    return View(assemble(view_data(source, tokens, words, checkpoints, rows, megabytes, title)))


def write_view(source: Any, path: str | Path, *arguments: Any, **options: Any) -> Path:
    """Write the page that `view` returns to `path`; return `path`. Other arguments and errors are
    those of `view`.
    """
    return view(source, *arguments, **options).write(path)


def assemble(data: dict[str, Any]) -> str:
    """Assemble the page: inline style, script and data, and a content security policy that allows
    nothing else.

    The policy names the style and the script by their SHA-256 and forbids every load, so nothing in
    the payload, such as a token's text, can run code or fetch anything.
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
