"""Interactive figures for notebooks that need no network: they contain plotly.js and a still picture."""

import base64
import gzip
import hashlib
import html
import io
from typing import Any

import plotly.graph_objects as go
from matplotlib.figure import Figure
from plotly.offline import get_plotlyjs

_PAGE = """<div id="{name}"><img alt="{title}" style="max-width: 100%" src="data:image/png;base64,{still}"></div>
<script>
(async () => {{
  const place = document.getElementById("{name}");
  if (!place || !window.DecompressionStream || !document.createElement("canvas").getContext("webgl")) return;
  if (!window.Plotly) {{
    const packed = Uint8Array.from(atob("{code}"), (letter) => letter.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    const module = {{ exports: {{}} }};  // not the page's own loader, if it has one
    new Function("module", "exports", "define", await new Response(stream).text())(module, module.exports);
    window.Plotly = module.exports;
  }}
  const drawn = document.createElement("div");
  place.append(drawn);
  await window.Plotly.newPlot(drawn, {figure});
  place.firstElementChild.hidden = true;
}})();
</script>"""


class Interactive:
    """A plotly figure that every notebook front end can show without a network.

    JupyterLab draws it with its own plotly. A page, such as a notebook exported to HTML, unpacks the plotly.js stored
    in it (2 MB). Without scripts or WebGL, the still picture is shown.
    """

    def __init__(self, figure: go.Figure, still: Figure) -> None:
        self.figure, self.still = figure, still

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return {
            "application/vnd.plotly.v1+json": self.figure.to_plotly_json(),
            "text/html": self.html(),
            "text/plain": self.title,
        }

    @property
    def title(self) -> str:
        """Title of the figure."""
        return str(self.figure.layout.title.text or "")

    def html(self) -> str:
        """Return the figure as self-contained HTML."""
        content = self.figure.to_json().replace("</", "<\\/")  # no tag ends inside a script
        packed = gzip.compress(get_plotlyjs().encode(), mtime=0)
        file = io.BytesIO()
        self.still.savefig(file, format="png", metadata={"Software": None})
        return _PAGE.format(
            name=f"plotly-{hashlib.sha256(content.encode()).hexdigest()[:10]}",
            title=html.escape(self.title),
            still=base64.b64encode(file.getvalue()).decode(),
            code=base64.b64encode(packed).decode(),
            figure=content,
        )
