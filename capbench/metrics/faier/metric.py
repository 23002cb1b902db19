"""FAIEr: match of a candidate with a scene graph fused from image and references (Wang et al., CVPR 2021).

Explanations show the best region of each word and triplet, and its contribution (Figure 6). All numbers are the
metric's. In an ensemble, each network has its own best regions; shown are the means of the networks' products and the
region with the highest mean.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from capbench.core.errors import ModelError, UsageError
from capbench.core.explanations import Bars, ExplainedCandidate, Explanation, Matrix, Panel, RegionMaps, Subject, Table
from capbench.core.options import Choice, Flag, Kind, option
from capbench.core.progress import Progress, SlowWork, part_of
from capbench.core.records import FloatArray, IntArray, Item
from capbench.features.class_names import regions_of
from capbench.metrics.abilities import ReferenceSweep
from capbench.metrics.faier.source import COLUMNS, FaierSource, Group, open_faier_source
from capbench.metrics.image_metric import ImageMetric, ImageOptions, unknown_words
from capbench.metrics.needs import Features, Need, Parser, References, Resources, Weights
from capbench.metrics.spice import parser_version, parsing
from capbench.text import ptb
from capbench.text.spice import scene_graph
from capbench.text.spice.scene_graph import SceneGraph, Triplet
from capbench.text.vocabulary import SPECIAL, tokenize_caption


class _ReferenceChoice(Kind):
    """Selection of references: ``all``, ``none``, or ``first-N``."""

    def describe(self) -> str:
        return "all, none or first-N, such as first-4"

    def example(self) -> str:
        return "first-4"

    def read(self, value: object) -> str:
        if not isinstance(value, str) or not re.fullmatch("all|none|first-[1-9][0-9]{0,5}", value):
            raise ValueError
        return value


@dataclass(frozen=True)
class FaierOptions(ImageOptions):
    """Options of FAIEr. Those of the network are in its file."""

    references: str = option(
        "all",
        _ReferenceChoice(),
        "references that the metric reads; none: reference-free, even if there are references",
        sign_as="refs",
    )
    reference_order: str = option(
        "given",
        Choice("given", "sorted"),
        "order of references for the GRU: given, or sorted alphabetically, so that their order has no effect",
        sign_as="order",
    )
    any_features: bool = option(False, Flag(), "accept features of another fingerprint than in training", quiet=True)


class Faier(ImageMetric):
    """FAIEr = S^o + S^r: mean product of a candidate's words (S^o) and triplets (S^r) with their best union node.

    Union nodes are fused from image and references. The model's file determines the variant (FAIEr, FAIEr\\rel, FIEr,
    AIEr, FIEr+AIEr). For an ensemble, each column is the mean of the networks' scores. Triplets are ⟨subject, relation,
    object⟩ from SPICE's parser; objects without relations and objects with attributes are not triplets. S^r is 0 for a
    candidate without triplets and for a network without a relation level.

    An item without references gets the reference ".", as in the paper; with ``references=none``, all items do.
    """

    name: ClassVar[str] = "faier"
    columns: ClassVar[tuple[str, ...]] = ("faier", "faier-object", "faier-relation")
    titles: ClassVar[Mapping[str, str]] = {
        "faier": "FAIEr",
        "faier-object": "FAIEr objects",
        "faier-relation": "FAIEr relations",
    }
    citation: ClassVar[str] = "Wang et al., FAIEr: fidelity and adequacy ensured image caption evaluation, CVPR 2021"
    packages = ("torch",)
    needs: ClassVar[tuple[Need, ...]] = (
        References(),
        Features(),
        Weights("a FAIEr model", "capbench train faier", "faier"),
        Parser(),
    )
    order: ClassVar[int] = 130

    option_type = FaierOptions
    options: FaierOptions

    def __init__(self, resources: Resources | None = None, **options: Any) -> None:
        super().__init__(resources, **options)
        assert self.resources.model is not None
        self.source = open_faier_source(self.store, self.resources.model, any_features=self.options.any_features)
        self.store = self.source.store

    @classmethod
    def reference_free(cls) -> frozenset[str]:
        """All columns: "." replaces missing references."""
        return frozenset(cls.columns)

    @classmethod
    def ignores_references(cls, options: Mapping[str, Any] | None = None) -> frozenset[str]:
        """All columns with ``references=none``, otherwise none."""
        chosen = cls.option_type.read(cls.name, options or {})
        return frozenset(cls.columns) if chosen.references == "none" else frozenset()

    @classmethod
    def offered(cls, resources: Resources) -> tuple[str, ...]:
        """All columns, or only the first if the model has no relation level, because the second is then equal to it."""
        if resources.model is None:  # before the import: lists are printed without PyTorch, too
            return cls.columns
        from capbench.metrics.faier.network import stored_options

        try:
            options = stored_options(resources.model)
        except ModelError:  # creating the metric raises the error
            return cls.columns
        return cls.columns if options is None or options.relations else cls.columns[:1]

    @classmethod
    def takes_parses(cls, resources: Resources) -> bool:
        """True unless the model has no relation level."""
        return len(cls.offered(resources)) > 1

    def facts(self) -> Mapping[str, object]:
        """Networks, variant, vocabulary and features; with a relation level, also parser and tokeniser."""
        parts = self.source.signature_parts()
        if self.source.relations:
            parts |= {"parser": parser_version(), "tok": ptb.VERSION}
        return parts

    def slow_work(self, items: Sequence[Item]) -> SlowWork | None:
        """Parsing of captions without a cached parse; None if there are none."""
        return self._parsing(self._texts((item.candidate, self.chosen(item.references)) for item in items))

    def _parsing(self, texts: Collection[str]) -> SlowWork | None:
        if not self.source.relations:
            return None
        return parsing(ptb.tokenize(sorted(texts)), self.resources.data)

    def chosen(self, references: Sequence[str]) -> tuple[str, ...]:
        """The references that the metric reads, in its order; "." if there are none."""
        from capbench.metrics.faier.graphs import NO_REFERENCE

        choice = self.options.references
        number = 0 if choice == "none" else len(references) if choice == "all" else int(choice.removeprefix("first-"))
        selected = tuple(references[:number])
        return (tuple(sorted(selected)) if self.options.reference_order == "sorted" else selected) or (NO_REFERENCE,)

    def _texts(self, captions: Iterable[tuple[str, Sequence[str]]]) -> set[str]:
        """All captions that the network reads: candidates, and their references unless the network ignores them."""
        reads = self.source.reads_references
        return {text for candidate, chosen in captions for text in (candidate, *(chosen if reads else ()))}

    def triplets(self, texts: Collection[str]) -> dict[str, tuple[Triplet, ...]]:
        """Triplets by caption; empty without a relation level.

        Raises:
            ToolError: a caption has no cached parse, and SPICE's parser is not set up or failed.
        """
        from capbench.metrics.faier.graphs import NO_REFERENCE

        if not self.source.relations:
            return {}
        ordered = sorted(set(texts) - {NO_REFERENCE})
        tokens = ptb.tokenize(ordered)
        graphs = scene_graph.tuples(tokens, data=self.resources.data)
        return {text: SceneGraph.from_tuples(tuples).triplets for text, tuples in zip(ordered, graphs, strict=True)}

    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        """(n, 3): S, S^o and S^r. Items with the same image and references are matched together."""
        rows = [(item.image, self.chosen(item.references), item.candidate) for item in items]
        numbers = [(len(references),) for _, references, _ in rows]
        statistics = self._scored(rows, numbers)[:, 0]
        progress(len(items))
        return statistics

    def image_statistics(self, image: str, items: Sequence[Item], encodings: Mapping[str, Any]) -> FloatArray:
        """(items, 3): see :meth:`statistics`."""
        return self.statistics(items, lambda _: None)

    def _scored(
        self, rows: Sequence[tuple[str, tuple[str, ...], str]], prefixes: Sequence[tuple[int, ...]]
    ) -> FloatArray:
        """Scores (rows, prefixes, 3) of rows of image, references and candidate."""
        groups: dict[tuple[str, tuple[str, ...], tuple[int, ...]], dict[str, None]] = {}
        for (image, references, candidate), numbers in zip(rows, prefixes, strict=True):
            groups.setdefault((image, references, numbers), {})[candidate] = None
        ordered = sorted(groups)
        triplets = self.triplets(self._texts((row[2], row[1]) for row in rows))
        scored = self.source.scores(
            [Group(image, texts, numbers, tuple(groups[image, texts, numbers])) for image, texts, numbers in ordered],
            triplets,
        )
        places = {
            (*key, candidate): scores[:, place]
            for key, scores in zip(ordered, scored, strict=True)
            for place, candidate in enumerate(groups[key])
        }
        return np.stack([places[image, texts, n, text] for (image, texts, text), n in zip(rows, prefixes, strict=True)])

    def sweep(self, sweep: ReferenceSweep, progress: Progress) -> Iterator[FloatArray] | None:
        """(counts, n, 3) for each sample of references; the GRU reads an item's references once for all counts.

        A count of 0 is reference-free.
        """
        return self._sweep(sweep, progress)

    def _sweep(self, sweep: ReferenceSweep, progress: Progress) -> Iterator[FloatArray]:
        work = self._parsing(self._texts((item.candidate, self.chosen(item.references)) for item in sweep.items))
        if work is not None:
            work.run(part_of(progress, self.name, len(work.units), work.unit, work.seconds))
        self.source.store.require([item.image for item in sweep.items])
        at_once = self.batch_size
        for orders in sweep.orders:
            draw = np.empty((len(sweep.counts), len(sweep.items), len(COLUMNS)))
            # Items of an image are adjacent, so that they share their fusion.
            order = sorted(range(len(sweep.items)), key=lambda place: sweep.items[place].image)
            for start in range(0, len(order), at_once):
                places = order[start : start + at_once]
                draw[:, places] = self._swept(sweep, orders, places)
                progress(len(places))
            yield draw

    def _swept(self, sweep: ReferenceSweep, orders: Sequence[Sequence[int]], places: Sequence[int]) -> FloatArray:
        """(counts, places, 3) of one sample of references."""
        counts = np.array(sweep.counts)
        swept = np.empty((len(counts), len(places), len(COLUMNS)))
        rows = []
        for place in places:
            item = sweep.items[place]
            rows.append((item, [item.references[reference] for reference in orders[place]]))
        one_pass = self.options.reference_order == "given" and self.options.references != "none"
        together = np.flatnonzero(counts > 0) if one_pass else np.zeros(0, dtype=np.int64)
        if len(together):
            read = [(item.image, self.chosen(texts), item.candidate) for item, texts in rows]
            numbers = [tuple(min(int(counts[c]), len(texts)) for c in together) for _, texts, _ in read]
            swept[together] = self._scored(read, numbers).transpose(1, 0, 2)
        for step in sorted(set(range(len(counts))) - set(together.tolist())):
            read = [(item.image, self.chosen(texts[: counts[step]]), item.candidate) for item, texts in rows]
            swept[step] = self._scored(read, [(len(texts),) for _, texts, _ in read])[:, 0]
        return swept

    def matrix(
        self,
        images: Sequence[str],
        captions: Sequence[str],
        references: Mapping[str, Sequence[str]],
        column: str,
        progress: Progress,
    ) -> FloatArray:
        """(n, m) scores of a column; each image is fused with its references once for all captions."""
        self.store.require(images)
        chosen = {image: self.chosen(references.get(image, ())) for image in images}
        of_images = chosen.values() if self.source.reads_references else ()
        texts = {*captions, *(text for of_image in of_images for text in of_image)}
        work = self._parsing(texts)
        if work is not None:
            work.run(part_of(progress, self.name, len(work.units), work.unit, work.seconds))
        place = self.columns.index(column)
        scores = self.source.matrix(chosen, list(captions), self.triplets(texts), place, progress)
        rows = {image: row for row, image in enumerate(chosen)}
        return scores[[rows[image] for image in images]]

    def region_words(self, image: str, candidate: str, references: Sequence[str]) -> list[tuple[list[str], FloatArray]]:
        """Words and their products (words, regions) of the candidate, with union nodes, and of each reference, with
        the image's nodes; means over the networks of an ensemble. Raises UsageError for AIEr, which reads no images.
        """
        _require_images(self.source)
        chosen = self.chosen(references)
        triplets = self.triplets({candidate, *chosen})
        (levels,) = self.source.products(Group(image, chosen, (len(chosen),), (candidate,)), triplets)
        image_alone = self.source.products(Group(image, (), (), tuple(references)), triplets, fused=False)
        products = [np.mean(of_text[0], axis=0) for of_text in (levels, *image_alone)]
        return [(words_of(self.source, t), p) for t, p in zip((candidate, *references), products, strict=True)]

    def explain(self, subject: Subject) -> Explanation:
        """See :func:`explain_faier`."""
        return explain_faier(self, self.source, subject, chosen=self.chosen, triplets_of=self.triplets)


@dataclass(frozen=True, eq=False)
class MatchedNodes:
    """The nodes of one level of a candidate, matched with the regions of its image.

    Attributes:
        names: (k) the words or triplets.
        products: (k, n) products of each node with each region's union node; means over the networks of an ensemble.
        regions: (k,) index of the region with a node's highest product; the first of equal ones.
        added: (k,) the node's highest product; the level's score is the mean of these. For an ensemble, the mean of the
            networks' highest products.
    """

    names: tuple[str, ...]
    products: FloatArray
    regions: IntArray
    added: FloatArray


def _require_images(source: FaierSource) -> None:
    if not source.models[0].options.sees_images:
        raise UsageError(
            "reads only references, so that there are no regions to show",
            code="unsupported",
            value=source.models[0].options.variant,
            path=source.models[0].path,
            hint="Use a model of another variant",
        )


def explain_faier(
    metric: ImageMetric,
    source: FaierSource,
    subject: Subject,
    *,
    chosen: Callable[[Sequence[str]], tuple[str, ...]],
    triplets_of: Callable[[Collection[str]], dict[str, tuple[Triplet, ...]]],
) -> Explanation:
    """Explanation of FAIEr's scores of one image's candidates.

    Args:
        metric: FAIEr with its options.
        source: its networks and features.
        subject: candidates, with or without references.
        chosen: returns the references that the metric reads.
        triplets_of: returns the triplets of captions.

    Raises:
        UsageError: the model's variant is AIEr, which reads no images.
        FeatureError: the store does not contain the image.
        ToolError: a caption has no cached parse, and SPICE's parser is not set up or failed.
    """
    _require_images(source)
    regions = regions_of(source.store, subject.image)
    statistics = metric.statistics(subject.items, lambda _: None)
    scores = metric.scores(statistics)
    texts = [text for item in subject.items for text in (item.candidate, *chosen(item.references))]
    triplets = triplets_of(texts)
    explained = []
    for row, (item, human) in enumerate(zip(subject.items, subject.humans, strict=True)):
        read = chosen(item.references)
        group = Group(subject.image, read, (len(read),), (item.candidate,))
        (levels,) = source.products(group, triplets)
        panels, notes = _level("word", _matched(words_of(source, item.candidate), levels[0]), regions.names)
        if levels[1:]:
            nodes = _matched([" ".join(t) for t in triplets.get(item.candidate, ())], levels[1])
            of_triplets, notes = _level("triplet", nodes, regions.names)
            rows = [(text, *t) for text in dict.fromkeys((item.candidate, *read)) for t in triplets.get(text, ())]
            heads = ("caption", "subject", "relation", "object")
            panels += [*of_triplets, Table("Triplets of candidate and references", heads, tuple(rows))]
        of_item = {column: float(values[row]) for column, values in scores.items()}
        explained.append(
            ExplainedCandidate(item.candidate, item.references, human, of_item, tuple(panels), tuple(notes))
        )
    notes = list(unknown_words([model.vocabulary for model in source.models], texts))
    if len(source.models) > 1:
        notes.append(f"products are means over {len(source.models)} networks, each with its own best regions")
    title = metric.titles["faier"]
    return Explanation(title, subject.image, tuple(explained), metric.signature(), regions, notes=tuple(notes))


def words_of(source: FaierSource, text: str) -> list[str]:
    """The words of a caption that are nodes of the object level."""
    tokens = tokenize_caption(text)
    counted = source.models[0].options.ends == "counted"
    return [SPECIAL[1], *tokens, SPECIAL[2]] if counted else tokens


def _matched(names: Sequence[str], products: Sequence[FloatArray]) -> MatchedNodes:
    mean = np.mean(products, axis=0)
    added = np.mean([of_network.max(axis=1) for of_network in products], axis=0)
    return MatchedNodes(tuple(names), mean, mean.argmax(axis=1), added)


def _level(kind: str, nodes: MatchedNodes, names: Sequence[str]) -> tuple[list[Panel], list[str]]:
    """Panels and notes of one level: each node's best region and contribution. ``kind`` is "word" or "triplet"."""
    if not nodes.names:
        return [], [f"The candidate has no {kind}s: this level's score is 0."]
    columns = list(dict.fromkeys(nodes.regions.tolist()))
    marked = tuple((row, columns.index(region)) for row, region in enumerate(nodes.regions.tolist()))
    best = tuple(names[region] for region in columns)
    title = f"Products of {kind}s and the best regions of all {kind}s"
    return [
        RegionMaps(f"Best region of each {kind}", nodes.names, nodes.products),
        Bars(f"Contribution of each {kind} (mean: {nodes.added.mean():.4f})", nodes.names, nodes.added),
        Matrix(title, nodes.names, best, nodes.products[:, columns], marked),
    ], []
