"""What is known of every data set's files: where they come from, under which terms, and what they should hold.

The facts live in ``catalog.yaml`` beside this module; here they get types. A name that stands in the catalog need not
be a registered data set (``coco`` and ``flickr30k`` are sources of references), and a registered one need not stand in
the catalog (a plug-in's).
"""

from __future__ import annotations

import functools
import hashlib
import importlib.resources
import json
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from capbench.core.cache import kept_table
from capbench.core.errors import DataError, UsageError, suggest

__all__ = ["Catalog", "Count", "DatasetEntry", "FileEntry", "Need", "Sha256", "Source", "catalog", "parse_catalog"]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Count(_Strict):
    """How to count what a file holds, and how much it should be.

    Attributes:
        of: what is counted, in the plural (``captions``).
        how: ``lines`` (lines that are not blank, of a text file or a ``.gz`` of one), ``rows`` (records of a delimited
            file below its header), ``json`` (entries of the list or object at the key ``at``, or of the whole),
            ``json-lists`` (entries of all lists: the object's values, or the field ``at`` of the list's entries),
            ``mat`` (elements of the first of the MATLAB variables that is there) or ``folder`` (image files in a
            folder).
        expected: the exact count; either this or ``minimum`` is given.
        minimum: the least count.
        at: key or field of ``json`` and ``json-lists``; None for the whole.
        delimiter: of ``rows``.
        variable: name or names of the MATLAB variable, for ``mat`` alone.
    """

    of: str
    how: Literal["lines", "rows", "json", "json-lists", "mat", "folder"]
    expected: int | None = None
    minimum: int | None = None
    at: str | None = None
    delimiter: str = ","
    variable: str | list[str] = ""

    @model_validator(mode="after")
    def _one_bound(self) -> Count:
        if (self.expected is None) == (self.minimum is None):
            raise ValueError("a count has either 'expected' or 'minimum'")
        if (self.how == "mat") != bool(self.variable):
            raise ValueError("'variable' belongs to how: mat")
        return self


class Sha256(_Strict):
    """A known SHA-256.

    Attributes:
        value: 64 hex digits.
        status: ``official`` if the publisher states it, ``observed`` if a copy of the file had it.
        seen_in: who states it, or where that copy was.
    """

    value: str = Field(pattern="^[0-9a-f]{64}$")
    status: Literal["official", "observed"]
    seen_in: str


class Source(_Strict):
    """Where files come from.

    Attributes:
        title: its name in prose.
        terms: the terms of use, one line.
        manual: how to get the files by hand.
        page: address of the page that tells of them, or None.
        url: address of the file or archive, only where the publisher offers it openly.
        sha256: SHA-256 of what the address gives, as the publisher states it; ``unknown`` where none is stated. Every
            address has one of the two.
        archive: ``zip`` if the address gives an archive of the files.
        dead: why the address answers no more, or None.
        form: address of a form to fill in first, or None.
        note: a remark, or None.
    """

    title: str
    terms: str
    manual: str
    page: str | None = None
    url: str | None = None
    sha256: str | None = Field(default=None, pattern="^([0-9a-f]{64}|unknown)$")
    archive: Literal["zip"] | None = None
    dead: str | None = None
    form: str | None = None
    note: str | None = None

    @model_validator(mode="after")
    def _checksum_of_the_address(self) -> Source:
        if (self.url is None) != (self.sha256 is None):
            raise ValueError("an address needs 'sha256', or 'sha256: unknown' where none is stated")
        return self

    @property
    def checksum(self) -> str | None:
        """The stated SHA-256 of what the address gives, None where none is stated."""
        return None if self.sha256 == "unknown" else self.sha256

    @property
    def downloadable(self) -> bool:
        """True if there is an open address that is not known to be dead."""
        return self.url is not None and self.dead is None


class FileEntry(_Strict):
    """One file (or folder of images) below the data folder.

    Attributes:
        what: what it holds, one line.
        source: name of the source in the catalog.
        member: end of its name in the source's archive; None where its own name identifies it.
        counts: what it should hold.
        sha256: its hash, where one is known.
        note: a remark, or None.
    """

    what: str
    source: str
    member: str | None = None
    counts: tuple[Count, ...] = ()
    sha256: Sha256 | None = None
    note: str | None = None

    @property
    def is_folder(self) -> bool:
        """True if the entry stands for a folder of images."""
        return any(count.how == "folder" for count in self.counts)


