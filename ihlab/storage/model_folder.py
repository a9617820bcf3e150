"""Open Hugging Face models safely. No other module has transformers read files that somebody else
may have made.

transformers opens what a folder's files and links name. So everything that it might read is checked
first: links lead to files of the same model, files are regular and of limited size, weights are
safetensors, and no count in a config is larger than that of any model. The model is then built on
the meta device, which takes no memory, and must not be larger than the stored weights. No code of a
model is run or downloaded. Each error is one sentence that names the file.
"""

import math
import os
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

from ihlab.storage.stored import MOST_BYTES, present, read_json, read_tensors, require_regular
from tasks.config import ConfigError, require, shown
from tasks.memory import in_units, require_memory

MOST_INDEX = 2**24
"""Largest size in bytes of a model's JSON: an index names each of its tensors."""
MOST_COUNT, MOST_SIZE = 2**16, 2**20
"""Largest number of layers, labels, entries of a list, ... in a config, and largest size of a
tensor's dimension.

For some counts, transformers builds and checks a list of that length: a second and 40 MB for
`MOST_COUNT` entries.
"""
MOST_PARTS = 2**17
"""Largest number of modules, parameters and buffers that are built to count a model's weights,
within 7 seconds.
"""
FREE_WEIGHTS = 2**20
"""Number of weights that a config may describe even if its files hold fewer: they cost next to
nothing.
"""
FREE_BUFFERS = 2**28
"""Bytes of buffers that a model of any size may have. Causal masks of old models can outweigh a
small model.
"""

LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
"""Fields of a config that hold the number of layers, at least 1."""
SIZES = re.compile("vocab|token|size|dim|ff|inner")
"""Fields of a config that may be up to `MOST_SIZE`."""
LENGTHS = re.compile("position|length|ctx|context|window|chunk|seq|theta|base")
"""Fields of a config without a limit, such as context lengths. They only size tensors, which are
limited.
"""

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
SHARD = re.compile(r"shard-\d+-model-\d+-of-\d+\.safetensors")
"""Names of a distributed checkpoint, which transformers would read instead of `WEIGHTS`."""
NAMING = ("tokenizer_config.json", "special_tokens_map.json")
"""Files whose fields become arguments of a tokenizer, which opens some of them as paths."""
READ_WHOLE = (".json", ".txt", ".model", ".jinja", ".codes", ".spm", ".tiktoken", ".tokenizer")
TEMPLATES = "additional_chat_templates"
HUB = (
    "cache_dir",
    "force_download",
    "local_files_only",
    "proxies",
    "revision",
    "subfolder",
    "token",
)
"""Options of transformers that say where a model's files are."""


class ModelFiles(NamedTuple):
    """The checked files of a model: its name, the path and content of its config, and the paths of
    its weights.
    """

    name: str
    path: Path
    config: dict[str, Any]
    weights: list[Path]


