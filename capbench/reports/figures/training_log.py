"""Figure of a training run's log: loss, learning rate, recall."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from capbench.core.errors import DataError
from capbench.core.files import read_lines
from capbench.core.records import FloatArray
from capbench.reports.figures.style import (
    COLOURS,
    GREY,
    LINES,
    MARKERS,
    USUAL,
    Look,
    caption,
    finish,
    new_figure,
    style,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_EPOCHS = 20  # more epochs are not marked: their lines would hide the curves
_DIRECTIONS = {"image_to_text": "image → text", "text_to_image": "text → image"}


@dataclass(frozen=True)
class TrainingLog:
    """Contents of a training log."""

    name: str  # of the run
    steps: FloatArray  # (s,) step of each line with a loss
    loss: FloatArray  # (s,) mean loss since the line before
    rate: FloatArray  # (s,) learning rate; empty if it is not logged
    epochs: tuple[float, ...]  # last step of each finished epoch
    evaluated: FloatArray  # (e,) step of each evaluation
    recalls: Mapping[str, FloatArray]  # (e,) by name (``image → text R@1``), percent
    best: float | None  # step with the largest sum of recalls, None without evaluations
    seconds: float | None  # of training, None if they are not logged
    cut: bool  # the last line is unfinished: the run is being written, or was killed


class _Line(BaseModel):
    """A line of a log: a loss, an evaluation, or the end of the run."""

    model_config = ConfigDict(allow_inf_nan=False, strict=True)
    step: float
    epoch: float | None = None
    seconds: float | None = None
    loss: float | None = None
    lr: float | None = None
    image_to_text: dict[str, float] = {}
    text_to_image: dict[str, float] = {}

    def recalls(self) -> dict[str, float]:
        """Recalls in percent: ``image → text R@1``, …"""
        return {
            f"{title} {name.upper()}": value
            for key, title in _DIRECTIONS.items()
            for name, value in getattr(self, key).items()
            if name.startswith("r@")
        }


def read_log(path: Path) -> TrainingLog:
    """Read a ``log.jsonl``, or that of a run's folder."""
    path = path / "log.jsonl" if path.is_dir() else path
    if path.is_file() and not path.stat().st_size:
        raise DataError("is still empty", code="missing-value", path=path, hint="Wait for the run's first lines")
    lines = [(number, line) for number, line in enumerate(read_lines(path), 1) if line.strip()]
    rows: list[_Line] = []
    cut = False
    for number, line in lines:
        try:
            rows.append(_Line.model_validate_json(line))
        except ValidationError as invalid:
            error = invalid.errors()[0]
            cut = error["type"] == "json_invalid" and number == lines[-1][0] and bool(rows)
            if cut:
                break
            key, hint = ".".join(map(str, error["loc"])), "Pass the log.jsonl of a training run"
            message = f"{key}: {error['msg']}" if key else error["msg"]
            raise DataError(message, code="wrong-format", value=key, path=path, row=number, hint=hint) from None
    training = [row for row in rows if row.loss is not None]
    tests = [row for row in rows if row.recalls()]
    if not training and not tests:
        hint = "Pass the log.jsonl of a training run"
        raise DataError("contains neither losses nor recalls", code="missing-key", value="loss", path=path, hint=hint)
    if len({tuple(row.recalls()) for row in tests}) > 1:
        raise DataError("has evaluations with different recalls", code="mismatch", path=path)
    names = tests[0].recalls() if tests else ()
    recalls = {name: np.array([row.recalls()[name] for row in tests], float) for name in names}
    evaluated = np.array([row.step for row in tests])
    ends = {row.epoch: row.step for row in rows if row.epoch is not None}
    return TrainingLog(
        name=path.resolve().parent.name or path.stem,
        steps=np.array([row.step for row in training]),
        loss=np.array([row.loss for row in training], float),
        rate=np.array([row.lr for row in training if row.lr is not None]),
        epochs=tuple(ends.values())[:-1],
        evaluated=evaluated,
        recalls=recalls,
        best=float(evaluated[int(np.sum([*recalls.values()], axis=0).argmax())]) if recalls else None,
        seconds=next((row.seconds for row in reversed(rows) if row.seconds is not None), None),
        cut=cut,
    )


def training_log_figure(log: TrainingLog, look: Look = USUAL) -> Figure:
    """Loss (with the learning rate) at the top, recalls below; a panel without data is omitted."""
    from matplotlib.ticker import MaxNLocator

    parts = [content for content, there in (("loss", len(log.steps)), ("recalls", len(log.evaluated))) if there]
    ends = log.epochs if len(log.epochs) <= _EPOCHS else ()
    with style(look):
        figure, panels = new_figure(7.2, 0.6 + 2.5 * len(parts), rows=len(parts), look=look)
        for axes, content in zip(panels, parts, strict=True):
            for end in ends:
                axes.axvline(end, color="#dddddd", linewidth=0.8, zorder=0)
            (_loss if content == "loss" else _recalls)(axes, log)
            axes.xaxis.set_major_locator(MaxNLocator(nbins="auto", steps=[1, 2, 2.5, 5, 10], integer=True))
            axes.set_xlim(0, 1.02 * max([*log.steps, *log.evaluated]))
        panels[-1].set_xlabel("step" + (" (vertical lines: ends of epochs)" if ends else ""))
        last = max([*log.steps, *log.evaluated])
        seconds = log.seconds or 0
        facts = [
            f"{last:,.0f} step{'' if last == 1 else 's'}",
            f"{seconds:.0f} s" if seconds < 60 else f"{seconds / 60:.1f} min",
            "" if log.best is None else f"largest sum of recalls at step {log.best:,.0f}",
            "the last line is incomplete and ignored" if log.cut else "",
        ]
        return finish(figure, caption(log.name, *facts), look)


def _loss(axes: Axes, log: TrainingLog) -> None:
    axes.plot(log.steps, log.loss, color=COLOURS[0], linewidth=1.2, marker="o" if len(log.steps) < 30 else "", ms=3)
    axes.set_ylabel("loss", color=COLOURS[0])
    axes.grid(axis="y")
    if len(log.rate) == len(log.steps):
        other = axes.twinx()
        other.plot(log.steps, log.rate, color=COLOURS[1], linewidth=1.0, linestyle="--")
        other.set_ylabel("learning rate", color=COLOURS[1])
        other.set_ylim(0, 1.15 * max(log.rate) or 1)
        other.ticklabel_format(axis="y", style="sci", scilimits=(-2, 3))
        other.spines["right"].set_visible(True)


def _recalls(axes: Axes, log: TrainingLog) -> None:
    kinds = list(dict.fromkeys(name.rpartition(" ")[2] for name in log.recalls))
    for name, values in log.recalls.items():
        direction, _, kind = name.rpartition(" ")
        place = kinds.index(kind)
        first = direction == _DIRECTIONS["image_to_text"]
        axes.plot(
            *(log.evaluated, values),
            color=COLOURS[place % len(COLOURS)],
            linestyle=LINES[0] if first else LINES[1],
            marker=MARKERS[place % len(MARKERS)],
            markerfacecolor=None if first else "white",
            markersize=4,
            linewidth=1.2,
            label=name,
        )
    if log.best is not None:
        axes.axvline(log.best, color=GREY, linewidth=1.0, linestyle=":")
    axes.set_ylim(bottom=0)
    axes.set_ylabel("recall on dev, %")
    axes.grid(axis="y")
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
