"""Hooks of `mkdocs build`: the files that make the site, and what its pages need to be read without a network.

Files stand in the site where they stand in the checkout, so that a link between two of them works in both.
"""

import ast
import json
import logging
import os
import posixpath
import re
import textwrap
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from io import StringIO
from itertools import chain, takewhile
from pathlib import Path
from typing import Any

import plotly
from bs4 import BeautifulSoup, Tag
from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]

SHOWN = (
    *(
        "README.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "SKILL.md",
        "AGENTS.md",
        "CITATION.cff",
        "LICENSE",
    ),
    "benchmarks/results.md",
    "benchmarks/*.svg",
    *("docs/**/*.md", "docs/*.png", "docs/site/*.css", "docs/site/*.js"),
    *("figures/measured.md", "figures/**/README.md", "figures/**/summary.md", "figures/**/*.svg"),
    "notebooks/*.ipynb",
)
"""Files of the checkout that the site shows as they are."""

MATH = re.compile(
    r"\$\$(?P<block>.+?)\$\$|\$(?P<inline>[^$]+?)\$|\\\[(?P<tex_block>.+?)\\\]|\\\((?P<tex>.+?)\\\)",
    re.S,
)

GALLERY = {
    "figure1/figure1a": "How many layers does induction need, and which learn it fastest?",
    "figure1/figure1b": "How narrow can a model be and still learn induction?",
    "figure2": "Where does gradient descent lead a head's alpha and beta?",
    "hops/figure8": "How many hops do models follow?",
    "figure9": "Does the shift help or hurt where the answer is in the weights?",
    "attribution": "Which attribution methods see the heads of the circuit?",
    "shifts": "Which token shift learns which task?",
    "text": "Does the shift help on text, and where?",
}
"""Folders of the figures on the home page, each with its question."""

EXPLORED = ("figure1/figure1a", "figure1/figure1b", "figure2", "hops/figure8", "figure9")
"""Folders of figures whose pages show the picture to explore in place of the still. The home page shows the first."""

LIBRARY = "docs/site/plotly.min.js"
"""Where the site has plotly's library, once for all pages: it is copied from the installed package."""

PLOTLY = "application/vnd.plotly.v1+json"
"""The type of a notebook's output that is a picture to explore."""

FOLDED = (
    "CHANGELOG.md",
    "benchmarks/results.md",
    *(f"docs/{name}.md" for name in ("cli", "conformance", "hooks", "token_shifts", "variants")),
)
"""Pages of which only the headings of sections are open."""

WIDTH = 88
"""Columns of the help."""

log = logging.getLogger("mkdocs.ihlab")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Fill the navigation: the pages of the reference stand where it says "API", so "FIGURES" and "ISSUES"."""
    overview = (ROOT / "figures/README.md").read_text("utf-8")
    links = re.findall(r"\(([\w/]+/README\.md)\)(?:<br>)?$", overview, flags=re.M)
    figures = [f"figures/{link}" for link in dict.fromkeys(links)]
    reference: list[Any] = []
    for package in packages():
        pages: list[Any] = [_page_of(package)]
        for module in modules(package):
            pages.append({module: _page_of(f"{package}.{module}")})
        reference.append({package: pages})
    issues = [f"docs/issues/{path.name}" for path in sorted(ROOT.glob("docs/issues/*.md"))]
    filled = {"API": reference, "FIGURES": figures, "ISSUES": issues}
    for section in config.nav or []:
        for page in chain(*section.values()):
            if isinstance(page, dict):  # the others are files
                for name, content in page.items():
                    page[name] = filled.get(content, content)
    return config


@event_priority(100)  # before the plugins see the files
def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Return the files of the site, in place of those under docs/."""
    shown = [path for pattern in SHOWN for path in sorted(ROOT.glob(pattern))]
    ours = [_file(path.relative_to(ROOT), ROOT, config) for path in shown]
    made = {"docs/cli.md": command_line()}
    for package in packages():
        made[_page_of(package)] = overview(package)
        for module in modules(package):
            name = f"{package}.{module}"
            made[_page_of(name)] = _module(name)
    themes = [file for file in files if file.src_dir != config.docs_dir]
    generated = [File.generated(config, uri, content=content) for uri, content in made.items()]
    library = Path(plotly.__file__).parent / "package_data/plotly.min.js"
    return Files(
        [*themes, *ours, *generated, File.generated(config, LIBRARY, abs_src_path=str(library))]
    )


def _file(name: Path, source: Path, config: MkDocsConfig) -> File:
    return File(name.as_posix(), str(source), config.site_dir, config.use_directory_urls)


# The reference


