"""Linear maps that may or may not have a bias."""

from jaxtyping import Float
from torch import Tensor, nn


def bias_of(linear: nn.Linear) -> Float[Tensor, " out"]:
    """The bias of a linear map; zeros if it has none, as TransformerLens shows it."""
    return linear.weight.new_zeros(linear.out_features) if linear.bias is None else linear.bias
