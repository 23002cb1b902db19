"""Opens the data set that a user names: a registered one, imported judgements, a file, a class; a version, a group."""

from __future__ import annotations

import re

from capbench.datasets.base import Dataset, dataset_names, load_dataset
from capbench.datasets.groups import group_of
from capbench.datasets.root import DataRoot
from capbench.datasets.user.imported import imported_names, open_imported
from capbench.datasets.user.tables import SUFFIXES
from capbench.errors import UsageError, suggest

__all__ = ["open_dataset", "split_protocol", "with_group_of"]

_ENDINGS = "|".join(map(re.escape, SUFFIXES))
_FILE = re.compile(rf"(?P<file>.*(?:{_ENDINGS}))(?:@(?P<group>[^/]*))?(?:/(?P<rest>.*))?", re.IGNORECASE | re.DOTALL)


def split_protocol(text: str) -> tuple[str, str | None]:
    """The data set of a protocol id as it is given, with version and group, and what stands behind (None for nothing).

    >>> split_protocol("composite@8k/correctness-tau-c")
    ('composite@8k', 'correctness-tau-c')
    >>> split_protocol("my/ratings.csv@outdoor/as-given/tau-b")
    ('my/ratings.csv@outdoor', 'as-given/tau-b')
    >>> split_protocol("composite")
    ('composite', None)
    """
    text = text.strip()
    if text.lower().endswith(SUFFIXES):
        return text, None
    file = _FILE.fullmatch(text)
    if file is not None:
        rest = file["rest"]
        return text if rest is None else text[: -len(rest) - 1], rest
    name, slash, rest = text.partition("/")
    return name, rest if slash else None


def with_group_of(dataset: str, protocol: str | None) -> str:
    """A data set's name, with the version and the group that a protocol's id may name.

    >>> with_group_of("composite", "composite@8k/all-references/correctness-tau-c")
    'composite@8k'
    """
    named = split_protocol(protocol)[0] if protocol else ""
    return named if named.startswith((f"{dataset}@", f"{dataset}:")) else dataset


def open_dataset(name: str, root: DataRoot) -> Dataset:
    """The data set that a user means, ready to load.

    Args:
        name: a registered name, ``module:Class``, the name of imported judgements, or the path of a ``.jsonl``,
            ``.csv`` or ``.tsv`` file of judgements; with ``:`` and a version behind a registered name, that version;
            with ``@`` and the name of a group, that group of its items.
        root: the folder that its files are under.

    Raises:
        UsageError: it is none of these, or of no known version; the nearest name and the choices are printed.
        DataError: imported judgements or the file given do not hold what they should.
    """
    whole, group = _split_group(name)
    opened = _open(whole, root)
    if group is None:
        return opened
    return opened.beside[group](root) if group in opened.beside else group_of(opened, group)


def _split_group(name: str) -> tuple[str, str | None]:
    if name.lower().endswith(SUFFIXES):
        return name, None
    file = re.fullmatch(rf"(.*(?:{_ENDINGS}))@(.*)", name, re.IGNORECASE | re.DOTALL)
    if file is not None:
        return file[1], file[2]
    whole, at, group = name.partition("@")
    return whole, group if at else None


def _open(name: str, root: DataRoot) -> Dataset:
    registered, colon, version = name.partition(":")
    if registered in dataset_names() and not (colon and _is_class(registered, version)):
        known = load_dataset(registered)
        if colon or known.versions:
            known = known.of_version(version if colon else known.newest_version(root), root)
        return known(root)
    imported = open_imported(name, root)
    if imported is not None:
        return imported
    if ":" in name:
        return load_dataset(name)(root)
    choices = [*dataset_names(), *imported_names(root)]
    raise UsageError(f"unknown data set '{name}'", hint=suggest(name, choices))


def _is_class(registered: str, attribute: str) -> bool:
    """Whether ``name:Attribute`` means a plug-in's class, whose module has the name that the plug-in is known by."""
    known = load_dataset(registered)
    return known.__module__ == registered and attribute not in known.versions
