"""Steps of recipes that make features, networks and ensembles, select among them, and learn combinations of metrics.

Their scores and results are in :mod:`capbench.studies.recipe_scores`.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from pydantic import Field

from capbench.core.errors import UsageError, suggest
from capbench.core.progress import Progress
from capbench.metrics.needs import Resources
from capbench.studies.cards import load_card, score_file
from capbench.studies.recipe import Entry, LeftOut, Planning, Product, Run, Step, by_variant, groups
from capbench.studies.recipe_scores import write_json

if TYPE_CHECKING:
    from capbench.datasets.base import Dataset
    from capbench.datasets.protocol import Protocol


class FilesStep(Step):
    """Existing files, such as another recipe's networks."""

    kind: ClassVar[str] = "files"
    files: str
    seeds: list[int] = Field([])
    optional: bool = False

    def plan(self, name: str, planning: Planning) -> None:
        """See :meth:`Step.plan`."""
        products = [
            Product(_below(planning.out, self.files, seed), {"seed": seed, "network": f"seed{seed}"})
            for seed in self.seeds
        ]
        products = products or [Product(_below(planning.out, self.files))]
        for product in products:
            if not product.path.is_file():
                if self.optional:
                    raise LeftOut(f"there is no file {product.path}")
                raise UsageError(
                    "there is no such file", code="missing-file", path=product.path, hint=f"Create it for step '{name}'"
                )
        planning.have(name, products)


def _below(out: Path, pattern: str, seed: int | None = None) -> Path:
    # A folder next to one that does not exist yet.
    return Path(os.path.normpath(out / pattern.replace("{seed}", str(seed))))


class ImportStep(Step):
    """A feature store from a published file of the data folder."""

    kind: ClassVar[str] = "import"
    source: str = Field(alias="import")
    detector: str
    file: str = "cells.h5"

    def plan(self, name: str, planning: Planning) -> None:
        """See :meth:`Step.plan`."""
        source, store = planning.root.file(self.source), planning.out / self.file

        def work(run: Run) -> None:
            from capbench.features.importers import import_features

            with run.bars("importing", None) as progress:
                import_features([source], store, detector=self.detector, replace=True, progress=progress)

        planning.add(name, self.kind, {"detector": self.detector}, [source], [Product(store)], work)


class PoolStep(Step):
    """A feature store of windows, boxes or both, pooled from cells."""

    kind: ClassVar[str] = "pool"
    cells: str = Field(alias="pool")
    windows: str | None = None
    boxes: str | None = None
    top: int | None = None
    file: str | None = None

    def plan(self, name: str, planning: Planning) -> None:
        """See :meth:`Step.plan`."""
        from capbench.features.pooling import parse_pooling

        cells, store = planning.one(self.cells), planning.out / (self.file or f"{name}.h5")
        windows = None if self.windows is None else parse_pooling(self.windows)
        boxes = None if self.boxes is None else planning.root.file(self.boxes)
        if windows is None and boxes is None:
            raise UsageError(f"step '{name}' has neither 'windows' nor 'boxes'", code="missing-key", value=name)

        def work(run: Run) -> None:
            from capbench.features.pooling import BoxPooling, pool_store, read_boxes

            under = None if boxes is None else BoxPooling(read_boxes(boxes), top=self.top)
            with run.bars("pooling", None) as progress:
                pool_store(cells, store, windows, boxes=under, replace=True, progress=progress)

        settings = {"windows": self.windows, "boxes": self.boxes, "top": self.top}
        inputs = [cells, *([] if boxes is None else [boxes])]
        planning.add(name, self.kind, settings, inputs, [Product(store)], work)


