"""``capbench retrieve``: does a metric find an image by its caption, and a caption by its image?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from capbench.cli import common
from capbench.cli.options import Cached, OptionGroup, with_groups
from capbench.cli.study_flags import LeftOut
from capbench.core.errors import CapbenchError, UsageError

if TYPE_CHECKING:
    from capbench.studies.published import PublishedTable
    from capbench.studies.retrieval import CaptionGallery, MetricRetrieval
    from capbench.studies.tasks import RetrievalTask

__all__ = ["retrieve"]


@dataclass(frozen=True)
class GalleryFlags(OptionGroup):
    """What is retrieved; what is given takes the place of what a study file says."""

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

    def applied_to(self, task: RetrievalTask) -> RetrievalTask:
        """The task with what is given. Raises UsageError if a value does not fit."""
        from dataclasses import asdict

        from capbench.studies.tasks import RetrievalTask

        given = {name: value for name, value in asdict(self).items() if value is not None}
        return RetrievalTask.read("retrieval", {**asdict(task), **given})


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
    from capbench.api.resolve import resolve, resolve_task, study_of_task
    from capbench.datasets.captions import load_split
    from capbench.studies.published import load_published
    from capbench.studies.retrieval import draw_gallery, metric_retrieval
    from capbench.studies.tasks import RetrievalTask

    if (study is None) == (not metric):
        raise UsageError("give a study file, or metrics with -m", hint="Example: capbench retrieve -m cider")
    left_out.refuse_without_study(study)
    root = given.root()
    waiting: dict[str, str] = {}
    published = None
    if study is not None:
        planned, task = study_of_task(study, RetrievalTask, given.values(), left_out.names, common.caller())
        task = flags.applied_to(task)
        plan, waiting = resolve_task(planned, root, common.caller())
        requests, resources = plan.requests, plan.resources
        published = load_published(planned.published) if planned.published else None
    else:
        task = flags.applied_to(RetrievalTask())
        of_sample = not Path(task.captions).exists()
        resolved = resolve(
            metric or [], given.values(), common.caller(), on_sample=lambda root: root.is_sample and of_sample
        )
        requests, resources = resolved.requests, resolved.resources
    corpus = load_split(task.captions, task.split, root)
    gallery = draw_gallery(corpus, task)
    common.announce_root(root, json_output=json_output, used=not Path(task.captions).exists())
    common.note(f"{_title(task)}: {gallery.source}")
    results: list[MetricRetrieval] = []
    for request in requests:
        try:
            results += metric_retrieval(
                gallery,
                request,
                resources=resources,
                cache=given.cache,
                progress=common.progress,
                announce=common.note,
            )
        except CapbenchError as error:
            if study is None:
                raise
            waiting |= {row.title: f"waits: {error}" for row in request.rows}
    if json_output:
        common.print_json([result.to_dict() for result in results])
    else:
        _print(results, gallery, task, published, waiting)
    for title, reason in waiting.items():
        common.note(f"{title} {reason}")
    if waiting:
        raise typer.Exit(1)


def _title(task: RetrievalTask) -> str:
    return task.captions if task.split is None else f"{task.captions}, {task.split}"


def _print(
    results: list[MetricRetrieval],
    gallery: CaptionGallery,
    task: RetrievalTask,
    published: PublishedTable | None,
    waiting: dict[str, str],
) -> None:
    from rich import box
    from rich.table import Table

    table = Table(
        title=f"{_title(task)}: {len(gallery.images):,} images, {len(gallery.captions):,} captions",
        title_justify="left",
        box=box.SIMPLE_HEAD,
    )
    table.add_column("metric")
    for way in ("caption → image", "image → caption"):
        for head in ("R@1", "R@5", "R@10", "median"):
            table.add_column(f"{way}\n{head}" if head == "R@1" else f"\n{head}", justify="right")
    for result in results:
        cells = []
        for direction in (result.retrieval.text_to_image, result.retrieval.image_to_text):
            cells += [*(f"{recall:.1f}" for recall in direction.recalls), f"{direction.median_rank:g}"]
        table.add_row(result.row.title, *cells)
    for title in waiting:
        table.add_row(title, "waits")
    if published is not None:
        for row in published.rows:
            table.add_row(f"{row.printed} (paper)", *_printed(published, row.key), style="dim")
    console = common.out()
    console.print(table)
    lines = [gallery.source]
    if published is not None:
        lines += [f"published: {published.source}", *published.notes]
    for line in (*lines, *dict.fromkeys(result.signature for result in results)):
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
