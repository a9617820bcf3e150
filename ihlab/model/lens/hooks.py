"""Hooks and caches as in TransformerLens, with an error for a name that no hook point has."""

import warnings
from collections.abc import Iterable
from typing import Any

from torch import Tensor
from transformer_lens import ActivationCache, HookedRootModule
from transformer_lens.hook_points import HookPoint
from transformer_lens.utilities import Slice

from tasks.config import ConfigError, choose, require

OF_QUERIES = ("hook_pattern", "hook_attn_scores")
"""Substrings of the names of hook points whose axes are [batch, head, query, ...]."""

WEIGHTS = ("hook_alpha", "hook_beta", "hook_gamma")
"""Suffixes of the names of hook points of weights: these have no batch axis and no position axis.
"""


class LensHooks(HookedRootModule):
    """TransformerLens' hook methods, with an error or a warning for a name that no hook point has."""

    def name_new_hook_points(self) -> None:
        """Name the hook points of modules assigned after the model was made, such as another
        attention.
        """
        named = set(map(id, self.hook_dict.values()))
        if {id(module) for module in self.modules() if isinstance(module, HookPoint)} != named:
            self.setup()

    def hooks(self, fwd_hooks: Any = (), bwd_hooks: Any = (), *args: Any, **kwargs: Any) -> Any:
        """Add temporary hooks as in TransformerLens, after naming the hook points of newly assigned
        modules.

        Raises `ConfigError` for a name that no hook point has, like every method that takes such a
        name.
        """
        fwd_hooks, bwd_hooks = list(fwd_hooks), list(bwd_hooks)  # each is read twice
        self._require_hook_points(name for name, _ in fwd_hooks + bwd_hooks)
        return super().hooks(fwd_hooks, bwd_hooks, *args, **kwargs)

    def add_hook(self, name: Any, *args: Any, **kwargs: Any) -> None:
        """Add a hook as in TransformerLens, with the checks of `hooks`."""
        self._require_hook_points([name])
        super().add_hook(name, *args, **kwargs)

    def get_caching_hooks(self, names_filter: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Return caching hooks as in TransformerLens (for `run_with_cache`). Warns of a name
        without a hook point.
        """
        self._warn_of_filter(names_filter)
        return super().get_caching_hooks(names_filter, *args, **kwargs)

    def _warn_of_filter(self, names_filter: Any) -> None:
        self.name_new_hook_points()
        if callable(names_filter):
            if not any(map(names_filter, self.hook_dict)):
                warnings.warn(
                    "names_filter is true for no hook point: the cache stays empty.", stacklevel=4
                )
            return
        if isinstance(names_filter, str):
            names_filter = [names_filter]
        for name in names_filter or ():
            try:
                self._require_hook_points([name])
            except ConfigError as error:
                warnings.warn(f"names_filter: {error}", stacklevel=4)

    def _require_hook_points(self, names: Iterable[Any]) -> None:
        self.name_new_hook_points()
        for name in names:
            if isinstance(name, str) and name not in self.hook_dict:
                choose("hook point", name, self.hook_dict)

    def run_with_cache(
        self, *args: Any, remove_batch_dim: bool = False, pos_slice: Any = None, **kwargs: Any
    ) -> tuple[Tensor, ActivationCache]:
        """Run the model; return its output and a TransformerLens `ActivationCache` of its
        activations.

        The batch axis and unwanted positions are removed here. TransformerLens finds axes by the
        hook names that it knows: it would cut hook_k_raw along its heads, and alpha and beta along
        a wrong axis.
        """
        input = args[0] if args else kwargs["input"]
        if kwargs.get("start_at_layer") is None:
            input = self.to_tokens(input)
        rows = len(input)
        require(
            not remove_batch_dim or rows == 1,
            f"The batch dimension of {rows} sequences cannot be removed: give one sequence.",
        )
        output, cache = super().run_with_cache(*args, **kwargs)
        whole = pos_slice is None and not remove_batch_dim
        positions = Slice.unwrap(pos_slice)
        for name, x in cache.items():
            if whole or name.removesuffix("_grad").endswith(WEIGHTS):
                continue
            axis = 2 if any(kind in name for kind in OF_QUERIES) else 1
            cache[name] = positions.apply(x, dim=axis)
            if remove_batch_dim:
                cache[name] = cache[name][0]
        return output, ActivationCache(cache, self, has_batch_dim=not remove_batch_dim)
