"""transformers' tests of a causal model, for Llama and a shifted Llama; `transformers_suite` runs
them.
"""

import unittest

import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers_tests.generation.test_utils import GenerationTesterMixin
from transformers_tests.test_modeling_common import ModelTesterMixin, ids_tensor

from ihlab.hf import KVShiftConfig
from ihlab.hf.model import shifted_model

ROWS, LENGTH = 13, 7
SIZES = {
    "vocab_size": 99,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


class Tester:
    """What transformers' mixins ask of a `model_tester`, with the sizes and inputs of its
    `CausalLMModelTester`.
    """

    causal_lm_class: type
    config_class: type
    is_training, batch_size, seq_length = True, ROWS, LENGTH
    hidden_size, num_hidden_layers, num_attention_heads = 32, 2, 2

    def __init__(self, config_class, causal_lm_class):
        self.config_class, self.causal_lm_class = config_class, causal_lm_class

    def get_config(self):
        return self.config_class(**SIZES)

    def prepare_config_and_inputs_for_common(self):
        tokens = ids_tensor([ROWS, LENGTH], SIZES["vocab_size"])
        return self.get_config(), {
            "input_ids": tokens,
            "attention_mask": torch.ones_like(tokens).tril(),
        }


class TestLlama(ModelTesterMixin, GenerationTesterMixin, unittest.TestCase):
    all_model_classes = all_generative_model_classes = (LlamaForCausalLM,)
    made = LlamaConfig, LlamaForCausalLM

    def setUp(self):
        self.model_tester = Tester(*self.made)


class TestShifted(TestLlama):
    all_model_classes = all_generative_model_classes = (shifted_model(LlamaForCausalLM),)
    made = KVShiftConfig, shifted_model(LlamaForCausalLM)
