"""The step of recipes that scores captioning systems with networks, each trained against one system."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from capbench.studies.recipe import Planning, Product, Run
from capbench.studies.recipe_file import Step
from capbench.studies.recipe_scores import write_json

__all__ = ["SubmissionsStep", "held_out_numbers"]

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
            text = self._corpus_scores(listed, list(runs), run)
            ours = {system: _mean(of_seeds)["p machine"] for system, of_seeds in leic.items()}
            folds = len(next(iter(next(iter(runs.values())).values())))
            seeds = list(next(iter(runs.values())))
            results = {"folds": folds, "seeds": seeds, "leic": leic, "text": text, "tau-b": _orders(ours, text)}
            write_json(made.path, results)

        planning.add(name, self.kind, self.as_json(), inputs, [made], work)

    def _corpus_scores(self, listed: Path, systems: Sequence[str], run: Run) -> dict[str, dict[str, float]]:
        from capbench.core.records import Item
        from capbench.datasets.captions import load_captions, read_machine_captions
        from capbench.metrics.requests import resolve_metrics
        from capbench.metrics.scoring import score

        captions = load_captions(self.captions, run.root)
        machine = read_machine_captions([listed], captions)
        scores: dict[str, dict[str, float]] = {}
        for system in systems:
            written = machine.systems[f"{self.prefix}{system}"]
            items = [Item(image, text, tuple(captions[image])) for image, text in written.items()]
            made = score(items, resolve_metrics(self.metrics), dataset=f"{self.captions}-{system}")
            for key, value in made.corpus.items():
                scores.setdefault(key.column, {})[system] = value
        return scores


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
