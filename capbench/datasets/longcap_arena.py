"""LongCap-Arena: long captions by many systems, rated for descriptiveness, relevance and fluency.

Files in ``longcap-arena/`` (Matsuda and others 2025): for each test set and aspect, the Parquet files of the published
split (``dci_val.desc-00000-of-00001.parquet``, one or several) or a table (``desc_dci_val.csv``). The set published as
``dci_val`` is the paper's Test-A, ``dci_test`` its Test-B. A score is a mean of several raters from 0 to 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np

from capbench.core.errors import MissingFileError
from capbench.core.records import Item, Judgements, Ratings
from capbench.datasets.base import AS_PUBLISHED, Dataset
from capbench.datasets.judgement_files import ByName
from capbench.datasets.nebula import RatedRow
from capbench.datasets.protocol import ItemSelection, StatisticSpec, correlations
from capbench.datasets.row_models import read_rows

_FOLDER = "longcap-arena"
_ASPECTS = {"descriptiveness": "desc", "relevance": "rel", "fluency": "flu"}
_SPLITS = {"test-a": "dci_val", "test-b": "dci_test"}


class LongCapArena(Dataset):
    """Candidates of one test set; each aspect has one rating of each candidate that was rated for it."""

    name: ClassVar[str] = "longcap-arena"
    title: ClassVar[str] = "LongCap-Arena"
    version, versions = AS_PUBLISHED
    image_folders: ClassVar[Sequence[str]] = ("longcap-arena/images", "nocaps/images")
    """Those of the embedded sample are nocaps scenes."""
    selections: ClassVar[Mapping[str, ItemSelection]] = {
        name: ItemSelection(name, f"all captions of {title} (published as {_SPLITS[name]}); all references")
        for name, title in (("test-a", "Test-A"), ("test-b", "Test-B"))
    }
    statistics: ClassVar[Mapping[str, StatisticSpec]] = {
        name: spec for aspect in _ASPECTS for name, spec in correlations(aspect, prefix=aspect).items()
    }
    default: ClassVar[tuple[str, str]] = ("test-a", "descriptiveness-tau-c")
    groups: ClassVar[Sequence[str] | None] = ()

    def load(self, selection: ItemSelection) -> tuple[Judgements, ...]:
        """Items in the order of their first rows, aspect by aspect; ``ratings`` by aspect."""
        items: dict[tuple[str, str], Item] = {}
        places: dict[tuple[str, str], int] = {}
        ratings: dict[str, Ratings] = {}
        absent: dict[str, MissingFileError] = {}
        for aspect in _ASPECTS:
            files = self._files(_SPLITS[selection.name], aspect)
            if not files:
                absent[aspect] = self._missing(_SPLITS[selection.name], aspect)
                continue
            item, value, rater = [], [], []
            raters: dict[int, int] = {}
            for row in (row for file in files for row in read_rows(file, RatedRow)):
                key = (row.image, row.candidate)
                place = places.setdefault(key, len(items))
                known = items.setdefault(
                    key, Item(row.image, row.candidate, row.references, f"caption-{len(items) + 1}")
                )
                if known.references != row.references:
                    problem = f"the caption '{row.candidate[:60]}' of image {row.image} has other references above"
                    raise row.error("mismatch", problem, "All files must be of one release", value=row.image)
                item.append(place)
                value.append(row.score)
                rater.append(raters.get(place, 0))
                raters[place] = rater[-1] + 1
            ratings[aspect] = Ratings(np.array(item), np.array(value), np.array(rater), (0.0, 1.0))
        if not ratings:
            raise next(iter(absent.values()))
        notes = tuple(
            f"{len(ratings[aspect]):,} ratings of {aspect} of {len(set(ratings[aspect].item.tolist())):,} captions"
            for aspect in ratings
        )
        return (Judgements(self.name, selection.name, tuple(items.values()), ByName(ratings, absent), notes=notes),)

    def _files(self, split: str, aspect: str) -> list[Path]:
        folder, short = self.root.locate(_FOLDER), _ASPECTS[aspect]
        table = folder / f"{short}_{split}.csv"
        return [table] if table.is_file() else sorted(folder.glob(f"{split}.{short}-*.parquet"))

    def _missing(self, split: str, aspect: str) -> MissingFileError:
        short, hint = _ASPECTS[aspect], "See 'capbench data info longcap-arena' for its source"
        message = f"there is no such file (ratings of {aspect}), nor {split}.{short}-*.parquet in its folder"
        path = self.root.path / _FOLDER / f"{short}_{split}.csv"
        return MissingFileError(message, value=aspect, path=path, hint=hint)
