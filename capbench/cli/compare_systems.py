"""``capbench compare-systems``: test captioning systems against each other on the same images."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from capbench.api.arguments import SystemSettings
from capbench.cli import common
from capbench.cli.options import Cached, argument, named_file
from capbench.cli.report import ReportOption
from capbench.core.arguments import Help
from capbench.core.errors import UsageError, check_choice

if TYPE_CHECKING:
    from capbench.api.systems import SystemInputs


def compare_systems(
    *,
    systems: Annotated[
        list[str], argument("[NAME=]FILE", "Captions of systems, the baseline first. Default name: the file's.")
    ],
    references: common.ReferencesOption,
    metric: common.MetricsOption = None,
    settings: SystemSettings,
    fail_if_worse: Annotated[bool, Help("Exit code 3 if a system is significantly worse than the baseline.")] = False,
    out: Annotated[Path | None, common.output("Write the comparison: .csv, .json, .md or .tex.")] = None,
    report: ReportOption = None,
    details: common.DetailsOption = False,
    inputs: Cached,
    json_output: common.JsonOption = False,
) -> None:
    """Test whether captioning systems differ in a metric.

    Each file has one caption for each of the same images. Default metrics: bleu-4, rouge-l, meteor and cider. Prints
    corpus scores with 95 % bootstrap intervals over images, and one sentence for each pair of systems. See
    docs/statistics.md.

    Example: capbench compare-systems baseline.json new.json --references captions_val2014.json -m cider

    Example: capbench compare-systems old=a.json new=b.json --references refs.json --test bootstrap --fail-if-worse
    """
    from capbench.api.systems import SYSTEM_METRICS
    from capbench.api.systems import compare_systems as compare
    from capbench.core.files import check_writable, json_text, write_text
    from capbench.reports.systems import systems_csv, systems_document
    from capbench.reports.terminal import print_document
    from capbench.stats.significance import PERMUTATIONS

    if out is not None:
        check_choice("ending of --out", out.suffix.lower(), (".csv", ".json", ".md", ".tex"), code="wrong-value")
    targets = [path for path in (out, report) if path is not None]
    for path in targets:
        check_writable(path)
    drawn = settings.get("resamples")
    if settings.get("test") == "bootstrap":
        common.refuse_options({"permutations": settings.get("permutations")}, "does not apply to --test bootstrap")
    else:
        drawn = settings.get("permutations")
        settings["permutations"] = drawn or PERMUTATIONS
    values: SystemInputs = {**inputs.values(), **settings}  # type: ignore[typeddict-unknown-key]
    caller = common.caller(json_output=json_output)
    given = list(map(named_file, systems))
    if empty := [name for name, file in given if not file]:
        hint = "Write NAME=FILE"
        raise UsageError(f"{empty[0]}= names no file", code="missing-file", value=f"{empty[0]}=", hint=hint)
    files = [(name or Path(file).stem, Path(file)) for name, file in given]
    comparison = compare(files, references, metric or SYSTEM_METRICS, progress=caller, **values)
    table = comparison.table
    used, noun = (table.permutations, "permutations") if table.permutations else (table.resamples, "resamples")
    if drawn is not None and used > drawn:
        pairs = common.count(len(table.pairs), "comparison")
        common.note(f"{used:,} {noun} were used: {drawn:,} are too few for {pairs}")
    document, worse = comparison.as_json(), comparison.worse()
    if fail_if_worse:
        named = [{"system": pair.system, "score": pair.score} for pair in worse]
        document["fail_if_worse"] = {"worse": named, "passed": not worse}
    common.answer(
        json_output, document, lambda: print_document(systems_document(comparison), common.out(), details=details)
    )
    for line in comparison.warnings:
        common.warn(line)
    if out is not None:
        written: dict[str, Callable[[], str]] = {
            ".csv": lambda: systems_csv(comparison),
            ".json": lambda: json_text(document) + "\n",
            ".md": comparison.to_markdown,
            ".tex": comparison.to_latex,
        }
        write_text(out, written[out.suffix.lower()]())
    if report is not None:
        comparison.write_html(report)
    common.wrote(*targets)
    if fail_if_worse and worse:
        for pair in worse:
            title = comparison.titles[pair.score]
            common.note(f"{pair.system} scores significantly lower than {pair.other} in {title}")
        raise typer.Exit(common.BELOW_BAR)
