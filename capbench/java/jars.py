"""Where the jars lie: inside the installed package pycocoevalcap, which is not imported for it."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from capbench.errors import ToolError

__all__ = ["Jar", "meteor_jar", "spice_jar", "tokenizer_jar"]


@dataclass(frozen=True)
class Jar:
    """A jar that is there.

    Attributes:
        path: the file. Programs are started in its folder and given its bare name, so that no character in
            the folder's path (a space, ``%20``, ``#``) can be taken for something else.
        version: of the program in it.
    """

    path: Path
    version: str


def tokenizer_jar() -> Jar:
    """Stanford CoreNLP 3.4.1 with the PTB tokeniser. Raises ToolError if it is not there."""
    return Jar(_package_file("tokenizer/stanford-corenlp-3.4.1.jar"), "3.4.1")


def meteor_jar() -> Jar:
    """METEOR 1.5 and, beside it, ``data/paraphrase-en.gz``. Raises ToolError if either is not there."""
    _package_file("meteor/data/paraphrase-en.gz")
    return Jar(_package_file("meteor/meteor-1.5.jar"), "1.5")


def spice_jar() -> Jar:
    """SPICE 1.0 and, beside it, the folder ``lib`` with its libraries. Raises ToolError if it is not there."""
    _package_file("spice/lib/SceneGraphParser-1.0.jar")
    return Jar(_package_file("spice/spice-1.0.jar"), "1.0")


@cache
def _package_folders() -> tuple[Path, ...]:
    spec = importlib.util.find_spec("pycocoevalcap")
    return tuple(Path(folder) for folder in (spec.submodule_search_locations or ())) if spec else ()


def _package_file(name: str) -> Path:
    hint = "Reinstall it with 'pip install --force-reinstall --no-deps pycocoevalcap==1.2'"
    folders = _package_folders()
    if not folders:
        raise ToolError("the package pycocoevalcap is not installed", hint=hint)
    for folder in folders:
        path = folder / name
        # An interrupted installation leaves empty files behind.
        if path.is_file() and path.stat().st_size > 0:
            return path
    raise ToolError("this file of the package pycocoevalcap is missing or empty", path=folders[0] / name, hint=hint)