class TrainStep(Step):
    """Networks of several seeds, or of several variants with their seeds, from a training file with changes.

    Attributes:
        network: name of the network.
        config: the training file.
        features: step with the store.
        vectors: step with word vectors that metrics are computed from.
        word_vectors: step with word vectors that initialise embeddings.
        seeds: seeds of all runs.
        variants: seeds by published variant, instead of ``seeds``.
        runs: additional changes by the run's name; each run is trained with every seed.
        settings: changes of the training file in all runs.
        threads: number of PyTorch's threads.
        folder: folder of each run.
    """

    kind: ClassVar[str] = "train"
    network: str = Field(alias="train")
    config: str
    features: str | None = None
    vectors: str | None = None
    word_vectors: str | None = None
    seeds: list[int] = Field([1])
    variants: dict[str, list[int]] = Field({})
    runs: dict[str, dict[str, Any]] = Field({})
    settings: dict[str, Any] = Field({})
    threads: int = 1
    folder: str = "{config}{-variant}-seed{seed}"

    def plan(self, name: str, planning: Planning) -> None:
        """See :meth:`Step.plan`."""
        from capbench.metrics.registry import trainable
        from capbench.training.settings import find_training, load_training

        network, file = trainable(self.network), find_training(self.config)
        given = {key: planning.one(step) for key, step in self._stores().items()}
        for run, variant, seed in self._runs(planning.seeds):
            if variant and variant not in network.variants:
                hint = suggest(variant, list(network.variants))
                raise UsageError(
                    f"there is no variant '{variant}' of '{self.network}'",
                    code="unknown-name",
                    value=variant,
                    hint=hint,
                )
            changes = [
                *network.variants.get(variant, ()),
                # JSON is YAML
                *(
                    f"{k}={json.dumps(v, ensure_ascii=False)}"
                    for k, v in {**self.settings, **self.runs.get(run, {})}.items()
                ),
                *(f"{key}={str(path)!r}" for key, path in given.items()),
                f"seed={seed}",
                f"threads={self.threads}",
                *planning.changes,
            ]
            settings = load_training(network.settings, file, changes)
            folder = self._folder(file.stem, run, variant, seed)
            run_folder = planning.out / folder
            fields = {"variant": variant, "seed": seed, "network": folder, **({"run": run} if run else {})}
            model = Product(run_folder / "model.safetensors", fields)
            planning.add(
                f"{name}/{folder}",
                self.kind,
                {"network": self.network, "config": file.stem, "variant": variant, **settings.deciding()},
                [*given.values(), *planning.data],
                [model],
                partial(_train, network, settings, run_folder),
            )

    def _stores(self) -> dict[str, str]:
        steps = {"features": self.features, "vectors": self.vectors, "word_vectors": self.word_vectors}
        return {key: step for key, step in steps.items() if step}

    def _runs(self, seeds: Sequence[int]) -> Iterator[tuple[str, str, int]]:
        for variant, own in (self.variants or {"": self.seeds}).items():
            for seed in seeds or own:
                for run in self.runs or {"": {}}:
                    yield run, variant, seed

    def _folder(self, config: str, run: str, variant: str, seed: int) -> str:
        texts = {
            "{config}": config,
            "{run}": run,
            "{variant}": variant,
            "{seed}": str(seed),
            "{-variant}": f"-{variant}" * bool(variant),
        }
        folder = self.folder
        for key, text in texts.items():
            folder = folder.replace(key, text)
        return folder


def _train(network: Any, settings: Any, folder: Path, run: Run) -> None:
    """Train one network, or resume its training. Raises KeyboardInterrupt if the user asks to stop."""
    from capbench.core.machine import keep_freed_memory
    from capbench.training.loop import Watcher, stop_on_signal

    class Lines(Watcher):
        advance: Progress

        def say(self, text: str) -> None:
            run.note(text)

        def start(self, steps: int, done: int) -> None:
            self.advance = stack.enter_context(run.bars(f"training {folder.name}", steps))
            self.advance(done)

        def step(self) -> None:
            self.advance(1)

        def log(self, entry: dict[str, Any]) -> None:
            if entry["kind"] == "evaluation":
                run.note(f"{folder.name}, step {entry['step']:,}: {network.line(entry)}")

    keep_freed_memory()
    with contextlib.ExitStack() as stack:
        stop = stack.enter_context(stop_on_signal(run.note))
        more = {"bars": run.bars} if network.shows_work else {}
        result = network.train(settings, folder, root=run.root, stop=stop, watcher=Lines(), **more)
    if result.model is None:
        raise KeyboardInterrupt


class EnsembleStep(Step):
    """Ensembles of the networks of a step: of a number of seeds each, in order, or of all of them."""

    kind: ClassVar[str] = "ensemble"
    networks: str = Field(alias="ensemble")
    of: int | None = None
    file: str = "{config}-ensemble{number}.json"

    def plan(self, name: str, planning: Planning) -> None:
        """See :meth:`Step.plan`."""
        for fields, products in by_variant(planning.products(self.networks)):
            for number, group in enumerate(groups(products, self.of), 1):
                variant = str(fields.get("variant") or "")
                file = self.file.replace("{number}", str(number)).replace("{variant}", variant)
                file = file.replace(
                    "{config}", str(group[0].fields.get("network", name)).rpartition("-seed")[0] or name
                )
                paths = [product.path for product in group]
                made = Product(planning.out / file, {**fields, "network": Path(file).stem})
                planning.add(
                    f"{name}/{Path(file).stem}", self.kind, {}, paths, [made], partial(_join, paths, made.path)
                )


