"""Transformers with hand-set weights that follow k hops exactly. The shift saves one layer.

Let each position i hold find_P(i), the position P hops from i, and the symbol at find_T(i). A head
of the next layer that attends to find_P(i) reads what was written there: P doubles, and T becomes
P + T (pointer doubling: Sanford et al. 2024, arXiv 2402.09268). If the symbol at find_P(i) is known
as well (T = P), a shifted key goes one hop further: the head matches the latest key *before
find_P(i)* with that symbol and reads the token after it, find_{P+1}(i).

    with the shift     P = T = 0 before layer 1, each layer turns T into 2 T + 1   1, 3, 7, ... = 2^L - 1 hops
    vanilla            layer 1 finds the latest copy of its token and hence the
                       position after it, P = 1, but not its symbol, T = 0         0, 1, 3, ... = 2^(L-1) - 1

So L layers with the shift follow as many hops as L + 1 layers without it. Pointer doubling alone
gives 2^(L-1) and 2^(L-2), where a first vanilla layer finds the previous token (Sanford et al.).
These are one layer apart, too: at L = 5 they are the paper's 16 and 8, while 31 and 15 hops are
possible.

These are upper bounds on the required depth. Sanford et al. prove, given a conjecture, that vanilla
models of this width need about log2 k layers. It is not proved that they need the one additional
layer.
"""

import torch
from torch import Tensor

from ihlab.model.attention import Attention
from ihlab.model.config import ModelConfig
from ihlab.model.mlp import SwiGLU
from ihlab.model.transformer import Transformer
from ihlab.runtime.settings import own_settings
from tasks import MultiHopTask
from tasks.config import choose, require

SHARP = 50.0
"""Minimum gap between the best attention score and the others: every other weight is below e^-50.
"""
OPEN = 40.0
"""Input to silu that opens a gate: silu(40) = 40 to the last bit of float64, and silu(0) = 0."""
ATTENTIONS = ("vanilla", "kv_shift", "k_shift")


@torch.no_grad()
@own_settings()
def k_hop(n_layers: int, attention: str, task: MultiHopTask | None = None) -> Transformer:
    """Return a model that answers `task` for every k up to its `horizon` (`ihlab.theory.depth`),
    exactly.

    The residual stream holds, in separate entries, the token and the position (one-hot), the symbol
    c_0 there (a letter, or "none" at the hop token), and for every layer m a position p_m, the
    symbol s_m there (with the shift) and an answer c_m. k is the sum of a subset of the layers'
    hops: 1, 2, 4, ... with the shift, 0, 1, 2, 4, ... without. The embedding of the hop token has
    the switches b_m that select the subset. A second head of layer 1 copies them from position 0 to
    every other position.

    - With the shift, alpha = (0, 1), key s represents token s - 1. Layer m attends to the latest s
      with s - 1 < p_{m-1} and x_{s-1} = s_{m-1}, one hop beyond p_{m-1}, and reads p_{m-1}, s_{m-1}
      and c_{m-1} there; p_0 and s_0 are the position and its symbol. If there is no such s, it
      attends to position 0, from which every hop leads to 0.
    - A vanilla layer 1 attends to the latest s before i with x_s = x_i and writes the next
      position: p_1 = s + 1 = find_1. Position 0 is written as 0. Layer m > 1 attends to p_{m-1} and
      reads p_{m-1} and c_{m-1} there.
    - With r_m for the value of c_{m-1} that layer m reads, its MLP computes c_m = b_m r_m + (1 -
      b_m) c_{m-1}. So c_m(i) is the symbol that the hops of all switched-on layers up to m lead to
      from i.

    Two heads, no norm, SwiGLU MLPs, learned positions, no biases, float64. Raises `ConfigError` for
    an attention outside `ATTENTIONS` and for n_layers < 1.
    """
    choose("attention", attention, ATTENTIONS)
    require(n_layers >= 1, f"n_layers is {n_layers}, but must be at least 1.")
    return _Builder(n_layers, attention, task or MultiHopTask()).build()


