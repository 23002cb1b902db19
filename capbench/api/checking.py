"""Checks of the arguments of ``import capbench``; an error names the argument and the expected type."""

from __future__ import annotations

import functools
import numbers
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar, get_args, get_origin, get_type_hints

import numpy as np
from typing_extensions import Unpack

from capbench.core import records
from capbench.core.arguments import Expected, declared
from capbench.core.errors import FeatureError, ModelError, UsageError, suggest
from capbench.datasets.base import Dataset

if TYPE_CHECKING:
    from pydantic import ValidationError

    from capbench.api.caller import Caller
    from capbench.metrics.metric_request import MetricRequest
    from capbench.metrics.needs import Resources

__all__ = [
    "check_arguments",
    "check_captions",
    "check_name",
    "check_store",
    "checked",
    "checked_columns",
    "refuse_absent",
    "refuse_with_study",
    "refuse_without",
    "usage_error",
]

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

_CAPTIONS = (
    "Pass a list of captions, {image: captions}, a list of records (of a DataFrame: frame.to_dict('records')), "
    "a list of capbench.Item, or the path of a file"
)


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
            raise usage_error(error, values, hints) from None
        return function(*passed, **by_name)

    return call


def usage_error(
    error: ValidationError,
    values: Mapping[str, object],
    hints: Mapping[str, Any],
    spelled: Callable[[str], str] = str,
) -> UsageError:
    """The error of the first invalid argument.

    Args:
        values: the arguments that were passed.
        hints: annotations of all arguments, whose :class:`capbench.core.arguments.Expected` has words and remedy.
        spelled: function from an argument to its spelling for the user.
    """
    problems = error.errors(include_url=False, include_context=False)
    place = problems[0]["loc"][0]
    argument = [*hints][place] if isinstance(place, int) else place
    of_argument = [problem for problem in problems if problem["loc"][0] == place]
    code = next((_CODES[problem["type"]] for problem in of_argument if problem["type"] in _CODES), "wrong-type")
    name, value, expected = spelled(argument), values.get(argument), declared(hints.get(argument), Expected)
    if code == "unknown-option":
        message, value, hint = f"there is no argument '{name}'", argument, suggest(argument, list(hints))
    elif code == "missing-option":
        message, hint = f"{name} is required", f"Pass {name}"
    elif expected is not None:
        message, hint = f"{name} is {_shown(value)}, which is not {expected.words}", expected.hint
    else:
        words = of_argument[0]["msg"].removeprefix("Input ").removeprefix("Value error, ")
        message, hint = f"{name} is {_shown(value)}; it {words}", None
    return UsageError(message, code=code, value=value, hint=hint)


def check_arguments(arguments: Mapping[str, Any], *, required: Sequence[str] = (), several: Sequence[str] = ()) -> None:
    """Check the arguments of a function by their names. :func:`check_captions` checks captions."""
    for name, value in arguments.items():
        if name in _KINDS:
            fits, expected, hint = _KINDS[name]
            alone = name in several or not isinstance(value, list | tuple) or name not in ("dataset", "protocol")
            if not fits(value) or not alone or (value is None and name in required):
                expected = expected.format(most=_max_resamples())
                message = f"{name} is {_shown(value)}, which is not {expected}"
                is_number = _is_place(value) and expected.startswith("a whole number from")
                raise UsageError(message, code="out-of-range" if is_number else "wrong-type", value=value, hint=hint)


def check_name(name: str, value: object) -> None:
    """Raise UsageError if an argument is not a string."""
    if not isinstance(value, str):
        message = f"{name} is {_shown(value)}, which is not a string"
        raise UsageError(message, code="wrong-type", value=value, hint="Pass a name")


def refuse_with_study(arguments: Mapping[str, object], caller: Caller) -> None:
    """Raise UsageError if an argument that defines a study is set although there is a study file."""
    if defining := [caller.spelled(name) for name, value in arguments.items() if value]:
        raise UsageError(
            f"a study file excludes {' and '.join(defining)}",
            code="conflict",
            value=defining[0],
            hint=f"Change the study file, or omit it and pass {' and '.join(defining)}",
        )


def refuse_without(without: Sequence[str], caller: Caller) -> None:
    """Raise UsageError if metrics are left out although no study file is named."""
    if without:
        raise UsageError(
            f"{caller.spelled('without')} requires a study file",
            code="missing-option",
            hint=f"Omit the metrics from {caller.spelled('metrics')} instead",
        )


