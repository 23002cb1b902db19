"""``capbench data``: describe, verify, download and import data sets; captions and parses for other programs."""

from __future__ import annotations

import contextlib
import dataclasses
import posixpath
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from capbench.api.arguments import JudgementSettings
from capbench.cli import common
from capbench.cli.commands import group
from capbench.cli.options import SpreadPlace, argument, parse_columns
from capbench.core.arguments import Help
from capbench.core.errors import CapbenchError, UsageError, check_choice

if TYPE_CHECKING:
    from capbench.datasets.catalog import Catalog
    from capbench.datasets.inventory import Wanted
    from capbench.datasets.root import DataRoot


def _described(entry: dict[str, Any]) -> list[str]:
    lines = [f"{entry['dataset']}: {entry['title']}", f"  {entry['what']}", f"  cite: {entry['citation']}"]
    if terms := entry.get("captions"):
        parses = "" if terms["derived"] else "; parses of them are not for redistribution"
        lines.append(f"  licence of the captions: {terms['licence']}{parses}")
    if "folder" in entry:
        lines.append(f"  folder: {entry['folder']}")
    for need in entry.get("needs", []):
        state = "installed" if need["met"] else "missing" if need["needed"] else "not installed (optional)"
        why = f" (for {need['why']})" if need["why"] else ""
        lines.append(f"  {need['role']}{why}: {state}")
        for i, files in enumerate(need["any_of"]):
            # Up to three files by name, more by their common folder (--json has all names).
            shown = ", ".join(files) if len(files) <= 3 else f"{posixpath.commonpath(files)}/ ({len(files)} files)"
            lines.append(f"    {'or ' if i else ''}{shown}")
    labels = {"dead": "dead link", "manual": "manual download"}
    for name, source in entry.get("sources", {}).items():
        lines.append(f"  source {name}: {source['title']}")
        keys = [key for key in ("page", "terms", "form", "note", "dead", "manual") if key in source]
        lines += [f"    {labels.get(key, key)}: {source[key]}" for key in keys]
        lines += [f"    download: capbench data download {name}"] if source["downloadable"] else []
    notes = {file["path"]: file["note"] for need in entry.get("needs", []) for file in need["files"] if file["note"]}
    lines += [f"  note on {path}: {text}" for path, text in notes.items()]
    if protocols := entry.get("protocols"):
        lines += _protocol_lines(protocols)
    return [*lines, ""]


def _protocol_lines(entry: dict[str, Any]) -> list[str]:
    name, lines = entry["dataset"], [f"  default protocol: {entry['default']}"]
    for kind in ("items", "statistics"):
        lines.append(f"  {kind}:")
        width = max(len(choice["name"]) for choice in entry[kind])
        for choice in entry[kind]:
            source = f" ({choice['source']})" if choice["source"] else ""
            lines.append(f"    {choice['name']:<{width}}  {choice['description']}{source}")
    for label, texts in (
        ("single groups", [f"{name}@{part}" for part in entry["groups"]]),
        ("from other files", entry["beside"]),
        ("versions", [f"{name}:{version} ({text})" for version, text in entry["versions"].items()]),
    ):
        lines += [f"  {label}: {', '.join(texts)}"] if texts else []
    return lines


app = group("List, verify, download and import data sets.", "capbench data info")


