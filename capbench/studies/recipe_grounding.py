"""Steps of recipes on grounding models, and analyses of disagreement with human ratings.

Merged networks, REO's covariance, recall, TIGEr with all options; disagreement by image, by rating and by caption.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from capbench.core.records import FloatArray, IntArray, Item, Judgements, image_id
from capbench.stats.pairwise_accuracy import aggregate
from capbench.stats.ties import is_constant, merged
from capbench.studies.recipe import LeftOut, Planning, Product, Run, Step, groups
from capbench.studies.recipe_scores import Rated, Values, rated, read_scores, rows_of, write_json, write_scores

_MAIN = ("tiger", "rrs", "wds", "grounding")
_TAUS = (0.5, 1.5, 3.0)


class MergeStep(Step):
    """Grounding models merged in groups of several seeds, one network for each group."""

    kind: ClassVar[str] = "merge"
    networks: str = Field(alias="merge")
    of: int = 3

    def plan(self, name: str, planning: Planning) -> None:
        """See :meth:`Step.plan`."""
        for number, group in enumerate(groups(planning.products(self.networks), self.of), 1):
            folder, parts = f"merged{number}", [product.path for product in group]
            made = Product(planning.out / folder / "model.safetensors", {"network": folder})
            planning.add(f"{name}/{folder}", self.kind, {}, parts, [made], partial(_merge, parts, made.path))


def _merge(parts: Sequence[Path], target: Path, _: Run) -> None:
    from capbench.metrics.grounding.scan_files import load_scan, merge_scan, merged_facts, save_scan

    loaded = [load_scan(path) for path in parts]
    save_scan(target, merge_scan(loaded), loaded[0].vocabulary, merged_facts(loaded))


class CovarianceStep(Step):
    """REO's covariance of contexts, next to each network, fitted on captions of listed images."""

    kind: ClassVar[str] = "covariance"
    networks: list[str] = Field(alias="covariance")
    features: str
    captions: str
    images: str

    def plan(self, name: str, planning: Planning) -> None:
        """See :meth:`Step.plan`."""
        from capbench.metrics.reo.metric import default_path

        features, listed = planning.one(self.features), planning.root.file(self.images)
        for network in (network for step in self.networks for network in planning.products(step)):
            made = Product(default_path(network.path), network.fields)
            planning.add(
                f"{name}/{network.fields['network']}",
                self.kind,
                {"captions": self.captions, "images": self.images},
                [network.path, features, listed, *planning.data],
                [made],
                partial(self._fit, network.path, features, listed, made.path),
            )

    def _fit(self, model: Path, features: Path, listed: Path, target: Path, run: Run) -> None:
        from capbench.core.files import read_text
        from capbench.datasets.captions import load_captions
        from capbench.metrics.grounding.grounding import Attention, open_source
        from capbench.metrics.reo.metric import fit_covariance, write_covariance

        every = load_captions(self.captions, run.root)
        captions = {image_id(name): every[image_id(name)] for name in read_text(listed).split()}
        source = open_source(str(features), str(model))
        attention = Attention(source.model.options.lambda_softmax, source.model.options.feature_norm)
        with run.bars("fitting the covariance", len(captions)) as progress:
            covariance = fit_covariance(source, captions, attention, corpus=self.images, progress=progress)
        write_covariance(target, covariance)


class RecallStep(Step):
    """Recall of the first networks of a step on a split, by network, in one JSON file."""

    kind: ClassVar[str] = "recall"
    networks: str = Field(alias="recall")
    config: str
    features: str
    split: str = "test"
    first: int = 3

    def plan(self, name: str, planning: Planning) -> None:
        """See :meth:`Step.plan`."""
        features, networks = planning.one(self.features), planning.products(self.networks)[: self.first]
        made = Product(planning.out / "evaluations" / f"{name}.json")
        inputs = [*(network.path for network in networks), features, *planning.data]
        work = partial(self._measure, networks, features, made.path)
        planning.add(name, self.kind, {"config": self.config, "split": self.split}, inputs, [made], work)

    def _measure(self, networks: Sequence[Product], features: Path, file: Path, run: Run) -> None:
        from capbench.metrics.grounding.scan_files import load_scan
        from capbench.metrics.grounding.training import ScanTraining
        from capbench.training.matching_task import evaluate_words
        from capbench.training.settings import find_training, load_training

        settings = load_training(ScanTraining, find_training(self.config), [f"features={str(features)!r}"])
        recalls = {
            str(network.fields["network"]): evaluate_words(
                settings, load_scan(network.path), self.split, run.root
            ).to_dict()
            for network in networks
        }
        write_json(file, recalls)


