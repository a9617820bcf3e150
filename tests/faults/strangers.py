"""Hostile files from a stranger: run folders, Hugging Face folders and sweep files that could harm
whoever opens them.

Every command that accepts such a file opens it. It must give its normal result, or one sentence
that names the problem. It fails if it raises another exception, takes too long, prints
or writes any of the reader's private text, or makes, changes or removes a file outside the folder
and the command's own output.
"""

import json
import math
import pickle
import random
import re
import shutil
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

from ihlab import train
from ihlab.hf import KVShiftForCausalLM, add_shift, from_hf
from tasks import TextTask
from tests.faults import ways_in
from tests.faults.kinds_of_damage import NO_FILE
from tests.faults.table import Row, Tally, sample
from tests.faults.ways_in import Opening, said

SECRET = "MyOwnWords"
"""Private text in files that the reader did not name. No command may show it."""

RUNS, MODELS, SWEEPS = "hostile run folders", "hostile model folders", "hostile sweep files"
SHIFTED = "hostile folders of shifted models"


class Hostile(NamedTuple):
    """A hostile file or folder: its kind, its name, and a function that makes it from a valid one.

    `make(stranger, home)` changes the valid copy at `stranger`; `home` holds the reader's private
    files.
    """

    kind: str
    name: str
    make: Callable[[Path, Path], Any]


def contents(folder: Path) -> dict[str, bytes]:
    """Return every regular file under a folder."""
    return {str(p): p.read_bytes() for p in folder.rglob("*") if p.is_file() and not p.is_symlink()}


def home_of(folder: Path) -> Path:
    """Make the reader's private files."""
    home = folder / "home"
    for name in (
        "letters/a.txt",
        "letters/b.txt",
        "checkpoints/step-3.safetensors",
        ".a.1.partial",
    ):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(
            "\n".join([*(f"{SECRET}{i}{name[-5]}" for i in range(40)), "[UNK]", "[PAD]"])
        )
    return home


def tried(case: Hostile, sound: Path, folder: Path, command: Callable[[Path], Opening]) -> str:
    """Make a hostile copy of `sound`, run one command on it, and return a description of faults (""
    if none).
    """
    shutil.rmtree(folder, ignore_errors=True)
    home, out = home_of(folder), folder / "out"
    out.mkdir()
    stranger = folder / "stranger" / sound.name
    stranger.parent.mkdir()
    (shutil.copytree if sound.is_dir() else shutil.copy)(sound, stranger)
    case.make(stranger, home)
    before, around = contents(home), sorted(folder.iterdir())
    printed, wrong = said(command(stranger), out)
    shown = printed + "".join(p.read_text(errors="replace") for p in out.rglob("*") if p.is_file())
    if SECRET in re.sub(r'[\s|",]', "", shown):  # a page has tokens
        wrong += " The reader's own words are shown."
    if contents(home) != before or sorted(folder.iterdir()) != around:
        wrong += " The reader's files are changed."
    return wrong


# Run folders

CONFIG = ways_in.CONFIG.replace(name="given", steps=6, checkpoints=3)


def resumed(run: Path) -> Callable[[], Any]:
    """Return a function that trains the run of the folder's config, after moving it to the folder
    of that config.
    """

    def go_on() -> None:
        own = run.rename(CONFIG.folder(run.parent))
        (own / "done.json").unlink(missing_ok=True)
        train(CONFIG, own.parent, "cpu")

    return go_on


OF_RUNS: dict[str, Callable[[Path], Opening]] = {
    "runs": lambda run: ["runs", str(run.parent)],
    "heads": lambda run: f"heads {run} --rows 4 --csv heads.csv".split(),
    "view": lambda run: f"view {run} --out page.html".split(),
    "training again": resumed,
}


def edited(
    change: Callable[[dict[str, Any], Path], None], file: str = "config.json"
) -> Callable[[Path, Path], None]:
    """Change a JSON file of a run folder. The folder's name has no hash that could disagree."""

    def make(run: Path, home: Path) -> None:
        content = json.loads((run / file).read_text())
        change(content, home)
        (run / file).write_text(json.dumps(content))

    return make


