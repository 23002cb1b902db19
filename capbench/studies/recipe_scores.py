"""Steps of recipes that score captions, measure agreement with human ratings, and collect results."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from capbench.core.errors import DataError, UsageError, suggest
from capbench.core.files import atomic_write, read_json, sha256_file
from capbench.core.records import FloatArray, IntArray, Item, Judgements
from capbench.stats.pairwise_accuracy import aggregate
from capbench.stats.ties import is_constant
from capbench.studies.recipe import Entry, LeftOut, Planning, Product, Run, Step, by_variant, groups

Scores = Mapping[str, Sequence[FloatArray]]
"""Scores of the items by column, one array for each draw."""


@dataclasses.dataclass(frozen=True, eq=False)
class Rated:
    """Rated items.

    Attributes:
        items: the items.
        item: (n,) item of each rating.
        value: (n,) the rating.
        protocol: id of the protocol.
    """

    items: tuple[Item, ...]
    item: IntArray
    value: FloatArray
    protocol: str

    @property
    def images(self) -> list[str]:
        """Image of each rating."""
        return [self.items[place].image for place in self.item.tolist()]

    def mean(self) -> FloatArray:
        """(items,) mean rating."""
        return aggregate(self.item, self.value, "mean")[1]

    def correlation(self, coefficient: str, scores: FloatArray) -> float:
        """Correlation of scores with single ratings; with mean ratings if the coefficient begins with ``mean-``."""
        from capbench.stats.correlation import correlation

        of_means: Any = coefficient.removeprefix("mean-")
        if of_means != coefficient:
            return correlation(of_means, scores, self.mean()).value
        return correlation(of_means, scores[self.item], self.value).value


def rated(planning: Planning, protocol: str) -> list[Rated]:
    """The rated items of a protocol, one for each draw of references."""
    found, draws = planning.judged(protocol)
    aspect = found.statistic.human
    if found.statistic.kind != "correlation" or aspect not in draws[0].ratings:
        raise UsageError(
            f"{found} has no ratings to correlate with",
            code="unsupported",
            value=protocol,
            hint="Name another protocol",
        )
    ratings = [draw.ratings[aspect] for draw in draws]
    return [Rated(d.items, r.item, r.value, str(found)) for d, r in zip(draws, ratings, strict=True)]


class ScoreStep(Step):
    """Scores of metrics on the items of a protocol, with each network of a step or without networks."""

    kind: ClassVar[str] = "score"
    metrics: str | list[str] = Field(alias="score")
    judgements: str
    features: str | None = None
    model: str | None = None
    requires: str | None = None
    options: dict[str, Any] = Field({})
    threads: int = 1
    optional: bool = False

    def plan(self, name: str, planning: Planning) -> None:
        """See :meth:`Step.plan`."""
        from capbench.metrics.needs import Resources
        from capbench.metrics.requests import resolve_metrics

        protocol, draws = planning.judged(self.judgements, optional=self.optional)
        judgements = planning.fingerprint(self.judgements)
        features = None if self.features is None else planning.one(self.features)
        also = [] if self.requires is None else [product.path for product in planning.products(self.requires)]
        networks = [Product(Path(), {})] if self.model is None else planning.products(self.model)
        for metric in [self.metrics] if isinstance(self.metrics, str) else self.metrics:
            for network in networks:
                model = None if self.model is None else network.path
                options = {metric: _located(metric, self.options, planning)} if self.options else {}
                (request,) = resolve_metrics([metric], options)
                given = Resources(
                    features=None if features is None else str(features),
                    model=None if model is None else str(model),
                    data=str(planning.root.path),
                    image_groups=partial(planning.image_groups, self.judgements),
                )
                if self.model is None and (lacks := request.lacks(given)):
                    if not self.optional:
                        raise UsageError(f"{metric} requires {lacks}", code="not-set-up", value=metric)
                    planning.note(f"step '{name}': without {metric}, which requires {lacks}")
                    continue
                part = "+".join(filter(None, (metric, str(network.fields.get("network", "")))))
                titles = {row.key.column: row.title for row in request.rows}
                fields = {**network.fields, "metric": metric, "titles": titles, "protocol": str(protocol)}
                made = Product(planning.out / "scores" / name / f"{part}.npz", fields)
                listed = [Path(options[metric][name]) for name in _file_options(metric) if name in self.options]
                files = [path for path in (features, model, *listed) if path is not None]
                planning.add(
                    f"{name}/{part}",
                    self.kind,
                    {
                        "metric": metric,
                        "options": self.options,
                        "protocol": str(protocol),
                        "judgements": judgements,
                        "signed": True,  # scores of earlier versions have no signatures, and are computed again
                    },
                    [*files, *also],
                    [made],
                    partial(_score, draws, metric, options, given, made.path, self.threads),
                )


def _file_options(metric: str) -> list[str]:
    """Names of a metric's options that are paths of files."""
    from capbench.core.options import File
    from capbench.metrics.requests import resolve_metrics

    (request,) = resolve_metrics([metric])
    return [one.name for one in request.metric.option_type.declared() if isinstance(one.kind, File)]


