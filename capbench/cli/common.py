"""Consoles, notes, tables, JSON output and progress of all commands, and options that most of them have."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from annotated_types import Ge, Le

from capbench.core.arguments import Help
from capbench.core.errors import UsageError
from capbench.core.errors import count as count
from capbench.core.progress import LONG_S, console
from capbench.core.progress import progress as progress

if TYPE_CHECKING:
    from rich.console import Console

    from capbench.api.caller import Caller
    from capbench.datasets.root import DataRoot
    from capbench.reports.table import Document, Table
    from capbench.studies.results import StudyResult
    from capbench.studies.score_files import Incomplete

    Text = Callable[[], object] | Iterable[str | Table | Document]

DataOption = Annotated[
    Path | None, Help("Data folder. Default: $CAPBENCH_DATA, else the embedded synthetic sample.", metavar="DIR")
]


def argument(metavar: str, text: str) -> Any:
    """An argument of a command, beside its type."""
    return typer.Argument(metavar=metavar, help=text, show_default=False)


def output(text: str, metavar: str = "FILE") -> Help:
    """The option ``--out``."""
    return Help(text, ("--out", "-o"), metavar)


StudyArgument = Annotated[str | None, argument("[STUDY.yaml]", "Study file, or the name of a shipped one.")]
MetricsOption = Annotated[
    list[str] | None,
    Help("Metric, column, LABEL=NAME or 'all'; repeatable, or a list: cider,meteor.", ("--metric", "-m"), "NAME"),
]
ReferencesOption = Annotated[
    Path, Help("Annotations of COCO, nocaps or Karpathy, {image: [..]}, JSONL, CSV, .token.txt.", metavar="FILE")
]
ColumnsOption = Annotated[
    list[str] | None, Help("Read these columns of your file as these fields; repeatable.", metavar="FIELD=COLUMN,...")
]
ReplaceOption = Annotated[bool, Help("Replace existing files.")]
_FILE_ENDINGS = (".csv", ".html", ".json", ".jsonl", ".md", ".parquet", ".pdf", ".png", ".svg", ".tex", ".tsv", ".txt")
"""Extensions of files that commands write; a folder of results is not expected to have one."""
BELOW_BAR = 3  # exit code of --fail-under and --fail-if-worse; 1 is for missing results
CiteOption = Annotated[bool, Help("Also print a sentence for a paper, and the BibTeX of data sets and metrics.")]
DetailsOption = Annotated[bool, Help("Also print protocols, counts, methods, remarks and signatures.")]
DigitsOption = Annotated[int | None, Ge(0), Le(9), Help("Digits after the decimal point. Default: 1.", metavar="N")]
JsonOption = Annotated[bool, Help("Print machine-readable JSON on stdout.", ("--json",))]


def out() -> Console:
    """The console for results (stdout)."""
    return console(sys.stdout)


def note(text: str) -> None:
    """One line of information on stderr."""
    print(text, file=sys.stderr)


def warn(text: str) -> None:
    """One warning line on stderr."""
    from rich.markup import escape

    console(sys.stderr, soft_wrap=True).print(f"[yellow]warning:[/yellow] {escape(text)}")


def wrote(*paths: object) -> None:
    """Note the files that a command has written."""
    for path in paths:
        note(f"wrote {path}")


def answer(json_output: bool, result: Any, text: Text, *, details: bool = False) -> None:
    """Print a result on stdout: as JSON, or as text, by a function that prints it or by its lines and tables.

    Raises ValueError for NaN and infinity, which JSON does not have.
    """
    if json_output:
        value = result.model_dump(mode="json") if hasattr(result, "model_dump") else result
        print(json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False))
    elif callable(text):
        text()
    else:
        for part in text:
            if isinstance(part, str):
                print(part)
                continue
            from capbench.reports import terminal

            printed: Any = terminal.print_document if hasattr(part, "tables") else terminal.print_table
            printed(part, out(), details=details)


def print_list(heads: Sequence[str], rows: Iterable[Sequence[str]], unbroken: Collection[int] = (0,)) -> None:
    """Print columns of texts on stdout."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for place, head in enumerate(heads):
        table.add_column(head, overflow="fold", no_wrap=place in unbroken)
    for row in rows:
        table.add_row(*row)
    out().print(table)


