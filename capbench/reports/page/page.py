"""Assembly of a report: one HTML file with a strict Content-Security-Policy and no external resources."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from capbench import __version__
from capbench.core.errors import UsageError, count
from capbench.core.records import signature_lines
from capbench.datasets.protocol import with_version
from capbench.reports.markup import LATEX_CHARACTERS, SAMPLE
from capbench.reports.page.elements import Html, ReportSource, data_block, joined, lines_list, plain_table, tag
from capbench.reports.page.items import images_listed_first, items_section, panels, thumbnails
from capbench.reports.page.overview import overview, protocols_section
from capbench.studies.item_scores import ItemScores
from capbench.studies.scoring import ProgressFactory, no_progress

# Provenance: studies, files with checksums, signatures, missing metrics, the command.


def provenance_section(sources: Sequence[ReportSource], command: str, problems: Sequence[str]) -> Html:
    """The provenance section."""
    blocks = [_study(source) for source in sources]
    if problems:
        blocks.append(tag("details", tag("summary", "Pictures that could not be read"), lines_list(problems)))
    again = [
        tag("h3", "Command for this page"),
        tag("p", tag("code", command, id="again"), " ", tag("button", "Copy", type="button", data_copies_text="again")),
    ]
    return joined([*(again if command else []), *blocks])


def _study(source: ReportSource) -> Html:
    result = source.result
    lines = [tag("p", f"capbench {result.capbench}, {result.created}; study {result.name}.")]
    if result.published:
        lines.append(tag("p", f"Published numbers: {result.published}"))
    sets = [(info.dataset_title, with_version(info.dataset, info.version)) for info in result.protocols]
    named = dict.fromkeys(title if title == name else f"{title} ({name})" for title, name in sets)
    lines.append(tag("p", f"Data sets: {', '.join(named)}."))
    if source.files:
        rows = [(path, tag("code", sha256)) for path, sha256 in source.files.items()]
        lines.append(plain_table(("file", "SHA-256"), rows, f"Table: files of {result.name}", texts=2))
    elif not source.written:
        lines.append(tag("p", "The numbers were computed for this page and are in no other file."))
    if result.missing:
        by_reason = result.reasons()
        reasons = [f"{', '.join(names)}: {reason}" for reason, names in by_reason.items()]
        count = len(dict.fromkeys(name for names in by_reason.values() for name in names))
        lines.append(tag("details", tag("summary", f"Not computed, in whole or in part: {count}"), lines_list(reasons)))
    if result.undefined:
        summary = tag("summary", f"Numbers that are undefined: {len(result.undefined)}")
        lines.append(tag("details", summary, lines_list(result.undefined_lines())))
    signed = [
        tag("div", tag("h4", items), tag("ul", *(tag("li", tag("code", line)) for line in signature_lines(of_items))))
        for items, of_items in result.signatures.items()
    ]
    if signed:
        note = "A signature identifies everything that can change a metric's scores."
        lines.append(tag("details", tag("summary", "Signatures"), tag("p", note, class_="note"), *signed))
    return tag("div", tag("h3", result.title), *lines)


FindPictures = Callable[[str, Iterable[str]], Mapping[str, Path]]
"""Finds the files of a data set's images, those that exist, by image id."""


def report_page(
    sources: Sequence[ReportSource],
    *,
    title: str | None = None,
    command: str = "",
    pictures: FindPictures | None = None,
    progress: ProgressFactory = no_progress,
) -> str:
    """One self-contained HTML file about one or several studies; the same sources give the same page."""
    if not sources:
        raise UsageError(
            "there are no results to report", code="missing-option", hint="Name a results.json, or a folder with one"
        )
    title = title or (sources[0].result.title if len(sources) == 1 else "Which metric agrees with human ratings?")
    missing_items = [_items_command(source) for source in sources if not source.items]
    sources = _with_distinct_names(sources)
    listed = panels(sources)
    urls: dict[str, str] = {}
    problems: list[str] = []
    if pictures is not None and listed:
        tables = [table for source in sources for table in source.items if len(table) and table.scores]
        paths = _pictures(listed, tables, pictures)
        urls, problems = thumbnails(list(paths), paths, progress)
    sections = {
        "overview": ("Overview", overview(sources)),
        "apart": ("Largest disagreements", items_section(listed, missing_items, len(urls))),
        "protocols": ("Protocols", protocols_section(sources)),
        "provenance": ("Provenance", provenance_section(sources, command, problems)),
    }
    return html_document(title, _header(sources), sections, {"panels": listed, "pictures": urls})


