"""Run the checks of a model: those of `black_box`, and for shifted keys and values those of
`shifted`.
"""

import re
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch
from transformers import PreTrainedModel

from ihlab.hf.conformance import black_box, kernels, shifted
from ihlab.hf.conformance.causes import CAUSES, root
from ihlab.hf.conformance.compare import (
    FaultError,
    MakeModel,
    NotApplicableError,
    half_types,
    in_float32,
    is_refusal,
    reach,
)
from ihlab.runtime.progress import tracked
from tasks.config import ConfigError, choose, require

CHECKS: dict[str, tuple[str, Callable[..., None]]] = {**black_box.CHECKS, **shifted.CHECKS}
"""The requirement and the function of each check, keyed by its name."""


class Result(NamedTuple):
    """The outcome of one check.

    "pass"; "FAIL"; "limit" (it fails, and the caller allows that); "refuses" (the model says that
    it does not support this); "-" (the check does not apply). `follows`: the first failed check
    that a failed one builds on.
    """

    check: str
    requirement: str
    outcome: str
    detail: str = ""
    follows: str = ""

    @property
    def crashed(self) -> bool:
        """Whether an error ended the check, and not a comparison."""
        return self.outcome in ("FAIL", "limit") and bool(
            re.match(r"[\w.]*(Error|Exit)\b", self.detail)
        )


def prepared(make: MakeModel) -> Any:
    """Return a fresh model in evaluation mode, with random taps if it has any, and without an
    end-of-text token.

    A model in half precision becomes a float32 copy: rounding would hide faults, or look like one.
    """
    model = make()
    if half_types(model):
        model = in_float32(model)
    model.eval()
    shifted.draw_taps(model)
    model.generation_config.eos_token_id = model.generation_config.pad_token_id = None
    return model


def said(error: BaseException) -> str:
    """Return the first line of an error, with its type."""
    return traceback.format_exception_only(error)[-1].strip().splitlines()[0]


@torch.no_grad()
def require_checkable(make: MakeModel) -> Any:
    """Return a model. Raises `ConfigError` unless it is a causal model whose logits depend on
    earlier tokens.
    """
    try:
        model = make()
    except (ConfigError, KeyboardInterrupt):
        raise
    except BaseException as error:  # code of the user, which may also end the process
        raise ConfigError(f"The model cannot be made: {said(error)}") from error
    known = isinstance(model, PreTrainedModel) and model.can_generate()
    require(
        known,
        f"The function returns a {type(model).__name__}, but must return a causal model of transformers.",
    )
    try:
        change = reach(prepared(lambda: model))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a model may fail in any way
        raise ConfigError(
            f"The {type(model).__name__} returns no logits of token ids: {said(error)}"
        ) from error
    require(
        change > 1e-3,
        f"Earlier tokens change the logits by {change:.0e} of the largest, so a fault would not show: give "
        "the model larger weights, for example initializer_range=0.2.",
    )
    return model


def each(
    make: MakeModel,
    checks: Iterable[str] | None = None,
    backend: str = "inductor",
    allow: Iterable[str] = (),
) -> Iterator[Result]:
    """Yield the outcome of each check as it ends, for the models that `make()` returns.

    `checks`: names from `CHECKS`; default: all that apply. `backend` is torch.compile's in the
    check "lifecycle".
    `allow`: checks whose failure is a known limit. Raises `ConfigError` for a model that cannot be
    checked.
    """
    allowed = {choose("check", name, CHECKS) for name in allow}
    model = require_checkable(make)
    has_shift, half = bool(shifted.taps_of(model)), half_types(model)
    if checks is None:
        checks = CHECKS if has_shift else black_box.CHECKS
    failed: set[str] = set()
    for name in tracked(checks, "checking"):
        requirement, check = CHECKS[choose("check", name, CHECKS)]
        outcome, detail = "pass", ""
        try:
            if not has_shift and name in shifted.CHECKS:
                raise NotApplicableError("it has no shift")
            options = {"backend": backend} if name == "lifecycle" else {}
            with torch.set_grad_enabled(name == "lifecycle"):
                check(prepared(make), **options)
        except NotApplicableError as reason:
            outcome, detail = "-", str(reason)
        except FaultError as fault:
            outcome, detail = "FAIL", str(fault)
        except KeyboardInterrupt:
            raise
        except (
            BaseException
        ) as error:  # an implementation may fail in any way, SystemExit(0) among them
            may_refuse = name in black_box.MAY_REFUSE and (not has_shift or name == "tree")
            outcome, detail = "refuses" if may_refuse and is_refusal(error) else "FAIL", said(error)
        if outcome == "FAIL" and name in allowed:
            outcome = "limit"
        notes = [detail]
        if half and outcome != "-":
            notes.append(f"in a float32 copy of the {half} model")
        if kernels.are_stand_ins_used() and name in ("seq_idx", "cu_seqlens"):
            notes.append("with stand-in kernels")
        follows = ""
        if outcome in ("FAIL", "limit"):
            failed.add(name)
            follows = root(name, failed)
        yield Result(
            name,
            requirement,
            outcome,
            "; ".join(filter(None, notes)),
            "" if follows == name else follows,
        )


def run(
    make: MakeModel,
    checks: Iterable[str] | None = None,
    backend: str = "inductor",
    allow: Iterable[str] = (),
) -> list[Result]:
    """Return the outcomes of `each`."""
    return list(each(make, checks, backend, allow))


def line(result: Result) -> str:
    """Return a result as a line of text."""
    name, requirement, outcome, detail, follows = result
    reason = f"; may follow from {follows}" if follows else ""
    return f"{outcome:<7}  {name:<15}  {requirement}{': ' if detail else ''}{detail}{reason}"


def verdict(results: Iterable[Result]) -> str:
    """Return how many checks failed, and for each that follows from no other its usual cause. Empty
    if none failed.
    """
    failed = [result for result in results if result.outcome == "FAIL"]
    if not failed:
        return ""
    names = {result.check for result in failed}
    first, *others = (result.check for result in failed if result.follows not in names)
    count = {1: "1 check failed"}.get(len(failed), f"{len(failed)} checks failed, first")
    return "\n".join(
        [f"{count}: {_cause(first, failed)}", *(f"Also: {_cause(name, failed)}" for name in others)]
    )


def _cause(check: str, failed: list[Result]) -> str:
    """Return the usual cause of a failed check, and which others may follow from it."""
    has_crashed = any(result.crashed for result in failed if result.check == check)
    cause = "It crashed." if has_crashed else f"Usual cause: {CAUSES[check]}."
    followers = [result.check for result in failed if result.follows == check]
    also = f" It may be why {', '.join(followers)} failed." if followers else ""
    return f"{check}. {cause}{also}"


def table(results: Iterable[Result]) -> str:
    """Return results as text: one line per check, and the verdict if a check failed."""
    results = list(results)
    return "\n".join(filter(None, [*map(line, results), verdict(results)]))


def as_tests(make: MakeModel, allow: Iterable[str] = ()) -> Callable[[str], None]:
    """Return a pytest test of each check, for a test file: `test_conformance =
    as_tests(make_model)`.

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