class TigerOptionsStep(Step):
    """TIGEr's columns with every mapping of D_rel and every τ, for each network of a step."""

    kind: ClassVar[str] = "tiger-options"
    judgements: str = Field(alias="tiger-options")
    features: str
    model: str
    optional: bool = False

    def plan(self, name: str, planning: Planning) -> None:
        """See :meth:`Step.plan`."""
        protocol, draws = planning.judged(self.judgements, optional=self.optional)
        features = planning.one(self.features)
        settings = {"protocol": str(protocol), "judgements": planning.fingerprint(self.judgements), "signed": True}
        for network in planning.products(self.model):
            fields = {**network.fields, "metric": "tiger", "titles": {}, "protocol": str(protocol)}
            made = Product(planning.out / "scores" / name / f"{network.fields['network']}.npz", fields)
            work = partial(_tiger_options, draws[0].items, features, network.path, made.path)
            part = f"{name}/{network.fields['network']}"
            planning.add(part, self.kind, settings, [features, network.path], [made], work)


def _tiger_options(items: Sequence[Item], features: Path, model: Path, file: Path, run: Run) -> None:
    statistics, signature = statistics_of(items, features, model, run)
    write_scores(file, {f"0/{name}": values for name, values in all_options(statistics).items()}, [signature])


def statistics_of(items: Sequence[Item], features: Path, model: Path, run: Run) -> tuple[dict[str, FloatArray], str]:
    """Statistics behind TIGEr's scores with one model, by name, (n,) each, and TIGEr's signature. Uses the cache."""
    from capbench.metrics.grounding.grounding import STATISTICS
    from capbench.metrics.needs import Resources
    from capbench.metrics.requests import resolve_metrics
    from capbench.metrics.scoring import score_for_resampling

    given = Resources(features=str(features), model=str(model), data=str(run.root.path))
    requests = resolve_metrics(["tiger"], {}, given)
    with run.bars("scoring tiger", len(items)) as progress:
        table, kept = score_for_resampling(items, requests, given, dataset="recipe", progress=progress)
    label = requests[0].label
    return dict(zip(STATISTICS, kept[label].rows.T, strict=True)), table.signatures[label]


