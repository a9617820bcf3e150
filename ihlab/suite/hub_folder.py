"""A member as a Hugging Face folder: config, safetensors, tokenizer, model card, `truth.json` and its prompts."""

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from huggingface_hub import ModelCard, ModelCardData
from safetensors.torch import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

from ihlab.attribution import TRUE_LEAST
from ihlab.attribution.truth import effects_by_metric
from ihlab.files import as_folder, require_writable, write_json, write_text
from ihlab.hf import to_hf
from ihlab.interp.prompt_pair import REPLACED, SWAPS, PromptPair
from ihlab.model.config import ModelConfig
from ihlab.model.hf import to_gpt2, to_llama
from ihlab.model.lens.task_tokenizer import TaskTokenizer
from ihlab.model.transformer import Transformer
from ihlab.stored import present, read_json
from ihlab.study.markdown import table as markdown
from ihlab.suite.members import FORKED, LEARNED, MEMBERS, accuracy_of, load
from ihlab.suite.members import config as member_config
from ihlab.suite.truth import VERSION, problem, prompts, truth
from tasks.config import ConfigError, require, shown

UNKNOWN = "[UNK]"

SHUFFLED = 20
"""How often the answers are shuffled among prompts, for the negative control."""

METRIC = "logits[answer] - logits[other] of each prompt, at its scored position"
"""The metric of the effects, in terms of the tensors of `prompts.safetensors`. Effects and the swing are means."""

RECOMPUTE = """import json
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained(".", trust_remote_code={remote}).eval()
p, truth = load_file("prompts.safetensors"), json.load(open("truth.json"))
tokens, n = torch.cat([p["clean"], p["corrupted"], p["corrupted"]]), len(p["clean"])
scored, position, answer, other = range(3 * n), *(p[name].repeat(3) for name in ("position", "answer", "other"))
def patch(module, args):  # its input holds the outputs of all heads, side by side
    z = args[0].unflatten(-1, ({n_heads}, -1))
    z[2 * n :, :, row["head"]] = z[:n, :, row["head"]]  # of the last copy
for row in truth["heads"]:
    with torch.no_grad(), model.{layers}[row["layer"]].{output}.register_forward_pre_hook(patch):
        logits = model(tokens).logits[scored, position]
    metric = logits[scored, answer] - logits[scored, other]
    print(row["layer"], row["head"], (metric[2 * n :] - metric[n : 2 * n]).mean().item(), row["effect"])
"""
"""Twelve lines, after the imports, that measure the effect of every head again without ihlab."""

LIMITS = """- The model is small and read synthetic sequences. What holds here need not hold in a large model.
- An effect is of one kind of corruption, on the prompts described in `truth.json`. Other prompts have other effects.
- Heads can share a job. `effect` and `reverse` then differ: one clean head can suffice, and none is needed.
- Ids mean nothing: the tokenizer writes the id 7 as the word "7"."""


def export(name: str, folder: str | Path, seed: int = 0, step: int | None = None, root: str | Path = "runs") -> Path:
    """Write a member to a new folder that transformers opens, with its tokenizer, card and truth; return the folder.

    Models without a shift open with `AutoModelForCausalLM.from_pretrained` anywhere: as a Llama, or a GPT-2 for learned
    positions. Models without MLPs get MLPs that write nothing. Models with a shift open with `trust_remote_code=True`,
    or after `import ihlab.hf`.

    Raises `ConfigError` as `load` does, for a folder that is not empty, and for a model that neither class can hold: a
    recurrence, hand-set weights, or a shift with learned positions.
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
    pairs = {"": prompts(model.trained_on, hops=facts["hops"])} | _standard_prompts(model)
    tensors = {prefix + name: ids.contiguous() for prefix, pair in pairs.items() for name, ids in vars(pair).items()}
    save_file(tensors, folder / "prompts.safetensors", {"metric": METRIC})
    return folder


def _standard_prompts(model: Transformer) -> dict[str, PromptPair]:
    """Return the prompts of the standard set, except noise, keyed by the prefix of their tensors, such as "key."."""
    pairs = {}
    for corruption in (*SWAPS, *REPLACED):
        with suppress(ConfigError):  # not every task has every corruption
            pairs[f"{corruption}."] = prompts(model.trained_on, corruption)
    return pairs


def card(name: str, seed: int = 0, step: int | None = None, root: str | Path = "runs") -> str:
    """Return the model card of a member as Markdown. It holds only what was measured. Raises as `load` does."""
    return str(_card(truth(name, seed, step, root), load(name, seed, step, root)))


def read_truth(folder: str | Path) -> dict[str, Any]:
    """Return the tables and numbers of an exported folder's `truth.json`, in the form that `truth` returns.

    Raises `ConfigError` for a folder without this file, and for a file of another `VERSION`.
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
    """Return a model as a class of transformers, without dropout. An attention-only model gets MLPs of zero weights."""
    cfg, gpt2 = model.cfg, model.cfg.positional == "learned"
    alone = cfg.mlp == "none" and cfg.norm != "none"
    if alone or cfg.dropout:
        weights = model.state_dict()
        mlp = ("gelu" if gpt2 else "swiglu") if alone else cfg.mlp
        model = Transformer(cfg.replace(mlp=mlp, dropout=0.0))
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
    return ModelCard(
        f"""---
{about.to_yaml()}
---

# {facts["member"]}, seed {facts["seed"]}, step {facts["step"]}

A transformer with {model.n_params} parameters without embeddings, {cfg.n_layers} layers of {cfg.n_heads} heads,
{cfg.attention} attention and {cfg.positional} positions. Its circuit was measured exactly by ihlab {facts["ihlab"]}.

## Training

{_training(facts, model)}

## Accuracy

{_rows(pd.Series(slices).rename_axis("answers").reset_index(name="accuracy"), ["answers", "accuracy"])}

## What to find

Clean and corrupted prompts differ by {facts["swing"]:.2f} in the logit difference of the two answers (the swing).
{_to_find(facts)}
{_control(model, facts["hops"])}

{_rows(heads, ["layer", "head", "effect", "reverse", "fraction", "true"])}

{_rows(edges, ["from_layer", "from_head", "to_layer", "to_head", "input", "effect", "reverse"])}

{_use(cfg)}

## Known limits

{LIMITS}

## Citation and licence

Cite ihlab, the induction-head lab, by its CITATION.cff. MIT licence.
"""
    )


