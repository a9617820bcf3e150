"""Stand-ins for the kernels that keep packed documents apart on a GPU, for checks on a CPU.

A stand-in is the family's own PyTorch reference, run on one document at a time. It takes the
arguments of the real kernel, so transformers passes it what it would pass that: `seq_idx` to
causal-conv1d and mamba-ssm, `cu_seqlens` to flash-linear-attention. Other arguments are refused,
and so are calls that the real kernel refuses.
"""

import inspect
import sys
from collections.abc import Callable
from itertools import pairwise
from types import ModuleType
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch import Tensor
from transformers import integrations

from tasks.config import require

DECORATOR = "use_kernel_func_from_hub_with_fallback"
"""transformers' decorator of a reference, which replaces it by a kernel that is installed."""


class Kernel(NamedTuple):
    """The arguments of a kernel.

    `names`: in their order, those that may be left out with "="; `tokens`: those with an axis of
    tokens; `axis`: the number of this axis; `documents`: the argument that says where documents
    begin; `state`: that of the states before.
    """

    names: str
    tokens: str = ""
    axis: int = 1
    documents: str = ""
    state: str = ""

    @property
    def signature(self) -> inspect.Signature:
        """The signature of the kernel."""
        parameters = []
        for name in self.names.split():
            parameter = inspect.Parameter(name.strip("="), inspect.Parameter.POSITIONAL_OR_KEYWORD)
            if name.endswith("="):
                parameter = parameter.replace(default=None)
            parameters.append(parameter)
        return inspect.Signature(parameters)


DELTA: dict[str, Any] = {"documents": "cu_seqlens", "state": "initial_state"}
STATE = "scale= initial_state= output_final_state= use_qk_l2norm_in_kernel="
SIGMOID = "use_beta_sigmoid_in_kernel= allow_neg_eigval="
FLOOR = "state_v_first= cu_seqlens="
KERNELS = {
    "causal_conv1d_fn": Kernel(
        "x weight bias= seq_idx= initial_states= return_final_states= final_states_out= activation=",
        "x",
        axis=2,
        documents="seq_idx",
    ),
    "causal_conv1d_update": Kernel(
        "x conv_state weight bias= activation= cache_seqlens= conv_state_indices="
    ),
    "mamba_split_conv1d_scan_combined": Kernel(
        """zxbcdt conv1d_weight conv1d_bias dt_bias A D chunk_size initial_states= seq_idx= dt_limit=
        return_final_states= activation= rmsnorm_weight= rmsnorm_eps= outproj_weight= outproj_bias= headdim= ngroups=
        norm_before_gate= state_dtype=""",
        documents="seq_idx",
    ),
    "mamba_chunk_scan_combined": Kernel(
        """x dt A B C chunk_size D= z= dt_bias= initial_states= seq_idx= cu_seqlens= dt_softplus= dt_limit=
        return_final_states= return_varlen_states= state_dtype=""",
        "x dt B C",
        documents="seq_idx",
        state="initial_states",
    ),
    "selective_state_update": Kernel(
        "state x dt A B C D= z= dt_bias= dt_softplus= state_batch_indices="
    ),
    "selective_scan_fn": Kernel(
        "u delta A B C D= z= delta_bias= delta_softplus= return_last_state="
    ),
    "mamba_inner_fn": Kernel(
        """xz conv1d_weight conv1d_bias x_proj_weight delta_proj_weight out_proj_weight out_proj_bias A B= C= D=
        delta_bias= B_proj_bias= C_proj_bias= delta_softplus= checkpoint_lvl= b_rms_weight= c_rms_weight=
        dt_rms_weight= b_c_dt_rms_eps="""
    ),
    "chunk_gated_delta_rule": Kernel(
        f"q k v g beta {STATE} {SIGMOID} {FLOOR} cu_seqlens_cpu= chunk_indices= cp_context=",
        "q k v g beta",
        **DELTA,
    ),
    "fused_recurrent_gated_delta_rule": Kernel(
        f"q k v g= gk= gv= beta= {STATE} use_gate_in_kernel= A_log= dt_bias= {SIGMOID} {FLOOR}",
        "q k v g beta",
        **DELTA,
    ),
    "chunk_kda": Kernel(
        f"""q k v g beta {STATE} use_gate_in_kernel= {SIGMOID} safe_gate= lower_bound= disable_recompute=
        return_intermediate_states= {FLOOR} cu_seqlens_cpu= cp_context=""",
        "q k v g beta",
        **DELTA,
    ),
    "fused_recurrent_kda": Kernel(
        f"q k v g beta A_log= dt_bias= {STATE} use_gate_in_kernel= {SIGMOID} lower_bound= {FLOOR}",
        "q k v g beta",
        **DELTA,
    ),
}
"""Each kernel, keyed by its name: causal-conv1d 1.6, mamba-ssm 2.3, flash-linear-attention 0.5."""


