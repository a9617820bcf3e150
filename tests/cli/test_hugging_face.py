"""`heads --hf`, `attribute --hf` and `view --hf`: the table, the files and the page of a model of
transformers.
"""

import json
import re
from pathlib import Path

import pandas as pd
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from ihlab.cli import main
from ihlab.interp import head_scores
from ihlab.measure.probe import repeated_batch, repeated_rows

pytestmark = pytest.mark.slow

GPT2 = Path(__file__).parents[1] / "interp" / "gpt2_induction"


def test_a_folder_is_scored_as_in_python(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    table, picture = tmp_path / "heads.csv", tmp_path / "heads.svg"
    main(f"heads --hf {GPT2} --length 32 --rows 4 --csv {table} --out {picture}".split())
    printed = capsys.readouterr().out
    assert "Heads of gpt2_induction" in printed
    drawn = "sequences of 16 random tokens read twice, without a bos token"
    assert f"4 {drawn}" in " ".join(printed.split())
    assert "…" not in printed
    main(["attribute", "--hf", str(GPT2), "--rows", "8", "--method", "attribution-patching"])
    assert f"8 {drawn}" in " ".join(capsys.readouterr().out.split())
    model = AutoModelForCausalLM.from_pretrained(
        GPT2, dtype=torch.float32, attn_implementation="eager"
    )
    batch = repeated_batch(repeated_rows(range(63), 4, 16, 2, seed=1), 2)
    order = ["layer", "head", "pattern"]
    scores = head_scores(model, batch, rows=8, length=32).sort_values(order, ignore_index=True)
    written = pd.read_csv(table).sort_values(order, ignore_index=True)
    pd.testing.assert_frame_equal(
        written[scores.columns], scores, check_dtype=False, rtol=1e-5, atol=1e-6
    )
    assert picture.read_text(encoding="utf-8").startswith("<?xml")


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        ([], "Give a run, or a model of transformers with --hf."),
        (["kv-shift-1-layer", "--hf", GPT2], "A run and --hf are given: choose one."),
        (["--hf", GPT2, "--step", "3"], "--step names a checkpoint of a run"),
        (
            ["--hf", GPT2, "--length", "65"],
            "length is 65, but must be at most the model's n_ctx, 64.",
        ),
    ],
)
def test_what_cannot_be_scored_says_why(args, sentence, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["heads", *map(str, args)])
    assert stopped.value.code == 2
    assert sentence in " ".join(capsys.readouterr().err.split())


def shown(page):
    """The ids of the first row of a page."""
    data = re.search(r'id="data">(.*?)</script>', page.read_text(encoding="utf-8"), flags=re.S)[1]
    return json.loads(data)["rows"][0]["tokens"]


def test_the_page_of_a_model_reads_given_tokens_or_repeated_ones(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    main(["view", "--hf", str(GPT2)])
    row = shown(tmp_path / "gpt2_induction.html")
    assert row[: len(row) // 2] == row[len(row) // 2 :]
    for given in ("3 4 5 3", "3,4,5,3"):
        main(["view", "--hf", str(GPT2), "--tokens", given, "--out", "given.html"])
        assert shown(tmp_path / "given.html") == ["3", "4", "5", "3"]


def test_a_text_is_read_with_the_models_tokenizer(tmp_path):
    AutoModelForCausalLM.from_pretrained(GPT2).save_pretrained(tmp_path / "model")
    words = Tokenizer(WordLevel({"the": 0, "cat": 1, "sat": 2, "?": 3}, unk_token="?"))
    words.pre_tokenizer = WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(tmp_path / "model")
    page = tmp_path / "page.html"
    for text, tokens in (("the cat sat the", "the cat sat the"), ("0 1 0", "the cat the")):
        main(["view", "--hf", str(tmp_path / "model"), "--tokens", text, "--out", str(page)])
        assert shown(page) == tokens.split()


def test_of_many_heads_those_that_match_are_ablated_together(tmp_path, capsys, monkeypatch):
    """The trained GPT-2 with 32 heads that write nothing: 40 heads, of which 4 match prefixes."""
    monkeypatch.setenv("COLUMNS", "80")
    small = AutoModelForCausalLM.from_pretrained(GPT2, dtype=torch.float32)
    config = small.config.__class__(**{**small.config.to_dict(), "n_layer": 10})
    model = type(small)(config)
    with torch.no_grad():
        for block in model.transformer.h[2:]:
            for part in (block.attn.c_proj, block.mlp.c_proj):
                part.weight.zero_()
                part.bias.zero_()
    model.load_state_dict(small.state_dict(), strict=False)
    model.save_pretrained(tmp_path / "model")
    table = tmp_path / "heads.csv"
    main(["heads", "--hf", str(tmp_path / "model"), "--csv", str(table)])
    printed = " ".join(capsys.readouterr().out.split())
    assert "8 more heads match less" in printed
    assert re.search(
        r"Loss 0\.\d\d; without the 4 heads that match prefixes, ablated together: [5-9]\.\d\d; without 4 random",
        printed,
    )
    written = pd.read_csv(table)
    assert (written["loss_rise"].notna() == written["matches_prefix"]).all()
    assert len(written) == 80
