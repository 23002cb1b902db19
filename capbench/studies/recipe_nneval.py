"""Steps of recipes on NNEval: word vectors of captions, and networks tested against each of their inputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from capbench.core.records import FloatArray, Item, Judgements, photograph
from capbench.datasets.protocol import Protocol
from capbench.stats.agreement import Accuracies, Agreement, Correlations
from capbench.stats.resampling import observed_value
from capbench.stats.ties import is_constant, order
from capbench.studies.recipe import LeftOut, Planning, Product, Run, Step
from capbench.studies.recipe_scores import stack_networks, write_json

Rows = Mapping[str, Sequence[FloatArray]]
"""Scores of the items by row, one array for each network."""


class VectorsStep(Step):
    """Word vectors of the captions of corpora.

    Attributes:
        corpora: names of the corpora.
        judged: ``left-out`` leaves out the captions of images that a data set of judgements names.
        file: name of the file.
    """

    kind: ClassVar[str] = "vectors"
    corpora: list[str] = Field(alias="vectors")
    judged: Literal["left-out", "included"] = "left-out"
    file: str = "vectors.bin"

    def plan(self, name: str, planning: Planning) -> None:
        """See :meth:`Step.plan`."""
        made = Product(planning.out / self.file)

        def work(run: Run) -> None:
            from capbench.training.word_vectors import WordVectorOptions, train_caption_vectors

            included = self.judged == "included"
            train_caption_vectors(
                self.corpora, made.path, run.root, WordVectorOptions(), run.bars, include_judged=included, say=run.note
            )

        settings = {"corpora": self.corpora, "judged": self.judged}
        planning.add(name, self.kind, settings, planning.data, [made], work)


class NetworkFactsStep(Step):
    """SHA-256 and dev-set numbers of networks, by row."""

    kind: ClassVar[str] = "nneval-facts"
    networks: dict[str, str] = Field(alias="nneval-facts")

    def plan(self, name: str, planning: Planning) -> None:
        """See :meth:`Step.plan`."""
        by_row = _networks(self.networks, planning)
        made = Product(planning.out / "evaluations" / f"{name}.json")

        def work(_: Run) -> None:
            from capbench.metrics.nneval.network import read_nneval

            read = {row: [read_nneval(path) for path in paths] for row, paths in by_row.items()}
            write_json(
                made.path,
                {
                    "weights": {row: [one.sha256[:16] for one in of] for row, of in read.items()},
                    "networks": {row: [dict(one.training.get("dev", {})) for one in of] for row, of in read.items()},
                },
            )

        planning.add(name, self.kind, self.as_json(), [path for of in by_row.values() for path in of], [made], work)


def _networks(steps: Mapping[str, str], planning: Planning) -> dict[str, list[Path]]:
    """Weight files by row, without omitted rows."""
    by_row = {}
    for row, step in steps.items():
        try:
            by_row[row] = [product.path for product in planning.products(step)]
        except LeftOut:
            continue
    return by_row


class InputsStep(Step):
    """Agreement of NNEval's networks and of their inputs with human judgements, and a test of each network and input.

    The correction counts only these pairs.
    """

    kind: ClassVar[str] = "nneval-inputs"
    judgements: str = Field(alias="nneval-inputs")
    networks: dict[str, str]
    tested: list[str]
    vectors: str
    coefficients: list[str] = Field([])
    exclude_images_of: str | None = None
    longest: int = 150
    resamples: int = 1000
    permutations: int = 1000
    optional: bool = False

    def plan(self, name: str, planning: Planning) -> None:
        """See :meth:`Step.plan`."""
        protocol, _ = planning.judged(self.judgements, optional=self.optional)
        vectors, by_row = planning.one(self.vectors), _networks(self.networks, planning)
        made = Product(planning.out / "evaluations" / f"{name}.json")
        settings = {**self.as_json(), "protocol": str(protocol), "judgements": planning.fingerprint(self.judgements)}
        inputs = [vectors, *(path for of in by_row.values() for path in of)]

        def work(run: Run) -> None:
            write_json(made.path, self._report(planning, vectors, by_row, run))

        planning.add(name, self.kind, settings, inputs, [made], work)

    def _report(
        self, planning: Planning, vectors: Path, networks: Mapping[str, Sequence[Path]], run: Run
    ) -> dict[str, Any]:
        from capbench.datasets.opening import open_dataset, split_protocol
        from capbench.metrics.nneval.network import INPUTS, read_nneval

        protocol, (judged, *_) = planning.judged(self.judgements)
        dataset = open_dataset(split_protocol(self.judgements)[0], run.root)
        judged = without_long(judged, self.longest)
        inputs, signatures = _input_scores(judged.items, judged.dataset, vectors, "coco-val", run)
        rows: dict[str, list[FloatArray]] = {name: [column] for name, column in zip(INPUTS, inputs.T, strict=True)}
        rows |= {row: [read_nneval(path).probabilities(inputs) for path in of] for row, of in networks.items()}
        made: dict[str, Any] = {"protocol": protocol.versioned, "items": len(judged.items), "notes": [*judged.notes]}
        made["signatures"] = signatures
        made["values"] = by_network(judged, protocol, rows)
        items = protocol.items.name
        if protocol.statistic.kind == "accuracy":
            made["by group"] = by_group(judged, protocol, rows)
            half = dataset.protocol(f"{items}/{protocol.statistic.name.replace('strict', 'ties-half')}")
            made["ties half"] = by_network(judged, half, rows)
        if self.exclude_images_of is not None:
            _, (other, *_) = planning.judged(self.exclude_images_of)
            rated = {photograph(item.image) for item in other.items}
            free = [photograph(item.image) not in rated for item in judged.items]
            made["items of other images than Expert's"] = sum(free)
            made["without Expert's images"] = by_network(judged, protocol, rows, kept=free)
            groups = [item.group for item in judged.items]
            made["by group"] = {
                group: by_network(judged, protocol, rows, kept=[one == group for one in groups])
                for group in dict.fromkeys(groups)
            }
        if self.coefficients:
            human = protocol.statistic.human
            made["by coefficient"] = {
                coefficient: by_network(judged, dataset.protocol(f"{items}/{human}-{coefficient}"), rows)
                for coefficient in self.coefficients
            }
        shown = {name: rows[name] for name in (*self.tested, *INPUTS) if name in rows}
        return {**made, **against_inputs(judged, protocol, shown, self.resamples, self.permutations)}


def _input_scores(
    items: Sequence[Item], dataset: str, vectors: Path, df: str, run: Run
) -> tuple[FloatArray, dict[str, str]]:
    """(n, 8) inputs of the networks for the items, and the signatures of the metrics. Uses the score cache."""
    from capbench.metrics.needs import Resources
    from capbench.metrics.nneval.metric import input_matrix, input_requests
    from capbench.metrics.scoring import score

    given = Resources(data=str(run.root.path))
    requests = input_requests(str(vectors), df)
    with run.bars("scoring inputs", len(items) * len(requests)) as progress:
        table = score(items, requests, given, dataset=dataset, progress=progress)
    return input_matrix({key.column: values for key, values in table.values.items()}), dict(table.signatures)


def without_long(judged: Judgements, longest: int) -> Judgements:
    """Judgements without longer captions, for which SPICE's parser requires more than 8 GB of memory."""
    from capbench.datasets.opening import keep_items

    places = [
        place
        for place, item in enumerate(judged.items)
        if max(len(text.split()) for text in (item.candidate, *item.references)) <= longest
    ]
    left_out = len(judged.items) - len(places)
    if not left_out:
        return judged
    note = f"{left_out} captions of more than {longest} words are left out, with their pairs"
    return keep_items(judged, np.array(places, dtype=np.int64), judged.dataset, [note])


