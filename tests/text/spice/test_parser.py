"""SPICE's parser if its second program, which has more memory, also fails."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from capbench.core.errors import ToolError, ToolMemoryError
from capbench.text.java import Java, LineProcess
from capbench.text.spice import parser
from tests.text.java_fakes import fake_java

_KILLED = "os.kill(os.getpid(), 9)"
_NO_HEAP = "sys.stderr.write('Could not reserve enough space for object heap'); sys.stderr.flush(); os._exit(1)"
_DAMAGED = "sys.stderr.write('NoClassDefFoundError: SceneGraph'); sys.stderr.flush(); os._exit(7)"


class _TooSmall:
    """A first program whose memory is insufficient for any caption."""

    def ask(self, captions: list[str]) -> list[str]:
        return [parser._NO_MEMORY_ANSWER] * len(captions)


def _parse(folder: Path, java: Path, monkeypatch: pytest.MonkeyPatch) -> ToolError:
    second = LineProcess(
        ["-jar", "x.jar"], name="SPICE's parser", folder=folder, restarts=0, java=Java(java, 17, "PATH")
    )
    monkeypatch.setattr(parser, "_process", _TooSmall)
    monkeypatch.setattr(parser, "_program", lambda *_, **__: second)
    monkeypatch.setattr(parser, "_more_memory_mb", lambda: 4096)
    monkeypatch.setattr(parser, "spice_state", lambda: SimpleNamespace(folder=folder))
    with pytest.raises(ToolError) as caught:
        parser.parse_tuples(["a dog runs"])
    assert second.pid is None
    return caught.value


@pytest.mark.parametrize("body", [_KILLED, _NO_HEAP])
def test_a_program_without_memory_is_reported_with_the_option_for_more(
    body: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = _parse(tmp_path, fake_java(tmp_path, f"sys.stdin.readline(); {body}"), monkeypatch)
    assert "-Xmx8G" in str(error)
    assert "4.0 GB" in str(error)


def test_a_program_that_fails_otherwise_is_reported_with_its_own_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = _parse(tmp_path, fake_java(tmp_path, f"sys.stdin.readline(); {_DAMAGED}"), monkeypatch)
    assert not isinstance(error, ToolMemoryError)
    assert "NoClassDefFoundError" in str(error)
    assert "-Xmx" not in str(error)
