"""torch's own tools on our models: export, full-graph compilation, vmap, the meta device; and what
hasattr says.
"""

import json

import pytest
import torch

from ihlab import ModelConfig, Transformer
from tests.forked import python

pytestmark = pytest.mark.slow

SHAPE = {"n_layers": 2, "d_model": 16, "n_heads": 2, "d_vocab": 11, "n_ctx": 8}
GATE = {"attention": "kv_gate"}
KINDS = {
    "queries shifted, ALiBi": {"attention": "qkv_shift", "shift_window": 3, "positional": "alibi"},
    "a gate": GATE,
}


@pytest.fixture(params=KINDS)
def model(request):
    return Transformer(ModelConfig(**SHAPE, **KINDS[request.param])).eval()


@pytest.fixture
def tokens():
    return torch.randint(11, (3, 8), generator=torch.Generator().manual_seed(0))


GRAPHS = """
import json, sys, torch
from ihlab import ModelConfig, Transformer
tokens = torch.randint(11, (3, 8), generator=torch.Generator().manual_seed(0))
model = Transformer(ModelConfig(**json.loads(sys.argv[1]))).eval()
program = torch.export.export(model, (tokens,))
torch.testing.assert_close(program.module()(tokens), model(tokens))
compiled = torch.compile(model, fullgraph=True, backend="eager")
torch.testing.assert_close(compiled(tokens), model(tokens))
"""


def test_a_whole_model_is_one_graph_exported_and_compiled():
    """In a process of its own: the shape checks of these tests are no part of a model, and no
    graph.
    """
    done = python(GRAPHS, json.dumps(SHAPE | GATE))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.filterwarnings(
    "ignore:There is a performance drop:UserWarning"
)  # torch's kernel has no rule for vmap
def test_vmap_goes_over_rows(model, tokens):
    by_row = torch.func.vmap(lambda row: model(row[None])[0])(tokens)
    torch.testing.assert_close(by_row, model(tokens))


def test_meta_tensors_give_shapes(model):
    logits = model.to("meta")(torch.zeros(3, 8, dtype=torch.long, device="meta"))
    assert logits.shape == (3, 8, 11)