def agreement_of(judged: Judgements, protocol: Protocol, rows: Rows, kept: Sequence[bool] | None = None) -> Agreement:
    """The statistic of a protocol for some rows; a network's is the mean over its seeds.

    Args:
        judged: the judgements.
        protocol: a protocol with a correlation with single ratings, or with an accuracy.
        rows: scores by row.
        kept: True for the items to use; None for all.
    """
    stacked = stack_networks(rows)
    images = np.array([item.image for item in judged.items])
    within = np.ones(len(images), dtype=bool) if kept is None else np.asarray(kept)
    if protocol.statistic.kind == "correlation":
        ratings = judged.ratings[protocol.statistic.human]
        places = within[ratings.item]
        item = ratings.item[places]
        assert protocol.statistic.coefficient is not None
        return Correlations.of(
            protocol.statistic.coefficient,
            {name: scores[:, item] for name, scores in stacked.items()},
            ratings.value[places],
            unit=images[item],
        )
    pairs = judged.preferences[protocol.statistic.human]
    assert protocol.statistic.ties is not None
    return Accuracies.of(
        protocol.statistic.ties,
        {name: scores[:, pairs.first] for name, scores in stacked.items()},
        {name: scores[:, pairs.second] for name, scores in stacked.items()},
        pairs.preferred,
        groups=pairs.group if any(pairs.group) else None,
        unit=images[pairs.first],
    )


