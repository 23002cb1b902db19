"""Steps of recipes that analyse disagreement with human ratings: by image, by rating, by caption."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from capbench.core.files import atomic_write
from capbench.core.records import FloatArray, IntArray, Judgements
from capbench.studies.recipe import LeftOut, Planning, Product, Run
from capbench.studies.recipe_file import Step
from capbench.studies.recipe_scores import Rated, Values, rated, read_scores, rows_of, write_json

__all__ = [
    "AnalyseStep",
    "FaierWordsStep",
    "by_rating",
    "columns_by_image",
    "image_means",
    "kind_of_image",
    "residuals",
    "share_between",
]


def image_means(values: FloatArray, codes: IntArray) -> FloatArray:
    """(images,) mean of the values of each image."""
    return np.asarray(np.bincount(codes, values) / np.bincount(codes), dtype=np.float64)


def share_between(values: FloatArray, codes: IntArray) -> float:
    """Share of the variance between images: variance of the image means divided by the variance of the values."""
    return float(np.var(image_means(values, codes)[codes]) / np.var(values))


def columns_by_image(
    scores: Mapping[str, FloatArray], codes: IntArray, human: FloatArray
) -> dict[str, dict[str, float]]:
    """Agreement of each column between images, and between the candidates of one image.

    Args:
        scores: (n,) scores by column.
        codes: (n,) number of each item's image.
        human: (n,) mean rating of each item.
    """
    from capbench.stats.correlation import correlation

    of_images = image_means(human, codes)
    return {
        name: {
            "share between images": share_between(values, codes),
            "tau-b between images": correlation("tau-b", image_means(values, codes), of_images).value,
            "tau-b within images": correlation(
                "tau-b", values - image_means(values, codes)[codes], np.round(human - of_images[codes], 9)
            ).value,
        }
        for name, values in scores.items()
    }


def by_rating(scores: Mapping[str, FloatArray], item: IntArray, rating: FloatArray) -> dict[str, dict[str, float]]:
    """Mean score of the ratings of each value (TIGEr's Figure 4), and the steps in standard deviations of the score.

    Args:
        scores: (items,) scores by column.
        item: (n,) item of each rating.
        rating: (n,) value of each rating.
    """
    rows = {}
    for name, values in scores.items():
        means = {f"{value:g}": float(values[item[rating == value]].mean()) for value in np.unique(rating)}
        levels = list(means.values())
        spread = float(values[item].std())
        steps = {f"step to {k}": (b - a) / spread for k, a, b in zip(list(means)[1:], levels, levels[1:], strict=False)}
        rows[name] = means | steps
    return rows


def residuals(score: FloatArray, human: FloatArray, facts: Mapping[str, FloatArray]) -> dict[str, float]:
    """Spearman's rho of facts about candidates with (rank of the score - rank of the rating): overrated candidates."""
    from scipy.stats import rankdata

    from capbench.stats.correlation import correlation

    surplus = rankdata(score) - rankdata(human)
    return {name: correlation("spearman", values, surplus).value for name, values in facts.items()}


_IMAGE_WORDS = {
    "dog": {"dog", "dogs", "puppy", "puppies"},
    "people": {"man", "men", "woman", "women", "boy", "boys", "girl", "girls", "child", "children", "person", "people"},
}
IMAGE_KINDS = (*_IMAGE_WORDS, "other")


def kind_of_image(references: Sequence[str]) -> str:
    """``dog``, ``people`` or ``other``: the first of these kinds that most of an image's captions name."""
    texts = [set(text.lower().replace(".", " ").split()) for text in references]
    for kind, words in _IMAGE_WORDS.items():
        if 2 * sum(bool(words & text) for text in texts) > len(texts):
            return kind
    return "other"


class AnalyseStep(Step):
    """Agreement of scores with ratings: between and within images, by rating, length, kind of image and triplets."""

    kind: ClassVar[str] = "analyse"
    judgements: str = Field(alias="analyse")
    values: list[Values]
    triplets: str
    optional: bool = False

    def plan(self, name: str, planning: Planning) -> None:
        """See :meth:`Step.plan`."""
        protocol, _ = planning.judged(self.judgements, optional=self.optional)
        by_entry: list[tuple[Values, list[Product]]] = []
        for entry in self.values:
            with suppress(LeftOut):
                by_entry.append((entry, entry.chosen(planning)))
        triplets = planning.one(self.triplets)
        made = Product(planning.out / "evaluations" / f"{name}.json")
        settings = {**self.as_json(), "protocol": str(protocol), "judgements": planning.fingerprint(self.judgements)}
        inputs = dict.fromkeys([product.path for _, products in by_entry for product in products] + [triplets])

        def work(_: Run) -> None:
            columns = {row.name: row.networks[0][0] for entry, chosen in by_entry for row in rows_of(entry, chosen)}
            counts = read_scores(triplets)["number of triplets"][0]
            write_json(made.path, analysed(rated(planning, self.judgements)[0], columns, counts))

        planning.add(name, self.kind, settings, [*inputs], [made], work)


def analysed(data: Rated, columns: Mapping[str, FloatArray], triplets: FloatArray) -> dict[str, Any]:
    """All numbers of one data set.

    Args:
        data: items and ratings.
        columns: (items,) scores by name.
        triplets: (items,) number of triplets of each candidate.
    """
    human = data.mean()
    _, codes = np.unique(np.array([item.image for item in data.items]), return_inverse=True)
    words = np.array([len(item.candidate.split()) for item in data.items], dtype=np.float64)
    kinds = np.array([kind_of_image(item.references) for item in data.items])

    def tau_c_among(chosen: NDArray[np.bool_]) -> dict[str, float]:
        """tau-c with the ratings of some items; columns that are constant on these items are left out."""
        few = chosen[data.item]
        among = Rated(data.items, data.item[few], data.value[few], data.protocol)
        return {
            name: among.correlation("tau-c", values)
            for name, values in columns.items()
            if np.ptp(values[among.item]) > 0
        }

    return {
        "protocol": data.protocol,
        "tau-c": {name: data.correlation("tau-c", values) for name, values in columns.items()},
        "by image": columns_by_image(columns, codes, human),
        "by rating": by_rating(columns, data.item, data.value),
        "overrated with length": {n: residuals(v, human, {"words": words})["words"] for n, v in columns.items()},
        "captions": {"no triplet": int((triplets == 0).sum()), "triplets": int((triplets > 0).sum())},
        "tau-c by triplets": {"no triplet": tau_c_among(triplets == 0), "triplets": tau_c_among(triplets > 0)},
        "images": {
            kind: len({i.image for i, k in zip(data.items, kinds, strict=True) if k == kind}) for kind in IMAGE_KINDS
        },
        "tau-c by image": {kind: tau_c_among(kinds == kind) for kind in IMAGE_KINDS},
    }


_FUNCTION_WORDS = """a an the and or of in on at to by with from for over through into onto up down out off near around
behind front is are was be being been has have as it its his her their he she they this that there while who which . ,
"""
FUNCTION_WORDS = frozenset(_FUNCTION_WORDS.split())


class FaierWordsStep(Step):
    """FAIEr's object level over content words and over function words, the worst content word, and triplets."""

    kind: ClassVar[str] = "faier-words"
    judgements: str = Field(alias="faier-words")
    features: str
    model: str
    optional: bool = False

    def plan(self, name: str, planning: Planning) -> None:
        """See :meth:`Step.plan`."""
        protocol, draws = planning.judged(self.judgements, optional=self.optional)
        features, model = planning.one(self.features), planning.one(self.model)
        fields = {"metric": "faier-words", "titles": {}, "protocol": str(protocol)}
        made = Product(planning.out / "scores" / f"{name}.npz", fields)
        settings = {"protocol": str(protocol), "judgements": planning.fingerprint(self.judgements)}
        work = partial(_faier_words, draws[0], features, model, planning.root.path, made.path)
        planning.add(name, self.kind, settings, [features, model], [made], work)


def _faier_words(judged: Judgements, features: Path, model: Path, data: Path, file: Path, run: Run) -> None:
    from capbench.metrics.base import Resources
    from capbench.metrics.faier.explain import words_of
    from capbench.metrics.faier.metric import Faier
    from capbench.metrics.faier.source import Group

    metric = Faier(Resources(features=str(features), model=str(model), data=str(data)))
    groups: dict[tuple[str, tuple[str, ...]], dict[str, None]] = {}
    for item in judged.items:
        groups.setdefault((item.image, metric.chosen(item.references)), {})[item.candidate] = None
    triplets = metric.triplets(
        {t for (_, references), candidates in groups.items() for t in (*references, *candidates)}
    )
    found: dict[tuple[str, tuple[str, ...], str], tuple[float, float, float]] = {}
    with run.bars("words of captions", len(groups)) as progress:
        for (image, references), candidates in groups.items():
            group = Group(image, references, (len(references),), tuple(candidates))
            for text, levels in zip(candidates, metric.source.products(group, triplets), strict=True):
                best = np.mean([products.max(axis=1) for products in levels[0]], axis=0)
                is_function = np.array([word in FUNCTION_WORDS for word in words_of(metric.source, text)], dtype=bool)
                content, others = best[~is_function], best[is_function]
                found[image, references, text] = (
                    float(content.mean()) if len(content) else 0.0,
                    float(others.mean()) if len(others) else 0.0,
                    float(content.min()) if len(content) else 0.0,
                )
            progress(1)
    keys = [(item.image, metric.chosen(item.references), item.candidate) for item in judged.items]
    columns = np.array([found[key] for key in keys]).T
    names = ("objects, content words", "objects, other words", "objects, the worst content word")
    number = np.array([len(triplets.get(item.candidate, ())) for item in judged.items], dtype=np.float64)
    arrays: dict[str, Any] = {f"0/{name}": column for name, column in zip(names, columns, strict=True)}
    arrays["0/number of triplets"] = number
    with atomic_write(file, "wb") as stream:
        np.savez(stream, **arrays)
