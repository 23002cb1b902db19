"""``capbench explain``: see why TIGEr or REO gave captions of an image their scores."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from capbench.cli import common
from capbench.errors import UsageError, suggest

if TYPE_CHECKING:
    from capbench.explain.reo import ReoExplanation, WordShare
    from capbench.explain.subject import Subject
    from capbench.explain.tiger import TigerExplanation
    from capbench.features.store import FeatureStore
    from capbench.reports.heatmaps import Scene

__all__ = ["explain"]

_METRICS = ["tiger", "reo"]
_RANKS = 10
_WORDS = 8


def explain(
    image: Annotated[
        str, typer.Option("--image", "-i", metavar="ID", help="Image id, or the picture's file.", show_default=False)
    ],
    metric: Annotated[str, typer.Option("--metric", "-m", metavar="NAME", help="tiger or reo.")] = "tiger",
    caption: Annotated[
        list[str] | None,
        typer.Option(
            "--caption", "-c", metavar="TEXT", help="Candidate; repeatable. Default: the first 5 that are judged."
        ),
    ] = None,
    reference: Annotated[
        list[str] | None,
        typer.Option("--reference", "-r", metavar="TEXT", help="Reference; repeatable. Default: the data set's."),
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(
            "--dataset", "-d", metavar="NAME", help="Where references and ratings are. Default: flickr8k-expert."
        ),
    ] = None,
    features: common.FeaturesOption = None,
    model: Annotated[
        str | None, typer.Option("--model", metavar="FILE", help="The grounding model, or METRIC=FILE.")
    ] = None,
    image_root: Annotated[
        Path | None,
        typer.Option("--image-root", metavar="DIR", help="Where the picture is. Default: the data folder's */images."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="NAME", help="Write NAME.png and NAME.html. Default: IMAGE.METRIC."),
    ] = None,
    option: common.MetricOption = None,
    data: common.DataOption = None,
    json_output: common.JsonOption = False,
) -> None:
    """Show why TIGEr or REO gave captions of an image their scores: a picture (PNG), a page (HTML), and the numbers.

    TIGEr: where the candidate and its references ground in the image, the two rankings of regions, what each rank
    gains, and where each word grounds. REO: which words its extra and missing content is made of, and all candidates
    side by side.

    Example: capbench explain --image f8k_003 --features features/sample.h5 --model sample

    Example: capbench explain -m reo -i dog.jpg -c "a dog" -r "a dog jumps" --features dogs.h5 --model scan.safetensors
    """
    from capbench.datasets.root import find_root
    from capbench.explain.html import reo_html, tiger_html
    from capbench.explain.picture import reo_png, tiger_png
    from capbench.explain.reo import explain_reo
    from capbench.explain.subject import find_subject
    from capbench.explain.tiger import explain_tiger, to_dict
    from capbench.files import check_writable
    from capbench.metrics.base import Resources
    from capbench.metrics.reo import Reo
    from capbench.metrics.requests import resolve_metrics
    from capbench.metrics.tiger import Tiger

    if metric.lower() not in _METRICS:
        raise UsageError(f"--metric {metric}: cannot be explained", hint=suggest(metric, _METRICS))
    (request,) = resolve_metrics([metric], common.parse_options(option or []))
    weights = None if model is None else model.removeprefix(f"{metric.lower()}=")
    made = request.make(Resources(features=None if features is None else str(features), model=weights))
    assert isinstance(made, Tiger | Reo)
    root = find_root(data)
    subject = find_subject(image, made.source.store, caption or [], reference or [], dataset, root, image_root)
    common.announce_root(root, json_output=json_output, used=subject.under_root)
    scene = _scene(subject, made.source.store)
    notes = list(subject.notes)
    if scene.boxes is None:
        notes.append("the store has no boxes: regions cannot be shown on a picture")
    for note in notes:
        common.note(note)
    target = str(out).removesuffix(".png").removesuffix(".html") if out is not None else f"{subject.image}.{made.name}"
    png, html = Path(f"{target}.png"), Path(f"{target}.html")
    for path in (png, html):
        check_writable(path)
    found: TigerExplanation | ReoExplanation
    if isinstance(made, Tiger):
        found = explain_tiger(made, subject.items, subject.humans, notes)
        tiger_png(found, scene, png)
        tiger_html(found, scene, html)
        lines = _tiger_lines(found, scene.names)
    else:
        found = explain_reo(made, subject.items, subject.humans, notes)
        reo_png(found, scene, png)
        reo_html(found, scene, html)
        lines = _reo_lines(found)
    for note in found.notes[len(notes) :]:
        common.note(note)
    if json_output:
        picture = None if subject.picture is None else str(subject.picture)
        extra = {"metric": made.name, "picture": picture, "files": [str(png), str(html)], "regions": scene.names}
        common.print_json(to_dict({**extra, **vars(found)}))
        return
    for line in (*lines, found.signature, f"{png}, {html}"):
        print(line)


def _scene(subject: Subject, store: FeatureStore) -> Scene:
    from capbench.explain.subject import region_names
    from capbench.features.images import decode
    from capbench.reports.heatmaps import make_scene

    regions = store[subject.image]
    picture = None if subject.picture is None else decode(subject.picture)
    return make_scene(picture, regions.boxes, (regions.width, regions.height), region_names(store, subject.image))


def _tiger_lines(found: TigerExplanation, names: Sequence[str]) -> list[str]:
    from capbench.explain.picture import numbers_line
    from capbench.explain.tiger import letter

    lines = []
    wide = max(len("references"), *map(len, names))
    for i, candidate in enumerate(found.candidates):
        lines += [f"{letter(i)}: {candidate.caption.text}", f"   {numbers_line(candidate)}"]
        lines.append(
            f"   {'rank':>4}  {'references':<{wide}}  {'candidate':<{wide}}  {'relevance':>9}  {'gain':>6}  ideal"
        )
        for k, region in enumerate(candidate.order[:_RANKS].tolist()):
            ideal, relevance = names[candidate.ideal_order[k]], candidate.relevance[region]
            gains = f"{relevance:>9.4f}  {candidate.gains[k]:>6.4f}  {candidate.ideal_gains[k]:.4f}"
            lines.append(f"   {k + 1:>4}  {ideal:<{wide}}  {names[region]:<{wide}}  {gains}")
        attention = candidate.caption.attention
        best = attention.argmax(axis=0).tolist() if attention.size else []
        words = zip(candidate.caption.words, best, attention.max(axis=0).tolist() if best else [], strict=True)
        lines.append(
            "   words: " + ", ".join(f"{word} at {names[region]} ({share:.2f})" for word, region, share in words)
        )
    return lines


def _reo_lines(found: ReoExplanation) -> list[str]:
    from capbench.explain.picture import reo_lines
    from capbench.explain.tiger import letter

    lines = []
    for i, candidate in enumerate(found.candidates):
        lines += [f"{letter(i)}: {candidate.text}", *(f"   {line}" for line in reo_lines(candidate))]
        for truth, seen in candidate.truths.items():
            lines.append(f"   extra, against {truth}: {_shares(seen.extra_words)}")
            if seen.missing:
                lines.append(f"   missing, against {truth}: {_shares(seen.missing)}")
    return lines


def _shares(words: Sequence[WordShare]) -> str:
    from capbench.explain.reo import percentages

    parts = [f" ({part})" if part else "" for part in percentages(words)]
    return ", ".join(
        f"{share.word} {share.similarity:.3f}{part}" for share, part in zip(words[:_WORDS], parts, strict=False)
    )