def corpus(where: str) -> Callable[[Path, Path], None]:
    """Use a text task whose corpus is `where`, with {home} for the reader's folder."""

    def change(content: dict[str, Any], home: Path) -> None:
        content["task"] = {
            "kind": "text",
            "corpus": where.format(home=home),
            "vocab_size": 256,
            "length": 12,
            "split": "train",
        }
        content["model"]["d_vocab"] = 256

    return edited(change)


def sound_run(folder: Path) -> Path:
    """Train the run that will be made hostile. Its folder's name has no hash."""
    run = train(CONFIG, folder, "cpu").folder
    return run.rename(run.with_name("given"))


def sound_text_run(folder: Path) -> Path:
    """Train a run on its own text, and remove all hashes: it then opens with any corpus in its
    config.
    """
    texts = folder / "texts"
    texts.mkdir(parents=True)
    for name in "abc":
        (texts / name).write_text(f"what {name} says " * 30)
    task = TextTask(corpus=str(texts), vocab_size=256, length=12)
    run = train(
        CONFIG.replace(task=task, model=CONFIG.model.replace(d_vocab=256)), folder, "cpu"
    ).folder
    (run / "done.json").unlink()
    for path in (run / "checkpoints").iterdir():
        save_file(load_file(path), path)
    return run.rename(run.with_name("given"))


PLACES = (
    "{home}/letters",
    "{home}",
    "/",
    "/etc",
    "/proc/self",
    "~",
)


def text_runs() -> list[Hostile]:
    """Return runs on text whose corpus is one of the reader's folders."""
    return [Hostile(RUNS, f"corpus {place}", corpus(place)) for place in PLACES]


def at(name: str, make: Callable[[Path, Path], Any]) -> Callable[[Path, Path], None]:
    """Replace a file or folder of the run by the result of `make(path, home)`."""

    def change(run: Path, home: Path) -> None:
        path = run / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(
            missing_ok=True
        )  # never a link, since the run is valid
        make(path, home)

    return change


def linked(target: str) -> Callable[[Path, Path], None]:
    return lambda path, home: path.symlink_to(target.format(home=home))


PLACED: dict[str, Callable[[Path, Path], Any]] = {
    **{what: lambda path, home, make=make: make(path) for what, make in NO_FILE.items()},
    "a link to the reader's letter": linked("{home}/letters/a.txt"),
    "a link to the reader's folder": linked("{home}"),
    "1e6 columns": lambda path, home: path.write_text(
        "step," * 10**6 + "a\n" + "1," * 10**6 + "1\n"
    ),
    "deep JSON": lambda path, home: path.write_text('{"a":' * 10**5),
    "a list": lambda path, home: path.write_text("[1]"),
    "bytes": lambda path, home: path.write_bytes(bytes(range(256))),
    "a large header": lambda path, home: path.write_bytes(
        (2**60).to_bytes(8, "little") + b"{" * 100
    ),
    "nothing": lambda path, home: path.touch(),
}
FILES = """
config.json metrics.csv done.json diverged.json checkpoints checkpoints/step-6.safetensors
checkpoints/step-6.optimizer.safetensors .lock
""".split()


def runs() -> list[Hostile]:
    """Return runs with each file replaced by each hostile file."""
    placed = product(FILES, PLACED.items())
    return [Hostile(RUNS, f"{name}: {what}", at(name, make)) for name, (what, make) in placed]


# Hugging Face models

OF_MODELS: dict[str, Callable[[Path], list[str]]] = {
    "heads": lambda model: f"heads --hf {model} --length 16 --rows 2 --csv heads.csv".split(),
    "view": lambda model: f"view --hf {model} --tokens 1,2,3 --out page.html".split(),
}
OF_SHIFTED: dict[str, Callable[[Path], Opening]] = {
    "from_pretrained": lambda model: lambda: KVShiftForCausalLM.from_pretrained(model),
    "from_hf": lambda model: lambda: from_hf(str(model)),
    "view": OF_MODELS["view"],
}

WRONG: tuple[Any, ...] = (0, -1, 10**12, "x", None, {}, math.nan, ["x"] * 10**5)


def sound_model(folder: Path) -> Path:
    """Copy a small GPT-2 from the tests, with an index of its weights."""
    return Path(
        shutil.copytree(Path(__file__).parents[1] / "interp" / "gpt2_induction", folder / "gpt2")
    )


