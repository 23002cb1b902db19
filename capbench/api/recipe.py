"""``capbench.run_recipe``: train, score and tabulate by a recipe, as ``capbench train recipe`` does."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capbench.api.checking import check_arguments

if TYPE_CHECKING:
    from capbench.api.caller import Caller
    from capbench.api.resolve import PathGiven
    from capbench.datasets.root import DataRoot
    from capbench.studies.judged import ProgressFactory
    from capbench.studies.recipe import Plan
    from capbench.studies.study import Study

__all__ = ["RecipeRun", "carry_out_recipe", "list_recipes", "run_recipe"]


@dataclass(frozen=True)
class RecipeRun:
    """A recipe that was planned or carried out.

    Attributes:
        name: of the recipe.
        title: in words.
        takes: how long all of it takes, in words.
        out: the folder with everything that it wrote.
        tasks: its tasks in their order: ``task``, ``kind``, ``settings``, ``inputs``, ``outputs``, and ``state``:
            ``done`` (by this run), ``finished`` (before it) or ``planned``.
        left_out: reason by name of each step that is left out.
        results: files of results.
    """

    name: str
    title: str
    takes: str
    out: Path
    tasks: tuple[Mapping[str, Any], ...]
    left_out: Mapping[str, str]
    results: tuple[Path, ...]

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            **vars(self),
            "out": str(self.out),
            "tasks": [dict(task) for task in self.tasks],
            "left_out": dict(self.left_out),
            "results": [str(path) for path in self.results],
        }


def run_recipe(
    recipe: PathGiven,
    *,
    out: PathGiven | None = None,
    data: PathGiven | None = None,
    seeds: Sequence[int] = (),
    settings: Mapping[str, Any] | None = None,
    only: str | None = None,
    train_only: bool = False,
    dry_run: bool = False,
    progress: bool | ProgressFactory = False,
) -> RecipeRun:
    """Carry out a recipe, as ``capbench train recipe`` does: finished tasks are skipped, an interrupted run resumes.

    Args:
        recipe: a recipe file, a study file with ``train``, or the name of a shipped one.
        out: the folder to write to; by default ``results/NAME``, on the embedded sample ``results/sample/NAME``.
        data: the data folder; by default ``CAPBENCH_DATA``, else the embedded sample.
        seeds: of all trainings, instead of the recipe's.
        settings: changes: ``STEP.key`` of a step (``{"networks.seeds": [1]}``), any other dotted key of all trainings
            (``{"max_steps": 5}``).
        only: one step, and what it requires.
        train_only: only the trainings, and what they require.
        dry_run: plan, and do nothing.
        progress: whether progress is shown on stderr, or a function that shows it.

    Raises:
        StudyError: there is no such recipe, or it does not fit.
        CapbenchError: a setting does not fit, an input is missing, or a task failed.
    """
    from capbench.api.resolve import python_caller
    from capbench.api.training import as_changes

    check_arguments({"data": data, "progress": progress})
    return carry_out_recipe(
        os.fspath(recipe),
        python_caller(progress),
        out=None if out is None else Path(out),
        data=None if data is None else Path(data),
        seeds=seeds,
        changes=as_changes(settings or {}),
        only=only,
        train_only=train_only,
        dry_run=dry_run,
    )


def carry_out_recipe(
    name: str,
    caller: Caller,
    *,
    out: Path | None = None,
    data: Path | None = None,
    seeds: Sequence[int] = (),
    changes: Sequence[str] = (),
    only: str | None = None,
    train_only: bool = False,
    dry_run: bool = False,
) -> RecipeRun:
    """Plan a recipe and, unless ``dry_run``, carry it out; see :func:`run_recipe`.

    Args:
        name: of the recipe, or its file.
        caller: shows notes and progress.
        out: the folder to write to.
        data: the data folder.
        seeds: of all trainings.
        changes: ``key=value``.
        only: name of a step.
        train_only: only the trainings.
        dry_run: do nothing.
    """
    from capbench.core.files import check_writable
    from capbench.datasets.root import find_root, results_folder
    from capbench.studies.recipe import Run, finished, make_plan, run_plan
    from capbench.studies.recipe_file import find_recipe, is_study, load_recipe, recipe_of_study
    from capbench.studies.study_file import load_study

    file = find_recipe(name)
    study = load_study(file) if is_study(file) else None
    recipe = load_recipe(file, changes) if study is None else recipe_of_study(study, changes)
    of_trainings = [change for change in changes if change not in recipe.changes]
    root = find_root(data)
    caller.on_data(root, True)
    folder = results_folder(recipe.name, sample=root.is_sample) if out is None else out
    plan = make_plan(
        recipe,
        folder,
        root,
        seeds=seeds,
        changes=of_trainings,
        only=only,
        train_only=train_only,
        note=caller.tell,
    )
    if dry_run:
        states = ["finished" if done else "planned" for done in finished(plan)]
    else:
        check_writable(folder / f"{recipe.name}.json")
        for reason, steps in plan.left_out_by_reason().items():
            caller.tell(f"left out: {', '.join(steps)} ({reason})")
        outcome = run_plan(plan, Run(root, caller.tell, caller.progress))
        states = [outcome[task.name] for task in plan.tasks]
    results = [product.path for task in plan.tasks if task.kind == "results" for product in task.products]
    if study is not None and not dry_run and not train_only and only is None:
        results += _evaluate(study, plan, root, caller)
    shown = plan.as_json()
    return RecipeRun(
        recipe.name,
        recipe.title,
        recipe.takes,
        folder,
        tuple({**task, "state": state} for task, state in zip(shown["tasks"], states, strict=True)),
        plan.left_out,
        tuple(results),
    )


def _evaluate(study: Study, plan: Plan, root: DataRoot, caller: Caller) -> list[Path]:
    """Evaluate a study under the networks that its plan trained, and write its tables into the plan's folder."""
    from capbench.api.resolve import resolve_study
    from capbench.metrics.registry import trainable
    from capbench.reports.markup import write_result
    from capbench.studies.run import run_plan

    assert study.train is not None
    files = {task.step: task.products[0].path for task in reversed(plan.tasks)}
    metric = trainable(study.train.network).metric
    features = study.train.features if isinstance(study.train.features, str) else files.get("features")
    trained = replace(
        study,
        models={metric: str(files.get("ensemble", files["networks"])), **study.models},
        features_of={**({metric: str(features)} if features else {}), **study.features_of},
    )
    result = run_plan(resolve_study(trained, root, caller), caller.progress)
    return write_result(result, plan.out)


def list_recipes() -> list[dict[str, str]]:
    """Name, title and duration of the shipped recipes."""
    from capbench.studies.recipe_file import load_recipe, shipped_recipes

    loaded = [load_recipe(path) for path in shipped_recipes().values()]
    return [{"name": one.name, "title": one.title, "takes": one.takes} for one in loaded]
