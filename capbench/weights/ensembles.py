"""Ensembles: a small JSON file that combines the weights of several networks of one kind into one model.

It can be used in place of any model: ``--model tiger=ensemble.json``. Each network is loaded and evaluated separately,
and the metric defines what is averaged. The file contains the SHA-256 of every part, which is also in a score's
signature, so that replaced weights are detected.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from capbench.core.errors import DataError, ModelError
from capbench.core.files import check_readable, read_json, real_path, sha256_file, write_text

_NAME = "capbench.ensemble/"
_KIND = f"{_NAME}1"
_HEAD = 1 << 16
_REMAKE = "Create it again with 'capbench models combine'"


class Member(Protocol):
    """A loaded network that can become a part of an ensemble.

    ``sha256`` is that of the file of its weights (64 hex digits); ``shared`` are the properties that all networks of an
    ensemble must share, as predicates: ``is a SCAN network``.
    """

    @property
    def path(self) -> Path: ...  # noqa: D102
    @property
    def sha256(self) -> str: ...  # noqa: D102
    @property
    def shared(self) -> tuple[str, ...]: ...  # noqa: D102


class Part(NamedTuple):
    """One network of an ensemble: the SHA-256 of its weights when the ensemble was created, and their file."""

    sha256: str
    path: Path


@dataclass(frozen=True)
class Ensemble:
    """The content of an ensemble file.

    Attributes:
        path: the file.
        parts: two networks or more, sorted by SHA-256, so that the order of arguments has no effect.
    """

    path: Path
    parts: tuple[Part, ...]

    def verify(self) -> None:
        """Compare the SHA-256 of all parts. Raises ModelError if one has changed since the ensemble was created."""
        for network in self.parts:
            digest = sha256_file(network.path)
            if digest != network.sha256:
                raise ModelError(
                    f"has changed since the ensemble {self.path} was created: SHA-256 {digest[:16]}…, not "
                    f"{network.sha256[:16]}…",
                    code="changed",
                    value=digest,
                    path=network.path,
                    hint="Restore the old file, or create the ensemble again with 'capbench models combine'",
                )


def read_ensemble(path: str | os.PathLike[str]) -> Ensemble | None:
    """The ensemble in a file; None if there is no such file or it has another format, such as weights.

    Args:
        path: the file; relative paths of parts start from its folder.

    Raises:
        ModelError: the ensemble is damaged, or the file of a part does not exist.
    """
    file = Path(path)
    if not _is_ensemble(file):
        return None
    try:
        content = read_json(file)
    except DataError as error:
        code, value = error.code, error.value
        raise ModelError(error.message, code=code, value=value, path=file, row=error.row, hint=_REMAKE) from error
    kind = content.get("kind") if isinstance(content, dict) else None
    if kind != _KIND:
        message = f"is not an ensemble that this version of capbench reads ('{_KIND}')"
        raise ModelError(message, code="wrong-version", value=kind, path=file, hint=_REMAKE)
    entries = content.get("parts")
    if not isinstance(entries, list) or len(entries) < 2:
        message = "'parts' is not a list of two networks or more"
        raise ModelError(message, code="too-few", path=file, hint=_REMAKE)
    folder = real_path(file).parent
    parts = sorted(_part(entry, place, file, folder) for place, entry in enumerate(entries, 1))
    for network in parts:
        if not network.path.is_file():
            message = f"there is no such file, which is a part of the ensemble {file}"
            hint = "Restore the file, or create the ensemble again with 'capbench models combine'"
            raise ModelError(message, code="missing-file", path=network.path, hint=hint)
    return Ensemble(file, tuple(parts))


def _is_ensemble(file: Path) -> bool:
    """True if a file is JSON text with the kind of an ensemble; False for weights and other JSON files."""
    try:
        check_readable(file)
        with open(file, "rb") as stream:
            head = stream.read(_HEAD)
    except (OSError, DataError):
        return False  # reading it as weights raises the error
    return head.lstrip()[:1] == b"{" and b"\0" not in head and f'"{_NAME}'.encode() in head


def _part(entry: Any, place: int, file: Path, folder: Path) -> Part:
    content = entry if isinstance(entry, dict) else {}
    for key, pattern, what in (("path", "[^\0]+", "'path'"), ("sha256", "[0-9a-f]{64}", "'sha256' of 64 hex digits")):
        if not re.fullmatch(pattern, str(content.get(key, ""))):
            row = f"part {place}"
            raise ModelError(f"has no {what}", code="missing-key", value=key, path=file, row=row, hint=_REMAKE)
    return Part(content["sha256"], folder / content["path"])


def network_files(path: str | os.PathLike[str]) -> tuple[Path, ...]:
    """The weight files of a model: the parts of an ensemble in order, or the file itself.

    Raises the errors of :func:`read_ensemble`.
    """
    ensemble = read_ensemble(path)
    return (Path(path),) if ensemble is None else tuple(network.path for network in ensemble.parts)


def write_ensemble(path: str | os.PathLike[str], models: Sequence[Member]) -> Ensemble:
    """Write an ensemble file atomically; it does not depend on the order of the models.

    Paths of parts are stored relative to its folder. Raises ModelError if the networks are not compatible
    (:func:`check_together`), UsageError if the file cannot be written.
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
    """Check that models have the properties in common that an ensemble requires (:attr:`Member.shared`).

    Raises:
        ModelError: there are fewer than two, or one differs from the first.
    """
    if len(models) < 2:
        message = "an ensemble requires two networks or more"
        raise ModelError(message, code="too-few", value=len(models), hint="Name another network")
    first, *others = models
    for model in others:
        for predicate, of_first in zip(model.shared, first.shared, strict=False):
            if predicate != of_first:
                message = f"{predicate}, and {first.path} {of_first}"
                hint = "Use networks of one kind that were trained on the same kind of data"
                raise ModelError(message, code="mismatch", value=predicate, path=model.path, hint=hint)