def _join(paths: Sequence[Path], file: Path, run: Run) -> None:
    from capbench.metrics.registry import load_network
    from capbench.weights.ensembles import write_ensemble

    write_ensemble(file, [load_network(path) for path in paths])


class Criterion(Entry):
    """A number by which candidates are evaluated.

    Attributes:
        protocol: id of the protocol, or a data set for its default.
        options: options of the metric, in addition to the candidate's.
        columns: columns of the metric; default: all.
    """

    protocol: str
    options: dict[str, Any] = Field({})
    columns: list[str] = Field([])


class SelectStep(Step):
    """Criteria of each network of a step, or of each of several settings, and the best candidate by one of them.

    Attributes:
        metric: the metric.
        criteria: criteria by name.
        by: ``criterion``, or ``criterion column``, whose highest value is selected; None to select nothing.
        model: step with the networks.
        features: step with the store.
        settings: options by the candidate's name; without networks, or for each network.
        options: options of all candidates.
        files: options whose values are files of the data folder.
        steps: options whose values are products of steps.
    """

    kind: ClassVar[str] = "select"
    metric: str = Field(alias="select")
    criteria: dict[str, Criterion]
    by: str | None = None
    model: str | None = None
    features: str | None = None
    settings: dict[str, dict[str, Any]] = Field({})
    options: dict[str, Any] = Field({})
    files: dict[str, str] = Field({})
    steps: dict[str, str] = Field({})

    def plan(self, name: str, planning: Planning) -> None:
        """See :meth:`Step.plan`."""
        features = None if self.features is None else planning.one(self.features)
        networks = [None] if self.model is None else planning.products(self.model)
        paths = {key: planning.root.file(file) for key, file in self.files.items()}
        paths |= {key: planning.one(step) for key, step in self.steps.items()}
        candidates: dict[str, tuple[Path | None, Mapping[str, Any]]] = {}
        for network in networks:
            of = "" if network is None else str(network.fields.get("run") or network.fields["network"])
            for setting, options in (self.settings or {"": {}}).items():
                label = ", ".join(filter(None, (of, setting)))
                candidates[label] = (None if network is None else network.path, {**self.options, **options})
        inputs = [path for path in (features, *paths.values()) if path is not None]
        inputs += [path for path in dict.fromkeys(path for path, _ in candidates.values()) if path is not None]
        settings = {**self.as_json(), "candidates": list(candidates)}
        settings["judgements"] = {key: planning.fingerprint(one.protocol) for key, one in self.criteria.items()}
        made = Product(planning.out / f"{name}.json")

        def work(run: Run) -> None:
            numbers: dict[str, dict[str, float | None]] = {}
            signatures: dict[str, list[str]] = {}
            for label, (model, options) in candidates.items():
                given = Resources(
                    features=None if features is None else str(features),
                    model=None if model is None else str(model),
                    data=str(run.root.path),
                )
                texts = {key: str(path) for key, path in paths.items()}
                numbers[label], signatures[label] = self._numbers(planning, given, {**texts, **options})
                run.note(f"{label}: {', '.join(f'{key} {value}' for key, value in numbers[label].items())}")
            by = self.by
            defined = {} if by is None else {k: value for k, each in numbers.items() if (value := each[by]) is not None}
            chosen = {"chosen": max(defined, key=defined.__getitem__)} if defined else {}
            write_json(made.path, {"evaluations": numbers, **chosen, "signatures": signatures})

        planning.add(name, self.kind, settings, inputs, [made], work)

    def _numbers(
        self, planning: Planning, given: Resources, options: Mapping[str, Any]
    ) -> tuple[dict[str, float | None], list[str]]:
        """A candidate's numbers, and the metric's signatures, which contain the network's SHA-256."""
        from capbench.metrics.requests import resolve_metrics
        from capbench.metrics.scoring import score
        from capbench.studies.evaluate import evaluate

        numbers: dict[str, float | None] = {}
        signatures: dict[str, None] = {}
        for name, criterion in self.criteria.items():
            protocol, draws = planning.judged(criterion.protocol)
            given_options = {**options, **criterion.options}
            requests = resolve_metrics([self.metric], {self.metric: given_options} if given_options else {}, given)
            tables = [score(draw.items, requests, given, dataset=draw.dataset) for draw in draws]
            signatures |= dict.fromkeys(line for table in tables for line in table.signatures.values())
            rows = [row for row in requests[0].rows if row.key.column in (criterion.columns or requests[0].columns)]
            cells, _ = evaluate(protocol, draws, tables, rows)
            values = {cell.column: cell.value for cell in cells if not cell.group}
            for column, value in values.items():
                numbers[name if len(rows) == 1 else f"{name} {column}"] = value
        return numbers, list(signatures)


