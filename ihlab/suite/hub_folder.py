"""A member as a Hugging Face folder: config, safetensors, tokenizer, model card, `truth.json` and
its prompts.
"""

import json
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from huggingface_hub import ModelCard, ModelCardData
from safetensors.torch import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

from ihlab.hf import to_hf
from ihlab.interp.prompt_pair import REPLACED, SWAPS, PromptPair
from ihlab.model.conversion import to_gpt2, to_llama
from ihlab.model.lens.task_tokenizer import TaskTokenizer
from ihlab.model.transformer import Transformer
from ihlab.storage.files import as_folder, require_writable, write_folder, write_json, write_text
from ihlab.storage.stored import present, read_json
from ihlab.study.page import template
from ihlab.suite.members import HAND_SET, LEARNED, MEMBERS, accuracy_of, load
from ihlab.suite.members import config as member_config
from ihlab.suite.truth import VERSION, prompts, truth
from tasks.config import ConfigError, require, shown

UNKNOWN = "[UNK]"

METRIC = "logits[answer] - logits[other] of each prompt, at its scored position"
"""The metric of the effects, in terms of the tensors of `prompts.safetensors`. Effects and the
swing are means.
"""


def export(
    name: str, folder: str | Path, seed: int = 0, step: int | None = None, root: str | Path = "runs"
) -> Path:
    """Write a member to a new folder that transformers opens, with its tokenizer, card and truth;
    return the folder.

    Models without a shift open with `AutoModelForCausalLM.from_pretrained` anywhere: as a Llama, or
    a GPT-2 for learned positions. Models without MLPs get MLPs that write nothing. Models with a
    shift open with `trust_remote_code=True`, or after `import ihlab.hf`.

    The folder may hold an export of the same model, also a part of one. Raises `ConfigError` as
    `load` does, for a folder with other files, and for a model that neither class can hold:
    hand-set weights, or a shift with learned positions.
    """
    folder = as_folder("folder", folder)
    require_writable("folder", folder)
    model = load(name, seed, step, root)
    converted = _converted(model)
    facts = truth(name, seed, step, root)
    write_folder(folder, partial(_write, converted, model, facts))
    return folder


def _write(converted: Any, model: Transformer, facts: dict[str, Any], folder: Path) -> None:
    """Write the files of an export."""
    converted.save_pretrained(folder)
    _tokenizer(model).save_pretrained(folder)
    write_text(folder / "README.md", str(_card(facts, model)))
    stored = dict(facts)
    for key, table in facts.items():
        if isinstance(table, pd.DataFrame):  # NaN is null there
            stored[key] = json.loads(table.to_json(orient="records", double_precision=15))
    write_json(folder / "truth.json", stored)
    pairs = {"": prompts(model.trained_on, hops=facts["hops"])} | _standard_prompts(model)
    tensors = {}
    for prefix, pair in pairs.items():
        for name, ids in vars(pair).items():
            tensors[prefix + name] = ids.contiguous()
    save_file(tensors, folder / "prompts.safetensors", {"metric": METRIC})


def _standard_prompts(model: Transformer) -> dict[str, PromptPair]:
    """Return the prompts of the standard set, except noise, keyed by the prefix of their tensors,
    such as "key.".
    """
    pairs = {}
    for corruption in (*SWAPS, *REPLACED):
        with suppress(ConfigError):  # not every task has every corruption
            pairs[f"{corruption}."] = prompts(model.trained_on, corruption)
    return pairs


def card(name: str, seed: int = 0, step: int | None = None, root: str | Path = "runs") -> str:
    """Return the model card of a member as Markdown. It holds only what was measured. Raises as
    `load` does.
    """
    return str(_card(truth(name, seed, step, root), load(name, seed, step, root)))