@app.command()
def info(
    *,
    ctx: typer.Context,
    dataset: Annotated[list[str] | None, argument("[DATASET]...", "Data sets to describe. Default: list all.")] = None,
    protocols: Annotated[bool, Help("Show protocols only.")] = False,
    verify: Annotated[bool, Help("Check row counts and SHA-256 of installed files.")] = False,
    data: common.DataOption = None,
    json_output: common.JsonOption = False,
) -> None:
    """List data sets, or describe some in full.

    The list has the judgements of all data sets (of installed ones under the default protocol, with the number of
    further kinds), the licence, and the command that gets missing files. A description has files, sources, terms and
    protocols.

    A protocol is dataset/items/statistic, with any combination of items and statistic. If items have groups,
    dataset@group is one of them: composite@8k/same-text-out/correctness-tau-c.

    --verify records an unknown hash the first time; a later difference is a warning. Exit code 1: a required file is
    missing, differs or has wrong counts.

    Example: capbench data info composite --protocols
    """
    from capbench.api.data import dataset_info, imported_info, protocol_facts
    from capbench.datasets.base import dataset_names
    from capbench.datasets.catalog import catalog
    from capbench.datasets.root import find_root
    from capbench.datasets.user.judgements import imported_folders

    root = find_root(data)
    if protocols:
        common.check_applies(ctx, ["verify"], "--protocols")
        facts = protocol_facts(dataset or [], root)
        common.answer(json_output, facts, (line for e in facts for line in (e["title"], *_protocol_lines(e), "")))
        return
    known, imported = catalog(), imported_folders(root)
    for name in dataset or []:
        check_choice("data set", name, [*dict.fromkeys([*known.datasets, *dataset_names()]), *imported])
    common.announce_root(root, json_output=json_output)
    if verify:
        _verify(dataset or [], root, known, json_output=json_output)
    elif dataset:
        entries = [imported_info(n, root) if n in imported else dataset_info(n, root, known) for n in dataset]
        result = entries if len(dataset) > 1 else entries[0]
        common.answer(json_output, result, (line for entry in entries for line in _described(entry)))
    else:
        _list(root, known, json_output=json_output)


def _list(root: DataRoot, known: Catalog, *, json_output: bool) -> None:
    from capbench.api.data import dataset_info, imported_info
    from capbench.datasets.inventory import inventory

    statuses = inventory(root, known)
    if json_output:
        entries: list[dict[str, Any]] = []
        for status in statuses:
            facts: dict[str, Any] = {}
            with contextlib.suppress(CapbenchError):  # a damaged one is listed with its state and note
                is_imported = status.kind == "imported"
                facts = imported_info(status.name, root) if is_imported else dataset_info(status.name, root, known)
            entries.append(facts | dataclasses.asdict(status))
        common.answer(True, entries, ())
        return
    rows = []
    for status in statuses:
        (aspect, number), *others = status.human.items() or [("", 0)]
        human = f"{number:,} {aspect}{f' (+{len(others)})' if others else ''}" if aspect else status.published
        get = status.command.removeprefix("capbench data ") or status.state
        rows.append([status.name, human, status.licence, {"here": "yes", "damaged": "damaged"}.get(status.state, get)])
    heads = ["data set", "judgements", "licence", "installed, or\ncapbench data …"]
    common.print_list(heads, rows, unbroken=(0, 2, 3))
    for status in statuses:
        if status.note:
            common.warn(f"{status.name}: {status.note}")
    if any(status.missing for status in statuses):
        common.note("files, terms and protocols of a data set: capbench data info DATASET")


def _verify(names: Sequence[str], root: DataRoot, known: Catalog, *, json_output: bool) -> None:
    from capbench.api.data import verify_data

    results = verify_data(names, root, known, common.progress)
    bad = [r for files in results.values() for r in files if r.state in ("missing", "wrong", "differs")]
    nothing = all(r.state == "missing" for files in results.values() for r in files)
    lines = []
    for name, reports in results.items():
        good = sum(r.state == "ok" for r in reports)
        valid = f"{good} of {common.count(len(reports), 'file')} valid"
        lines.append(f"{name}: {'not installed' if all(r.state == 'missing' for r in reports) else valid}")
        width = max((len(report.path) for report in reports), default=0)
        shown = [report for report in reports if names or report.state != "ok"]
        lines += [f"  {report.path:{width}}  {report.state:8} {report.detail}".rstrip() for report in shown]
    verdict = {"root": str(root.path), "sample": root.is_sample, "ok": not bad and not nothing}
    datasets = {name: [dataclasses.asdict(r) for r in files] for name, files in results.items()}
    common.answer(json_output, verdict | {"datasets": datasets}, lines)
    if nothing:
        common.warn(f"{root.path} contains no file of the requested data sets")
    if bad or nothing:
        raise typer.Exit(1)