class _Builder:
    """Builds the model: names the entries of the residual stream and sets the weights layer by
    layer.
    """

    def __init__(self, n_layers: int, attention: str, task: MultiHopTask) -> None:
        self.task, self.shifted, self.n_layers = task, attention != "vanilla", n_layers
        n_symbols = task.alphabet + 1
        sizes = {
            "one": 1,
            "index": 1,
            "token": task.vocab_size,
            "position": task.length,
            "c0": n_symbols,
        }
        sizes |= {"own switches": n_layers, "switches": n_layers}
        for m in range(1, n_layers + 1):
            sizes |= {
                f"p{m}": task.length,
                f"s{m}": n_symbols,
                f"r{m}": n_symbols,
                f"c{m}": n_symbols,
            }
        self.at: dict[str, Tensor] = {}
        width = 0
        for name, size in sizes.items():
            self.at[name] = torch.arange(width, width + size)
            width += size
        self.cfg = ModelConfig(
            n_layers=n_layers,
            d_model=width,
            n_heads=2,
            d_head=task.length + max(task.vocab_size + 2, 2 * n_symbols),
            d_mlp=2 * n_symbols,
            d_vocab=task.vocab_size,
            n_ctx=task.length,
            attention=attention,
            positional="learned",
            norm="none",
        )
        self.model = Transformer(self.cfg).double()

    def build(self) -> Transformer:
        """Return the model."""
        for weight in self.model.parameters():
            weight.zero_()
        for layer in self.model.layers:
            self._no_shift(layer.attn)
        self._embed()
        first = self.model.layers[0].attn
        self._copy_switches(first)
        for m, layer in enumerate(self.model.layers, start=1):
            if self.shifted:
                place, symbol = (f"p{m - 1}", f"s{m - 1}") if m > 1 else ("position", "c0")
                self._match(layer.attn, symbol, "c0", place)
                self._read(
                    layer.attn, 0, [(place, f"p{m}"), (symbol, f"s{m}"), (f"c{m - 1}", f"r{m}")]
                )
            elif m == 1:
                self._match(layer.attn, "token", "token", "position")
                self._point_after(layer.attn)
            else:
                self._head(layer.attn, [(f"p{m - 1}", "position", SHARP)])
                self._read(layer.attn, 0, [(f"p{m - 1}", f"p{m}"), (f"c{m - 1}", f"r{m}")])
            assert isinstance(layer.mlp, SwiGLU)
            self._switch(layer.mlp, m)
        self._unembed()
        return self.model.eval()

    def _embed(self) -> None:
        tokens, task = self.model.embed.weight, self.task
        tokens[:, self.at["one"]] = 1.0
        tokens[:, self.at["token"]] = torch.eye(task.vocab_size, dtype=torch.float64)
        letters = torch.arange(task.alphabet)
        tokens[task.first_letter + letters, self.at["c0"][letters]] = 1.0
        for k in range(task.max_hops + 1):
            tokens[k, self.at["c0"][-1]] = 1.0
            tokens[k, self.at["own switches"]] = torch.tensor(
                self._switches(k), dtype=torch.float64
            )
        assert self.model.pos_embed is not None
        positions = self.model.pos_embed.weight
        positions[:, self.at["position"]] = torch.eye(task.length, dtype=torch.float64)
        positions[:, self.at["index"][0]] = torch.arange(task.length, dtype=torch.float64)

    def _no_shift(self, attn: Attention) -> None:
        for shift in (attn.key_shift, attn.value_shift):
            if shift is not None:
                shift.weight[:, 0] = 1.0

    def _head(self, attn: Attention, terms: list[tuple[str, str, float]]) -> None:
        """Set a head's scores to the sum over `terms` of factor * <entries of the query, entries of
        the key>.
        """
        start = 0
        for of_query, of_key, factor in terms:
            rows = start + torch.arange(len(self.at[of_query]))
            attn.q_proj.weight[rows, self.at[of_query]] = factor * self.cfg.head_width**0.5
            attn.k_proj.weight[rows, self.at[of_key]] = 1.0
            start += len(rows)

    def _read(self, attn: Attention, head: int, copies: list[tuple[str, str]]) -> None:
        """Let a head copy entries of the attended position into other entries of the query
        position.
        """
        start = head * self.cfg.head_width
        for source, to in copies:
            rows = start + torch.arange(len(self.at[source]))
            attn.v_proj.weight[rows, self.at[source]] = 1.0
            attn.o_proj.weight[self.at[to], rows] = 1.0
            start += len(rows)

    def _of_hop_token(self, attn: Attention, row: int, factor: float) -> None:
        """Set a row of the keys to `factor` at the hop token and to 0 at letters."""
        attn.k_proj.weight[row, self.at["token"][: self.task.max_hops + 1]] = factor

    def _copy_switches(self, attn: Attention) -> None:
        row = self.cfg.head_width  # first row of head 1
        attn.q_proj.weight[row, self.at["one"]] = SHARP * self.cfg.head_width**0.5
        self._of_hop_token(attn, row, 1.0)
        self._read(attn, 1, [("own switches", "switches")])

    def _match(self, attn: Attention, of_query: str, of_key: str, place: str) -> None:
        """Set scores to 2 (P + 1) ([match] - [not before `place`]) - (P + 1) + index, for the token
        that a key holds.

        The score is positive for a match before the position that the query holds in `place`, and
        the latest match has the largest score. It is negative for all other keys and 0 at position
        0, which queries without a match attend to.
        """
        most = self.cfg.n_ctx + 1.0
        self._head(
            attn,
            [
                (of_query, of_key, 2 * most * SHARP),
                ("one", "one", -most * SHARP),
                ("one", "index", SHARP),
            ],
        )
        n, d = self.task.length, self.cfg.head_width
        rows = len(self.at[of_query]) + 2 + torch.arange(n)
        late = torch.arange(n)[:, None] >= torch.arange(n)  # [key, place]
        attn.q_proj.weight[rows[:, None], self.at[place]] = (
            -2 * most * SHARP * d**0.5 * late.double()
        )
        attn.k_proj.weight[rows, self.at["position"]] = 1.0
        if self.shifted:
            assert attn.key_shift is not None
            attn.key_shift.weight[0] = torch.tensor(
                [0.0, 1.0]
            )  # no token is before position 0, so its key is 0
        else:
            self._of_hop_token(attn, len(self.at[of_query]), -1.0)  # its "one" becomes 0

    def _point_after(self, attn: Attention) -> None:
        """Let head 0 write the position after the one it attends to. Position 0 is written as 0."""
        here, to = self.at["position"], self.at["p1"]
        rows = torch.arange(len(here))
        attn.v_proj.weight[rows, here] = 1.0
        attn.o_proj.weight[to[1:], rows[:-1]] = 1.0
        attn.o_proj.weight[to[[0, 1]], 0] = torch.tensor([1.0, 0.0], dtype=torch.float64)

    def _switch(self, mlp: SwiGLU, m: int) -> None:
        """Compute c_m = b_m r_m + (1 - b_m) c_{m-1}."""
        switch, one, n = self.at["switches"][m - 1], self.at["one"], len(self.at["c0"])
        taken, carried = torch.arange(n), torch.arange(n, 2 * n)
        mlp.gate_proj.weight[taken, switch] = OPEN
        mlp.gate_proj.weight[carried, one] = OPEN
        mlp.gate_proj.weight[carried, switch] = -OPEN
        mlp.in_proj.weight[taken, self.at[f"r{m}"]] = 1 / OPEN
        mlp.in_proj.weight[carried, self.at[f"c{m - 1}"]] = 1 / OPEN
        for units in (taken, carried):
            mlp.out_proj.weight[self.at[f"c{m}"], units] = 1.0

    def _unembed(self) -> None:
        logits, task, last = self.model.unembed.weight, self.task, self.at[f"c{self.n_layers}"]
        letters = torch.arange(task.alphabet)
        logits[task.first_letter + letters, last[letters]] = 1.0
        logits[task.none, last[-1]] = 1.0
        logits[task.blank, self.at["token"][: task.max_hops + 1]] = (
            2.0  # the answer at the hop token itself
        )

    def _switches(self, k: int) -> list[int]:
        """Return 1 for each layer whose hops are part of the sum k, else 0. All are 1 if their sum
        is at most k.
        """
        layers = self.n_layers if self.shifted else self.n_layers - 1
        hops = min(k, 2**layers - 1)
        on = [hops >> m & 1 for m in range(layers)]
        return on if self.shifted else [0, *on]  # the first vanilla layer follows none
