from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from capbench.core.errors import ToolError, ToolMemoryError
from capbench.text.java import Java, LineProcess, run_batch
from tests.errors import raises
from tests.text.java_fakes import ECHO, fake_java


def _java(folder: Path, body: str) -> Java:
    return Java(fake_java(folder, body), 17, "CAPBENCH_JAVA")


def _process(folder: Path, body: str, timeout_s: float = 20.0, restarts: int = 2) -> LineProcess:
    return LineProcess(
        ["-jar", "x.jar"],
        name="the fake",
        folder=folder,
        java=_java(folder, body),
        timeout_s=timeout_s,
        start_timeout_s=timeout_s,
        restarts=restarts,
    )


def test_answers_come_in_order_and_the_program_stays(tmp_path: Path) -> None:
    with _process(tmp_path, ECHO) as process:
        assert process.ask(["a", "b é"]) == ["answer a", "answer b é"]
        first = process.pid
        assert process.ask(["c"]) == ["answer c"]
        assert process.pid == first
        assert process.ask([]) == []
    assert process.pid is None


def test_it_starts_again_after_close(tmp_path: Path) -> None:
    process = _process(tmp_path, ECHO)
    process.ask(["a"])
    process.close()
    assert process.ask(["b"]) == ["answer b"]
    process.close()


def test_large_batches_do_not_block_on_full_pipes(tmp_path: Path) -> None:
    requests = [f"{i} " + "word " * 200 for i in range(5000)]  # 5 MB each way, pipes hold 64 kB
    with _process(tmp_path, ECHO) as process:
        answers = process.ask(requests)
    assert [answer.split()[1] for answer in answers] == [str(i) for i in range(5000)]


def test_one_request_may_have_several_answers(tmp_path: Path) -> None:
    with _process(tmp_path, "for line in sys.stdin:\n    print('1\\n2\\n3', flush=True)") as process:
        assert process.ask(["EVAL"], answers=3) == ["1", "2", "3"]


def test_batch_is_repeated_when_the_program_dies_half_way(tmp_path: Path) -> None:
    body = """
dies = starts() == 1
for n, line in enumerate(sys.stdin):
    if dies and n == 2:
        os._exit(1)
    print("answer " + line.strip(), flush=True)
"""
    with _process(tmp_path, body) as process:
        assert process.ask(["a", "b", "c", "d"]) == ["answer a", "answer b", "answer c", "answer d"]
    assert (tmp_path / "starts").read_text() == "xx"


def test_killed_between_two_batches_loses_nothing(tmp_path: Path) -> None:
    with _process(tmp_path, ECHO) as process:
        process.ask(["a"])
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        assert process.ask(["b"]) == ["answer b"]


def test_program_that_always_dies_is_given_up_with_its_last_words(tmp_path: Path) -> None:
    body = "starts(); sys.stdin.readline(); sys.stderr.write('OutOfMemoryError: heap'); sys.stderr.flush(); os._exit(7)"
    process = _process(tmp_path, body)
    with raises(ToolMemoryError, "out-of-memory") as caught:
        process.ask(["a", "b"])
    for quoted in ("the fake", "0 of 2", "exit status 7", "OutOfMemoryError: heap"):
        assert quoted in caught.value.message
    assert (tmp_path / "starts").read_text() == "xxx"
    assert process.pid is None


def test_bad_jvm_options_are_pointed_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPBENCH_JAVA_OPTIONS", "-Xmx1Q")
    with raises(ToolError, "tool-failed") as caught:
        _process(tmp_path, "os._exit(1)", restarts=0).ask(["a"])
    assert "CAPBENCH_JAVA_OPTIONS" in str(caught.value.hint)


def test_program_that_hangs_once_is_started_again(tmp_path: Path) -> None:
    with _process(tmp_path, f"if starts() == 1: time.sleep(600)\n{ECHO}", timeout_s=5.0) as process:
        assert process.ask(["a"]) == ["answer a"]


def test_request_with_a_line_end_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        _process(tmp_path, ECHO).ask(["a\nb"])


def test_late_answers_are_not_taken_for_the_next_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from capbench.text import java as module

    process = _process(tmp_path, ECHO)
    process.ask(["warm"])
    receive = module._Child.receive

    def interrupted(self: module._Child, timeout_s: float, done: int, expected: int) -> str:
        receive(self, timeout_s, done, expected)
        raise KeyboardInterrupt

    monkeypatch.setattr(module._Child, "receive", interrupted)
    with pytest.raises(KeyboardInterrupt):
        process.ask(["a", "b", "c"])
    monkeypatch.setattr(module._Child, "receive", receive)
    assert process.ask(["d"]) == ["answer d"]
    process.close()


def test_threads_take_turns(tmp_path: Path) -> None:
    found: dict[int, list[str]] = {}
    with _process(tmp_path, ECHO) as process:

        def work(number: int) -> None:
            found[number] = process.ask([f"{number}.{i}" for i in range(50)])

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == {n: [f"answer {n}.{i}" for i in range(50)] for n in range(4)}


def test_program_ends_when_it_is_no_longer_held(tmp_path: Path) -> None:
    process = _process(tmp_path, ECHO)
    process.ask(["a"])
    pid = process.pid
    assert pid is not None
    del process
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_batch_gives_text_back(tmp_path: Path) -> None:
    java = _java(tmp_path / "a b", "sys.stdout.write(sys.stdin.read().upper())")
    assert run_batch(["-cp", "x"], "één\n", name="the fake", folder=tmp_path, java=java) == "ÉÉN\n"


@pytest.mark.parametrize(
    ("body", "code", "quoted"),
    [
        ("sys.stderr.write('no class'); sys.exit(1)", "tool-failed", "no class"),
        ("sys.exit(1)", "tool-failed", "exit status 1"),
        ("sys.stdout.buffer.write(b'\\xff')", "wrong-format", "the fake"),
        ("time.sleep(600)", "timeout", "1 s"),
    ],
)
def test_batch_failures_are_tool_errors(tmp_path: Path, body: str, code: str, quoted: str) -> None:
    with raises(ToolError, code) as caught:
        run_batch(["-cp", "x"], "a", name="the fake", folder=tmp_path, java=_java(tmp_path, body), timeout_s=1.0)
    assert quoted in caught.value.message


def test_java_that_vanished_is_a_tool_error(tmp_path: Path) -> None:
    gone = Java(tmp_path / "gone", 17, "PATH")
    with raises(ToolError, "tool-failed", path=tmp_path / "gone"):
        run_batch(["-cp", "x"], "a", name="the fake", folder=tmp_path, java=gone)
    with raises(ToolError, "tool-failed", path=tmp_path / "gone"):
        LineProcess(["x"], name="the fake", folder=tmp_path, java=gone).ask(["a"])
