"""The step of recipes that selects networks or settings on the dev set, with the numbers of all in evaluation order."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from capbench.metrics.base import Resources
from capbench.studies.recipe import Planning, Product, Run
from capbench.studies.recipe_file import Entry, Step
from capbench.studies.recipe_scores import write_json

__all__ = ["Criterion", "SelectStep"]


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
            for label, (model, options) in candidates.items():
                given = Resources(
                    features=None if features is None else str(features),
                    model=None if model is None else str(model),
                    data=str(run.root.path),
                )
                texts = {key: str(path) for key, path in paths.items()}
                numbers[label] = self._numbers(planning, given, {**texts, **options})
                run.note(f"{label}: {', '.join(f'{key} {value}' for key, value in numbers[label].items())}")
            by = self.by
            chosen = {} if by is None else {"chosen": max(numbers, key=lambda label: numbers[label][by] or 0.0)}
            write_json(made.path, {"evaluations": numbers, **chosen})

        planning.add(name, self.kind, settings, inputs, [made], work)

    def _numbers(self, planning: Planning, given: Resources, options: Mapping[str, Any]) -> dict[str, float | None]:
        from capbench.metrics.requests import resolve_metrics
        from capbench.metrics.scoring import score
        from capbench.studies.evaluate import evaluate

        numbers: dict[str, float | None] = {}
        for name, criterion in self.criteria.items():
            protocol, draws = planning.judged(criterion.protocol)
            given_options = {**options, **criterion.options}
            requests = resolve_metrics([self.metric], {self.metric: given_options} if given_options else {}, given)
            tables = [score(draw.items, requests, given, dataset=draw.dataset) for draw in draws]
            rows = [row for row in requests[0].rows if row.key.column in (criterion.columns or requests[0].columns)]
            cells, _ = evaluate(protocol, draws, tables, rows)
            values = {cell.column: cell.value for cell in cells if not cell.group}
            for column, value in values.items():
                numbers[name if len(rows) == 1 else f"{name} {column}"] = value
        return numbers
