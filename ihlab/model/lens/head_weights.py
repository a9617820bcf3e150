"""The attention weights of each head, in TransformerLens' layout, and the paper's alpha and beta."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ihlab.model.lens.linear import bias_of
from ihlab.model.shift import TokenShift


class HeadWeights(nn.Module):
    """Views of the linear maps: writing to one writes to the model. Biases are zeros where the
    config has none.
    """

    n_heads: int
    n_key_value_heads: int
    d_head: int
    shift_window: int
    q_proj: nn.Linear
    k_proj: nn.Linear
    v_proj: nn.Linear
    o_proj: nn.Linear
    key_shift: TokenShift | None
    value_shift: TokenShift | None
    query_shift: TokenShift | None

    @property
    def W_Q(self) -> Float[Tensor, "head d_model d_head"]:
        """The query weights."""
        return self.q_proj.weight.unflatten(0, (self.n_heads, -1)).mT

    @property
    def W_K(self) -> Float[Tensor, "kv_head d_model d_head"]:
        """The key weights, before any shift."""
        return self.k_proj.weight.unflatten(0, (self.n_key_value_heads, -1)).mT

    @property
    def W_V(self) -> Float[Tensor, "kv_head d_model d_head"]:
        """The value weights, before any shift."""
        return self.v_proj.weight.unflatten(0, (self.n_key_value_heads, -1)).mT

    @property
    def W_O(self) -> Float[Tensor, "head d_head d_model"]:
        """The output weights."""
        return self.o_proj.weight.T.unflatten(0, (self.n_heads, -1))

    @property
    def b_Q(self) -> Float[Tensor, "head d_head"]:
        """The queries' biases."""
        return bias_of(self.q_proj).unflatten(0, (self.n_heads, -1))

    @property
    def b_K(self) -> Float[Tensor, "kv_head d_head"]:
        """The keys' biases. They are added before the shift."""
        return bias_of(self.k_proj).unflatten(0, (self.n_key_value_heads, -1))

    @property
    def b_V(self) -> Float[Tensor, "kv_head d_head"]:
        """The values' biases."""
        return bias_of(self.v_proj).unflatten(0, (self.n_key_value_heads, -1))

    @property
    def b_O(self) -> Float[Tensor, " d_model"]:
        """The output's biases. They belong to no head."""
        return bias_of(self.o_proj)

    @property
    def alpha(self) -> Tensor:
        """The key shift's weights [n_key_value_heads, window]; the paper's alpha1, alpha2 are
        columns 0, 1.

        They are the parameter itself if the variant stores them directly, and (1, 0, ...) if keys
        are not shifted.
        """
        return self._mixing(self.key_shift, self.n_key_value_heads)

    @property
    def beta(self) -> Tensor:
        """The value shift's weights [n_key_value_heads, window]; the paper's beta1, beta2 are
        columns 0, 1.
        """
        return self._mixing(self.value_shift, self.n_key_value_heads)

    @property
    def gamma(self) -> Tensor:
        """The query shift's weights [n_heads, window], with the current token in column 0."""
        return self._mixing(self.query_shift, self.n_heads)

    def _mixing(self, shift: TokenShift | None, n_heads: int) -> Tensor:
        if shift is not None:
            return shift.weights()
        rows = self.q_proj.weight.new_zeros(n_heads, self.shift_window)
        return rows.index_fill(1, torch.zeros(1, dtype=torch.int64, device=rows.device), 1)