def _located(metric: str, options: Mapping[str, Any], planning: Planning) -> dict[str, Any]:
    """Options with paths of files below the data folder, unless there is such a file in the current folder."""
    names = [name for name in _file_options(metric) if isinstance(options.get(name), str)]
    paths = {name: options[name] for name in names if not Path(options[name]).exists()}
    return {**options, **{name: str(planning.root.file(path)) for name, path in paths.items()}}


def _score(
    draws: Sequence[Judgements],
    metric: str,
    options: Mapping[str, Mapping[str, Any]],
    resources: Any,
    file: Path,
    threads: int,
    run: Run,
) -> None:
    from capbench.metrics.requests import resolve_metrics
    from capbench.metrics.scoring import score

    requests = resolve_metrics([metric], options, resources)
    arrays: dict[str, FloatArray] = {}
    lines: list[str] = []
    with _threads(threads) if resources.model else nullcontext():
        for number, draw in enumerate(draws):
            with run.bars(f"scoring {metric}", len(draw.items)) as progress:
                made = score(draw.items, requests, resources, dataset=draw.dataset, progress=progress)
            arrays |= {f"{number}/{key.column}": values for key, values in made.values.items()}
            lines += made.signatures.values()
    write_scores(file, arrays, lines)


@contextmanager
def _threads(number: int) -> Iterator[None]:
    """PyTorch with a number of threads."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


_SIGNATURES = "signatures"


def write_scores(file: Path, arrays: Mapping[str, FloatArray], signatures: Iterable[str]) -> None:
    """Write scores, atomically.

    Args:
        file: the file.
        arrays: (items,) scores by ``DRAW/COLUMN``.
        signatures: signatures of the metrics; repeated ones are stored once.
    """
    stored: dict[str, Any] = {**arrays, _SIGNATURES: np.array(list(dict.fromkeys(signatures)), dtype=np.str_)}
    with atomic_write(file, "wb") as stream:
        np.savez(stream, **stored)


def read_scores(file: Path) -> dict[str, list[FloatArray]]:
    """Scores by column, one array for each draw."""
    by_column: dict[str, list[FloatArray]] = {}
    with np.load(file, allow_pickle=False) as stored:
        for name in stored.files:
            if name != _SIGNATURES:
                by_column.setdefault(name.partition("/")[2], []).append(stored[name])
    return by_column


def read_signatures(files: Iterable[Path]) -> list[str]:
    """Signatures of the metrics behind files of scores, each once."""
    lines: dict[str, None] = {}
    for file in files:
        with np.load(file, allow_pickle=False) as stored:
            lines |= dict.fromkeys(stored[_SIGNATURES].tolist())
    return list(lines)


class Values(Entry):
    """Numbers of an evaluation: of the scores of a step, for each network or the mean of several.

    Attributes:
        scores: the step.
        where: only networks with these fields (``{variant: fier}``).
        columns: columns of the metric; default: all.
        row: name of the row, with fields in braces.
        at: place in the evaluation's JSON, keys between slashes; ``{network}`` is an index of a list.
        mean: number of networks whose mean score is evaluated.
        joint: True for one number with a bootstrap interval over all networks and draws.
        coefficients: coefficients that replace the step's.
    """

    scores: str
    where: dict[str, Any] = Field({})
    columns: list[str] = Field([])
    row: str = "{column}"
    at: str = "rows/{row}/{coefficient}/{network}"
    mean: int | None = None
    joint: bool = False
    coefficients: list[str] = Field([])

    def chosen(self, planning: Planning) -> list[Product]:
        """The scores; raises LeftOut if their step is omitted."""
        return [p for p in planning.products(self.scores) if self.where.items() <= p.fields.items()]


class Tests(Entry):
    """Bootstrap intervals of rows, and a permutation test of each pair.

    Attributes:
        rows: names, or printed name → row; default: all rows.
        width: number of networks whose mean is a row, or all of a row that has fewer.
        resamples: resamples of the bootstrap; the permutations are at least three times this number.
    """

    rows: list[str] | dict[str, str] = Field([])
    width: int = 3
    resamples: int = 1000


class EvaluateStep(Step):
    """Agreement of scores with the ratings of a protocol.

    Attributes:
        judgements: the protocol of the tests.
        coefficients: coefficients of correlation.
        values: the numbers to compute.
        tests: tests between rows; None without tests.
        protocols: key in the results → protocols whose ids are stored there.
        resamples: resamples of the intervals of ``joint`` values.
        contributions: rows whose image contribution is computed: the differences of a row NAME from the rows
            ``NAME, blank``, ``NAME, mean`` and ``NAME, shuffled``, as far as these exist.
        optional: True to omit the step if a file of the data set is missing.
    """

    kind: ClassVar[str] = "evaluate"
    judgements: str = Field(alias="evaluate")
    coefficients: list[str]
    values: list[Values]
    tests: Tests | None = None
    protocols: dict[str, list[str]] = Field({})
    contributions: list[str] = Field([])
    resamples: int = 1000
    optional: bool = False

    def plan(self, name: str, planning: Planning) -> None:
        """See :meth:`Step.plan`."""
        protocol, _ = planning.judged(self.judgements, optional=self.optional)
        by_entry: list[tuple[Values, list[Product]]] = []
        for entry in self.values:
            with suppress(LeftOut):
                by_entry.append((entry, entry.chosen(planning)))
        inputs = dict.fromkeys(product.path for _, products in by_entry for product in products)
        made = Product(planning.out / "evaluations" / f"{name}.json")
        settings = {**self.as_json(), "protocol": str(protocol), "judgements": planning.fingerprint(self.judgements)}
        settings["values"] = [entry.model_dump(mode="json", exclude_defaults=True) for entry, _ in by_entry]
        work = partial(_evaluate, self, by_entry, planning, made.path)
        planning.add(name, self.kind, settings, [*inputs], [made], work)


def _evaluate(
    step: EvaluateStep, by_entry: Sequence[tuple[Values, Sequence[Product]]], planning: Planning, file: Path, _: Run
) -> None:
    data = rated(planning, step.judgements)[0]
    tree: dict[Any, Any] = {"protocol": data.protocol, "items": len(data.items), "ratings": len(data.value)}
    rows: dict[str, list[FloatArray]] = {}
    for entry, products in by_entry:
        for row in rows_of(entry, products):
            draws = rated(planning, str(row.fields["protocol"]))
            rows[row.name] = [networks[0] for networks in row.networks]
            for coefficient in entry.coefficients or step.coefficients:
                keys = {**row.fields, "row": row.name, "column": row.column, "coefficient": coefficient}
                if entry.joint:
                    place(tree, entry.at, keys, _with_interval(coefficient, row, draws, step.resamples))
                    continue
                for number, networks in enumerate(row.networks):
                    each = [d.correlation(coefficient, s) for d, s in zip(draws, networks, strict=True)]
                    place(tree, entry.at, {**keys, "network": number}, float(np.mean(each)))
    ids = {key: [rated(planning, name)[0].protocol for name in names] for key, names in step.protocols.items()}
    results: dict[str, Any] = {**listed(tree), **{key: " and ".join(of_key) for key, of_key in ids.items()}}
    if step.tests is not None:
        shown = step.tests.rows or list(rows)
        named = shown if isinstance(shown, dict) else {row: row for row in shown}
        # Constant scores have no correlation, so a row may be absent.
        used = {name: rows[row][: step.tests.width] for name, row in named.items() if row in rows}
        stacked = {name: scores[:, data.item] for name, scores in stack_networks(used).items()}
        results |= intervals_and_tests(data, stacked, step.tests.resamples)
    if names := [name for name in step.contributions if name in rows]:
        results["contributions"] = {name: contribution(data, rows, name, step.resamples) for name in names}
    write_json(file, results)


@dataclasses.dataclass(frozen=True, eq=False)
class Row:
    """Scores of a row.

    Attributes:
        name: name of the row.
        column: column of the metric.
        fields: fields of its networks.
        networks: scores by network and draw.
    """

    name: str
    column: str
    fields: Mapping[str, Any]
    networks: list[list[FloatArray]]


def rows_of(entry: Values, products: Sequence[Product]) -> Iterator[Row]:
    """The rows of scores, without constant scores, which have no correlation.

    Raises:
        UsageError: the scores have no such column.
    """
    for fields, of_variant in by_variant(products):
        by_network: list[Scores] = [read_scores(product.path) for product in of_variant]
        if entry.mean is not None:
            by_network = [_mean(group) for group in groups(by_network, entry.mean)]
        if not by_network:
            continue
        for column in entry.columns or by_network[0]:
            if column not in by_network[0]:
                hint = suggest(column, list(by_network[0]))
                raise UsageError(
                    f"the scores of '{entry.scores}' have no column '{column}'",
                    code="unknown-column",
                    value=column,
                    hint=hint,
                )
            networks = [list(scores[column]) for scores in by_network]
            if any(is_constant(draw) for of_network in networks for draw in of_network):
                continue  # the same score for all captions has no correlation
            named = {**fields, "column": column, "title": fields["titles"].get(column, column)}
            yield Row(_filled(entry.row, named), column, fields, networks)


def _mean(networks: Sequence[Scores]) -> Scores:
    """Mean scores of several networks."""
    return {
        column: [np.mean([scores[column][d] for scores in networks], axis=0) for d in range(len(draws))]
        for column, draws in networks[0].items()
    }


def stack_networks(rows: Mapping[str, Sequence[FloatArray]]) -> dict[str, FloatArray]:
    """(networks, items) scores of each row, each network repeated until all rows have as many: means stay the same."""
    number = math.lcm(*map(len, rows.values()))
    return {name: np.stack([*networks] * (number // len(networks))) for name, networks in rows.items()}


def _with_interval(coefficient: Any, row: Row, draws: Sequence[Rated], resamples: int) -> dict[str, float]:
    """The mean over networks and draws, with its 95 % bootstrap interval over images."""
    from capbench.stats.agreement import Correlations
    from capbench.stats.intervals import bootstrap_intervals, draw_bootstrap

    scores = [s[d.item] for networks in row.networks for d, s in zip(draws, networks, strict=True)]
    data = Correlations.of(coefficient, {row.name: np.stack(scores)}, draws[0].value, unit=np.array(draws[0].images))
    sample = draw_bootstrap(data, resamples=resamples, seed=0)
    (interval,) = bootstrap_intervals(data, sample).values()
    return {"value": float(interval.value), "low": float(interval.low), "high": float(interval.high)}


def intervals_and_tests(data: Rated, rows: Mapping[str, FloatArray], resamples: int) -> dict[str, Any]:
    """``intervals`` of rows, and a ``comparison`` of each pair; images are resampled.

    Args:
        data: items and ratings.
        rows: (networks, ratings) scores by row; a row's statistic is the mean over its networks.
        resamples: resamples of the bootstrap; the permutations are three times this number, or more if the correction
            requires them.
    """
    from capbench.stats.agreement import Correlations
    from capbench.stats.intervals import bootstrap_intervals, draw_bootstrap
    from capbench.stats.significance import compare, permutations_needed

    agreement = Correlations.of("tau-c", dict(rows), data.value, unit=np.array(data.images))
    sample = draw_bootstrap(agreement, resamples=resamples, seed=0)
    permutations = max(3 * resamples, 2 * permutations_needed(math.comb(len(rows), 2)))
    return {
        "intervals": {name: vars(one) for name, one in bootstrap_intervals(agreement, sample).items()},
        "comparison": dataclasses.asdict(compare(agreement, sample=sample, permutations=permutations)),
    }


SHOWN = ("blank", "mean", "shuffled")
"""Kinds of features that replace an image's own (:class:`capbench.metrics.image_metric.ImageOptions`)."""


