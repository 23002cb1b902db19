"""SPICE's parser: captions to scene-graph tuples, in one long-lived Java program.

The parser is SPICE 1.0's own (the jar in pycocoevalcap) over Stanford CoreNLP 3.6.0, driven by the script
``parser.js``. SPICE's program itself cannot run on Java 15 and newer: it writes its results with a JavaScript
engine that Java no longer has.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from capbench.errors import SetupError, ToolError
from capbench.java.jars import spice_jar
from capbench.java.process import LineProcess
from capbench.java.spice.files import SPICE_FILES, check_spice_files, spice_state
from capbench.machine import total_memory, usable_cores

__all__ = ["SPICE_PARSER_VERSION", "class_path", "n_threads", "parse_tuples", "stop"]

SPICE_PARSER_VERSION = "spice-1.0+corenlp-3.6.0"
"""Names the space of cached tuples, and goes into metrics' signatures."""

# The parallel collector gives up when it does nothing but collect; the default one goes on for minutes.
_JVM = ("-XX:+IgnoreUnrecognizedVMOptions", "-XX:+UseParallelGC")
_MEMORY_MB = 1600
_MORE_MEMORY_MB = 8192  # for captions that the first limit is too small for, each alone; 215 words fit
_MORE_MEMORY_SHARE = 0.75  # of the machine's memory, at most
_THREADS = 8  # more would need more memory
_LONG = 40
_VERY_LONG = 180  # words from which the first limit is not even tried: it fails only after minutes
_MAX_SECONDS = 900.0
_NO_MEMORY = "out of memory"
_NO_MEMORY_ANSWER = json.dumps({"error": _NO_MEMORY})
_LIBRARIES = (
    "SceneGraphParser-1.0.jar",
    "Meteor-1.5.jar",
    "ejml-0.23.jar",
    "guava-19.0.jar",
    "json-simple-1.1.1.jar",
    "objenesis-2.4.jar",
    "slf4j-api-1.7.12.jar",
    "slf4j-simple-1.7.21.jar",
)


def parse_tuples(captions: Sequence[str]) -> list[str]:
    """Parse captions.

    A caption that the parser's memory does not suffice for is parsed alone by a second program with more memory, unless
    the user set the limit.

    Args:
        captions: tokenised captions without line ends; hand over a few hundred at once.

    Returns:
        For each caption its tuples, as a JSON list of lists of strings.

    Raises:
        ToolError: the parser is not set up, one of its files is damaged, its program failed, or a caption is too long
            for the memory there is.
    """
    limit = _more_memory_mb()
    small = [limit is None or len(caption.split()) < _VERY_LONG for caption in captions]
    answers_of_small = iter(_process().ask([caption for caption, fits in zip(captions, small, strict=True) if fits]))
    answers = [next(answers_of_small) if fits else _NO_MEMORY_ANSWER for fits in small]
    starved = [i for i, answer in enumerate(answers) if _reason(answer) == _NO_MEMORY]
    if starved and limit is not None:
        with _program(spice_state().folder, limit, threads=1, restarts=0) as program:
            for i in starved:
                answers[i] = _alone(program, captions[i])
    for caption, answer in zip(captions, answers, strict=True):
        if not answer.startswith("["):
            raise _failure(caption, answer, limit)
    return answers


def _alone(program: LineProcess, caption: str) -> str:
    try:
        return program.ask([caption])[0]
    except ToolError:
        # The system takes memory back by killing: the limit may lie above what this program may have.
        return _NO_MEMORY_ANSWER


def _more_memory_mb() -> int | None:
    """The second limit; None if the user set one, or the machine has no more than the first or does not tell."""
    if os.environ.get("CAPBENCH_JAVA_OPTIONS"):
        return None
    memory = total_memory()
    if memory is None:
        return None
    limit = min(_MORE_MEMORY_MB, int(_MORE_MEMORY_SHARE * memory) >> 20)
    return limit if limit > _MEMORY_MB else None


def _reason(answer: str) -> str | None:
    """What went wrong with a caption; None if its tuples came."""
    if answer.startswith("["):
        return None
    try:
        return str(json.loads(answer)["error"])
    except (ValueError, KeyError, TypeError):
        return f"it answered '{answer[:200]}'"


def _failure(caption: str, answer: str, limit_mb: int | None) -> ToolError:
    reason = str(_reason(answer))
    if reason == _NO_MEMORY:
        tried = "" if limit_mb is None else f"; {limit_mb / 1024:.1f} GB were tried"
        enough_gb = max(8, 2 * (limit_mb or 0) // 1024)
        return ToolError(
            f"SPICE's parser has not enough memory for a caption of {len(caption.split())} words "
            f"('{caption[:60]}…'){tried}",
            hint=f"Give it more with CAPBENCH_JAVA_OPTIONS=-Xmx{enough_gb}G, or leave the caption out "
            "(a published data set: leave SPICE out, capbench correlate --without spice)",
        )
    return ToolError(
        f"SPICE's parser failed on the caption '{caption[:200]}': {reason[:300]}", hint="'capbench doctor' checks Java"
    )


def _process() -> LineProcess:
    state = spice_state()
    if not state.ready:
        raise SetupError(
            f"SPICE's parser is not set up ({', '.join(state.missing)} not in {state.folder})",
            hint="Run 'capbench setup spice' once (it fetches 390 MB)",
        )
    return _start(state.folder)


def n_threads() -> int:
    """Captions that the parser's program parses at the same time."""
    return min(usable_cores(), _THREADS)


@cache
def _start(folder: Path) -> LineProcess:
    check_spice_files(folder)
    return _program(folder, _MEMORY_MB, n_threads(), restarts=2)


def _program(folder: Path, memory_mb: int, threads: int, restarts: int) -> LineProcess:
    arguments = [
        *(() if os.environ.get("CAPBENCH_JAVA_OPTIONS") else (*_JVM, f"-Xmx{memory_mb}m")),
        f"-Dcapbench.threads={threads}",
        f"-Dcapbench.words={_LONG}",
        "-cp",
        class_path(folder),
        "org.mozilla.javascript.tools.shell.Main",
        str(Path(__file__).with_name("parser.js")),
    ]
    return LineProcess(arguments, name="SPICE's parser", folder=folder, timeout_s=_MAX_SECONDS, restarts=restarts)


def stop() -> None:
    """Stop the parser's program, if it runs; the next caption starts it again."""
    if _start.cache_info().currsize:
        _start(spice_state().folder).close()
        _start.cache_clear()


def class_path(folder: Path) -> str:
    """The class path of SPICE with its libraries, and of the files that were set up in ``folder``."""
    jar = spice_jar()
    library = jar.path.parent / "lib"
    parts = [jar.path, *(library / name for name in _LIBRARIES), *(folder / file.name for file in SPICE_FILES)]
    return os.pathsep.join(map(str, parts))
