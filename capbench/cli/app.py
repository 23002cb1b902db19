"""The ``capbench`` command.

Exit codes: 0 done; 1 done, but part of the work is missing or failed (listed); 2 invalid input or set-up (one line
names the problem and its place); 3 below the bar of --fail-under or --fail-if-worse; 130 interrupted.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import gc
import logging
import os
import signal
import sys
import warnings
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, NoReturn

import typer

from capbench import __version__
from capbench.cli.commands import Entry, LazyGroup
from capbench.core.errors import CapbenchError, CapbenchWarning, UsageError, count, missing_package
from capbench.core.machine import is_out_of_memory

_INTERRUPTED = 130
_STARTUP_OBJECTS = 200_000  # modules, classes and the embedded sample: not searched for cycles by short commands
_JUDGE, _STUDY, _DATA, _NETWORKS = ("Score and judge metrics", "Study and report", "Data", "Features and networks")
ENTRIES = {
    "score": Entry("score", "score", "Score captions with one or more metrics.", _JUDGE),
    "correlate": Entry("correlate", "correlate", "Correlate metrics with human judgements.", _JUDGE),
    "compare": Entry("compare", "compare", "Test whether metrics differ in human agreement.", _JUDGE),
    "rank": Entry("rank", "rank", "Rank metrics over many tasks.", _JUDGE),
    "leaderboard": Entry("leaderboard", "leaderboard", "Show metrics next to all published numbers.", _JUDGE),
    "submit": Entry("submit", "app", "Check a submission to the leaderboard.", _JUDGE),
    "compare-systems": Entry(
        "compare_systems", "compare_systems", "Test whether captioning systems differ in a metric.", _JUDGE
    ),
    "metrics": Entry("metrics", "metrics", "List metrics, or describe one with all options.", _JUDGE),
    "papers": Entry("papers", "papers", "List or reproduce the tables and figures of the papers.", _STUDY),
    "figure": Entry("figure", "figure", "Draw a figure as PNG, SVG or PDF, or write an HTML report.", _STUDY),
    "explore": Entry("explore", "app", "Explain scores, and show captions and words.", _STUDY),
    "data": Entry("data", "app", "List, verify, download and import data sets.", _DATA),
    "extract-features": Entry("extract_features", "extract_features", "Extract region features of images.", _NETWORKS),
    "features": Entry("features", "app", "Import, inspect, merge and convert feature stores.", _NETWORKS),
    "train": Entry("train", "app", "Train networks and word vectors of metrics.", _NETWORKS),
    "models": Entry("models", "app", "List, download, add and combine weights of networks.", _NETWORKS),
    "doctor": Entry("doctor", "doctor", "Check the installation and show how to fix problems.", "Set-up"),
}


class _Commands(LazyGroup):
    """All commands.

    Reports errors of typer as a :class:`UsageError`, and an interruption, which typer would turn into an exit code
    without a message.
    """

    entries: ClassVar[Mapping[str, Entry]] = ENTRIES

    def invoke(self, ctx: Any) -> object:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as interruption:
            print(_interrupted(interruption), file=sys.stderr)
            raise typer.Exit(_INTERRUPTED) from None

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        """Parse the arguments and run the command; exit unless ``standalone_mode`` is False."""
        before = _reused()
        try:
            result = super().main(*args, standalone_mode=False, **extra)  # type: ignore[misc]  # args are positional
        except typer.TyperException as error:
            if type(error).__name__ != "NoArgsIsHelpError":
                raise _usage_error(error) from None
            print(error.format_message(), file=sys.stderr)
            result = 2
        if cached := _reused() - before:
            print(f"{count(cached, 'score')} came from the cache", file=sys.stderr)
        if standalone_mode:
            sys.exit(result if isinstance(result, int) else 0)
        return result


_CODES = {
    "NoSuchOption": "unknown-option",
    "MissingParameter": "missing-option",
    "BadOptionUsage": "missing-value",
    "BadParameter": "wrong-value",
}
"""Class of an error of typer → code of the error that is reported."""


def _usage_error(error: typer.TyperException) -> UsageError:
    """The error of typer in one line, with the command that lists the valid arguments."""
    message = " ".join(error.format_message().split()).replace("Value error, ", "").rstrip(".")
    context, parameter = getattr(error, "ctx", None), getattr(error, "param", None)
    code = "unknown-name" if message.startswith("No such command") else _CODES.get(type(error).__name__, "invalid")
    value = getattr(error, "option_name", None) or (parameter and parameter.name)
    return UsageError(message, code=code, value=value, hint=context and f"See: {context.command_path} --help")


app = typer.Typer(
    cls=_Commands,
    name="capbench",
    help="Measure how well image-caption metrics agree with human judgements.\n\n"
    "Without a data folder, every command runs on an embedded synthetic sample.\n\n"
    "Example: capbench correlate --dataset flickr8k-expert --metric cider --metric meteor",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(value: bool) -> None:
    if value:
        print(f"capbench {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def _show_warning(message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: object) -> None:
    # Warnings of capbench are for the user, in one line; others keep their place in the code, for bug reports.
    place = "" if issubclass(category, CapbenchWarning) else f"{filename}:{lineno}: {category.__name__}: "
    print(f"warning: {place}{message}", file=sys.stderr)


def _reused() -> int:
    cache = sys.modules.get("capbench.core.cache")  # a command that did not load it has taken none
    return 0 if cache is None else int(cache.reused["scores"])


def _interrupted(interruption: KeyboardInterrupt) -> str:
    """Message after Ctrl-C or SIGTERM; the interruption may have a text."""
    if str(interruption):
        return f"interrupted: {interruption}"
    return "interrupted: finished files and scores in the cache are kept; run the same command again to resume"


def main() -> None:
    """Run the command line; known errors print one line on stderr and exit with code 1 or 2."""
    gc.set_threshold(_STARTUP_OBJECTS)
    atexit.register(_end_quickly)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # from kill and job systems: like Ctrl-C
    warnings.showwarning = _show_warning  # type: ignore[assignment]  # further arguments are not used
    logging.basicConfig(format="%(message)s", level=logging.WARNING, stream=sys.stderr)
    logging.getLogger("capbench").setLevel(logging.INFO)
    warnings.simplefilter("always", CapbenchWarning)
    try:
        try:
            app()
        finally:
            sys.stdout.flush()  # at the interpreter's exit a full device would raise a traceback
    except CapbenchError as error:
        report_error(error)
    except ModuleNotFoundError as error:
        missing = missing_package(error)
        if missing is None:
            raise
        report_error(missing)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        print("error: not enough memory. Process fewer images or captions at once.", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt as interruption:
        print(_interrupted(interruption), file=sys.stderr)
        sys.exit(_INTERRUPTED)
    except BrokenPipeError:
        # The reader of stdout closed it (| head): exit without a second error.
        _drop_stdout()
        sys.exit(0)
    except OSError as error:
        if error.errno not in _REMEDIES:
            raise
        named = str(error.filename or "")
        name = f"{named if len(named) <= 200 else f'{named[:60]}…'}: " if named else ""
        print(f"error: {name}cannot be read or written ({error.strerror}). {_REMEDIES[error.errno]}.", file=sys.stderr)
        _drop_stdout()
        sys.exit(2)


def report_error(error: CapbenchError) -> NoReturn:
    """Print an error in one line and exit with its code."""
    print(f"error: {error}", file=sys.stderr)
    sys.exit(error.exit_code)


_REMEDIES = {
    **dict.fromkeys((errno.EACCES, errno.EPERM), "Check the permissions, or choose another folder"),
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "Free space on the device, or write to another one"),
    errno.EROFS: "Choose a writable folder",
    errno.EIO: "Check the device, or write to another one",
    errno.ENAMETOOLONG: "Choose a shorter name",
}


def _end_quickly() -> None:
    """Skip the last garbage collection at exit, which takes a tenth of a second."""
    # Bindings in PyTorch count and print the objects that remain at exit.
    if "torch" not in sys.modules:
        gc.freeze()


def _drop_stdout() -> None:
    """Avoid a second error when the interpreter flushes stdout at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
