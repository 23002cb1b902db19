"""Downloads of weights from their publishers' addresses."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from capbench.core.download import Progress, fetch
from capbench.core.errors import CapbenchError, ModelError
from capbench.core.files import lock
from capbench.weights.registry import Entry, Status, add, entry, other_weights, status

if TYPE_CHECKING:
    import torch


def downloadable(name: str) -> Entry:
    """An entry of the registry with its publisher's address."""
    weights = entry(name)
    if weights.url is None:
        message = f"'{name}' has no address to download from"
        raise ModelError(message, code="missing-weights", value=name, hint=weights.by_hand)
    return weights


def announcement(weights: Entry) -> str:
    """Address, size and terms of weights, for the line before their download."""
    size = "size unknown" if weights.megabytes is None else f"{weights.megabytes:,} MB"
    return f"{weights.name}: {weights.url} ({size}); terms: {weights.terms}"


def download(
    weights: Entry,
    *,
    replace: bool = False,
    read: Callable[[Path], Mapping[str, torch.Tensor]] | None = None,
    progress: Callable[[str], AbstractContextManager[Progress | None]],
) -> tuple[Status, bool]:
    """Download, check and install weights; returns their status, and True if anything was downloaded."""
    name, address = weights.name, str(weights.url)
    folder = weights.path.parent / "incoming"

    def get(file: str, sha256: str | None = None) -> Path:
        url = address if file == weights.file else f"{address.rpartition('/')[0]}/{file}"
        with progress(file) as step:
            fetch(url, folder / file, sha256=sha256, manual=weights.by_hand, progress=step)
        return folder / file

    with lock(folder):
        present = status(name)
        keep = present.state == "here" and not replace
        if present.state != "missing" and not keep and not replace:
            raise other_weights(present.path, present.sha256, f"expected {present.expected}")
        wanted = [file for file in weights.companions if replace or file in weights.missing_companions]
        if keep and not wanted:
            return present, False
        further = [get(file) for file in wanted]
        if not keep:
            arrived = get(weights.file, weights.expected)
            try:
                add(name, arrived, replace=replace, read=read)
            except CapbenchError:
                arrived.unlink()  # otherwise the next run would find it complete
                raise
            arrived.unlink()
        for path in further:
            os.replace(path, weights.path.with_name(path.name))
        with contextlib.suppress(OSError):  # not empty if another file is partly downloaded
            folder.rmdir()
        return status(name), True