def packages() -> list[str]:
    """Return the packages that have a page: all but the command line and compiled kernels."""
    names = []
    for top in ("ihlab", "tasks"):
        for path in sorted((ROOT / top).glob("**/__init__.py")):
            names.append(".".join(path.parent.relative_to(ROOT).parts))
    return [name for name in names if name != "ihlab.cli" and not name.endswith("kernels")]


def modules(package: str) -> list[str]:
    """Return the public modules of a package, each of which has a page of its own."""
    folder = ROOT / package.replace(".", "/")
    return [path.stem for path in sorted(folder.glob("*.py")) if not path.stem.startswith("_")]


def _page_of(name: str) -> str:
    return f"api/{name}.md"


def _module(name: str) -> str:
    """Return the page of a module, whose full name is its title: several modules are called "text"."""
    return f"---\ntitle: {name}\n---\n\n::: {name}\n"


def overview(package: str) -> str:
    """Return the page of a package: what its docstring says, then its modules with the first line of theirs."""
    parts = [
        f"# {package}",
        f"::: {package}\n    options: {{show_root_heading: false, members: false}}",
    ]
    if package == "ihlab":
        parts += [
            "What `import ihlab` gives:",
            "\n".join(f"- [`{name}`][{home}]" for name, home in public().items()),
        ]
    lines = []
    for module in modules(package):
        source = (ROOT / package.replace(".", "/") / f"{module}.py").read_text(encoding="utf-8")
        first = (ast.get_docstring(ast.parse(source)) or "").split("\n\n")[0].replace("\n", " ")
        lines.append(f"- [`{module}`]({package}.{module}.md): {first}")
    return "\n\n".join([*parts, "\n".join(lines)]) + "\n"


def public() -> dict[str, str]:
    """Return the public names of `ihlab`, each with the full name by which the reference has it."""
    import ihlab
    import tasks

    found = {}
    for name in ihlab.__all__:
        home = ihlab._HOME[name]
        if home == "tasks":
            home = getattr(tasks, name).__module__
        found[name] = f"{home}.{name}"
    return found


def command_line() -> str:
    """Return the page of the command line: the help of every command, as it is printed."""
    from ihlab.cli.overview import GROUPS

    parts = [
        "# The command line",
        "`ihlab COMMAND --help` prints these pages. `ihlab train` and `ihlab sample` have one a task.",
        f"```text\n{_help('')}\n```",
    ]
    for command in chain(*GROUPS.values()):
        shown = command
        if command == "sample":
            shown = "sample igsm"  # without a task it has few options
        parts += [f"## ihlab {shown}", f"```text\n{_help(shown)}\n```"]
    return "\n\n".join(parts) + "\n"


def _help(command: str) -> str:
    from ihlab.cli import main

    os.environ["COLUMNS"] = str(WIDTH)
    printed = StringIO()
    with redirect_stdout(printed), suppress(SystemExit):
        main([*command.split(), "--help"])
    lines = []
    for line in printed.getvalue().strip().splitlines():
        lines += textwrap.wrap(line, WIDTH) or [""]
    return "\n".join(lines)


def on_env(env: Any, config: MkDocsConfig, files: Files) -> None:
    """Add llms.txt, by which language models find their way: the pages of the navigation, with their titles."""
    parts = [f"# {config.site_name}", f"> {config.site_description}"]
    for section in config.nav or []:
        for name, pages in section.items():
            links = [_link(page, files) for page in _flat(pages)]
            parts += [f"## {name}", "\n".join(links)]
    files.append(File.generated(config, "llms.txt", content="\n\n".join(parts) + "\n"))


def _flat(pages: Any) -> Iterator[str]:
    """Yield the files of a part of the navigation, without its headings."""
    if isinstance(pages, str):
        yield pages
        return
    for part in pages.values() if isinstance(pages, dict) else pages:
        yield from _flat(part)


def _link(uri: str, files: Files) -> str:
    file = files.get_file_from_path(uri)
    return f"- [{file.page.title}]({file.dest_uri})"


