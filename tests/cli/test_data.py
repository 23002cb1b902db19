from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from capbench.core.cache import Cache
from capbench.datasets.catalog import catalog
from capbench.datasets.root import sample_dir
from capbench.metrics.needs import Parser
from capbench.text.spice import parser, scene_graph
from capbench.text.spice.parse_file import ParseFile, write_parses
from tests.conftest import Ran
from tests.installed_parser import parsed
from tests.text.parsed_captions import CAPTIONS

Call = Callable[..., Ran]

CSV = """image,candidate,reference_1,reference_2,rating
one.jpg,a red kite over a hill,a kite in the sky,someone flies a kite,4
one.jpg,two boats,a kite in the sky,someone flies a kite,1
two.jpg,a boat on a lake,a small boat on the water,a lake with one boat,5
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data folder with a part of Flickr8k whose counts are wrong."""
    (tmp_path / "data" / "flickr8k").mkdir(parents=True)
    (tmp_path / "data" / "flickr8k" / "ExpertAnnotations.txt").write_text("a.jpg\tb.jpg#0\t1\t2\t1\n")
    return tmp_path / "data"


def test_list_names_the_sample_first_and_counts_every_data_set(capbench: Call, found: Callable[..., Any]) -> None:
    ran = capbench("data", "info")
    assert ran.out.startswith("data: embedded synthetic sample")
    assert re.search(r"(?m)^flickr8k-expert +\d+ expert +research +yes", ran.out)
    entries = {entry["name"]: entry for entry in found("data", "info")}
    for name in ("flickr8k-expert", "flickr8k-crowdflower", "composite", "pascal-50s", "nocaps"):
        assert (entries[name]["state"], entries[name]["items"] > 0) == ("here", True)
    assert entries["coco"]["kind"] == "captions"


def test_list_tells_what_is_missing_where_to_look_and_what_is_damaged(capbench: Call, folder: Path) -> None:
    ran = capbench("data", "info", "--data", folder)
    assert re.search(r"(?m)^flickr8k-expert +17,466 ratings +research +info flickr8k-expert", ran.out)
    assert re.search(r"(?m)^context-sighted +986 ratings +MIT +download context-sighted", ran.out)
    (folder / "flickr8k" / "Flickr8k.token.txt").write_text("nonsense\n")
    ran = capbench("data", "info", "--data", folder)
    assert (ran.code, "damaged" in ran.out) == (0, True)
    assert "warning: flickr8k-expert:" in ran.err


def test_info_tells_terms_dead_links_and_protocols(capbench: Call, found: Callable[..., Any]) -> None:
    out = capbench("data", "info", "composite").out
    for text in ("composite/composite_11985.tsv", "terms:", "manual download:", "dead link:", "default protocol: "):
        assert text in out
    facts = found("data", "info", "composite")
    assert facts["sources"]["karpathy"]["dead"]
    assert facts["protocols"]["default"].startswith("composite/")


def test_verify_tells_wrong_counts_and_missing_files(capbench: Call, found: Callable[..., Any], folder: Path) -> None:
    verify = ("data", "info", "--verify", "flickr8k-expert", "--data", folder)
    ran = capbench(*verify)
    assert (ran.code, "1 pairs, expected 5,822" in ran.out) == (1, True)
    answer = found(*verify, code=1)
    states = {entry["path"]: entry["state"] for entry in answer["datasets"]["flickr8k-expert"]}
    assert states["flickr8k/ExpertAnnotations.txt"] == "wrong"
    assert states["flickr8k/Flickr8k.token.txt"] == "missing"
    assert not answer["ok"]


def test_several_open_sets_are_fetched_after_their_size_terms_and_checksums(
    capbench: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[str] = []

    def fetch(url: str, target: Path, *, sha256: str, **_how: object) -> bool:
        fetched.append(url)
        assert sha256 == catalog().files[target.relative_to(tmp_path).as_posix()].sha256.value  # type: ignore[union-attr]
        target.parent.mkdir(exist_ok=True)
        target.write_text("{}")
        return True

    monkeypatch.setattr("capbench.core.download.fetch", fetch)
    ran = capbench("data", "download", "valse", "context-blv", "valse", "--data", tmp_path)
    assert ran.code == 1  # the counts of the empty files are wrong
    assert len(fetched) == len(set(fetched)) == 11
    before = ran.err.partition("warning")[0]
    assert "VALSE, ten parts: 10 files, 5.5 MB; terms: MIT" in before
    assert f"  valse/plurals.json: SHA-256 {catalog().files['valse/plurals.json'].sha256.value}" in before  # type: ignore[union-attr]
    written = json.loads(capbench("data", "download", "--open", "--data", tmp_path, "--json").out)["written"]
    assert {"sugarcrepe/swap_obj.json", "iiw/IIW-400.jsonl"} <= set(written)
    assert not any(path.startswith(("valse/", "pascal50s/", "flickr8k/")) for path in written)


def test_import_then_list_info_verify_and_use_the_judgements(
    capbench: Call, found: Callable[..., Any], folder: Path
) -> None:
    Path("mine.csv").write_text(CSV)
    ran = capbench("data", "import", "mine.csv", "--name", "mine", "--scale", "1-5", "--data", folder)
    assert ran.code == 0, ran.err
    assert "3 ratings of 3 items" in ran.out
    # What is printed finds the judgements as it stands.
    (following,) = [line for line in ran.out.splitlines() if line.startswith("next: capbench ")]
    assert capbench(*shlex.split(following)[2:]).code == 0
    protocols = capbench("data", "info", "--protocols", "mine", "--data", folder)
    assert "default protocol: mine/as-given/tau-b" in protocols.out
    entries = {entry["name"]: entry for entry in found("data", "info", "--data", folder)}
    assert (entries["mine"]["state"], entries["mine"]["human"]) == ("here", {"rating": 3})
    assert "imported from mine.csv" in capbench("data", "info", "mine", "--data", folder).out
    verify = ("data", "info", "--verify", "mine", "--data", folder)
    assert capbench(*verify).code == 0
    stored = folder / "imported" / "mine" / "judgements.jsonl"
    stored.write_text(stored.read_text().replace("two boats", "three boats"))
    ran = capbench(*verify)
    assert (ran.code, "differs" in ran.out) == (1, True)


def test_import_reports_one_line_for_each_problem_and_json_reports_all(
    capbench: Call, found: Callable[..., Any], tmp_path: Path
) -> None:
    Path("bad.csv").write_text(CSV.replace(",4\n", ",good\n").replace("two boats", ""))
    ran = capbench("data", "import", "bad.csv", "--name", "bad")
    assert (ran.code, len(ran.err.splitlines())) == (2, 2)
    assert (ran.failure.code, ran.failure.path, ran.failure.row) == ("not-a-number", "bad.csv", 2)
    problems = found("data", "import", "bad.csv", "--name", "bad", code=2)["problems"]
    assert [problem["row"] for problem in problems] == [2, 3]
    assert not (tmp_path / "home").exists()


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
    assert exported["captions"] == exported["parses"] == len(file.parses)


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
            assert store.get(parser.SPICE_PARSER_VERSION) == {}
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
