"""Ensembles: a small JSON file that names the weights of several networks, of whatever kind, as one model.

It is given wherever a model is: ``--model tiger=ensemble.json``. The networks stay apart: each is loaded and used by
itself, and the metrics say what they take the mean of. The file keeps the SHA-256 of every part, so that a score's
signature, which names them, is that of the weights which were meant.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from capbench.core.errors import DataError, ModelError
from capbench.core.files import check_readable, read_json, real_path, sha256_file, write_text

__all__ = ["Ensemble", "Member", "Part", "check_together", "network_files", "read_ensemble", "write_ensemble"]

_NAME = "capbench.ensemble/"
_KIND = f"{_NAME}1"
_HEAD = 1 << 16
_REMAKE = "Make it again with 'capbench models ensemble'"


class Member(Protocol):
    """A loaded network, of any kind, that may become a part of an ensemble."""

    @property
    def path(self) -> Path:
        """The file of its weights."""

    @property
    def sha256(self) -> str:
        """Of that file, 64 hex digits."""

    @property
    def shared(self) -> tuple[str, ...]:
        """What all networks of an ensemble must have in common, as predicates: ``is a SCAN network``."""


@dataclass(frozen=True, order=True)
class Part:
    """One network of an ensemble.

    Attributes:
        sha256: of its weights when the ensemble was made, 64 hex digits.
        path: of its weights.
    """

    sha256: str
    path: Path


@dataclass(frozen=True)
class Ensemble:
    """What an ensemble's file says.

    Attributes:
        path: the file.
        parts: two networks or more, in the order of their SHA-256, so that the order they were named in changes no bit.
    """

    path: Path
    parts: tuple[Part, ...]

    def verify(self) -> None:
        """Read all parts. Raises ModelError if one is not the file it was when the ensemble was made."""
        for network in self.parts:
            digest = sha256_file(network.path)
            if digest != network.sha256:
                raise ModelError(
                    f"is another file than the one of which {self.path} was made: SHA-256 {digest[:16]}…, not "
                    f"{network.sha256[:16]}…",
                    path=network.path,
                    hint="Put the old one back, or make the ensemble again with 'capbench models ensemble'",
                )


def read_ensemble(path: str | os.PathLike[str]) -> Ensemble | None:
    """The ensemble that a file describes, or None if it is something else, such as weights, or is not there.

    Args:
        path: of the file; relative paths of parts begin in its folder.

    Raises:
        ModelError: it is an ensemble but damaged, or a part is not there.
    """
    file = Path(path)
    if not _is_ensemble(file):
        return None
    try:
        content = read_json(file)
    except DataError as error:
        raise ModelError(error.message, path=file, row=error.row, hint=_REMAKE) from error
    if not isinstance(content, dict) or content.get("kind") != _KIND:
        raise ModelError(f"is no ensemble that this version of capbench reads ('{_KIND}')", path=file, hint=_REMAKE)
    entries = content.get("parts")
    if not isinstance(entries, list) or len(entries) < 2:
        raise ModelError("names no list of two networks or more as 'parts'", path=file, hint=_REMAKE)
    folder = real_path(file).parent
    parts = [_part(entry, place, file, folder) for place, entry in enumerate(entries, 1)]
    for network in parts:
        if not network.path.is_file():
            raise ModelError(
                f"there is no such file, which is a part of the ensemble {file}",
                path=network.path,
                hint="Put it there, or make the ensemble again with 'capbench models ensemble'",
            )
    return Ensemble(file, tuple(sorted(parts)))


def _is_ensemble(file: Path) -> bool:
    """Whether a file is text that names itself an ensemble: weights are none, nor are other metrics' JSON files."""
    try:
        check_readable(file)
        with open(file, "rb") as stream:
            head = stream.read(_HEAD)
    except (OSError, DataError):
        return False  # whoever reads it as weights says what is the matter
    return head.lstrip()[:1] == b"{" and b"\0" not in head and f'"{_NAME}'.encode() in head


def _part(entry: Any, place: int, file: Path, folder: Path) -> Part:
    path, digest = (entry.get("path"), entry.get("sha256")) if isinstance(entry, dict) else (None, None)
    if not isinstance(path, str) or not path or "\0" in path:
        raise ModelError("has no 'path'", path=file, row=f"part {place}", hint=_REMAKE)
    if not isinstance(digest, str) or not re.fullmatch("[0-9a-f]{64}", digest):
        raise ModelError("has no 'sha256' of 64 hex digits", path=file, row=f"part {place}", hint=_REMAKE)
    return Part(digest, folder / path)


def network_files(path: str | os.PathLike[str]) -> tuple[Path, ...]:
    """The files of weights that a model's file stands for: an ensemble's parts in their order, else itself.

    Raises ModelError as :func:`read_ensemble` does.
    """
    ensemble = read_ensemble(path)
    return (Path(path),) if ensemble is None else tuple(network.path for network in ensemble.parts)


def write_ensemble(path: str | os.PathLike[str], models: Sequence[Member]) -> Ensemble:
    """Write the ensemble of models, atomically; whatever their order, it is the same file.

    Args:
        path: the file. Paths of parts are kept relative to its folder.
        models: two or more that go together (:func:`check_together`).

    Raises:
        ModelError: they do not go together.
        UsageError: the file cannot be written.
    """
    check_together(models)
    file = Path(path)
    folder = real_path(file.parent)
    parts = sorted((model.sha256, _relative(model.path, folder)) for model in models)
    content = {"kind": _KIND, "parts": [{"path": place, "sha256": digest} for digest, place in parts]}
    write_text(file, json.dumps(content, indent=2) + "\n")
    return Ensemble(file, tuple(Part(digest, folder / place) for digest, place in parts))


def _relative(path: Path, folder: Path) -> str:
    whole = real_path(path.parent) / path.name
    try:
        return Path(os.path.relpath(whole, folder)).as_posix()
    except ValueError:  # on another drive
        return whole.as_posix()


def check_together(models: Sequence[Member]) -> None:
    """Check that models say the same of themselves where they must (:attr:`Member.shared`).

    Raises:
        ModelError: there are fewer than two, or one differs from the first.
    """
    if len(models) < 2:
        raise ModelError("an ensemble needs two networks or more", hint="Name another one")
    first = models[0]
    for model in models[1:]:
        for predicate, of_first in zip(model.shared, first.shared, strict=False):
            if predicate != of_first:
                raise ModelError(
                    f"{predicate}, and {first.path} {of_first}",
                    path=model.path,
                    hint="Take networks of one kind that were trained on the same kind of data",
                )
