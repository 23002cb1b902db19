"""``capbench data``: list, describe, verify, download and import data sets, and exchange parses of captions."""

from __future__ import annotations

import contextlib
import dataclasses
import posixpath
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from capbench.cli import common
from capbench.cli.options import SpreadPlace, with_groups
from capbench.core.errors import CapbenchError, DataError, UsageError, suggest

if TYPE_CHECKING:
    from capbench.datasets.catalog import Catalog
    from capbench.datasets.inventory import FileReport
    from capbench.datasets.root import DataRoot

__all__ = ["app", "bytes_progress", "dataset_info", "imported_info", "parses", "print_info", "print_reports"]


# Output: descriptions of data sets, results of a verification, progress of a download.


def dataset_info(name: str, root: DataRoot, known: Catalog) -> dict[str, Any]:
    """All facts in the catalog and the registered class of a data set."""
    from capbench.datasets.base import dataset_names

    entry = known.datasets[name]
    sources: dict[str, Any] = {}
    for path in entry.files:
        source = known.files[path].source
        sources.setdefault(source, {**known.sources[source].model_dump(exclude_none=True), "files": []})
        sources[source]["files"].append(path)
    needs = []
    for need in entry.needs:
        met = need.met(root.path)
        paths = [path for alternative in need.any_of for path in alternative]
        files = [{"path": p, "here": (root.path / p).exists(), **_about(known, p)} for p in paths]
        needs.append(
            {
                "role": need.role,
                "needed": need.needed,
                "why": need.why,
                "met": met is not None,
                "any_of": [list(files) for files in need.any_of],
                "files": files,
            }
        )
    about: dict[str, Any] = {"dataset": name, "title": entry.title, "what": entry.what, "citation": entry.citation}
    return about | {
        "needs": needs,
        "sources": sources,
        "protocols": _protocols(name) if name in dataset_names() else None,
    }


def _about(known: Catalog, path: str) -> dict[str, Any]:
    return known.files[path].model_dump(include={"what", "note", "source"})


def _protocols(name: str) -> dict[str, Any]:
    from capbench.datasets.base import load_dataset

    cls = load_dataset(name)
    return {
        "default": str(cls.protocol()),
        "items": {s.name: _described(s.description, s.source) for s in cls.selections.values()},
        "statistics": {s.name: _described(s.description, s.source) for s in cls.statistics.values()},
    }


def _described(description: str, source: str) -> str:
    return f"{description} ({source})" if source else description


def imported_info(name: str, root: DataRoot) -> dict[str, Any]:
    """All facts of imported judgements; ``folder`` is their folder."""
    from capbench.datasets.opening import open_dataset
    from capbench.datasets.user.judgements import find_imported, read_meta

    folder = find_imported(name, root)
    assert folder is not None
    meta = read_meta(folder)
    opened = open_dataset(name, root)
    return {
        "dataset": name,
        "title": name,
        "what": f"your own {meta['kind']}, {meta['rows']:,} rows",
        "citation": opened.citation,
        "folder": str(folder),
        "meta": meta,
        "protocols": {
            "default": str(opened.protocol()),
            "items": {s.name: s.description for s in opened.selections.values()},
            "statistics": {s.name: s.description for s in opened.statistics.values()},
        },
    }


def print_info(entry: dict[str, Any], *, full: bool) -> None:
    """Print the result of :func:`dataset_info` or :func:`imported_info`."""
    console = common.out()

    def show(text: str, style: str | None = None) -> None:
        console.print(text, style=style, markup=False, soft_wrap=True)

    show(f"{entry['dataset']}: {entry['title']}", "bold")
    show(f"  {entry['what']}")
    show(f"  cite: {entry['citation']}")
    if "folder" in entry:
        show(f"  folder: {entry['folder']}")
    for need in entry.get("needs", []):
        state = "installed" if need["met"] else "missing" if need["needed"] else "not installed (optional)"
        why = f" (for {need['why']})" if need["why"] else ""
        show(f"  {need['role']}{why}: {state}")
        for i, alternative in enumerate(need["any_of"]):
            show(f"    {'or ' if i else ''}{_shown(alternative)}")
    if full:
        _print_sources(entry, show)
        _print_protocols(entry.get("protocols"), show)
    console.print()


def _shown(files: list[str]) -> str:
    """Up to three files by name, more by their common folder (--json has all names)."""
    if len(files) <= 3:
        return ", ".join(files)
    folder = posixpath.commonpath(files)
    return f"{folder}/ ({len(files)} files)"


