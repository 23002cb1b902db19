"""``capbench data``: what is known, what is here, whether it is right, and how to get the rest."""

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


# What ``capbench data`` prints: one data set in full, the result of a verification, a download's progress.


def dataset_info(name: str, root: DataRoot, known: Catalog) -> dict[str, Any]:
    """Everything that the catalog and the registered class say of a data set."""
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
    """Everything that is known of imported judgements. ``folder`` is where they are kept."""
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
    """Print what :func:`dataset_info` or :func:`imported_info` gave."""
    console = common.out()

    def say(text: str, style: str | None = None) -> None:
        console.print(text, style=style, markup=False, soft_wrap=True)

    say(f"{entry['dataset']}: {entry['title']}", "bold")
    say(f"  {entry['what']}")
    say(f"  cite: {entry['citation']}")
    if "folder" in entry:
        say(f"  kept in: {entry['folder']}")
    for need in entry.get("needs", []):
        state = "here" if need["met"] else "missing" if need["needed"] else "not here, not needed"
        why = f" (for {need['why']})" if need["why"] else ""
        say(f"  {need['role']}{why}: {state}")
        for i, alternative in enumerate(need["any_of"]):
            say(f"    {'or ' if i else ''}{_shown(alternative)}")
    if full:
        _print_sources(entry, say)
        _print_protocols(entry.get("protocols"), say)
    console.print()


def _shown(files: list[str]) -> str:
    """A few files by name, many by the folder that they share (--json has all names)."""
    if len(files) <= 3:
        return ", ".join(files)
    folder = posixpath.commonpath(files)
    return f"{folder}/ ({len(files)} files)"


def _print_sources(entry: dict[str, Any], say: Any) -> None:
    for name, source in entry.get("sources", {}).items():
        say(f"  source {name}: {source['title']}", "bold")
        labels = {
            "page": "page",
            "terms": "terms",
            "form": "form",
            "note": "note",
            "dead": "dead link",
            "manual": "by hand",
        }
        for key, label in labels.items():
            if key in source:
                say(f"    {label}: {source[key]}")
        if "url" in source and "dead" not in source:
            say(f"    download: capbench data download {name}")
    notes = {file["path"]: file["note"] for need in entry.get("needs", []) for file in need["files"] if file["note"]}
    for path, text in notes.items():
        say(f"  note on {path}: {text}")


def _print_protocols(protocols: dict[str, Any] | None, say: Any) -> None:
    if not protocols:
        return
    say(f"  default protocol: {protocols['default']}", "bold")
    for kind in ("items", "statistics"):
        say(f"  {kind}:")
        for name, text in protocols[kind].items():
            say(f"    {name}: {text}")


def print_reports(results: dict[str, list[FileReport]], *, full: bool) -> None:
    """Print the result by data set; without ``full`` only files that are not simply right."""
    from rich.table import Table

    styles = {"ok": "green", "recorded": "green", "differs": "yellow", "wrong": "red", "missing": "yellow"}
    for name, reports in results.items():
        good = sum(r.state in ("ok", "recorded") for r in reports)
        if not reports or all(r.state == "missing" for r in reports):
            verdict = "not here"
        else:
            verdict = f"{good} of {len(reports)} files right" if good < len(reports) else f"{good} file(s) right"
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
    """A bar of bytes on stderr, drawn only on a terminal; yields what ``fetch`` calls, or None."""
    console = common.err()
    if not console.is_terminal:
        yield None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(name, total=None)
        yield lambda here, total: bar.update(task, completed=here, total=total)


# ``capbench data parses``: what SPICE's parser gives, made beforehand and handed over.