class CombineStep(Step):
    """Combinations of metrics by nested cross-validation, one for each learner.

    Attributes:
        judgements: the data set or protocol.
        label: start of the results' names: ``LABEL/LEARNER``.
        metrics: names or columns of the metrics.
        learners: names from :data:`capbench.studies.study.LEARNERS`.
        seeds: other seeds of the folds.
        test: another data set to test the combination on, in a separate run.
        options: options by metric.
        scores: columns of stored scores by step; the step's file is a card, with its scores next to it.
        resamples: resamples of bootstrap and permutation test.
        optional: True to omit the step if a file of the data set is missing.
    """

    kind: ClassVar[str] = "combine"
    judgements: str = Field(alias="combine")
    label: str
    metrics: list[str]
    learners: list[str]
    seeds: list[int] = Field([1, 2, 3, 4])
    test: str | None = None
    options: dict[str, dict[str, Any]] = Field({})
    scores: dict[str, list[str]] = Field({})
    resamples: int = 1000
    optional: bool = False

    def plan(self, name: str, planning: Planning) -> None:
        """See :meth:`Step.plan`."""
        protocol, _ = planning.judged(self.judgements, optional=self.optional)
        cards = {planning.one(step): columns for step, columns in self.scores.items()}
        inputs = [*(path for card in cards for path in (card, score_file(card))), *planning.data]
        shared = {**self.as_json(), "protocol": str(protocol), "judgements": planning.fingerprint(self.judgements)}
        for learner in self.learners:
            made = Product(planning.out / "combinations" / name / f"{learner}.json", {"learner": learner})

            def work(run: Run, learner: str = learner, made: Product = made) -> None:
                label = f"{self.label}/{learner}"
                results = {label: self._learn(learner, cards, run)}
                if self.test is not None:
                    results[f"{label} on {self.test.partition('/')[0]}"] = self._transfer(learner, run)
                write_json(made.path, results)

            planning.add(f"{name}/{learner}", self.kind, {**shared, "learners": [learner]}, inputs, [made], work)

    def _learn(self, learner: str, cards: Mapping[Path, Sequence[str]], run: Run) -> dict[str, Any]:
        """All numbers of one combination, and its agreement under other seeds of the folds."""
        from capbench import __version__
        from capbench.metrics.requests import requested_metrics
        from capbench.studies.combine import combine_metrics, inputs_of, learn_out_of_fold, row_of, with_column
        from capbench.studies.compare import score_all
        from capbench.studies.evaluate import evaluate
        from capbench.studies.study import CombineSettings, TestSettings

        dataset, protocol = _opened(self.judgements, run)
        entries = [
            load_card(card).score_entry(score_file(card), column)
            for card, columns in cards.items()
            for column in columns
        ]
        names = [*self.metrics, *(entry.label for entry in entries)]
        given = Resources(data=str(run.root.path))
        requests, _ = requested_metrics(names, self.options, entries, lambda _names: given)
        tests = TestSettings(resamples=self.resamples)
        combined = combine_metrics(
            dataset, protocol, requests, CombineSettings(learner), compare=tests, resources=given
        )
        rows = [row for request in requests for row in request.rows]
        scored = score_all(dataset, protocol, requests, given)
        values = {}
        for seed in self.seeds:
            settings = CombineSettings(learner, seed=seed)
            inputs = inputs_of(rows, requests)
            learned = learn_out_of_fold(protocol, scored.draws, scored.tables, inputs, settings)
            row = row_of("combination")
            tables = with_column(scored.tables, row.key, learned.values, learned.signature)
            cells, _ = evaluate(protocol, scored.draws, tables, [row])
            values[seed] = next(cell.value for cell in cells if not cell.group)
        numbers = combined.as_json()
        del numbers["combination"]  # it lists the training images
        return {**numbers, "capbench": __version__, "other_seeds": values}

    def _transfer(self, learner: str, run: Run) -> dict[str, Any]:
        """The combination of the metrics that both data sets have, tested on the other one."""
        from capbench.metrics.requests import resolve_metrics
        from capbench.studies.combine import combine_metrics
        from capbench.studies.study import CombineSettings, TestSettings

        assert self.test is not None
        given = Resources(data=str(run.root.path))
        dataset, protocol = _opened(self.judgements, run)
        combined = combine_metrics(
            dataset,
            protocol,
            resolve_metrics(self.metrics, resources=given),
            CombineSettings(learner),
            tests=[_opened(self.test, run)],
            compare=TestSettings(resamples=self.resamples),
            resources=given,
        )
        transfers: list[dict[str, Any]] = combined.as_json()["transfers"]
        return transfers[0]


