"""Base class of data sets, and lookup by name."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from capbench.core import plugins
from capbench.core.errors import UsageError
from capbench.core.records import Judgements
from capbench.datasets.catalog import CaptionTerms, catalog
from capbench.datasets.protocol import ItemSelection, Protocol, StatisticSpec, base_name, resolve
from capbench.datasets.root import DataRoot

AS_PUBLISHED = "1", {"1": "as published"}  # version and versions of a data set with one version


class Dataset(abc.ABC):
    """Reads the published files of one data set below a root folder and applies its protocols.

    A subclass sets the class attributes and implements :meth:`load`. It is registered in the entry point group
    ``capbench.datasets``, or passed to the command line as ``module:Class``.
    """

    name: ClassVar[str]  # name on the command line and in protocol ids
    title: ClassVar[str]  # title for tables and prose
    citation: ClassVar[str] = ""  # the publication of the judgements, one line; ``""`` if the catalog has it
    licence: ClassVar[str] = "unknown"  # terms of all captions, unless the catalog has them
    derived: ClassVar[bool] = False
    """True if a licence is stated for all captions and permits publishing data derived from them, such as parses."""
    in_default: ClassVar[bool] = False
    """True for a data set of studies that name none. Those with far more items must be named."""
    selections: ClassVar[Mapping[str, ItemSelection]]  # item selections by name
    statistics: ClassVar[Mapping[str, StatisticSpec]]  # statistics by name
    default: ClassVar[tuple[str, str]]  # names of the selection and the statistic that are usual in the literature
    most_references: ClassVar[str] = ""
    """Name of the selection with all references, if the default one omits some: for curves over their number."""
    with_references: ClassVar[str] = ""
    """Name of a selection whose items have references, if those of the default one have none."""
    groups: ClassVar[Sequence[str] | None] = None
    """Groups of items and pairs that can be selected (``composite@8k``); None if they are known only from the files."""
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Data sets with other files and items that are named like groups of this one (``hm-coco@where-image``): the
    attributes that differ, by group name."""
    other_practice: ClassVar[tuple[str, str] | None] = None
    """Another common protocol (``items/statistic``), and the papers that use it."""
    image_folders: ClassVar[Sequence[str]] = ()
    """Folders below the data folder that may contain the images, the preferred one first; ``()``: ``NAME/images``."""
    file_columns: Mapping[str, str] = {}
    """For a user's file: the field that each column was read as, ``""`` for columns that are not read."""
    judges_images: ClassVar[bool] = True
    """False if captions are rated against other captions, without an image: metrics that require images do not apply,
    and an item's image is only the unit of intervals and tests."""
    generated: ClassVar[bool] = False
    """True if capbench makes the judgements from captions, so that no human judged its images."""
    under_root: ClassVar[bool] = True  # False if the files belong to the user and are outside the data folder
    version: ClassVar[str] = ""  # version of the judgements, as in ids (``nebula:1``); ``""`` if there are no versions
    versions: ClassVar[Mapping[str, str]] = {}
    """Version → description, the oldest first. A corrected file, or a reader that returns other judgements than before,
    is a new version."""

    def __init__(self, root: DataRoot) -> None:
        self.root = root

    @classmethod
    def protocol(cls, text: str | None = None) -> Protocol:
        """Look up ``dataset/items/statistic``, ``items/statistic``, ``items``, ``statistic``, or the default."""
        return resolve(cls.name, cls.selections, cls.statistics, cls.default, text, cls.version)

    @classmethod
    def newest_version(cls, root: DataRoot) -> str:
        """The default version: the newest whose files exist."""
        return ([*cls.versions] or [cls.version])[-1]

    @classmethod
    def of_version(cls, version: str, root: DataRoot) -> type[Dataset]:
        """The class of one version. Its name includes the version unless it is the default one."""
        if version not in cls.versions:
            known = "; ".join(f"{cls.name}:{name} ({what})" for name, what in reversed(list(cls.versions.items())))
            hint = f"Known, the newest first: {known}" if known else f"It has none: use '{cls.name}'"
            problem = f"{cls.name} has no version '{version}'"
            raise UsageError(problem, code="unknown-name", value=version, hint=hint)
        is_default = version == cls.newest_version(root)
        if version == cls.version and is_default:
            return cls
        attributes: dict[str, Any] = {"__doc__": cls.__doc__, "__module__": cls.__module__, "version": version}
        if not is_default:
            attributes |= {"name": f"{cls.name}:{version}", "title": f"{cls.title}, version {version}"}
        return type(cls.__name__, (cls,), attributes)

    def image_places(self) -> tuple[Path, ...]:
        """Folders to search for images, the preferred one first; they need not exist."""
        return tuple(self.root.path / folder for folder in self.image_folders or (f"{base_name(self.name)}/images",))

    @abc.abstractmethod
    def load(self, selection: ItemSelection) -> tuple[Judgements, ...]:
        """Read and validate the files: one Judgements per draw (one if nothing is sampled)."""


def dataset_names() -> list[str]:
    """Names of all registered data sets."""
    return plugins.names("capbench.datasets")


def load_dataset(name: str) -> type[Dataset]:
    """The class of a data set."""
    dataset_class = plugins.load("capbench.datasets", name)
    if not issubclass(dataset_class, Dataset):
        hint = "It must be a subclass of capbench.datasets.base.Dataset"
        raise UsageError(f"'{name}' is not a data set", code="wrong-type", value=name, hint=hint)
    return dataset_class


def caption_terms(name: str) -> CaptionTerms:
    """Terms of the captions of a data set, one of its groups, or a corpus; ``unknown`` for imported judgements."""
    base, group = base_name(name), name.partition("@")[2]
    known = catalog().captions
    if found := known.get(f"{base}@{group}", known.get(base)):
        return found
    dataset = load_dataset(base) if base in dataset_names() else Dataset
    return CaptionTerms(licence=dataset.licence, derived=dataset.derived)
