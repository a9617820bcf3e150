"""Reading of untrusted files: the only module that opens files that somebody else may have made.

It reads run folders, their tables and tensors, sweep files and Hugging Face folders, and trusts none of them. It
accepts only regular files of limited size, UTF-8, JSON of limited size and depth, and weights in safetensors. Each
error is one sentence that names the file. `ihlab.files` writes, and follows no links inside a run folder.
"""

import json
import math
import os
import stat
import tomllib
import warnings
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ihlab.files import write_json
from tasks.config import ConfigError, require, shown
from tasks.memory import require_memory

if TYPE_CHECKING:
    from torch import Tensor

MOST_BYTES = 2**28
"""Largest size of a table, and of a vocabulary, in bytes."""
MOST_JSON = 2**20
"""Largest size in bytes of a run folder's JSON, and of a sweep file. `ihlab runs` reads the JSON of every run."""
MOST_INDEX = 2**24
"""Largest size in bytes of a Hugging Face model's JSON: an index names each of its tensors."""
MOST_DEPTH = 32
MOST_DIGITS = 20

DONE, DIVERGED, UNFINISHED = "done", "diverged", "unfinished"
"""The status of a stored run in tables of runs."""

SEAL = "crc32"
"""The key of a summary's checksum, which covers its other fields."""


def present(path: Path) -> bool:
    """Return whether anything exists at this path. A broken symbolic link counts: it is reported as damage later.

    Raises `ConfigError` if this user may not look into the folder.
    """
    try:
        path.lstat()
    except PermissionError as error:
        raise ConfigError(f"{path}: {error.strerror}.") from None
    except (OSError, ValueError):
        return False
    return True


def require_regular(path: Path) -> int:
    """Return a file's size in bytes. Raises `ConfigError` for anything but a regular file, without opening it.

    Opening a FIFO would block, and reading a device might never end.
    """
    try:
        found = path.stat()
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read ({_reason(error)}).") from None
    require(stat.S_ISREG(found.st_mode), f"{path} cannot be read (it is not a regular file).")
    return found.st_size


def read_bytes(path: Path, most: int = MOST_BYTES) -> bytes:
    """Read a file of at most `most` bytes. Raises `ConfigError` if it is larger, empty, or cannot be read."""
    size = require_regular(path)
    require(size > 0, f"{path} is empty.")
    require(size <= most, f"{path} has {size} bytes, but must have at most {most}.")
    try:
        with path.open("rb") as file:
            return file.read(size)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({_reason(error)}).") from None


def as_text(content: bytes, path: Path) -> str:
    """Decode the content of a file. Raises `ConfigError` if it is not UTF-8."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text (byte {error.start}).") from None


def read_json(path: Path, most: int = MOST_JSON) -> dict[str, Any]:
    """Read a JSON object of at most `most` bytes.

    Raises `ConfigError` for a file that cannot be read or is not a JSON object, for nesting deeper than `MOST_DEPTH`,
    for an integer of more than `MOST_DIGITS` digits, and for text that is not Unicode.
    """

    def whole(digits: str) -> int:
        require(len(digits) <= MOST_DIGITS, f"{path} holds a whole number of {len(digits)} digits.")
        return int(digits)

    try:
        content = json.loads(as_text(read_bytes(path, most), path), parse_int=whole)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path} is not JSON ({error}).") from None
    except RecursionError:
        raise ConfigError(f"{path} is nested too deeply.") from None
    require(isinstance(content, dict), f"{path} holds no JSON object: it must begin with '{{'.")
    _check(content, path, MOST_DEPTH)
    return dict(content)


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file of at most `MOST_JSON` bytes. Raises `ConfigError` if it cannot be read or is not TOML."""
    content = as_text(read_bytes(path, MOST_JSON), path)
    try:
        return tomllib.loads(content)
    except ValueError as error:  # not TOML, or a number with too many digits
        raise ConfigError(f"{path} is not TOML: {error}.") from None
    except RecursionError:
        raise ConfigError(f"{path} nests tables or lists too deeply for a sweep.") from None