def _print_download(wanted: Wanted, root: DataRoot, known: Catalog, url: str | None) -> None:
    source = known.sources[wanted.source]
    files = {path: known.files[path] for path in wanted.paths if not root.locate(path).exists()}
    if not files:
        return
    is_direct = url is None and all(file.url for file in files.values())
    sizes = [file.size for file in files.values() if file.size is not None]
    size = f", {sum(sizes) / 1e6:.1f} MB" if is_direct and len(sizes) == len(files) else ""
    common.note(f"{source.title}: {common.count(len(files), 'file')}{size}; terms: {source.terms}")
    if is_direct:
        for path, file in files.items():
            if file.sha256 is not None:
                common.note(f"  {path}: SHA-256 {file.sha256.value}")
    elif url or source.downloadable:
        common.note(f"{url or source.url} has no published SHA-256; its files are checked individually")


@app.command()
def download(
    *,
    targets: Annotated[
        list[str] | None,
        argument(
            "[DATASET|SOURCE|FILE]...",
            "What to download.",
        ),
    ] = None,
    open_: Annotated[bool, Help("All data sets with an open licence and an open download.", ("--open",))] = False,
    url: Annotated[str | None, Help("Other address of the same archive or file.", metavar="ADDRESS")] = None,
    data: common.DataOption = None,
    json_output: common.JsonOption = False,
) -> None:
    """Download openly published files of data sets.

    Prints terms, sizes and known SHA-256 first. For other files, prints the page, the missing file, and how to get it.
    Interrupted downloads resume, downloaded files are checked, and existing files are never overwritten.

    Example: capbench data download --open --data ~/captions
    """
    from capbench.datasets.catalog import catalog
    from capbench.datasets.inventory import Obtained, obtain, resolve_targets, verify_file
    from capbench.datasets.root import find_root

    known = catalog()
    names = [*(targets or []), *(name for name in known.datasets if open_ and known.is_open(name))]
    if not names:
        hint = "Name data sets, which 'capbench data info' lists, or add --open for all with an open licence"
        raise UsageError("nothing to download is named", code="missing-option", value="targets", hint=hint)
    root = find_root(data)
    wanted = resolve_targets(names, known, root)
    if url is not None and len(wanted) != 1:
        message = f"--url requires one source, but {', '.join(names)} has {len(wanted)}"
        hint = "Name one source or one file"
        raise UsageError(message, code="ambiguous", value=names[0], hint=hint)
    common.announce_root(root, json_output=json_output)
    done: list[Obtained] = []
    failed: dict[str, str] = {}
    for part in wanted:
        _print_download(part, root, known, url)
    for part in wanted:
        try:
            with common.bytes_progress(part.source) as step:
                done.append(obtain(part, known, root, url=url, progress=step))
        except CapbenchError as error:
            if len(wanted) == 1:
                raise
            # The other sources may still respond.
            failed[part.source] = str(error)
    new = [path for result in done for path in result.written]
    reports = [verify_file(root, path, known.files[path]) for path in new]
    absent = [path for result in done for path in result.absent]
    bad = [r for r in reports if r.state in ("wrong", "differs")]
    kept = [path for result in done for path in result.kept]
    lines = [f"{report.path}: {report.detail or report.state}" for report in reports]
    lines += [f"{path}: already installed, unchanged" for path in kept]
    lines += [] if wanted else [f"{', '.join(names)}: no required file is missing"]
    files = {r.path: dataclasses.asdict(r) for r in reports}
    common.answer(json_output, {"written": files, "kept": kept, "absent": absent, "failed": failed}, lines)
    problems = [f"{path}: not in the archive" for path in absent]
    for line in (*problems, *(f"{report.path}: {report.detail}" for report in bad), *failed.values()):
        common.warn(line)
    if absent or failed or any(r.state == "wrong" for r in bad):
        raise typer.Exit(1)


