"""Run the checks of a model: those of `black_box`, and for shifted keys and values those of
`shifted`.
"""

import re
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, NamedTuple

import torch
from transformers import PreTrainedModel

from ihlab.hf.conformance import black_box, shifted
from ihlab.hf.conformance.compare import (
    Check,
    FaultError,
    MakeModel,
    NotApplicableError,
    is_refusal,
    reach,
)
from ihlab.runtime.progress import tracked
from tasks.config import ConfigError, choose, require

CHECKS: dict[str, Check] = {**black_box.CHECKS, **shifted.CHECKS}


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


def prepared(make: MakeModel) -> Any:
    """Return a fresh model in evaluation mode, with random taps if it has any, and without an
    end-of-text token.
    """
    model = make().eval()
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
        known = isinstance(model, PreTrainedModel) and model.can_generate()
        require(
            known,
            f"The function returns a {type(model).__name__}, but must return a causal model of transformers.",
        )
        change, types = reach(prepared(lambda: model)), {x.dtype for x in model.parameters()}
    except (ConfigError, KeyboardInterrupt):
        raise
    except BaseException as error:  # code of the user, which may also end the process
        raise ConfigError(
            f"The function returns no model that returns logits of token ids: {said(error)}"
        ) from error
    require(
        not types & {torch.bfloat16, torch.float16},
        "The model is in half precision, whose rounding would hide faults: return it in float32.",
    )
    require(
        change > 1e-3,
        f"Earlier tokens change the logits by {change:.0e} of the largest, so a fault would not show: give "
        "the model larger weights, for example initializer_range=0.2.",
    )
    return model


def each(
    make: MakeModel,
    checks: Iterable[str] | None = None,
    allow: Iterable[str] = (),
) -> Iterator[Result]:
    """Yield the outcome of each check as it ends, for the models that `make()` returns.

    `checks`: names from `CHECKS`; default: all that apply. `allow`: checks whose failure is a known
    limit. Raises `ConfigError` for a model that cannot be checked.
    """
    allowed = {choose("check", name, CHECKS) for name in allow}
    has_shift = bool(shifted.taps_of(require_checkable(make)))
    if checks is None:
        checks = CHECKS if has_shift else black_box.CHECKS
    failed: set[str] = set()
    for name in tracked(checks, "checking"):
        check = CHECKS[choose("check", name, CHECKS)]
        outcome, detail = "pass", ""
        try:
            if not has_shift and name in shifted.CHECKS:
                raise NotApplicableError("it has no shift")
            with torch.set_grad_enabled(name == "lifecycle"):
                check.run(prepared(make))
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
        follows = ""
        if outcome in ("FAIL", "limit"):
            failed.add(name)
            follows = first_fault(name, failed)
        yield Result(name, check.requirement, outcome, detail, follows)


def first_fault(check: str, failed: Collection[str]) -> str:
    """Return the first of the failed checks on which a failed check builds; "" if there is none."""
    for earlier in CHECKS[check].after:
        if earlier in failed:
            return first_fault(earlier, failed) or earlier
    return ""


def run(
    make: MakeModel,
    checks: Iterable[str] | None = None,
    allow: Iterable[str] = (),
) -> list[Result]:
    """Return the outcomes of `each`."""
    return list(each(make, checks, allow))


def line(result: Result) -> str:
    """Return a result as a line of text."""
    name, requirement, outcome, detail, follows = result
    reason = f"; may follow from {follows}" if follows else ""
    return f"{outcome:<7}  {name:<15}  {requirement}{': ' if detail else ''}{detail}{reason}"


def verdict(results: Iterable[Result]) -> str:
    """Return a line for each failed check that follows from no other: its usual cause, and which
    others may follow from it. Empty if none failed.
    """
    failed = [result for result in results if result.outcome == "FAIL"]
    names = {result.check for result in failed}
    lines = []
    for first in failed:
        if first.follows in names:
            continue
        text = f"{first.check} failed. Usual cause: {CHECKS[first.check].cause}."
        if re.match(r"[\w.]*(Error|Exit)\b", first.detail):
            text = f"{first.check} crashed."
        followers = [result.check for result in failed if result.follows == first.check]
        if followers:
            text += f" It may be why {', '.join(followers)} failed."
        lines.append(text)
    return "\n".join(lines)


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