def read_tensors(path: Path, tensors: bool = True) -> "tuple[dict[str, Tensor], dict[str, str]]":
    """Return the tensors of a safetensors file (none if `tensors` is False) and its metadata.

    Raises `ConfigError` for a file that is not safetensors, is truncated, or cannot be read.
    """
    from safetensors import SafetensorError, safe_open

    require_regular(path)
    try:
        path.open("rb").close()  # safetensors would report an unreadable file as missing
        with safe_open(path, framework="pt") as file:
            names = file.keys() if tensors else ()
            return {name: file.get_tensor(name) for name in names}, dict(file.metadata() or {})
    except PermissionError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from None
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        raise ConfigError(f"{path} cannot be read ({error}).") from None


def _check(value: Any, path: Path, deeper: int) -> None:
    """Raise for JSON that is nested too deeply, and for text that cannot be encoded (half of a surrogate pair)."""
    require(deeper > 0, f"{path} is nested too deeply.")
    if isinstance(value, str):
        require(
            all(not "\ud800" <= character <= "\udfff" for character in value), f"{path} holds text that is not Unicode."
        )
    elif isinstance(value, dict):
        for name, item in value.items():
            _check(name, path, deeper)
            _check(item, path, deeper - 1)
    elif isinstance(value, list):
        for item in value:
            _check(item, path, deeper - 1)


def write_summary(path: Path, content: Mapping[str, Any], owner: str) -> None:
    """Write a JSON object with a checksum over it and its owner, atomically."""
    write_json(path, {**content, SEAL: _checksum(content, owner)})


def read_summary(path: Path, numbers: Mapping[str, type], owner: str | None) -> dict[str, Any] | None:
    """Read the file of `write_summary`; None if there is no file. Older files without a checksum are read too.

    `owner`: the owner given to `write_summary`. If it is None (unknown), the checksum is not checked.

    Raises `ConfigError` as `read_json` does, for a field of `numbers` (names, with type int or float) that is missing
    or of another type, and for a checksum that does not match.
    """
    if not present(path):
        return None
    content = read_json(path)
    seal = content.pop(SEAL, None)
    for name, kind in numbers.items():
        given = content.get(name)
        right = isinstance(given, int | kind) and not isinstance(given, bool)
        what = "a whole number" if kind is int else "a number"
        require(right, f"{path}: {name} is {shown(given)}, but must be {what}.")
    intact = owner is None or seal is None or seal == _checksum(content, owner)
    require(intact, f"{path} is damaged: it has another checksum than when it was written.")
    return content


def _checksum(content: Mapping[str, Any], owner: str) -> str:
    return f"{zlib.crc32(json.dumps([owner, content], sort_keys=True).encode()):08x}"


def _reason(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)


# Hugging Face models

COUNTS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
"""Fields of a config that hold the number of layers."""


def causal_lm(name: str) -> Any:
    """Load a Hugging Face causal LM from a folder, or by a name that transformers finds or can download.

    No code of the model is run or downloaded, and weights are read only from safetensors inside the folder. Raises
    `ConfigError` that names the problem, for a folder or name without such a model.
    """
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    level = logging.get_verbosity()
    logging.set_verbosity(logging.CRITICAL)
    try:
        with of_model(name), warnings.catch_warnings(action="ignore"):
            _check_folder(name)
            model, said = AutoModelForCausalLM.from_pretrained(
                _place(name),
                use_safetensors=True,
                trust_remote_code=False,
                attn_implementation="eager",  # a config may name a kernel, which would be downloaded
                output_loading_info=True,
            )
    finally:
        logging.enable_progress_bar()
        logging.set_verbosity(level)
    wrong = sorted(said["missing_keys"]) + [str(each) for each in said["mismatched_keys"]]
    require(
        not wrong, f"{name}: the weights lack the tensor {shown(wrong[0]) if wrong else ''}, or it has another shape."
    )
    return model


def tokenizer_of(name: str, local: bool = False) -> Any | None:
    """Load a model's tokenizer, with the rules of `causal_lm`; None if it has none.

    `local`: use only files on this machine. Warns of a tokenizer that cannot be opened.
    """
    from transformers import AutoTokenizer

    try:
        found = AutoTokenizer.from_pretrained(_place(name), trust_remote_code=False, local_files_only=local)
        return found if len(found) > 1 else None  # some tokenizers without files load with an empty vocabulary
    except Exception as error:  # any of its files may be damaged
        if not local and (Path(_place(name)) / "tokenizer_config.json").exists():
            warnings.warn(f"{name}: its tokenizer cannot be opened ({_said(error)}), so tokens are ids.", stacklevel=2)
        return None


