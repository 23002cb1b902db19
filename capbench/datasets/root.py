"""The data folder: ``--data DIR``, else ``$CAPBENCH_DATA``, else the embedded sample."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from capbench.core.errors import MissingFileError, UsageError

_COLLECTION = "open"  # a common folder of openly licensed data sets


@dataclass(frozen=True)
class DataRoot:
    """A folder with the files of the data sets, laid out as documented in ``docs/data.md``."""

    path: Path  # the folder
    is_sample: bool  # True for the embedded synthetic sample
    origin: str  # the option or variable that chose it, for messages

    def locate(self, name: str) -> Path:
        """The place of a file below the folder: ``name``, or ``open/name`` if only that exists."""
        place, collected = self.path / name, self.path / _COLLECTION / name
        return collected if not place.exists() and collected.exists() else place

    def file(self, *candidates: str, what: str = "") -> Path:
        """The first existing one of several paths."""
        for candidate in candidates:
            place = self.locate(candidate)
            if place.exists():
                return place
        label = f" ({what})" if what else ""
        others = f", nor any of {', '.join(candidates[1:])}" if len(candidates) > 1 else ""
        hint = "See 'capbench data info' for its source"
        raise MissingFileError(f"there is no such file{label}{others}", path=self.path / candidates[0], hint=hint)


def results_folder(name: str, *, sample: bool) -> Path:
    """The folder of a study without ``--out``; those of the embedded sample never replace real numbers."""
    return Path("results", "sample", name) if sample else Path("results", name)


def sample_dir() -> Path:
    """The folder of the embedded sample, in an installed package or in a source checkout."""
    package = Path(__file__).resolve().parent.parent
    installed = package / "_sample"
    return installed if installed.is_dir() else package.parent / "data" / "sample"


def find_root(data: str | os.PathLike[str] | None = None) -> DataRoot:
    """The folder that data is read from; ``data``: the value of ``--data``, ``"sample"`` for the embedded sample."""
    if data is not None and not os.fspath(data):
        problem, hint = "the name of the data folder is empty", "Name a folder, or 'sample' for the embedded sample"
        raise UsageError(problem, code="missing-value", hint=hint)
    if data is not None and os.fspath(data) != "sample":
        path, origin = Path(data).expanduser(), "--data"
    elif data is None and os.environ.get("CAPBENCH_DATA"):
        path, origin = Path(os.environ["CAPBENCH_DATA"]).expanduser(), "CAPBENCH_DATA"
    else:
        return DataRoot(sample_dir(), True, "embedded sample")
    if not path.is_dir():
        problem = f"the data folder from {origin} does not exist or is not a folder"
        hint = f"Correct {origin}, or omit it to use the embedded sample"
        raise UsageError(problem, code="missing-file", path=path, hint=hint)
    return DataRoot(path, path.resolve() == sample_dir().resolve(), origin)
