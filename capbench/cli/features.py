"""``capbench features``: import, describe, verify, merge, pool and export feature stores."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from capbench.api.arguments import ImportSettings
from capbench.cli import common
from capbench.cli.commands import group
from capbench.cli.options import argument
from capbench.core.arguments import Help
from capbench.core.errors import UsageError

_Store = Annotated[Path, argument("STORE", "Feature store.")]
_NewStore = Annotated[Path, argument("OUT", "New store.")]
_Compression = Annotated[str | None, Help("Compression: none, gzip or lzf. Default: the first store's.")]

app = group("Import, inspect, merge and convert feature stores.", "capbench features info features/sample.h5")


@app.command("import")
def import_(
    *,
    files: Annotated[list[Path], argument("FILE...", "Files of one format, or folders of them.")],
    out: Annotated[
        Path | None, common.output("Output store. Default: features/NAME.h5 for the first file NAME.")
    ] = None,
    settings: ImportSettings,
    json_output: common.JsonOption = False,
) -> None:
    """Import region features of other programs.

    Formats: bottom-up attention's and LXMERT's .tsv, MILVLG's .npz, SCAN's .npy, ViLBERT's .npy and LMDB, and a plain
    .npz of many images. Nothing is imported if any row is invalid.

    Example: capbench features import trainval_36.tsv --detector bottom-up-caffe --out features/coco.h5
    """
    from capbench.api.features import import_features

    made = import_features(files, out, **settings, progress=common.progress)
    speed = f"{made.images / made.seconds:,.0f} images/s"
    lines = [f"{made.path}: {made.images:,} images from {made.format} ({speed})", f"signature: {made.signature}"]
    common.answer(json_output, made.to_dict(), lines)
    if made.damaged:
        listed = ", ".join(map(str, made.damaged[:3])) + (", …" if made.damaged[3:] else "")
        rows = common.count(len(made.damaged), "damaged row")
        common.warn(f"skipped {rows} ({listed}): each image has an intact row, too")
    if made.duplicates:
        common.warn(f"skipped {common.count(made.duplicates, 'repeated image')}")
    if made.without_probabilities:
        images, remedy = common.count(made.without_probabilities, "image"), "store all with --class-probabilities"
        common.note(f"{images}: only the best class and its confidence are stored; to train ViLBERT, {remedy}")
    if "detector" not in settings:
        common.note("the detector is unknown: name it with --detector to merge these features with others")


@app.command()
def info(
    stores: Annotated[list[Path], argument("STORE...", "One or more stores, or a folder of stores.")],
    verify: Annotated[bool, Help("Check every image.")] = False,
    json_output: common.JsonOption = False,
) -> None:
    """Show the contents of a store and its fingerprint.

    --verify checks checksums, NaN and infinity, and boxes outside the image. Exit code 1: an image is damaged.

    Example: capbench features info features/sample.h5 --verify
    """
    from capbench.features.maintenance import describe, verify_store
    from capbench.features.store import open_store

    with open_store(stores if len(stores) > 1 else stores[0]) as store:
        if verify:
            with common.progress("verifying", len(store)) as step:
                verified = verify_store(store, step)
        else:
            facts = describe(store)
    if verify:
        state = f"{verified.bad:,} damaged" if verified.bad else "no errors"
        line = f"{stores[0]}: {verified.images:,} images, {verified.regions:,} regions: {state}"
        common.answer(json_output, vars(verified) | {"ok": not verified.bad}, [line])
        for problem in verified.problems:
            common.warn(problem)
        if verified.bad:
            raise typer.Exit(1)
        return
    common.answer(json_output, facts, (f"{label + ':':<16}{text}" for label, text in _labelled(facts)))
    for path in facts["unfinished"]:
        common.warn(f"{path}: the extraction was interrupted; run the same command again to resume")


def _labelled(facts: dict[str, Any]) -> list[tuple[str, str]]:
    low, high = facts["regions_per_image"]
    fingerprint = facts["fingerprint"]
    versions = ", ".join(f"{name} {version}" for name, version in fingerprint["versions"].items()) or "unknown"
    each = f"{low}" if low == high else f"{low} to {high}"
    fields = ", ".join([*(["boxes"] if facts["boxes"] else []), *facts["fields"]]) or "features only"
    return [
        *(("file", path) for path in facts["files"]),
        ("images", f"{facts['images']:,}"),
        ("regions", f"{facts['regions']:,} ({each} per image) with {facts['feature_size']:,} columns"),
        ("fields", fields),
        ("names", f"{facts['classes']:,} classes, {facts['attributes']:,} attributes"),
        ("stored", f"{facts['dtype']}, compression {facts['compression']}, {facts['bytes'] / 1e6:,.1f} MB"),
        ("detector", fingerprint["detector"]),
        ("weights", f"SHA-256 {fingerprint['weights_sha256']}"),
        ("preprocessing", fingerprint["preprocessing"]),
        ("mode", f"{fingerprint['mode']}; {fingerprint['batch']}; {fingerprint['precision']}"),
        ("versions", versions),
        ("signature", facts["signature"]),
    ]


@app.command()
def merge(
    *,
    out: _NewStore,
    stores: Annotated[list[Path], argument("STORE...", "Stores with the same fingerprint.")],
    compression: _Compression = None,
    replace: common.ReplaceOption = False,
    json_output: common.JsonOption = False,
) -> None:
    """Merge stores that have the same fingerprint.

    Merged shards are bitwise identical to the store of a single run.

    Example: capbench features merge features/all.h5 features/all.shard-*-of-4.h5
    """
    from capbench.features.maintenance import merge_stores

    with common.progress("merging", None) as step:
        store = merge_stores(out, stores, compression=compression, replace=replace, progress=step)
    counts = f"{common.count(len(store), 'image')} of {common.count(len(stores), 'store')}"
    facts = {"store": str(out), "images": len(store), "signature": store.signature()}
    common.answer(json_output, facts, [f"{out}: {counts}", f"signature: {store.signature()}"])


@app.command()
def pool(
    *,
    store: _Store,
    out: _NewStore,
    windows: Annotated[str, Help("5x5, pyr30, or levels: 3x3/1+7x7/1.", metavar="LEVELS")] = "5x5",
    grid: Annotated[str | None, Help("Cells. Default: from the boxes.", metavar="ROWSxCOLUMNS")] = None,
    dtype: Annotated[str | None, Help("Type: float32 or float16. Default: the store's.")] = None,
    compression: _Compression = None,
    replace: common.ReplaceOption = False,
    json_output: common.JsonOption = False,
) -> None:
    """Pool grid cells into windows.

    A region's features are the mean of its cells. A level ROWSxCOLUMNS/STRIDE slides a window over the cells; '+' joins
    levels. On 7x7 cells, '5x5' is 3x3/1 (25 windows) and 'pyr30' is 3x3/1+5x5/2+7x7/1 (30 windows).

    Example: capbench features pool features/grid.h5 features/grid-pyr30.h5 --windows pyr30
    """
    from capbench.features.pooling import parse_pooling, pool_store
    from capbench.features.store import open_store

    pooling = parse_pooling(windows)
    with open_store(store) as cells, common.progress("pooling", len(cells)) as step:
        made = pool_store(
            cells,
            out,
            pooling,
            shape=None if grid is None else _grid(grid),
            dtype=dtype,
            compression=compression,
            replace=replace,
            progress=step,
        )
    counts = [made.regions(image) for image in made.ids]
    each = f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
    facts = {"store": str(out), "images": len(made), "regions": [min(counts), max(counts)]}
    facts |= {"levels": str(pooling), "windows": counts[0]}
    lines = [f"{out}: {common.count(len(made), 'image')}, {each} regions each (windows {pooling})"]
    common.answer(json_output, facts | {"signature": made.signature()}, [*lines, f"signature: {made.signature()}"])


def _grid(text: str) -> tuple[int, int]:
    rows, _, columns = text.partition("x")
    if not (rows.isdecimal() and columns.isdecimal() and int(rows) and int(columns)):
        message = f"--grid {text} does not have the form ROWSxCOLUMNS"
        raise UsageError(message, code="wrong-format", value=text, hint="Example: --grid 7x7")
    return int(rows), int(columns)


@app.command()
def export(
    *,
    store: _Store,
    out: Annotated[Path, argument("OUT", "Output file, .npz or .tsv (of bottom-up attention).")],
    replace: common.ReplaceOption = False,
    json_output: common.JsonOption = False,
) -> None:
    """Export a store to a format of other programs.

    The exported file has no fingerprint.

    Example: capbench features export features/sample.h5 sample.tsv
    """
    from capbench.features.maintenance import export_store
    from capbench.features.store import open_store

    with open_store(store) as opened, common.progress("writing", len(opened)) as step:
        kind = export_store(opened, out, replace=replace, progress=step)
        count, signature = len(opened), opened.signature()
    facts = {"file": str(out), "format": kind, "images": count, "signature": signature}
    common.answer(json_output, facts, [f"{out}: {common.count(count, 'image')} as {kind}"])
