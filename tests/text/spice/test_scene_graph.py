from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from capbench.core.errors import ToolError
from capbench.text.spice import parser as spice
from capbench.text.spice import scene_graph
from tests.errors import raises
from tests.installed_parser import parsed
from tests.text.java_fakes import fake_java


@pytest.fixture(autouse=True)
def _nothing_remembered() -> None:
    scene_graph.forget()


def test_triplets_are_the_distinct_relations_in_their_order() -> None:
    tuples = [["dog", "brown"], ["dog", "ball", "chase"], ["ball"], ["dog", "ball", "see"], ["dog", "ball", "chase"]]
    with parsed({"a dog": tuples, "a house": [["house"]]}):
        found = scene_graph.triplets(["A dog!", "a house"])
    assert found == [(("dog", "chase", "ball"), ("dog", "see", "ball")), ()]


class _FakeParser:
    """Answers with one object, the caption; can fail on one caption."""

    def __init__(self, fails_on: str = "") -> None:
        self.asked: list[str] = []
        self._fails_on = fails_on

    def __call__(self, captions: Sequence[str]) -> Iterator[str]:
        for caption in captions:
            if caption == self._fails_on:
                raise ToolError("the parser broke")
            self.asked.append(caption)
            yield f'[["{caption}"]]'


def test_a_distinct_caption_is_parsed_once_in_its_life(monkeypatch: pytest.MonkeyPatch) -> None:
    parser = _FakeParser()
    monkeypatch.setattr(spice, "parse_tuples", parser)
    steps: list[int] = []
    scene_graph.ensure(["a", "b", "a"], progress=steps.append)
    scene_graph.ensure(["b", "c"], progress=steps.append)
    scene_graph.forget()  # as in the next process
    assert list(scene_graph.tuples(["c", "a", "b"])) == [(("c",),), (("a",),), (("b",),)]
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
    assert broken.asked == captions[:550]
    assert fixed.asked == captions[512:]


# A program that appends its memory limit and the captions to a file, fails in one way, and answers with one object.
_PROGRAM = """
memory = next(int(word[4:-1]) for word in sys.argv if word.startswith("-Xmx") and word.endswith("m"))
def answers():
    for line in map(str.strip, sys.stdin):
        open("asked", "a").write(f"{memory} {len(line.split())}\\n")
        yield line if line.startswith(("rubbish", "{")) else '{"error":"out of memory"}' if LIMIT else f'[["{line}"]]'
for answer in answers():
    print(answer, flush=True)
"""


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """Replace the parser's program."""
    monkeypatch.setattr(spice, "SPICE_FILES", ())
    monkeypatch.setattr(spice, "total_memory", lambda: 4 << 30)

    def replace(body: str) -> None:
        monkeypatch.setenv("CAPBENCH_JAVA", str(fake_java(tmp_path, body)))

    return replace


def _asked() -> list[str]:
    return (spice.spice_folder() / "asked").read_text().splitlines()


def test_a_caption_too_long_for_the_memory_is_parsed_alone_with_more(program: Callable[[str], None]) -> None:
    program(_PROGRAM.replace("LIMIT", "memory < 2000 and len(line.split()) > 3"))
    captions = ["a b c", "a b c d", " ".join("x" * 200), "d e f"]
    assert list(scene_graph.tuples(captions)) == [((caption,),) for caption in captions]
    assert sorted(_asked()) == ["1600 3", "1600 3", "1600 4", "3072 200", "3072 4"]


@pytest.mark.parametrize(
    ("body", "code", "quoted"),
    [
        (_PROGRAM.replace("LIMIT", "True"), "out-of-memory", ["with 3.0 GB", "CAPBENCH_JAVA_OPTIONS=-Xmx8G"]),
        (_PROGRAM.replace("LIMIT", "memory < 2000 or os.kill(os.getpid(), 9)"), "out-of-memory", ["with 3.0 GB"]),
        ('sys.stdin.readline(); print(\'{"error":"it is broken"}\')', "tool-failed", ["it is broken"]),
        ("sys.stdin.readline(); print('rubbish')", "tool-failed", ["rubbish"]),
    ],
)
def test_a_caption_that_fails_is_named(
    body: str, code: str, quoted: Sequence[str], program: Callable[[str], None]
) -> None:
    program(body)
    with raises(ToolError, code, value="a dog runs") as caught:
        scene_graph.ensure(["a dog runs"])
    assert all(text in str(caught.value) for text in quoted)


def test_a_program_that_dies_is_started_again_with_the_rest(program: Callable[[str], None]) -> None:
    dying = "dies = starts() < 3\n" + _PROGRAM.replace("LIMIT", "False") + "    if dies: os._exit(7)\n"
    program(dying)
    assert list(scene_graph.tuples(["a", "b", "c d", "e"])) == [(("a",),), (("b",),), (("c d",),), (("e",),)]
    program("starts(); sys.stderr.write('NoClassDefFoundError: SceneGraph'); sys.exit(7)")
    with raises(ToolError, "tool-failed") as caught:
        scene_graph.ensure(["a dog runs"])
    assert "NoClassDefFoundError" in caught.value.message