def announce_root(root: DataRoot, *, json_output: bool = False) -> None:
    """Print the data folder; the embedded sample is named in the first line of the output, as its data is synthetic."""
    if root.is_sample:
        line = "data: embedded synthetic sample (for real judgements: --data or CAPBENCH_DATA)"
        print(line, file=sys.stderr if json_output else sys.stdout, flush=True)
    else:
        note(f"data: {root.path} ({root.origin})")


def caller(*, json_output: bool = False) -> Caller:
    """The command line, for functions of :mod:`capbench.api`: flags in messages, notes and progress on stderr."""
    from capbench.api.caller import Caller

    return Caller(
        spelled=flag,
        no_metric="Name metrics, or pass --scores FILE",
        note=note,
        tell=note,
        caution=warn,
        on_data=lambda root, used: announce_root(root, json_output=json_output) if used else None,
        progress=progress,
        leave_out=lambda labels: " ".join(f"--without {label}" for label in labels),
    )


_FLAGS = {"images": "--image-root", "metrics": "--metric"}  # where a flag is not the name of the argument


@contextlib.contextmanager
def bytes_progress(name: str) -> Iterator[Callable[[int, int | None], None]]:
    """Progress of a download on stderr: a bar on a terminal, else a line every half minute; yields the callback."""
    stderr = console(sys.stderr, soft_wrap=True)
    if stderr.is_terminal:
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        with Progress(*columns, console=stderr, transient=True) as bar:
            task = bar.add_task(name, total=None)
            yield lambda received, total: bar.update(task, completed=received, total=total)
        return
    last = time.monotonic()

    def step(received: int, total: int | None) -> None:
        nonlocal last
        if time.monotonic() - last >= LONG_S:
            last = time.monotonic()
            note(f"{name}: {received / 1e6:,.0f} {'' if total is None else f'of {total / 1e6:,.0f} '}MB")

    yield step


def flag(argument: str) -> str:
    """The flag of an argument of a function in :mod:`capbench.api`."""
    return _FLAGS.get(argument, f"--{argument.replace('_', '-')}")


def refuse_options(values: Mapping[str, object], reason: str, *, code: str = "conflict", hint: str = "Omit it") -> None:
    """Raise UsageError if one of these options has a value."""
    for argument, value in values.items():
        if value is not None and value is not False and value != []:
            raise UsageError(f"{flag(argument)} {reason}", code=code, value=flag(argument), hint=hint)


def leave_if_incomplete(incomplete: Mapping[str, Incomplete], code: int = 1) -> None:
    """Print the metrics whose score files are incomplete, by title; exit with ``code`` if there are any."""
    leave_if_waiting({f"{title}:": str(missing_scores) for title, missing_scores in incomplete.items()}, code)


def leave_if_missing(result: StudyResult) -> None:
    """Exit code 1 if something is missing that the user did not leave out, or undefined."""
    from capbench.studies.results import is_left_out

    if result.undefined or not all(is_left_out(missing.reason) for missing in result.missing):
        raise typer.Exit(1)


def leave_if_waiting(waiting: Mapping[str, str], code: int = 1) -> None:
    """Print the missing requirements by title and exit with ``code``; nothing if there are none."""
    for title, reason in waiting.items():
        note(f"{title} {reason}")
    if waiting:
        raise typer.Exit(code)


def check_out_folder(out: Path | None) -> None:
    """Raise UsageError if ``--out``, which must be a folder, is a file or has a file's extension."""
    if out is not None and (out.is_file() or (out.suffix.lower() in _FILE_ENDINGS and not out.is_dir())):
        message, hint = f"--out {out} is a file, not a folder", f"Name a folder: --out {out.with_suffix('')}"
        raise UsageError(message, code="wrong-value", value=str(out), hint=hint)


def check_applies(ctx: typer.Context, names: Collection[str], context: str) -> None:
    """Raise UsageError if one of some options was passed that have no effect in this call."""
    for parameter in ctx.command.params:
        source = ctx.get_parameter_source(str(parameter.name))
        if parameter.name in names and source is not None and source.name == "COMMANDLINE":
            is_option = parameter.param_type_name == "option"
            shown = max(parameter.opts, key=len) if is_option else str(parameter.metavar).strip("[].")
            message = f"{shown} does not apply to {context}"
            raise UsageError(message, code="unsupported", value=shown, hint=f"Omit {shown}")
