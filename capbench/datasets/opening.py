"""Opens the data set that a user names: a registered one, imported judgements, a file, or a class."""

from __future__ import annotations

from capbench.datasets.base import Dataset, dataset_names, load_dataset
from capbench.datasets.imported import imported_names, open_imported
from capbench.datasets.root import DataRoot
from capbench.errors import UsageError, suggest

__all__ = ["open_dataset"]


def open_dataset(name: str, root: DataRoot) -> Dataset:
    """The data set that a user means, ready to load.

    Args:
        name: a registered name, ``module:Class``, the name of imported judgements, or the path of a ``.jsonl``,
            ``.csv`` or ``.tsv`` file of judgements.
        root: the folder that its files are under.

    Raises:
        UsageError: it is none of these; the nearest name and the choices are printed.
        DataError: imported judgements or the file given do not hold what they should.
    """
    if name in dataset_names():
        return load_dataset(name)(root)
    imported = open_imported(name, root)
    if imported is not None:
        return imported
    if ":" in name:
        return load_dataset(name)(root)
    choices = [*dataset_names(), *imported_names(root)]
    raise UsageError(f"unknown data set '{name}'", hint=suggest(name, choices))
