"""Stored files: whatever is in the place of one is read as it was written, or refused in a sentence
that names it.
"""

import ast
import json
from pathlib import Path

import pytest

import ihlab
from ihlab.storage.stored import MOST_JSON, read_json, read_summary, read_toml, write_summary
from tasks import ConfigError

NUMBERS = {"steps": int, "seconds": float}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "x.json is empty."),
        (b"{half", r"x.json is not JSON \(Expecting .*\)."),
        (b"\xff{}", r"x.json is not UTF-8 text \(byte 0\)."),
        (b"[1]", "x.json holds no JSON object: it must begin with '{'."),
        (
            b'{"a": [{"swing": 1, "b": 2, "swing": 1}]}',
            "x.json has the key 'swing' twice in one object, but must have it once.",
        ),
        (b'{"a":' * 500 + b"1" + b"}" * 500, "x.json is nested too deeply."),
        (b'{"a": ' + b"9" * 21 + b"}", "x.json holds a whole number of 21 digits."),
        (b'{"a": 1e400}', "x.json holds '1e400', but a number is at most 1.8e308."),
        (rb'{"a": ["\ud800"]}', "x.json holds text that is not Unicode."),
    ],
)
def test_what_is_no_json_object_is_refused(tmp_path, content, sentence):
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=rf"^\S+/{sentence}$"):
        read_json(path)


@pytest.mark.parametrize(
    ("put", "sentence"),
    [
        (None, "cannot be read (No such file or directory)."),
        (Path.mkdir, "cannot be read (it is not a regular file)."),
        (
            lambda path: path.write_bytes(b"#" * 2**21),
            f"has {2**21} bytes, but must have at most {MOST_JSON}.",
        ),
        (lambda path: path.write_bytes(b"a ="), "is not TOML: Invalid value (at end of document)."),
    ],
)
def test_a_sweep_file_that_cannot_be_read_is_named_once(tmp_path, put, sentence):
    path = tmp_path / "x.toml"
    if put:
        put(path)
    with pytest.raises(ConfigError) as refused:
        read_toml(path)
    assert str(refused.value) == f"{path} {sentence}"


def test_a_summary_reads_back_and_any_other_content_is_refused(tmp_path):
    path = tmp_path / "done.json"
    assert read_summary(path, NUMBERS, "run") is None
    content = {"steps": 24, "seconds": 1.5, "versions": {"torch": "2"}}
    write_summary(path, content, "run")
    assert read_summary(path, NUMBERS, "run") == content
    assert read_summary(path, NUMBERS, None) == content
    with pytest.raises(ConfigError, match="another checksum"):
        read_summary(path, NUMBERS, "another run")
    for changes in ({"steps": 25}, {"more": 1}):
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))
        with pytest.raises(ConfigError, match=r"done\.json is damaged: it has another checksum"):
            read_summary(path, NUMBERS, "run")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"steps": 1.5}, "steps is 1.5, but must be a whole number"),
        ({"steps": True}, "steps is True, but must be a whole number"),
        ({"seconds": "x"}, "seconds is 'x', but must be a number"),
    ],
)
def test_a_summary_without_a_checksum_has_its_numbers_at_least(tmp_path, changes, sentence):
    path = tmp_path / "done.json"
    path.write_text(json.dumps({"steps": 1, "seconds": 2}))
    assert read_summary(path, NUMBERS, "run") == {"steps": 1, "seconds": 2}
    path.write_text(json.dumps({"steps": 1, "seconds": 2} | changes))
    with pytest.raises(ConfigError, match=sentence):
        read_summary(path, NUMBERS, "run")


OWN = {
    "ihlab.storage.stored": "the boundary",
    "ihlab.storage.model_folder": "the boundary of models",
    "ihlab.training.stored_metrics": "text that the boundary has read",
    "ihlab.sweep.jobs": "the system's",
    "ihlab.cli.terminal": "the null device",
    "ihlab.sweep.results": "the sweep's own table",
    "ihlab.suite.standard": "the package's own",
    "ihlab.viewer.page": "the package's own",
    "ihlab.plots.style": "a picture that it has just drawn",
    "ihlab.study.page": "pages that reproduce wrote, and the package's own",
    "ihlab.study.find": "study files, which Python reads",
    "ihlab.study.ledger": "likewise",
    "ihlab.certify.export": "the package's own checker",
    "ihlab.certify.standalone": "a program that a reader runs, on the folder that the reader names",
    "ihlab.hf.model": "folders that the boundary of models has checked",
    "ihlab.hf.convert": "likewise",
    **dict.fromkeys(
        ("ihlab.hf.conformance.modes", "ihlab.hf.conformance.shifted"),
        "a model that the suite has saved",
    ),
}
"""Modules that read files, and whose these are."""

READS = {"read_text", "read_bytes", "read_csv", "from_pretrained", "load", "fromfile"}
BARE = {"open", "load_file", "safe_open"}
OF = {"json", "np", "numpy", "torch", "pickle", "tomllib"}
"""Modules whose `load` reads; ihlab's own functions of that name go through the boundary."""


def reads_in(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in BARE:
            yield node.func.id
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name, of = node.func.attr, getattr(node.func.value, "id", "")
            if of in OF if name == "load" else name in READS:
                yield name


def test_nothing_else_opens_what_a_stranger_may_have_made():
    root = Path(ihlab.__file__).parent
    modules = {
        ".".join(path.relative_to(root.parent).with_suffix("").parts): path
        for path in root.rglob("*.py")
    }
    assert {name for name, path in modules.items() if any(reads_in(path))} == set(OWN)
