"""Downloads of weights from their publishers' addresses."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from capbench.core.download import Progress, fetch
from capbench.core.errors import CapbenchError, ModelError
from capbench.core.files import lock
from capbench.weights.registry import Status, add, entry, other_weights, status

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Source:
    """Address of a weight file."""

    url: str  # the address
    sha256: str | None  # the expected SHA-256 or its first digits; None if unknown
    bytes: int | None  # size, if known
    beside: Mapping[str, str]  # addresses by name of the files that belong next to it


def find_source(name: str) -> Source:
    """The publisher's address of an entry of the registry."""
    weights = entry(name)
    if weights.url is None:
        message = f"'{name}' has no address to download from"
        raise ModelError(message, code="missing-weights", value=name, hint=weights.by_hand)
    folder, _, _ = weights.url.rpartition("/")
    beside = {file: f"{folder}/{file}" for file in weights.beside}
    size = None if weights.megabytes is None else weights.megabytes * 1_000_000
    return Source(weights.url, weights.expected, size, beside)


def announcement(name: str, source: Source) -> str:
    """Address, size and terms of weights, for the line before their download."""
    size = "size unknown" if source.bytes is None else f"{source.bytes / 1e6:,.1f} MB"
    return f"{name}: {source.url} ({size}); terms: {entry(name).terms}"


def download(
    name: str,
    source: Source,
    *,
    replace: bool = False,
    read: Callable[[Path], Mapping[str, torch.Tensor]] | None = None,
    progress: Callable[[str], AbstractContextManager[Progress | None]],
) -> tuple[Status, bool]:
    """Download, check and install weights; returns their status, and True if anything was downloaded."""
    weights = entry(name)
    folder = weights.path.parent / "incoming"

    def get(url: str, file: str, sha256: str | None) -> Path:
        with progress(file) as step:
            fetch(url, folder / file, sha256=sha256, manual=weights.by_hand, progress=step)
        return folder / file

    with lock(weights.path.parent / "incoming"):
        present = status(name)
        same = present.sha256 is not None and (source.sha256 is None or present.sha256.startswith(source.sha256))
        keep = present.state == "here" and same and not replace
        if present.state != "missing" and not keep and not replace:
            raise other_weights(present.path, present.sha256, f"expected {source.sha256 or present.expected}")
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
