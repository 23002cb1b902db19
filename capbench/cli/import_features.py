"""``capbench import-features``: region features that others computed."""

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
            "--out", "-o", metavar="FILE", help="The store. Default: features/NAME.h5, of the first file's name."
        ),
    ] = None,
    format: Annotated[
        str | None,
        typer.Option(
            "--format", metavar="NAME", help="butd-tsv, lxmert-tsv, milvlg, scan, vilbert, lmdb or npz. Default: seen."
        ),
    ] = None,
    ids: Annotated[
        Path | None, typer.Option("--ids", metavar="FILE", help="For scan: the id of each image, one a line.")
    ] = None,
    detector: Annotated[
        str | None,
        typer.Option("--detector", metavar="NAME", help="What computed them; without it they mix with no others."),
    ] = None,
    weights_sha256: Annotated[
        str | None, typer.Option("--weights-sha256", metavar="HEX", help="SHA-256 of its weights, if you know it.")
    ] = None,
    dtype: Annotated[str, typer.Option("--dtype", help="float32, or float16 for half the space.")] = "float32",
    compression: Annotated[str, typer.Option("--compression", help="none, gzip or lzf.")] = "none",
    class_probabilities: Annotated[
        bool,
        typer.Option("--class-probabilities", help="For vilbert and lmdb: keep all of cls_prob, as training can tell."),
    ] = False,
    keep_first: Annotated[
        bool, typer.Option("--keep-first", help="Leave repeated images out instead of refusing them.")
    ] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Replace a store that is there.")] = False,
    json_output: common.JsonOption = False,
) -> None:
    """Take region features of other programs into an HDF5 store.

    Formats: bottom-up attention's and LXMERT's .tsv, MILVLG's .npz, SCAN's .npy, ViLBERT's .npy and LMDB, and a plain
    .npz of many images. Nothing is stored if any row does not fit.

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
        common.warn(f"{made.duplicates:,} repeated images were left out")
    if made.without_probabilities:
        common.note(
            f"hint: of cls_prob ({common.count(made.without_probabilities, 'image')}) only the best class and its "
            "confidence were kept; --class-probabilities keeps all of it, from which ViLBERT can be trained"
        )
    if detector is None:
        common.note("the detector is not known: name it with --detector if features of other files go with these")
