"""`KVShiftForCausalLM`: a Hugging Face causal LM whose attention mixes each key and value with
earlier ones.

Its class is a subclass of the original model's class (a shifted Mistral is a `MistralForCausalLM`),
so every feature of transformers still works. The shift is one small module in each attention, and
its state is in the cache.
"""

import copy
import os
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    GenerationMixin,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers import initialization as init
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from ihlab.hf import standalone
from ihlab.hf.attention import SHIFT, attentions, require_shiftable, shifted_attention, tell_links
from ihlab.hf.cache import shifted_layer_types
from ihlab.hf.pickled import pickled_by
from ihlab.hf.shift import Taps
from ihlab.model.conversion.checks import require_merged
from ihlab.model.shift import start
from ihlab.runtime.settings import own_settings
from ihlab.storage.files import write_text
from ihlab.storage.model_folder import HUB, load, model_files, of_model, quiet
from tasks.config import choose, require, require_integer, shown

FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "smollm3")
"""Model types that are known to run with the shift."""
FIRST = ("zero", "own")


class KVShiftConfig(PreTrainedConfig):
    """The config of a shifted model: the fields of the unshifted model's config, and those of the
    shift.

    `KVShiftConfig(base_model_type="mistral", ...)` is also a `MistralConfig`.

    - `base_model_type`: transformers' model type of the unshifted model;
    - `shift_window`: number of tokens that are mixed, the current token and those right before it;
    - `shift_keys`, `shift_values`: whether keys, or values, are shifted;
    - `shift_first`: the rule for a token without a previous one: "zero" mixes in zeros (the
      paper's), "own" leaves it unshifted.
    """

    model_type = "kv_shift"
    base_model_type: str = "llama"
    shift_window: int = 2
    shift_keys: bool = True
    shift_values: bool = True
    shift_first: str = "zero"

    def __new__(cls, *args: Any, base_model_type: Any = "llama", **kwargs: Any) -> "KVShiftConfig":  # noqa: D102
        require(
            isinstance(base_model_type, str)
            and base_model_type != cls.model_type
            and base_model_type in CONFIG_MAPPING,
            f"base_model_type is {shown(base_model_type)}, which transformers does not know.",
        )
        return super().__new__(shifted_config(base_model_type) if cls is KVShiftConfig else cls)

    def __post_init__(self, **kwargs: Any) -> None:
        choose("shift_first", self.shift_first, FIRST)
        require_integer("shift_window", self.shift_window, 2)
        longest = getattr(self, "max_position_embeddings", None)
        require(
            not isinstance(longest, int) or self.shift_window <= longest,
            f"shift_window is {self.shift_window}, but must be 2 to max_position_embeddings={longest}.",
        )
        sides = (self.shift_keys, self.shift_values)
        require(
            sides in ((True, True), (True, False), (False, True)),
            f"shift_keys and shift_values are {shown(sides)}, but must be True or False, one of them True.",
        )
        rule = kwargs.pop("shift_rule", "taps")  # a field of 0.4.0
        require(
            rule == "taps", f"shift_rule is {shown(rule)}, but only 'taps' is known since 0.5.0."
        )
        super().__post_init__(**kwargs)

    def save_pretrained(
        self, save_directory: str | os.PathLike[str], push_to_hub: bool = False, **kwargs: Any
    ) -> None:
        """Save the config as transformers does, and beside it the code that opens the model without
        ihlab.
        """
        names = {
            auto.__name__: shifted_model(base).__name__
            for auto, base in _bases(self.base_model_type).items()
        }
        names["AutoConfig"] = "KVShiftConfig"
        self.auto_map = {auto: f"{standalone.NAME}.{name}" for auto, name in names.items()}
        os.makedirs(save_directory, exist_ok=True)
        write_text(Path(save_directory, f"{standalone.NAME}.py"), standalone.source())
        super().save_pretrained(save_directory, push_to_hub, **kwargs)

    @classmethod
    def register_for_auto_class(cls, auto_class: Any = "AutoConfig") -> None:
        """Do nothing: `save_pretrained` always writes the code and the names of its classes."""

    def get_text_config(self, decoder: Any = None, encoder: Any = None) -> Any:
        """Return this config. For caches (`decoder`), return a view whose layer types also store
        raw states.
        """
        config = super().get_text_config(decoder=decoder, encoder=encoder)
        if not decoder or config is not self or torch.compiler.is_compiling():
            return config
        config_class: Any = type(self)
        view = object.__new__(_of_caches(config_class, shifted_layer_types(self)))
        object.__setattr__(view, "__dict__", vars(self))
        return view