@app.command("import")
def import_(
    *,
    file: Annotated[Path, argument("FILE", "Judgements: .jsonl, .csv or .tsv.")],
    name: Annotated[str, Help("Name of the new data set, for --dataset.", metavar="NAME")],
    settings: JudgementSettings,
    columns: common.ColumnsOption = None,
    json_output: common.JsonOption = False,
) -> None:
    """Import your own judgements as a data set.

    Columns: image, references (a JSON list, or reference_1, reference_2, …; in all rows or in none) and either
    candidate with rating or ratings (optional: rater, system, candidate_id, scale), or candidate_a, candidate_b with
    preferred (a, b, tie), votes_a and votes_b, or grade (positive for a); group is optional. Several kinds of ratings
    are columns rating_NAME, or the columns of --rating. Nothing is imported if any row is invalid; --json lists all
    problems with their rows. See docs/data.md.

    Other accepted names: image_id, caption (the candidate), ref1, ref2, …, and score (if there is no rating). --columns
    image=file,candidate=text reads any others.

    Example: capbench data import ratings.csv --name mine --scale 1-5
    """
    from capbench.api.data import import_data
    from capbench.datasets.user.judgement_files import ImportProblemsError

    try:
        made = import_data(file, name, columns=parse_columns(columns or ()), progress=common.caller(), **settings)
    except ImportProblemsError as error:
        if json_output:
            problems = list(map(dataclasses.asdict, error.problems))
            common.answer(True, {"ok": False, "file": str(file), "problems": problems}, ())
        else:
            # The error itself has the first problem, and all problems of a header.
            for problem in [problem for problem in error.problems[1:10] if problem.row != error.row or error.row != 1]:
                where = f" (in {problem.count:,} rows)" if problem.count > 1 else ""
                common.note(f"{file}, row {problem.row}: {problem.message}{where}. {problem.hint}".strip())
        raise
    counts = ", ".join(
        f"{n:,} {'preferences' if a in made.preferences else 'ratings' if a == 'rating' else f'ratings ({a})'}"
        for a, n in made.human.items()
    )
    folder = f" --data {shlex.quote(str(settings['data']))}" if "data" in settings else ""
    following = [f"next: capbench correlate --dataset {name} --metric cider{folder}"] if made.references else []
    lines = [f"{name}: {counts} of {made.items:,} items, in {made.folder}", f"default protocol: {made.protocol}"]
    common.answer(json_output, made.to_dict(), [*lines, *made.notes, *following])


@app.command()
def items(
    *,
    dataset: Annotated[str, argument("DATASET[@GROUP][/ITEMS]", "Data set, or part of a protocol's id.")],
    out: Annotated[Path, common.output("Output folder.", "DIR")],
    data: common.DataOption = None,
    json_output: common.JsonOption = False,
) -> None:
    """Write the captions of a data set for other programs.

    DIR/predictions.jsonl has id, caption and image (its path, or its id if the file is not installed);
    DIR/references.jsonl has id and references. CaptionEvalKit reads both. Each distinct item is written once. To use
    scores of these ids, pass --scores FILE to correlate, compare or another command. See docs/scores.md.

    Example: capbench data items composite@8k/any-candidate-out --out items
    """
    from capbench.core.files import check_writable
    from capbench.datasets.images import image_finder
    from capbench.datasets.opening import open_dataset, split_protocol
    from capbench.datasets.root import find_root
    from capbench.metrics.score_joining import PREDICTIONS, REFERENCES, write_items

    common.check_out_folder(out)
    root = find_root(data)
    check_writable(out / PREDICTIONS)
    name, rest = split_protocol(dataset)
    opened = open_dataset(name, root)
    selection = opened.protocol(rest).items
    if opened.under_root:
        common.announce_root(root, json_output=json_output)
    draws = opened.load(selection)
    every = [item for draw in draws for item in draw.items]
    paths = image_finder(root, dataset=opened)(item.image for item in every)
    count, images = write_items(every, out, paths), len({item.image for item in every})
    written, label = [str(out / PREDICTIONS), str(out / REFERENCES)], f"{opened.name}/{selection.name}"
    facts = {"items": label, "distinct_items": count, "images": images, "image_files": len(paths), "draws": len(draws)}
    samples = f" in {len(draws)} samples of references" if len(draws) > 1 else ""
    line = f"{label}: {count:,} distinct items of {images:,} images{samples}"
    common.answer(json_output, facts | {"wrote": written}, [line])
    common.wrote(*written)
    if len(paths) < images:
        places = " or ".join(map(str, opened.image_places()))
        common.note(f"{images - len(paths):,} of {images:,} images are not in {places}; their ids are written")


