"""Ensembles: a small JSON file that combines the weights of several networks of one kind into one model.

It can be used in place of any model: ``--model tiger=ensemble.json``. Each network is loaded and evaluated separately,
and the metric defines what is averaged. The file contains the SHA-256 of every part, which is also in a score's
signature, so that replaced weights are detected.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from pydantic import Field

from capbench.core.errors import ModelError
from capbench.core.files import read_json, sha256_file, write_text
from capbench.core.typed_json import Strict, validated
from capbench.weights.arrays import damage_reported

_KIND: Literal["capbench.ensemble/1"] = "capbench.ensemble/1"
_HEAD = 1 << 16
_REMAKE = "Restore the file, or create the ensemble again with 'capbench models combine'"


class Member(Protocol):
    """A loaded network that can become a part of an ensemble."""

    @property
    def path(self) -> Path:
        """The file of its weights."""

    @property
    def sha256(self) -> str:
        """SHA-256 of the file, 64 hex digits."""

    @property
    def shared(self) -> tuple[str, ...]:
        """Properties that all networks of an ensemble must share, as predicates: ``is a SCAN network``."""


class Part(Strict):
    """One network of an ensemble."""

    path: Path  # file of its weights
    sha256: str = Field(pattern="^[0-9a-f]{64}$")  # SHA-256 of its weights when the ensemble was created


@dataclass(frozen=True)
class Ensemble:
    """The content of an ensemble file."""

    path: Path  # the file
    parts: tuple[Part, ...]  # two networks or more, sorted by SHA-256, so that the order of arguments has no effect

    def verify(self) -> None:
        """Compare the SHA-256 of all parts. Raises ModelError if one has changed since the ensemble was created."""
        for network in self.parts:
            digest = sha256_file(network.path)
            if digest != network.sha256:
                digits = f"SHA-256 {digest[:16]}…, not {network.sha256[:16]}…"
                message = f"has changed since the ensemble {self.path} was created: {digits}"
                raise ModelError(message, code="changed", value=digest, path=network.path, hint=_REMAKE)


class _Content(Strict):
    kind: Literal["capbench.ensemble/1"]
    parts: list[Part] = Field(min_length=2)


def read_ensemble(path: str | os.PathLike[str]) -> Ensemble | None:
    """The ensemble in a file; None for no file or another format. Relative paths of parts start from its folder."""
    file = Path(path)
    if not _is_ensemble(file):
        return None
    with damage_reported(file):
        raw = read_json(file)
    content = validated(_Content, raw, file, error=ModelError, code="wrong-format", hint=_REMAKE)
    folder = file.resolve().parent
    in_order = sorted(content.parts, key=lambda part: part.sha256)
    parts = tuple(part.model_copy(update={"path": folder / part.path}) for part in in_order)
    for part in parts:
        if not part.path.is_file():
            message = f"there is no such file, which is a part of the ensemble {file}"
            raise ModelError(message, code="missing-file", path=part.path, hint=_REMAKE)
    return Ensemble(file, parts)


def _is_ensemble(file: Path) -> bool:
    """True if a file is JSON text with the kind of an ensemble; False for weights and other JSON files."""
    if not file.is_file():
        return False
    with open(file, "rb") as stream:
        head = stream.read(_HEAD)
    return head.lstrip()[:1] == b"{" and b"\0" not in head and b'"capbench.ensemble/' in head


def network_files(path: str | os.PathLike[str]) -> tuple[Path, ...]:
    """The weight files of a model: the parts of an ensemble in order, or the file itself."""
    ensemble = read_ensemble(path)
    return (Path(path),) if ensemble is None else tuple(network.path for network in ensemble.parts)


def write_ensemble(path: str | os.PathLike[str], models: Sequence[Member]) -> None:
    """Write an ensemble of compatible networks atomically; it does not depend on their order."""
    check_together(models)
    folder = Path(path).parent.resolve()
    places = [os.path.relpath(model.path.parent.resolve() / model.path.name, folder) for model in models]
    parts = [{"path": place, "sha256": model.sha256} for place, model in zip(places, models, strict=True)]
    content = {"kind": _KIND, "parts": sorted(parts, key=lambda part: part["sha256"])}
    write_text(path, json.dumps(content, indent=2) + "\n")


def check_together(models: Sequence[Member]) -> None:
    """Check that models have the properties in common that an ensemble requires (:attr:`Member.shared`)."""
    if len(models) < 2:
        message = "an ensemble requires two networks or more"
        raise ModelError(message, code="too-few", value=len(models), hint="Name another network")
    first = models[0]
    for model in models[1:]:
        for predicate, of_first in zip(model.shared, first.shared, strict=False):
            if predicate != of_first:
                message, hint = f"{predicate}, and {first.path} {of_first}", "Use networks of one kind of data"
                raise ModelError(message, code="mismatch", value=predicate, path=model.path, hint=hint)
