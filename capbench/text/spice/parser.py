"""SPICE's parser: captions to scene-graph tuples, in one long-lived Java program.

The parser is SPICE 1.0's (the jar in pycocoevalcap) with Stanford CoreNLP 3.6.0, called by the script ``parser.js``.
SPICE's program itself cannot run on Java 15 and newer: it writes its results with a JavaScript engine that Java no
longer contains.

The additional files are published under Maven coordinates, and the package ``jgo`` downloads them. A file's SHA-256 is
checked when it is installed. Later its size shows that it is installed, and its SHA-256 is checked again before the
parser starts, since Java does not notice a changed model.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from capbench.core.errors import SetupError, ToolError, ToolMemoryError, UsageError, require, unwritable
from capbench.core.files import cache_dir, lock, sha256_file
from capbench.core.machine import total_memory, usable_cores
from capbench.text.java import LineProcess, spice_jar

Progress = Callable[[str, int | None], AbstractContextManager[Callable[[int], None]]]
"""Opens a progress bar: description and number of bytes → a function that takes the bytes done since its last call."""

_BLOCK = 1 << 20
_TIMEOUT_S = 60
_OFFLINE = "Without a network, download the files on another machine and pass their folder with --from"


@dataclass(frozen=True)
class PinnedFile:
    """A file with its Maven coordinates, size and checksum.

    Attributes:
        group, artifact, version, classifier: its coordinates.
        size: in bytes.
        sha256: 64 hex digits.
    """

    group: str
    artifact: str
    version: str
    classifier: str
    size: int
    sha256: str

    @property
    def name(self) -> str:
        """Its file name."""
        return "-".join(word for word in (self.artifact, self.version, self.classifier) if word) + ".jar"

    def is_at(self, folder: Path) -> bool:
        """True if a folder contains a file of this name and size."""
        try:
            return (folder / self.name).stat().st_size == self.size
        except OSError:
            return False


SPICE_FILES = (
    PinnedFile(
        "edu.stanford.nlp",
        "stanford-corenlp",
        "3.6.0",
        "",
        7_270_741,
        "d341d5863276f55782c5ef73212222d6b3b48e02ae1951ab6de7618d28b12742",
    ),
    PinnedFile(
        "edu.stanford.nlp",
        "stanford-corenlp",
        "3.6.0",
        "models",
        378_116_526,
        "d285157bd7887ee3018094b5dbae092e49088b023361ccdb550ee1daf9b2c9bd",
    ),
    PinnedFile(
        "org.mozilla",
        "rhino",
        "1.7.15",
        "",
        1_407_735,
        "2427fdcbc149ca0a25ccfbb7c71b01f39ad42708773a47816cd2342861766b63",
    ),
)
"""Stanford CoreNLP 3.6.0, its English models, and Rhino, which runs ``parser.js`` inside the JVM."""


@dataclass(frozen=True)
class SpiceState:
    """Installation state of SPICE's parser.

    Attributes:
        folder: folder of its files.
        missing: names of files that are missing or incomplete.
    """

    folder: Path
    missing: tuple[str, ...]

    @property
    def ready(self) -> bool:
        """True if captions can be parsed."""
        return not self.missing


def spice_folder() -> Path:
    """Folder of the parser's files, below the cache folder."""
    return cache_dir("spice-parser")


def spice_state() -> SpiceState:
    """Check which files exist; starts and reads nothing. Raises UsageError if there is no cache folder."""
    folder = spice_folder()
    return SpiceState(folder, tuple(file.name for file in SPICE_FILES if not file.is_at(folder)))


def check_spice_files(folder: Path) -> None:
    """Check the SHA-256 of the files in a folder.

    Raises:
        ToolError: a file differs from the published one.
        DataError: a file cannot be read.
    """
    for file in SPICE_FILES:
        if sha256_file(folder / file.name) != file.sha256:
            raise ToolError(
                "is damaged: its SHA-256 is not that of the published file",
                code="damaged",
                path=folder / file.name,
                hint="Run 'capbench doctor --install spice' again to replace the file",
            )