def contribution(data: Rated, rows: Mapping[str, Sequence[FloatArray]], name: str, resamples: int) -> dict[str, Any]:
    """The image's contribution to the agreement of a row: tau-c with seen images minus tau-c with others.

    Args:
        data: items and ratings.
        rows: scores by row, one array for each network. Values are means over the networks.
        name: the row; the others are ``NAME, blank``, ``NAME, mean`` and ``NAME, shuffled``.
        resamples: paired resamples of images for the intervals; the permutations are three times this number.

    Returns:
        ``networks``, ``seen`` (tau-c), and for each other kind ``value``, ``difference``, ``low``, ``high`` (95 %) and
        ``p`` (two-sided, permutation test over images, not corrected).
    """
    from capbench.stats.agreement import Correlations
    from capbench.stats.intervals import draw_bootstrap
    from capbench.stats.significance import compare

    whole: dict[str, Any] = {"networks": len(rows[name])}
    for kind in (kind for kind in SHOWN if f"{name}, {kind}" in rows):
        pair = {
            shown: np.stack([s[data.item] for s in rows[row]])
            for shown, row in (("seen", name), (kind, f"{name}, {kind}"))
        }
        agreement = Correlations.of("tau-c", pair, data.value, unit=np.array(data.images))
        sample = draw_bootstrap(agreement, resamples=resamples, seed=0)
        table = compare(agreement, sample=sample, permutations=3 * resamples)
        (one,) = table.pairs
        ends = (one.low, one.high)
        assert ends[0] is not None
        assert ends[1] is not None
        sign, (low, high) = (1, ends) if one.better == "seen" else (-1, (-ends[1], -ends[0]))
        whole["seen"] = table.values["seen"]
        whole[kind] = {
            "value": table.values[kind],
            "difference": sign * one.difference,
            "low": low,
            "high": high,
            "p": one.p_value,
        }
    return whole