def causal_lm(name: str) -> Any:
    """Load a Hugging Face causal LM in float32 from a folder, or by a name that transformers finds
    or can download.

    Raises `ConfigError` that names the problem, for a folder or name without a model that can be
    opened safely.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    with of_model(name), quiet():
        files = model_files(name)
        config = AutoConfig.from_pretrained(files.name, trust_remote_code=False)
        # A config may name an attention kernel, which transformers would download.
        read = AutoModelForCausalLM.from_pretrained
        return load(files, config, read, attn_implementation="eager", dtype="float32")


def load(
    files: ModelFiles,
    config: Any,
    read: Callable[..., Any],
    /,
    *args: Any,
    output_loading_info: bool = False,
    ignore_mismatched_sizes: bool = False,
    **options: Any,
) -> Any:
    """Return `read(files.name, *args, **options)` for a `from_pretrained` of transformers, from
    safetensors only.

    Raises `ConfigError`, before the model is allocated, for a config of a larger model than the
    weights. Raises it too for a missing tensor or another shape. With `output_loading_info`,
    missing tensors are returned, as by transformers.
    """
    _require_size(files, config)
    rules = {"use_safetensors": True, "trust_remote_code": False, "ignore_mismatched_sizes": True}
    model, said = read(files.name, *args, **(options | rules), output_loading_info=True)
    lacking = min(said["missing_keys"], default=None)
    require(
        output_loading_info or lacking is None,
        f"{files.weights[0]}: the weights lack the tensor {shown(lacking)}.",
    )
    if said["mismatched_keys"] and not ignore_mismatched_sizes:
        tensor, stored, wanted = min(said["mismatched_keys"])
        raise ConfigError(
            f"{files.path}: {shown(tensor)} has the shape {list(wanted)}, but {list(stored)} in the weights."
        )
    return (model, said) if output_loading_info else model


def tokenizer_of(name: str, local: bool = False) -> Any | None:
    """Load a model's tokenizer, with the rules of `causal_lm`; None if it has none.

    `local`: use only files on this machine. Warns of a tokenizer that cannot be opened.
    """
    from transformers import AutoTokenizer

    place = _place(name)
    try:
        hub = {"local_files_only": local}
        _config(place, hub)
        for file in NAMING:
            _require_own_names(_stored(place, file, hub))
        tokenizer = AutoTokenizer.from_pretrained(place, trust_remote_code=False, **hub)
        # Some tokenizers without files load with an empty vocabulary.
        return tokenizer if len(tokenizer) > 1 else None
    except Exception as error:  # any of its files may be damaged
        if not local and Path(place, NAMING[0]).exists():
            warnings.warn(
                f"{name}: its tokenizer cannot be opened ({_said(error)}), so tokens are ids.",
                stacklevel=2,
            )
        return None


@contextmanager
def of_model(name: str | os.PathLike[str]) -> Iterator[None]:
    """Turn any error in the block into a `ConfigError` that names the model.

    Errors of exhausted memory pass unchanged, and so does transformers' own error about a default
    device "meta".
    """
    try:
        yield
    except (ConfigError, MemoryError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # a Rust panic is not an Exception
        panic = type(error).__name__ == "PanicException"
        if not isinstance(error, Exception) and not panic:
            raise
        said = str(error)
        if (
            "can't allocate memory" in said
            or "out of memory" in said.lower()
            or "meta device" in said
        ):
            raise  # it is about the machine, or the caller's default device
        place = Path(_place(name))
        where = place / "config.json" if place.is_dir() else f"The model {shown(name)}"
        raise ConfigError(
            f"{where}: transformers cannot open it as a causal language model: {_said(error)}."
        ) from None


@contextmanager
def quiet() -> Iterator[None]:
    """Silence transformers and all warnings in the block: `load` raises errors for those that
    matter.
    """
    from transformers.utils import logging

    logging.disable_progress_bar()
    level = logging.get_verbosity()
    logging.set_verbosity(logging.CRITICAL)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logging.enable_progress_bar()
        logging.set_verbosity(level)


def _said(error: BaseException) -> str:
    """Return an error as one line of limited length."""
    kind = "" if isinstance(error, ConfigError) else f"{type(error).__name__}, "
    return f"{kind}{' '.join(str(error).split())[:400]}".rstrip(" .,")


def _place(name: str | os.PathLike[str]) -> str:
    """Return the path of an existing folder, with "~" expanded. Return any other name unchanged,
    for transformers.
    """
    folder = os.path.expanduser(name)
    return os.fspath(folder if os.path.isdir(folder) else name)


def _stored(place: str, file: str, hub: dict[str, Any]) -> Path | None:
    """Return the path of a model's file, downloaded if need be; None if there is no such file."""
    from transformers.utils import cached_file

    if os.path.isdir(place):
        path = Path(place, hub.get("subfolder") or "", file)
        return path if present(path) else None
    cached = cached_file(place, file, _raise_exceptions_for_missing_entries=False, **hub)
    return None if cached is None else Path(cached)


def model_files(name: str | os.PathLike[str], **hub: Any) -> ModelFiles:
    """Check the files from which transformers would make a model, and return them.

    `hub`: options of `HUB`. Raises `ConfigError` for a folder that is damaged, leads out of itself,
    has an adapter or quantised weights, or has weights that are not safetensors.
    """
    place = _place(name)
    adapter = _stored(place, "adapter_config.json", hub)
    whole = "give the whole model that model.merge_and_unload() returns."
    require(
        adapter is None, f"{adapter} names another model, to which this one is an adapter: {whole}"
    )
    path, config = _config(place, hub)
    for field in ("transformers_weights", "quantization_config"):
        value = config.get(field)
        require(
            not value,
            f"{path}: {field} is {shown(value)}, but weights must be plain, in model.safetensors.",
        )
    names = [WEIGHTS]
    index = None if _stored(place, WEIGHTS, hub) else _stored(place, INDEX, hub)
    if index is not None:
        named = read_json(index, MOST_INDEX).get("weight_map")
        if not isinstance(named, dict) or not named:
            raise ConfigError(f"{index}: weight_map is {shown(named)}, but must name files.")
        names = sorted({str(file) for file in named.values()})
        for file in names:
            require(
                Path(file).name == file and file.endswith(".safetensors"),
                f"{index} names the file {shown(file)}, but must name .safetensors files of its own folder.",
            )
    weights = [_stored(place, file, hub) or path.with_name(file) for file in names]
    return ModelFiles(place, path, config, weights)


def _config(place: str, hub: dict[str, Any]) -> tuple[Path, dict[str, Any]]:
    """Check the files of a model's folder, and return the path and the content of its config."""
    path = _stored(place, "config.json", hub)
    if path is None:
        raise ConfigError(
            f"{place}: transformers cannot open it as a causal language model: it has no config.json."
        )
    _require_own_files(path.parent)
    config = read_json(path, MOST_INDEX)
    for field, value in _parts(config, "it"):
        if isinstance(value, dict | list):
            require(
                len(value) <= MOST_COUNT,
                f"{path}: {field} has {len(value)} entries, but must have at most {MOST_COUNT}.",
            )
        elif isinstance(value, int) and not LENGTHS.search(field):
            most = MOST_SIZE if SIZES.search(field) else MOST_COUNT
            require(abs(value) <= most, f"{path}: {field} is {value}, but must be at most {most}.")
            require(
                value > 0 or field not in LAYERS,
                f"{path}: {field} is {value}, but must be at least 1.",
            )
        elif isinstance(value, float):
            require(not math.isnan(value), f"{path}: {field} is not a number (NaN).")
        elif isinstance(value, str) and field.endswith("implementation"):
            require(
                "/" not in value, f"{path}: {field} is {shown(value)}, but foreign code is not run."
            )
    return path, config


