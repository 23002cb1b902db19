"""Commands as processes of their own: what they say comes back, and none outlives the one that began it."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from capbench.cli import paper_runs


def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Put a shell script in the place of Python."""
    path = tmp_path / "python"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(path))


def signal_when(path: Path, number: signal.Signals) -> threading.Thread:
    """Send this process a signal as soon as a file is there."""

    def send() -> None:
        while not path.exists():
            time.sleep(0.01)
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    return thread


def is_running(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    return True


def test_code_output_and_what_was_said_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    stand_in(tmp_path, monkeypatch, 'echo "$@"; echo one >&2; echo two >&2; exit 1')
    assert paper_runs.call(["metrics", "--json"]) == (1, "-m capbench metrics --json\n", ["one", "two"])
    assert capfd.readouterr().err == "  one\n  two\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("ignored", ["", "trap '' TERM INT; "])
def test_what_ends_the_caller_ends_the_command(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    number: signal.Signals,
    ignored: str,
) -> None:
    monkeypatch.setattr(paper_runs, "_PATIENCE_S", 0.2)
    # A shell's background jobs begin with SIGINT ignored, and so would this test.
    interrupt = signal.signal(signal.SIGINT, signal.default_int_handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, interrupt))
    noted = tmp_path / "pid"
    # Renamed, so that the number is whole when the file is there.
    stand_in(tmp_path, monkeypatch, f"{ignored}echo $$ > {noted}.new; mv {noted}.new {noted}; exec sleep 600")
    before = signal.getsignal(signal.SIGTERM)
    signal_when(noted, number)
    with paper_runs.ended_like_an_interruption(), pytest.raises(KeyboardInterrupt):
        paper_runs.call(["correlate"])
    assert not is_running(int(noted.read_text()))
    assert signal.getsignal(signal.SIGTERM) is before
