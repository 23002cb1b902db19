"""``capbench explain``: see why a metric gave captions of an image their scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from capbench.cli import common
from capbench.cli.figure_look import FigureLook
from capbench.cli.given import Inputs, requested
from capbench.cli.groups import with_groups
from capbench.errors import UsageError

if TYPE_CHECKING:
    from capbench.explanations import NamedErrors

__all__ = ["explain"]

_SMALL = 6.0
"""Points below which letters of a picture cannot well be read in print."""


@with_groups
def explain(
    *,
    study: Annotated[
        str | None,
        typer.Argument(metavar="[STUDY.yaml]", help="Study file with 'image', or one that comes with capbench."),
    ] = None,
    image: Annotated[
        str | None,
        typer.Option("--image", "-i", metavar="ID", help="Image id, or the picture's file.", show_default=False),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            "--metric",
            "-m",
            metavar="NAME",
            help="One that explains itself: tiger (default), reo, faier, vilbertscore.",
        ),
    ] = None,
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
    extra: Annotated[
        list[str] | None,
        typer.Option(
            "--extra",
            metavar="PHRASE",
            help="What the caption says too much, as you see it: REO compares it with what it finds; repeatable.",
        ),
    ] = None,
    missing: Annotated[
        list[str] | None,
        typer.Option("--missing", metavar="PHRASE", help="Likewise, what it lacks; repeatable."),
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(
            "--dataset", "-d", metavar="NAME", help="Where references and ratings are. Default: flickr8k-expert."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="NAME", help="Write NAME.html and a picture, NAME.png. Default: IMAGE.METRIC."
        ),
    ] = None,
    chosen: FigureLook,
    given: Inputs,
    json_output: common.JsonOption = False,
) -> None:
    """Show why a metric gave captions of an image their scores: a page (HTML), a picture (PNG, SVG, PDF), and numbers.

    TIGEr: where the candidate and its references ground in the image, the two rankings of regions, what each rank
    gains, and where each word grounds. REO: which words its extra and missing content is made of, and all candidates
    side by side. ViLBERTScore: which word of the candidate matches which of a reference.

    FAIEr: which region each word and each triplet chose, and what it adds. With a study file image, captions and metric
    are those of the file.

    Example: capbench explain faier-figure6 --features coco.h5 --model faier.safetensors

    Example: capbench explain --image f8k_003 --features features/sample.h5 --model sample

    Example: capbench explain -m reo -i dog.jpg -c "a dog" -r "a dog jumps" --features dogs.h5 --model scan.safetensors

    Example: capbench explain -m reo -i f8k_003 -c "a dog on a table" --extra "on a table" --features F.h5 --model FILE
    """
    from capbench.explain.lines import text_lines
    from capbench.explain.subject import find_subject
    from capbench.explain.writing import write_explanation
    from capbench.features.images import decode
    from capbench.features.store import open_store
    from capbench.files import check_writable
    from capbench.metrics.base import Metric
    from capbench.metrics.requests import resolve_metrics

    title, errors = "", _named_errors(extra, missing, caption)
    if study is not None:
        from capbench.cli.image_study import shown_image

        if image or metric or caption or reference or dataset or extra or missing:
            raise UsageError(
                "a study file and flags that define a study were given together",
                hint="Change the study file, or leave it out and use flags alone",
            )
        title, metric, task = shown_image(study)
        image, dataset = task.id, task.dataset
        caption, reference = list(task.candidates or ()), list(task.references or ())
        errors = task.errors or ()
    if image is None:
        raise UsageError("no image is named", hint="Give --image ID, or a study file")
    metric = metric or "tiger"
    (asked,) = resolve_metrics([metric], given.options())
    if asked.metric.explain is Metric.explain:
        _refuse(metric)
    if errors and not asked.metric.explains_errors:
        raise UsageError(
            f"--metric {metric}: it finds no errors to compare with --extra and --missing", hint="Those of REO do: reo"
        )
    root = given.root()
    of_sample = root.is_sample and not Path(image).exists()
    (request,), resources = requested([metric], given, root, sample=of_sample)
    name = request.label
    explainer = request.make(resources)
    store = None if explainer.resources.features is None else open_store(explainer.resources.features)
    looked_up = find_subject(image, store, caption or [], reference or [], dataset, root, given.image_root)
    subject = looked_up.subject
    if errors:
        if len(errors) != len(subject.items):
            raise UsageError(
                f"errors of {len(errors)} captions are named, of {len(subject.items)} that are explained",
                hint="Name them for each candidate, in the same order",
            )
        subject = replace(subject, errors=tuple(errors))
    common.announce_root(root, json_output=json_output, used=looked_up.under_root)
    html, drawn = _targets(out, f"{subject.image}.{name}", chosen)
    look = chosen.look()
    for path in (drawn, html):
        check_writable(path)
    explanation = explainer.explain(subject)
    if explanation is None:
        _refuse(metric)
    notes = list(looked_up.notes)
    if explanation.regions is not None and explanation.regions.boxes is None:
        notes.append("the store has no boxes: regions cannot be shown on a picture")
    explanation = replace(explanation, notes=(*notes, *explanation.notes))
    for note in explanation.notes:
        common.note(note)
    picture = None if subject.picture is None else decode(subject.picture)
    points = write_explanation(
        explanation, picture, html, drawn, title=look.title or title, size=look.size, font_size=chosen.font_size
    )
    if points < min(chosen.font_size or _SMALL, _SMALL) or points < 0.99 * (chosen.font_size or 0):
        common.note(f"the letters of {drawn} are {points:.1f} points high: give a larger --size, or fewer captions")
    if json_output:
        regions = explanation.regions
        common.print_json(
            {
                "metric": name,
                "picture": None if subject.picture is None else str(subject.picture),
                "files": [str(drawn), str(html)],
                "regions": [] if regions is None else list(regions.names),
                "image": subject.image,
                "candidates": [_to_dict(candidate.details) for candidate in explanation.candidates],
                "signature": explanation.signature,
                "notes": list(explanation.notes),
            }
        )
        return
    lines = [*([look.title or title] if look.title or title else []), *text_lines(explanation)]
    for line in (*lines, explanation.signature, f"{drawn}, {html}"):
        print(line)


def _named_errors(
    extra: list[str] | None, missing: list[str] | None, caption: list[str] | None
) -> tuple[NamedErrors, ...]:
    """What ``--extra`` and ``--missing`` say of the caption.

    Raises:
        UsageError: there is not one caption, or a phrase is empty.
    """
    from capbench.explanations import NamedErrors

    if not extra and not missing:
        return ()
    if len(caption or ()) != 1:
        raise UsageError(
            "--extra and --missing are about one caption", hint="Give one with --caption; a study file names more"
        )
    if not all(text.strip() for text in (*(extra or ()), *(missing or ()))):
        raise UsageError("a phrase of --extra or --missing is empty", hint="Give a text")
    return (NamedErrors(tuple(extra or ()), tuple(missing or ())),)


def _targets(out: Path | None, default: str, chosen: FigureLook) -> tuple[Path, Path]:
    """The page and the picture.

    Raises:
        UsageError: ``--format`` is unknown, or ``--out`` ends in another one.
    """
    name = default if out is None else str(out)
    stem, dot, ending = name.rpartition(".")
    kind = ending.lower() if dot and ending.lower() in ("png", "svg", "pdf") else ""
    if kind or (dot and ending.lower() == "html"):
        name = stem
    if chosen.format is None:
        picture = Path(f"{name}.{kind or 'png'}")
    else:
        picture = chosen.target(Path(f"{name}.{kind or chosen.format}"), "")
    return Path(f"{name}.html"), picture


def _refuse(name: str) -> NoReturn:
    """Say that a metric offers no explanation, and which do."""
    from capbench import plugins
    from capbench.metrics.base import Metric
    from capbench.metrics.names import metric_names

    able = [n for n in metric_names() if plugins.load("capbench.metrics", n).explain is not Metric.explain]
    raise UsageError(f"--metric {name}: it offers no explanation", hint=f"Those that do: {', '.join(able)}")


def _to_dict(value: Any) -> Any:
    """Records as JSON values: dataclasses become objects, arrays lists."""
    import numpy as np

    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _to_dict(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return {key: _to_dict(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_to_dict(item) for item in value]
    return value
