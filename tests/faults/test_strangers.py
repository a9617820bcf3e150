"""The campaign of strangers' folders, cut down: it finds nothing wrong, and it notices a check that
is taken away.
"""

import pytest

from tests.faults import strangers, ways_in


def failures(rows):
    return {row.what: row.failed for row in rows if row.failed}


def test_a_few_openings_of_every_kind_harm_nobody(tmp_path, capsys):
    rows = strangers.campaign(4, 0, tmp_path)
    assert failures(rows) == {}, capsys.readouterr().err


@pytest.mark.slow
def test_a_corpus_that_nobody_named_would_be_noticed(tmp_path, monkeypatch):
    text, letters = strangers.sound_text_run(tmp_path / "text"), strangers.text_runs()[0]
    given = letters, text, tmp_path / "tried", strangers.OF_RUNS["view"]
    assert strangers.tried(*given) == ""
    monkeypatch.setattr("tasks.text.task.named", lambda path: True)
    assert "The reader's own words are shown" in strangers.tried(*given)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "vocab.txt: a link to the reader's letter",
        "special_tokens_map.json with {'vocab': '{home}/letters/a.txt'}",
    ],
)
def test_a_letter_that_a_model_leads_to_would_be_noticed(tmp_path, monkeypatch, name):
    model = strangers.sound_model(tmp_path)
    [case] = [case for case in strangers.models(strangers.MODELS, model) if case.name == name]
    bert = strangers.tokenizer_with("tokenizer_config.json", {})
    both = case._replace(make=lambda folder, home: (bert(folder, home), case.make(folder, home)))
    given = both, model, tmp_path / "tried", strangers.OF_MODELS["view"]
    assert strangers.tried(*given) == ""
    monkeypatch.setattr("ihlab.storage.model_folder._inside", lambda path, folder: True)
    assert "The reader's own words are shown" in strangers.tried(*given)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("model_type = 'llama'", "config.json describes a model of 6476533760 weights, but "),
        (
            "an index that names 'x.bin'",
            "index.json names the file 'x.bin', but must name .safetensors files of its own",
        ),
        ("a tensor of another name", "the weights lack the tensor"),
    ],
)
def test_a_hostile_model_is_refused_in_a_sentence_that_names_the_file(tmp_path, name, sentence):
    model, home = strangers.sound_model(tmp_path), strangers.home_of(tmp_path)
    [case] = [case for case in strangers.models(strangers.MODELS, model) if case.name == name]
    case.make(model, home)
    printed, wrong = ways_in.said(strangers.OF_MODELS["heads"](model), tmp_path)
    assert not wrong
    assert sentence in printed
    assert not (home / "touched").exists()