# Pages that need no network


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return a figure's table with a title, and the home page with a gallery of figures, each with its question."""
    if page.file.src_uri.endswith("/summary.md"):
        figure = (
            Path(page.file.abs_src_path).with_name("README.md").read_text("utf-8").splitlines()[0]
        )
        return f"{figure.replace('# ', '# Table: ', 1)}\n\n[The figure](README.md)\n\n{markdown}"
    if page.file.src_uri != "README.md":
        return markdown
    cards = [
        f"[![](figures/{name}/{name.rpartition('/')[2]}.svg)<br>{question}](figures/{name}/README.md)"
        for name, question in GALLERY.items()
    ]
    start, then, end = markdown.partition("## Where to go on")
    gallery = [
        "## Figures",
        '<div class="gallery" markdown>',
        *cards,
        "</div>",
        "[All figures](figures/README.md)",
    ]
    return "\n\n".join([start, *gallery, then + end])


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return a page with pictures to explore and MathML, which browsers draw, without what it loads from elsewhere."""
    notebook, folded = page.file.src_uri.endswith(".ipynb"), page.file.src_uri in FOLDED
    home, uri = f"figures/{EXPLORED[0]}/README.md", page.file.src_uri
    source = {"README.md": home}.get(uri, uri)
    name = source.removeprefix("figures/").removesuffix("/README.md")
    if not (notebook or folded or name in EXPLORED or 'class="arithmatex"' in html):
        return html
    soup = BeautifulSoup(html, "html.parser")
    stills = []
    if notebook:
        stills = _in_notebook(soup, page)
    elif name in EXPLORED:
        stills = _of_figure(soup, name)
    for still, figure in stills:
        script = soup.new_tag("script", attrs={"type": "application/json", "class": "explore"})
        script.string = figure.replace("</", "<\\/")
        still.insert_after(script)
    if stills:
        for uri in (LIBRARY, "docs/site/explore.js"):
            script = files.get_file_from_path(uri)
            soup.append(soup.new_tag("script", src=script.url_relative_to(page.file), defer=""))
    if folded:
        _fold(soup)
    for text in list(_texts(soup, ".jp-RenderedMarkdown" if notebook else ".arithmatex")):
        if MATH.search(text):
            text.replace_with(BeautifulSoup(_mathml(text), "html.parser"))
    for tag in soup.select('script[src^="http"], link[href^="http"]'):
        tag.decompose()
    if notebook:
        for link in soup.select(".jp-RenderedMarkdown a[href]"):
            link["href"] = _resolved(str(link["href"]), page, files)
    return str(soup)


def _of_figure(soup: BeautifulSoup, name: str) -> list[tuple[Tag, str]]:
    """Return the first still of a figure's page, with the JSON of its picture to explore. `name`: its folder."""
    from ihlab.study.find import study
    from ihlab.study.ledger import Folder

    folder = Folder(ROOT / "figures" / name)
    still = soup.select_one(f'img[src$="{folder.picture.name}"]')
    experiment = study(folder.experiment, ROOT / "figures")
    return [(still, experiment.draw_interactive(folder.pictured(), folder.scale).to_json())]


def _in_notebook(soup: BeautifulSoup, page: Page) -> list[tuple[Tag, str]]:
    """Return the stills of a notebook's pictures to explore, with the JSON of the pictures.

    A picture without a stored still has a text in its place, or an empty prompt.
    """
    cells = json.loads(Path(page.file.abs_src_path).read_text("utf-8"))["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    stills = []
    for output, child in zip(outputs, soup.select(".jp-OutputArea-child"), strict=True):
        picture = output.get("data", {}).get(PLOTLY)
        if picture is not None:
            stills.append((child.select_one("img, pre") or child.div, json.dumps(picture)))
    return stills


def _fold(soup: BeautifulSoup) -> None:
    """Put each section below its heading into an element that a click opens, as a search or a link to it does."""
    for heading in soup.find_all("h2"):
        body = list(
            takewhile(lambda part: getattr(part, "name", None) != "h2", heading.next_siblings)
        )
        heading.wrap(soup.new_tag("summary")).wrap(soup.new_tag("details")).extend(body)


def _texts(soup: BeautifulSoup, selector: str) -> Iterator[Any]:
    """Yield the texts under elements, but those of code."""
    for element in soup.select(selector):
        for text in element.find_all(string=True):
            if not any(
                isinstance(above, Tag) and above.name in ("code", "pre", "script", "style")
                for above in text.parents
            ):
                yield text


def _mathml(text: str) -> str:
    """Return a text as HTML, with MathML in place of TeX."""
    parts, done = [], 0
    for found in MATH.finditer(text):
        block = found["block"] or found["tex_block"]
        parts.append(_escaped(text[done : found.start()]))
        if block:
            parts.append(convert(block, display="block"))
        else:
            parts.append(convert(found["inline"] or found["tex"], display="inline"))
        done = found.end()
    return "".join([*parts, _escaped(text[done:])])


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _resolved(href: str, page: Page, files: Files) -> str:
    """Return a notebook's link to a file of the checkout as one to its page, as mkdocs does for Markdown."""
    path, mark, anchor = href.partition("#")
    if not path or re.match(r"[a-z]+:", path):
        return href
    target = files.get_file_from_path(
        posixpath.normpath(posixpath.join(posixpath.dirname(page.file.src_uri), path))
    )
    if target is None:
        log.warning("%s links to %s, which is not in the site.", page.file.src_uri, path)
        return href
    return target.url_relative_to(page.file) + mark + anchor