def read_truth(folder: str | Path) -> dict[str, Any]:
    """Return the tables and numbers of an exported folder's `truth.json`, in the form that `truth`
    returns.

    Raises `ConfigError` for a folder without this file, and for a file of another `VERSION`.
    """
    path = as_folder("folder", folder) / "truth.json"
    require(
        present(path), f"{folder} is not an exported member of the suite: it has no truth.json."
    )
    facts = read_json(path)
    has = facts.get("version")
    require(
        has == VERSION,
        f"{path} has the version {shown(has)}, but this ihlab reads version {VERSION}: export the member again.",
    )
    for key, value in facts.items():
        if isinstance(value, list):
            facts[key] = pd.DataFrame(value)
    return facts


def _converted(model: Transformer) -> Any:
    """Return a model as a class of transformers, without dropout. An attention-only model gets MLPs
    of zero weights.
    """
    cfg, gpt2 = model.cfg, model.cfg.positional == "learned"
    mlp = cfg.mlp
    if cfg.mlp == "none" and cfg.norm != "none":
        mlp = "gelu" if gpt2 else "swiglu"
    if mlp != cfg.mlp or cfg.dropout:
        weights = model.state_dict()
        model = Transformer(cfg.replace(mlp=mlp, dropout=0.0))
        for name in model.load_state_dict(weights, strict=False).missing_keys:
            if ".mlp." in name:
                torch.nn.init.zeros_(model.get_parameter(name))
    if gpt2:
        return to_gpt2(model)
    if cfg.shifted:
        return to_hf(model)
    return to_llama(model)


def _tokenizer(model: Transformer) -> Any:
    from transformers import PreTrainedTokenizerFast

    words = TaskTokenizer(model.trained_on).convert_ids_to_tokens(range(model.cfg.d_vocab))
    # The id of an unknown word is one that the model does not have, so that it raises an error
    # there.
    tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate([*words, UNKNOWN])}, UNKNOWN))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    task: Any = model.trained_on
    first = words[task.begins_with[0]] if getattr(task, "bos", False) else None
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token=UNKNOWN,
        model_max_length=model.cfg.n_ctx,
        bos_token=first,
    )


def _card(facts: dict[str, Any], model: Transformer) -> ModelCard:
    cfg = model.cfg
    about = ModelCardData(
        license="mit",
        library_name="transformers",
        tags=["mechanistic-interpretability", "induction-heads"],
    )
    heads = facts["heads"].sort_values("effect", key=abs, ascending=False)
    edges = facts["edges"].query("true") if "edges" in facts else pd.DataFrame()
    page = template(Path(__file__).with_name("card.md.jinja")).render(
        **facts
        | _training(facts["member"], facts["seed"])
        | {"heads": heads.to_dict("records"), "edges": edges.to_dict("records")},
        about=about.to_yaml(),
        task=model.trained_on,
        cfg=cfg,
        n_params=model.n_params,
        true_heads=_true_heads(facts),
        largest_other=heads.query("not true")["effect"].abs().max(),
        exportable=not (cfg.norm == "none" or (cfg.shifted and cfg.positional == "learned")),
        gpt2=cfg.positional == "learned",
        metric=METRIC,
    )
    return ModelCard(page)


def _training(name: str, seed: int) -> dict[str, Any]:
    """Return what the card says of a member's run; nothing of hand-set weights."""
    if name in HAND_SET:
        return {"run": ""}
    config = member_config(name, seed)
    return {
        "run": f"{config.name}-{config.digest}",
        "buildable": name in MEMBERS,
        "column": accuracy_of(name),
        "learned": LEARNED,
    }


def _true_heads(facts: dict[str, Any]) -> list[str]:
    """Return the heads that a method should find, as layer.head with their true inputs."""
    inputs = facts["inputs"].query("true")
    named = []
    for row in facts["heads"].query("true").itertuples():
        of_head = inputs[(inputs["layer"] == row.layer) & (inputs["head"] == row.head)]["input"]
        true_inputs = f" ({', '.join(of_head)})" if len(of_head) else ""
        named.append(f"{row.layer}.{row.head}{true_inputs}")
    return named