def _print_sources(entry: dict[str, Any], show: Callable[..., None]) -> None:
    for name, source in entry.get("sources", {}).items():
        show(f"  source {name}: {source['title']}", "bold")
        labels = {
            "page": "page",
            "terms": "terms",
            "form": "form",
            "note": "note",
            "dead": "dead link",
            "manual": "manual download",
        }
        for key, label in labels.items():
            if key in source:
                show(f"    {label}: {source[key]}")
        if "url" in source and "dead" not in source:
            show(f"    download: capbench data download {name}")
    notes = {file["path"]: file["note"] for need in entry.get("needs", []) for file in need["files"] if file["note"]}
    for path, text in notes.items():
        show(f"  note on {path}: {text}")


def _print_protocols(protocols: dict[str, Any] | None, show: Callable[..., None]) -> None:
    if not protocols:
        return
    show(f"  default protocol: {protocols['default']}", "bold")
    for kind in ("items", "statistics"):
        show(f"  {kind}:")
        for name, text in protocols[kind].items():
            show(f"    {name}: {text}")


def print_reports(results: dict[str, list[FileReport]], *, full: bool) -> None:
    """Print the result by data set; without ``full`` only files with a state other than ``ok``."""
    from rich.table import Table

    styles = {"ok": "green", "recorded": "green", "differs": "yellow", "wrong": "red", "missing": "yellow"}
    for name, reports in results.items():
        good = sum(r.state in ("ok", "recorded") for r in reports)
        if not reports or all(r.state == "missing" for r in reports):
            verdict = "not installed"
        else:
            verdict = f"{good} of {common.count(len(reports), 'file')} valid"
        common.out().print(f"{name}: {verdict}", style="bold", markup=False)
        table = Table(box=None, padding=(0, 2, 0, 2), show_header=False)
        for _ in range(3):
            table.add_column(overflow="fold")
        for report in reports:
            if full or report.state not in ("ok",):
                table.add_row(report.path, f"[{styles[report.state]}]{report.state}[/]", report.detail)
        if table.row_count:
            common.out().print(table)


@contextlib.contextmanager
def bytes_progress(name: str) -> Iterator[Callable[[int, int | None], None] | None]:
    """A progress bar of bytes on stderr; yields its callback for ``fetch``, or None without a terminal."""
    console = common.err()
    if not console.is_terminal:
        yield None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(name, total=None)
        yield lambda received, total: bar.update(task, completed=received, total=total)


# ``capbench data parses``: parses of captions in the cache.