def sound_shifted(folder: Path) -> Path:
    """Save a small shifted Llama."""
    sizes = {
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
    }
    add_shift(LlamaForCausalLM(LlamaConfig(vocab_size=64, **sizes))).save_pretrained(
        folder / "shifted"
    )
    return folder / "shifted"


def field(name: str, value: Any) -> Callable[[Path, Path], None]:
    return edited(lambda content, home: content.update({name: value}))


def file(name: str, content: str) -> Callable[[Path, Path], None]:
    """Put a file with this content in a folder; {home} in a text is the reader's folder."""

    def make(folder: Path, home: Path) -> None:
        (folder / name).write_text(content.replace("{home}", str(home)))

    return make


def through_index(named: str) -> Callable[[Path, Path], None]:
    """Replace the weights by an index of one file. Beside it are the weights, and a pickle that
    would touch a file.
    """

    def make(folder: Path, home: Path) -> None:
        weights = folder / "model.safetensors"
        shutil.copy(weights, folder.parent / "out.safetensors")
        names = list(load_file(weights))
        weights.unlink()
        (folder / "x.bin").write_bytes(pickle.dumps(Touch(str(home / "touched"))))
        (folder / "model.safetensors.index.json").write_text(
            json.dumps({"weight_map": dict.fromkeys(names, named)})
        )

    return make