parses = typer.Typer(
    name="parses",
    help="Parses of captions, which SPICE and FAIEr need: make, export, and import those of others.\n\n"
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
            help="Captions to parse: a known corpus (flickr8k, flickr30k, coco-val, ...) or a file; repeatable.",
        ),
    ],
    place: SpreadPlace,
    data: common.DataOption = None,
    json_output: common.JsonOption = False,
) -> None:
    """Parse captions before they are needed: those of a training, say, which FAIEr's relation level reads.

    Captions that were parsed before are left alone. What was parsed is kept if this is interrupted; the same command
    goes on from there. It needs SPICE's parser ('capbench setup spice').

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
            f"{common.count(len(missing), 'caption')} to parse, some {common.count(minutes, 'minute')} on this machine "
            "if it does nothing else"
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
    replace: Annotated[bool, typer.Option("--replace", help="Replace a file that is there.")] = False,
    json_output: common.JsonOption = False,
) -> None:
    """Write all captions' parses that the cache holds into one file.

    It holds tuples and a hash of each caption, a checksum and the parser's version, but not the captions.

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
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that export has written.", show_default=False)],
    json_output: common.JsonOption = False,
) -> None:
    """Take the parses of a file into the cache, so that these captions need no parser.

    All or none are taken. A file that is damaged, or of another version of the parser, is refused. It can be repeated.

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
    help="Data sets: what is known and here, whether it is right, how to get the rest, and your own judgements.\n\n"
    "Example: capbench data list",
    no_args_is_help=True,
    rich_markup_mode=None,
)

app.add_typer(parses)

_Names = Annotated[list[str] | None, typer.Argument(metavar="[DATASET]...", help="Only these data sets.")]


@app.command("list")
def list_(data: common.DataOption = None, json_output: common.JsonOption = False) -> None:
    """List data sets: what is here, how much of it, what is missing, and the default protocol.

    Judgements are read and counted under the default protocol.

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
    table.add_column("judgements, default protocol, what is missing", overflow="fold")
    for status in statuses:
        human = ", ".join(f"{n:,} {aspect}" for aspect, n in status.human.items())
        lacks = f"missing: {', '.join(status.missing)}" if status.missing else ""
        lines = [line for line in (human, status.protocol, lacks) if line] or [status.kind]
        items = "" if status.items is None else f"{status.items:,}"
        table.add_row(status.name, status.state, items, "\n".join(lines))
    common.out().print(table)
    for status in statuses:
        if status.note:
            common.warn(f"{status.name}: {status.note}")
    if any(status.missing for status in statuses):
        common.note("How to get what is missing: capbench data info DATASET")


@app.command()
def info(
    dataset: Annotated[str | None, typer.Argument(metavar="[DATASET]", help="Only this data set, in full.")] = None,
    data: common.DataOption = None,
    json_output: common.JsonOption = False,
) -> None:
    """Tell where a data set's files come from, under which terms, its protocols, and how to get what is missing.

    Example: capbench data info composite
    """
    from capbench.datasets.catalog import catalog
    from capbench.datasets.root import find_root
    from capbench.datasets.user.judgements import imported_names

    root, known = find_root(data), catalog()
    imported = imported_names(root)
    if dataset is not None and dataset not in known.datasets and dataset not in imported:
        raise UsageError(f"unknown data set '{dataset}'", hint=suggest(dataset, [*known.datasets, *imported]))
    common.announce_root(root, json_output=json_output)
    names = [dataset] if dataset else [*known.datasets, *imported]
    entries = [dataset_info(n, root, known) if n in known.datasets else imported_info(n, root) for n in names]
    if json_output:
        common.print_json(entries if dataset is None else entries[0])
        return
    for entry in entries:
        print_info(entry, full=dataset is not None)
    if dataset is None:
        print("More of one data set, with its protocols and all sources: capbench data info DATASET")


