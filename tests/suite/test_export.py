"""An exported folder: the same logits in transformers and TransformerLens, and the truth that was
measured.
"""

import json
import subprocess
import sys

import pandas as pd
import pytest
import torch
from huggingface_hub import ModelCard
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from ihlab import suite
from ihlab.cli import main
from tasks import ConfigError

pytestmark = pytest.mark.slow

CLASSES = {
    "recall-vanilla-2": "LlamaForCausalLM",
    "induction-attention-only-2": "LlamaForCausalLM",
    "induction-attention-only-2-learned": "GPT2LMHeadModel",
    "3-gram-v-shift-1": "KVShiftLlamaForCausalLM",
}


def rows(model):
    generator = torch.Generator().manual_seed(0)
    return torch.randint(model.cfg.d_vocab, (4, model.trained_on.length), generator=generator)


@torch.no_grad()
@pytest.mark.filterwarnings("ignore")  # of the libraries that open it
@pytest.mark.parametrize(("name", "kind"), CLASSES.items())
def test_other_libraries_compute_the_same_logits(name, kind, built, tmp_path):
    from transformer_lens.model_bridge import TransformerBridge

    root, folder = built(name), str(tmp_path / "folder")
    suite.export(name, folder, root=root)
    model, opened = suite.load(name, root=root), AutoModelForCausalLM.from_pretrained(folder).eval()
    tokens, task = rows(model), model.trained_on
    right = model(tokens)
    config = json.loads((tmp_path / "folder" / "config.json").read_text())
    assert config["architectures"] == [kind]
    assert ("auto_map" in config) is ("shift" in name)
    torch.testing.assert_close(opened(tokens).logits, right, rtol=0, atol=1e-4)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer("3 5 7").input_ids == [3, 5, 7]
    assert tokenizer.decode(tokens[0]) == " ".join(map(str, tokens[0].tolist()))
    if "shift" in name:
        return
    bridge = TransformerBridge.boot_transformers(folder, device="cpu").eval()
    torch.testing.assert_close(bridge(tokens), right, rtol=0, atol=1e-4)
    if getattr(task, "bos", False):
        assert bridge.to_tokens("3 5 7").tolist() == [[*task.begins_with, 3, 5, 7]]


@pytest.mark.usefixtures("few_prompts")
def test_the_folder_holds_the_truth_and_a_card(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    main(["suite", "export", "induction-vanilla-2", "folder"])
    stored, found = suite.read_truth("folder"), suite.truth("induction-vanilla-2")
    assert stored.keys() == found.keys()
    for key, value in found.items():
        if isinstance(value, pd.DataFrame):
            pd.testing.assert_frame_equal(stored[key], value, check_dtype=False, atol=1e-6)
        else:
            assert stored[key] == value or stored[key] == pytest.approx(value), key
    prompts = load_file(tmp_path / "folder" / "prompts.safetensors")
    p = suite.problem(suite.load("induction-vanilla-2"), "absent")
    kinds = {name.split(".")[0] for name in prompts if "." in name}
    assert kinds == {"answer", "key", "absent", "resample"}
    assert torch.equal(prompts["absent.clean"], p.clean)
    assert torch.equal(prompts["absent.corrupted"], p.corrupted)
    card = ModelCard.load("folder/README.md")
    assert card.data.license == "mit"
    for row in found["heads"].query("true").itertuples():
        assert f"| {row.layer} | {row.head} | {row.effect:.3f} |" in card.text
    capsys.readouterr()
    main(["suite", "card", "induction-vanilla-2"])
    assert capsys.readouterr().out.strip() == card.content.strip()


WITHOUT_IHLAB = """
import os
import re
import sys

sys.modules |= dict.fromkeys(["ihlab", "tasks"])  # so that their import fails
for folder in sys.argv[1:]:
    os.chdir(folder)
    exec(re.search("```python\\n(.*?)```", open("README.md").read(), re.S)[1])
    print()
"""


def test_the_lines_of_the_card_measure_the_effects_again_without_ihlab(
    built, tmp_path, monkeypatch
):
    """Of a Llama, of a GPT-2, of a model with a shift, and on prompts of two hops."""
    names = ["2-hop-vanilla-2", "recall-vanilla-2-learned", "3-gram-v-shift-1"]
    root, folders = built(*names), [tmp_path / name for name in names]
    for name, folder in zip(names, folders, strict=True):
        suite.export(name, folder, root=root)
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    command = [sys.executable, "-c", WITHOUT_IHLAB, *folders]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for lines, folder in zip(printed.split("\n\n"), folders, strict=False):
        right = suite.read_truth(folder)["heads"]
        measured = [[float(number) for number in line.split()] for line in lines.splitlines()]
        assert [row[:2] for row in measured] == right[["layer", "head"]].to_numpy().tolist()
        close = min(
            1e-3, right["effect"].abs().max() / 100
        )  # models of 14 steps have small effects
        assert [row[2] for row in measured] == pytest.approx(right["effect"].tolist(), abs=close)


@pytest.mark.usefixtures("few_prompts")
def test_bad_folders_are_sentences(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="is not empty: give a new or an empty folder"):
        suite.export("induction-kv-shift-1", tmp_path)
    with pytest.raises(
        ConfigError, match=r"is not an exported member of the suite: it has no truth\.json"
    ):
        suite.read_truth(tmp_path)
    (tmp_path / "truth.json").write_text('{"version": 0}')
    with pytest.raises(
        ConfigError,
        match="has the version 0, but this ihlab reads version 3: export the member again",
    ):
        suite.read_truth(tmp_path)
    assert "## Use" in suite.card("induction-vanilla-2")
    assert "## Use" not in suite.card("hand-set-1-hop")
    with pytest.raises(ConfigError, match="positional='alibi'"):
        suite.export("hand-set-two-layers", tmp_path / "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.txt", "truth.json"]