@app.command()
def parses(
    *,
    ctx: typer.Context,
    action: Annotated[
        Literal["make", "export"],
        argument("make|export", "Parse captions, or write parses to FILE."),
    ],
    names: Annotated[
        list[str] | None,
        argument("[NAME|FILE]...", "export: first the file. Then data sets, corpora, files or all."),
    ] = None,
    replace: Annotated[bool, Help("export: replace an existing file.")] = False,
    place: SpreadPlace,
    data: common.DataOption = None,
    json_output: common.JsonOption = False,
) -> None:
    """Compute or export parses of captions.

    SPICE and FAIEr require parses. make parses all captions of the published data sets ('all'; those without files and
    captions of more than 100 words are skipped), or those of NAME: data sets, corpora (flickr8k, flickr30k, coco-val,
    ...) or files. Captions with a parse are not parsed again: an interrupted run resumes. Requires SPICE's
    parser ('capbench doctor --install spice').

    An exported file (by default of the whole cache) has the tuples and a hash of each caption, the parser's version,
    and the licences of the captions, but not the captions. Every command reads the files spice-parses/*.parses of the
    data folder.

    Example: capbench data parses make composite flickr8k-expert
    """
    spreading = {option.name for option in dataclasses.fields(SpreadPlace)}
    unused = {"make": {"replace"}, "export": spreading}
    common.check_applies(ctx, unused[action], f"'data parses {action}'")
    if action == "make":
        _make_parses(names or (), place, data, json_output=json_output)
        return
    if not names:
        raise UsageError("no file is named", code="missing-option", value="file", hint="Add the path of the file")
    _export_parses(Path(names[0]), names[1:], data, replace=replace, json_output=json_output)


def _make_parses(names: Sequence[str], place: SpreadPlace, data: Path | None, *, json_output: bool) -> None:
    from capbench.api.parses import ALL, make_parses, named_captions
    from capbench.datasets.root import find_root

    root, caller = find_root(data), dataclasses.replace(common.caller(json_output=json_output), spread=place.spread)
    common.announce_root(root, json_output=json_output)
    captions = named_captions(names or [ALL], root, caller)
    for name, reason in captions.skipped.items():
        common.note(f"{name}: skipped; {reason}")
    made = make_parses(captions, root, caller)
    facts = {"captions": captions.captions, **made, "datasets": list(captions.tokens)}
    distinct, parsed, left = made["distinct"], made["parsed"], made["left_out"]
    left_out = f", {left:,} left out" if left else ""
    counts = f"{captions.captions:,} captions, {distinct:,} distinct"
    line = f"{counts}: {parsed:,} parsed now, {distinct - parsed - left:,} before{left_out}"
    common.answer(json_output, facts | {"skipped": dict(captions.skipped)}, [line])


def _export_parses(file: Path, names: Sequence[str], data: Path | None, *, replace: bool, json_output: bool) -> None:
    from capbench.api.parses import export_named, named_captions
    from capbench.datasets.root import find_root

    root = find_root(data)
    captions = None
    if names:
        common.announce_root(root, json_output=json_output)
        captions = named_captions(names, root, common.caller(json_output=json_output))
    sets = export_named(file, captions, root, replace=replace)
    size = file.stat().st_size
    facts = {"file": str(file), "bytes": size, "captions": list(map(dataclasses.asdict, sets))}
    lines = [f"{each.name}: {each.parses:,} of {each.captions:,} captions; licence: {each.licence}" for each in sets]
    common.answer(json_output, facts, lines)
    common.note(f"wrote {file} ({size / 1000:,.0f} kB)")
    unparsed = [each.name for each in sets if each.parses < each.captions]
    if unparsed:
        common.note(f"not all captions are parsed: run 'capbench data parses make {' '.join(unparsed)}'")
    restricted = [each.name for each in sets if not each.redistributable]
    if restricted:
        common.note(f"not for redistribution, because of the captions' licence: {', '.join(restricted)}")
