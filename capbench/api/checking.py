"""Checks of the arguments of ``import capbench``: a wrong type is one line that names the argument."""

from __future__ import annotations

import numbers
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from capbench.core import records
from capbench.core.errors import UsageError
from capbench.datasets.base import Dataset

if TYPE_CHECKING:
    from capbench.api.caller import Caller

__all__ = ["check_arguments", "check_captions", "check_name", "refuse_with_study", "refuse_without"]

_CAPTIONS = (
    "Give a list of captions, {image: captions}, a list of records (a DataFrame's are frame.to_dict('records')), "
    "a list of capbench.Item, or the path of a file"
)


def check_arguments(arguments: Mapping[str, Any], *, required: Sequence[str] = (), several: Sequence[str] = ()) -> None:
    """Check the arguments of one of the functions, by their names. Captions are checked by :func:`check_captions`.

    Args:
        arguments: the arguments.
        required: those that may not be None.
        several: data sets and protocols of which there may be a list.

    Raises:
        UsageError: one is of a type that it cannot be, or a number is out of range.
    """
    for name, value in arguments.items():
        if name in _KINDS:
            fits, what, hint = _KINDS[name]
            alone = name in several or not isinstance(value, list | tuple) or name not in ("dataset", "protocol")
            if not fits(value) or not alone or (value is None and name in required):
                what = what.format(most=_most_resamples())
                raise UsageError(f"{name} is {_shown(value)}, which is not {what}", hint=hint)


def check_name(name: str, value: object) -> None:
    """Raise UsageError if an argument is not a text."""
    if not isinstance(value, str):
        raise UsageError(f"{name} is {_shown(value)}, which is not a text", hint="Give a name")


def refuse_with_study(arguments: Mapping[str, object], caller: Caller) -> None:
    """Raise UsageError if an argument that defines a study is not empty although there is a study file."""
    if given := [caller.spelled(name) for name, value in arguments.items() if value]:
        raise UsageError(
            f"a study file and {' and '.join(given)} were given together",
            code="conflict",
            value=given[0],
            hint=f"Change the study file, or leave it out and give {' and '.join(given)} alone",
        )


def refuse_without(without: Sequence[str], caller: Caller) -> None:
    """Raise UsageError if metrics are left out although no study file names any."""
    if without:
        raise UsageError(
            f"{caller.spelled('without')} leaves out metrics of a study file",
            code="missing-option",
            hint=f"Leave them out of {caller.spelled('metrics')} instead",
        )


def check_captions(name: str, value: object, other: object) -> None:
    """Check what captions are given in: something with an order, whose entries are captions.

    Args:
        name: the argument, ``candidates`` or ``references``.
        value: what is given.
        other: the other argument.

    Raises:
        UsageError: a set, a table, a Series whose index is not that of the other argument, or no captions at all.
    """
    if isinstance(value, records.Judgements):
        check_items(name, value.items)
        return
    if value is None or isinstance(value, str | os.PathLike | Mapping):
        if isinstance(value, str | os.PathLike) and not _is_path(value):
            raise UsageError(f"{name} is {_shown(value)}, which is not the path of a file", hint=_CAPTIONS)
        return
    what = f"{name} is a {type(value).__name__}"
    if isinstance(value, bytes | bytearray) or not isinstance(value, Iterable):
        raise UsageError(f"{name} is {_shown(value)}, which holds no captions", hint=_CAPTIONS)
    if isinstance(value, set | frozenset):
        raise UsageError(f"{what}, which has no order", hint=_CAPTIONS)
    if hasattr(value, "columns") or getattr(value, "ndim", 1) != 1:
        raise UsageError(f"{what}, which is a table and not a list of captions", hint=_CAPTIONS)
    if _index(value) is not None and _index(value) != (_index(other) or list(range(len(_index(value) or ())))):
        raise UsageError(
            f"{what} whose index is not that of the other captions: they would be paired by position",
            hint=f"Give {name}.tolist() to pair by position, or {name}.to_dict() if the index names images",
        )
    if isinstance(value, list | tuple):
        check_items(name, value)


def check_items(name: str, items: Sequence[object]) -> None:
    """Raise UsageError if a :class:`capbench.Item` among some entries holds something else than texts."""
    for place, item in enumerate(items, 1):
        if isinstance(item, records.Item):
            texts = (item.image, item.candidate, item.candidate_id, item.group, item.system)
            if not all(isinstance(text, str) for text in texts) or not _are_texts(item.references):
                raise UsageError(
                    f"{name}: entry {place} is {_shown(item)}, whose fields are not all texts",
                    hint="Item(image, candidate, references) takes two texts and a tuple of texts",
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
    except Exception:  # an object whose repr is broken is still told by its type
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
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _most_resamples()


def _most_resamples() -> int:
    from capbench.stats.resampling import MOST_RESAMPLES

    return MOST_RESAMPLES


def _is_seed(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_text(value: object) -> bool:
    return isinstance(value, str)


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
    "Give a path, or {'tiger': 'file'}",
)
_FOLDER = (_optional(_is_path), "a path", "Give the path of a folder, or leave it out")
_NAME = (_optional(_is_text), "a text", "Give a name, or leave it out")
_FLAG = (_is_flag, "True or False", "Give True or False")
_COUNT = "a whole number from 1 to {most:,}"
_KINDS: dict[str, tuple[Callable[[object], bool], str, str]] = {
    "dataset": (
        _optional(_one_or_several(_is_dataset)),
        "a data set",
        "Give a name such as 'flickr8k-expert', the path of a file of judgements, or a subclass of capbench.Dataset",
    ),
    "metrics": (
        _is_metrics,
        "a metric or a list of them",
        "Give metrics=['cider', my_function], or {'my-name': my_function}",
    ),
    "protocol": (_optional(_one_or_several(_is_text)), "a protocol's id or a part of it", "Example: 'tau-b'"),
    "scores": (
        _either(_one_or_several(_is_path), _by_name(_is_path)),
        "a path, a list of paths, or paths by name",
        "Give scores=['file.csv'], or {'name': 'file.csv'}",
    ),
    "without": (
        _either(_one_or_several(_is_text), _is_set_of_texts),
        "a name or a list of names",
        "Give without=['spice']",
    ),
    "options": (
        _optional(_by_name(lambda value: True)),
        "a dictionary of options",
        "Give options={'cider': {'df': 'coco-val'}} or {'cider.df': 'coco-val'}",
    ),
    "features": _FILES,
    "model": _FILES,
    "study": (_optional(_is_path), "a study file", "Give the path of a YAML file, or the name of a shipped study"),
    "images": _FOLDER,
    "data": _FOLDER,
    "draw": (_is_place, "a whole number", "Draws are counted from 1"),
    "bootstrap": (_optional(_is_count), _COUNT, "Example: bootstrap=1000"),
    "permutations": (_optional(_is_count), _COUNT, "Example: permutations=1000"),
    "resamples": (_is_count, _COUNT, "Example: resamples=1000"),
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
    "cache": _FLAG,
    "progress": (
        _either(_is_flag, callable),
        "True, False or a function",
        "Give True to show progress, or a function that shows it",
    ),
}