@app.command()
def verify(dataset: _Names = None, data: common.DataOption = None, json_output: common.JsonOption = False) -> None:
    """Check row counts and SHA-256 of what is here.

    A hash that is not known is recorded at first sight; a file that differs later is warned of. Exit code 0 if all is
    right, 1 if a needed file is missing, differs or has wrong counts.

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
            raise UsageError(f"unknown data set '{name}'", hint=suggest(name, [*known.datasets, *imported]))
    common.announce_root(root, json_output=json_output)
    chosen = list(dict.fromkeys(dataset)) if dataset else [*known.datasets, *imported]
    plan = {name: _to_check(name, known, root, asked=bool(dataset)) for name in chosen if name in known.datasets}
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
        common.warn(f"no file of any data set that was asked for is under {root.path}")
    if bad or nothing:
        raise typer.Exit(1)


def _to_check(name: str, known: Catalog, root: DataRoot, *, asked: bool) -> list[str]:
    """All files of a data set that are here, and for an unmet need those of its most complete alternative."""
    entry = known.datasets[name]
    here = [path for path in entry.files if (root.path / path).exists()]
    # A data set of which nothing is here is no fault unless it was asked for.
    # Nor is one of which nothing is here but files that it shares with another (FOIL's captions are COCO's).
    others = {path for other in known.datasets.values() if other is not entry for path in other.files}
    alone = [path for path in entry.files if path not in others]
    nothing_of_it = bool(alone) and not any(path in here for path in alone)
    if not asked and (nothing_of_it or not any(need.needed and need.met(root.path) for need in entry.needs)):
        return here
    missing: list[str] = []
    for need in entry.needs:
        if need.needed and need.met(root.path) is None:
            most = max(need.any_of, key=lambda files: sum(path in here for path in files) / len(files))
            missing += [path for path in most if path not in here]
    return list(dict.fromkeys([*here, *missing]))


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
        return FileReport(path, "differs", "was changed after it was imported", (), digest, "import")
    return FileReport(path, "ok", f"{meta['rows']:,} rows; SHA-256 as imported", (), digest, "import")


@app.command()
def download(
    target: Annotated[
        str, typer.Argument(metavar="DATASET|SOURCE|FILE", help="A data set's missing files, or one file.")
    ],
    url: Annotated[
        str | None, typer.Option("--url", metavar="ADDRESS", help="Another address of the same archive or file.")
    ] = None,
    data: common.DataOption = None,
    json_output: common.JsonOption = False,
) -> None:
    """Download what is published openly; say plainly how to get the rest by hand.

    Broken downloads resume, what arrives is checked, and a file that is here is never overwritten.

    Example: capbench data download nocaps --data ~/captions
    """
    from capbench.datasets.catalog import catalog
    from capbench.datasets.inventory import HashRecord, Obtained, obtain, resolve_target, verify_files
    from capbench.datasets.root import find_root

    root, known = find_root(data), catalog()
    wanted = resolve_target(target, known, root)
    if url is not None and len(wanted) != 1:
        raise UsageError(f"--url: {target} comes from {len(wanted)} sources", hint="Name one source or one file")
    common.announce_root(root, json_output=json_output)
    done: list[Obtained] = []
    failed: dict[str, str] = {}
    for one in wanted:
        source = known.sources[one.source]
        common.note(f"{source.title}: terms: {source.terms}")
        if (url or source.downloadable) and (url or source.checksum is None):
            common.note(f"no SHA-256 of {url or source.url} is stated: its files are checked by what is known of them")
        try:
            with bytes_progress(one.source) as step:
                done.append(obtain(one, known, root, url=url, progress=step))
        except CapbenchError as error:
            if len(wanted) == 1:
                raise
            # The other sources may still answer.
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
                print(f"{path}: here already, kept")
        if not wanted:
            print(f"{target}: nothing that it needs is missing")
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
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Your judgements: .jsonl, .csv or .tsv.", show_default=False)
    ],
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="What --dataset will take.")],
    replace: Annotated[bool, typer.Option("--replace", help="Replace a data set of that name.")] = False,
    scale: Annotated[
        str | None, typer.Option("--scale", metavar="LOW-HIGH", help="Lowest and highest possible rating, such as 1-5.")
    ] = None,
    ignore: Annotated[
        list[str] | None, typer.Option("--ignore", metavar="COLUMN", help="Leave this column out; repeatable.")
    ] = None,
    rating: Annotated[
        list[str] | None,
        typer.Option("--rating", metavar="COLUMN", help="This column holds ratings, named after it; repeatable."),
    ] = None,
    user: Annotated[
        bool, typer.Option("--user", help="Keep it in your own folder (CAPBENCH_HOME), not in the data folder.")
    ] = False,
    data: common.DataOption = None,
    json_output: common.JsonOption = False,
) -> None:
    """Take your own judgements into a data set that every command works on.

    Columns: image, references (a JSON list, or reference_1, reference_2, …; in all rows or in none) and either
    candidate with rating or ratings (optional: rater, system, candidate_id, scale), or candidate_a, candidate_b with
    preferred (a, b, tie) or votes_a and votes_b; group is optional. Several kinds of ratings are columns rating_NAME,
    or any columns named with --rating: each becomes statistics of its own. One caption of two systems is two
    candidates. Nothing is stored if any row does not fit; --json lists every kind of problem with its rows.

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
    print(f"{name}: {counts} of {made.items:,} items, kept in {made.folder}")
    print(f"default protocol: {made.protocol}")
    for line in made.notes:
        common.note(line)
    if made.references:
        there = "" if data is None else f" --data {shlex.quote(str(data))}"
        print(f"next: capbench correlate --dataset {name} --metric cider{there}")


def _problem(error: DataError) -> dict[str, Any]:
    """The one thing that keeps a file from being read, in the form of :class:`capbench.datasets.user.rows.Problem`.

    Its row is None where the whole file is meant.
    """
    row = error.row
    rows = "" if row is None else str(row)
    return {"row": row, "message": error.message, "hint": error.hint or "", "count": 1, "rows": rows}
