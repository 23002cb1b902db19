"""The index page of reproduced tables and figures, and the record of one run."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from pydantic import Field, ValidationError

from capbench.core.errors import CapbenchError
from capbench.core.files import read_json, sha256_file
from capbench.core.typed_json import Strict
from capbench.reports.markup import markdown_text
from capbench.studies.papers import NOTHING, papers
from capbench.studies.results import OURS

_LONGEST = 20_000  # maximum characters of a command's output on the page


class ItemRun(Strict):
    """One run of a table or figure.

    Attributes:
        schema_version: version of this schema.
        item: its key.
        capbench: version of the program.
        created: UTC time in ISO 8601.
        fingerprint: hash of everything that the results depend on, see :func:`capbench.studies.papers.fingerprint`.
        commands: arguments of each command.
        codes: their exit codes; empty if nothing could be computed.
        seconds: wall-clock time.
        rows: titles of the rows that seemed computable before the run.
        waiting: the reason by row that could not be computed.
        error: the last error of a command that failed.
        files: paths of its output, in its folder.
        checksums: the SHA-256 of each of these files; empty in records of earlier versions.
    """

    schema_version: int = 1
    item: str
    capbench: str
    created: str
    fingerprint: str
    commands: tuple[tuple[str, ...], ...]
    codes: tuple[int, ...] = ()
    seconds: float = 0.0
    rows: tuple[str, ...] = ()
    waiting: dict[str, str] = Field(default_factory=dict)
    error: str = ""
    files: tuple[str, ...] = ()
    checksums: dict[str, str] = Field(default_factory=dict)

    def damaged(self, folder: Path) -> str:
        """The first file that cannot be read or has another checksum than recorded; ``""`` if all are intact.

        Args:
            folder: its folder.
        """
        return next((name for name in self.files if not self._is_whole(folder / name, name)), "")

    def _is_whole(self, path: Path, name: str) -> bool:
        try:
            return sha256_file(path) == self.checksums.get(name)
        except CapbenchError:
            return False

    @property
    def is_finished(self) -> bool:
        """True if all of its commands succeeded, with or without missing rows."""
        return bool(self.codes) and all(code in (0, 1) for code in self.codes)

    @property
    def reasons(self) -> dict[str, list[str]]:
        """Rows that could not be computed, by reason."""
        by_reason: dict[str, list[str]] = {}
        for row, reason in self.waiting.items():
            by_reason.setdefault(reason, []).append(row)
        return by_reason

    @property
    def state(self) -> str:
        """``done``, ``in part``, ``failed``, or :data:`~capbench.studies.papers.NOTHING`."""
        if not self.codes:
            return NOTHING
        if not self.is_finished:
            return "failed"
        if self.rows and set(self.rows) <= self.waiting.keys():
            return NOTHING  # only the command detected that no image has features
        return "in part" if any(self.codes) or self.waiting else "done"

    @property
    def state_in_words(self) -> str:
        """The state as printed."""
        return "requirements missing" if self.state == NOTHING else self.state


def load_run(path: Path) -> ItemRun | None:
    """The record of a run; None if there is none for the folder's item, or this version cannot read it.

    An item without a record is run again.
    """
    if not path.is_file():
        return None
    try:
        run = ItemRun.model_validate(read_json(path))
    except (CapbenchError, ValidationError, ValueError):
        return None
    return run if run.item == path.parent.name else None


def index_page(runs: Sequence[ItemRun], out: Path) -> str:
    """One Markdown page: a table of all items, then each with its command, tables, pictures and missing rows.

    Args:
        runs: in the order of the page.
        out: the folder of the page and the items' folders.
    """
    known = papers()
    lines = ["# Tables and figures of five papers", ""]
    lines += ["| item | shows | state | |", "|---|---|---|---|"]
    for run in runs:
        item = known.items[run.item]
        paper = known.papers[item.paper].title
        mark = OURS if item.ours else ""
        lines.append(
            f"| [{paper}, {item.number}](#{run.item}) | {markdown_text(item.title)} | {run.state_in_words} | {mark} |"
        )
    for key in dict.fromkeys(known.items[run.item].paper for run in runs):
        of_key = known.papers[key]
        lines += ["", f"## {of_key.title}", "", markdown_text(of_key.citation)]
        for run in runs:
            if known.items[run.item].paper == key:
                lines += ["", *_section(run, out)]
    never = dict.fromkeys(name for run in runs for name in known.items[run.item].never)
    if never:
        lines += ["", "## Unpublished requirements", "", "These were never published:", ""]
        lines += [f"- {markdown_text(known.never[name])}" for name in never]
    return "\n".join(lines) + "\n"


def _section(run: ItemRun, out: Path) -> list[str]:
    known = papers()
    item = known.items[run.item]
    folder = out / run.item
    lines = [f'<a id="{run.item}"></a>', "", f"### {known.papers[item.paper].title}, {item.number}: {item.title}", ""]
    if item.ours:
        lines += [f"**{OURS}**: {markdown_text(item.ours)}.", ""]
    if item.note:
        lines += [f"{markdown_text(item.note)}.", ""]
    lines += ["```sh", *(shlex.join(["capbench", *command]) for command in run.commands), "```", ""]
    took = f", {run.seconds:.0f} s" if run.codes else ""
    lines += [f"State: {run.state_in_words}{took}, capbench {run.capbench}, {run.created}.", ""]
    if run.error:
        lines += [f"- {markdown_text(run.error)}"]
    lines += [
        f"- missing: {markdown_text(', '.join(waiting))}: {markdown_text(reason)}"
        for reason, waiting in run.reasons.items()
    ]
    if run.error or run.waiting:
        lines.append("")
    table = folder / "results.md"
    printed = folder / "output.txt"
    if run.codes and table.is_file():
        text = table.read_text(encoding="utf-8")
        # Headings of an included page are one level lower.
        lines += [f"#{line}" if line.startswith("### ") else line for line in text.splitlines()]
    elif run.codes and printed.is_file():
        text = printed.read_text(encoding="utf-8")[:_LONGEST].rstrip()
        lines += ["```text", text.replace("```", "'''"), "```"] if text else []
    pictures = [name for name in run.files if name.endswith(".png")]
    lines += [line for name in pictures for line in ("", f"![{Path(name).stem}]({run.item}/{name})")]
    others = [name for name in run.files if name not in pictures]
    if others:
        lines += ["", "Files: " + ", ".join(f"[{name}]({run.item}/{name})" for name in others)]
    return lines
