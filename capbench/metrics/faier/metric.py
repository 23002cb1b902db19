"""FAIEr: match of a candidate with a scene graph fused from image and references (Wang et al., CVPR 2021)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from capbench.core.errors import ModelError, UsageError
from capbench.core.explanations import Bars, ExplainedCandidate, Explanation, Panel, RegionMaps, Subject, Table
from capbench.core.options import Choice, Flag, option
from capbench.core.progress import Progress, SlowWork
from capbench.core.records import FloatArray, Item
from capbench.features.class_names import regions_of
from capbench.metrics.abilities import ReferenceSweep
from capbench.metrics.image_metric import (
    ImageMetric,
    ImageOptions,
    check_features,
    loaded_networks,
    signed_together,
    unknown_words,
)
from capbench.metrics.needs import Features, Parser, References, Resources, Weights
from capbench.metrics.spice import parsing
from capbench.text import ptb
from capbench.text.spice import scene_graph
from capbench.text.spice.parser import SPICE_PARSER_VERSION
from capbench.text.spice.scene_graph import Triplet
from capbench.text.vocabulary import tokenize_caption
from capbench.weights.arrays import read_metadata
from capbench.weights.ensembles import check_together, network_files


@dataclass(frozen=True)
class FaierOptions(ImageOptions):
    """Options of FAIEr. Those of the network are in its file."""

    references: str = option(
        "all",
        Choice("all", "none"),
        "references that the metric reads; none: reference-free, even if there are references",
        sign_as="refs",
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

    name = "faier"
    columns = ("faier", "faier-object", "faier-relation")
    titles: ClassVar[Mapping[str, str]] = {
        "faier": "FAIEr",
        "faier-object": "FAIEr objects",
        "faier-relation": "FAIEr relations",
    }
    citation = "Wang et al., FAIEr: fidelity and adequacy ensured image caption evaluation, CVPR 2021"
    packages = ("torch",)
    needs = (
        References(),
        Features(),
        Weights("a FAIEr model", "capbench train faier", "faier"),
        Parser(),
    )

    option_type = FaierOptions
    options: FaierOptions

    def __init__(self, resources: Resources | None = None, **options: Any) -> None:
        super().__init__(resources, **options)
        from capbench.metrics.faier.encode import Encoder
        from capbench.metrics.faier.network import FaierModel, boxes_missing

        models = loaded_networks(str(self.resources.model), self.name, FaierModel.load)
        if len(models) > 1:
            check_together(models)
        self.network = models[0].options  # all networks of an ensemble have the same variant
        for model in models if self.network.sees_images else ():
            check_features(model, self.store, model.options.image_dim, self.options.any_features)
        if self.network.sees_images and self.network.relations and not self.store.header.boxes:
            raise boxes_missing(self.store.paths[0])
        self.encoders = [Encoder(model, self.store) for model in models]

    @classmethod
    def reference_free(cls) -> frozenset[str]:
        return frozenset(cls.columns)

    @classmethod
    def ignores_references(cls, options: Mapping[str, Any] | None = None) -> frozenset[str]:
        chosen = cls.option_type.read(cls.name, options or {})
        return frozenset(cls.columns) if chosen.references == "none" else frozenset()

    @classmethod
    def offered(cls, resources: Resources) -> tuple[str, ...]:
        """All columns, or only the first if the model has no relation level."""
        if resources.model is None:
            return cls.columns
        try:
            options = json.loads((read_metadata(network_files(resources.model)[0]) or {}).get("options", "{}"))
        except (ModelError, ValueError):  # creating the metric raises the error
            return cls.columns
        return cls.columns[:1] if str(options.get("variant")).endswith("-object") else cls.columns

    @classmethod
    def takes_parses(cls, resources: Resources) -> bool:
        return len(cls.offered(resources)) > 1

    def facts(self) -> Mapping[str, object]:
        parts = {**signed_together([e.model for e in self.encoders]), "features": self.store.signature()}
        return {**parts, "parser": SPICE_PARSER_VERSION, "tok": ptb.VERSION} if self.network.relations else parts

    def chosen(self, references: Sequence[str]) -> tuple[str, ...]:
        """The references that the network reads, in its order; "." if there are none, as in the paper."""
        if not self.network.reads_references:
            return ()
        return tuple(references if self.options.references == "all" else ()) or (".",)

    def _texts(self, items: Iterable[Item]) -> set[str]:
        return {text for item in items for text in (item.candidate, *self.chosen(item.references))}

    def slow_work(self, items: Sequence[Item]) -> SlowWork | None:
        if not self.network.relations:
            return None
        return parsing(ptb.tokenize(sorted(self._texts(items))), self.resources.data)

    def triplets(self, texts: Iterable[str], progress: Progress | None = None) -> dict[str, tuple[Triplet, ...]]:
        """Triplets by caption; empty without a relation level."""
        if not self.network.relations:
            return {}
        ordered = sorted({*texts} - {"."})
        work = parsing(ptb.tokenize(ordered), self.resources.data) if progress else None
        if progress and work:
            work.run_in(progress, self.name)
        return dict(zip(ordered, scene_graph.triplets(ordered, data=self.resources.data), strict=True))

    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        """(n, 3): S, S^o and S^r."""
        most = max(len(item.references) for item in items)
        (statistics,) = self._scored(items, [most], self.triplets(self._texts(items)), progress)
        return np.asarray(statistics)

    def sweep(self, sweep: ReferenceSweep, progress: Progress) -> Iterator[FloatArray]:
        """(counts, n, 3) for each sample of references."""
        triplets = self.triplets(self._texts(sweep.items), progress)
        for draw in range(len(sweep.orders)):
            yield self._scored(sweep.subset(draw, max(sweep.counts)), sweep.counts, triplets, progress)

    def matrix(self, items: Sequence[Item], progress: Progress) -> dict[str, FloatArray]:
        chosen, captions = {item.image: self.chosen(item.references) for item in items}, [it.candidate for it in items]
        triplets = self.triplets(self._texts(items), progress)
        networks = [encoder.matrix(chosen, captions, triplets) for encoder in self.encoders]
        scores = []
        for of_networks in zip(*networks, strict=True):
            scores.append(np.mean(of_networks, axis=0))
            progress(len(items))
        return dict(zip(self.columns, np.moveaxis(np.stack(scores), 2, 0), strict=True))

    def _scored(
        self,
        items: Sequence[Item],
        counts: Sequence[int],
        triplets: Mapping[str, tuple[Triplet, ...]],
        progress: Progress,
    ) -> FloatArray:
        """(counts, n, 3) scores with the first references of each item; the GRU reads them once for all counts."""
        scored = np.empty((len(counts), len(items), 3))
        order = sorted(range(len(items)), key=lambda place: items[place].image)
        for start in range(0, len(order), self.batch_size):
            places = order[start : start + self.batch_size]
            chosen = (items[place] for place in places)
            batch = [Item(i.image, i.candidate, self.chosen(i.references[: max(counts)])) for i in chosen]
            scored[:, places] = np.mean([encoder.scores(batch, counts, triplets) for encoder in self.encoders], axis=0)
            progress(len(places))
        return scored

    def products(self, image: str, candidate: str, references: Sequence[str] | None = None) -> list[FloatArray]:
        """(networks, nodes, regions) products of the candidate's words and triplets with union nodes or the image's."""
        if not self.network.sees_images:
            message, path = "reads only references, so that there are no regions to show", self.encoders[0].model.path
            hint = "Use a model of another variant"
            raise UsageError(message, code="unsupported", value=self.network.variant, path=path, hint=hint)
        item, fused = Item(image, candidate, self.chosen(references or ())), references is not None
        triplets = self.triplets({candidate, *item.references})
        of_networks = [encoder.products(item, triplets, fused=fused) for encoder in self.encoders]
        return [np.stack(of_level) for of_level in zip(*of_networks, strict=True)]

    def explain(self, subject: Subject) -> Explanation:
        """The best region of each word and triplet, and its contribution (Figure 6); means over an ensemble."""
        regions, texts = regions_of(self.store, subject.image), sorted(self._texts(subject.items))
        triplets = self.triplets(texts)
        scores = self.scores(self.statistics(subject.items, lambda _: None))
        explained = []
        for row, (item, human) in enumerate(zip(subject.items, subject.humans, strict=True)):
            names = {"word": tuple(tokenize_caption(item.candidate))}
            if self.network.relations:
                names["triplet"] = tuple(" ".join(triplet) for triplet in triplets.get(item.candidate, ()))
            panels: list[Panel] = []
            for kind, products in zip(names, self.products(item.image, item.candidate, item.references), strict=True):
                added = products.max(2).mean(0)  # of networks' best regions; the level's score is the mean of these
                if names[kind]:
                    title = f"Contribution of each {kind} (mean: {added.mean():.4f})"
                    panels.append(RegionMaps(f"Best region of each {kind}", names[kind], products.mean(0)))
                    panels.append(Bars(title, names[kind], added))
            if self.network.relations:
                read = dict.fromkeys((item.candidate, *self.chosen(item.references)))
                rows = tuple((text, *triplet) for text in read for triplet in triplets.get(text, ()))
                heads = ("caption", "subject", "relation", "object")
                panels.append(Table("Triplets of candidate and references", heads, rows))
            notes = tuple(
                f"The candidate has no {kind}s: this level's score is 0." for kind in names if not names[kind]
            )
            of_item = {column: float(values[row]) for column, values in scores.items()}
            explained.append(ExplainedCandidate(item.candidate, item.references, human, of_item, tuple(panels), notes))
        models = [encoder.model for encoder in self.encoders]
        remarks = unknown_words([model.vocabulary for model in models], texts)
        if len(models) > 1:
            remarks.append(f"products are means over {len(models)} networks, each with its own best regions")
        title = self.titles["faier"]
        return Explanation(title, subject.image, tuple(explained), self.signature(), regions, notes=tuple(remarks))
