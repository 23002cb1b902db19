"""``capbench data parses`` as a user types it, and scores from parse files."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from capbench.core.cache import Cache
from capbench.core.errors import CapbenchError
from capbench.datasets.root import sample_dir
from capbench.metrics.needs import Parser
from capbench.text.spice import parser, scene_graph
from capbench.text.spice.parse_file import ParseFile, write_parses
from tests.conftest import Ran
from tests.installed_parser import parsed
from tests.text.parsed_captions import CAPTIONS

Run = Callable[..., Ran]


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


def _n_stored() -> int:
    with Cache("scene-graphs") as store:
        return len(list(store.entries(parser.SPICE_PARSER_VERSION)))


def test_parses_go_from_one_cache_to_another(capbench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, number = tmp_path / "cache.parses", len(CAPTIONS)
    with parsed(CAPTIONS):
        ran = capbench("data", "parses", "export", path)
    assert (ran.code, ran.out) == (0, f"cache: {number} of {number} captions; licence: unknown\n")
    assert "not for redistribution" in ran.err
    _empty_cache(tmp_path / "other", monkeypatch)
    ran = capbench("data", "parses", "import", path)
    assert (ran.code, ran.out) == (0, f"{number} parses in {path}, {number} of them new\n")
    assert "not for redistribution" in ran.err
    ran = capbench("data", "parses", "import", path, "--json")
    sets = [{"name": "cache", "licence": "unknown", "redistributable": False, "captions": number, "parses": number}]
    assert json.loads(ran.out) == {"file": str(path), "parses": number, "new": 0, "captions": sets}
    ran = capbench("data", "parses", "export", path, "--json", "--replace")
    assert json.loads(ran.out) == {"file": str(path), "bytes": path.stat().st_size, "captions": sets}


@pytest.mark.parametrize(
    ("arguments", "code", "value"),
    [
        (("export", "x.parses"), "missing-data", parser.SPICE_PARSER_VERSION),
        (("export", "x.parses", "thumb"), "missing-data", parser.SPICE_PARSER_VERSION),
        (("export",), "missing-option", "file"),
        (("import", "a", "b"), "wrong-value", "b"),
        (("import", "a", "--data", "sample"), "unsupported", "--data"),
        (("export", "a", "--workers", "2"), "unsupported", "--workers"),
        (("make", "--replace"), "unsupported", "--replace"),
        (("make", "flikr8k"), "unknown-name", "flikr8k"),
        (("make", "composite@moon"), "unknown-name", "moon"),
        (("make", "flickr8k-pseudo"), "missing-file", None),
    ],
)
def test_invalid_arguments_are_one_line(
    capbench: Run, arguments: Sequence[str], code: str, value: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = capbench("data", "parses", *arguments)
    assert (ran.code, ran.failure.code, ran.failure.value) == (2, code, value)
    assert ran.err.count("\n") == 1


def test_all_published_data_sets_are_parsed_once_and_what_is_absent_is_named(
    capbench: Run, tmp_path: Path, asked: Counter[str]
) -> None:
    ran = capbench("data", "parses", "make", "--json")
    assert ran.code == 0, ran.err
    made = json.loads(ran.out)
    assert {"flickr8k-pseudo", "distractions@given"} <= set(made["skipped"])
    assert {"composite", "pascal-50s", "hm-coco@where-image", "thumb"} <= set(made["datasets"])
    assert made["captions"] > made["distinct"] == made["parsed"] == len(asked)
    assert made["left_out"] == 0
    assert set(asked.values()) == {1}
    assert f"{len(asked):,} captions to parse, about " in ran.err
    # The next process has nothing to do for one of them; all have been named.
    scene_graph.forget()
    ran = capbench("data", "parses", "make", "composite", "all", "coco-val")
    assert "flickr8k-pseudo: skipped; " in ran.err
    assert set(asked.values()) == {1}
    ran = capbench("data", "parses", "make", "thumb", "nocaps", "thumb", "--json")
    assert json.loads(ran.out)["parsed"] == 0
    assert json.loads(ran.out)["datasets"] == ["thumb", "nocaps"]
    path = tmp_path / "nocaps.parses"
    ran = capbench("data", "parses", "export", path, "nocaps", "--json")
    (exported,) = json.loads(ran.out)["captions"]
    assert exported["captions"] == exported["parses"] == len(ParseFile(path, parser.SPICE_PARSER_VERSION))


def test_captions_of_more_than_100_words_are_parsed_last_and_only_if_their_set_is_named(
    capbench: Run, data: Path, asked: Counter[str]
) -> None:
    (data / "flickr8k").unlink()
    (data / "nocaps").mkdir()
    lengths = {"1": 101, "2": 3, "3": 500, "4": 100}
    corpus = [
        {
            "split": "in_domain",
            "image_id": f"{i}.png",
            "caption": [" ".join([f"w{i}"] * n), f"caption {i}"],
        }
        for i, n in lengths.items()
    ]
    (data / "nocaps/nocaps_corpus.json").write_text(json.dumps(corpus))
    command = ("data", "parses", "make", "--data", data, "--json")
    ran = capbench(*command)
    assert ran.code == 0, ran.err
    made = json.loads(ran.out)
    assert (made["datasets"], made["parsed"], made["left_out"]) == (["nocaps"], 6, 2)
    assert "2 of more than 100 words are left out" in ran.err
    assert max(len(caption.split()) for caption in asked) == 100
    scene_graph.forget()
    made = json.loads(capbench(*command, "all", "nocaps").out)
    assert (made["parsed"], made["left_out"]) == (2, 0)
    assert [len(caption.split()) for caption in asked][-2:] == [101, 500]


def test_export_names_captions_that_are_not_parsed_or_not_for_redistribution(
    capbench: Run, data: Path, asked: Counter[str], tmp_path: Path
) -> None:
    path = tmp_path / "x.parses"
    assert capbench("data", "parses", "make", "flickr8k-swaps", "--data", data).code == 0
    ran = capbench("data", "parses", "export", path, "flickr8k-swaps", "flickr8k", "--data", data)
    assert ran.code == 0
    first, second = ParseFile(path, parser.SPICE_PARSER_VERSION).sets
    assert (first.name, first.redistributable, first.captions - first.parses) == ("flickr8k-swaps", False, 0)
    assert (second.name, second.captions > second.parses > 0) == ("flickr8k", True)
    assert "run 'capbench data parses make flickr8k'" in ran.err
    assert "not for redistribution, because of the captions' licence: flickr8k-swaps, flickr8k" in ran.err
    # The synthetic sample is free.
    ran = capbench("data", "parses", "export", path, "flickr8k-swaps", "--replace")
    assert (ran.code, "not for redistribution" in ran.err) == (0, False)


def test_scores_read_parse_files_of_the_data_folder(
    capbench: Run, data: Path, asked: Counter[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = data / "spice-parses/expert.parses"
    command = ("correlate", "-d", "flickr8k-expert", "-m", "spice", "-m", "bleu-1", "--data", data, "--json")
    expected = json.loads(capbench(*command).out)["cells"]
    parses = len(asked)
    assert capbench("data", "parses", "export", path, "flickr8k-expert", "--data", data).code == 0
    monkeypatch.setattr(parser, "parse_tuples", None)
    for number, more in enumerate(((), ("--no-cache",))):
        _empty_cache(tmp_path / f"empty-{number}", monkeypatch)
        ran = capbench(*command, *more)
        assert (ran.code, json.loads(ran.out)["cells"]) == (0, expected)
        assert _n_stored() == 0
    assert capbench("data", "parses", "make", "flickr8k-expert", "--data", data).out.endswith(
        f"0 parsed now, {parses:,} before\n"
    )
    # A changed byte, or another version of the parser, is an error and not another score.
    packed = path.read_bytes()
    path.write_bytes(packed[:-9] + bytes([packed[-9] ^ 1]) + packed[-8:])
    _one_error(capbench, command, path, "damaged")
    path.unlink()
    write_parses(path, {bytes(16): b"[]"}, [], "spice-2.0")
    _one_error(capbench, command, path, "wrong-version")


def _one_error(capbench: Run, command: Sequence[str | Path], path: Path, code: str) -> None:
    scene_graph.forget()
    ran = capbench(*command, "--no-cache")
    error: CapbenchError = ran.failure
    assert (ran.code, ran.out, error.code, error.path) == (2, "", code, str(path))
    assert sum(line.startswith("error: ") for line in ran.err.splitlines()) == 1
