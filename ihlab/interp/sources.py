"""Open what holds heads to analyse: a run, a model of this or another library, or attention
patterns alone.

`opened` turns such a source into a `HeadModel` or `PatternsAlone`. To look at patterns only, use
`attention_patterns`.
"""

from pathlib import Path
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn
from transformer_lens import ActivationCache

from ihlab.interp.head_model import HeadModel, OurModel
from ihlab.interp.hugging_face import BridgedModel, HuggingFaceModel
from ihlab.interp.patterns_alone import TAKEN, PatternsAlone, stacked
from ihlab.measure.padding import without_padding
from ihlab.model.conversion.checks import require_merged
from ihlab.model.lens.token_ids import token_rows
from ihlab.model.transformer import Transformer
from ihlab.runtime.settings import own_settings
from ihlab.training.run import Run
from tasks.config import ConfigError, require, shown


def opened(source: Any, prepend_bos: bool | None = None) -> HeadModel | PatternsAlone:
    """Return the `HeadModel` or `PatternsAlone` of a source. Raises `ConfigError` for other types,
    naming the type.

    `prepend_bos`: probes begin with the beginning-of-sequence token (True), do not (False), or
    follow the model's task or the tokenizer stored with the model (None).
    """
    require_opened(source)
    source = getattr(
        source, "_orig_mod", source
    )  # a torch.compile wrapper, whose hooks do not fire
    if isinstance(source, HeadModel | PatternsAlone):
        return source
    source = source.model() if isinstance(source, Run) else source
    require_merged(source)
    if isinstance(source, Transformer):
        return OurModel(source, prepend_bos)
    if not isinstance(source, nn.Module):
        return PatternsAlone(source if isinstance(source, ActivationCache) else stacked(source))
    from transformers import PreTrainedModel  # imported here, because the libraries take seconds

    if isinstance(source, PreTrainedModel):
        return HuggingFaceModel(source, prepend_bos)
    from transformer_lens.model_bridge import TransformerBridge

    require(
        isinstance(source, TransformerBridge),
        f"The source is a {type(source).__name__}, but must be {TAKEN}.",
    )
    return BridgedModel(source, prepend_bos)


def require_opened(source: Any) -> None:
    """Raise `ConfigError` if given the name or folder of a run instead of the run."""
    if isinstance(source, str | Path):
        raise ConfigError(
            f"The source is {shown(source)}, a name: give the model, or the run that ihlab.Run.open opens."
        )


def opened_model(
    source: Any, wanted: str = "a model is needed", prepend_bos: bool | None = None
) -> HeadModel:
    """Return the `HeadModel` of a source. Raises `ConfigError` for patterns alone; `wanted` is the
    reason it gives.
    """
    model = opened(source, prepend_bos)
    if isinstance(model, PatternsAlone):
        raise ConfigError(f"The source holds patterns alone, but {wanted}: give the model itself.")
    return model


@own_settings()
def attention_patterns(
    source: Any, tokens: Any, attention_mask: Any = None
) -> Float[Tensor, "layer batch head query key"]:
    """Return every head's raw attention pattern on the given tokens, in float32 on the CPU.

    `source` is a `Run` (its last checkpoint), a `Transformer`, a TransformerLens
    `TransformerBridge` or a Hugging Face causal LM, which is run on the tokens; or precomputed
    patterns: an `ActivationCache`, or a tensor, array, tuple or list [layer][batch, head, query,
    key], with or without the batch axis. `tokens` are ids [batch, pos], or [pos] for one sequence.
    `attention_mask` [batch, pos] is 1 at tokens and 0 at padding. Attention to and from padding is
    0. Raises `ConfigError` for another source, for tokens that the model cannot read, and for
    patterns that do not fit the tokens.
    """
    model = opened(source)
    if isinstance(model, PatternsAlone):
        patterns, ids, real = model.on(tokens, attention_mask, ("raw",), scored=False)
        return without_padding(patterns["raw"], real).float().cpu()
    ids = token_rows(tokens).long()
    require(
        ids.numel() > 0,
        f"The tokens have the shape {list(ids.shape)}, but must hold at least one token.",
    )
    return model.read(ids, ("raw",), attention_mask)["raw"].float().cpu()
