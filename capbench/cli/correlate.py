"""``capbench correlate``: run a study and print how well each metric agrees with human judgements."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from capbench.api.arguments import CurveChoices, Statistics
from capbench.cli import common
from capbench.cli.options import LeftOut, ScoringInputs, SentinelsOption, StudyFlags
from capbench.cli.report import ReportOption, write_report
from capbench.core.arguments import Help
from capbench.core.errors import require


def correlate(
    *,
    study: common.StudyArgument = None,
    flags: StudyFlags,
    out: Annotated[
        Path | None,
        common.output(
            "Folder of results. Default for studies: results/NAME, on the sample results/sample/NAME.", "DIR"
        ),
    ] = None,
    statistics: Statistics,
    left_out: LeftOut,
    all_protocols: Annotated[bool, Help("Rank the metrics under every protocol of the data sets.")] = False,
    by_source: Annotated[bool, Help("Also a table by source, domain or kind of pairs for each protocol.")] = False,
    details: common.DetailsOption = False,
    digits: common.DigitsOption = None,
    sentinels: SentinelsOption = None,
    curve: CurveChoices,
    report: ReportOption = None,
    items: Annotated[bool, Help("Also write items.json.gz next to the results, for 'capbench figure report'.")] = False,
    cite: common.CiteOption = False,
    inputs: ScoringInputs,
    json_output: common.JsonOption = False,
) -> None:
    """Correlate metrics with human judgements.

    A study file defines data sets, metrics and published tables; --dataset restricts it to some of its data sets.
    Without one, --dataset and --metric define a quick study; by default it has all metrics (with --scores, only the
    score files) and all installed judgements. Other options apply to both and override the study file. DATASET@GROUP is
    one group of a data set's items, DATASET:VERSION one of its versions.

    On your own judgements (a file or an imported data set), the metrics are ranked with intervals and tests, and a
    sentence names the best one and how many images would separate it from the next that is not computed from it.

    Exit code 1: done, but something is missing (listed): data files, features, requirements of a metric, or a value of
    an undefined statistic.

    Example: capbench correlate -d flickr8k-expert -m all --bootstrap --compare permutation

    Example: capbench correlate -d composite@8k -p all-references/correctness-tau-b -m cider,meteor

    Example: capbench correlate -d ratings.csv -m meteor,cider --columns image=file,candidate=text

    Example: capbench correlate --all-protocols -d flickr8k-expert -m all --compare permutation

    Example: capbench correlate --references-curve -d pascal-50s -m meteor,cider --counts 1,2,5,10,20,50 --by-source
    """
    from capbench.api.agreement import over_all_protocols, plan_agreement, study_of
    from capbench.core.files import check_writable
    from capbench.datasets.root import results_folder
    from capbench.reports.table import TableStyle
    from capbench.reports.tables import study_document
    from capbench.studies.item_scores import ITEMS_FILE, Collector, write_items
    from capbench.studies.run import run_plan

    caller = common.caller(json_output=json_output)
    if json_output:
        common.refuse_options({"cite": cite}, "does not apply to --json")
    if study is None and out is None:
        hint = "Add --out DIR, or omit it"
        common.refuse_options({"items": items}, "requires --out", code="missing-option", hint=hint)
    common.check_out_folder(out)
    if report is not None:
        check_writable(report)
    given = inputs.values()
    named = study_of(flags.dataset, flags.metric or (), flags.protocol, given, caller, file=study)
    # The page has the sentinels of every study; the printed tables only if they are requested.
    for_page_only = report is not None and sentinels is None and not (all_protocols or named.sentinels)
    wanted = for_page_only or (named.sentinels if sentinels is None else sentinels)
    named = replace(named, without=tuple(left_out.without or ()), sentinels=wanted)
    chosen = {**statistics, **curve}
    if all_protocols:
        named = over_all_protocols(named, {"protocol": flags.protocol, "sentinels": sentinels, **chosen}, caller)
    plan = plan_agreement(named, given, caller, chosen)
    collector = Collector() if report is not None or items else None
    if study is not None:
        out = out or results_folder(plan.study.name, sample=plan.on_sample)
    if out is not None:
        check_writable(out / "results.json")
        if plan.study.curves is not None:
            require("matplotlib", purpose="the figure of the curves")
    if plan.on_sample and plan.study.published and not json_output:
        print("published numbers are omitted: they were measured on real judgements, not on this sample")
    files: list[Path] = []
    result = run_plan(plan, caller.progress, cache=inputs.cache, announce=caller.announce, keep=collector)
    counted = common.count(len(result.cells) - len(result.undefined), "number")
    printed = result.model_copy(update={"sentinels": ()}) if for_page_only else result
    document = study_document(printed, by_source=by_source, style=TableStyle(digits=digits))
    common.answer(json_output, printed, [document], details=details)
    if cite:
        print(f"\n{printed.cite()}", end="")
    if out is not None:
        files = printed.write(out, by_source=by_source)
    common.note(f"{counted} in {result.seconds['total']:.1f} s")
    if out is not None:
        if collector is not None and items:
            write_items(collector.tables, out / ITEMS_FILE)
            files.append(out / ITEMS_FILE)
        else:  # those of an earlier run belong to other results
            (out / ITEMS_FILE).unlink(missing_ok=True)
    common.wrote(*files)
    if report is not None:
        write_report(report, result, collector, plan, written=out is not None)
    common.leave_if_missing(result)