def _pictures(
    listed: Sequence[dict[str, Any]], tables: Sequence[ItemScores], pictures: FindPictures
) -> dict[str, Path]:
    """The pictures of the page by name, which is the image's id unless another picture has it."""
    paths: dict[str, Path] = {}
    wanted = images_listed_first(tables)
    for panel, table in zip(listed, tables, strict=True):
        dataset, here = table.items.split("/")[0], set(table.images)
        names = {}
        for image, path in pictures(dataset, [image for image in wanted if image in here]).items():
            names[image] = image if paths.get(image, path) == path else f"{image} of {dataset}"
            paths[names[image]] = path
        panel["picture"] = [names.get(image) for image in panel["images"]]
    return paths


def _with_distinct_names(sources: Sequence[ReportSource]) -> list[ReportSource]:
    """The studies, with a number appended to a name that an earlier one has."""
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
    folder = str(Path(next(iter(source.files))).parent) if source.files else f"results/{name}"
    return f"capbench correlate {study} --out {folder} --items"


def _header(sources: Sequence[ReportSource]) -> list[Html | None]:
    """The size of a report, and a warning of synthetic data."""
    created = max(source.result.created for source in sources)
    metrics = {name for source in sources for name in source.result.columns}
    protocols = {info.id for source in sources for info in source.result.protocols}
    sets = {info.dataset for source in sources for info in source.result.protocols}
    facts = (
        f"{count(len(metrics), 'metric')}, {count(len(sets), 'data set')}, {count(len(protocols), 'protocol')}. "
        f"Computed {created[:10]} with capbench {sources[0].result.capbench}; page by capbench {__version__}."
    )
    sample = tag("p", SAMPLE, class_="warning") if any(source.result.sample for source in sources) else None
    return [tag("p", facts, class_="note"), sample]


def html_document(
    title: str,
    header: Sequence[Html | None],
    sections: Mapping[str, tuple[str, Html | None]],
    data: Mapping[str, Any] | None = None,
) -> str:
    """A self-contained page in the design of the report, with scripts if they have data.

    ``sections``: name and content by id; those without content are omitted.
    """
    shown = {place: (name, content) for place, (name, content) in sections.items() if content}
    parts = (tag("section", tag("h2", name), content, id=place) for place, (name, content) in shown.items())
    main = joined(parts, "\n")
    style = _colours() + _resource("page.css")
    scripts = [] if data is None else [_resource("vendor", "dataTables.min.js"), _resource("page.js")]
    policy = "; ".join(
        [
            "default-src 'none'",
            *([f"script-src {' '.join(map(_hash, scripts))}"] if scripts else []),
            f"style-src {_hash(style)}",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    links = [tag("a", name, href=f"#{place}") for place, (name, _) in shown.items()]
    head = tag("header", tag("h1", title), *header, tag("nav", *links, aria_label="Sections"))
    needed = "Sorting, searching and the list of captions require scripts."
    before, after = Html(""), Html("")
    if data is not None:
        before = tag("noscript", tag("p", needed, class_="warning"))
        boxes = [tag("div", id="tip", role="tooltip", hidden=True)]
        boxes += [tag("div", id="status", role="status", class_="status")]
        code = joined(Html(f"<script>{text}</script>") for text in scripts)
        after = joined([joined(boxes), data_block("data", {"latex": LATEX_CHARACTERS, **data}), code], "\n")
    skip = tag("a", "Skip to the numbers", href=f"#{next(iter(shown))}", class_="skip")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f'{tag("title", title)}\n<link rel="icon" href="data:,">\n<style>{style}</style>\n</head>\n'
        f"<body>\n{skip}\n{head}\n{before}\n<main>\n{main}\n</main>\n{after}\n</body>\n</html>\n"
    )


def _resource(*names: str) -> str:
    text = files("capbench.reports.page").joinpath(*names).read_text(encoding="utf-8")
    if "</script" in text.lower() or "</style" in text.lower():
        raise ValueError(f"{names[-1]} would end its own element")
    return text


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


_LIGHT = {"ground": "#ffffff", "ink": "#1b1b1b", "soft": "#5c5c5c", "rule": "#c9c9c9"}
_LIGHT |= {"reference": "#0072b2", "candidate": "#d55e00", "missing": "#007d5b", "neutral": "#767676"}
_DARK = {"ground": "#16181b", "ink": "#ececec", "soft": "#a9adb3", "rule": "#44484e"}
_DARK |= {"reference": "#56b4e9", "candidate": "#f0903c", "missing": "#3ccba0", "neutral": "#9a9a9a"}


def _colours() -> str:
    """The colours of the light and the dark page, from Okabe and Ito's palette."""

    def rule(palette: Mapping[str, str]) -> str:
        return " ".join(f"--{name}: {colour};" for name, colour in palette.items())

    dark = f"@media screen and (prefers-color-scheme: dark) {{ :root {{ color-scheme: dark; {rule(_DARK)} }} }}"
    return f":root {{ color-scheme: light; {rule(_LIGHT)} }}\n{dark}\n"