def by_network(
    judged: Judgements, protocol: Protocol, rows: Rows, kept: Sequence[bool] | None = None
) -> dict[str, list[float]]:
    """The statistic of every network of every row; constant scores have the correlation 0."""

    def value(name: str, scores: FloatArray) -> float:
        counted = scores if kept is None else scores[np.asarray(kept)]
        if protocol.statistic.kind == "correlation" and is_constant(counted):
            return 0.0
        alone = agreement_of(judged, protocol, {name: [scores]}, kept)
        return observed_value(alone.statistic(name))

    return {name: [value(name, scores) for scores in of_row] for name, of_row in rows.items()}


def by_group(judged: Judgements, protocol: Protocol, rows: Rows) -> dict[str, dict[str, list[float]]]:
    """The accuracy of every network of every row, by group of pairs."""
    pairs, human = judged.preferences[protocol.statistic.human], protocol.statistic.human
    values: dict[str, dict[str, list[float]]] = {}
    for group in dict.fromkeys(pairs.group):
        mask = np.array([one == group for one in pairs.group])
        of_group = dataclasses.replace(
            pairs,
            first=pairs.first[mask],
            second=pairs.second[mask],
            preferred=pairs.preferred[mask],
            group=("",) * int(mask.sum()),
            votes=pairs.votes[mask],
        )
        values[group] = by_network(dataclasses.replace(judged, preferences={human: of_group}), protocol, rows)
    return values


def against_inputs(
    judged: Judgements, protocol: Protocol, rows: Rows, resamples: int, permutations: int
) -> dict[str, Any]:
    """Intervals of all rows, and Holm-corrected tests of each row that is not an input against each input."""
    from capbench.metrics.nneval.network import INPUTS
    from capbench.stats.intervals import bootstrap_intervals, draw_bootstrap
    from capbench.stats.significance import adjust, compare

    data = agreement_of(judged, protocol, rows)
    sample = draw_bootstrap(data, resamples=resamples, seed=0)
    tests: list[dict[str, Any]] = []
    for row in (name for name in rows if name not in INPUTS):
        for name in INPUTS:
            pair = agreement_of(judged, protocol, {row: rows[row], name: rows[name]})
            (one,) = compare(pair, sample=sample, permutations=permutations).pairs
            sign = 1 if one.better == row else -1
            assert one.low is not None
            assert one.high is not None
            low, high = sorted((sign * one.low, sign * one.high))
            difference = {"difference": sign * one.difference, "low": low, "high": high, "p": one.p_value}
            tests.append({"row": row, "input": name, **difference})
    adjusted = adjust(np.array([test["p"] for test in tests]), "holm") if tests else np.empty(0)
    return {
        "statistic": data.label,
        "units": data.units,
        "intervals": {name: vars(one) for name, one in bootstrap_intervals(data, sample).items()},
        "tests": [{**test, "p_adjusted": p} for test, p in zip(tests, adjusted.tolist(), strict=True)],
        "permutations": permutations,
    }


