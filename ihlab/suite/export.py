"""A member as a Hugging Face folder: config, safetensors, tokenizer, model card and `truth.json`."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from huggingface_hub import ModelCard, ModelCardData
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

from ihlab.files import as_folder, require_writable, write_json, write_text
from ihlab.hf import to_hf
from ihlab.interp.prompt_pair import REPLACED, SWAPS
from ihlab.model.hf import to_gpt2, to_llama
from ihlab.model.lens.task_tokenizer import TaskTokenizer
from ihlab.model.transformer import Transformer
from ihlab.stored import present, read_json
from ihlab.study.markdown import table as markdown
from ihlab.suite.members import LEARNED, accuracy_of, load
from ihlab.suite.truth import VERSION, prompts, truth
from tasks.config import ConfigError, require, shown

UNKNOWN = "[UNK]"

LIMITS = """- The model is small and read synthetic sequences. What holds here need not hold in a large model.
- An effect is of one kind of corruption, on the prompts described in `truth.json`. Other prompts have other effects.
- Heads can share a job. `effect` and `reverse` then differ: one clean head can suffice, and none is needed.
- Ids mean nothing: the tokenizer writes the id 7 as the word "7"."""


def export(name: str, folder: str | Path, seed: int = 0, step: int | None = None, root: str | Path = "runs") -> Path:
    """Write a member to a new folder that transformers opens, with its tokenizer, card and truth; return the folder.

    Models without a shift open with `AutoModelForCausalLM.from_pretrained` anywhere: as a Llama, or a GPT-2 for learned
    positions. Those without MLPs have MLPs that write nothing. Shifted ones open so with
    `trust_remote_code=True`, or after `import ihlab.hf`.

    Raises `ConfigError` as `load` does, for a folder that is not empty, and for a hand-set model, whose ALiBi positions
    neither class has.
    """
    folder = as_folder("folder", folder)
    require(not folder.exists() or not list(folder.iterdir()), f"{folder} is not empty: give a new or an empty folder.")
    require_writable("folder", folder)
    model = load(name, seed, step, root)
    converted = _converted(model)
    facts = truth(name, seed, step, root)
    converted.save_pretrained(folder)
    _tokenizer(model).save_pretrained(folder)
    write_text(folder / "README.md", str(_card(facts, model)))
    tables = {key: value for key, value in facts.items() if isinstance(value, pd.DataFrame)}
    rows = {key: json.loads(table.to_json(orient="records", double_precision=15)) for key, table in tables.items()}
    write_json(folder / "truth.json", facts | rows)  # NaN is null there
    write_json(folder / "prompts.json", _prompts(model))
    return folder


def _prompts(model: Transformer) -> dict[str, dict[str, list[Any]]]:
    """Return the prompts of the standard set by corruption, without those by noise: the fields of `PromptPair`."""
    pairs = {}
    for corruption in (*SWAPS, *REPLACED):
        with suppress(ConfigError):  # not every task has every corruption
            pairs[corruption] = {
                name: ids.tolist() for name, ids in vars(prompts(model.trained_on, corruption)).items()
            }
    return pairs


def card(name: str, seed: int = 0, step: int | None = None, root: str | Path = "runs") -> str:
    """Return the model card of a member as Markdown. It holds only what was measured. Raises as `load` does."""
    return str(_card(truth(name, seed, step, root), load(name, seed, step, root)))


def read_truth(folder: str | Path) -> dict[str, Any]:
    """Return the truth that an exported folder holds, as `truth` does.

    Raises `ConfigError` for another folder, and for the truth of another version of ihlab.
    """
    path = as_folder("folder", folder) / "truth.json"
    require(present(path), f"{folder} is not an exported member of the suite: it has no truth.json.")
    facts = read_json(path)
    has = facts.get("version")
    require(
        has == VERSION,
        f"{path} has the version {shown(has)}, but this ihlab reads version {VERSION}: export the member again.",
    )
    return {key: pd.DataFrame(value) if isinstance(value, list) else value for key, value in facts.items()}


def _converted(model: Transformer) -> Any:
    """Return a model as a class of transformers. Attention alone gets MLPs whose weights are zero."""
    cfg, gpt2 = model.cfg, model.cfg.positional == "learned"
    if cfg.mlp == "none" and cfg.norm != "none":
        weights = model.state_dict()
        model = Transformer(cfg.replace(mlp="gelu" if gpt2 else "swiglu"))
        for name in model.load_state_dict(weights, strict=False).missing_keys:
            if ".mlp." in name:
                torch.nn.init.zeros_(model.get_parameter(name))
    return to_gpt2(model) if gpt2 else to_hf(model) if cfg.shifted else to_llama(model)


def _tokenizer(model: Transformer) -> Any:
    from transformers import PreTrainedTokenizerFast

    words = TaskTokenizer(model.trained_on).convert_ids_to_tokens(range(model.cfg.d_vocab))
    # The id of an unknown word is one that the model does not have, so that it raises an error there.
    tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate([*words, UNKNOWN])}, UNKNOWN))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    task: Any = model.trained_on
    first = {"bos_token": words[task.begins_with[0]]} if getattr(task, "bos", False) else {}
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token=UNKNOWN, model_max_length=model.cfg.n_ctx, **first
    )


def _card(facts: dict[str, Any], model: Transformer) -> ModelCard:
    about = ModelCardData(
        license="mit", library_name="transformers", tags=["mechanistic-interpretability", "induction-heads"]
    )
    cfg, slices = model.cfg, facts["accuracy"] | {f"control: {name}": of for name, of in facts["control"].items()}
    heads = facts["heads"].sort_values("effect", key=abs, ascending=False)
    edges = facts["edges"].query("true") if "edges" in facts else pd.DataFrame()
    column = accuracy_of(facts["member"])
    onset, learned = facts.get("onset"), facts["accuracy"][column] >= LEARNED
    return ModelCard(
        f"""---
{about.to_yaml()}
---

# {facts["member"]}, seed {facts["seed"]}, step {facts["step"]}

A transformer with {model.n_params} parameters without embeddings, {cfg.n_layers} layers of {cfg.n_heads} heads,
{cfg.attention} attention and {cfg.positional} positions. Its circuit was measured exactly by ihlab {facts["ihlab"]}.

## Training

{facts.get("trained", "None: the weights are set by hand.")}
{f"`{column}` is halfway from the best guess to 1 at step {onset:.0f}." if onset is not None else ""}

## Accuracy

{"" if learned else f"This model has not learned its task: `{column}` is below {LEARNED}."}

{_rows(pd.Series(slices).rename_axis("answers").reset_index(name="accuracy"), ["answers", "accuracy"])}

## Circuit

Clean and corrupted prompts differ by {facts["swing"]:.2f} in the logit difference of the two answers (the swing).
`truth.json` defines every number, and has the effects of all heads, inputs and edges.

{_rows(heads, ["layer", "head", "effect", "reverse", "fraction", "true"])}

{_rows(edges, ["from_layer", "from_head", "to_layer", "to_head", "input", "effect", "reverse"])}

## Known limits

{LIMITS}

## Citation and licence

Cite ihlab, the induction-head lab, by its CITATION.cff. MIT licence.
"""
    )


def _rows(table: pd.DataFrame, columns: list[str]) -> str:
    """Return columns of a table as Markdown; "" for an empty one."""
    cells = table[columns].astype(object).to_numpy().tolist() if len(table) else []
    return markdown(
        columns, [[f"{cell:.3f}" if isinstance(cell, float) else str(cell) for cell in row] for row in cells]
    )
