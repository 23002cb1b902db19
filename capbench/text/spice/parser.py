"""SPICE's parser: captions to scene-graph tuples, in a Java program.

The parser is SPICE 1.0's (the jar in pycocoevalcap) with Stanford CoreNLP 3.6.0, called by the script ``parser.js``.
SPICE's program itself cannot run on Java 15 and newer: it writes its results with a JavaScript engine that Java no
longer contains.

The additional files are published in Maven Central. A file's SHA-256 is checked when it is installed. Later its size
shows that it is installed, and its SHA-256 is checked again before the parser starts, since Java does not notice a
changed model.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from capbench.core.errors import SetupError, ToolError, ToolMemoryError
from capbench.core.files import atomic_write, cache_dir, lock, sha256_file
from capbench.core.machine import total_memory, usable_cores
from capbench.text.java import run_lines, spice_jar

if TYPE_CHECKING:
    from capbench.core.download import Progress


@dataclass(frozen=True)
class PinnedFile:
    """A file of Maven Central: its path there, size in bytes and SHA-256."""

    path: str
    size: int
    sha256: str

    @property
    def name(self) -> str:
        """Its file name."""
        return self.path.rpartition("/")[2]

    def is_at(self, folder: Path) -> bool:
        """True if a folder contains a file of this name and size."""
        path = folder / self.name
        return path.is_file() and path.stat().st_size == self.size


_MAVEN: Final = "https://repo.maven.apache.org/maven2/"
SPICE_FILES = (
    PinnedFile(
        "edu/stanford/nlp/stanford-corenlp/3.6.0/stanford-corenlp-3.6.0.jar",
        7_270_741,
        "d341d5863276f55782c5ef73212222d6b3b48e02ae1951ab6de7618d28b12742",
    ),
    PinnedFile(
        "edu/stanford/nlp/stanford-corenlp/3.6.0/stanford-corenlp-3.6.0-models.jar",
        378_116_526,
        "d285157bd7887ee3018094b5dbae092e49088b023361ccdb550ee1daf9b2c9bd",
    ),
    PinnedFile(
        "org/mozilla/rhino/1.7.15/rhino-1.7.15.jar",
        1_407_735,
        "2427fdcbc149ca0a25ccfbb7c71b01f39ad42708773a47816cd2342861766b63",
    ),
)  # Stanford CoreNLP 3.6.0, its English models, and Rhino, which runs ``parser.js`` inside the JVM


def spice_folder() -> Path:
    """Folder of the parser's files, below the cache folder."""
    return cache_dir("spice-parser")


def missing_files() -> list[str]:
    """Names of the parser's files that are missing or incomplete, by their sizes."""
    folder = spice_folder()
    return [file.name for file in SPICE_FILES if not file.is_at(folder)]


def install_spice(
    source: str | os.PathLike[str] | None = None,  # a folder to copy them from; by default they are downloaded
    # opens a progress bar for a file; the function takes the bytes received and their total
    progress: Callable[[str], AbstractContextManager[Progress | None]] = lambda _name: nullcontext(),
) -> list[Path]:
    """Install the parser's files in the cache folder; valid files remain unchanged. Returns those that were added.

    A file appears under its name only when it is complete and its SHA-256 is correct. After an interruption, run the
    installation again.
    """
    from capbench.core.download import fetch  # loads the network modules

    folder = spice_folder()
    added = []
    with lock(folder / "installation"):
        for unfinished in folder.glob(".*.part"):  # copies of a run that was killed
            unfinished.unlink()
        for file in SPICE_FILES:
            path, url = folder / file.name, _MAVEN + file.path
            if file.is_at(folder) and sha256_file(path) == file.sha256:
                continue
            path.unlink(missing_ok=True)
            if source is not None:
                _copy(file, Path(source) / file.name, path)
            else:
                manual = f"download {url} on another machine and pass its folder with --from"
                with progress(file.name) as step:
                    fetch(url, path, sha256=file.sha256, manual=manual, progress=step)
            added.append(path)
    return added


def _copy(file: PinnedFile, given: Path, path: Path) -> None:
    if sha256_file(given) != file.sha256:
        problem = "is not the published file: its SHA-256 differs"
        raise ToolError(problem, code="damaged", path=given, hint="Get the file again")
    with open(given, "rb") as source, atomic_write(path, "wb") as stream:
        shutil.copyfileobj(source, stream)


SPICE_PARSER_VERSION = "spice-1.0+corenlp-3.6.0"  # Part of metrics' signatures; name of the space of cached tuples

# Out of memory, the parallel garbage collector fails at once; the default one continues for minutes.
_JVM: Final = ("-XX:+IgnoreUnrecognizedVMOptions", "-XX:+UseParallelGC")
_MEMORY_MB: Final = 1600
_MORE_MEMORY_MB: Final = 8192  # for captions that exceed the first limit, one at a time; sufficient for 215 words
_MORE_MEMORY_SHARE: Final = 0.75  # of the machine's memory, at most
_THREADS: Final = 8  # more would require more memory
_LONG: Final = 40
_VERY_LONG: Final = 180  # words from which the first limit is skipped: it would fail only after minutes
_ATTEMPTS: Final = 3
_NO_MEMORY: Final = '{"error":"out of memory"}'  # the program's answer
_LIBRARIES: Final = (
    *("SceneGraphParser-1.0.jar", "Meteor-1.5.jar", "ejml-0.23.jar", "guava-19.0.jar", "json-simple-1.1.1.jar"),
    *("objenesis-2.4.jar", "slf4j-api-1.7.12.jar", "slf4j-simple-1.7.21.jar"),
)


