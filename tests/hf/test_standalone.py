"""The code that a saved model carries, in a process where ihlab cannot be imported."""

import ast
import inspect
import json
import subprocess
import sys

import pytest
import torch
from transformers import AutoModelForCausalLM

from ihlab import ModelConfig, Transformer
from ihlab.hf import KVShiftConfig, KVShiftForCausalLM, standalone, to_hf
from ihlab.hf.conformance.suite import prepared
from tests.hf.conftest import maker

OURS = ModelConfig(n_layers=1, d_model=16, n_heads=2, d_vocab=50, n_ctx=32, attention="kv_shift")
MAKERS = {
    "llama": maker(window=3),
    "sliding": maker("mistral", first="own", values=False),
    "ours": lambda: to_hf(Transformer(OURS, seed=0)),
}
AUTO_MAP = {
    "AutoConfig": "modeling_kv_shift.KVShiftConfig",
    "AutoModel": "modeling_kv_shift.KVShiftLlamaModel",
    "AutoModelForCausalLM": "modeling_kv_shift.KVShiftLlamaForCausalLM",
}


def outputs(model):
    """Return what a model computes in its different ways; run in both processes."""
    ids, places = torch.arange(1, 19).view(2, 9), torch.arange(9).expand(2, 9)
    mask = torch.ones_like(ids)
    mask[1, :3] = 0
    written = {"attention_mask": mask, "max_new_tokens": 6, "pad_token_id": 0}
    return [
        model(ids).logits,
        model(ids, attention_mask=mask).logits,
        model(ids, position_ids=places % 4, use_cache=False).logits,  # three documents
        model.generate(ids, **written),
        model.generate(ids, **written, num_beams=3),
        model.generate(ids, **written, cache_implementation="static"),
        model.generate(ids[:1], max_new_tokens=6, pad_token_id=0, prompt_lookup_num_tokens=2),
    ]


ELSEWHERE = f"""
import sys

import torch

sys.modules |= dict.fromkeys(["ihlab", "tasks", "jaxtyping"])  # so that their import fails
from transformers import AutoModel, AutoModelForCausalLM

{inspect.getsource(outputs)}

torch.set_grad_enabled(False)
models = {{name: AutoModelForCausalLM.from_pretrained(name, trust_remote_code=True) for name in {[*MAKERS]}}}
for name, model in models.items():
    for own, right in zip(outputs(model), torch.load(name + ".pt"), strict=True):
        assert torch.equal(own, right), name
    model.save_pretrained(name + "-again")
    decoder = AutoModel.from_pretrained(name + "-again", trust_remote_code=True)
    ids = torch.arange(9)[None]
    assert torch.equal(decoder(ids).last_hidden_state, model.model(ids).last_hidden_state), name
"""


@pytest.mark.slow
@torch.no_grad()
def test_opens_without_ihlab_and_computes_the_same(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    for name, make in MAKERS.items():
        model = prepared(make)
        model.save_pretrained(tmp_path / name)
        torch.save(outputs(model), tmp_path / f"{name}.pt")
    subprocess.run([sys.executable, "-c", ELSEWHERE], cwd=tmp_path, check=True)
    for name in MAKERS:
        again = AutoModelForCausalLM.from_pretrained(
            tmp_path / f"{name}-again"
        )  # ours, with no question
        assert type(again).__module__ == "ihlab.hf.model"
        for own, right in zip(outputs(again), torch.load(tmp_path / f"{name}.pt"), strict=True):
            assert torch.equal(own, right)


def test_the_file_reads_only_torch_and_transformers_and_defines_every_name_once():
    known = {"torch", "transformers", *sys.stdlib_module_names}
    for node in ast.walk(ast.parse(standalone.source())):
        if isinstance(node, ast.Import | ast.ImportFrom):
            assert {(getattr(node, "module", None) or node.names[0].name).split(".")[0]} <= known
    check = [sys.executable, "-m", "ruff", "check", "--isolated", "--select=E9,F401,F811,F821", "-"]
    subprocess.run(check, input=standalone.source(), text=True, check=True)


def test_registering_for_an_auto_class_changes_nothing(tmp_path):
    model = maker()()
    for given in (type(model), KVShiftForCausalLM, KVShiftConfig):
        given.register_for_auto_class()
    model.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["auto_map"] == AUTO_MAP
    assert [path.name for path in tmp_path.glob("*.py")] == ["modeling_kv_shift.py"]
