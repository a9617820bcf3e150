"""Models of transformers that a command is given by folder or name."""

import os
from pathlib import Path
from typing import Any

from tasks.config import ConfigError, shown


def causal_lm(name: str) -> Any:
    """Load a causal language model with transformers, which finds a name among what it has stored or can fetch.

    Code that comes with a model is not run, and weights are read from safetensors only. Raises `ConfigError` for a
    folder or name with no such model.
    """
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    try:
        return AutoModelForCausalLM.from_pretrained(_place(name), use_safetensors=True, trust_remote_code=False)
    except (OSError, ValueError, KeyError, RuntimeError) as error:  # of every file and field that it looks for
        reason = " ".join(str(error).split())
        raise ConfigError(
            f"--hf {shown(name)}: transformers cannot open it as a causal language model ({reason})"
        ) from None
    finally:
        logging.enable_progress_bar()


def model_name(name: str) -> str:
    """Return what a model is called in titles and files: the last part of a name, or the name of a folder."""
    place = Path(os.path.expanduser(name))
    return (place.resolve() if place.is_dir() else place).name


def tokenizer_of(name: str) -> Any | None:
    """Load the tokenizer that belongs to a model, under `causal_lm`'s rules; None if it has none."""
    from transformers import AutoTokenizer

    try:
        found = AutoTokenizer.from_pretrained(_place(name), trust_remote_code=False)
    except (OSError, ValueError, KeyError, RuntimeError, TypeError, AttributeError):  # of every file that it looks for
        return None
    return found if len(found) > 1 else None  # without its files some are made with no vocabulary


def _place(name: str) -> str:
    """Return the folder that is named, "~" spelt out; a name of anything else as it is, for transformers to find."""
    folder = Path(os.path.expanduser(name))
    return str(folder) if folder.is_dir() else name