def _parts(value: Any, field: str) -> Iterator[tuple[str, Any]]:
    """Yield every value in JSON with the name of its field."""
    yield field, value
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _parts(item, name)
    elif isinstance(value, list):
        for item in value:
            yield from _parts(item, field)


def _require_own_files(folder: Path) -> None:
    """Raise for links out of a model's folder, for files that are not regular, and for text of
    excessive size.
    """
    templates = folder / TEMPLATES
    paths = list(folder.iterdir())
    if templates.is_dir() and _inside(templates, folder):
        paths += templates.iterdir()
    for path in paths:
        require(
            _inside(path, folder),
            f"{path} leads to {os.path.realpath(path)}, but links of a model must lead to files of its own folder, or "
            "of the blobs beside it in Hugging Face's cache.",
        )
        if path.is_dir() or not path.exists():
            continue
        size, small = require_regular(path), path.suffix in READ_WHOLE
        require(
            size <= MOST_BYTES or not small,
            f"{path} has {size} bytes, but must have at most {MOST_BYTES}.",
        )
        require(
            not SHARD.match(path.name),
            f"{path} is part of a distributed checkpoint, but weights must be in {WEIGHTS}.",
        )


def _inside(path: str | Path, folder: Path) -> bool:
    """Return whether a path leads to a file of a folder, or of the blobs of the repository in which
    the folder is.

    Hugging Face's cache has models--OWNER--NAME/snapshots/COMMIT/FILE, a link to
    models--OWNER--NAME/blobs/HASH.
    """
    root, target = Path(os.path.realpath(folder)), Path(os.path.realpath(path))
    homes = [root]
    for parent in root.parents:
        if parent.name == "snapshots" and parent.parent.name.startswith("models--"):
            homes.append(parent.parent / "blobs")
    return any(target.is_relative_to(home) for home in homes)


def _require_own_names(path: Path | None) -> None:
    """Raise for a file of a tokenizer that names a file outside the model's folder."""
    if path is None:
        return
    fields = read_json(path, MOST_INDEX, most_digits=40)  # a common model_max_length has 31
    for _, text in _parts(fields, ""):
        if not isinstance(text, str):
            continue
        for named in (text, os.path.join(path.parent, text)):
            is_file = os.path.exists(named) and not os.path.isdir(named)
            require(
                not is_file or _inside(named, path.parent),
                f"{path} names the file {shown(text)}, but must name files of its own folder.",
            )


def _require_size(files: ModelFiles, config: Any) -> None:
    """Raise for damaged weights, and for a config of a larger model than the weights."""
    from safetensors import safe_open

    shapes: list[list[int]] = []
    for file in files.weights:
        read_tensors(file, tensors=False)
        with safe_open(file, framework="pt") as opened:
            names = opened.keys()
            shapes += [opened.get_slice(name).get_shape() for name in names]
    unallocated = _unallocated(files, config, min(16 * len(shapes) + 4096, MOST_PARTS))
    n_numbers = sum(map(math.prod, shapes))
    wanted = sum(tensor.numel() for tensor in unallocated.parameters())
    # Twice, because a tied unembedding is stored once.
    require(
        wanted <= max(2 * n_numbers, FREE_WEIGHTS),
        f"{files.path} describes a model of {wanted} weights, but {files.weights[0]} and its like hold {n_numbers}.",
    )
    weights = sum(tensor.nbytes for tensor in unallocated.parameters())
    buffers = sum(tensor.nbytes for tensor in unallocated.buffers())
    require(
        buffers <= max(4 * weights, FREE_BUFFERS),
        f"{files.path} describes buffers of {in_units(buffers)} beside weights of {in_units(weights)}.",
    )
    require_memory(f"The model of {files.path}", weights + buffers)


def _unallocated(files: ModelFiles, config: Any, most: int) -> Any:
    """Build a model on the meta device, of at most `most` modules, parameters and buffers."""
    import torch
    from torch.nn.modules import module as registration
    from transformers import AutoModelForCausalLM

    n_parts = 0

    def count(*_: Any) -> None:
        nonlocal n_parts
        n_parts += 1
        require(
            n_parts <= most,
            f"{files.path} describes a model of more than {most} parts, too many for its weights.",
        )

    with ExitStack() as hooks:
        for kind in ("module", "parameter", "buffer"):
            hooks.enter_context(
                getattr(registration, f"register_module_{kind}_registration_hook")(count)
            )
        hooks.enter_context(torch.device("meta"))
        return AutoModelForCausalLM.from_config(
            deepcopy(config), trust_remote_code=False, attn_implementation="eager"
        )
