"""Where everything in a report is from: studies, files with checksums, signatures, what is missing, the command."""

from __future__ import annotations

from collections.abc import Sequence

from capbench.datasets.protocol import with_version
from capbench.records import signature_lines
from capbench.reports.report.elements import Html, tag, wide
from capbench.reports.report.sources import ReportSource
from capbench.studies.results import StudyResult

__all__ = ["provenance_section"]


def provenance_section(sources: Sequence[ReportSource], command: str, problems: Sequence[str]) -> Html:
    """The section.

    Args:
        sources: the studies.
        command: what makes the page again; ``""`` if it is not known.
        problems: pictures that could not be read, captions that could not be explained.
    """
    blocks = [_study(source) for source in sources]
    if problems:
        blocks.append(
            tag(
                "details",
                tag("summary", "Pictures that could not be read, captions that could not be explained"),
                _list(problems),
            )
        )
    again = [
        tag("h3", "This page again"),
        tag("p", tag("code", command, id="again"), " ", tag("button", "Copy", type="button", data_copies_text="again")),
    ]
    return tag("section", tag("h2", "Provenance"), *(again if command else []), *blocks, id="provenance")


def _study(source: ReportSource) -> Html:
    result = source.result
    lines = [tag("p", f"capbench {result.capbench}, {result.created}; study {result.name}.")]
    if result.published:
        lines.append(tag("p", f"Published numbers: {result.published}"))
    lines.append(tag("p", f"Data sets: {', '.join(_data_sets(result))}."))
    if source.files:
        rows = [
            tag("tr", tag("th", file.path, scope="row"), tag("td", tag("code", file.sha256))) for file in source.files
        ]
        head = tag("tr", tag("th", "file", scope="col"), tag("th", "SHA-256", scope="col"))
        lines.append(
            wide(
                tag("table", tag("thead", head), tag("tbody", *rows), class_="plain"), f"Table: files of {result.name}"
            )
        )
    else:
        lines.append(tag("p", "The numbers were computed for this page and stand in no other file."))
    if result.missing:
        by_reason = result.reasons()
        reasons = [f"{', '.join(names)}: {reason}" for reason, names in by_reason.items()]
        count = len(dict.fromkeys(name for names in by_reason.values() for name in names))
        lines.append(tag("details", tag("summary", f"Not computed, in whole or in part: {count}"), _list(reasons)))
    signed = [
        tag("div", tag("h4", items), tag("ul", *(tag("li", tag("code", line)) for line in signature_lines(of_items))))
        for items, of_items in result.signatures.items()
    ]
    if signed:
        note = "A signature names everything that can change a metric's scores."
        lines.append(tag("details", tag("summary", "Signatures"), tag("p", note, class_="note"), *signed))
    return tag("div", tag("h3", result.title), *lines)


def _data_sets(result: StudyResult) -> list[str]:
    return list(
        dict.fromkeys(f"{info.dataset_title} ({with_version(info.dataset, info.version)})" for info in result.protocols)
    )


def _list(texts: Sequence[str]) -> Html:
    return tag("ul", *(tag("li", text) for text in dict.fromkeys(texts)))
