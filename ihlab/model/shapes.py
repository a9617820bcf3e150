"""Named tensor shapes of the parts of a model. Axes of one name have one size within a call."""

from jaxtyping import Float
from torch import Tensor

Stream = Float[Tensor, "batch pos d_model"]
"""The residual stream, or a part's input from it or output to it."""

Heads = Float[Tensor, "batch pos head d_head"]
"""Queries, keys or values: a vector for each head at each position."""

Queries = Float[Tensor, "batch query head d_head"]
"""Queries, or z: a vector for each head at each query position."""

Keys = Float[Tensor, "batch key kv_head d_head"]
"""Keys: a vector for each key/value head at each position."""

Values = Float[Tensor, "batch key kv_head d_head"]
"""Values: a vector for each key/value head at each position."""

Scores = Float[Tensor, "#batch #head query key"]
"""Attention scores, or a bias that is added to them."""