class Need(_Strict):
    """Files that a data set needs for one purpose.

    Attributes:
        role: the purpose (``references``).
        any_of: alternatives, each a list of paths below the data folder; one complete alternative is enough.
        needed: False if the data set can be read without it.
        why: what it is for, or ``""``.
    """

    role: str
    any_of: tuple[tuple[str, ...], ...] = Field(min_length=1)
    needed: bool = True
    why: str = ""

    def met(self, folder: Path) -> tuple[str, ...] | None:
        """The first alternative all of whose files are below the data folder, or None."""
        for files in self.any_of:
            if all((folder / file).exists() for file in files):
                return files
        return None


class DatasetEntry(_Strict):
    """What is known of one data set.

    Attributes:
        title: its name in prose.
        citation: who published it, one line.
        what: what it holds, one line.
        needs: the files that it needs.
    """

    title: str
    citation: str
    what: str
    needs: tuple[Need, ...] = Field(min_length=1)

    @property
    def files(self) -> tuple[str, ...]:
        """All files of all needs and alternatives, in order, each once."""
        return tuple(dict.fromkeys(f for need in self.needs for files in need.any_of for f in files))


class Catalog(_Strict):
    """All sources, data sets and files.

    Attributes:
        schema_version: version of the catalog's form.
        sources: sources by name.
        datasets: data sets by name.
        files: files by path below the data folder.
    """

    schema_version: Literal[1] = Field(alias="schema")
    sources: dict[str, Source]
    datasets: dict[str, DatasetEntry]
    files: dict[str, FileEntry]

    @model_validator(mode="after")
    def _refer_to_what_is_there(self) -> Catalog:
        for path, entry in self.files.items():
            if entry.source not in self.sources:
                raise ValueError(f"file {path}: unknown source '{entry.source}'")
            if Path(path).is_absolute() or ".." in Path(path).parts:
                raise ValueError(f"file {path}: must be a path below the data folder")
        for name, dataset in self.datasets.items():
            for file in dataset.files:
                if file not in self.files:
                    raise ValueError(f"data set {name}: unknown file '{file}'")
        return self

    def dataset(self, name: str) -> DatasetEntry:
        """The entry of a data set.

        Raises:
            UsageError: there is none of that name; the choices are printed.
        """
        if name not in self.datasets:
            raise UsageError(
                f"unknown data set '{name}'", code="unknown-name", value=name, hint=suggest(name, list(self.datasets))
            )
        return self.datasets[name]

    def of_source(self, source: str) -> dict[str, FileEntry]:
        """All files that come from one source, by path."""
        return {path: entry for path, entry in self.files.items() if entry.source == source}


def parse_catalog(text: str, path: str = "catalog.yaml") -> Catalog:
    """Parse and check a catalog.

    Args:
        text: the YAML text.
        path: its name, for error messages.

    Raises:
        DataError: it is not YAML, or not a catalog; the first wrong key is named.
    """
    import yaml

    from capbench.core.yaml import parse_own

    try:
        return Catalog.model_validate(parse_own(text))
    except yaml.YAMLError as error:
        raise DataError(f"is not YAML ({error})", code="wrong-format", path=path) from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(key) for key in first["loc"])
        raise DataError(
            f"{place}: {first['msg']}" if place else first["msg"], code="invalid", value=place, path=path
        ) from error


@functools.cache
def catalog() -> Catalog:
    """The catalog that comes with capbench. What its YAML holds is kept as JSON, which takes a tenth of the time."""
    text = importlib.resources.files("capbench.datasets").joinpath("catalog.yaml").read_text(encoding="utf-8")

    def build() -> dict[str, NDArray[np.uint8]]:
        from capbench.core.yaml import parse_own

        parse_catalog(text)  # a mistake is told with its place
        return {"json": np.frombuffer(json.dumps(parse_own(text)).encode(), np.uint8)}

    kept = kept_table("catalog", f"catalog-{hashlib.sha256(text.encode()).hexdigest()}", 1, build)
    return Catalog.model_validate(json.loads(kept["json"].tobytes()))
