"""SPICE's parser: captions to scene-graph tuples, in one long-lived Java program.

The parser is SPICE 1.0's own (the jar in pycocoevalcap) over Stanford CoreNLP 3.6.0, driven by the script
``spice_parser.js``. SPICE's program itself cannot run on Java 15 and newer: it writes its results with a JavaScript
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
from capbench.java.spice_files import SPICE_FILES, spice_state

__all__ = ["SPICE_PARSER_VERSION", "class_path", "parse_tuples", "stop"]

SPICE_PARSER_VERSION = "spice-1.0+corenlp-3.6.0"
"""Names the space of cached tuples, and goes into metrics' signatures."""

# The parallel collector gives up when it does nothing but collect; the default one goes on for minutes.
_JVM = ("-XX:+IgnoreUnrecognizedVMOptions", "-XX:+UseParallelGC")
_MEMORY = "-Xmx1600m"
_THREADS = 8  # more would need more memory
_LONG = 40
_MAX_SECONDS = 900.0
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

    Args:
        captions: tokenised captions without line ends; hand over a few hundred at once.

    Returns:
        For each caption its tuples, as a JSON list of lists of strings.

    Raises:
        ToolError: the parser is not set up, its program failed, or a caption is too long for its memory.
    """
    answers = _process().ask(captions)
    for caption, answer in zip(captions, answers, strict=True):
        if not answer.startswith("["):
            raise _failure(caption, answer)
    return answers


def _failure(caption: str, answer: str) -> ToolError:
    try:
        reason = str(json.loads(answer)["error"])
    except (ValueError, KeyError, TypeError):
        reason = f"it answered '{answer[:200]}'"
    if reason == "out of memory":
        return ToolError(
            f"SPICE's parser has not enough memory for a caption of {len(caption.split())} words ('{caption[:60]}…')",
            hint="Give it more with CAPBENCH_JAVA_OPTIONS=-Xmx8G, or leave the caption out",
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


@cache
def _start(folder: Path) -> LineProcess:
    arguments = [
        *(() if os.environ.get("CAPBENCH_JAVA_OPTIONS") else (*_JVM, _MEMORY)),
        f"-Dcapbench.threads={min(_cores(), _THREADS)}",
        f"-Dcapbench.words={_LONG}",
        "-cp",
        class_path(folder),
        "org.mozilla.javascript.tools.shell.Main",
        str(Path(__file__).with_name("spice_parser.js")),
    ]
    return LineProcess(arguments, name="SPICE's parser", folder=folder, timeout_s=_MAX_SECONDS)


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


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