class HeldOutStep(Step):
    """Shares of pairs of held-out captions that networks and their inputs order correctly.

    The captions are human captions, machine captions, and captions of another image.
    """

    kind: ClassVar[str] = "nneval-held-out"
    networks: dict[str, str] = Field(alias="nneval-held-out")
    config: str
    vectors: str

    def plan(self, name: str, planning: Planning) -> None:
        """See :meth:`Step.plan`."""
        vectors = planning.one(self.vectors)
        models: dict[str, Path] = {}
        for row, step in self.networks.items():
            with suppress(LeftOut):
                products = planning.products(step)
                models |= {
                    f"{row}-seed{product.fields['seed']}" if "seed" in product.fields else row: product.path
                    for product in products
                }
        made = Product(planning.out / f"{name}.json")
        inputs = [vectors, *planning.data, *models.values()]
        work = partial(self._measure, vectors, models, made.path)
        planning.add(name, self.kind, {"config": self.config, "networks": list(models)}, inputs, [made], work)

    def _measure(self, vectors: Path, models: Mapping[str, Path], file: Path, run: Run) -> None:
        from capbench.metrics.nneval.network import INPUTS, read_nneval
        from capbench.metrics.nneval.training import FOREIGN, HUMAN, NNEvalTraining, draw, held_out
        from capbench.training.settings import find_training, load_training

        changes = [f"vectors={str(vectors.resolve())!r}"]
        settings = load_training(NNEvalTraining, find_training(self.config), changes)
        drawn = draw(settings, run.root, None, run.note)
        items = [item for item, kept in zip(drawn.items, held_out(settings, drawn.items), strict=True) if kept]
        inputs, signatures = _input_scores(items, "held-out captions", vectors, settings.df, run)
        levels = np.array([0.0 if i.system == FOREIGN else 2.0 if i.system == HUMAN else 1.0 for i in items])
        images = [item.image for item in items]
        columns = dict(zip(INPUTS, inputs.T, strict=True))
        networks = {row: read_nneval(path) for row, path in models.items()}
        columns |= {row: network.probabilities(inputs) for row, network in networks.items()}
        shares = {row: shares_of_pairs(scores, levels, images) for row, scores in columns.items()}
        sums = {row: network.sha256 for row, network in networks.items()}
        write_json(file, {**shares, "sha256": sums, "signatures": signatures})


def shares_of_pairs(scores: FloatArray, levels: FloatArray, images: Sequence[str]) -> dict[str, float]:
    """Percentage of pairs whose better caption scores higher, and tau-b with the levels over all captions.

    Args:
        scores: (n,) scores.
        levels: (n,) 2 for a human caption, 1 for a machine caption, 0 for a human caption of another image.
        images: (n,) ids.
    """
    from capbench.stats.correlation import correlation

    names = ("foreign", "machine", "person")
    won: dict[str, list[FloatArray]] = {"person > machine": [], "person > foreign": [], "machine > foreign": []}
    places_by_image: dict[str, list[int]] = {}
    for place, image in enumerate(images):
        places_by_image.setdefault(image, []).append(place)
    for places in places_by_image.values():
        of_level = {name: scores[[p for p in places if levels[p] == n]] for n, name in enumerate(names)}
        for pair, values in won.items():
            first, second = (of_level[name] for name in pair.split(" > "))
            values.append(((order(first[:, None], second[None, :]) + 1) / 2).ravel())
    shares = {pair: round(100 * float(np.concatenate(values).mean()), 2) for pair, values in won.items()}
    return {**shares, "tau-b": round(correlation("tau-b", scores, levels).value, 4)}
