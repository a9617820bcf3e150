"""Run the checks of a model: those of `black_box`, and for shifted keys and values those of `shifted`."""

import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch
from transformers import PreTrainedModel

from ihlab.hf.conformance import black_box, shifted
from ihlab.hf.conformance.causes import CAUSES
from ihlab.hf.conformance.compare import (
    FaultError,
    MakeModel,
    NotApplicableError,
    half_types,
    in_float32,
    is_refusal,
    reach,
)
from ihlab.progress import tracked
from tasks.config import ConfigError, choose, require

CHECKS: dict[str, tuple[str, Callable[..., None]]] = {**black_box.CHECKS, **shifted.CHECKS}
"""The requirement and the function of each check, keyed by its name."""


class Result(NamedTuple):
    """The outcome of one check.

    "pass"; "FAIL"; "limit" (it fails, and the caller allows that); "refuses" (the model says that it does not support
    this); "-" (the check does not apply).
    """

    check: str
    requirement: str
    outcome: str
    detail: str = ""


def prepared(make: MakeModel) -> Any:
    """Return a fresh model in evaluation mode, with random taps if it has any, and without an end-of-text token.

    A model in half precision becomes a float32 copy: rounding would hide faults, or look like one.
    """
    model = make()
    model = (in_float32(model) if half_types(model) else model).eval()
    shifted.draw_taps(model)
    model.generation_config.eos_token_id = model.generation_config.pad_token_id = None
    return model


def said(error: BaseException) -> str:
    """Return the first line of an error, with its type."""
    return traceback.format_exception_only(error)[-1].strip().splitlines()[0]


@torch.no_grad()
def require_checkable(make: MakeModel) -> Any:
    """Return a model. Raises `ConfigError` unless it is a causal model whose logits depend on earlier tokens."""
    try:
        model = make()
    except (ConfigError, KeyboardInterrupt):
        raise
    except BaseException as error:  # code of the user, which may also end the process
        raise ConfigError(f"The model cannot be made: {said(error)}") from error
    known = isinstance(model, PreTrainedModel) and model.can_generate()
    require(known, f"The function returns a {type(model).__name__}, but must return a causal model of transformers.")
    try:
        change = reach(prepared(lambda: model))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a model may fail in any way
        raise ConfigError(f"The {type(model).__name__} returns no logits of token ids: {said(error)}") from error
    require(
        change > 1e-3,
        f"Earlier tokens change the logits by {change:.0e} of the largest, so a fault would not show: give "
        "the model larger weights, for example initializer_range=0.2.",
    )
    return model


def each(
    make: MakeModel, checks: Iterable[str] | None = None, backend: str = "inductor", allow: Iterable[str] = ()
) -> Iterator[Result]:
    """Yield the outcome of each check as it ends, for the models that `make()` returns.

    `checks`: names from `CHECKS`; default: all that apply. `backend` is torch.compile's in the check "lifecycle".
    `allow`: checks whose failure is a known limit. Raises `ConfigError` for a model that cannot be checked.
    """
    allowed = {choose("check", name, CHECKS) for name in allow}
    model = require_checkable(make)
    has_shift, half = shifted.is_shifted(model), half_types(model)
    asked = checks if checks is not None else (CHECKS if has_shift else black_box.CHECKS)
    for name in tracked(asked, "checking"):
        requirement, check = CHECKS[choose("check", name, CHECKS)]
        outcome, detail = "pass", ""
        try:
            if not has_shift and name in shifted.CHECKS:
                raise NotApplicableError("it has no shift")
            with torch.set_grad_enabled(name == "lifecycle"):
                check(prepared(make), *([backend] if name == "lifecycle" else []))
        except NotApplicableError as reason:
            outcome, detail = "-", str(reason)
        except FaultError as fault:
            outcome, detail = "FAIL", str(fault)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # an implementation may fail in any way, SystemExit(0) among them
            may_refuse = name in black_box.MAY_REFUSE and not has_shift
            outcome, detail = "refuses" if may_refuse and is_refusal(error) else "FAIL", said(error)
        if outcome == "FAIL" and name in allowed:
            outcome = "limit"
        if half and outcome != "-":
            detail += f"{'; ' if detail else ''}in a float32 copy of the {half} model"
        yield Result(name, requirement, outcome, detail)


def run(
    make: MakeModel, checks: Iterable[str] | None = None, backend: str = "inductor", allow: Iterable[str] = ()
) -> list[Result]:
    """Return the outcomes of `each`."""
    return list(each(make, checks, backend, allow))


def line(result: Result) -> str:
    """Return a result as a line of text."""
    name, requirement, outcome, detail = result
    return f"{outcome:<7}  {name:<13}  {requirement}{': ' if detail else ''}{detail}"


def verdict(results: Iterable[Result]) -> str:
    """Return how many checks failed, which was the first, and what usually causes that. Empty if none failed.

    The checks go from simple to complex, so later failures often have the cause of the first.
    """
    failed = [result.check for result in results if result.outcome == "FAIL"]
    if not failed:
        return ""
    count = "1 check failed" if len(failed) == 1 else f"{len(failed)} checks failed, first"
    return f"{count}: {failed[0]}. Usual cause: {CAUSES[failed[0]]}."


def table(results: Iterable[Result]) -> str:
    """Return results as text: one line per check, and the verdict if a check failed."""
    results = list(results)
    return "\n".join(filter(None, [*map(line, results), verdict(results)]))


def as_tests(make: MakeModel, allow: Iterable[str] = ()) -> Callable[[str], None]:
    """Return a pytest test of each check, for a test file: `test_conformance = as_tests(make_model)`.

    A refusal skips the test. A failure that `allow` names is an expected failure.
    """
    import pytest

    allowed = tuple(allow)

    @pytest.mark.parametrize("check", CHECKS)
    def test(check: str) -> None:
        (result,) = run(make, [check], allow=allowed)
        if result.outcome == "limit":
            pytest.xfail(result.detail)
        if result.outcome in ("-", "refuses"):
            pytest.skip(result.detail)
        assert result.outcome == "pass", result.detail

    return test
