"""Where data lies: ``--data DIR``, else ``$CAPBENCH_DATA``, else the embedded sample."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from capbench.core.errors import MissingFileError, UsageError

__all__ = ["DataRoot", "find_root", "sample_dir"]


@dataclass(frozen=True)
class DataRoot:
    """A folder with the data sets' files in it, laid out as documented in ``docs/data.md``.

    Attributes:
        path: the folder.
        is_sample: True for the embedded synthetic sample.
        origin: how it was chosen, in words for the user.
    """

    path: Path
    is_sample: bool
    origin: str

    def file(self, *candidates: str, what: str = "") -> Path:
        """The first of several paths that exists.

        Args:
            candidates: paths below the folder, the preferred one first.
            what: what the file holds, for the error message.

        Raises:
            MissingFileError: none of them is there; all are named.
        """
        for candidate in candidates:
            if (self.path / candidate).exists():
                return self.path / candidate
        label = f" ({what})" if what else ""
        others = f", nor any of {', '.join(candidates[1:])}" if len(candidates) > 1 else ""
        raise MissingFileError(
            f"there is no such file{label}{others}",
            path=self.path / candidates[0],
            hint=_where_to_get(candidates[0]),
        )


def _where_to_get(path: str) -> str:
    """A command that knows a file below the data folder, or what to do if none does: it is a plug-in's."""
    from capbench.datasets.catalog import catalog

    folders = {name.partition("/")[0] for name in catalog().files}
    if path.partition("/")[0] in folders:
        return "See 'capbench data info' for where to get it"
    return "Put it there; 'capbench data list' tells of every data set what is missing"


def sample_dir() -> Path:
    """The folder of the embedded sample, in an installed package or in a source checkout."""
    package = Path(__file__).resolve().parent.parent
    installed = package / "_sample"
    return installed if installed.is_dir() else package.parent / "data" / "sample"


def find_root(data: str | os.PathLike[str] | None = None) -> DataRoot:
    """Choose the folder that data is read from.

    Args:
        data: the value of ``--data``; ``"sample"`` asks for the embedded sample by name.

    Raises:
        UsageError: the chosen folder does not exist.
    """
    if data is not None and not os.fspath(data):
        raise UsageError(
            "the data folder is an empty text",
            code="missing-value",
            hint="Name a folder, or 'sample' for the embedded sample",
        )
    if data is not None and os.fspath(data) != "sample":
        path, origin = Path(data).expanduser(), "--data"
    elif data is None and os.environ.get("CAPBENCH_DATA"):
        path, origin = Path(os.environ["CAPBENCH_DATA"]).expanduser(), "CAPBENCH_DATA"
    else:
        return DataRoot(sample_dir(), True, "embedded sample")
    if not path.is_dir():
        raise UsageError(
            f"the data folder given by {origin} does not exist or is not a folder",
            code="missing-file",
            path=path,
            hint=f"Correct {origin}, or leave it out to use the embedded sample",
        )
    return DataRoot(path, path.resolve() == sample_dir().resolve(), origin)