def checked_columns(columns: Mapping[str, str] | None, caller: Caller) -> Mapping[str, str]:
    """The columns of a user's file by field. Raises UsageError if a field is unknown or a column has two meanings."""
    if not columns:
        return {}
    from capbench.datasets.user.judgement_files import check_columns

    check_columns(caller.spelled("columns"), columns)
    return columns


def refuse_absent(requests: Sequence[MetricRequest], resources: Resources) -> None:
    """Raise an error if a store, or a model that no metric loads, does not exist. Metrics check their own weights."""
    for store in filter(None, (resources.features, *resources.features_of.values())):
        check_store(store)
    from capbench.metrics.needs import GivenModel

    taking = [request for request in requests if request.needs(GivenModel)]
    taken = {name for request in taking for name in (request.label, request.metric.name)}
    left = [path for name, path in resources.models.items() if name not in taken]
    left += [resources.model] if resources.model is not None and not taking else []
    for path in left:
        if Path(path).expanduser().exists():
            continue
        from capbench.weights.registry import is_known

        if not is_known(path):
            raise ModelError(
                "the model does not exist, and none of these metrics uses it",
                code="missing-file",
                path=path,
                hint="Correct the path, or omit the model",
            )


def check_store(path: str) -> None:
    """Raise FeatureError if a feature store does not exist."""
    if not Path(path).exists():
        hint = "Make one with 'capbench extract-features'"
        raise FeatureError("the feature store does not exist", code="missing-file", path=path, hint=hint)


def check_captions(name: str, value: object, other: object) -> None:
    """Check the type of an argument with captions, which must have an order."""

    def refuse(problem: str, code: str = "wrong-type", hint: str = _CAPTIONS) -> NoReturn:
        raise UsageError(problem, code=code, hint=hint)

    if isinstance(value, records.Judgements):
        check_items(name, value.items)
        return
    if value is None or isinstance(value, str | os.PathLike | Mapping):
        if isinstance(value, str | os.PathLike) and not _is_path(value):
            refuse(f"{name} is {_shown(value)}, which is not the path of a file")
        return
    subject = f"{name} is a {type(value).__name__}"
    if isinstance(value, bytes | bytearray) or not isinstance(value, Iterable):
        refuse(f"{name} is {_shown(value)}, which is not a collection of captions")
    if isinstance(value, set | frozenset):
        refuse(f"{subject}, which has no order")
    if hasattr(value, "columns") or getattr(value, "ndim", 1) != 1:
        refuse(f"{subject}, which is a table and not a list of captions")
    if _index(value) is not None and _index(value) != (_index(other) or list(range(len(_index(value) or ())))):
        refuse(
            f"{subject} whose index differs from that of the other captions, so they would be paired by position",
            "mismatch",
            f"Pass {name}.tolist() to pair by position, or {name}.to_dict() if the index names images",
        )
    if isinstance(value, list | tuple):
        check_items(name, value)


def check_items(name: str, items: Sequence[object]) -> None:
    """Raise UsageError if a field of a :class:`capbench.Item` among the entries is not a string."""
    for place, item in enumerate(items, 1):
        if isinstance(item, records.Item):
            texts = (item.image, item.candidate, item.candidate_id, item.group, item.system)
            if not all(isinstance(text, str) for text in texts) or not _are_texts(item.references):
                raise UsageError(
                    f"{name}: entry {place} is {_shown(item)}, whose fields are not all strings",
                    code="wrong-type",
                    value=item,
                    hint="Item(image, candidate, references) takes two strings and a tuple of strings",
                )


def _are_texts(value: object) -> bool:
    return isinstance(value, tuple) and all(isinstance(text, str) for text in value)


def _index(value: object) -> list[Any] | None:
    """The index of a pandas Series; None for anything else."""
    index = getattr(value, "index", None)
    return None if index is None or callable(index) or not hasattr(index, "tolist") else list(index.tolist())


def _shown(value: object) -> str:
    try:
        return repr(value).replace("\n", " ")[:60]
    except Exception:  # repr failed: show the type instead
        return f"a {type(value).__name__}"


def _is_path(value: object) -> bool:
    if not isinstance(value, str | os.PathLike):
        return False
    text = os.fspath(value)
    return isinstance(text, str) and text != "" and "\0" not in text


def _is_dataset(value: object) -> bool:
    return issubclass(value, Dataset) if isinstance(value, type) else _is_path(value)


def _is_place(value: object) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _max_resamples()


def _max_resamples() -> int:
    from capbench.stats.resampling import MOST_RESAMPLES

    return MOST_RESAMPLES