def _opened(name: str, run: Run) -> tuple[Dataset, Protocol]:
    """The data set of a protocol, and the protocol."""
    from capbench.datasets.opening import open_dataset, split_protocol

    dataset, rest = split_protocol(name)
    opened = open_dataset(dataset, run.root)
    return opened, opened.protocol(rest)


_NUMBERS = ("p machine", "p human", "accuracy")


class SubmissionsStep(Step):
    """LEIC's scores of systems, with the corpus scores of other metrics and the agreement of the orders.

    A system's number is the mean over its folds, the ``runs`` of a ``train`` step named ``SYSTEM-part1``, …, and over
    the last evaluations of each fold.
    """

    kind: ClassVar[str] = "submissions"
    networks: str = Field(alias="submissions")
    listed: str
    prefix: str
    captions: str
    metrics: list[str]
    last: int = 10

    def plan(self, name: str, planning: Planning) -> None:
        """See :meth:`Step.plan`."""
        runs: dict[str, dict[int, list[Path]]] = {}
        networks = planning.products(self.networks)
        for network in networks:
            system = str(network.fields["run"]).rpartition("-part")[0]
            runs.setdefault(system, {}).setdefault(int(network.fields["seed"]), []).append(network.path.parent)
        listed = planning.root.file(self.listed)
        made = Product(planning.out / "evaluations" / f"{name}.json")
        inputs = [listed, *planning.data, *(network.path for network in networks)]

        def work(run: Run) -> None:
            leic = {
                system: [_mean([held_out_numbers(folder, self.last) for folder in folds]) for folds in by_seed.values()]
                for system, by_seed in runs.items()
            }
            text, signatures = self._corpus_scores(listed, list(runs), run)
            ours = {system: _mean(of_seeds)["p machine"] for system, of_seeds in leic.items()}
            folds = len(next(iter(next(iter(runs.values())).values())))
            seeds = list(next(iter(runs.values())))
            results = {"folds": folds, "seeds": seeds, "leic": leic, "text": text, "tau-b": _orders(ours, text)}
            write_json(made.path, {**results, "signatures": signatures})

        planning.add(name, self.kind, self.as_json(), inputs, [made], work)

    def _corpus_scores(
        self, listed: Path, systems: Sequence[str], run: Run
    ) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, str]]]:
        """Corpus scores by column and system, and the metrics' signatures by system."""
        from capbench.core.records import Item
        from capbench.datasets.captions import load_captions, read_machine_captions
        from capbench.metrics.requests import resolve_metrics
        from capbench.metrics.scoring import score

        captions = load_captions(self.captions, run.root)
        machine = read_machine_captions([listed], captions)
        scores: dict[str, dict[str, float]] = {}
        signatures: dict[str, dict[str, str]] = {}
        for system in systems:
            written = machine.systems[f"{self.prefix}{system}"]
            items = [Item(image, text, tuple(captions[image])) for image, text in written.items()]
            made = score(items, resolve_metrics(self.metrics), dataset=f"{self.captions}-{system}")
            signatures[system] = dict(made.signatures)
            for key, value in made.corpus.items():
                scores.setdefault(key.column, {})[system] = value
        return scores, signatures


def held_out_numbers(run: Path, last: int) -> dict[str, float]:
    """Means over the last evaluations of a run: ``p machine``, ``p human``, ``accuracy``."""
    from capbench.core.files import read_lines

    lines = [json.loads(line) for line in read_lines(run / "log.jsonl") if line.strip()]
    evaluations = [line for line in lines if line["kind"] == "evaluation"][-last:]
    return {key: float(np.mean([line[key] for line in evaluations])) for key in _NUMBERS}


def _mean(numbers: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {key: float(np.mean([one[key] for one in numbers])) for key in numbers[0]}


def _orders(ours: Mapping[str, float], text: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Kendall's tau-b of the systems' order with that of each metric."""
    from capbench.stats.correlation import correlation

    scores = np.array(list(ours.values()))
    return {
        name: correlation("tau-b", scores, np.array([of[system] for system in ours])).value for name, of in text.items()
    }