def _training(facts: dict[str, Any], model: Transformer) -> str:
    """Return the run, its data, and whether and when the model has learned its task."""
    data = f"The task is `{model.trained_on}`."
    if "trained" not in facts:
        return f"None: the weights are set by hand. {data}"
    config, column = member_config(facts["member"], facts["seed"]), accuracy_of(facts["member"])
    onset, learned = facts["onset"], facts["accuracy"][column] >= LEARNED
    lines = [
        f"Run `{config.name}-{config.digest}`: {facts['trained']}.",
        f"{data} Every step draws new sequences.",
    ]
    if facts["member"] in FORKED:
        source, step, clamp = FORKED[facts["member"]]
        lines.append(f"It goes on from step {step} of {source}, without head {clamp.layer}.{clamp.head}.")
    if facts["member"] in (*MEMBERS, *FORKED):
        lines.append(f"`ihlab suite build {facts['member']}` trains such a run.")
    if not learned:
        lines.append(f"This model has not learned its task: `{column}` is below {LEARNED}.")
    elif onset is not None:
        lines.append(f"`{column}` is halfway from the best guess to 1 at step {onset:.0f}.")
    return "\n".join(lines)


def _to_find(facts: dict[str, Any]) -> str:
    """Return a sentence that names the heads, and their inputs, that a method should find."""
    heads, inputs = facts["heads"], facts["inputs"].query("true")
    others = heads.query("not true")["effect"].abs().max()
    named = []
    for row in heads.query("true").itertuples():
        of_head = inputs[(inputs["layer"] == row.layer) & (inputs["head"] == row.head)]["input"]
        named.append(f"{row.layer}.{row.head}" + (f" ({', '.join(of_head)})" if len(of_head) else ""))
    if not named:
        return f"No head is true: a method should find nothing. The largest effect of a head is {others:.2f}."
    sentence = f"A method should find {len(named)} of {len(heads)} heads, layer.head with their true inputs: "
    sentence += ", ".join(named)
    return sentence + (f". The largest effect of another head is {others:.2f}." if len(named) < len(heads) else ".")


def _control(model: Transformer, hops: int | None) -> str:
    """Return a sentence on how large effects are when prompts are scored by the answers of other prompts."""
    of_answers: Any = problem(model, hops=hops)
    prompts_in_order, shuffled = torch.arange(len(of_answers.clean)), []
    for by in range(1, SHUFFLED + 1):
        of_others = replace(of_answers, metric=of_answers.metric.shuffled(prompts_in_order.roll(by)))
        with suppress(ConfigError):  # the metric does not differ: no effect
            shuffled += [of_others] if of_others.swing else []
    directions = (shuffled, [problem.swapped for problem in shuffled]) if shuffled else ()
    effects = [torch.stack(effects_by_metric(problems, "head")).mean(dim=1) for problems in directions]
    sizes = torch.stack(effects).abs().amax(dim=(0, 2)).tolist() if effects else [0.0]
    above = sum(size >= TRUE_LEAST * abs(of_answers.swing) for size in sizes)
    return (
        f"Negative control: with the two answers of other prompts ({SHUFFLED} shuffles), the largest effect or reverse "
        f"of a head is {max(sizes):.2f}. It is at least a tenth of the swing in {above} of {SHUFFLED} shuffles."
    )


def _use(cfg: ModelConfig) -> str:
    """Return how to load a model and measure its effects with transformers; "" if no class there can hold it."""
    if cfg.recurrent or cfg.norm == "none" or (cfg.shifted and cfg.positional == "learned"):
        return ""
    gpt2 = cfg.positional == "learned"
    layers, output = ("transformer.h", "attn.c_proj") if gpt2 else ("model.layers", "self_attn.o_proj")
    lines = RECOMPUTE.format(remote=cfg.shifted, n_heads=cfg.n_heads, layers=layers, output=output)
    return f"""## Use

`AutoModelForCausalLM.from_pretrained(folder{", trust_remote_code=True" if cfg.shifted else ""})` loads the model.
`prompts.safetensors` has the prompts of `truth.json`: `clean` and `corrupted` [prompt, token], the scored `position`,
the right `answer` and the `other` answer [prompt]. The metric is {METRIC}.
`key.clean` and so on are the prompts of each corruption of `ihlab bench`. `truth.json` defines every number, and has
the effects of all heads, inputs and edges. In this folder, these lines measure the effects of all heads again:

```python
{lines}```"""


def _rows(table: pd.DataFrame, columns: list[str]) -> str:
    """Return columns of a table as Markdown; "" for an empty one."""
    cells = table[columns].astype(object).to_numpy().tolist() if len(table) else []
    return markdown(
        columns, [[f"{cell:.3f}" if isinstance(cell, float) else str(cell) for cell in row] for row in cells]
    )