@lru_cache
def shifted_config(base_model_type: str) -> type[KVShiftConfig]:
    """Return the config class of shifted models of a model type, and register it with transformers'
    auto classes.
    """
    config_class = _config_class(base_model_type)
    for auto, base in _bases(base_model_type).items():
        auto.register(config_class, shifted_model(base))
    return config_class


def _bases(base_model_type: str) -> dict[Any, Any]:
    """Return the classes of a model type, keyed by the auto class of transformers that opens them."""
    config_class = CONFIG_MAPPING[base_model_type]
    classes = {
        auto: auto._model_mapping.get(config_class, None)
        for auto in (AutoModelForCausalLM, AutoModel)
    }
    return {auto: base for auto, base in classes.items() if isinstance(base, type)}


@lru_cache
def _of_caches(config_class: Any, layer_types: tuple[str, ...]) -> Any:
    members = {
        "layer_types": property(lambda config: list(layer_types)),
        "kv_sharing_modes": None,  # `layer_types` has them: a layer that reads another layer's cache is a "dummy"
        "get_text_config": lambda config, **_: config,
    }
    return type("KVShiftConfig", (config_class,), members)


@lru_cache
def _config_class(base_model_type: str) -> type[KVShiftConfig]:
    bases = (KVShiftConfig, CONFIG_MAPPING[base_model_type])
    members = {
        "base_model_type": base_model_type,
        "__module__": __name__,
        "__annotations__": {"base_model_type": str},
        "__reduce_ex__": pickled_by(shifted_config, base_model_type),
    }
    return type("KVShiftConfig", bases, members)


class KVShiftForCausalLM(PreTrainedModel):
    """A causal LM with shifted attention. `KVShiftForCausalLM(config)` initialises its taps as the
    paper does.
    """

    config_class = KVShiftConfig
    _keep_in_fp32_modules_strict = (SHIFT,)

    def __new__(  # noqa: D102
        cls, config: KVShiftConfig | None = None, *args: Any, **kwargs: Any
    ) -> "KVShiftForCausalLM":
        return super().__new__(cls._of_family(config))

    def __init__(self, config: KVShiftConfig, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, *args, **kwargs)
        _install(self)
        for module in self.modules():
            if isinstance(module, Taps):
                self._init_weights(module)

    @classmethod
    def _of_family(cls, config: Any) -> Any:
        """Return this class, or for `KVShiftForCausalLM` itself the subclass of the config's model
        type.
        """
        return shifted_model(_base_class(config)) if cls is KVShiftForCausalLM else cls

    @classmethod
    def from_pretrained(
        cls, pretrained_model_name_or_path: Any, *args: Any, config: Any = None, **kwargs: Any
    ) -> Any:
        """Load a model from a folder or by its hub name, as transformers does; its config states
        its model type.

        Weights are read only from safetensors, or given as `state_dict` with the name None. Raises
        `ConfigError` for a model that is not shifted, and for any that `ihlab heads --hf` refuses.
        """
        name = pretrained_model_name_or_path
        if name is None and kwargs.get("state_dict") is not None:
            return super(KVShiftForCausalLM, cls._of_family(config)).from_pretrained(
                None, *args, config=config, **kwargs
            )
        require(
            isinstance(name, str | os.PathLike),
            f"The model is {shown(name)}, but must be a folder or a name.",
        )
        for option, only in {"use_safetensors": True, "variant": None, "gguf_file": None}.items():
            value = kwargs.pop(option, None)
            require(
                value in (None, only),
                f"{option} is {shown(value)}, but weights are read from model.safetensors.",
            )
        with of_model(name), quiet():
            hub = {option: kwargs[option] for option in HUB if option in kwargs}
            files = model_files(name, **hub)
            kind = files.config.get("model_type")
            require(
                config is not None or kind == KVShiftConfig.model_type,
                f"{files.path}: model_type is {shown(kind)}, but must be 'kv_shift': add_shift shifts other models.",
            )
            known = (
                cls.config_class.from_pretrained(files.name, **hub) if config is None else config
            )
            read = super(KVShiftForCausalLM, cls._of_family(known)).from_pretrained
            model = load(files, known, read, *args, config=config, **kwargs)
            if known.base_model_type not in FAMILIES:
                require_shiftable(model[0] if isinstance(model, tuple) else model)
        return model

    def save_pretrained(self, save_directory: Any, *args: Any, **kwargs: Any) -> None:
        """Save as transformers does. Weights get the mode of the config beside them: safetensors
        writes files that only their owner may read.
        """
        super().save_pretrained(save_directory, *args, **kwargs)
        mode = Path(save_directory, "config.json").stat().st_mode
        for weights in Path(save_directory).glob("*.safetensors"):
            weights.chmod(mode)

    @classmethod
    def register_for_auto_class(cls, auto_class: Any = "AutoModel") -> None:
        """Do nothing: `save_pretrained` always writes the code and the names of its classes."""

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        if not isinstance(module, Taps):
            super()._init_weights(module)
            return
        for taps in module.parameters():  # the paper's start
            own = torch.rand(len(taps), 1, dtype=taps.dtype, device=taps.device)
            init.copy_(taps, start(own, module.window))


