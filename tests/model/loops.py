"""The network token by token and head by head, in NumPy: slow, and without any code of the package.

`logits` returns what `Transformer` must return, from the parameters alone. Formulas are those of
the docstrings in `ihlab.model`. Vectors of a sequence are arrays [pos, width]; those of all heads
are lists of such arrays.
"""

import numpy as np


class Part:
    """The parameters of a module by their names below it, as arrays."""

    def __init__(self, arrays, prefix=""):
        self.arrays, self.prefix = arrays, prefix

    def __getitem__(self, name):
        return self.arrays[self.prefix + name]

    def get(self, name, default=0.0):
        return self.arrays.get(self.prefix + name, default)

    def below(self, name):
        return Part(self.arrays, f"{self.prefix}{name}.")

    def __contains__(self, name):
        return any(each.startswith(f"{self.prefix}{name}.") for each in self.arrays)

    def linear(self, name, x):
        return x @ self[f"{name}.weight"].T + self.get(f"{name}.bias")

    def heads(self, name, x, n_heads):
        return list(self.linear(name, x).reshape(len(x), n_heads, -1).swapaxes(0, 1))


def logits(model, tokens):
    """Return the logits [pos, d_vocab] of one sequence of tokens [pos]."""
    cfg, w = (
        model.cfg,
        Part({name: p.detach().double().numpy() for name, p in model.state_dict().items()}),
    )
    tokens = np.asarray(tokens)
    x = w["embed.weight"][tokens]
    x = smeared(w.below("smear"), x) if cfg.smear == "embedding" else x
    if cfg.positional == "learned":
        x = x + w["pos_embed.weight"][: len(x)]
    for layer in range(cfg.n_layers):
        x = block(cfg, w.below(f"blocks.{layer}"), layer, x)
    x = norm(cfg, w.below("ln_final"), x)
    return x[:, : cfg.d_vocab] if cfg.unembedding == "none" else w.linear("unembed", x)


def block(cfg, w, layer, stream):
    """Return the residual stream after a layer."""
    mu, keeps = (
        w.get("stream_shift.mu"),
        cfg.residual[layer] if isinstance(cfg.residual, tuple) else cfg.residual,
    )
    stream = stream + mu * back(stream) if cfg.stream_shift == "added" else stream
    read = lerped(mu, stream) if cfg.stream_shift == "before_norm" else stream
    read = norm(cfg, w.below("ln1"), read)
    read = lerped(mu, read) if cfg.stream_shift == "after_norm" else read
    out = canon(w, "O", attention(cfg, w.below("attn"), layer, canon(w, "A", read)))
    stream = stream + out if keeps else out
    if cfg.mlp == "none":
        return stream
    out = canon(w, "M", mlp(cfg, w.below("mlp"), canon(w, "C", norm(cfg, w.below("ln2"), stream))))
    return stream + out if keeps else out


def mlp(cfg, w, x):
    names = ["in_proj"] if cfg.mlp == "gelu" else ["gate_proj", "in_proj"]
    branches = [w.linear(name, x) for name in names]
    if "D" in cfg.canon:
        taps = w["canon.weight"]
        branches = [y + convolved(taps[branch], y) for branch, y in enumerate(branches)]
    first, last = branches[0], branches[-1]
    if cfg.mlp == "swiglu":
        return w.linear("out_proj", first * sigmoid(first) * last)
    bend = np.tanh((2 / np.pi) ** 0.5 * (first + 0.044715 * first**3))
    return w.linear("out_proj", first / 2 * (1 + bend))


# Attention


def attention(cfg, w, layer, x):
    """Return the output of a layer's attention, for its input x."""
    n_pos, n_heads = len(x), cfg.n_heads
    queries, keys, values = rotated_heads(cfg, w, layer, x)
    z = []
    for head, q in enumerate(queries):
        group = head * len(keys) // n_heads
        scores = q @ keys[group].T / cfg.d_head**0.5 + bias(cfg, layer, head, n_pos)
        z.append(softmax(scores) @ values[group])
    return w.linear("o_proj", np.concatenate(z, axis=1))


def rotated_heads(cfg, w, layer, x):
    """Return the queries, keys and values of all heads: projected, convolved, shifted, normalised
    and rotated.
    """
    n_heads, n_kv = cfg.n_heads, cfg.n_key_value_heads
    queries = w.heads("q_proj", x, n_heads)
    keys, values = w.heads("k_proj", x, n_kv), w.heads("v_proj", x, n_kv)
    if cfg.attention == "key_offset":
        other = np.arange(cfg.d_head) // (cfg.d_head // 4) % 2 == 1  # the second and fourth quarter
        keys = [np.where(other, back(k, first=k[0]), k) for k in keys]
    queries = shifted(cfg, w, "query", queries)
    keys, values = shifted(cfg, w, "key", keys), shifted(cfg, w, "value", values)
    if cfg.qk_norm:
        queries = [rms(q, cfg.eps) * w["q_norm.w"] for q in queries]
        keys = [rms(k, cfg.eps) * w["k_norm.w"] for k in keys]
    queries, keys = ([rotate(cfg, layer, y) for y in each] for each in (queries, keys))
    return queries, keys, values


