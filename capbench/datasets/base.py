"""The contract of a data set, and how one is found by name."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from capbench.core import plugins
from capbench.core.errors import UsageError
from capbench.core.records import Judgements
from capbench.datasets.protocol import ItemSelection, Protocol, StatisticSpec, base_name, resolve
from capbench.datasets.root import DataRoot

__all__ = ["Dataset", "dataset_names", "load_dataset"]


class Dataset(abc.ABC):
    """Reads the published files of one data set under a root folder and applies its protocols.

    A subclass sets the class attributes and implements :meth:`load`. It is registered under the entry point group
    ``capbench.datasets``, or given to the command line as ``module:Class``.
    """

    name: ClassVar[str]
    """Its name on the command line and in protocol ids."""
    title: ClassVar[str]
    """Its name in tables and prose."""
    citation: ClassVar[str]
    """Who published the judgements, one line."""
    selections: ClassVar[Mapping[str, ItemSelection]]
    """Its choices of items by name."""
    statistics: ClassVar[Mapping[str, StatisticSpec]]
    """Its statistics by name."""
    default: ClassVar[tuple[str, str]]
    """Names of the selection and the statistic that the literature uses."""
    aliases: ClassVar[Mapping[str, str]] = {}
    """Other spellings of ``items/statistic``."""
    most_references: ClassVar[str] = ""
    """Name of the selection that keeps every reference, if the default one does not: for curves over their number."""
    groups: ClassVar[Sequence[str] | None] = None
    """Groups of its items and pairs, which can be asked for alone (``composite@8k``); None if only its files tell."""
    beside: ClassVar[Mapping[str, type[Dataset]]] = {}
    """Data sets of other files that are named like groups of this one (``hm-coco@where-image``), by that name; their
    items are none of this one's."""
    image_folders: ClassVar[Sequence[str]] = ()
    """Folders below the data folder that may hold its images, the preferred one first; ``()``: ``NAME/images``."""
    under_root: ClassVar[bool] = True
    """False if its files are the user's own and lie elsewhere than under the data folder."""
    version: ClassVar[str] = ""
    """Which version of its judgements this is, as it stands in ids (``nebula:1``); ``""`` if it has none."""
    versions: ClassVar[Mapping[str, str]] = {}
    """What every known version is, by name, the oldest first. A corrected file, or a reader that gives other judgements
    than before, is another version."""

    def __init__(self, root: DataRoot) -> None:
        self.root = root

    @classmethod
    def protocol(cls, text: str | None = None) -> Protocol:
        """The protocol that a user means.

        Args:
            text: ``dataset/items/statistic``, ``items/statistic``, ``items``, ``statistic``, or None for the default.

        Raises:
            ProtocolError: there is no such protocol; the choices are printed.
        """
        return resolve(cls.name, cls.selections, cls.statistics, cls.default, cls.aliases, text, cls.version)

    @classmethod
    def newest_version(cls, root: DataRoot) -> str:
        """The version that is meant where none is named: the newest of which the files are at hand."""
        return ([*cls.versions] or [cls.version])[-1]

    @classmethod
    def of_version(cls, version: str, root: DataRoot) -> type[Dataset]:
        """The class of one version. Its name has the version in it where the name alone means another one.

        Raises:
            UsageError: there is no such version; the known ones are named.
        """
        if version not in cls.versions:
            if not cls.versions:
                raise UsageError(
                    f"{cls.name} has no versions", code="unknown-name", value=version, hint=f"Name it as '{cls.name}'"
                )
            known = "; ".join(f"{cls.name}:{name} ({what})" for name, what in reversed(list(cls.versions.items())))
            raise UsageError(
                f"{cls.name} has no version '{version}'",
                code="unknown-name",
                value=version,
                hint=f"Known, the newest first: {known}",
            )
        meant = version == cls.newest_version(root)
        if version == cls.version and meant:
            return cls
        attributes: dict[str, Any] = {"__doc__": cls.__doc__, "__module__": cls.__module__, "version": version}
        if not meant:
            attributes |= {"name": f"{cls.name}:{version}", "title": f"{cls.title}, version {version}"}
        return type(cls.__name__, (cls,), attributes)

    def image_places(self) -> tuple[Path, ...]:
        """The folders in which its images are searched, the preferred one first; they need not exist."""
        return tuple(self.root.path / folder for folder in self.image_folders or (f"{base_name(self.name)}/images",))

    @abc.abstractmethod
    def load(self, selection: ItemSelection) -> tuple[Judgements, ...]:
        """Read and validate the files: one Judgements for each draw (one if nothing is drawn).

        Args:
            selection: one of :attr:`selections`.

        Raises:
            MissingFileError: a needed file is not under the root.
            DataError: a file does not hold what it should; file and row are named.
        """


def dataset_names() -> list[str]:
    """Names of all registered data sets."""
    return plugins.names("capbench.datasets")


def load_dataset(name: str) -> type[Dataset]:
    """The class of a data set.

    Args:
        name: a registered name, or ``module:Class``.

    Raises:
        UsageError: there is none, or it is not a data set; the choices are printed.
    """
    dataset_class = plugins.load("capbench.datasets", name)
    if not issubclass(dataset_class, Dataset):
        raise UsageError(
            f"'{name}' is not a data set",
            code="wrong-type",
            value=name,
            hint="It must be a subclass of capbench.datasets.base.Dataset",
        )
    return dataset_class
