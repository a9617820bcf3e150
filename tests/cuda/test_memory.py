"""The estimate for a GPU is what its allocator hands out at the peak."""

import pytest
import torch

from ihlab import ModelConfig, RunConfig
from ihlab.training import single
from ihlab.training.distributed import Ranks
from ihlab.training.memory import memory_estimate
from ihlab.training.run import Run
from tasks import InductionTask

pytestmark = pytest.mark.slow


def config_of(rows, length, vocab_size, **model):
    task = InductionTask(vocab_size=vocab_size, length=length)
    shape = {"n_layers": 2, "d_model": 256, "n_heads": 8, **model}
    return RunConfig(
        task=task, model=ModelConfig(**shape, d_vocab=vocab_size, n_ctx=length), batch_size=rows, eval_rows=1
    )


CONFIGS = {
    "activations": config_of(256, 256, 512, attention="kv_shift"),
    "in pieces": config_of(512, 256, 512, attention="kv_shift").but(accumulate=2),
    "logits": config_of(128, 512, 8000),
    "parameters": config_of(16, 64, 8000, n_layers=4, d_model=2048),
    "gpt2 in bf16": config_of(256, 256, 512, positional="learned", norm="layer", mlp="gelu").but(precision="bf16"),
    "rope in bf16": config_of(256, 256, 2048, attention="kv_shift").but(precision="bf16"),
}
"""Half a gigabyte and more, beside which what libraries take for themselves is little."""


@pytest.mark.parametrize("name", CONFIGS)
def test_the_estimate_is_within_a_quarter_of_the_peak(gpu, tmp_path, name, record_property):
    config = CONFIGS[name]
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    training = single.SingleModel(Run.create(config, tmp_path), Ranks(0, 1, gpu), None)
    for microbatches in training.stream.steps(0, 3):
        training.train_step(microbatches)
    torch.cuda.synchronize()
    ratio = memory_estimate(config, "cuda") / (torch.cuda.max_memory_allocated() - before)
    record_property("estimate / peak", round(ratio, 3))
    assert 0.75 < ratio < 1.25
