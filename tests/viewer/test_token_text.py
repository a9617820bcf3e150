"""Token text: ids that differ look different, whatever the tokenizer."""

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from ihlab.viewer.token_text import tokenizer_text
from ihlab.viewer.tokens import text_by


def spaced():
    """As of Llama 2 and Gemma, in small."""
    words = {"\u2581the": 0, "the": 1, "\u2581cat": 2, "?": 3, "\n": 4, "<0xE6>": 5, "\u2581": 6}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="?"))
    tokenizer.decoder = decoders.Metaspace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def bytewise():
    """As of GPT-2 and Llama 3."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={sign: i for i, sign in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def test_a_space_in_front_is_seen():
    text = tokenizer_text(spaced())
    assert [text(i) for i in range(5)] == ["\u2423the", "the", "\u2423cat", "?", "\\n"]


def test_parts_of_a_letter_are_its_bytes():
    tokenizer = bytewise()
    text = tokenizer_text(tokenizer)
    ids = tokenizer.encode("\u65e5 a")
    assert [text(i) for i in ids] == ["<0xE6>", "<0x97>", "<0xA5>", "\u2423", "a"]


@pytest.mark.parametrize("make", [spaced, bytewise])
def test_no_two_ids_of_a_vocabulary_look_alike(make):
    tokenizer = make()
    text = text_by(tokenizer, None)
    names = [text(i) for i in range(len(tokenizer))]
    assert len(set(names)) == len(names)
    assert [text(i) for i in range(len(tokenizer))] == names


def test_equal_texts_are_told_apart_by_their_ids():
    text = text_by({1: "a", 2: "a"}, None)
    assert [text(i) for i in (1, 2, 7)] == ["a", "a#2", "7"]
    taken = text_by({1: "a", 2: "a", 3: "a#2"}, None)
    assert [taken(i) for i in (1, 2, 3)] == ["a", "a#2", "a#2#3"]