class ResultsStep(Step):
    """One JSON file with evaluations, facts, the networks' dev-set numbers, and what the numbers were computed from.

    ``sha256`` contains the SHA-256 of the files that the evaluations' steps used, and ``signatures`` the signatures of
    the metrics, both by step.

    Attributes:
        facts: further entries of the file.
        seeds: step whose networks' seeds are stored.
        dev: step whose networks' numbers on dev are stored.
        parts: key in the file → steps of evaluations.
    """

    kind: ClassVar[str] = "results"
    file: str = Field(alias="results")
    facts: dict[str, Any] = Field({})
    seeds: str | None = None
    dev: str | None = None
    parts: dict[str, str | list[str]]

    def plan(self, name: str, planning: Planning) -> None:
        """See :meth:`Step.plan`."""
        parts: dict[str, list[Path]] = {}
        used: list[str] = []
        for key, steps in self.parts.items():
            for step in [steps] if isinstance(steps, str) else steps:
                with suppress(LeftOut):
                    parts.setdefault(key, []).extend(product.path for product in planning.products(step))
                    used.append(step)
        if not parts:
            raise LeftOut("none of its parts is available")
        networks = [] if self.dev is None else planning.products(self.dev)
        facts: dict[str, Any] = {**self.facts, "set": [*planning.recipe.changes, *planning.changes]}
        if self.seeds is not None:
            variants = by_variant(planning.products(self.seeds))
            by = {str(fields.get("variant") or ""): [one.fields["seed"] for one in of] for fields, of in variants}
            facts["seeds"] = by[""] if set(by) == {""} else by
        made = Product(planning.out / self.file)
        scored: dict[str, list[Path]] = {}
        hashed: dict[str, list[Path]] = {}
        for step, products in planning.behind([*used, *filter(None, [self.dev])]).items():
            for product in products if step not in used else ():
                (scored if "metric" in product.fields else hashed).setdefault(step, []).append(product.path)

        def work(_: Run) -> None:
            known: dict[str, Any] = {}
            if hashed:
                known["sha256"] = {step: [sha256_file(path) for path in paths] for step, paths in hashed.items()}
            if scored:
                known["signatures"] = {step: read_signatures(paths) for step, paths in scored.items()}
            dev = {} if self.dev is None else {"dev": {p.path.parent.name: _dev_numbers(p.path) for p in networks}}
            read = {key: {k: v for path in paths for k, v in read_json(path).items()} for key, paths in parts.items()}
            write_json(made.path, {**facts, **known, **dev, **read.pop("", {}), **read})

        inputs = [path for group in (parts, scored, hashed) for paths in group.values() for path in paths]
        planning.add(name, self.kind, {**self.as_json(), **facts, "parts": list(parts)}, inputs, [made], work)


