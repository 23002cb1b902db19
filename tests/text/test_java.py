"""Where Java is found, how programs run, and the jars."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from capbench.core.errors import ToolError, ToolMemoryError, UsageError
from capbench.text import java as module
from capbench.text.java import Java, find_java, run_lines
from tests.errors import raises
from tests.text.java_fakes import fake_java


@pytest.fixture(autouse=True)
def _no_java_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CAPBENCH_JAVA", "JAVA_HOME", "CAPBENCH_JAVA_OPTIONS"):
        monkeypatch.delenv(name, raising=False)


def test_capbench_java_comes_before_java_home_and_the_path_is_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, home = fake_java(tmp_path / "mine", ""), fake_java(tmp_path / "home" / "bin", "", 'java version "11.0.2"')
    last = fake_java(tmp_path / "with a space", "", 'java version "1.8.0_292"')
    monkeypatch.setattr(module, "_packaged", lambda: None)
    monkeypatch.setenv("PATH", str(last.parent))
    assert find_java() == Java(last, 8, "PATH")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert find_java() == Java(home, 11, "JAVA_HOME")
    monkeypatch.setenv("CAPBENCH_JAVA", str(mine))
    assert find_java() == Java(mine, 17, "CAPBENCH_JAVA")
    monkeypatch.setenv("CAPBENCH_JAVA", str(tmp_path / "home"))
    assert find_java().path == home
    for name in ("CAPBENCH_JAVA", "JAVA_HOME"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", str(tmp_path))
    with raises(ToolError, "missing-package"):
        find_java()


@pytest.mark.parametrize(
    ("script", "mode", "code", "value", "quoted"),
    [
        (None, 0o755, "missing-file", None, "CAPBENCH_JAVA"),
        ("", 0o644, "tool-failed", None, "Permission denied"),
        ("echo 'libjvm.so is missing' >&2\nexit 3", 0o755, "tool-failed", None, "(exit status 3); its output: libjvm"),
        ("exec sleep 60", 0o755, "timeout", None, "did not report its version"),
        ("echo 'java version \"1.7.0_80\"'", 0o755, "wrong-version", 7, "is version 7"),
    ],
)
def test_a_java_that_does_not_work_is_an_error_and_not_skipped(
    script: str | None,
    mode: int,
    code: str,
    value: object,
    quoted: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "java"
    if script is not None:
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(mode)
    monkeypatch.setenv("CAPBENCH_JAVA", str(path))
    monkeypatch.setattr(module, "_VERSION_TIMEOUT_S", 1.0)
    with raises(ToolError, code, path=path, value=value) as caught:
        find_java()
    assert quoted in caught.value.message


def test_options_replace_the_default_memory_and_keep_the_encodings(monkeypatch: pytest.MonkeyPatch) -> None:
    java = Java(Path("java"), 17, "PATH")
    assert "-Xmx2G" in java.command("-jar", "x.jar")
    monkeypatch.setenv("CAPBENCH_JAVA_OPTIONS", "-Xmx512m '-Dname=two words'")
    command = java.command("-jar", "x.jar")
    assert (command[1:3], command[-2:]) == (["-Xmx512m", "-Dname=two words"], ["-jar", "x.jar"])
    assert "-Xmx2G" not in command
    assert {"-Dfile.encoding=UTF-8", "-Duser.language=en"} <= set(command)
    monkeypatch.setenv("CAPBENCH_JAVA_OPTIONS", "-Dname='two words")
    with raises(UsageError, "wrong-value", value="-Dname='two words"):
        java.command()


def _run(
    folder: Path, body: str, lines: list[str], monkeypatch: pytest.MonkeyPatch, timeout_s: float = 60.0
) -> list[str]:
    monkeypatch.setenv("CAPBENCH_JAVA", str(fake_java(folder, body)))
    return list(run_lines(["-jar", "x.jar"], lines, name="the fake", folder=folder, timeout_s=timeout_s))


def test_lines_come_back_in_order_and_full_pipes_do_not_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "tr_TR.ISO-8859-9")
    lines = [f"{i} é " + "word " * 200 for i in range(5000)]  # 5 MB each way, pipes hold 64 kB
    body = "print(os.environ['LC_ALL'])\nfor line in sys.stdin: sys.stderr.write(line); print(line.rstrip())"
    found = _run(tmp_path / "a b", body, lines, monkeypatch)
    assert found == ["C.UTF-8", *(line.rstrip() for line in lines)]
    assert os.environ["LC_ALL"] == "tr_TR.ISO-8859-9"


@pytest.mark.parametrize(
    ("body", "error", "code", "quoted"),
    [
        ("sys.stderr.write('no class'); sys.exit(1)", ToolError, "tool-failed", "no class"),
        ("print('x', flush=True); sys.exit(7)", ToolError, "tool-failed", "after 1 lines (exit status 7)"),
        ("sys.stderr.write('OutOfMemoryError: heap'); sys.exit(1)", ToolMemoryError, "out-of-memory", "heap"),
        ("os.kill(os.getpid(), 9)", ToolMemoryError, "out-of-memory", "exit status -9"),
        ("time.sleep(600)", ToolError, "timeout", "1 s"),
    ],
)
def test_failures_are_tool_errors_with_the_last_words(
    body: str, error: type[ToolError], code: str, quoted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with raises(error, code) as caught:
        _run(tmp_path, body, ["a"], monkeypatch, timeout_s=1.0 if code == "timeout" else 60.0)
    assert quoted in caught.value.message