def _is_seed(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_version(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[\w.+-]{1,40}", value) is not None


def _is_flag(value: object) -> bool:
    return isinstance(value, bool | np.bool_)


def _is_number(value: object) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _optional(fits: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: value is None or fits(value)


def _one_or_several(fits: Callable[[object], bool]) -> Callable[[object], bool]:
    def all_fit(value: object) -> bool:
        return fits(value) or (isinstance(value, list | tuple) and all(map(fits, value)))

    return all_fit


def _by_name(fits: Callable[[object], bool]) -> Callable[[object], bool]:
    def all_fit(value: object) -> bool:
        return isinstance(value, Mapping) and all(isinstance(key, str) and fits(entry) for key, entry in value.items())

    return all_fit


def _is_set_of_texts(value: object) -> bool:
    return isinstance(value, set | frozenset) and all(map(_is_text, value))


def _either(*kinds: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: any(fits(value) for fits in kinds)


def _is_metrics(value: object) -> bool:
    if isinstance(value, set | frozenset | bytes):
        return False
    return callable(value) or isinstance(value, str | Iterable)


_FILES = (
    _optional(_either(_is_path, _by_name(_is_path))),
    "a path, or paths by metric",
    "Pass a path, or {'tiger': 'file'}",
)
_FOLDER = (_optional(_is_path), "a path", "Pass the path of a folder, or omit it")
_NAME = (_optional(_is_text), "a string", "Pass a name, or omit it")
_FLAG = (_is_flag, "True or False", "Pass True or False")
_COUNT = "a whole number from 1 to {most:,}"
_KINDS: dict[str, tuple[Callable[[object], bool], str, str]] = {
    "dataset": (
        _optional(_one_or_several(_is_dataset)),
        "a data set",
        "Pass a name such as 'flickr8k-expert', the path of a file of judgements, or a subclass of capbench.Dataset",
    ),
    "metrics": (
        _is_metrics,
        "a metric or a list of them",
        "Pass metrics=['cider', my_function], or {'my-name': my_function}",
    ),
    "protocol": (_optional(_one_or_several(_is_text)), "a protocol's id or a part of it", "Example: 'tau-b'"),
    "scores": (
        _either(_one_or_several(_is_path), _by_name(_is_path)),
        "a path, a list of paths, or paths by name",
        "Pass scores=['file.csv'], or {'name': 'file.csv'}",
    ),
    "without": (
        _either(_one_or_several(_is_text), _is_set_of_texts),
        "a name or a list of names",
        "Pass without=['spice']",
    ),
    "options": (
        _optional(_by_name(lambda value: True)),
        "a dictionary of options",
        "Pass options={'cider': {'df': 'coco-val'}} or {'cider.df': 'coco-val'}",
    ),
    "version": (
        _optional(_either(_is_version, _by_name(_is_version))),
        "a version",
        "Use up to 40 letters, digits, '.', '-', '_' and '+', such as version='2', or versions by name",
    ),
    "columns": (
        _optional(_by_name(_is_text)),
        "a dictionary of columns by field",
        "Pass columns={'image': 'file', 'candidate': 'text'}",
    ),
    "features": _FILES,
    "model": _FILES,
    "tasks": (_is_path, "a task file", "Pass the path of a YAML file, or the name of shipped tasks"),
    "discretise": (_optional(_is_count), _COUNT, "Example: discretise=5"),
    "study": (_optional(_is_path), "a study file", "Pass the path of a YAML file, or the name of a shipped study"),
    "images": _FOLDER,
    "data": _FOLDER,
    "draw": (_is_place, "a whole number", "Draws are counted from 1"),
    "bootstrap": (_optional(_is_count), _COUNT, "Example: bootstrap=1000"),
    "permutations": (_optional(_is_count), _COUNT, "Example: permutations=1000"),
    "resamples": (_optional(_is_count), _COUNT, "Example: resamples=1000"),
    "seed": (_optional(_is_seed), "a whole number from 0", "Example: seed=0"),
    "alpha": (_optional(_is_number), "a number", "Example: alpha=0.05"),
    "power": (_is_number, "a number", "Example: power=0.8"),
    "gap": (_optional(_is_number), "a number", "Example: gap=0.02"),
    "draws": (_optional(_is_count), _COUNT, "Example: draws=5"),
    "interval": _NAME,
    "compare": _NAME,
    "correction": _NAME,
    "test": _NAME,
    "unit": _NAME,
    "allow_missing": _FLAG,
    "sentinels": _FLAG,
    "cache": _FLAG,
    "keep_first": _FLAG,
    "restrict": _FLAG,
    "categories": _FLAG,
    "split": _NAME,
    "progress": (
        _either(_is_flag, callable),
        "True, False or a function",
        "Pass True to show progress, or a function that shows it",
    ),
}
