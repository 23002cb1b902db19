"""``capbench items``: write the captions of a data set for metrics of other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from capbench.cli import common

__all__ = ["items"]


def items(
    dataset: Annotated[
        str,
        typer.Argument(
            metavar="DATASET[@GROUP][/ITEMS]",
            help="Data set, or part of a protocol's id; see 'capbench protocols'.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Output folder.")],
    data: common.DataOption = None,
    json_output: common.JsonOption = False,
) -> None:
    """Write the captions of a data set for other programs.

    DIR/predictions.jsonl has id, caption and image (its path, or its id if the file is not installed);
    DIR/references.jsonl has id and references. CaptionEvalKit reads both. Each distinct item is written once. To use
    scores of these ids, pass --scores FILE to correlate, compare or another command. See docs/scores.md.

    Example: capbench items flickr8k-expert --out items

    Example: capbench items composite@8k/any-candidate-out --out items
    """
    from capbench.core.files import check_writable
    from capbench.datasets.images import image_paths
    from capbench.datasets.opening import open_dataset, split_protocol
    from capbench.datasets.root import find_root
    from capbench.metrics.score_joining import PREDICTIONS, REFERENCES, write_items

    common.check_out_folder(out)
    root = find_root(data)
    check_writable(out / PREDICTIONS)
    name, rest = split_protocol(dataset)
    opened = open_dataset(name, root)
    selection = opened.protocol(rest).items
    common.announce_root(root, json_output=json_output, used=opened.under_root)
    draws = opened.load(selection)
    every = [item for draw in draws for item in draw.items]
    paths = image_paths((item.image for item in every), root, dataset=opened)
    count = write_items(every, out, paths)
    written = [str(out / PREDICTIONS), str(out / REFERENCES)]
    answer = {
        "items": f"{opened.name}/{selection.name}",
        "distinct_items": count,
        "images": len({item.image for item in every}),
        "image_files": len(paths),
        "draws": len(draws),
        "wrote": written,
    }
    if json_output:
        common.print_json(answer)
        return
    samples = f" in {len(draws)} samples of references" if len(draws) > 1 else ""
    print(f"{answer['items']}: {count:,} distinct items of {answer['images']:,} images{samples}")
    for path in written:
        common.note(f"wrote {path}")
    missing_images = len({item.image for item in every}) - len(paths)
    if missing_images:
        places = [str(place) for place in opened.image_places()]
        number = common.count(missing_images, "image")
        common.note(f"no file of {number} in {' or '.join(places)}: ids are written instead of paths")