@contextmanager
def of_model(name: str) -> Iterator[None]:
    """Turn any error in the block into a `ConfigError` that names the model, except running out of memory."""
    try:
        yield
    except (ConfigError, MemoryError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # a Rust panic is not an Exception
        panic = type(error).__name__ == "PanicException"
        if not isinstance(error, Exception) and not panic:
            raise
        if "can't allocate memory" in str(error) or "out of memory" in str(error).lower():
            raise
        place = Path(_place(name))
        where = place / "config.json" if place.is_dir() else f"--hf {shown(name)}"
        raise ConfigError(f"{where}: transformers cannot open it as a causal language model: {_said(error)}.") from None


def _said(error: BaseException) -> str:
    """Return an error as one line of limited length."""
    return f"{type(error).__name__}, {' '.join(str(error).split())[:400]}".rstrip(" .,")


def _place(name: str) -> str:
    """Return the path of an existing folder, with "~" expanded. Return any other name unchanged, for transformers."""
    folder = os.path.expanduser(name)
    return folder if os.path.isdir(folder) else name


def _check_folder(name: str) -> None:
    """Raise for a model that is damaged, refers to files outside its folder, or has weights not in safetensors."""
    from transformers.utils import cached_file

    def stored(file: str) -> Path | None:
        if os.path.isdir(folder := _place(name)):
            return Path(folder, file) if present(Path(folder, file)) else None
        found = cached_file(name, file, _raise_exceptions_for_missing_entries=False)
        return None if found is None else Path(found)

    path = stored("config.json")
    require(path is not None, f"{name}: transformers cannot open it as a causal language model: it has no config.json.")
    assert path is not None
    config = read_json(path, MOST_INDEX)
    adapter = stored("adapter_config.json")
    require(adapter is None, f"{adapter} names another model, to which this one is an adapter: give a whole model.")
    for field in ("transformers_weights", "quantization_config"):
        given = config.get(field)
        require(not given, f"{path}: {field} is {shown(given)}, but weights must be plain, in model.safetensors.")
    files = ["model.safetensors"]
    index = stored("model.safetensors.index.json")
    if index is not None and (not os.path.isdir(_place(name)) or not present(path.with_name(files[0]))):
        named = read_json(index, MOST_INDEX).get("weight_map")
        require(isinstance(named, dict) and bool(named), f"{index}: weight_map is {shown(named)}, but must name files.")
        files = sorted({str(file) for file in named.values()}) if isinstance(named, dict) else []
        for file in files:
            plain = Path(file).name == file and file.endswith(".safetensors")
            require(plain, f"{index} names the file {shown(file)}, but must name .safetensors files of its own folder.")
    _check_weights(name, path, config, [stored(file) or path.with_name(file) for file in files])


def _check_weights(name: str, path: Path, config: Mapping[str, Any], files: list[Path]) -> None:
    """Raise for damaged weights, and for a config of a larger model than the weights, before it is allocated."""
    import torch
    from safetensors import safe_open
    from transformers import AutoConfig, AutoModelForCausalLM

    n_tensors = n_numbers = 0
    for file in files:
        read_tensors(file, tensors=False)
        with safe_open(file, framework="pt") as opened:
            shapes = [opened.get_slice(tensor).get_shape() for tensor in opened.keys()]  # noqa: SIM118
        n_tensors += len(shapes)
        n_numbers += sum(math.prod(shape) for shape in shapes)
    for part in (config, *(part for part in config.values() if isinstance(part, dict))):
        for field in COUNTS:
            given = part.get(field, 1)
            right = isinstance(given, int) and not isinstance(given, bool) and 1 <= given <= n_tensors
            require(right, f"{path}: {field} is {shown(given)}, but must be 1 to {n_tensors}, the number of tensors.")
    settings = AutoConfig.from_pretrained(_place(name), trust_remote_code=False)
    with torch.device("meta"):
        made = AutoModelForCausalLM.from_config(settings, trust_remote_code=False, attn_implementation="eager")
    wanted = sum(tensor.numel() for tensor in made.parameters())
    require(
        wanted <= 2 * n_numbers,  # twice, because a tied unembedding is stored once
        f"{path} describes a model of {wanted} weights, but {files[0]} and its like hold {n_numbers}.",
    )
    require_memory(f"The model of {path}", sum(x.nbytes for x in (*made.parameters(), *made.buffers())))