def all_options(statistics: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
    """TIGEr's default columns, and those with every mapping of D_rel and every τ: ``tiger half τ=0.5``.

    Args:
        statistics: (n,) values of each of :data:`capbench.metrics.grounding.grounding.STATISTICS`.
    """
    from capbench.metrics.grounding.grounding import D_RELS, d_rel, wds

    rrs, kl = statistics["rrs"], statistics["kl"]
    named = {"rrs": rrs, "grounding": statistics["grounding"]}
    distances = {
        mapping: kl + d_rel(statistics[f"norm_reference_{mapping}"], statistics[f"norm_candidate_{mapping}"])
        for mapping in D_RELS
    }
    for mapping, distance in distances.items():
        for tau in _TAUS:
            named[f"wds {mapping} τ={tau:g}"] = weights = wds(distance, tau)
            named[f"tiger {mapping} τ={tau:g}"] = (rrs + weights) / 2
    named["wds"], named["tiger"] = named["wds released τ=1.5"], named["tiger released τ=1.5"]
    # Without D_rel, only distributions are compared.
    named["wds without D_rel"] = wds(kl, 1.5)
    named["tiger without D_rel"] = (rrs + named["wds without D_rel"]) / 2
    return named


class GroundingAnalysisStep(Step):
    """TIGEr by image and by rating next to other metrics, and the parts of its distance; of the first networks."""

    kind: ClassVar[str] = "grounding-analysis"
    judgements: str = Field(alias="grounding-analysis")
    tiger: str
    chosen: list[str] = Field([])
    networks: str
    features: str
    others: list[str] = Field([])
    first: int = 3
    optional: bool = False

    def plan(self, name: str, planning: Planning) -> None:
        """See :meth:`Step.plan`."""
        planning.judged(self.judgements, optional=self.optional)
        features = planning.one(self.features)
        networks, tiger = (planning.products(step)[: self.first] for step in (self.networks, self.tiger))
        others: list[Product] = []
        for step in self.others:
            try:
                products = planning.products(step)
            except LeftOut:
                continue
            # one product for each metric: that of its first network
            others += {product.fields["metric"]: product for product in reversed(products)}.values()
        made = Product(planning.out / "evaluations" / f"{name}.json")
        inputs = [features, *(product.path for product in (*networks, *tiger, *others))]
        settings = {**self.as_json(), "judgements": planning.fingerprint(self.judgements)}

        def work(run: Run) -> None:
            data = rated(planning, self.judgements)[0]
            write_json(made.path, self._analyse(data, features, networks, tiger, others, run))

        planning.add(name, self.kind, settings, inputs, [made], work)

    def _analyse(
        self,
        data: Rated,
        features: Path,
        networks: Sequence[Product],
        tiger: Sequence[Product],
        others: Sequence[Product],
        run: Run,
    ) -> dict[str, Any]:
        named = [
            {name: draws[0] for name, draws in read_scores(product.path).items() if name in (*_MAIN, *self.chosen)}
            for product in tiger
        ]
        named = [{name: columns[name] for name in (*_MAIN, *self.chosen)} for columns in named]
        statistics = [statistics_of(data.items, features, product.path, run)[0] for product in networks]
        more = {
            str(product.fields["titles"].get(name, name)) if product.fields.get("network") is None else name: draws[0]
            for product in others
            for name, draws in read_scores(product.path).items()
            if "image" not in name
        }
        images, human = [item.image for item in data.items], data.mean()
        shown = named[0] | more
        words = np.array([len(item.candidate.split()) for item in data.items], dtype=np.float64)
        return {
            "by image": [by_image(*one, images, human) for one in zip(named, statistics, strict=True)],
            "by image, others": columns_by_image(more, _codes(images), human),
            "by rating": by_rating(shown, data.item, data.value),
            "parts of the distance": [parts_of_distance(one, human) for one in statistics],
            "overrated with length": {n: residuals(v, human, {"words": words})["words"] for n, v in shown.items()},
        }


def _codes(images: Sequence[str]) -> Any:
    return np.unique(np.array(images), return_inverse=True)[1]


def by_image(
    scores: Mapping[str, FloatArray], statistics: Mapping[str, FloatArray], images: Sequence[str], human: FloatArray
) -> dict[str, Any]:
    """Between and within images: variance and agreement of scores, and correlates of the references' level.

    Args:
        scores: (n,) scores by column.
        statistics: (n,) values by name, including lengths of grounding vectors.
        images: (n,) ids.
        human: (n,) mean rating of each item.

    Returns:
        For each column the share of its variance between images, tau-b of image means with mean ratings, and tau-b of
        scores and ratings after subtracting the image's mean from both; and correlations of the references' level.
    """
    from capbench.stats.correlation import correlation

    codes = _codes(images)
    ratings = image_means(human, codes)
    level = image_means(statistics["norm_reference_released"], codes)
    candidates = image_means(statistics["norm_candidate_released"], codes)
    return {
        "images": len(ratings),
        "columns": columns_by_image(scores, codes, human),
        "share of people's variance between images": float(np.var(ratings[codes]) / np.var(human)),
        "references' level with mean rating (Pearson)": correlation("pearson", level, ratings).value,
        "references' level with mean rating (Spearman)": correlation("spearman", level, ratings).value,
        "references' level with candidates' mean level (Pearson)": correlation("pearson", level, candidates).value,
    }


def parts_of_distance(statistics: Mapping[str, FloatArray], human: FloatArray) -> dict[str, float]:
    """tau-b with mean ratings of the parts of D = KL + ln‖reference‖ - ln‖candidate‖, one by one.

    Signs are reversed where lower is better, except for the references' level, whose higher values lower the score by
    the formula.
    """
    from capbench.stats.correlation import correlation

    candidate = np.log(statistics["norm_candidate_released"])
    reference = np.log(statistics["norm_reference_released"])
    parts = {
        "-KL": -statistics["kl"],
        "ln‖candidate‖": candidate,
        "-ln‖reference‖": -reference,
        "ln‖reference‖ (not turned)": reference,
        "-D_rel": candidate - reference,
        "ln‖candidate‖ + ln‖reference‖": candidate + reference,
    }
    return {name: correlation("tau-b", values, human).value for name, values in parts.items()}


def image_means(values: FloatArray, codes: IntArray) -> FloatArray:
    """(images,) mean of the values of each image."""
    return aggregate(codes, values, "mean")[1]


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

    def within(values: FloatArray) -> FloatArray:
        means = image_means(values, codes)[codes]
        return merged(values - means, np.maximum(np.abs(values), np.abs(means)))

    of_images = image_means(human, codes)
    return {
        name: {
            "share between images": share_between(values, codes),
            "tau-b between images": correlation("tau-b", image_means(values, codes), of_images).value,
            "tau-b within images": correlation("tau-b", within(values), within(human)).value,
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

    surplus = rankdata(merged(score)) - rankdata(human)
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
            if not is_constant(values[among.item])
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
        settings = {"protocol": str(protocol), "judgements": planning.fingerprint(self.judgements), "signed": True}
        work = partial(_faier_words, draws[0], features, model, planning.root.path, made.path)
        planning.add(name, self.kind, settings, [features, model], [made], work)


def _faier_words(judged: Judgements, features: Path, model: Path, data: Path, file: Path, run: Run) -> None:
    from capbench.metrics.faier.metric import Faier, words_of
    from capbench.metrics.faier.source import Group
    from capbench.metrics.needs import Resources

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
    arrays = {f"0/{name}": column for name, column in zip(names, columns, strict=True)}
    write_scores(file, {**arrays, "0/number of triplets": number}, [metric.signature()])
