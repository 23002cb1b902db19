"""``capbench items``: what is to be scored, for programs that compute metrics elsewhere."""

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
            help="Data set, or a part of its protocol's id; see 'capbench protocols'. Default items: the literature's.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Folder for the two files.")],
    data: common.DataOption = None,
    json_output: common.JsonOption = False,
) -> None:
    """Write the captions of a data set with their images and references, each distinct item once, with a stable id.

    DIR/predictions.jsonl has id, caption and image (its path if it is in the data set's image folders, else its id),
    DIR/references.jsonl has id and references. CaptionEvalKit takes both as they are. Scores come back with
    --scores FILE in correlate, compare and every other command that looks at judgements; a row of FILE has the id.

    Of pairs (PASCAL-50S, FOIL) both captions are items. Where references are drawn, every draw is written.

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
    drawn = f" in {len(draws)} draws of references" if len(draws) > 1 else ""
    print(f"{answer['items']}: {count:,} distinct items of {answer['images']:,} images{drawn}")
    for path in written:
        common.note(f"wrote {path}")
    lacking = len({item.image for item in every}) - len(paths)
    if lacking:
        places = [str(place) for place in opened.image_places()]
        common.note(f"{lacking:,} images are named by their ids: their files are not below {' or '.join(places)}")
