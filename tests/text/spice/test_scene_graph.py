from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from capbench.core.cache import Cache
from capbench.core.errors import SetupError, ToolError, ToolMemoryError
from capbench.text.spice import parser as spice
from capbench.text.spice import scene_graph
from capbench.text.spice.scene_graph import SceneGraph
from tests.errors import raises
from tests.installed_parser import installed_parser, parsed
from tests.text.parsed_captions import CAPTIONS


@pytest.fixture(autouse=True)
def _nothing_remembered() -> None:
    scene_graph.forget()


def test_objects_attributes_and_triplets() -> None:
    graph = SceneGraph.from_tuples(
        [["dog", "brown"], ["dog", "ball", "chase"], ["ball", "two"], ["dog", "wet"], ["ball"], ["dog"], ["house"]]
    )
    assert graph.objects == ("dog", "ball", "house")
    assert graph.attributes == {"dog": ("brown", "wet"), "ball": ("two",)}
    assert graph.triplets == (("dog", "chase", "ball"),)


def test_what_is_said_twice_stands_once() -> None:
    graph = SceneGraph.from_tuples([["a", "b"], ["a", "b"], ["a", "c", "r"], ["a", "c", "r"], ["a", "c", "s"]])
    assert graph == SceneGraph(("a", "c"), {"a": ("b",)}, (("a", "r", "c"), ("a", "s", "c")))


def test_a_caption_without_tuples_has_an_empty_graph() -> None:
    assert SceneGraph.from_tuples([]) == SceneGraph((), {}, ())


def test_cached_captions_need_no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPBENCH_JAVA", "/nonexistent")
    with parsed(CAPTIONS):
        found = list(scene_graph.tuples([*CAPTIONS, *CAPTIONS]))
    assert found == [tuple(map(tuple, tuples)) for tuples in [*CAPTIONS.values(), *CAPTIONS.values()]]


def test_an_empty_caption_needs_no_parser() -> None:
    assert list(scene_graph.tuples(["", ""])) == [(), ()]


def test_without_parser_the_error_says_what_to_run() -> None:
    with raises(SetupError, "not-set-up") as caught:
        scene_graph.ensure(["a dog runs"])
    assert "rhino" in caught.value.message
    assert "'capbench doctor --install spice'" in str(caught.value.hint)


class _FakeParser:
    """Answers with one object, the caption; can fail on one caption."""

    def __init__(self, fails_on: str = "") -> None:
        self.asked: list[str] = []
        self._fails_on = fails_on

    def __call__(self, captions: Sequence[str]) -> list[str]:
        if self._fails_on in captions:
            raise ToolError("the parser broke")
        self.asked += captions
        return [f'[["{caption}"]]' for caption in captions]


def test_a_distinct_caption_is_parsed_once_in_its_life(monkeypatch: pytest.MonkeyPatch) -> None:
    parser = _FakeParser()
    monkeypatch.setattr(spice, "parse_tuples", parser)
    steps: list[int] = []
    scene_graph.ensure(["a", "b", "a"], progress=steps.append)
    scene_graph.ensure(["b", "c"], progress=steps.append)
    scene_graph.forget()  # as in the next process
    assert list(scene_graph.tuples(["c", "a", "b"], progress=steps.append)) == [(("c",),), (("a",),), (("b",),)]
    assert parser.asked == ["a", "b", "c"]
    assert steps == [2, 1]


def test_what_was_parsed_before_an_interruption_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    captions = [str(i) for i in range(600)]
    broken = _FakeParser(fails_on="550")
    monkeypatch.setattr(spice, "parse_tuples", broken)
    with pytest.raises(ToolError):
        scene_graph.ensure(captions)
    scene_graph.forget()
    fixed = _FakeParser()
    monkeypatch.setattr(spice, "parse_tuples", fixed)
    scene_graph.ensure(captions)
    assert len(broken.asked) == 512
    assert broken.asked + fixed.asked == captions


def test_what_another_process_parsed_meanwhile_is_not_parsed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    captions = [str(i) for i in range(300)]
    parser = _FakeParser()

    def parse(batch: Sequence[str]) -> list[str]:
        if not parser.asked:
            with Cache("scene-graphs") as other:
                other.put(spice.SPICE_PARSER_VERSION, [(scene_graph.key(c), b'[["other"]]') for c in captions[100:280]])
        return parser(batch)

    monkeypatch.setattr(spice, "parse_tuples", parse)
    steps: list[int] = []
    scene_graph.ensure(captions, progress=steps.append)
    assert parser.asked == [*captions[:128], *captions[280:]]
    assert sum(steps) == 300
    assert list(scene_graph.tuples(["128", "299"])) == [(("other",),), (("299",),)]


def test_two_runs_at_once_do_not_disturb_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    captions = [str(i) for i in range(300)]
    monkeypatch.setattr(spice, "parse_tuples", _FakeParser())
    failures: list[BaseException] = []

    def run() -> None:
        try:
            scene_graph.ensure(captions)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    scene_graph.forget()
    assert list(scene_graph.tuples(captions)) == [((c,),) for c in captions]


