"""``capbench data``: what is known, what is here, whether it is right, and how to get the rest."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from capbench.cli import common, parses
from capbench.cli.data_reports import bytes_progress, dataset_info, imported_info, print_info, print_reports
from capbench.errors import CapbenchError, UsageError, suggest

if TYPE_CHECKING:
    from capbench.datasets.catalog import Catalog
    from capbench.datasets.root import DataRoot
    from capbench.datasets.verify import FileReport

__all__ = ["app"]

app = typer.Typer(
    name="data",
    help="Data sets: what is known and here, whether it is right, how to get the rest, and your own judgements.\n\n"
    "Example: capbench data list",
    no_args_is_help=True,
    rich_markup_mode=None,
)

app.add_typer(parses.app)

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
    from capbench.datasets.user.imported import imported_names

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
    from capbench.datasets.root import find_root
    from capbench.datasets.user.imported import imported_names
    from capbench.datasets.verify import HashRecord, verify_files

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
    if not asked and (nothing_of_it or not any(need.needed and need.met(root) for need in entry.needs)):
        return here
    missing: list[str] = []
    for need in entry.needs:
        if need.needed and need.met(root) is None:
            most = max(need.any_of, key=lambda files: sum(path in here for path in files) / len(files))
            missing += [path for path in most if path not in here]
    return list(dict.fromkeys([*here, *missing]))


def _verify_imported(name: str, root: DataRoot) -> FileReport:
    from capbench.datasets.opening import open_dataset
    from capbench.datasets.user.imported import find_imported, read_meta
    from capbench.datasets.verify import FileReport
    from capbench.files import sha256_file

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
    from capbench.datasets.inventory import Obtained, obtain, resolve_target
    from capbench.datasets.root import find_root
    from capbench.datasets.verify import HashRecord, verify_files

    root, known = find_root(data), catalog()
    wanted = resolve_target(target, known, root)
    if url is not None and len(wanted) != 1:
        raise UsageError(f"--url: {target} comes from {len(wanted)} sources", hint="Name one source or one file")
    common.announce_root(root, json_output=json_output)
    done: list[Obtained] = []
    failed: dict[str, str] = {}
    for one in wanted:
        terms = known.sources[one.source].terms
        common.note(f"{known.sources[one.source].title}: terms: {terms}")
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
    from capbench.datasets.root import find_root
    from capbench.datasets.user.files import parse_scale
    from capbench.datasets.user.imported import import_file
    from capbench.datasets.user.records import ImportProblemsError

    root = find_root(data)
    limits = None
    if scale is not None:
        limits = parse_scale(scale)
        if limits is None:
            raise UsageError(f"--scale {scale}: no scale", hint="Give lowest and highest rating: 1-5")
    try:
        made = import_file(
            file,
            name,
            root,
            replace=replace,
            scale=limits,
            ignore=ignore or (),
            rating_columns=rating or (),
            in_home=user,
        )
    except ImportProblemsError as error:
        if json_output:
            problems = [dataclasses.asdict(problem) for problem in error.problems]
            common.print_json({"ok": False, "file": str(file), "problems": problems})
        raise
    judgements = made.load(made.protocol().items)[0]
    human = {aspect: len(r) for aspect, r in judgements.ratings.items()}
    human |= {label: len(p) for label, p in judgements.preferences.items()}
    if json_output:
        told = {"ok": True, "dataset": name, "folder": str(made.path.parent), "items": len(judgements.items)}
        common.print_json(told | {"human": human, "protocol": str(made.protocol())})
        return
    counts = ", ".join(
        f"{n:,} {'preferences' if a in judgements.preferences else 'ratings' if a == 'rating' else f'ratings ({a})'}"
        for a, n in human.items()
    )
    print(f"{name}: {counts} of {len(judgements.items):,} items, kept in {made.path.parent}")
    print(f"default protocol: {made.protocol()}")
    for line in judgements.notes:
        common.note(line)
    if made.table.has_references:
        there = "" if data is None else f" --data {shlex.quote(str(data))}"
        print(f"next: capbench correlate --dataset {name} --metric cider{there}")
