"""Puts a report together: one file, a strict policy, nothing from elsewhere."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from capbench import __version__
from capbench.errors import UsageError
from capbench.explain.drawing import DARK, LIGHT
from capbench.explain.page import style_sheet
from capbench.files import write_text
from capbench.reports.html import SAMPLE
from capbench.reports.markup import LATEX_CHARACTERS
from capbench.reports.report.elements import Html, data_block, joined, tag
from capbench.reports.report.explanations import dialog, explained
from capbench.reports.report.items_panel import items_section, panels
from capbench.reports.report.metric_sections import metric_sections
from capbench.reports.report.numbers import entries
from capbench.reports.report.overview import number_rows, overview
from capbench.reports.report.protocol_words import protocols_section
from capbench.reports.report.provenance import provenance_section
from capbench.reports.report.sources import ReportSource
from capbench.reports.report.thumbnails import images_listed_first, thumbnails
from capbench.studies.judged import ProgressFactory, no_progress

__all__ = ["report_page", "write_report"]

FindPictures = Callable[[Iterable[str]], Mapping[str, Path]]
"""Finds the files of images, as far as they are there, by image id."""
_SECTIONS = (
    ("overview", "Overview"),
    ("metrics", "Metrics"),
    ("apart", "Where metric and people part"),
    ("protocols", "Protocols"),
    ("provenance", "Provenance"),
)


def write_report(
    sources: Sequence[ReportSource],
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
    command: str = "",
    pictures: FindPictures | None = None,
    explanations: int = 0,
    progress: ProgressFactory = no_progress,
) -> None:
    """Write a report; the arguments are those of :func:`report_page`.

    Raises:
        UsageError: there is no study, or the file cannot be written.
    """
    text = report_page(
        sources, title=title, command=command, pictures=pictures, explanations=explanations, progress=progress
    )
    write_text(path, text)


def report_page(
    sources: Sequence[ReportSource],
    *,
    title: str | None = None,
    command: str = "",
    pictures: FindPictures | None = None,
    explanations: int = 0,
    progress: ProgressFactory = no_progress,
) -> str:
    """One HTML file over one study or several, that needs nothing beside itself.

    The same sources give the same page.

    Args:
        sources: the studies, in the order of the page.
        title: its title; default: that of the only study.
        command: what makes the page again, as it is shown.
        pictures: finds pictures for the captions that are listed first; None for a page without.
        explanations: how many captions of each row in each list are explained, by what the sources bring for it.
        progress: makes progress bars.

    Raises:
        UsageError: there is no study.
    """
    if not sources:
        raise UsageError("there are no results to report", hint="Name a results.json, or a folder that holds one")
    title = title or (sources[0].result.title if len(sources) == 1 else "Which metric agrees with people?")
    lacking = [_items_command(source) for source in sources if not source.items]
    sources = _told_apart(sources)
    numbers = entries(sources)
    why = explained(sources, explanations, pictures, progress)
    listed = panels(sources, why)
    urls: dict[str, str] = {}
    problems: list[str] = []
    if pictures is not None and listed:
        wanted = images_listed_first([table for source in sources for table in source.items])
        urls, problems = thumbnails(wanted, pictures(wanted), progress)
    several = len(sources) > 1
    data = {
        "numbers": number_rows(numbers, studies=several),
        "panels": listed,
        "pictures": urls,
        "latex": LATEX_CHARACTERS,
        "explanations": why.pages,
    }
    main = [
        overview(sources, numbers),
        metric_sections(sources, numbers, progress),
        items_section(listed, lacking, len(urls), why),
        protocols_section(sources, numbers),
        provenance_section(sources, command, [*problems, *dict.fromkeys(why.problems)]),
    ]
    return _document(title, sources, joined(main, "\n"), data)


def _told_apart(sources: Sequence[ReportSource]) -> list[ReportSource]:
    """The studies, with a number behind a name that an earlier one has."""
    counts: dict[str, int] = {}
    named = []
    for source in sources:
        name = source.result.name
        counts[name] = counts.get(name, 0) + 1
        if counts[name] > 1:
            source = replace(source, result=source.result.model_copy(update={"name": f"{name} ({counts[name]})"}))
        named.append(source)
    return named


def _items_command(source: ReportSource) -> str:
    name = source.result.name
    study = "..." if name == "quick-look" else name
    folder = str(Path(source.files[0].path).parent) if source.files else f"results/{name}"
    return f"capbench correlate {study} --out {folder} --items"


def _document(title: str, sources: Sequence[ReportSource], main: Html, data: Mapping[str, Any]) -> str:
    style = _colours() + _resource("page.css")
    # A frame has the policy of the page that it stands in, so that explanations' one style is allowed there.
    styles = [style, style_sheet()] if data["explanations"] else [style]
    scripts = [_resource("vendor", "dataTables.min.js"), _resource("page.js")]
    policy = "; ".join(
        [
            "default-src 'none'",
            f"script-src {' '.join(map(_hash, scripts))}",
            f"style-src {' '.join(map(_hash, styles))}",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    links = [tag("a", name, href=f"#{place}") for place, name in _SECTIONS]
    created = max(source.result.created for source in sources)
    metrics = {name for source in sources for name in source.result.columns}
    protocols = {info.id for source in sources for info in source.result.protocols}
    sets = {info.dataset for source in sources for info in source.result.protocols}
    facts = (
        f"{_count(len(metrics), 'metric')}, {_count(len(sets), 'data set')}, {_count(len(protocols), 'protocol')}. "
        f"Computed {created[:10]} with capbench {sources[0].result.capbench}; page by capbench {__version__}."
    )
    sample = tag("p", SAMPLE, class_="warning") if any(source.result.sample for source in sources) else None
    head = tag(
        "header", tag("h1", title), tag("p", facts, class_="note"), sample, tag("nav", *links, aria_label="Sections")
    )
    noscript = tag("noscript", tag("p", "Sorting, searching and the list of captions need scripts.", class_="warning"))
    tip = tag("div", id="tip", role="tooltip", hidden=True)
    told = tag("div", id="told", role="status", class_="told")
    shown = dialog() if data["explanations"] else ""
    code = [Html(f"<script>{text}</script>") for text in scripts]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f'{tag("title", title)}\n<link rel="icon" href="data:,">\n<style>{style}</style>\n</head>\n'
        f"<body>\n{tag('a', 'To the numbers', href='#overview', class_='skip')}\n{head}\n{noscript}\n"
        f"<main>\n{main}\n</main>\n{tip}{told}{shown}\n{data_block('data', data)}\n"
        f"{joined(code)}\n</body>\n</html>\n"
    )


def _resource(*names: str) -> str:
    text = files("capbench.reports.report").joinpath(*names).read_text(encoding="utf-8")
    if "</script" in text.lower() or "</style" in text.lower():
        raise ValueError(f"{names[-1]} would end its own element")
    return text


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _colours() -> str:
    """The colours of explanations, so that both kinds of pages look alike."""

    def rule(palette: Mapping[str, str]) -> str:
        return " ".join(f"--{name}: {colour};" for name, colour in palette.items())

    dark = f"@media screen and (prefers-color-scheme: dark) {{ :root {{ color-scheme: dark; {rule(DARK)} }} }}"
    return f":root {{ color-scheme: light; {rule(LIGHT)} }}\n{dark}\n"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
