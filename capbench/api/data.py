"""``capbench.import_data``: import your own judgements as a data set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from capbench.api.caller import PYTHON, Caller
from capbench.api.checking import check_arguments, check_name
from capbench.core.errors import UsageError

if TYPE_CHECKING:
    from capbench.api.resolve import PathGiven

__all__ = ["ImportedData", "import_data", "judgements_of"]


@dataclass(frozen=True)
class ImportedData:
    """Imported judgements.

    Attributes:
        name: name of the data set, for ``dataset=``.
        folder: its folder.
        items: number of items.
        human: number of ratings by kind, or of preferences.
        preferences: kinds of ``human`` that are preferences.
        protocol: the default protocol.
        references: True if the items have references.
        notes: notes on the judgements, one line each.
    """

    name: str
    folder: Path
    items: int
    human: Mapping[str, int]
    preferences: tuple[str, ...]
    protocol: str
    references: bool
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, object]:
        """As JSON."""
        facts = {"ok": True, "dataset": self.name, "folder": str(self.folder), "items": self.items}
        return facts | {"human": dict(self.human), "protocol": self.protocol}


def import_data(
    file: PathGiven,
    name: str,
    *,
    scale: str | tuple[float, float] | None = None,
    ignore: Sequence[str] = (),
    rating: Sequence[str] = (),
    replace: bool = False,
    user: bool = False,
    data: PathGiven | None = None,
) -> ImportedData:
    """Import your own judgements as a data set, as ``capbench data import`` does.

    Args:
        file: your judgements, .jsonl, .csv or .tsv; docs/data.md lists the columns.
        name: name of the new data set, for ``dataset=``.
        scale: lowest and highest possible rating, ``"1-5"`` or ``(1, 5)``.
        ignore: columns to ignore.
        rating: columns of ratings; each gives a kind of ratings of its name.
        replace: True to replace a data set of that name.
        user: True to store it in your capbench folder (``CAPBENCH_HOME``) instead of the data folder.
        data: the data folder; by default ``CAPBENCH_DATA``, else the embedded sample.

    Raises:
        UsageError: the name or the scale is invalid, or a data set of that name exists.
        DataError: a row is invalid; nothing is stored. All problems are listed.
    """
    check_arguments({"data": data})
    check_name("name", name)
    ignored = (ignore,) if isinstance(ignore, str) else ignore
    ratings = (rating,) if isinstance(rating, str) else rating
    return judgements_of(file, name, PYTHON, scale, ignored, ratings, replace=replace, user=user, data=data)


def judgements_of(
    file: PathGiven,
    name: str,
    caller: Caller,
    scale: str | tuple[float, float] | None,
    ignore: Sequence[str],
    rating: Sequence[str],
    *,
    replace: bool,
    user: bool,
    data: PathGiven | None,
) -> ImportedData:
    """Import judgements for Python or the command line; see :func:`import_data`."""
    from capbench.datasets.root import find_root
    from capbench.datasets.user.judgement_files import parse_scale
    from capbench.datasets.user.judgements import import_file

    root = find_root(data)
    limits = parse_scale(scale) if isinstance(scale, str) else scale
    if scale is not None and limits is None:
        raise UsageError(
            f"{caller.spelled('scale')} {scale}: not a scale",
            code="wrong-value",
            value=scale,
            hint="Pass the lowest and highest rating: 1-5",
        )
    made = import_file(
        Path(file),
        name,
        root,
        replace=replace,
        scale=limits,
        ignore=ignore,
        rating_columns=rating,
        in_home=user,
    )
    judgements = made.load(made.protocol().items)[0]
    human = {aspect: len(ratings) for aspect, ratings in judgements.ratings.items()}
    human |= {label: len(pairs) for label, pairs in judgements.preferences.items()}
    return ImportedData(
        name,
        made.path.parent,
        len(judgements.items),
        human,
        tuple(judgements.preferences),
        str(made.protocol()),
        made.table.has_references,
        judgements.notes,
    )