def parse_tuples(captions: Sequence[str]) -> Iterator[str]:
    """Parse captions in one run of the program, which takes seconds to start.

    A caption that exceeds the parser's memory is parsed individually with more memory, unless the user set the limit.

    Yields for each caption its tuples, as a JSON list of lists of strings.

    ``captions``: tokenised captions, preferably hundreds at once.
    """
    limit = _more_memory_mb()
    fits = [limit is None or len(caption.split()) < _VERY_LONG for caption in captions]
    small = _answers([text for text, small in zip(captions, fits, strict=True) if small], _MEMORY_MB)
    for caption, is_small in zip(captions, fits, strict=True):
        answer = next(small) if is_small else _NO_MEMORY
        if answer == _NO_MEMORY and limit is not None:
            with suppress(ToolMemoryError):  # the limit may exceed the memory that the system has left
                (answer,) = _answers([caption], limit, threads=1, attempts=1)
        if not answer.startswith("["):
            raise _failure(caption, answer, limit)
        yield answer


def _answers(
    captions: Sequence[str], memory_mb: int, threads: int | None = None, attempts: int = _ATTEMPTS
) -> Iterator[str]:
    """The program's answers; if it ends early, the rest is parsed by another one."""
    folder = _checked_folder()
    arguments = [
        *(() if os.environ.get("CAPBENCH_JAVA_OPTIONS") else (*_JVM, f"-Xmx{memory_mb}m")),
        f"-Dcapbench.threads={threads or n_threads()}",
        f"-Dcapbench.words={_LONG}",
        *("-cp", class_path(folder), "org.mozilla.javascript.tools.shell.Main"),
        str(Path(__file__).with_name("parser.js")),
    ]
    done = 0
    for attempt in range(1, attempts + 1):
        rest, limit_s = captions[done:], 900.0 + 10.0 * len(captions)
        try:
            for answer in run_lines(arguments, rest, name="SPICE's parser", folder=folder, timeout_s=limit_s):
                done += 1
                yield answer
            return
        except ToolError:
            if attempt == attempts:
                raise


def _more_memory_mb() -> int | None:
    """The second limit; None if the user set one, or if the machine has too little memory or does not report it."""
    memory = total_memory()
    if memory is None or os.environ.get("CAPBENCH_JAVA_OPTIONS"):
        return None
    limit = min(_MORE_MEMORY_MB, int(_MORE_MEMORY_SHARE * memory) >> 20)
    return limit if limit > _MEMORY_MB else None


def _failure(caption: str, answer: str, limit_mb: int | None) -> ToolError:
    if answer != _NO_MEMORY:
        return ToolError(
            f"SPICE's parser failed on the caption '{caption[:200]}': {answer[:300]}",
            code="tool-failed",
            value=caption,
            hint="Check Java with 'capbench doctor'",
        )
    tried = "" if limit_mb is None else f" with {limit_mb / 1024:.1f} GB"
    enough_gb = max(8, 2 * (limit_mb or 0) // 1024)
    return ToolError(
        f"SPICE's parser ran out of memory{tried} on a caption of {len(caption.split())} words ('{caption[:60]}…')",
        code="out-of-memory",
        value=caption,
        hint=f"Set CAPBENCH_JAVA_OPTIONS=-Xmx{enough_gb}G, or remove the caption "
        "(for a published data set, omit SPICE: capbench correlate --without spice)",
    )


def n_threads() -> int:
    """Number of captions that the parser's program parses at the same time."""
    return min(usable_cores(), _THREADS)


def _checked_folder() -> Path:
    folder, missing = spice_folder(), missing_files()
    if missing:
        raise SetupError(
            f"SPICE's parser is not set up: {folder} does not contain {', '.join(missing)}",
            hint="Run 'capbench doctor --install spice' once (390 MB)",
        )
    _check(folder, SPICE_FILES)
    return folder


@cache
def _check(folder: Path, files: tuple[PinnedFile, ...]) -> None:
    for file in files:
        if sha256_file(folder / file.name) != file.sha256:
            message = "is damaged: its SHA-256 is not that of the published file"
            hint = "Run 'capbench doctor --install spice' again to replace the file"
            raise ToolError(message, code="damaged", path=folder / file.name, hint=hint)


def class_path(folder: Path) -> str:
    """Class path of SPICE, its libraries, and the files installed in ``folder``."""
    jar = spice_jar()
    library = jar.parent / "lib"
    parts = [jar, *(library / name for name in _LIBRARIES), *(folder / file.name for file in SPICE_FILES)]
    return os.pathsep.join(map(str, parts))
