"""Run the checks of a model: those of `black_box`, and for shifted keys and values those of `shifted`."""

import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch
from transformers import PreTrainedModel

from ihlab.hf.conformance import black_box, shifted
from ihlab.hf.conformance.compare import FaultError, MakeModel, NotApplicableError, reach
from tasks.config import ConfigError, choose, require

CHECKS: dict[str, tuple[str, Callable[..., None]]] = {**black_box.CHECKS, **shifted.CHECKS}
"""The requirement and the check, by name."""


class Result(NamedTuple):
    """The outcome of one check: "pass", "FAIL", "refuses" (the model raises an error) or "-" (it does not apply)."""

    check: str
    requirement: str
    outcome: str
    detail: str = ""


def prepared(make: MakeModel) -> Any:
    """Return a fresh model in evaluation mode, with random taps if it has any, that generates no end of text."""
    model = make().eval()
    shifted.draw_taps(model)
    model.generation_config.eos_token_id = model.generation_config.pad_token_id = None
    return model


def said(error: Exception) -> str:
    """Return the first line of an error, with its type."""
    return traceback.format_exception_only(error)[-1].strip().splitlines()[0]


@torch.no_grad()
def require_checkable(make: MakeModel) -> Any:
    """Return a model. Raises `ConfigError` unless it is a causal model whose logits depend on earlier tokens."""
    try:
        model = make()
    except ConfigError:
        raise
    except Exception as error:  # code of the user
        raise ConfigError(f"The model cannot be made: {said(error)}") from error
    known = isinstance(model, PreTrainedModel) and model.can_generate()
    require(known, f"The function returns a {type(model).__name__}, but must return a causal model of transformers.")
    model = prepared(lambda: model)
    try:
        change = reach(model)
    except Exception as error:  # a model may fail in any way
        raise ConfigError(f"The {type(model).__name__} returns no logits of token ids: {said(error)}") from error
    require(
        change > 1e-3,
        f"Earlier tokens change the logits by {change:.0e} of the largest, so a fault would not show: give "
        "the model larger weights, for example initializer_range=0.2.",
    )
    return model


def each(make: MakeModel, checks: Iterable[str] | None = None, backend: str = "inductor") -> Iterator[Result]:
    """Yield the outcome of each check as it ends, for the models that `make()` returns.

    `checks`: names from `CHECKS`; default: all that apply. `backend` is torch.compile's. Raises `ConfigError` for a
    model that cannot be checked.
    """
    has_shift = shifted.is_shifted(require_checkable(make))
    for name in checks if checks is not None else (CHECKS if has_shift else black_box.CHECKS):
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
        except Exception as error:  # an implementation may fail in any way
            outcome = "refuses" if name in black_box.MAY_REFUSE and not has_shift else "FAIL"
            detail = said(error)
        yield Result(name, requirement, outcome, detail)


def run(make: MakeModel, checks: Iterable[str] | None = None, backend: str = "inductor") -> list[Result]:
    """Return the outcomes of `each`."""
    return list(each(make, checks, backend))


def table(results: Iterable[Result]) -> str:
    """Return results as text, one line per check."""
    return "\n".join(
        f"{row.outcome:<7}  {row.check:<12}  {row.requirement}{': ' if row.detail else ''}{row.detail}"
        for row in results
    )


def as_tests(make: MakeModel) -> Callable[[str], None]:
    """Return a pytest test of each check, for a test file: `test_conformance = as_tests(make_model)`."""
    import pytest

    @pytest.mark.parametrize("check", CHECKS)
    def test(check: str) -> None:
        (result,) = run(make, [check])
        if result.outcome in ("-", "refuses"):
            pytest.skip(result.detail)
        assert result.outcome == "pass", result.detail

    return test