def stand_in(name: str, reference: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function with the arguments of a kernel that runs a reference on one document at a
    time.
    """
    kernel, own = KERNELS[name], inspect.signature(reference).parameters
    signature = kernel.signature

    def run(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs).arguments
        documents = given.pop(kernel.documents, None)
        in_order = [key for key in list(given)[: len(args)] if key != kernel.documents]
        by_name = {key: value for key, value in given.items() if key not in in_order and key in own}
        lacks = [
            key
            for key in given
            if key not in in_order and key not in own and given[key] not in (None, False)
        ]
        require(not lacks, f"{name}: the reference of this family has no {', '.join(lacks)}.")

        def call(**parts: Tensor) -> Any:
            values = given | parts
            return reference(
                *(values[key] for key in in_order), **{key: values[key] for key in by_name}
            )

        if documents is None or not kernel.tokens:
            return call()
        return _by_document(name, kernel, given, documents, call)

    run.__signature__ = signature  # type: ignore[attr-defined]  # transformers passes the arguments that it names
    return run


def _by_document(
    name: str, kernel: Kernel, given: dict[str, Any], documents: Tensor, call: Callable[..., Any]
) -> Any:
    """Return what a kernel does of packed documents: the outputs in a row, and the final states."""
    tokens = {key: given[key] for key in kernel.tokens.split() if given.get(key) is not None}
    first, states = next(iter(tokens.values())), given.get(kernel.state)
    rows, length = len(first), first.shape[kernel.axis]
    has_starts = kernel.documents == "cu_seqlens"
    if has_starts:
        require(rows == 1, f"{name}: the batch has {rows} rows, but must have 1 with cu_seqlens.")
        require(
            int(documents[-1]) == length,
            f"{name}: cu_seqlens ends at {int(documents[-1])}, not {length}.",
        )
        n = len(documents) - 1
        require(
            states is None or len(states) == n,
            f"{name}: {n} documents need as many initial states.",
        )
    else:
        require(
            documents.shape == (rows, length),
            f"{name}: seq_idx is {list(documents.shape)}, not {[rows, length]}.",
        )
        require(states is None, f"{name}: the stand-in takes no initial states with seq_idx.")
    if name == "causal_conv1d_fn":
        require(
            documents.dtype == torch.int32,
            f"{name}: seq_idx is {documents.dtype}, but must be int32.",
        )
        require(
            length == 1 or first.stride(1) == 1,
            f"{name}: seq_idx needs channels in the last place in memory.",
        )
    outputs, finals = [], []
    for row in range(rows):
        if has_starts:
            bounds = documents.tolist()
        else:
            bounds = [0, *(documents[row].diff().nonzero().flatten() + 1).tolist(), length]
        pieces, states_after = [], []
        for document, (start, stop) in enumerate(pairwise(bounds)):
            parts = {
                key: x[row : row + 1].narrow(kernel.axis, start, stop - start)
                for key, x in tokens.items()
            }
            if states is not None:
                parts[kernel.state] = states[document : document + 1]
            result = call(**parts)
            piece, state_after = result if isinstance(result, tuple) else (result, None)
            pieces.append(piece)
            states_after.append(state_after)
        outputs.append(torch.cat(pieces, dim=kernel.axis))
        finals += states_after if has_starts else states_after[-1:]
    output = torch.cat(outputs)
    if not isinstance(result, tuple):
        return output
    return output, None if finals[0] is None else torch.cat(finals)


def use_stand_ins() -> None:
    """Give the stand-ins to all modelling files of transformers that are imported from now on.

    Raises `ConfigError` if one that uses kernels has been imported.
    """
    original = getattr(integrations, DECORATOR)
    early = [
        name
        for name, module in sys.modules.items()
        if name.startswith("transformers.models.") and vars(module).get(DECORATOR) is original
    ]
    require(
        not early,
        f"{', '.join(early)} was imported before use_stand_ins(), but must be imported after it.",
    )
    if original.__module__ == __name__:
        return

    def decorator(name: str, package: str, internal_path: str | None = None) -> Any:
        decorate = original(name, package, internal_path)

        def decorated(reference: Any) -> Any:
            if name not in KERNELS:
                return decorate(reference)
            module = ModuleType(package)
            setattr(module, name, stand_in(name, reference))
            with patch.dict(sys.modules, {package: module}):
                return decorate(reference)

        return decorated

    setattr(integrations, DECORATOR, decorator)