@lru_cache
def shifted_model(base: Any) -> type[KVShiftForCausalLM]:
    """Return the subclass of a model class whose attention is shifted."""
    name, kind = f"KVShift{base.__name__}", base.config_class.model_type
    members = {
        "config_class": _config_class(kind),
        "__module__": __name__,
        "__reduce_ex__": pickled_by(shifted_model, base),
    }
    if not base.can_generate():  # a decoder without its head
        return type(name, (KVShiftForCausalLM, base), members)
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[f"kv_shift_{kind}"] = (
        name  # Trainer and pipelines look for the class's name
    )
    return type(name, (KVShiftForCausalLM, base, GenerationMixin), members)


def __getattr__(name: str) -> Any:
    """Return a shifted class by its name in an `auto_map`: "KVShift" and the name of transformers'
    class.
    """
    base = name.removeprefix("KVShift")
    if base == name:
        raise AttributeError(name)
    return shifted_model(getattr(transformers, base))


def _base_class(config: Any) -> Any:
    require(
        isinstance(config, KVShiftConfig),
        f"The config is a {type(config).__name__}, but must be a KVShiftConfig.",
    )
    base, known = CONFIG_MAPPING[config.base_model_type], AutoModelForCausalLM._model_mapping
    require(
        base in known,
        f"base_model_type is {config.base_model_type!r}, which has no causal language model.",
    )
    return known[base]


