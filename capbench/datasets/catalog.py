"""The catalog of data sets: sources, terms of use and expected content of their files.

The data is in ``catalog.yaml`` next to this module, which defines its schema. An entry need not be a registered data
set (``coco`` and ``flickr30k`` are sources of references), and a registered data set need not have an entry (a
plug-in's).
"""

from __future__ import annotations

import functools
import importlib.resources
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from pydantic import Field

from capbench.core.errors import check_choice
from capbench.core.typed_json import Strict, validated


class Count(Strict):
    """The expected number of entries in a file (exact or a minimum), and the method of counting them.

    ``how`` is ``lines`` (non-blank lines of a text file, plain or ``.gz``), ``rows`` (records of a delimited file
    without its header), ``json`` (entries of the list or object at the key ``at``, or of the whole file),
    ``json-lists`` (entries of all lists: the object's values, or the field ``at`` of the list's entries), ``mat``
    (elements of the first existing MATLAB ``variable``) or ``folder`` (image files in a folder). ``of`` names the
    entries in the plural.
    """

    of: str
    how: Literal["lines", "rows", "json", "json-lists", "mat", "folder"]
    expected: int | None = None
    minimum: int | None = None
    at: str | None = None
    variable: str | list[str] = ""


class Sha256(Strict):
    """A known SHA-256: ``official`` if stated by the publisher, ``observed`` if computed from a copy; and where."""

    value: str = Field(pattern="^[0-9a-f]{64}$")
    status: Literal["official", "observed"]
    seen_in: str


class Source(Strict):
    """The source of one or more files."""

    title: str  # name in prose
    terms: str  # terms of use, one line
    manual: str  # instructions for getting the files manually
    page: str | None = None  # address of a page that describes the files, or None
    url: str | None = None  # address of the file or archive, only if the publisher offers it openly
    archive: Literal["zip"] | None = None  # ``zip`` if the file at the address is an archive of the files
    dead: str | None = None  # the reason why the address no longer works, or None
    form: str | None = None  # address of a form to fill in first, or None
    note: str | None = None  # a remark, or None
    licence: str = ""  # short name of the licence for tables (``CC BY 4.0``), ``""`` if only the terms are known
    open: bool = False  # True if the licence is open and every file has an address: part of ``data download --open``

    @property
    def downloadable(self) -> bool:
        """True if there is an open address that is not marked dead."""
        return self.url is not None and self.dead is None


class FileEntry(Strict):
    """One file (or folder of images) below the data folder.

    ``member`` is the end of its name in the source's archive, if the file name does not identify it, ``url`` its own
    address, for sources without one.
    """

    what: str
    source: str
    member: str | None = None
    url: str | None = None
    size: int | None = None
    counts: tuple[Count, ...] = ()
    sha256: Sha256 | None = None
    note: str | None = None

    @property
    def is_folder(self) -> bool:
        """True for a folder of images."""
        return any(count.how == "folder" for count in self.counts)


class Need(Strict):
    """Files that a data set requires for one purpose (``references``): alternatives, of which one must be complete.

    The data set can be read without files that are not ``needed``; ``why`` says what they are for.
    """

    role: str
    any_of: tuple[tuple[str, ...], ...] = Field(min_length=1)
    needed: bool = True
    why: str = ""

    def met(self, locate: Callable[[str], Path]) -> tuple[str, ...] | None:
        """The first complete alternative, or None; ``locate`` finds files in the data folder."""
        return next((files for files in self.any_of if all(locate(file).exists() for file in files)), None)


class CaptionTerms(Strict):
    """Terms of captions; ``derived``: the licence permits publishing derived data, such as parses."""

    licence: str
    derived: bool


class DatasetEntry(Strict):
    """One data set; ``judgements`` is the number and kind of the published judgements, for tables."""

    title: str
    citation: str
    what: str
    judgements: str = ""
    needs: tuple[Need, ...] = ()

    @property
    def files(self) -> tuple[str, ...]:
        """All files of all needs and alternatives, in order, without repetition."""
        return tuple(dict.fromkeys(f for need in self.needs for files in need.any_of for f in files))


class Catalog(Strict):
    """All sources, data sets and files, and the terms of the captions of a data set or corpus."""

    schema_version: Literal[1] = Field(alias="schema")
    sources: dict[str, Source]
    datasets: dict[str, DatasetEntry]
    captions: dict[str, CaptionTerms] = Field(default_factory=dict)
    files: dict[str, FileEntry]

    def dataset(self, name: str) -> DatasetEntry:
        """The entry of a data set."""
        check_choice("data set", name, self.datasets)
        return self.datasets[name]

    def address(self, path: str) -> str | None:
        """The open address of one file, or of the archive with it; None if there is none that works."""
        entry = self.files[path]
        source = self.sources[entry.source]
        return entry.url or (source.url if source.downloadable else None)

    def licence(self, dataset: str) -> str:
        """Short name of the licence of a data set's judgements or captions, for tables."""
        first = self.dataset(dataset).needs[0].any_of[0][0]
        return self.sources[self.files[first].source].licence or "see its terms"

    def is_open(self, dataset: str) -> bool:
        """True if every required file of a data set can come from an open source (:attr:`Source.open`)."""
        return all(
            any(all(self.sources[self.files[file].source].open for file in files) for files in need.any_of)
            for need in self.dataset(dataset).needs
            if need.needed
        )

    def of_source(self, source: str) -> dict[str, FileEntry]:
        """All files from one source, by path."""
        return {path: entry for path, entry in self.files.items() if entry.source == source}


@functools.cache
def catalog() -> Catalog:
    """The catalog of this package."""
    from capbench.core.yaml import parse_own

    text = importlib.resources.files("capbench.datasets").joinpath("catalog.yaml").read_text("utf-8")
    return validated(Catalog, parse_own(text), "catalog.yaml")
