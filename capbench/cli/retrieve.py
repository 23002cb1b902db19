"""``capbench retrieve``: retrieval of images by captions and of captions by images, ranked by a metric's scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from capbench.cli import common
from capbench.cli.options import Cached, OptionGroup, with_groups
from capbench.cli.study_flags import LeftOut
from capbench.core.errors import UsageError

if TYPE_CHECKING:
    from capbench.api.retrieving import RetrievalStudy
    from capbench.studies.published import PublishedTable

__all__ = ["retrieve"]


@dataclass(frozen=True)
class GalleryFlags(OptionGroup):
    """Captions and images of the retrieval, which override a study file."""

    captions: Annotated[
        str | None,
        typer.Option(
            "--captions", metavar="NAME|FILE", help="Captions: a corpus such as flickr8k, or a file. Default: flickr8k."
        ),
    ] = None
    split: Annotated[
        str | None,
        typer.Option("--split", metavar="NAME", help="One split or domain of them: test, dev. Default: all images."),
    ] = None
    images: Annotated[
        int | None, typer.Option("--images", metavar="N", min=2, help="Images that are drawn. Default: 1000, or all.")
    ] = None
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="N", min=0, help="Seed of the draw of images. Default: 0.")
    ] = None
    references: Annotated[
        int | None,
        typer.Option(
            "--references", metavar="N", min=1, help="References of an image: its first N captions. Default: 4."
        ),
    ] = None
    gallery: Annotated[
        Literal["rest", "one"] | None,
        typer.Option(
            "--gallery",
            help="Queries and gallery: all captions that are no references (default), or one of each image.",
        ),
    ] = None


@with_groups
def retrieve(
    *,
    study: Annotated[
        str | None,
        typer.Argument(metavar="[STUDY.yaml]", help="Study file with 'retrieval', or one that comes with capbench."),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option("--metric", "-m", metavar="NAME", help="Metric, column, or LABEL=NAME; repeatable."),
    ] = None,
    flags: GalleryFlags,
    left_out: LeftOut,
    given: Cached,
    json_output: common.JsonOption = False,
) -> None:
    """Retrieve images by captions and captions by images, ranked by a metric's scores (FAIEr, Table 6).

    Images are drawn at random. Of each image's captions the first four are its references, which metrics compare with;
    the others are queries and gallery, and every one of them is scored against every image. R@K is the percentage of
    queries with a right answer, any caption of the image's own, among the first K.

    FAIEr, TIGEr and the mean grounding encode each image and each caption once. Other metrics score pair by pair, a
    million pairs for 1,000 images and as many captions: how long that takes is said before.

    Exit code 1: done, but a metric of the study file waits for something (listed).

    Example: capbench retrieve -m cider -m meteor --captions flickr8k --split test --images 200

    Example: capbench retrieve -m tiger.grounding --captions flickr8k --features features/sample.h5 --model sample

    Example: capbench retrieve faier-table6 --features nocaps.h5 --model tiger=scan.safetensors
    """
    from dataclasses import asdict

    from capbench.api.retrieving import RetrievalRequest, compute_retrieval

    if (study is None) == (not metric):
        raise UsageError("give a study file, or metrics with -m", hint="Example: capbench retrieve -m cider")
    request = RetrievalRequest(study=study, metrics=metric or (), changes=asdict(flags), without=left_out.names)
    found = compute_retrieval(request, given.values(), common.caller(json_output=json_output))
    if json_output:
        common.print_json(found.to_list())
    else:
        _print(found)
    for title, reason in found.missing.items():
        common.note(f"{title} {reason}")
    if found.missing:
        raise typer.Exit(1)


def _print(found: RetrievalStudy) -> None:
    from rich import box
    from rich.table import Table

    gallery, published = found.gallery, found.published
    table = Table(
        title=f"{found.title}: {len(gallery.images):,} images, {len(gallery.captions):,} captions",
        title_justify="left",
        box=box.SIMPLE_HEAD,
    )
    table.add_column("metric")
    for way in ("caption → image", "image → caption"):
        for head in ("R@1", "R@5", "R@10", "median"):
            table.add_column(f"{way}\n{head}" if head == "R@1" else f"\n{head}", justify="right")
    for result in found.results:
        cells = []
        for direction in (result.retrieval.text_to_image, result.retrieval.image_to_text):
            cells += [*(f"{recall:.1f}" for recall in direction.recalls), f"{direction.median_rank:g}"]
        table.add_row(result.row.title, *cells)
    for title in found.missing:
        table.add_row(title, "waits")
    if published is not None:
        for row in published.rows:
            table.add_row(f"{row.printed} (paper)", *_printed(published, row.key), style="dim")
    console = common.out()
    console.print(table)
    lines = [gallery.source]
    if published is not None:
        lines += [f"published: {published.source}", *published.notes]
    for line in (*lines, *dict.fromkeys(result.signature for result in found.results)):
        console.print(line, style="dim", markup=False, soft_wrap=True)


def _printed(published: PublishedTable, row: str) -> list[str]:
    """A printed row in the columns and the unit of ours."""
    cells = []
    for way in ("text-to-image", "image-to-text"):
        for k in (1, 5, 10):
            value = published.cell(f"{way}-{k}", row)
            cells.append("" if value is None else f"{100 * value.number:.1f}")
        cells.append("")
    return cells
