"""Find studies: by the name of a figure, in a folder of figures, or in any file that the user
names.
"""

import ast
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from ihlab.study.experiment import SCALES, Experiment
from ihlab.study.registry import EXPERIMENTS, load_experiments
from ihlab.sweep.imported import import_file
from tasks.config import ConfigError, choose, require

NO_FIGURES = (
    "There is no {}/*/study.py: the paper's studies come with a clone of the repository, not with the installed "
    "package. Run the command in a clone, give its folder with --figures, or name a study file of your own."
)


class Declared(NamedTuple):
    """A figure that a study file declares: the file, and whether it is made if no figure is named."""

    file: Path
    by_default: bool


def declared(figures: Path) -> dict[str, Declared]:
    """Return the figures of `figures/*/study.py` by name. The files are read and not imported.

    A file declares a figure by a call at its top level with `name="figure1a"`. A file that is a
    link out of the folder declares none.
    """
    experiments = {}
    for file in sorted(figures.glob("*/study.py")):
        if not file.resolve().is_relative_to(figures.resolve()):
            continue
        try:
            tree = ast.parse(file.read_text(encoding="utf-8"))
        except (SyntaxError, ValueError) as error:
            raise ConfigError(f"{file} is not Python ({error}).") from None
        assigned = [statement for statement in tree.body if isinstance(statement, ast.Assign)]
        for call in chain(*map(ast.walk, assigned)):
            if isinstance(call, ast.Call):
                fields = {word.arg: getattr(word.value, "value", None) for word in call.keywords}
                name = fields.get("name")
                if isinstance(name, str):
                    experiments[name] = Declared(file, fields.get("by_default") is True)
    return experiments


def studies(file: Path) -> dict[str, Experiment]:
    """Import a study file and return its experiments by name. Raises `ConfigError` if it has none."""
    experiments = {}
    for value in vars(import_file(file)).values():
        if isinstance(value, Experiment) and not isinstance(value, type):
            experiments[value.name] = value
    require(
        bool(experiments),
        f"{file} has no study: assign one to a name at the top level of the file.",
    )
    return experiments


def home(name: str, file: Path) -> Path:
    """Return the folder of a figure: in the folder of its study file, or that folder itself if it
    has the name.
    """
    folder = file.parent
    return folder if folder.name == name else folder / name


def stored(figures: Path) -> dict[str, Path]:
    """Return the folders of all stored figures by name, live and frozen."""
    folders = set()
    for depth in ("*", "*/*", "*/*/*"):
        for path in figures.glob(f"{depth}/claims.json"):
            of_scale = path.parent.name in SCALES
            folders.add(path.parent.parent if of_scale else path.parent)
    return {folder.name: folder for folder in sorted(folders)}


def chosen(name: str, figures: Path) -> list[tuple[Experiment, Path]]:
    """Return the experiments of a name or of a study file, each with its figure's folder.

    `name`: a figure of `figures/*/study.py`, a path that ends in .py, or a registered experiment.
    No other file is imported. Raises `ConfigError` for a name that is none of these.
    """
    if name.endswith(".py"):
        file = Path(name)
        inside = file.resolve().is_relative_to(figures.resolve())
        return [
            (each, home(own, file) if inside else figures / own)
            for own, each in studies(file).items()
        ]
    files = declared(figures)
    if name in files:
        file = files[name].file
        experiments = studies(file)
        return [(experiments[str(choose(f"study of {file}", name, experiments))], home(name, file))]
    load_experiments()
    if name in EXPERIMENTS:
        return [(EXPERIMENTS[name], figures / name)]
    frozen = stored(figures).get(name)
    require(frozen is None, f"{name} is frozen: {frozen}/README.md says how to run its study.")
    require(bool(files), NO_FIGURES.format(figures))
    choose("experiment", name, [*files, *EXPERIMENTS])
    raise AssertionError("choose refuses an unknown name")


def study(name: str, figures: Path = Path("figures")) -> Any:
    """Return the study of a figure. Raises `ConfigError` as `chosen` does."""
    return chosen(name, figures)[0][0]
