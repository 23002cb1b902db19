"""``capbench import-features``: convert region features of other programs into an HDF5 store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from capbench.cli import common

__all__ = ["import_features"]


def import_features(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Files of one format, or folders of them.", show_default=False),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FILE", help="Output store. Default: features/NAME.h5 for the first file NAME."
        ),
    ] = None,
    format: Annotated[
        str | None,
        typer.Option(
            "--format", metavar="NAME", help="butd-tsv, lxmert-tsv, milvlg, scan, vilbert, lmdb, npz. Default: detect."
        ),
    ] = None,
    ids: Annotated[
        Path | None, typer.Option("--ids", metavar="FILE", help="For scan: file with one image id per line.")
    ] = None,
    detector: Annotated[
        str | None,
        typer.Option("--detector", metavar="NAME", help="Name of the detector; required to merge stores."),
    ] = None,
    weights_sha256: Annotated[
        str | None, typer.Option("--weights-sha256", metavar="HEX", help="SHA-256 of the detector's weights.")
    ] = None,
    dtype: Annotated[str, typer.Option("--dtype", help="Type in the store: float32 or float16.")] = "float32",
    compression: Annotated[str, typer.Option("--compression", help="Compression: none, gzip or lzf.")] = "none",
    class_probabilities: Annotated[
        bool,
        typer.Option("--class-probabilities", help="For vilbert and lmdb: store all class probabilities."),
    ] = False,
    keep_first: Annotated[
        bool, typer.Option("--keep-first", help="Skip repeated images instead of raising an error.")
    ] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Replace an existing store.")] = False,
    json_output: common.JsonOption = False,
) -> None:
    """Import region features of other programs.

    Formats: bottom-up attention's and LXMERT's .tsv, MILVLG's .npz, SCAN's .npy, ViLBERT's .npy and LMDB, and a plain
    .npz of many images. Nothing is imported if any row is invalid.

    Example: capbench import-features trainval_36.tsv --detector bottom-up-caffe --out features/coco.h5
    """
    from capbench.api.features import import_features as run

    made = run(
        files,
        out,
        format=format,
        ids=ids,
        detector=detector,
        weights_sha256=weights_sha256,
        dtype=dtype,
        compression=compression,
        class_probabilities=class_probabilities,
        keep_first=keep_first,
        replace=replace,
        progress=common.images_progress,
    )
    if json_output:
        common.print_json(made.to_dict())
    else:
        print(f"{made.path}: {made.images:,} images from {made.format} ({made.images / made.seconds:,.0f} images/s)")
        print(f"signature: {made.signature}")
    if made.duplicates:
        common.warn(f"skipped {common.count(made.duplicates, 'repeated image')}")
    if made.without_probabilities:
        images = common.count(made.without_probabilities, "image")
        common.note(
            f"{images}: only the best class and its confidence are stored; to train ViLBERT, store all class "
            "probabilities with --class-probabilities"
        )
    if detector is None:
        common.note("the detector is unknown: name it with --detector to merge these features with others")
