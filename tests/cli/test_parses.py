"""``data parses``, and scores from parse files."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from capbench.core.cache import Cache
from capbench.datasets.root import sample_dir
from capbench.metrics.needs import Parser
from capbench.text.spice import parser, scene_graph
from capbench.text.spice.parse_file import ParseFile, write_parses
from tests.conftest import Ran
from tests.installed_parser import parsed
from tests.text.parsed_captions import CAPTIONS

Run = Callable[..., Ran]
MAKE, EXPORT = ("data", "parses", "make"), ("data", "parses", "export")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Captions that a fake parser was asked for; its objects are the words of a caption."""
    asked: Counter[str] = Counter()

    def parse(captions: Sequence[str]) -> Iterator[str]:
        for caption in captions:
            asked[caption] += 1
            yield json.dumps([[word] for word in caption.split()])

    monkeypatch.setattr(parser, "parse_tuples", parse)
    monkeypatch.setattr(Parser, "missing", lambda *_: None)
    scene_graph.forget()
    return asked


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder with the sample's Flickr8k."""
    (tmp_path / "data/spice-parses").mkdir(parents=True)
    (tmp_path / "data/flickr8k").symlink_to(sample_dir() / "flickr8k")
    return tmp_path / "data"


def _empty_cache(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on another machine."""
    monkeypatch.setenv("CAPBENCH_CACHE", str(folder))
    scene_graph.forget()


def test_all_parses_of_the_cache_are_exported(capbench: Run, found: Callable[..., Any], tmp_path: Path) -> None:
    path, number = tmp_path / "cache.parses", len(CAPTIONS)
    with parsed(CAPTIONS):
        ran = capbench(*EXPORT, path)
    assert (ran.code, ran.out) == (0, f"cache: {number} of {number} captions; licence: unknown\n")
    assert "not for redistribution" in ran.err
    sets = [{"name": "cache", "licence": "unknown", "redistributable": False, "captions": number, "parses": number}]
    with parsed(CAPTIONS):
        answer = found(*EXPORT, path, "--replace")
    assert answer == {"file": str(path), "bytes": path.stat().st_size, "captions": sets}


def test_all_published_data_sets_are_parsed_once_and_what_is_absent_is_named(
    capbench: Run, found: Callable[..., Any], asked: Counter[str]
) -> None:
    ran = capbench(*MAKE, "--json")
    assert ran.code == 0, ran.err
    made = json.loads(ran.out)
    assert {"flickr8k-pseudo"} <= set(made["skipped"])
    assert {"composite", "pascal-50s", "hm-coco@where-image", "thumb"} <= set(made["datasets"])
    assert made["captions"] > made["distinct"] == made["parsed"] == len(asked)
    assert set(asked.values()) == {1}
    assert f"{len(asked):,} captions to parse, about " in ran.err
    # The next process has nothing to do for one of them; all have been named.
    scene_graph.forget()
    assert "flickr8k-pseudo: skipped; " in capbench(*MAKE, "composite", "all", "coco-val").err
    again = found(*MAKE, "thumb", "nocaps", "thumb")
    assert (set(asked.values()), again["parsed"], again["datasets"]) == ({1}, 0, ["thumb", "nocaps"])
    (exported,) = found(*EXPORT, "nocaps.parses", "nocaps")["captions"]
    file = ParseFile(Path("nocaps.parses"), parser.SPICE_PARSER_VERSION)
    assert exported["captions"] == exported["parses"] == len(file)


def test_scores_read_parse_files_of_the_data_folder(
    capbench: Run,
    found: Callable[..., Any],
    data: Path,
    asked: Counter[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = data / "spice-parses/expert.parses"
    command = ("correlate", "-d", "flickr8k-expert", "-m", "spice", "-m", "bleu-1", "--data", data)
    expected = found(*command)["cells"]
    assert capbench(*EXPORT, path, "flickr8k-expert", "--data", data).code == 0
    monkeypatch.setattr(parser, "parse_tuples", None)
    for number, more in enumerate(((), ("--no-cache",))):
        _empty_cache(tmp_path / f"empty-{number}", monkeypatch)
        assert found(*command, *more)["cells"] == expected
        with Cache("scene-graphs") as store:
            assert list(store.entries(parser.SPICE_PARSER_VERSION)) == []
    again = capbench(*MAKE, "flickr8k-expert", "--data", data).out
    assert again.endswith(f"0 parsed now, {len(asked):,} before\n")

    # A changed byte, or another version of the parser, is an error and not another score.
    def refused() -> tuple[int, str, str | None]:
        scene_graph.forget()
        ran = capbench(*command, "--no-cache")
        return ran.code, ran.failure.code, ran.failure.path

    packed = path.read_bytes()
    path.write_bytes(packed[:-9] + bytes([packed[-9] ^ 1]) + packed[-8:])
    assert refused() == (2, "damaged", str(path))
    path.unlink()
    write_parses(path, {bytes(16): b"[]"}, [], "spice-2.0")
    assert refused() == (2, "wrong-version", str(path))
