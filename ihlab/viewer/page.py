"""One run, one HTML file: the payload and the page's own style and script, assembled."""

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
from ihlab.training.run import Run
from ihlab.viewer.data import MOST_STEPS, view_data

SCRIPTS = ("data.js", "draw.js", "page.js")
FRAME_HEIGHT = 980  # pixels in a notebook: header, picture and row of tokens without a second scroll bar


@dataclass(frozen=True)
class View:
    """A run's page. A notebook shows it in a frame of its own; `write` keeps it as a file."""

    html: str = field(repr=False)

    def _repr_html_(self) -> str:
        """Return the page in a frame that may run its script and nothing else."""
        page = html.escape(self.html, quote=True)
        return (
            f'<iframe srcdoc="{page}" sandbox="allow-scripts" title="Attention heads of a run" width="100%" '
            f'height="{FRAME_HEIGHT}" style="border: 0"></iframe>'
        )

    def write(self, path: str | Path) -> Path:
        """Write the page as one HTML file that opens offline, and return its path."""
        write_text(Path(path), self.html)
        return Path(path)


def view(
    run: Run, row: Sequence[int] | None = None, tokens: Sequence[str] | None = None, checkpoints: int = MOST_STEPS
) -> View:
    """Return the page of a run: its heads on one row of tokens, at up to `checkpoints` checkpoints.

    `row` holds the ids to read, by default the task's first held-out row without padding; `tokens` their text,
    by default the task's words, or the ids. Raises `ConfigError` as `view_data` does.
    """
    return View(assemble(view_data(run, row, tokens, checkpoints)))


def write_view(
    run: Run,
    path: str | Path,
    row: Sequence[int] | None = None,
    tokens: Sequence[str] | None = None,
    checkpoints: int = MOST_STEPS,
) -> Path:
    """Write the page of a run (see `view`) to `path`, and return it."""
    return view(run, row, tokens, checkpoints).write(path)


def assemble(data: dict[str, Any]) -> str:
    """Assemble the page: style, script and data inline, and a policy that allows these and nothing else.

    The policy names the style and the script by their SHA-256 and forbids every load, so neither a token's
    text nor anything else in the payload can run or fetch.
    """
    style, script = _source("page.css"), "\n".join(_source(name) for name in SCRIPTS)
    return Template(_source("page.html")).substitute(
        policy=f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; base-uri 'none'",
        title=html.escape(data["run"]),
        style=style,
        script=script,
        # Only "<" can end or open a tag inside a script element.
        data=json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"),
    )


def _source(name: str) -> str:
    return files("ihlab.viewer").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