def _dev_numbers(model: Path) -> dict[str, Any]:
    from capbench.weights.arrays import read_metadata

    metadata = read_metadata(model) or {}
    training = json.loads(metadata.get("training", "{}"))
    if "dev" not in training:
        raise DataError("contains no numbers on dev", code="missing-key", path=model, hint="Train it again")
    return dict(training["dev"])


def write_json(file: Path, content: object) -> None:
    """Write a results file, atomically."""
    with atomic_write(file, "w") as stream:
        json.dump(content, stream, indent=1, ensure_ascii=False)


def _filled(template: str, fields: Mapping[str, Any]) -> str:
    for key, value in fields.items():
        template = template.replace(f"{{{key}}}", str(value))
    return template


def place(tree: dict[Any, Any], at: str, keys: Mapping[str, Any], value: object) -> None:
    """Set the value at a path of keys in braces; ``{network}`` is a number, and becomes an index of a list."""
    path = [keys["network"] if key == "{network}" else _filled(key, keys) for key in at.split("/")]
    for key in path[:-1]:
        tree = tree.setdefault(key, {})
    tree[path[-1]] = value


def listed(tree: Any) -> Any:
    """Mappings with numbers as keys, as lists, at all levels."""
    if not isinstance(tree, dict):
        return tree
    if tree and all(isinstance(key, int) for key in tree):
        return [listed(tree[key]) for key in sorted(tree)]
    return {key: listed(value) for key, value in tree.items()}
