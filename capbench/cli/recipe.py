"""``capbench recipe``: train, score and tabulate by a recipe."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from capbench.cli import common

if TYPE_CHECKING:
    from capbench.api.recipe import RecipeRun

__all__ = ["recipe"]


def recipe(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME|FILE]", help="A shipped recipe, or a file. Without it: list the recipes.", show_default=False
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="DIR", help="Folder for all files.", show_default="results/NAME"),
    ] = None,
    data: common.DataOption = None,
    seed: Annotated[
        list[int] | None,
        typer.Option("--seed", min=0, help="Seed of the trainings; repeatable.", show_default="the recipe's"),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A setting of all trainings (max_steps=5), or STEP.KEY=VALUE for an option of a step; repeatable.",
            show_default=False,
        ),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option("--only", metavar="STEP", help="This step and what it requires.", show_default="all steps"),
    ] = None,
    train_only: Annotated[bool, typer.Option("--train-only", help="The trainings and what they require.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and do nothing.")] = False,
    json_output: common.JsonOption = False,
) -> None:
    """Run a recipe: extract, train, score and tabulate.

    Each finished task is recorded with the checksums of its inputs and outputs. The same command resumes after an
    interruption and repeats only what has changed. See docs/training.md.

    Example: capbench recipe

    Example: capbench recipe dual-encoder-flickr8k --dry-run

    Example: capbench recipe vilbert-flickr8k --seed 1 --out results/vilbert-1
    """
    from capbench.api.recipe import carry_out_recipe, list_recipes
    from capbench.core.errors import UsageError

    if name is None:
        if seed or settings or only or train_only or dry_run or out is not None:
            raise UsageError("no recipe is named", code="missing-option", hint="List the recipes: capbench recipe")
        known = list_recipes()
        if json_output:
            common.print_json(known)
            return
        width = max(len(one["name"]) for one in known)
        for one in known:
            print(f"{one['name']:{width}}  {one['title']} ({one['takes']})")
        return
    try:
        made = carry_out_recipe(
            name,
            common.caller(json_output=json_output),
            out=out,
            data=data,
            seeds=seed or (),
            changes=settings or (),
            only=only,
            train_only=train_only,
            dry_run=dry_run,
        )
    except KeyboardInterrupt:
        common.note("interrupted; finished tasks are kept: run the same command again to resume")
        raise typer.Exit(130) from None
    if json_output:
        common.print_json(made.to_dict())
    elif dry_run:
        _print_plan(made)
    else:
        done = sum(task["state"] == "done" for task in made.tasks)
        print(
            f"{made.name}: {common.count(done, 'task')} done, {len(made.tasks) - done} finished before, in {made.out}"
        )
        for path in made.results:
            print(path)


def _print_plan(made: RecipeRun) -> None:
    """Print tasks with their seeds, inputs and outputs."""
    print(f"{made.name}: {common.count(len(made.tasks), 'task')} in {made.out} ({made.takes or 'duration unknown'})")
    for number, task in enumerate(made.tasks, 1):
        shown = {
            key: task["settings"].get(key) for key in ("network", "config", "variant", "seed", "metric", "protocol")
        }
        facts = ", ".join(f"{key} {value}" for key, value in shown.items() if value not in (None, ""))
        print(f"{number:3} {task['state']:8} {task['task']}: {task['kind']}{f' ({facts})' if facts else ''}")
        print(f"      reads  {', '.join(task['inputs']) or 'nothing'}")
        print(f"      writes {', '.join(task['outputs'])}")
    for step, reason in made.left_out.items():
        print(f"left out: {step} ({reason})")