def shifted(cfg, w, part, heads):
    """A convolution, then equation 5 of arXiv 2411.19574, with the variant's rule of weights."""
    if f"convolution.{part}" in w:
        taps = w[f"convolution.{part}.weight"]
        heads = [y + convolved(taps[head], y) for head, y in enumerate(heads)]
    if f"{part}_shift" not in w:
        return heads
    stored = w[f"{part}_shift.weight"]
    if cfg.attention == "kv_gate":
        rows = np.concatenate([sigmoid(stored), 1 - sigmoid(stored)], axis=1)
    elif cfg.attention == "kv_sum1":
        rows = np.concatenate([stored, 1 - stored.sum(axis=1, keepdims=True)], axis=1)
    else:
        rows = stored.clip(0, 1) if cfg.attention == "kv_clip" else stored
    mixed = [convolved(row, y) for row, y in zip(rows, heads, strict=True)]
    if cfg.shift_first == "own":
        mixed = [np.concatenate([y[:1], m[1:]]) for y, m in zip(heads, mixed, strict=True)]
    return mixed


def rotate(cfg, layer, x):
    """Multiply pairs of channels, as complex numbers, by e^(i angle); the tables of angles are
    float32.
    """
    if cfg.positional != "rope" or (cfg.rotary_layers and not cfg.rotary_layers[layer]):
        return x
    d, scale = cfg.d_head, cfg.rotary_scale
    pair = np.arange(d // 2)
    frequency = cfg.rotary_base ** (-2 * pair / d)
    if cfg.rotary_frequencies is not None:
        frequency = np.array(cfg.rotary_frequencies)
    if cfg.attention == "key_offset":
        frequency[pair >= d // 4] = 0
    angle = np.arange(len(x))[:, None] * frequency
    turn = np.float32(scale * np.cos(angle)).astype(float) + 1j * np.float32(scale * np.sin(angle))
    numbers = (x[:, : d // 2] + 1j * x[:, d // 2 :]) * turn
    return np.concatenate([numbers.real, numbers.imag], axis=1)


def bias(cfg, layer, head, n_pos):
    """Return -inf where a query may not see a key, and otherwise ALiBi's bias or 0."""
    slope = 0.0
    if cfg.positional == "alibi":
        slopes = cfg.alibi_slopes or [
            2.0 ** (-8 * (h + 1) / cfg.n_heads) for h in range(cfg.n_heads)
        ]
        slope = slopes[head + (layer * cfg.n_heads if len(slopes) > cfg.n_heads else 0)]
    t, s = np.indices((n_pos, n_pos))
    return np.where(s <= t - (cfg.mask == "strict"), -slope * (t - s), -np.inf)


# Parts


def back(x, first=0.0):
    """Return the vector of the token before each; `first` is that of the first token."""
    return np.array([x[t - 1] if t else first + 0 * x[0] for t in range(len(x))])


def lerped(mu, x):
    return x + mu * (back(x) - x)


def smeared(w, x):
    """x + lambda sigmoid(w . x) x[t - 1], w of the first 12 channels."""
    return x + w["scale"] * sigmoid(x[:, :12] @ w["weight"].T) * back(x)


def convolved(taps, x):
    """Return the sum over r of taps[r] x[t - r]; taps are numbers or vectors."""
    return np.array(
        [sum(tap * x[t - r] for r, tap in enumerate(taps) if t >= r) for t in range(len(x))]
    )


def canon(w, place, x):
    return x + convolved(w[f"canon.{place}.weight"][0], x) if f"canon.{place}" in w else x


def norm(cfg, w, x):
    if cfg.norm == "none":
        return x
    if cfg.norm == "layer":
        x = x - x.mean(axis=1, keepdims=True)
    return rms(x, cfg.eps) * w["w"] + w.get("b")


def rms(x, eps):
    return x / np.sqrt((x**2).mean(axis=1, keepdims=True) + eps)


def sigmoid(x):
    return (1 + np.tanh(np.asarray(x) / 2)) / 2  # exp(-x) could overflow


def softmax(scores):
    """Return the softmax of each row; 0 in a row that sees nothing."""
    powers = np.exp(scores)
    total = powers.sum(axis=1, keepdims=True)
    return powers / np.where(total, total, 1)
