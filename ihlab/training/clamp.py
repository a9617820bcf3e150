"""Clamps: alpha, beta or the attention pattern of a head, fixed during training. No torch here."""

from ihlab.model.config import ModelConfig
from ihlab.model.registry import RULES, VARIANTS
from tasks.config import choose, config, require, shown

CLAMPED = ("alpha", "beta", "pattern")
PATTERNS = ("previous", "uniform", "zero", "last")


@config
class Clamp:
    """A quantity that is fixed (clamped) while the rest of the model trains.

    - `what`: "alpha" or "beta" (arXiv 2411.19574, equation 5), or "pattern";
    - `layer`; `head`: a key/value head for alpha and beta, a query head for a pattern; None: all
      heads of the layer;
    - `column`: for alpha and beta, 0 is the current token (alpha1, beta1), 1 the previous one
      (alpha2, beta2); None: all columns;
    - `value`: for alpha and beta, a number, or None for the checkpoint's value. A pattern depends
      on the tokens, so it takes a name instead: "previous" (each token attends to the previous one,
      the first to itself or, with the strict mask, to nothing), "uniform" (equally to all visible
      keys), "zero" (to nothing: the head is off) or "last" (to nothing; the attention of a
      sequence's last token is not clamped).

    If two clamps act on the same weight, the later one applies. Where the columns of a head sum to
    1 by construction ("kv_gate", "kv_sum1"), a clamp of one column freezes all columns: the others
    share 1 minus its value equally.
    """

    what: str
    layer: int
    head: int | None = None
    column: int | None = None
    value: float | str | None = None

    def __post_init__(self) -> None:
        choose("clamp", self.what, CLAMPED)
        if self.what == "pattern":
            require(
                self.column is None,
                f"Clamp.column is {self.column}, but a pattern has no columns: leave it out.",
            )
            require(
                isinstance(self.value, str),
                f"Clamp.value is {shown(self.value)}, but a pattern needs a name: {', '.join(PATTERNS)}.",
            )
            choose("pattern", str(self.value), PATTERNS)
        elif self.value is not None:
            number = not isinstance(self.value, str)
            require(
                number,
                f"Clamp.value is {shown(self.value)}, but {self.what} needs a finite number, or None.",
            )

    def check(self, model: ModelConfig) -> None:
        """Raise `ConfigError` if the model has no such layer, head or column, or no shift to clamp."""
        _within("layer", self.layer, "n_layers", model.n_layers)
        if self.what == "pattern":
            _within("head", self.head, "n_heads", model.n_heads)
            return
        require(
            self.what in model.learned_shifts,
            f"Clamp.what is '{self.what}', but a {model.attention} model has no such weights; 'kv_shift' has.",
        )
        _within("head", self.head, "n_key_value_heads", model.kv_heads)
        rule = RULES[VARIANTS[model.attention].rules[self.what]]
        require(
            not rule.tied or self.column is not None or self.value is None,
            f"Clamp.column is None, but the columns of a {model.attention} model's {self.what} sum to 1: name one, "
            "the others follow.",
        )
        require(
            not isinstance(self.value, float) or rule.low <= self.value <= rule.high,
            f"Clamp.value is {self.value}, but a {model.attention} model's {self.what} is from {rule.low} to "
            f"{rule.high}.",
        )
        _within("column", self.column, "shift_window", model.shift_window)


def _within(field: str, value: int | None, size_name: str, size: int) -> None:
    require(
        value is None or 0 <= value < size,
        f"Clamp.{field} is {value}, but must be in 0 .. {size - 1}: the model's {size_name} is {size}.",
    )
