"""The step of recipes that learns combinations of metrics, with several seeds of the folds and for other data sets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from capbench.metrics.base import Resources
from capbench.studies.recipe import Planning, Product, Run
from capbench.studies.recipe_file import Step
from capbench.studies.recipe_scores import write_json

__all__ = ["CombineStep"]


class CombineStep(Step):
    """Combinations of metrics by nested cross-validation, one for each learner.

    Attributes:
        judgements: the data set or protocol.
        label: start of the results' names: ``LABEL/LEARNER``.
        metrics: names or columns of the metrics.
        learners: names from :data:`capbench.studies.study.LEARNERS`.
        seeds: other seeds of the folds.
        test: another data set to test the combination on, in a separate run.
        features: steps with stores by metric, ``""`` for all others.
        models: steps with weights by metric.
        options: options by metric.
        files: options whose values are files of the data folder, by ``metric.key``.
        steps: options whose values are products of steps, by ``metric.key``.
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
    features: dict[str, str] = Field({})
    models: dict[str, str] = Field({})
    options: dict[str, dict[str, Any]] = Field({})
    files: dict[str, str] = Field({})
    steps: dict[str, str] = Field({})
    resamples: int = 1000
    optional: bool = False

    def plan(self, name: str, planning: Planning) -> None:
        """See :meth:`Step.plan`."""
        protocol, _ = planning.judged(self.judgements, optional=self.optional)
        features = {metric: planning.one(step) for metric, step in self.features.items()}
        models = {metric: planning.one(step) for metric, step in self.models.items()}
        paths = {key: planning.root.file(file) for key, file in self.files.items()}
        paths |= {key: planning.one(step) for key, step in self.steps.items()}
        options: dict[str, dict[str, Any]] = {metric: dict(values) for metric, values in self.options.items()}
        for key, path in paths.items():
            metric, _, option = key.partition(".")
            options.setdefault(metric, {})[option] = str(path)
        given = Resources(
            data=str(planning.root.path),
            features=str(features[""]) if "" in features else None,
            features_of={metric: str(path) for metric, path in features.items() if metric},
            models={metric: str(path) for metric, path in models.items()},
        )
        inputs = list(dict.fromkeys([*features.values(), *models.values(), *paths.values(), *planning.data]))
        shared = {**self.as_json(), "protocol": str(protocol), "judgements": planning.fingerprint(self.judgements)}
        for learner in self.learners:
            made = Product(planning.out / "combinations" / name / f"{learner}.json", {"learner": learner})

            def work(run: Run, learner: str = learner, made: Product = made) -> None:
                label = f"{self.label}/{learner}"
                results = {label: self._learn(learner, options, given, run)}
                if self.test is not None:
                    results[f"{label} on {self.test}"] = self._transfer(learner, run)
                write_json(made.path, results)

            planning.add(f"{name}/{learner}", self.kind, {**shared, "learners": [learner]}, inputs, [made], work)

    def _learn(
        self, learner: str, options: Mapping[str, Mapping[str, Any]], given: Resources, run: Run
    ) -> dict[str, Any]:
        """All numbers of one combination, and its agreement under other seeds of the folds."""
        from capbench import __version__
        from capbench.datasets.opening import open_dataset, split_protocol
        from capbench.metrics.requests import resolve_metrics
        from capbench.studies.combine import combine_metrics, inputs_of, learn_out_of_fold, row_of, with_column
        from capbench.studies.compare import score_all
        from capbench.studies.evaluate import evaluate
        from capbench.studies.study import CombineSettings, TestSettings

        name, rest = split_protocol(self.judgements)
        dataset = open_dataset(name, run.root)
        protocol = dataset.protocol(rest)
        requests = resolve_metrics(self.metrics, options, resources=given)
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
        from capbench.datasets.opening import open_dataset
        from capbench.metrics.requests import resolve_metrics
        from capbench.studies.combine import combine_metrics
        from capbench.studies.study import CombineSettings, TestSettings

        assert self.test is not None
        given = Resources(data=str(run.root.path))
        dataset, other = open_dataset(self.judgements, run.root), open_dataset(self.test, run.root)
        combined = combine_metrics(
            dataset,
            dataset.protocol(),
            resolve_metrics(self.metrics, resources=given),
            CombineSettings(learner),
            tests=[(other, other.protocol())],
            compare=TestSettings(resamples=self.resamples),
            resources=given,
        )
        transfers: list[dict[str, Any]] = combined.as_json()["transfers"]
        return transfers[0]
