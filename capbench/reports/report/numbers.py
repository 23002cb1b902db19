"""The numbers of a report: every cell of every study with its rank, and what is said where a pointer rests on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from capbench.analyses.all_protocols import ranks
from capbench.reports.report.sources import ReportSource
from capbench.reports.tables import number
from capbench.studies.results import OURS, Cell, ProtocolInfo, StudyResult

__all__ = ["Entry", "entries", "places", "said", "signature_of"]


@dataclass(frozen=True)
class Entry:
    """One number.

    Attributes:
        study: place of its study.
        result: the study.
        info: its protocol.
        cell: the number.
        rank: its significance cluster where metrics were tested, else its place by value; None for plain means.
        top: whether it is the best, or not significantly worse.
        tested: whether metrics were tested.
    """

    study: int
    result: StudyResult
    info: ProtocolInfo
    cell: Cell
    rank: int | None
    top: bool
    tested: bool

    @property
    def percent(self) -> bool:
        """Whether it is shown times 100."""
        return self.info.kind == "accuracy"

    @property
    def shown(self) -> str:
        """The value in print."""
        return number(self.cell.value, self.percent)

    @property
    def interval(self) -> str:
        """``[low, high]``, or ``""``."""
        if self.cell.low is None or self.cell.high is None:
            return ""
        return f"[{_end(self.cell.low, self.percent)}, {_end(self.cell.high, self.percent)}]"

    @property
    def tip(self) -> str:
        """What the number is: metric, protocol, interval, data points, signature; lines."""
        cell, info = self.cell, self.info
        lines = [f"{cell.title}, {info.dataset_title}{f', {cell.group}' if cell.group else ''}"]
        value = f"{info.statistic} = {self.shown}{' %' if self.percent else ''}"
        if cell.sd is not None:
            value += f" ± {number(cell.sd, self.percent)} over {info.draws} draws"
        lines.append(value)
        if self.interval and info.bootstrap is not None:
            how = info.bootstrap
            lines.append(f"{100 * how.level:g} % interval {self.interval}, {how.resamples:,} resamples of {how.unit}s")
        elif not self.interval:
            lines.append("no interval: the study was run without --bootstrap")
        lines.append(f"n = {cell.n:,}" + (f", {cell.ties:,} tied pairs of scores" if cell.ties else ""))
        if self.rank is not None:
            lines.append(f"rank {self.rank}" + (" (significance cluster)" if self.tested else " (by value, untested)"))
        if cell.published is not None:
            lines.append(f"published: {cell.published_printed or number(cell.published, self.percent)}")
        lines.append(f"protocol {info.versioned_id}")
        if self.result.stand_in:
            lines.append(f"{OURS}: of data that takes the place of what was not published")
        signature = signature_of(self.result, cell)
        return "\n".join([*lines, *([f"signature {signature}"] if signature else [])])


def _end(value: float, percent: bool) -> str:
    return f"{100 * value:.1f}" if percent else f"{value:.3f}"


def entries(sources: Sequence[ReportSource]) -> list[Entry]:
    """Every number of every study, in the studies' order."""
    return [entry for place, source in enumerate(sources) for entry in _of_study(place, source.result)]


def _of_study(study: int, result: StudyResult) -> Iterator[Entry]:
    infos = {info.id: info for info in result.protocols}
    by_place: dict[tuple[str, str], dict[str, float]] = {}
    for cell in result.cells:
        by_place.setdefault((cell.protocol, cell.group), {})[cell.column] = cell.value
    ordered = {place: ranks(values) for place, values in by_place.items()}
    for cell in result.cells:
        info = infos[cell.protocol]
        tests = result.comparison(cell.protocol, cell.group)
        rank: int | None = ordered[cell.protocol, cell.group][cell.column]
        if info.kind == "mean":
            rank = None
        elif tests is not None:
            rank = tests.ranks.get(cell.column, rank)
        top = cell.column in tests.top if tests is not None else rank == 1
        yield Entry(study, result, info, cell, rank, top, tests is not None)


def places(numbers: Sequence[Entry]) -> dict[tuple[int, str, str], list[Entry]]:
    """Numbers by study, protocol and group, the best first."""
    by_place: dict[tuple[int, str, str], list[Entry]] = {}
    for entry in numbers:
        by_place.setdefault((entry.study, entry.info.id, entry.cell.group), []).append(entry)
    return {place: sorted(values, key=lambda entry: -entry.cell.value) for place, values in by_place.items()}


def signature_of(result: StudyResult, cell: Cell) -> str:
    """The line that names what can change a number's scores; ``""`` in files from before there were any."""
    of_items = result.signatures.get(cell.protocol.rsplit("/", 1)[0], {})
    names = (cell.column, cell.label, cell.metric)
    return next((of_items[name] for name in names if name in of_items), "")


def said(info: ProtocolInfo) -> str:
    """A protocol in few words: data set, items and statistic."""
    parts = info.id.split("/")
    return f"{info.dataset_title}, {' / '.join(parts[1:])}"
