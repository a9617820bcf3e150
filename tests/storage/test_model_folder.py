"""Hugging Face models: whatever a folder links to, names or counts is its own and of the size of
its weights.
"""

import json
import os
import subprocess
import sys

import pytest
import torch
from transformers import AutoModelForCausalLM

from ihlab.hf import KVShiftForCausalLM, add_shift, from_hf
from ihlab.storage.model_folder import (
    causal_lm,
    tokenizer_of,
)
from tasks import ConfigError
from tests.hf.conftest import plain

LETTER = "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"word{i}" for i in range(20))])


def test_a_saved_model_may_be_read_by_whom_the_umask_says(tmp_path):
    (tmp_path / "usual").touch()
    paths = [tmp_path / "usual", *saved(tmp_path / "saved")]
    assert len({path.stat().st_mode for path in paths}) == 1


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    return [(path.name, path.read_bytes()) for path in saved(tmp_path_factory.mktemp("stored"))]


def saved(folder):
    add_shift(plain()).save_pretrained(folder)
    return list(folder.iterdir())


@pytest.fixture
def model(stored, tmp_path):
    """A shifted model in a snapshot of Hugging Face's cache, beside a letter of the reader's."""
    folder = tmp_path / "models--some--one" / "snapshots" / "1234"
    folder.mkdir(parents=True)
    for name, content in stored:
        (folder / name).write_bytes(content)
    (tmp_path / "letter.txt").write_text(LETTER)
    (folder.parents[1] / "blobs").mkdir()
    return folder


def link(path, target):
    path.symlink_to(os.path.relpath(target, path.parent))


def moved(path, target):
    path.rename(target)
    link(path, target)


def blob_elsewhere(folder):
    blobs = folder.parents[1] / "blobs"
    blobs.rmdir()
    (folder.parents[2] / "shared").mkdir()
    link(blobs, folder.parents[2] / "shared")
    moved(folder / "model.safetensors", blobs / "hash")


def templates(folder):
    (folder / "additional_chat_templates").mkdir()
    link(folder / "additional_chat_templates" / "x.jinja", folder.parents[2] / "letter.txt")


def other_repository(folder):
    other = folder.parents[2] / "models--some--two" / "blobs"
    other.mkdir(parents=True)
    moved(folder / "config.json", other / "hash")


OUT = {
    "vocab.txt": lambda folder: link(folder / "vocab.txt", folder.parents[2] / "letter.txt"),
    "config.json": other_repository,
    "additional_chat_templates": lambda folder: link(
        folder / "additional_chat_templates", folder.parents[2]
    ),
    "x.jinja": templates,
    "model.safetensors through blobs": blob_elsewhere,
}


@pytest.mark.parametrize(
    "opened",
    [causal_lm, AutoModelForCausalLM.from_pretrained, KVShiftForCausalLM.from_pretrained, from_hf],
)
@pytest.mark.parametrize("out", OUT)
def test_a_link_out_of_the_model_is_refused_by_name_and_target(model, out, opened):
    OUT[out](model)
    with pytest.raises(
        ConfigError, match=rf"^\S+{out.split()[0]} leads to /\S+, but links of a model must lead to"
    ):
        opened(model)


def test_links_into_the_folder_or_the_blobs_of_its_repository_are_followed(model, monkeypatch):
    for path in list(model.iterdir()):
        moved(path, model.parents[1] / "blobs" / path.name)
    link(model / "copy.json", model / "config.json")
    link(model / ".#config.json", model / "nobody@nowhere")
    refs = model.parents[1] / "refs"
    refs.mkdir()
    (refs / "main").write_text(model.name)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    found = KVShiftForCausalLM.from_pretrained(model)
    again = KVShiftForCausalLM.from_pretrained(
        "some/one", cache_dir=model.parents[2], local_files_only=True
    )
    assert torch.equal(again.lm_head.weight, found.lm_head.weight)
    (model / "vocab.txt").symlink_to("/etc/passwd")
    with pytest.raises(ConfigError, match="leads to /etc/passwd"):
        KVShiftForCausalLM.from_pretrained(
            "some/one", cache_dir=model.parents[2], local_files_only=True
        )


@pytest.mark.parametrize(
    ("file", "fields"),
    [
        ("tokenizer_config.json", {"vocab": "LETTER"}),
        ("tokenizer_config.json", {"vocab": "letter.txt"}),
        ("special_tokens_map.json", {"vocab": "LETTER"}),
    ],
)
def test_a_tokenizer_that_names_a_file_elsewhere_is_not_opened(model, monkeypatch, file, fields):
    letter = model.parents[2] / "letter.txt"
    monkeypatch.chdir(letter.parent)
    bert = {"tokenizer_class": "BertTokenizer", "model_max_length": 10**30}
    (model / "tokenizer_config.json").write_text(json.dumps(bert))
    (model / "vocab.txt").write_text(LETTER)
    assert tokenizer_of(str(model)).decode([7]) == "word2"
    (model / "vocab.txt").unlink()
    (model / file).write_text(json.dumps(bert | fields).replace("LETTER", str(letter)))
    with pytest.warns(
        UserWarning,
        match=rf"tokenizer cannot be opened \(\S+{file} names the file '\S+letter.txt'|'letter",
    ):
        assert tokenizer_of(str(model)) is None


