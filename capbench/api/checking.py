"""Checks of the arguments of ``import capbench``; an error names the argument and the expected type."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, get_args, get_origin, get_type_hints

from typing_extensions import Unpack

from capbench.core import records
from capbench.core.arguments import Expected, declared, is_path
from capbench.core.errors import FeatureError, UsageError, suggest

if TYPE_CHECKING:
    from pydantic import ValidationError

    from capbench.api.caller import Caller

P = ParamSpec("P")
R = TypeVar("R")
_CODES = {
    "extra_forbidden": "unknown-option",
    "finite_number": "not-a-number",
    "greater_than": "out-of-range",
    "greater_than_equal": "out-of-range",
    "less_than": "out-of-range",
    "less_than_equal": "out-of-range",
    "literal_error": "unknown-name",
    "missing_argument": "missing-option",
    "string_pattern_mismatch": "wrong-format",
    "unexpected_keyword_argument": "unknown-option",
}
"""Type of a problem that pydantic finds → code of the error; other types have ``wrong-type``."""


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Check the arguments of a function by its annotations, ``**inputs: Unpack[MetricInputs]`` included.

    Types are strict: neither ``"5"`` nor True is a number. A wrong argument raises a UsageError that names it. The
    checks are built at the first call, in some 15 ms.
    """

    @functools.cache
    def check() -> Callable[..., tuple[tuple[Any, ...], dict[str, Any]]]:
        from pydantic import validate_call

        # Without the body of the function, whose errors must not be read as those of its arguments.
        def arguments(*given: Any, **named: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
            return given, named

        functools.update_wrapper(arguments, function)
        arguments.__annotations__ = {name: kind for name, kind in function.__annotations__.items() if name != "return"}
        return validate_call(config={"arbitrary_types_allowed": True, "strict": True})(arguments)

    @functools.wraps(function)
    def call(*given: P.args, **named: P.kwargs) -> R:
        from pydantic import ValidationError

        try:
            passed, by_name = check()(*given, **named)
        except ValidationError as error:
            hints = get_type_hints(check(), include_extras=True)
            values = {**dict(zip(hints, given, strict=False)), **named}
            for name in [name for name, hint in hints.items() if get_origin(hint) is Unpack]:
                hints |= get_type_hints(get_args(hints.pop(name))[0], include_extras=True)
            progress = named.get("progress")  # the command line passes itself
            raise _usage_error(error, values, hints, getattr(progress, "spelled", str)) from None
        return function(*passed, **by_name)

    return call


def _usage_error(
    error: ValidationError,
    values: Mapping[str, object],  # the arguments that were passed
    # annotations of all arguments, whose :class:`capbench.core.arguments.Expected` has words and remedy
    hints: Mapping[str, Any],
    spelled: Callable[[str], str],  # from an argument to its spelling for the user
) -> UsageError:
    """The error of the first invalid argument."""
    problems = error.errors(include_url=False, include_context=False)
    place = problems[0]["loc"][0]
    argument = [*hints][place] if isinstance(place, int) else place
    of_argument = [problem for problem in problems if problem["loc"][0] == place]
    code = next((_CODES[problem["type"]] for problem in of_argument if problem["type"] in _CODES), "wrong-type")
    name, value, expected = spelled(argument), values.get(argument), declared(hints.get(argument), Expected)
    if code == "unknown-option":
        message, value, hint = f"there is no argument '{name}'", argument, suggest(argument, list(hints))
    elif code == "missing-option":
        message, value, hint = f"{name} is required", argument, f"Pass {name}"
    elif expected is not None:
        message, hint = f"{name} is {_shown(value)}, which is not {expected.words}", expected.hint
    else:
        words = of_argument[0]["msg"].removeprefix("Input ").removeprefix("Value error, ")
        message, hint = f"{name} is {_shown(value)}; it {words}", None
    return UsageError(message, code=code, value=value, hint=hint)


def refuse_with_study(arguments: Mapping[str, object], caller: Caller) -> None:
    """Raise UsageError if an argument that defines a study is set although there is a study file."""
    if defining := [caller.spelled(name) for name, value in arguments.items() if value]:
        listed = " and ".join(defining)
        hint = f"Change the study file, or omit it and pass {listed}"
        raise UsageError(f"a study file excludes {listed}", code="conflict", value=defining[0], hint=hint)


def refuse_without(without: Sequence[str], caller: Caller) -> None:
    """Raise UsageError if metrics are left out although no study file is named."""
    if without:
        hint = f"Omit the metrics from {caller.spelled('metrics')} instead"
        raise UsageError(f"{caller.spelled('without')} requires a study file", code="missing-option", hint=hint)


def check_store(path: str) -> None:
    """Raise FeatureError if a feature store does not exist."""
    if not Path(path).exists():
        hint = "Make one with 'capbench extract-features'"
        raise FeatureError("the feature store does not exist", code="missing-file", path=path, hint=hint)


_CAPTIONS = (
    "Pass a list of captions, {image: captions}, a list of records (of a DataFrame: frame.to_dict('records')), "
    "a list of capbench.Item, or the path of a file"
)


def check_captions(name: str, value: object, other: object) -> None:
    """Check the type of an argument with captions, which must have an order, and an index that is the other's."""
    index, subject = _index(value), f"{name} is a {type(value).__name__}"
    code, hint, problem = "wrong-type", _CAPTIONS, ""
    if value is None or isinstance(value, Mapping) or is_path(value):
        return
    if isinstance(value, records.Judgements):
        value = value.items
    elif isinstance(value, str | bytes | bytearray | os.PathLike) or not isinstance(value, Iterable):
        problem = f"{name} is {_shown(value)}, which is neither a collection of captions nor the path of a file"
    elif isinstance(value, set | frozenset):
        problem = f"{subject}, which has no order"
    elif hasattr(value, "columns") or getattr(value, "ndim", 1) != 1:
        problem = f"{subject}, which is a table and not a list of captions"
    elif index is not None and index != (_index(other) or list(range(len(index)))):
        problem = f"{subject} whose index differs from that of the other captions, so they would be paired by position"
        hint = f"Pass {name}.tolist() to pair by position, or {name}.to_dict() if the index names images"
        code = "mismatch"
    for place, item in enumerate(value if isinstance(value, list | tuple) else (), 1):
        if isinstance(item, records.Item):
            texts = item.image, item.candidate, item.candidate_id, item.group, item.system
            if isinstance(item.references, tuple) and all(isinstance(text, str) for text in (*texts, *item.references)):
                continue
            problem = f"{name}: entry {place} is {_shown(item)}, whose fields are not all strings"
            hint = "Item(image, candidate, references) takes two strings and a tuple of strings"
            break
    if problem:
        raise UsageError(problem, code=code, hint=hint)


def _index(value: object) -> list[Any] | None:
    """The index of a pandas Series; None for anything else."""
    index = getattr(value, "index", None)
    return None if index is None or callable(index) or not hasattr(index, "tolist") else list(index.tolist())


def _shown(value: object) -> str:
    try:
        return repr(value).replace("\n", " ")[:60]
    except Exception:  # repr failed: show the type instead
        return f"a {type(value).__name__}"
