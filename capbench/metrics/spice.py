"""SPICE: F-measure over the scene-graph tuples of candidate and references."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import ClassVar

import numpy as np

from capbench.core.progress import Progress, SlowWork
from capbench.core.records import FloatArray, Item
from capbench.metrics.abilities import ReferenceSweep
from capbench.metrics.needs import Parser, References
from capbench.metrics.tokens import TokenMetric
from capbench.text import ptb
from capbench.text.spice import scene_graph
from capbench.text.spice.matching import COUNTS, f_scores, match_counts
from capbench.text.spice.parser import SPICE_PARSER_VERSION


def parsing(tokens: Sequence[str], data: str | None) -> SlowWork | None:
    """The missing parses of tokenised captions as slow work, if there are any; ``data`` is the data folder."""
    captions = scene_graph.missing(tokens, data=data)
    if not captions:
        return None
    run = partial(scene_graph.ensure, captions, data=data)
    return SlowWork(
        "SPICE parses",
        "new captions and references",
        frozenset(captions),
        scene_graph.per_second(),
        lambda progress, spread: run(progress=progress, spread=spread),
    )


CATEGORY_COLUMNS = {
    "spice-object": "Object",
    "spice-attribute": "Attribute",
    "spice-relation": "Relation",
    "spice-color": "Color",
    "spice-count": "Cardinality",
    "spice-size": "Size",
}  # Columns of SPICE's categories, which are shown on request
_SENTENCE_END = re.compile(r"[.!?]\s+[A-Z]")
_MANY_SENTENCES = 0.2  # share of captions; single ones occur in all data sets


class Spice(TokenMetric):
    """SPICE 1.0 (Anderson et al., 2016), with synonyms, as pycocoevalcap calls it.

    SPICE's parser parses each caption once; merging and matching are reimplemented. A candidate that shares no tuple
    with the references scores 0, as about half of all captions do.
    """

    name = "spice"
    columns = ("spice",)
    titles: ClassVar[Mapping[str, str]] = {"spice": "SPICE"}
    citation = "Anderson et al., SPICE: semantic propositional image caption evaluation, ECCV 2016"
    needs = (References(), Parser())
    english_resources = "SPICE's parser and synonyms are English"

    def warnings(self, dataset: str, items: Sequence[Item]) -> Sequence[str]:
        texts = {text for item in items for text in (item.candidate, *item.references)}
        several = sum(_SENTENCE_END.search(text) is not None for text in texts)
        lines = list(super().warnings(dataset, items))
        if several and several >= _MANY_SENTENCES * len(texts):
            lines.append(
                f"{several:,} of {len(texts):,} captions have several sentences, which are parsed as a single one: "
                "the tokeniser removes full stops, as in pycocoevalcap"
            )
        return lines

    def facts(self) -> Mapping[str, object]:
        return {"parser": SPICE_PARSER_VERSION, "synonyms": "meteor-1.5", "tok": ptb.VERSION}

    def slow_work(self, items: Sequence[Item]) -> SlowWork | None:
        candidates, references = self.tokenize(items)
        return parsing([*candidates, *chain.from_iterable(references)], self.resources.data)

    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        """(n, 21): true positives, false positives, false negatives of each category, as in ``spice.COUNTS``."""
        in_order = [range(len(item.references)) for item in items]
        counts: FloatArray = next(self._counted(items, [in_order], [sys.maxsize], progress))[0]
        return counts

    def sweep(self, sweep: ReferenceSweep, progress: Progress) -> Iterator[FloatArray]:
        """(counts, n, 21) for each draw."""
        return self._counted(sweep.items, sweep.orders, sweep.counts, progress)

    def _counted(
        self,
        items: Sequence[Item],
        orders: Sequence[Sequence[Sequence[int]]],
        numbers: Sequence[int],
        progress: Progress,
    ) -> Iterator[FloatArray]:
        """(numbers, n, 21) for each order; references that several items have in the same order are merged once."""
        candidates, references = self.tokenize(items)
        work = parsing([*candidates, *chain.from_iterable(references)], self.resources.data)
        if work is not None:
            work.run_in(progress, self.name)
        for order in orders:
            same: dict[tuple[str, ...], list[int]] = {}
            for row, captions in enumerate(references):
                same.setdefault(tuple(captions[place] for place in order[row]), []).append(row)
            counts = np.empty((len(numbers), len(items), len(COUNTS)))
            for shared, rows in same.items():
                texts = [*(candidates[row] for row in rows), *shared]
                parsed = list(scene_graph.tuples(texts, data=self.resources.data))
                counts[:, rows] = match_counts(parsed[: len(rows)], parsed[len(rows) :], numbers)
                progress(len(rows))
            yield counts

    def scores(self, statistics: FloatArray) -> dict[str, FloatArray]:
        return {"spice": f_scores(statistics)[2]}

    @staticmethod
    def categories(statistics: FloatArray) -> dict[str, FloatArray]:
        """(n,) F-measure of each category of tuples by column; NaN for items whose references have no such tuple."""
        return {column: f_scores(statistics, category)[2] for column, category in CATEGORY_COLUMNS.items()}
