"""``capbench references STUDY``: curves over the number of references for every protocol of a study file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from capbench.cli import common
from capbench.cli.figure_look import FigureLook
from capbench.cli.given import Given
from capbench.errors import CapbenchError, UsageError

if TYPE_CHECKING:
    from capbench.analyses.references import ReferenceCurves
    from capbench.cli.study_flags import LeftOut

__all__ = ["run_study"]


def run_study(
    study: str,
    given: Given,
    left_out: LeftOut,
    counts: tuple[int, ...] | None,
    draws: int | None,
    seed: int | None,
    group: Sequence[str],
    out: Path | None,
    escape_formulas: bool,
    chosen: FigureLook,
    json_output: bool,
) -> None:
    """Compute, print and write the curves of each protocol.

    A metric that cannot be computed, and a protocol whose files are not there, are named and left out.

    Args:
        study: the study file, or the name of one.
        given: features, weights and the data folder.
        left_out: metrics that are left out.
        counts: numbers of references in place of the file's; None for those.
        draws: likewise.
        seed: likewise.
        group: groups that are shown beside all.
        out: folder of the results; None for ``results/NAME``.
        escape_formulas: for CSV files.
        chosen: how pictures look.
        json_output: whether the curves are printed as JSON.

    Raises:
        Exit: something is missing (exit code 1).
        CapbenchError: the study does not fit, or a statistic is undefined.
    """
    from capbench.analyses.references import reference_curves
    from capbench.cli.references import show
    from capbench.cli.study_flags import plan_task, study_of_task
    from capbench.studies.judged import judge
    from capbench.studies.tasks import CurveTask

    root = given.root()
    planned, task = study_of_task(study, CurveTask, given, left_out)
    plan, waiting = plan_task(planned, root)
    if not plan.requests:
        raise UsageError(f"{planned.name}: every metric waits", hint="; ".join(f"{t} {r}" for t, r in waiting.items()))
    common.announce_root(root, json_output=json_output, used=plan.uses_root)
    folder = out or Path("results") / planned.name
    everything: list[ReferenceCurves] = []
    for dataset, protocol in plan.protocols:
        numbers = task.counts if counts is None else counts
        try:
            judged = judge(dataset, protocol.items, plan.requests, plan.resources, cache=given.cache)
            lacking = {less.request.label: less for less in judged.lacking}
            requests = [request for request in plan.requests if request.label not in lacking]
            waiting |= {
                f"{less.request.rows[0].title} on {protocol}": f"waits: {less.error}" for less in lacking.values()
            }
            if numbers is not None and not any(r.metric.reference_free() & set(r.columns) for r in requests):
                numbers = tuple(number for number in numbers if number)
            with common.progress(f"scoring {protocol}", None) as step:
                curves = reference_curves(
                    dataset,
                    protocol,
                    requests,
                    counts=numbers,
                    draws=task.draws if draws is None else draws,
                    seed=task.seed if seed is None else seed,
                    resources=plan.resources,
                    cache=given.cache,
                    sample=root.is_sample and dataset.under_root,
                    progress=step,
                )
        except CapbenchError as error:
            waiting[str(protocol)] = f"waits: {error}"
            continue
        everything.append(curves)
        shown = replace(protocol, version="")
        show(
            curves,
            group,
            folder / str(shown).replace("/", "."),
            escape_formulas=escape_formulas,
            chosen=chosen,
            printed=not json_output,
        )
    if json_output:
        common.print_json([curves.model_dump(mode="json") for curves in everything])
    for title, reason in waiting.items():
        common.note(f"{title} {reason}")
    if waiting:
        raise typer.Exit(1)
