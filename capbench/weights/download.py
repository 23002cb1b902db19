"""Downloads of weights from their publishers' addresses, or from a folder that somebody hosts.

A hosted folder contains the files and ``index.json``, as ``make weights`` writes it: name → file, SHA-256 and further
facts. Its address is passed as ``--from`` or set in ``CAPBENCH_MODELS_URL``.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from capbench.core.download import Progress, fetch
from capbench.core.errors import CapbenchError, DataError, MissingFileError, ModelError, suggest
from capbench.core.files import lock, read_json
from capbench.core.typed_json import Strict, validated
from capbench.weights.registry import ADDRESS, Entry, Status, add, entry, status

if TYPE_CHECKING:
    import torch

_FILE = r"^[\w+-][\w.+-]*(/[\w+-][\w.+-]*)*$"


class IndexedFile(Strict):
    """A file of a hosted folder; only the first two facts are required.

    Attributes:
        file: path in the folder.
        sha256: its SHA-256, 64 hex digits.
        bytes: its size.
        url: its address in a release; None for the folder's own.
        recipe: the recipe that trained it.
        seed: the seed of the training.
        training_data: names and digests of the captions and features.
        terms: licence terms.
        capbench: version that trained it.
    """

    file: str = Field(pattern=_FILE)
    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    bytes: int | None = None
    url: str | None = None
    recipe: str | None = None
    seed: int | None = None
    training_data: dict[str, str] = Field(default_factory=dict)
    terms: str | None = None
    capbench: str | None = None


class Index(Strict):
    """``index.json`` of a hosted folder.

    Attributes:
        weights: files by the registry's names.
        absent: weights that were not packed, with the reason.
    """

    schema_version: Literal[1] = Field(alias="schema")
    weights: dict[str, IndexedFile]
    absent: dict[str, str] = Field(default_factory=dict)


@dataclass(frozen=True)
class Source:
    """Address of a weight file.

    Attributes:
        url: the address.
        sha256: the expected SHA-256 or its first digits; None if unknown.
        bytes: size, if known.
        beside: addresses by name of the files that belong next to it.
    """

    url: str
    sha256: str | None
    bytes: int | None
    beside: Mapping[str, str]


def find_source(name: str, base: str | None = None) -> Source:
    """The address of an entry of the registry.

    Args:
        name: name of the entry.
        base: address of a hosted folder; None: ``CAPBENCH_MODELS_URL`` if it has the weights, else the registry's.

    Raises:
        UsageError: there is no such entry.
        ModelError: there is no address, or the hosted folder has other weights of this name.
        MissingFileError: the hosted folder has no index, or cannot be reached.
        DataError: its index is invalid.
    """
    weights = entry(name)
    hosted = base or os.environ.get(ADDRESS)
    if hosted:
        index = _read_index(hosted)
        if name in index.weights:
            return _hosted(weights, index.weights[name], hosted.rstrip("/"))
        if base or weights.url is None:
            raise ModelError(
                f"{hosted} has no weights '{name}'",
                code="unknown-name",
                value=name,
                hint=suggest(name, list(index.weights)) if index.weights else "Its index lists none",
            )
    if weights.url is None:
        raise ModelError(
            f"'{name}' has no address to download from",
            code="missing-weights",
            value=name,
            hint=f"{weights.by_hand}; or give the address of a folder that has it with --from",
        )
    folder, _, _ = weights.url.rpartition("/")
    beside = {file: f"{folder}/{file}" for file in weights.beside}
    size = None if weights.megabytes is None else weights.megabytes * 1_000_000
    return Source(weights.url, weights.expected, size, beside)


def announcement(name: str, source: Source) -> str:
    """Address, size and terms of weights, for the line before their download."""
    size = "size unknown" if source.bytes is None else f"{source.bytes / 1e6:,.1f} MB"
    return f"{name}: {source.url} ({size}); terms: {entry(name).terms}"


def _hosted(weights: Entry, file: IndexedFile, base: str) -> Source:
    expected = weights.expected
    if expected is not None and not file.sha256.startswith(expected):
        raise ModelError(
            f"{base} has other weights of the name '{weights.name}': SHA-256 {file.sha256}, expected {expected}",
            code="wrong-weights",
            value=file.sha256,
            hint="Use another source",
        )
    url = f"{base}/{file.file}"
    folder, _, _ = url.rpartition("/")
    return Source(url, file.sha256, file.bytes, {name: f"{folder}/{name}" for name in weights.beside})


def _read_index(base: str) -> Index:
    """The index of a hosted folder."""
    url = f"{base.rstrip('/')}/index.json"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "index.json"
        try:
            fetch(url, path, manual="check the address", attempts=2)
            return validated(Index, read_json(path), url, hint="It must be an index that 'make weights' writes")
        except MissingFileError as error:  # without the path of the temporary file
            raise MissingFileError(error.message, code=error.code, value=url, hint="Check the address") from error
        except DataError as error:
            raise DataError(error.message, code=error.code, value=error.value, path=url, hint=error.hint) from error


def download(
    name: str,
    source: Source,
    *,
    replace: bool = False,
    read: Callable[[Path], Mapping[str, torch.Tensor]] | None = None,
    progress: Callable[[str], AbstractContextManager[Progress | None]],
    **fetching: Any,
) -> tuple[Status, bool]:
    """Download weights, check them, and install them like :func:`capbench.weights.registry.add`.

    The file gets its name after its SHA-256, or, if that is unknown, its tensors are checked. An interrupted download
    resumes. Two runs at once download the file once.

    Args:
        name: name of the entry.
        source: its address.
        replace: replace other weights of this name.
        read: reads the tensors of a metric-specific format.
        progress: makes the progress of a file, by its name.
        fetching: further arguments of :func:`capbench.core.download.fetch`.

    Returns:
        Status of the installed weights, and True if anything was downloaded.

    Raises:
        MissingFileError: an address does not respond, or not with this file.
        DataError: a file has another SHA-256 than expected.
        ModelError: it contains no weights, or other weights are installed.
        UsageError: the folder cannot be written.
    """
    weights = entry(name)
    folder = weights.path.parent / "incoming"

    def get(url: str, file: str, sha256: str | None) -> Path:
        with progress(file) as step:
            fetch(url, folder / file, sha256=sha256, manual=weights.by_hand, progress=step, **fetching)
        return folder / file

    with lock(weights.path.parent / "incoming"):
        present = status(name)
        same = present.sha256 is not None and (source.sha256 is None or present.sha256.startswith(source.sha256))
        keep = present.state == "here" and same and not replace
        if present.state != "missing" and not keep and not replace:
            raise ModelError(
                f"other weights already exist: SHA-256 {present.sha256}; expected {source.sha256 or present.expected}",
                code="exists",
                value=present.sha256,
                path=present.path,
                hint="Use --replace to replace them",
            )
        wanted = [file for file in source.beside if replace or file in weights.absent_beside]
        if keep and not wanted:
            return present, False
        further = [get(source.beside[file], file, None) for file in wanted]
        if keep:
            for path in further:
                os.replace(path, weights.path.with_name(path.name))
        else:
            arrived = get(source.url, weights.file, source.sha256)
            try:
                add(name, arrived, replace=replace, move=True, read=read)
            except CapbenchError:
                arrived.unlink(missing_ok=True)  # otherwise the next run would find it complete
                raise
            for path in further:
                if path.exists():
                    os.replace(path, weights.path.with_name(path.name))
            arrived.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # not empty if another file is partly downloaded
            folder.rmdir()
        return status(name), True