@pytest.mark.parametrize(
    ("answer", "code", "quoted"),
    [
        ('{"error": "out of memory"}', "out-of-memory", "CAPBENCH_JAVA_OPTIONS=-Xmx"),
        ('{"error": "it is broken"}', "tool-failed", "it is broken"),
        ("rubbish", "tool-failed", "rubbish"),
    ],
)
def test_an_answer_without_tuples_names_the_caption(
    monkeypatch: pytest.MonkeyPatch, answer: str, code: str, quoted: str
) -> None:
    monkeypatch.setattr(spice, "_process", lambda: _FakeProgram(answer))
    monkeypatch.setattr(spice, "_program", lambda *_, **__: _FakeProgram(answer))
    with raises(ToolError, code, value="a dog runs") as caught:
        scene_graph.ensure(["a dog runs"])
    assert quoted in str(caught.value)


class _FakeProgram:
    """Gives one answer to every request; with little memory, captions of more than three words are too long."""

    def __init__(self, answer: str = "", memory_mb: int = 0) -> None:
        self.answer, self.memory_mb = answer, memory_mb
        self.asked: list[str] = []

    def ask(self, captions: Sequence[str]) -> list[str]:
        self.asked += captions
        if self.answer:
            return [self.answer] * len(captions)
        short = [self.memory_mb > 1600 or len(caption.split()) <= 3 for caption in captions]
        return [
            json.dumps([[caption]]) if fits else '{"error": "out of memory"}'
            for caption, fits in zip(captions, short, strict=True)
        ]

    def __enter__(self) -> _FakeProgram:
        return self

    def __exit__(self, *_: object) -> None:
        self.answer = "stopped"


def test_a_caption_too_long_for_the_memory_is_parsed_alone_with_more(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[_FakeProgram] = []

    def program(_folder: Path, memory_mb: int, threads: int, restarts: int) -> _FakeProgram:
        assert (threads, restarts) == (1, 0)
        started.append(_FakeProgram(memory_mb=memory_mb))
        return started[-1]

    small = _FakeProgram(memory_mb=1600)
    monkeypatch.setattr(spice, "_process", lambda: small)
    monkeypatch.setattr(spice, "_program", program)
    monkeypatch.setattr(spice, "total_memory", lambda: 4 << 30)
    very_long = " ".join("x" * 200)
    captions = ["a b c", "a b c d", very_long, "d e f", "d e f g"]
    assert list(scene_graph.tuples(captions)) == [((caption,),) for caption in captions]
    assert small.asked == ["a b c", "a b c d", "d e f", "d e f g"]  # minutes saved
    (large,) = started
    assert (large.memory_mb, large.asked, large.answer) == (3072, ["a b c d", very_long, "d e f g"], "stopped")


def test_where_the_user_set_the_memory_no_more_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPBENCH_JAVA_OPTIONS", "-Xmx1G")
    monkeypatch.setattr(spice, "_process", lambda: _FakeProgram(memory_mb=1024))
    monkeypatch.setattr(spice, "_program", None)
    with raises(ToolError, "out-of-memory", value="a b c d"):
        scene_graph.ensure(["a b c d"])


def test_a_second_program_that_is_killed_for_its_memory_is_reported_as_out_of_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Killed(_FakeProgram):
        def ask(self, captions: Sequence[str]) -> list[str]:
            raise ToolMemoryError("SPICE's parser ended after 0 of 1 answers (exit status -9)")

    monkeypatch.setattr(spice, "_process", _FakeProgram)
    monkeypatch.setattr(spice, "_program", lambda *_, **__: Killed())
    monkeypatch.setattr(spice, "total_memory", lambda: 16 << 30)
    with raises(ToolError, "out-of-memory", value="a b c d") as caught:
        scene_graph.ensure(["a b c d"])
    assert "8.0 GB" in caught.value.message
    assert "-Xmx16G" in str(caught.value.hint)


@pytest.mark.java
def test_a_caption_too_long_for_the_memory_is_an_error_and_not_another_parse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPBENCH_JAVA_OPTIONS", "-Xmx500m -XX:+UseParallelGC")
    with installed_parser():
        with raises(ToolError, "out-of-memory"):
            scene_graph.ensure([" ".join(["dog"] * 600)])
        assert list(scene_graph.tuples(["a dog runs"])) == [(("dog", "run"), ("dog",))]


@pytest.mark.java
def test_killing_the_parser_in_the_middle_loses_nothing() -> None:
    captions = [
        f"a {color} {name} runs" for color in ("red", "big", "old", "wet") for name in ("dog", "cat", "man", "ball")
    ]
    with installed_parser() as folder:
        process = spice._start(folder)
        process.ask(["a dog"])  # it runs
        pid = process.pid
        assert pid is not None

        def kill() -> None:
            time.sleep(0.05)
            os.kill(pid, signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        found = list(scene_graph.tuples(captions))
        killer.join()
        assert process.pid not in (None, pid)
        spice.stop()
        scene_graph.forget()
        again = map(json.loads, spice.parse_tuples(captions))
        assert [tuple(map(tuple, tuples)) for tuples in again] == found
