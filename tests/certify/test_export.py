"""The exported checker agrees with `certify` on random models, and accepts no forged folder."""

import ast
import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from ihlab import InductionTask, ModelConfig, Transformer
from ihlab.certify import Certificate, certify, standalone
from ihlab.certify.export import export
from tasks import ConfigError
from tests.certify.brute_force import SMALL

LENGTHS = range(3, 7)
OPPOSITE = {"proved": "refuted", "refuted": "proved"}
COVERED = [
    {"ids": 6, "first": 2},
    {"positional": "rope", "attention": "k_shift"},
    {"positional": "rope", "rotary_frequencies": (0.7, -0.1, 7.9, 2.0), "rotary_scale": 1.2},
    {"positional": "rope", "rotary_base": 0.5, "attention": "vanilla"},
    {"positional": "alibi", "attention": "v_shift"},
    {"positional": "alibi", "alibi_slopes": (-0.3,), "shift_first": "own"},
    {"positional": "learned"},
    {"positional": "learned", "shift_first": "own", "norm": "none"},
    {"attention": "kv_clip", "residual": False},
    {"attention": "kv_project", "tied_embeddings": True},
    {"unembedding": "none", "d_vocab": 7},
    {"rotary_scale": 20.0},  # of no effect without RoPE
]


@torch.no_grad()
def certified(seed=0, ids=4, first=0, sharper=1.0, lengths=LENGTHS, wilder=1.0, **fields):
    """The certificate of a random float32 model with random gains and mixing weights."""
    cfg = ModelConfig(**{**SMALL, "d_vocab": ids, "n_ctx": 8, **fields})
    model = Transformer(cfg, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        if weight.ndim < 2 or "shift" in name:
            weight.copy_(0.7 + 0.5 * torch.randn(weight.shape, generator=generator))
    model.layers[0].attn.q_proj.weight.mul_(sharper)
    model.embed.weight.mul_(wilder)
    task = InductionTask(vocab_size=ids, length=3, min_token=first)
    return certify(model, task, lengths)


def checked(folder):
    """Run the folder's checker without site packages. Return its exit code and what it prints."""
    command = [sys.executable, "-I", "-S", str(Path(folder) / "check.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stdout + done.stderr


def rows_of(folder):
    with (folder / "rows.csv").open() as file:
        return list(csv.DictReader(file))


def write_rows(folder, rows, columns=None):
    with (folder / "rows.csv").open("w") as file:
        writer = csv.DictWriter(file, columns or list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def agrees(certificate, folder):
    """Assert that the checker accepts every row as it is, and no row with another verdict."""
    export(certificate, folder)
    rows, proved = rows_of(folder), (certificate.table["verdict"] == "proved").sum()
    code, said = checked(folder)
    ids = range(certificate.task.min_token, certificate.task.vocab_size)
    lengths = sorted({int(row["length"]) for row in rows})
    assert (code, said) == (
        0,
        f"{ids}, lengths {lengths}: {len(rows)} rows, {proved} proved. Not as claimed: []\n",
    )
    for row in rows:
        row["verdict"] = OPPOSITE[row["verdict"]]
    write_rows(folder, rows)
    code, said = checked(folder)
    assert (code, said.count("('")) == (1, len(rows))
    assert all(str((row["length"], row["query"], row["answer"])) in said for row in rows)


@pytest.mark.parametrize("fields", COVERED, ids=str)
def test_every_row_is_accepted_and_no_flipped_one(fields, tmp_path):
    agrees(certified(**fields), tmp_path / "proof")


@pytest.mark.slow
@pytest.mark.parametrize("sharper", [1, 10, 100])
@pytest.mark.parametrize("positional", ["none", "rope", "learned", "alibi"])
def test_sharp_models_agree_row_by_row(positional, sharper, tmp_path):
    for seed in range(2):
        certificate = certified(seed, ids=5, sharper=sharper, positional=positional)
        assert "unknown" not in {*certificate.table["verdict"]}
        agrees(certificate, tmp_path / str(seed))


@pytest.fixture
def folder(tmp_path):
    """A folder with proved and refuted rows."""
    return export(certified(3), tmp_path / "proof")


def changed(index, **columns):
    return lambda rows: [*rows[:index], {**rows[index], **columns}, *rows[index + 1 :]]


FORGED_ROWS = {
    "dropped": lambda rows: rows[1:],
    "twice": lambda rows: [*rows, rows[0]],
    "one for another": lambda rows: [rows[1], *rows[1:]],
    "none": lambda rows: rows[:0],
    "all proved": lambda rows: [{**row, "verdict": "proved"} for row in rows],
    "all unknown": lambda rows: [{**row, "verdict": "unknown"} for row in rows],
    "no number": changed(0, length="three"),
    "the query as the answer": changed(0, query="0", answer="0"),
}


@pytest.mark.parametrize("forgery", FORGED_ROWS)
def test_forged_rows_are_not_accepted(forgery, folder):
    assert checked(folder)[0] == 0
    rows = rows_of(folder)
    write_rows(folder, FORGED_ROWS[forgery](rows), [*rows[0]])
    assert checked(folder)[0] == 1


def edited(**facts):
    return lambda stored: {**stored, **facts}


def weighted(name, change):
    return lambda stored: {
        **stored,
        "weights": {**stored["weights"], name: change(stored["weights"][name])},
    }


FORGED_MODELS = {
    "no lengths": edited(lengths=[]),
    "other ids": edited(ids=[0, 3]),
    "no weights": edited(weights={}),
    "NaN": weighted("embed", lambda rows: [["nan"] * 8, *rows[1:]]),
    "no text": weighted("q", lambda rows: [[1.5] * 8, *rows[1:]]),
    "swapped answers": weighted("unembed", lambda rows: rows[::-1]),
    "minus the values": weighted(
        "out", lambda rows: [[f"-{x}".replace("--", "") for x in row] for row in rows]
    ),
    "no embedding": weighted("embed", lambda rows: []),
    "a negative eps": weighted("constants", lambda rows: [["-0x1p4", *rows[0][1:]]]),
}


@pytest.mark.parametrize("forgery", FORGED_MODELS)
def test_forged_models_are_not_accepted(forgery, folder):
    stored = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps(FORGED_MODELS[forgery](stored)))
    assert checked(folder)[0] == 1


@pytest.mark.parametrize("name", ["model.json", "rows.csv"])
@pytest.mark.parametrize("text", ["", "[]", "\0", "[" * 100_000])
def test_damaged_files_are_not_accepted(name, text, folder):
    (folder / name).write_text(text)
    assert checked(folder)[0] == 1


def test_the_checker_takes_the_folder_as_an_argument(folder, tmp_path):
    program = [sys.executable, "-I", "-S", standalone.__file__]
    for given, code in ((folder, 0), (tmp_path / "none", 1)):
        done = subprocess.run([*program, str(given)], capture_output=True, check=False)
        assert done.returncode == code


def test_the_checker_is_short_and_needs_the_standard_library_only():
    text = Path(standalone.__file__).read_text()
    assert len(text.splitlines()) <= 120
    assert max(map(len, text.splitlines())) <= 120
    imported = [
        node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    names = {each.name for node in imported if isinstance(node, ast.Import) for each in node.names}
    names |= {node.module for node in imported if isinstance(node, ast.ImportFrom)}
    assert names <= {*sys.stdlib_module_names}


def test_a_folder_is_replaced_file_by_file_unless_it_holds_others(folder):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert {*before} == {"model.json", "rows.csv", "check.py", "README.md"}
    assert b"every sequence of 3 to 6 tokens over 4 ids" in before["README.md"]
    (folder / "rows.csv").unlink()
    assert export(certified(3), str(folder)) == folder
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    longest = max(map(len, (folder / "model.json").read_text().splitlines()))
    assert longest < 8 * 30
    (folder / "notes.txt").touch()
    with pytest.raises(ConfigError, match=r"notes\.txt"):
        export(certified(3), folder)
    with pytest.raises(ConfigError, match="not a folder"):
        export(certified(3), folder / "notes.txt")


REFUSED = {
    "n_heads=2": {"n_heads": 2},
    "bias=True": {"bias": True},
    "mask='strict'": {"mask": "strict"},
    "attention='kv_gate'": {"attention": "kv_gate"},
    "33 ids": {"d_vocab": 33},
    "angle of 8 per": {"positional": "rope", "rotary_frequencies": (-8.0, 0.1, 0.1, 0.1)},
}


@pytest.mark.parametrize("said", REFUSED)
def test_models_that_the_checker_does_not_cover_are_refused(said, tmp_path):
    with pytest.raises(ConfigError, match=said) as error:
        export(certified(lengths=[3], **REFUSED[said]), tmp_path / "proof")
    assert str(error.value).count(". ") == 0
    assert not os.listdir(tmp_path)


def test_tasks_and_certificates_that_the_checker_does_not_cover_are_refused(tmp_path):
    model = Transformer(ModelConfig(**SMALL, d_vocab=8, n_ctx=8))
    small = {"vocab_size": 6, "length": 4, "min_token": 0}
    for said, task in {
        "bos=True": InductionTask(**small, bos=True),
        "score_immediate=True": InductionTask(**small, score_immediate=True),
    }.items():
        with pytest.raises(ConfigError, match=said):
            export(certify(model, task, [4, 5, 6]), tmp_path / "proof")
    task = InductionTask(**small)
    certificate = certify(model, task, [3])
    with pytest.raises(ConfigError, match="own automata"):
        export(certify(model, lengths=[3], questions=[certificate.automata[0]]), tmp_path / "proof")
    with pytest.raises(ConfigError, match="1 of the task's questions"):
        export(certify(model, task, [3], questions=[(0, 1)]), tmp_path / "proof")
    certificate.save(tmp_path / "kept.safetensors")
    with pytest.raises(ConfigError, match="certify again, or export before you save"):
        export(Certificate.open(tmp_path / "kept.safetensors"), tmp_path / "proof")