parses = typer.Typer(
    name="parses",
    help="Compute, export and import parses of captions.\n\nSPICE and FAIEr require them.\n\n"
    "Example: capbench data parses export parses.gz",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@parses.command("make")
@with_groups
def make_parses(
    *,
    captions: Annotated[
        list[str],
        typer.Option(
            "--captions",
            "-c",
            metavar="NAME|FILE",
            help="Captions to parse: a corpus (flickr8k, flickr30k, coco-val, ...) or a file; repeatable.",
        ),
    ],
    place: SpreadPlace,
    data: common.DataOption = None,
    json_output: common.JsonOption = False,
) -> None:
    """Parse captions in advance, such as those of a training.

    Captions in the cache are not parsed again, and an interrupted run resumes. Requires SPICE's parser
    ('capbench setup spice').

    Example: capbench data parses make --captions flickr8k

    Example: capbench data parses make --captions coco-val --on ray --workers 8
    """
    from capbench.datasets.captions import load_captions
    from capbench.datasets.root import find_root
    from capbench.text import ptb
    from capbench.text.spice import scene_graph

    root = find_root(data)
    common.announce_root(root, json_output=json_output)
    texts = [text for name in captions for image in load_captions(name, root).values() for text in image]
    tokens = ptb.tokenize(texts)
    missing = scene_graph.missing(tokens)
    if missing:
        minutes = max(1, round(len(missing) / scene_graph.per_second() / 60))
        common.note(
            f"{common.count(len(missing), 'caption')} to parse, about {common.count(minutes, 'minute')} if this "
            "machine is otherwise idle"
        )
        with place.spread() as spread, common.progress("parsing captions", len(missing)) as step:
            scene_graph.ensure(missing, progress=step, spread=spread)
    distinct, parsed = len(set(tokens)), len(missing)
    if json_output:
        common.print_json({"captions": len(texts), "distinct": distinct, "parsed": parsed})
        return
    print(f"{len(texts):,} captions, {distinct:,} distinct: {parsed:,} parsed now, {distinct - parsed:,} before")


@parses.command("export")
def export_parses(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.", show_default=False)],
    replace: Annotated[bool, typer.Option("--replace", help="Replace an existing file.")] = False,
    json_output: common.JsonOption = False,
) -> None:
    """Write all cached parses to one file.

    The file has the tuples and a hash of each caption, a checksum and the parser's version, but not the captions.

    Example: capbench data parses export parses.gz
    """
    from capbench.text.spice.scene_graph import export_parses

    number = export_parses(file, replace=replace)
    if json_output:
        common.print_json({"file": str(file), "parses": number})
        return
    print(f"{common.count(number, 'parse')} in {file}")


@parses.command("import")
def import_parses(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File written by 'export'.", show_default=False)],
    json_output: common.JsonOption = False,
) -> None:
    """Add the parses of a file to the cache.

    Imports all parses or none. Raises an error if the file is damaged or comes from another version of the parser.

    Example: capbench data parses import parses.gz
    """
    from capbench.text.spice.scene_graph import import_parses

    number, new = import_parses(file)
    if json_output:
        common.print_json({"file": str(file), "parses": number, "new": new})
        return
    print(f"{common.count(number, 'parse')} in {file}, {new:,} of them new")


app = typer.Typer(
    name="data",
    help="List, verify, download and import data sets.\n\nExample: capbench data list",
    no_args_is_help=True,
    rich_markup_mode=None,
)

app.add_typer(parses)

_Names = Annotated[list[str] | None, typer.Argument(metavar="[DATASET]...", help="Only these data sets.")]


@app.command("list")
def list_(data: common.DataOption = None, json_output: common.JsonOption = False) -> None:
    """List data sets with their state, size and missing files.

    Judgements are counted under the default protocol.

    Example: capbench data list --data ~/captions
    """
    from capbench.datasets.catalog import catalog
    from capbench.datasets.inventory import inventory
    from capbench.datasets.root import find_root

    root = find_root(data)
    common.announce_root(root, json_output=json_output)
    statuses = inventory(root, catalog())
    if json_output:
        common.print_json([dataclasses.asdict(status) for status in statuses])
        return
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("data set", no_wrap=True)
    table.add_column("state", no_wrap=True)
    table.add_column("items", justify="right", no_wrap=True)
    table.add_column("judgements, default protocol, missing files", overflow="fold")
    for status in statuses:
        human = ", ".join(f"{n:,} {aspect}" for aspect, n in status.human.items())
        missing = f"missing: {', '.join(status.missing)}" if status.missing else ""
        lines = [line for line in (human, status.protocol, missing) if line] or [status.kind]
        items = "" if status.items is None else f"{status.items:,}"
        table.add_row(status.name, status.state, items, "\n".join(lines))
    common.out().print(table)
    for status in statuses:
        if status.note:
            common.warn(f"{status.name}: {status.note}")
    if any(status.missing for status in statuses):
        common.note("to get missing files: capbench data info DATASET")


@app.command()
def info(
    dataset: Annotated[str | None, typer.Argument(metavar="[DATASET]", help="Only this data set, in full.")] = None,
    data: common.DataOption = None,
    json_output: common.JsonOption = False,
) -> None:
    """Show the files, sources, terms and protocols of data sets.

    Example: capbench data info composite
    """
    from capbench.datasets.catalog import catalog
    from capbench.datasets.root import find_root
    from capbench.datasets.user.judgements import imported_names

    root, known = find_root(data), catalog()
    imported = imported_names(root)
    if dataset is not None and dataset not in known.datasets and dataset not in imported:
        raise _unknown(dataset, [*known.datasets, *imported])
    common.announce_root(root, json_output=json_output)
    names = [dataset] if dataset else [*known.datasets, *imported]
    entries = [dataset_info(n, root, known) if n in known.datasets else imported_info(n, root) for n in names]
    if json_output:
        common.print_json(entries if dataset is None else entries[0])
        return
    for entry in entries:
        print_info(entry, full=dataset is not None)
    if dataset is None:
        print("protocols and all sources of one data set: capbench data info DATASET")


def _unknown(name: str, known: list[str]) -> UsageError:
    return UsageError(f"unknown data set '{name}'", code="unknown-name", value=name, hint=suggest(name, known))


@app.command()
def verify(dataset: _Names = None, data: common.DataOption = None, json_output: common.JsonOption = False) -> None:
    """Check row counts and SHA-256 of installed files.

    An unknown hash is recorded the first time; a later difference is a warning. Exit code 0: all files are valid; 1: a
    required file is missing, differs or has wrong counts.

    Example: capbench data verify flickr8k-expert
    """
    from capbench.datasets.catalog import catalog
    from capbench.datasets.inventory import HashRecord, verify_files
    from capbench.datasets.root import find_root
    from capbench.datasets.user.judgements import imported_names

    root, known = find_root(data), catalog()
    imported = imported_names(root)
    for name in dataset or []:
        if name not in known.datasets and name not in imported:
            raise _unknown(name, [*known.datasets, *imported])
    common.announce_root(root, json_output=json_output)
    chosen = list(dict.fromkeys(dataset)) if dataset else [*known.datasets, *imported]
    plan = {name: _to_check(name, known, root, requested=bool(dataset)) for name in chosen if name in known.datasets}
    paths = list(dict.fromkeys(path for files in plan.values() for path in files))
    with common.progress("verifying", len(paths)) as step:
        reports = {report.path: report for report in verify_files(root, known, paths, HashRecord(), step)}
    results: dict[str, list[FileReport]] = {name: [reports[path] for path in files] for name, files in plan.items()}
    results |= {name: [_verify_imported(name, root)] for name in chosen if name not in plan}
    bad = [r for files in results.values() for r in files if r.state in ("missing", "wrong", "differs")]
    nothing = not any(r.state != "missing" for files in results.values() for r in files)
    if json_output:
        verdict = {"root": str(root.path), "sample": root.is_sample, "ok": not bad and not nothing}
        files_ = {name: [dataclasses.asdict(r) for r in files] for name, files in results.items()}
        common.print_json(verdict | {"datasets": files_})
    else:
        print_reports(results, full=bool(dataset))
    if nothing:
        common.warn(f"{root.path} contains no file of the requested data sets")
    if bad or nothing:
        raise typer.Exit(1)


def _to_check(name: str, known: Catalog, root: DataRoot, *, requested: bool) -> list[str]:
    """All installed files of a data set, and for an unmet need the files of its most complete alternative."""
    entry = known.datasets[name]
    installed = [path for path in entry.files if (root.path / path).exists()]
    # A data set without installed files is an error only if it was requested. Files that it shares with another data
    # set do not count as installed (FOIL's captions are COCO's).
    others = {path for other in known.datasets.values() if other is not entry for path in other.files}
    unshared = [path for path in entry.files if path not in others]
    is_absent = bool(unshared) and not any(path in installed for path in unshared)
    if not requested and (is_absent or not any(need.needed and need.met(root.path) for need in entry.needs)):
        return installed
    missing: list[str] = []
    for need in entry.needs:
        if need.needed and need.met(root.path) is None:
            nearest = max(need.any_of, key=lambda files: sum(path in installed for path in files) / len(files))
            missing += [path for path in nearest if path not in installed]
    return list(dict.fromkeys([*installed, *missing]))


def _verify_imported(name: str, root: DataRoot) -> FileReport:
    from capbench.core.files import sha256_file
    from capbench.datasets.inventory import FileReport
    from capbench.datasets.opening import open_dataset
    from capbench.datasets.user.judgements import find_imported, read_meta

    path = f"imported/{name}/judgements.jsonl"
    folder = find_imported(name, root)
    assert folder is not None
    try:
        digest = sha256_file(folder / "judgements.jsonl")
        open_dataset(name, root)
        meta = read_meta(folder)
    except CapbenchError as error:
        return FileReport(path, "wrong", str(error))
    if digest != meta["sha256"]:
        return FileReport(path, "differs", "changed after the import", (), digest, "import")
    return FileReport(path, "ok", f"{meta['rows']:,} rows; SHA-256 as imported", (), digest, "import")


@app.command()
def download(
    target: Annotated[
        str,
        typer.Argument(
            metavar="DATASET|SOURCE|FILE", help="Data set whose missing files to download, a source, or a file."
        ),
    ],
    url: Annotated[
        str | None, typer.Option("--url", metavar="ADDRESS", help="Other address of the same archive or file.")
    ] = None,
    data: common.DataOption = None,
    json_output: common.JsonOption = False,
) -> None:
    """Download openly published files of a data set.

    For other files, prints how to get them. Interrupted downloads resume, downloaded files are checked, and existing
    files are never overwritten.

    Example: capbench data download nocaps --data ~/captions
    """
    from capbench.datasets.catalog import catalog
    from capbench.datasets.inventory import HashRecord, Obtained, obtain, resolve_target, verify_files
    from capbench.datasets.root import find_root

    root, known = find_root(data), catalog()
    wanted = resolve_target(target, known, root)
    if url is not None and len(wanted) != 1:
        raise UsageError(
            f"--url requires one source, but {target} has {len(wanted)}",
            code="ambiguous",
            value=target,
            hint="Name one source or one file",
        )
    common.announce_root(root, json_output=json_output)
    done: list[Obtained] = []
    failed: dict[str, str] = {}
    for one in wanted:
        source = known.sources[one.source]
        common.note(f"{source.title}: terms: {source.terms}")
        if (url or source.downloadable) and (url or source.checksum is None):
            common.note(f"{url or source.url} has no published SHA-256; its files are checked individually")
        try:
            with bytes_progress(one.source) as step:
                done.append(obtain(one, known, root, url=url, progress=step))
        except CapbenchError as error:
            if len(wanted) == 1:
                raise
            # The other sources may still respond.
            failed[one.source] = str(error)
    new = [path for result in done for path in result.written]
    reports = verify_files(root, known, new, HashRecord(), lambda _done: None)
    absent = [path for result in done for path in result.absent]
    bad = [r for r in reports if r.state in ("wrong", "differs")]
    if json_output:
        files = {r.path: dataclasses.asdict(r) for r in reports}
        kept = [path for result in done for path in result.kept]
        common.print_json({"written": files, "kept": kept, "absent": absent, "failed": failed})
    else:
        for report in reports:
            print(f"{report.path}: {report.detail or report.state}")
        for result in done:
            for path in result.kept:
                print(f"{path}: already installed, unchanged")
        if not wanted:
            print(f"{target}: no required file is missing")
    for path in absent:
        common.warn(f"{path}: not in the archive")
    for report in bad:
        common.warn(f"{report.path}: {report.detail}")
    for line in failed.values():
        common.warn(line)
    if absent or failed or any(r.state == "wrong" for r in bad):
        raise typer.Exit(1)


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Judgements: .jsonl, .csv or .tsv.", show_default=False)],
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="Name of the new data set, for --dataset.")],
    replace: Annotated[bool, typer.Option("--replace", help="Replace a data set of that name.")] = False,
    scale: Annotated[
        str | None, typer.Option("--scale", metavar="LOW-HIGH", help="Lowest and highest possible rating, such as 1-5.")
    ] = None,
    ignore: Annotated[
        list[str] | None, typer.Option("--ignore", metavar="COLUMN", help="Ignore this column; repeatable.")
    ] = None,
    rating: Annotated[
        list[str] | None,
        typer.Option("--rating", metavar="COLUMN", help="Column of ratings, which get its name; repeatable."),
    ] = None,
    user: Annotated[
        bool, typer.Option("--user", help="Store it in your capbench folder (CAPBENCH_HOME), not in the data folder.")
    ] = False,
    data: common.DataOption = None,
    json_output: common.JsonOption = False,
) -> None:
    """Import your own judgements as a data set.

    Columns: image, references (a JSON list, or reference_1, reference_2, …; in all rows or in none) and either
    candidate with rating or ratings (optional: rater, system, candidate_id, scale), or candidate_a, candidate_b with
    preferred (a, b, tie) or votes_a and votes_b; group is optional. Several kinds of ratings are columns rating_NAME,
    or the columns of --rating. Nothing is imported if any row is invalid; --json lists all problems with their rows.
    See docs/data.md.

    Example: capbench data import ratings.csv --name mine --scale 1-5
    """
    from capbench.api.data import judgements_of
    from capbench.datasets.user.rows import ImportProblemsError

    try:
        made = judgements_of(
            file, name, common.caller(), scale, ignore or (), rating or (), replace=replace, user=user, data=data
        )
    except DataError as error:
        if json_output:
            problems = [_problem(error)]
            if isinstance(error, ImportProblemsError):
                problems = [dataclasses.asdict(problem) for problem in error.problems]
            common.print_json({"ok": False, "file": str(file), "problems": problems})
        raise
    if json_output:
        common.print_json(made.to_dict())
        return
    counts = ", ".join(
        f"{n:,} {'preferences' if a in made.preferences else 'ratings' if a == 'rating' else f'ratings ({a})'}"
        for a, n in made.human.items()
    )
    print(f"{name}: {counts} of {made.items:,} items, in {made.folder}")
    print(f"default protocol: {made.protocol}")
    for line in made.notes:
        common.note(line)
    if made.references:
        folder = "" if data is None else f" --data {shlex.quote(str(data))}"
        print(f"next: capbench correlate --dataset {name} --metric cider{folder}")


def _problem(error: DataError) -> dict[str, Any]:
    """The error of a file that cannot be read, in the form of :class:`capbench.datasets.user.rows.Problem`.

    Its row is None if it concerns the whole file.
    """
    row = error.row
    rows = "" if row is None else str(row)
    return {"row": row, "message": error.message, "hint": error.hint or "", "count": 1, "rows": rows}