def _kv_heads(attention: Any) -> int:
    size: Any = getattr(attention, "head_dim", None)
    width: Any = getattr(attention.k_proj, "out_features", None)
    name = type(attention).__name__
    message = f"The k_proj of {name} has {width} outputs, no multiple of head_dim={size}."
    require(bool(size and width) and width % size == 0, message)
    return int(width // size)


def _require_decoder(model: Any) -> None:
    require(
        bool(attentions(model)) and not model.config.is_encoder_decoder,
        f"The {type(model).__name__} cannot be shifted: it has no decoder whose attention has separate k_proj and "
        "v_proj.",
    )


def _install(model: Any) -> None:
    """Add a shift to each attention of a model, as its config says."""
    _require_decoder(model)
    config = model.config
    shifted_layer_types(config)  # a compiled model can make no classes
    for attention in attentions(model):
        heads, weight = _kv_heads(attention), attention.k_proj.weight
        sides = (config.shift_keys, config.shift_values)
        shift = Taps(heads, config.shift_window, *sides, config.shift_first, like=weight)
        setattr(attention, SHIFT, shift)
        attention.__class__ = shifted_attention(attention.__class__)
    decoder = model.base_model
    first = attentions(model)[0]
    first.stores_numbers, decoder.layer_of_numbers = True, first.layer_idx
    decoder.register_forward_pre_hook(tell_links, with_kwargs=True)


@torch.no_grad()
def add_shift(
    model: Any,
    window: int = 2,
    keys: bool = True,
    values: bool = True,
    first: str = "zero",
) -> Any:
    """Shift the keys and values of a Hugging Face causal LM, in place, and return it.

    Taps start at the identity (1, 0, ...), so the logits equal the unshifted model's. The model
    becomes a `KVShiftForCausalLM`, and is saved and loaded as one. Raises `ConfigError`, and leaves
    the model as it is, if its attention has no separate `k_proj` and `v_proj`, if it cannot run
    with the shift, and for arguments that `KVShiftConfig` rejects.
    """
    name = type(model).__name__
    require_merged(model)
    require(
        isinstance(model, PreTrainedModel),
        f"The model is a {name}, but must be a causal model of transformers.",
    )
    require(not isinstance(model, KVShiftForCausalLM), f"The {name} is shifted already.")
    offloaded = model.device.type == "meta" and hasattr(model, "_hf_hook")
    require(not offloaded, f"The weights of the {name} are offloaded: add the shift before that.")
    _require_decoder(model)
    fields = {
        "shift_window": window,
        "shift_keys": keys,
        "shift_values": values,
        "shift_first": first,
    }
    weights = {id(x): x for x in (*model.parameters(), *model.buffers())}
    require_shiftable(
        _shifted(copy.deepcopy(model, weights), fields)
    )  # before the model is changed
    return _shifted(model, fields)


def _shifted(model: Any, fields: dict[str, Any]) -> Any:
    config = model.config
    shared_fields = {key: value for key, value in config.to_dict().items() if key != "model_type"}
    new = KVShiftConfig.from_dict({**shared_fields, "base_model_type": config.model_type, **fields})
    _keep_implementations(config, new)
    for module in model.modules():
        if getattr(module, "config", None) is config:
            module.config = new
    model.__class__ = shifted_model(model.__class__)
    _install(model)
    for module in model.modules():
        if isinstance(module, Taps):
            for taps in module.parameters():
                taps.zero_()[:, 0] = 1
    return model


def _keep_implementations(config: Any, new: Any) -> None:
    for name in ("_attn_implementation", "_experts_implementation"):  # no fields of a config
        if getattr(config, name, None) is not None:
            setattr(new, name, getattr(config, name))


@own_settings()
def unshifted(model: Any) -> Any:
    """Return a copy of a shifted model without its shift, in the transformers class that it
    extends.
    """
    if hasattr(model, "unshifted"):
        return model.unshifted()
    base: Any = next(
        cls for cls in type(model).__mro__ if cls.__module__.startswith("transformers.models.")
    )
    fields = {
        name: value
        for name, value in model.config.to_dict().items()
        if name not in ("model_type", "auto_map")
    }
    config = base.config_class.from_dict(fields)
    _keep_implementations(model.config, config)
    plain = base(config).eval()
    theirs = _tensors(model)
    for name, tensor in _tensors(plain).items():
        if name in theirs:  # rotary frequencies are rounded if the model's are
            tensor.data = tensor.data.to(theirs[name])
    missing = plain.load_state_dict(model.state_dict(), strict=False).missing_keys
    require(
        not missing,
        f"The shifted model has no {', '.join(missing[:3])}, so the unshifted one cannot be made of it.",
    )
    plain.generation_config = copy.deepcopy(model.generation_config)
    return plain


def _tensors(model: Any) -> dict[str, torch.Tensor]:
    """Return all parameters and buffers by name; tied weights have several names."""
    return {
        **dict(model.named_parameters(remove_duplicate=False)),
        **dict(model.named_buffers(remove_duplicate=False)),
    }


AutoConfig.register("kv_shift", KVShiftConfig)
