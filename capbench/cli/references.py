"""``capbench correlate --references-curve``: human agreement against the number of references."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge, Le

from capbench.cli import common
from capbench.cli.options import OptionGroup
from capbench.core.arguments import Help
from capbench.core.errors import UsageError, require

if TYPE_CHECKING:
    from capbench.cli.options import LeftOut, ScoringInputs, StudyFlags


@dataclass(frozen=True)
class CurveFlags(OptionGroup):
    """Numbers of references, and groups of items."""

    counts: Annotated[
        str | None, Help("Numbers of references: 1,2,5 or 1-50. Default: 1,2,5,10,… all.", metavar="LIST")
    ] = None
    draws: Annotated[int | None, Ge(1), Le(10_000), Help("Random orders of the references. Default: 5.")] = None
    group: Annotated[list[str] | None, Help("Also show this group (MM); repeatable.", metavar="NAME")] = None


def references(
    study: str | None,
    flags: StudyFlags,
    curve: CurveFlags,
    left_out: LeftOut,
    inputs: ScoringInputs,
    *,
    seed: int | None,
    out: Path | None,
    details: bool,
    json_output: bool,
) -> None:
    """Measure agreement against the number of references; options override a study file."""
    from capbench.api.tasks import references as compute
    from capbench.datasets.root import results_folder
    from capbench.reports.curves import curves_table, write_curves

    for argument, names in (("dataset", flags.dataset), ("protocol", flags.protocol)):
        if names and len(names) > 1:
            message = f"--references-curve takes one --{argument}, not {len(names)}"
            raise UsageError(message, code="too-many", value=names[1], hint="Name one")
    common.check_out_folder(out)
    if out is not None or study is not None:
        require("matplotlib", purpose="the figure of the curves")
    values: Any = inputs.values()
    changes = {
        "counts": None if curve.counts is None else parse_counts(curve.counts),
        "draws": curve.draws,
        "seed": seed,
    }
    found = compute(
        flags.dataset[0] if flags.dataset else None,
        flags.metric or (),
        study=study,
        protocol=flags.protocol[0] if flags.protocol else None,
        without=left_out.names,
        progress=common.caller(json_output=json_output),
        **values | {name: value for name, value in changes.items() if value is not None},
    )
    groups = ("", *(curve.group or ()))
    for curves in found.curves:
        if not json_output:
            common.answer(False, None, [curves_table(curves, group) for group in groups], details=details)
        common.note(f"{len(curves.points):,} points in {curves.seconds:.1f} s")
        folder = out
        if study is not None:
            folder = (out or results_folder(found.name, sample=curves.sample)) / curves.protocol.replace("/", ".")
        if folder is not None:
            common.wrote(*write_curves(curves, folder, groups))
    dumped = found.model_dump(mode="json")["curves"]
    common.answer(json_output, dumped if study is not None else dumped[0], ())
    common.leave_if_waiting(found.missing)


def parse_counts(text: str) -> tuple[int, ...]:
    """Numbers from a list of numbers and ranges: ``1,2,5-8`` → (1, 2, 5, 6, 7, 8)."""
    numbers: set[int] = set()
    for entry in map(str.strip, text.split(",")):
        low, dash, high = entry.partition("-")
        problem = ""
        if not low.isdecimal() or (dash and not high.isdecimal()):
            problem = "is not a number"
        elif dash and not int(low) <= int(high) <= int(low) + 100_000:
            problem = "is not a range"
        if problem:
            code = "not-a-number" if problem == "is not a number" else "out-of-range"
            message, hint = f"--counts {text}: '{entry}' {problem}", "Example: 1,2,5,10 or 1-50"
            raise UsageError(message, code=code, value=entry, hint=hint)
        numbers.update(range(int(low), int(high or low) + 1))
    return tuple(sorted(numbers))
