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
import sys
import warnings
from typing import Annotated, NoReturn, TextIO

import typer
from typer.core import TyperGroup

from capbench import __version__
from capbench.cli import (
    check_metric,
    combine,
    compare,
    compare_systems,
    correlate,
    data,
    doctor,
    examples,
    explain,
    extract_features,
    features,
    figure,
    import_features,
    items,
    metrics,
    models,
    papers,
    parse,
    plan,
    protocols,
    recipe,
    report,
    retrieve,
    score,
    setup,
    train,
    words,
)
from capbench.cli.common import build_late
from capbench.core.errors import CapbenchError, CapbenchWarning, count, missing_pytorch
from capbench.core.machine import is_out_of_memory, postpone_collector

__all__ = ["app", "main"]

_INTERRUPTED = 130


class _Commands(TyperGroup):
    """All commands. Reports an interruption, which Typer would turn into an exit code without a message."""

    def invoke(self, ctx: typer.Context) -> object:  # type: ignore[override]
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            print(_interrupted(), file=sys.stderr)
            raise typer.Exit(_INTERRUPTED) from None


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


app.command("extract-features")(extract_features.extract_features)
app.command("import-features")(import_features.import_features)
app.add_typer(features.app, name="features")
app.add_typer(plan.app, name="plan")
app.add_typer(models.app, name="models")
app.command("score")(score.score)
app.command("explain")(explain.explain)
app.command("correlate")(correlate.correlate)
app.command("compare")(compare.compare)
app.command("compare-systems")(compare_systems.compare_systems)
app.command("combine")(combine.combine)
app.command("power", hidden=True)(compare.power)
app.command("references", hidden=True)(correlate.references)
app.command("retrieve")(retrieve.retrieve)
app.command("words")(words.words)
app.command("papers")(papers.papers)
app.command("retrieval", hidden=True)(retrieve.retrieve)  # the former name of 'retrieve'
app.add_typer(figure.app, name="figure")
app.command("report")(report.report)
app.command("examples")(examples.examples)
app.add_typer(data.app, name="data")
app.add_typer(train.app, name="train")
app.command("recipe")(recipe.recipe)
app.command("metrics")(metrics.metrics)
app.command("check-metric")(check_metric.check_metric)
app.command("protocols")(protocols.protocols)
app.command("items")(items.items)
app.command("parse")(parse.parse)
app.add_typer(setup.app, name="setup")
app.command("doctor")(doctor.doctor)
build_late(app)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    # Warnings of capbench are for the user, in one line; others keep their place in the code, for bug reports.
    place = "" if issubclass(category, CapbenchWarning) else f"{filename}:{lineno}: {category.__name__}: "
    print(f"warning: {place}{message}", file=sys.stderr)


def _interrupted() -> str:
    """Message after an interruption: the saved results, and how to resume."""
    cache = sys.modules.get("capbench.core.cache")  # a command that did not load it has written nothing to it
    saved = []
    for name, noun in (("scores", "score"), ("scene-graphs", "parse"), ("encodings", "encoded caption")):
        number = 0 if cache is None else cache.written[name]
        if number:
            saved.append(count(number, noun))
    if not saved:
        return "interrupted: no new scores or parses are in the cache; finished files are unchanged"
    return f"interrupted; saved in the cache: {' and '.join(saved)}; run the same command again to resume"


def main() -> None:
    """Run the command line; known errors print one line on stderr and exit with code 1 or 2."""
    postpone_collector()
    atexit.register(_end_quickly)
    # pydantic's search for plug-ins in all installed packages takes longer than the validation of our files.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    warnings.showwarning = _show_warning
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
        missing = missing_pytorch(error)
        if missing is None:
            raise
        report_error(missing)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        print("error: not enough memory. Process fewer images or captions at once.", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print(_interrupted(), file=sys.stderr)
        sys.exit(_INTERRUPTED)
    except BrokenPipeError:
        # The reader of stdout closed it (| head): exit without a second error.
        _drop_stdout()
        sys.exit(0)
    except OSError as error:
        if error.errno not in _REMEDIES:
            raise
        name = f"{_shortened(str(error.filename))}: " if error.filename else ""
        print(f"error: {name}cannot be read or written ({error.strerror}). {_REMEDIES[error.errno]}.", file=sys.stderr)
        _drop_stdout()
        sys.exit(2)


def report_error(error: CapbenchError) -> NoReturn:
    """Print an error in one line and exit with its code."""
    print(f"error: {error}", file=sys.stderr)
    sys.exit(error.exit_code)


_REMEDIES = {
    errno.EACCES: "Check the permissions, or choose another folder",
    errno.EPERM: "Check the permissions, or choose another folder",
    errno.EROFS: "Choose a writable folder",
    errno.ENOSPC: "Free space on the device, or write to another one",
    errno.EDQUOT: "Free space on the device, or write to another one",
    errno.EIO: "Check the device, or write to another one",
    errno.ENAMETOOLONG: "Choose a shorter name",
}


def _end_quickly() -> None:
    """Skip the last garbage collection at exit, which takes a tenth of a second."""
    # Bindings in PyTorch count and print the objects that remain at exit.
    if "torch" not in sys.modules:
        gc.freeze()


def _shortened(name: str) -> str:
    return name if len(name) <= 200 else f"{name[:60]}…"


def _drop_stdout() -> None:
    """Avoid a second error when the interpreter flushes stdout at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
