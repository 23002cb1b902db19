"""``capbench correlate``: run a study and print how well each metric agrees with human judgements.

With ``--references-curve``: human agreement against the number of references.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from capbench.cli import common
from capbench.cli.options import ScoringInputs, with_groups
from capbench.cli.references import CurveFlags, references
from capbench.cli.report import ExplanationsOption, ReportOption, write_report
from capbench.cli.study_flags import LeftOut, SentinelsOption, StatisticsFlags, StudyFlags
from capbench.core.errors import UsageError

if TYPE_CHECKING:
    from capbench.studies.all_protocols import SensitivityResult
    from capbench.studies.item_scores import Collector
    from capbench.studies.results import StudyResult


@with_groups
def correlate(
    *,
    study: Annotated[
        str | None,
        typer.Argument(metavar="[STUDY.yaml]", help="Study file, or the name of a shipped one."),
    ] = None,
    flags: StudyFlags,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="DIR",
            help="Folder for CSV, JSON, Markdown and LaTeX. Default for studies: results/NAME, on the sample "
            "results/sample/NAME.",
        ),
    ] = None,
    escape_formulas: common.EscapeOption = False,
    statistics: StatisticsFlags,
    left_out: LeftOut,
    all_protocols: Annotated[
        bool,
        typer.Option(
            "--all-protocols",
            help="Rank the metrics under every protocol of the data sets.",
        ),
    ] = False,
    by_source: Annotated[
        bool,
        typer.Option("--by-source", help="Also a table by source, domain or kind of pairs for each protocol."),
    ] = False,
    details: common.DetailsOption = False,
    digits: common.DigitsOption = None,
    sentinels: SentinelsOption = None,
    references_curve: Annotated[
        bool,
        typer.Option("--references-curve", help="Instead: measure agreement against the number of references."),
    ] = False,
    curve: CurveFlags,
    report: ReportOption = None,
    explanations: ExplanationsOption = None,
    items: Annotated[
        bool,
        typer.Option(
            "--items",
            help="With --out or a study file: also write items.json.gz for 'capbench figure report'.",
        ),
    ] = False,
    cite: common.CiteOption = False,
    inputs: ScoringInputs,
    json_output: common.JsonOption = False,
) -> None:
    """Correlate metrics with human judgements.

    A study file defines data sets, metrics and published tables; --dataset restricts it to some of its data sets.
    Without one, --dataset and --metric define a quick
    study; by default it has all metrics (with --scores, only the score files) and all installed judgements. Other
    options apply to both and override the study file. DATASET@GROUP is one group of a data set's items,
    DATASET:VERSION one of its versions.

    On your own judgements (a file or an imported data set), the metrics are ranked with intervals and tests, and a
    sentence names the best one and how many images would separate it from the next that is not computed from it.

    Exit code 1: done, but something is missing (listed): data files, features, requirements of a metric, or a value of
    an undefined statistic.

    Example: capbench correlate configs/tiger-table1.yaml

    Example: capbench correlate configs/tiger-table1.yaml --without spice -d flickr8k-expert

    Example: capbench correlate -d flickr8k-expert -m all --bootstrap --compare permutation

    Example: capbench correlate -d composite -p all-references/correctness-tau-b -m cider,meteor

    Example: capbench correlate -d composite@8k -m cider,meteor

    Example: capbench correlate -d ratings.csv -m all

    Example: capbench correlate -d ratings.csv -m meteor,cider --columns image=file,candidate=text

    Example: capbench correlate --all-protocols -d flickr8k-expert -m all --compare permutation

    Example: capbench correlate --references-curve -d pascal-50s -m meteor,cider --counts 1,2,5,10,20,50 --group MM
    """
    from capbench.api.agreement import StudyRequest, plan_agreement
    from capbench.core.files import check_writable
    from capbench.datasets.root import results_folder

    if references_curve:
        others = asdict(replace(statistics, seed=None)) | {"all_protocols": all_protocols, "by_source": by_source}
        others["compare"] = others.pop("test")
        others |= {"report": report, "explanations": explanations, "items": items, "sentinels": sentinels}
        others |= {"cite": cite, "digits": digits}
        common.refuse_options(others, "does not apply to --references-curve")
        references(
            study,
            flags,
            curve,
            seed=statistics.seed,
            out=out,
            escape_formulas=escape_formulas,
            left_out=left_out,
            inputs=inputs,
            details=details,
            json_output=json_output,
        )
        return
    common.refuse_options(
        asdict(curve), "requires --references-curve", code="missing-option", hint="Add --references-curve, or omit it"
    )
    if json_output or all_protocols:
        common.refuse_options({"cite": cite}, f"does not apply to {'--json' if json_output else '--all-protocols'}")
    if escape_formulas and study is None and out is None:
        raise UsageError("--escape-formulas requires --out", code="missing-option", hint="Add --out DIR, or omit it")
    if items and study is None and out is None:
        raise UsageError("--items requires --out", code="missing-option", hint="Add --out DIR, or omit --items")
    if report is not None:
        check_writable(report)
    elif explanations is not None:
        raise UsageError(
            "--explanations requires --report", code="missing-option", hint="Add --report FILE, or omit --explanations"
        )
    if out is not None:
        common.check_out_folder(out)
    request = StudyRequest(
        study=study,
        datasets=flags.dataset,
        metrics=flags.metric or (),
        protocols=flags.protocol,
        statistics=statistics.choice(),
        without=left_out.names,
        all_protocols=all_protocols,
        sentinels=sentinels,
    )
    planned = plan_agreement(request, inputs.values(), common.caller(json_output=json_output))
    plan, collector = planned.plan, _collector(report, items)
    for_page_only = report is not None and sentinels is None and not (all_protocols or plan.study.sentinels)
    if for_page_only:
        planned = replace(planned, plan=replace(plan, study=replace(plan.study, sentinels=True)))
    if study is not None:
        out = out or results_folder(plan.study.name, sample=plan.on_sample)
    if out is not None:
        check_writable(out / "results.json")
    if plan.on_sample and plan.study.published and not json_output:
        print("published numbers are omitted: they were measured on real judgements, not on this sample")
    result: StudyResult
    if all_protocols:
        sensitivity = planned.run_all_protocols(collector)
        result = sensitivity.result
        _print_all_protocols(sensitivity, details=details, json_output=json_output)
        written = []
        if out is not None:
            from capbench.reports.sensitivity import write_sensitivity

            written = write_sensitivity(sensitivity, out, escape_formulas=escape_formulas)
    else:
        from capbench.reports.table import TableStyle
        from capbench.reports.terminal import print_result

        result = measured = planned.run(collector)
        if for_page_only:
            measured = measured.model_copy(update={"sentinels": ()})
        if json_output:
            common.print_json(measured.model_dump(mode="json"))
        else:
            style = TableStyle(digits=digits)
            print_result(measured, common.out(), by_source=by_source, details=details, style=style)
        numbers = common.count(len(measured.cells) - len(measured.undefined), "number")
        common.note(f"{numbers} in {measured.seconds['total']:.1f} s")
        if cite:
            print(f"\n{measured.cite()}", end="")
        written = []
        if out is not None:
            written = measured.write(out, escape_formulas=escape_formulas, by_source=by_source)
    for path in written:
        common.note(f"wrote {path}")
    if out is not None:
        _write_items(collector, out, items)
    write_report(report, result, collector, plan, explanations, written=out is not None)
    common.leave_if_missing(result)


def _collector(report: Path | None, items: bool) -> Collector | None:
    """The collector of items for ``--report`` and ``--items``; None without them."""
    if report is None and not items:
        return None
    from capbench.studies.item_scores import Collector

    return Collector()


def _write_items(collector: Collector | None, out: Path, wanted: bool) -> None:
    """Write the items next to the results; remove those of an earlier run, which belong to other results."""
    from capbench.studies.item_scores import ITEMS_FILE, write_items

    path = out / ITEMS_FILE
    if collector is not None and wanted:
        write_items(collector.tables, path)
        common.note(f"wrote {path}")
    else:
        path.unlink(missing_ok=True)


def _print_all_protocols(sensitivity: SensitivityResult, *, details: bool, json_output: bool) -> None:
    from capbench.reports.sensitivity import print_sensitivity

    if json_output:
        common.print_json(sensitivity.model_dump(mode="json"))
    else:
        print_sensitivity(sensitivity, common.out(), details=details)
    protocols = sum(len(data.protocols) for data in sensitivity.datasets)
    common.note(f"{protocols} protocols in {sensitivity.result.seconds['total']:.1f} s")