class Touch:
    """An object that touches a file when it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (open, (self.path, "w"))


def renamed_tensor(folder: Path, home: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    save_file(
        {("x" if i == 1 else name): x for i, (name, x) in enumerate(tensors.items())},
        folder / "model.safetensors",
    )


def tokenizer_with(name: str, fields: dict[str, Any]) -> Callable[[Path, Path], None]:
    """Put fields, with {home} for the reader's folder, in a file of a BertTokenizer that has no
    vocabulary.
    """

    def make(folder: Path, home: Path) -> None:
        (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
        written = json.dumps({"tokenizer_class": "BertTokenizer"} | fields)
        (folder / name).write_text(written.replace("{home}", str(home)))

    return make


LETTER = "{home}/letters/a.txt"
CONFIGS = "config.json generation_config.json tokenizer_config.json tokenizer.json".split()
LINKED = (*CONFIGS, "model.safetensors", "model.safetensors.index.json", "special_tokens_map.json",
          "vocab.txt", "additional_chat_templates")  # fmt: skip


FOREIGN: tuple[tuple[str, Any], ...] = (
    ("quantization_config", {"quant_method": "gptq"}),
    ("attn_implementation", "someone/kernel"),
    ("model_type", "llama"),
    ("model_type", "t5"),
    ("base_model_type", "t5"),
    ("base_model_type", "kv_shift"),
    ("base_model_type", "mamba"),
    ("sub_config", {"num_labels": 10**8, "layers": [10**9]}),
    ("architectures", ["Nothing"]),
    ("auto_map", {"AutoConfig": "code.Config", "AutoModelForCausalLM": "code.Model"}),
    ("transformers_weights", "../out.safetensors"),
    ("tokenizer_class", "NothingTokenizer"),
    ("dtype", "float8_e4m3fn"),
)
"""Fields of a config, and values that would lead elsewhere."""


def models(kind: str, sound: Path) -> list[Hostile]:
    """Return models with each config field in each wrong form, foreign or damaged weights, or
    additional files.
    """
    config = json.loads((sound / "config.json").read_text())
    unknown = "attn_implementation _attn_implementation num_labels id2label layer_types".split()
    made: dict[str, Callable[[Path, Path], Any]] = {}
    for name, value in product([*config, *unknown], WRONG):
        made[f"{name} = {repr(value)[:30]}"] = field(name, value)
    for name, (what, make) in product(LINKED, PLACED.items()):
        made[f"{name}: {what}"] = at(name, make)
    of_tokenizers: list[dict[str, Any]] = [
        {"vocab": LETTER},
        {"vocab_file": LETTER},
        {"vocab": "../../home/letters/a.txt"},
        {"fast_tokenizer_files": ["../../home/letters/tokenizer.4.json"]},
    ]
    for name, fields in product(
        ("tokenizer_config.json", "special_tokens_map.json"), of_tokenizers
    ):
        made[f"{name} with {fields}"] = tokenizer_with(name, fields)
    for name, value in FOREIGN:
        made[f"{name} = {value!r}"] = field(name, value)
    for named in ("x.bin", "../out.safetensors", "nowhere.safetensors", ""):
        made[f"an index that names {named!r}"] = through_index(named)
    made |= {
        "an adapter of another model": file(
            "adapter_config.json", '{"base_model_name_or_path": "{home}"}'
        ),
        "a number beyond floats": file(
            "config.json", json.dumps(config)[:-1] + ', "num_labels": 1e400}'
        ),
        "part of a distributed checkpoint": file(
            "shard-00000-model-00001-of-00002.safetensors", "x"
        ),
        "a tensor of another name": renamed_tensor,
    }
    return [Hostile(kind, name, make) for name, make in made.items()]


# Sweep files and plug-ins

GRID = """
seeds = 1
steps = 2
batch_size = 4
warmup = 1
eval_rows = 8
checkpoints = 2
task.kind = "text"
task.corpus = "sample"
task.vocab_size = 256
task.length = 12
model.n_layers = 1
model.d_model = 8
model.n_heads = 2
model.d_vocab = 256
model.n_ctx = 12
"""

OF_SWEEPS: dict[str, Callable[[Path], Opening]] = {
    "sweep": lambda grid: f"sweep {grid} --device cpu --jobs 1 --out grid.csv".split()
}


def sound_sweep(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "grid.toml").write_text(GRID)
    return folder / "grid.toml"


def changed(old: str, new: str) -> Callable[[Path, Path], None]:
    return lambda grid, home: grid.write_text(
        grid.read_text().replace(old, new.replace("{home}", str(home)))
    )


def sweeps() -> list[Hostile]:
    """Return sweep files that name the reader's folders or other people's code, or that are too
    large.
    """
    made = {f"corpus {place}": changed('"sample"', f'"{place}"') for place in PLACES}
    for old, new in {
        "seeds = 1": "seeds = 1000000000",
        "steps = 2": "steps = 1" + "0" * 5000,
        '"text"': '"os:system"',
        "seeds = 1\n": 'name = "../../home"\nseeds = 1\n',
        "n_layers = 1": "n_layers = 1000000000",
        "seeds = 1\n\n": "grid.lr = " + "[" * 5000 + "]" * 5000,
        "steps = 2\n": "[a" + ".a" * 3000 + "]\n",
        "warmup = 1": f"grid.lr = {[*range(1000)]}\ngrid.seed = {[*range(1000)]}",
        "eval_rows = 8": f'grid.task = ["{"x" * 10**5}"]',
    }.items():
        made[f"{old.strip()} becomes {new[:40]!r}"] = changed(old, new)
    for name, make in PLACED.items():
        if name != "1e6 columns":
            made[f"grid.toml: {name}"] = at("", make)
    return [Hostile(SWEEPS, name, make) for name, make in made.items()]


def campaign(limit: int | None, seed: int, folder: Path) -> list[Row]:
    """Return a row for each kind of hostile file: the number of openings, and of wrong answers.

    - `limit`: number of openings to try per kind, drawn with `seed`; None: all;
    - `folder`: the folder in which the files are made and opened.

    Wrong answers are printed to stderr.
    """
    rng, openings = random.Random(seed), []
    model, shifted = sound_model(folder / "models"), sound_shifted(folder / "models")
    grid = sound_sweep(folder / "sweeps")
    for cases, sound, commands in (
        (text_runs(), sound_text_run(folder / "text"), OF_RUNS),
        (runs(), sound_run(folder / "runs"), OF_RUNS),
        (models(MODELS, model), model, OF_MODELS),
        (models(SHIFTED, shifted), shifted, OF_SHIFTED),
        (sweeps(), grid, OF_SWEEPS),
    ):
        openings += list(product(cases, [sound], commands.items()))
    tally = Tally()
    for kind in (RUNS, MODELS, SHIFTED, SWEEPS):
        own = [opening for opening in openings if opening[0].kind == kind]
        for case, sound, (name, command) in sample(own, limit, rng):
            wrong = tried(case, sound, folder / "tried", command)
            tally.add(kind, wrong, f"{case.name}, {name}")
    return tally.rows()