def install_spice(source: str | os.PathLike[str] | None = None, progress: Progress | None = None) -> list[Path]:
    """Install the parser's files in the cache folder; valid files remain unchanged.

    A file appears under its name only when it is complete and its SHA-256 is correct. After an interruption, run the
    installation again: it continues with the first missing file.

    Args:
        source: a folder to copy them from; by default they are downloaded.
        progress: opens a progress bar for each file.

    Returns:
        The files that were added.

    Raises:
        ToolError: a file could not be downloaded or differs from the published one; jgo is not installed.
        UsageError: ``source`` is not a folder or misses a file; the cache folder cannot be written.
    """
    if source is not None and not Path(source).is_dir():
        raise UsageError(
            "the folder does not exist",
            code="missing-file",
            path=source,
            hint="Pass --from a folder that contains the files",
        )
    folder = spice_folder()
    added = []
    with lock(folder / "installation"):
        for leftover in folder.glob(".part-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        for file in SPICE_FILES:
            if file.is_at(folder) and sha256_file(folder / file.name) == file.sha256:
                continue
            try:
                with tempfile.TemporaryDirectory(prefix=".part-", dir=folder, ignore_cleanup_errors=True) as partial:
                    if source is None:
                        fetched = _download(file, Path(partial), progress or _silent)
                    else:
                        fetched = _copy(file, Path(source), Path(partial), progress or _silent)
                    _check(file, fetched, source)
                    os.replace(fetched, folder / file.name)
            except OSError as error:
                raise unwritable(
                    error, folder / file.name, "Check the folder's permissions and the free space (400 MB are required)"
                ) from error
            added.append(folder / file.name)
    return added


def _download(file: PinnedFile, partial: Path, progress: Progress) -> Path:
    require("jgo", purpose="the download of SPICE's parser")
    import requests
    from jgo.maven import MavenContext, PythonResolver

    resolver = PythonResolver(progress_callback=progress)
    context = MavenContext(resolver=resolver, repo_cache=partial, timeout=_TIMEOUT_S)
    artifact = context.project(file.group, file.artifact).at_version(file.version).artifact(file.classifier, "jar")
    try:
        fetched = resolver.download(artifact)
    except requests.RequestException as error:
        raise ToolError(
            f"{file.name} could not be downloaded ({type(error).__name__})",
            code="download-failed",
            value=file.name,
            hint=f"Check the network and run the command again. {_OFFLINE}",
        ) from error
    except RuntimeError as error:  # no repository has the file
        raise ToolError(
            f"{file.name} could not be found ({error})", code="download-failed", value=file.name, hint=_OFFLINE
        ) from error
    if fetched is None:
        raise ToolError(f"{file.name} could not be found", code="download-failed", value=file.name, hint=_OFFLINE)
    return Path(fetched)


def _copy(file: PinnedFile, source: Path, partial: Path, progress: Progress) -> Path:
    if not (source / file.name).is_file():
        names = ", ".join(f.name for f in SPICE_FILES)
        raise UsageError(
            "the file does not exist",
            code="missing-file",
            path=source / file.name,
            hint=f"The folder must contain {names}",
        )
    target = partial / file.name
    with (
        progress(file.name, file.size) as advance,
        open(source / file.name, "rb") as reader,
        open(target, "wb") as writer,
    ):
        while block := reader.read(_BLOCK):
            writer.write(block)
            advance(len(block))
    return target


def _check(file: PinnedFile, path: Path, source: str | os.PathLike[str] | None) -> None:
    with open(path, "rb") as stream:
        sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
    if sha256 != file.sha256:
        raise ToolError(
            f"is not the published file: its SHA-256 is {sha256}, expected {file.sha256}",
            code="damaged",
            value=sha256,
            path=file.name if source is None else Path(source) / file.name,
            hint="Run the command again" if source is None else "Get the file again",
        )


@contextlib.contextmanager
def _silent(_name: str, _size: int | None) -> Iterator[Callable[[int], None]]:
    yield lambda _done: None


SPICE_PARSER_VERSION = "spice-1.0+corenlp-3.6.0"
"""Part of metrics' signatures; name of the space of cached tuples."""

# Out of memory, the parallel garbage collector fails at once; the default one continues for minutes.
_JVM = ("-XX:+IgnoreUnrecognizedVMOptions", "-XX:+UseParallelGC")
_MEMORY_MB = 1600
_MORE_MEMORY_MB = 8192  # for captions that exceed the first limit, one at a time; sufficient for 215 words
_MORE_MEMORY_SHARE = 0.75  # of the machine's memory, at most
_THREADS = 8  # more would require more memory
_LONG = 40
_VERY_LONG = 180  # words from which the first limit is skipped: it would fail only after minutes
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

    A caption that exceeds the parser's memory is parsed individually by a second program with more memory, unless the
    user set the limit.

    Args:
        captions: tokenised captions without line ends, preferably a few hundred at once.

    Returns:
        For each caption its tuples, as a JSON list of lists of strings.

    Raises:
        ToolError: the parser is not installed, one of its files is damaged, its program failed, or a caption is too
            long for the available memory.
    """
    limit = _more_memory_mb()
    small = [limit is None or len(caption.split()) < _VERY_LONG for caption in captions]
    answers_of_small = iter(_process().ask([caption for caption, fits in zip(captions, small, strict=True) if fits]))
    answers = [next(answers_of_small) if fits else _NO_MEMORY_ANSWER for fits in small]
    out_of_memory = [i for i, answer in enumerate(answers) if _reason(answer) == _NO_MEMORY]
    if out_of_memory and limit is not None:
        with _program(spice_state().folder, limit, threads=1, restarts=0) as program:
            for i in out_of_memory:
                answers[i] = _alone(program, captions[i])
    for caption, answer in zip(captions, answers, strict=True):
        if not answer.startswith("["):
            raise _failure(caption, answer, limit)
    return answers


def _alone(program: LineProcess, caption: str) -> str:
    try:
        return program.ask([caption])[0]
    except ToolMemoryError:
        # The system may have killed the program, if the limit exceeds the memory available to it.
        return _NO_MEMORY_ANSWER


def _more_memory_mb() -> int | None:
    """The second limit; None if the user set one, or if the machine has too little memory or does not report it."""
    if os.environ.get("CAPBENCH_JAVA_OPTIONS"):
        return None
    memory = total_memory()
    if memory is None:
        return None
    limit = min(_MORE_MEMORY_MB, int(_MORE_MEMORY_SHARE * memory) >> 20)
    return limit if limit > _MEMORY_MB else None


def _reason(answer: str) -> str | None:
    """Reason why a caption failed; None if it was parsed."""
    if answer.startswith("["):
        return None
    try:
        return str(json.loads(answer)["error"])
    except (ValueError, KeyError, TypeError):
        return f"invalid answer '{answer[:200]}'"


def _failure(caption: str, answer: str, limit_mb: int | None) -> ToolError:
    reason = str(_reason(answer))
    if reason == _NO_MEMORY:
        tried = "" if limit_mb is None else f" with {limit_mb / 1024:.1f} GB"
        enough_gb = max(8, 2 * (limit_mb or 0) // 1024)
        return ToolError(
            f"SPICE's parser ran out of memory{tried} on a caption of {len(caption.split())} words ('{caption[:60]}…')",
            code="out-of-memory",
            value=caption,
            hint=f"Set CAPBENCH_JAVA_OPTIONS=-Xmx{enough_gb}G, or remove the caption "
            "(for a published data set, omit SPICE: capbench correlate --without spice)",
        )
    return ToolError(
        f"SPICE's parser failed on the caption '{caption[:200]}': {reason[:300]}",
        code="tool-failed",
        value=caption,
        hint="Check Java with 'capbench doctor'",
    )


def _process() -> LineProcess:
    state = spice_state()
    if not state.ready:
        raise SetupError(
            f"SPICE's parser is not set up: {state.folder} does not contain {', '.join(state.missing)}",
            hint="Run 'capbench doctor --install spice' once (390 MB)",
        )
    return _start(state.folder)


def n_threads() -> int:
    """Number of captions that the parser's program parses at the same time."""
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
    """Class path of SPICE, its libraries, and the files installed in ``folder``."""
    jar = spice_jar()
    library = jar.path.parent / "lib"
    parts = [jar.path, *(library / name for name in _LIBRARIES), *(folder / file.name for file in SPICE_FILES)]
    return os.pathsep.join(map(str, parts))