CONFIGS = [
    ({"num_labels": 10**8}, "num_labels is 100000000, but must be at most 65536."),
    ({"vocab_size": 10**7}, "vocab_size is 10000000, but must be at most 1048576."),
    (
        {"layer_types": ["full_attention"] * 10**5},
        "layer_types has 100000 entries, but must have at most 65536.",
    ),
    ({"rms_norm_eps": float("nan")}, "rms_norm_eps is not a number (NaN)."),
    (
        {"attn_implementation": "some/kernel"},
        "attn_implementation is 'some/kernel', but foreign code is not run.",
    ),
    (
        {"num_hidden_layers": 30},
        "the weights lack the tensor 'model.layers.10.input_layernorm.weight'.",
    ),
    (
        {"num_hidden_layers": 2**16},
        "config.json describes a model of more than 4496 parts, too many for its weights.",
    ),
    ({"num_hidden_layers": 0}, "num_hidden_layers is 0, but must be at least 1."),
    ({"max_position_embeddings": 10**9}, "n_ctx is 1000000000, whose tables of angles take "),
    (
        {"shift_window": 10**6},
        "shift_window is 1000000, but must be 2 to max_position_embeddings=1024.",
    ),
    (
        {"shift_window": 3},
        "layers.0.self_attn.shift_norm.alpha' has the shape [2, 3], but [2, 2] in the weights.",
    ),
    ({"vocab_size": 2**20}, "config.json describes a model of 67"),
    ({"base_model_type": "clip"}, "base_model_type is 'clip', which has no causal language model."),
    (
        {"base_model_type": "gpt2"},
        "The KVShiftGPT2LMHeadModel cannot be shifted: it has no decoder whose",
    ),
    (
        {"model_type": "llama"},
        "model_type is 'llama', but must be 'kv_shift': add_shift shifts other models.",
    ),
]


@pytest.mark.parametrize(("fields", "sentence"), CONFIGS, ids=lambda given: str(given)[:40])
def test_a_config_of_another_model_than_the_weights_is_refused(model, fields, sentence):
    path = model / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))
    for opened in (
        (from_hf,) if "n_ctx" in sentence else (KVShiftForCausalLM.from_pretrained, from_hf)
    ):
        with pytest.raises(ConfigError) as refused:
            opened(model)
        assert sentence in str(refused.value)
        assert "\n" not in str(refused.value)


def test_other_files_than_safetensors_are_not_read():
    with pytest.raises(ConfigError, match="The model is None, but must be a folder or a name"):
        KVShiftForCausalLM.from_pretrained(None)
    with pytest.raises(ConfigError, match=r"use_safetensors is False, but weights are read from"):
        KVShiftForCausalLM.from_pretrained("", use_safetensors=False)


@pytest.mark.slow
def test_commands_know_shifted_models(model, tmp_path):
    """This process has imported ihlab.hf; a command has not."""
    command = f"-m ihlab view --hf {model} --tokens 1,2,3 --out {tmp_path}/page.html"
    subprocess.run([sys.executable, *command.split()], check=True)


def test_code_that_a_folder_carries_or_names_is_not_run(model, tmp_path):
    """A shifted model opens with our classes, with no question, whatever it names; another one is
    refused.
    """
    ran = tmp_path / "ran"
    for name in ("modeling_kv_shift", "code"):
        (model / f"{name}.py").write_text(f"open({str(ran)!r}, 'w')")
    config = json.loads((model / "config.json").read_text())
    for code in (
        config["auto_map"],
        {"AutoConfig": "code.A", "AutoModelForCausalLM": "some/one--code.B"},
    ):
        (model / "config.json").write_text(json.dumps({**config, "auto_map": code}))
        for opened in (
            causal_lm,
            AutoModelForCausalLM.from_pretrained,
            KVShiftForCausalLM.from_pretrained,
        ):
            assert isinstance(opened(str(model)), KVShiftForCausalLM)
        assert isinstance(
            AutoModelForCausalLM.from_pretrained(model, trust_remote_code=True), KVShiftForCausalLM
        )
        from_hf(model)
        (model / "config.json").write_text(
            json.dumps({**config, "auto_map": code, "model_type": "other"})
        )
        with pytest.raises(ConfigError, match="contains custom code which must be executed"):
            causal_lm(str(model))
    assert not ran.exists()


def test_options_of_transformers_still_work(model):
    found, info = KVShiftForCausalLM.from_pretrained(
        model, output_loading_info=True, dtype="bfloat16"
    )
    assert str(found.lm_head.weight.dtype) == "torch.bfloat16"
    assert not info["missing_keys"]
    inner = KVShiftForCausalLM.from_pretrained(
        model.parent, subfolder=model.name, attn_implementation="eager"
    )
    assert inner.config._attn_implementation == "eager"
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "shift_window": 3}))
    assert type(found).from_pretrained(model, ignore_mismatched_sizes=True).config.shift_window == 3
