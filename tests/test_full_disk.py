"""A disk that fills up while a command writes: one line, nothing half that is taken for whole, and a second run ends.

No file may grow beyond a size, as on a full disk; the sizes are such that each file of a command meets its end.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from capbench.core.cache import Cache
from capbench.core.errors import UsageError
from capbench.features.store import open_store
from tests.conftest import Ran
from tests.errors import raises

resource = pytest.importorskip("resource")


@contextlib.contextmanager
def room_for(size: int) -> Iterator[None]:
    """No file of this process may grow beyond so many bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def _is_one_line(ran: Ran) -> None:
    assert ran.code == 2, ran.err
    errors = [line for line in ran.err.splitlines() if line.startswith("error:")]
    assert len(errors) == 1, ran.err
    assert "Traceback" not in ran.err
    assert "cannot be written" in errors[0]


def _whole(folder: Path) -> dict[str, bytes]:
    """The files of a folder but for those that are there while something is being written."""
    return {
        path.name: path.read_bytes()
        for path in folder.iterdir()
        if path.suffix not in (".lock", ".partial") and not path.name.startswith(".")
    }


FEW = [pytest.param(False), pytest.param(True, id="many", marks=pytest.mark.slow)]


def _limits(sizes: list[int], many: bool) -> list[int]:
    """Sizes at which files of these sizes meet their end: nothing at all, and half-way, or at many places."""
    if not many:
        return sorted({0, *(size // 2 for size in sizes)})
    return sorted({0, 10, *(size * share // 16 for size in sizes for share in (1, 8, 15)), max(sizes) - 1})


@pytest.mark.parametrize("many", FEW)
def test_a_feature_store(many: bool, capbench: Callable[..., Ran], tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.random.default_rng(1).normal(size=(50, 4, 32)).astype(np.float32))
    (tmp_path / "ids.txt").write_text("".join(f"image{i}\n" for i in range(50)))
    command = ("import-features", tmp_path / "a.npy", "--format", "scan", "--ids", tmp_path / "ids.txt", "--out")
    calm = tmp_path / "calm.h5"
    assert capbench(*command, calm).code == 0
    for limit in _limits([calm.stat().st_size], many):
        folder = tmp_path / f"out{limit}"
        folder.mkdir()
        with room_for(limit):
            full = capbench(*command, folder / "a.h5")
        _is_one_line(full)
        assert _whole(folder) == {}, limit
        again = capbench(*command, folder / "a.h5")
        assert again.code == 0, again.err
        assert capbench("features", "verify", folder / "a.h5").code == 0
        assert list(_whole(folder)) == ["a.h5"]
        with open_store(folder / "a.h5") as made, open_store(calm) as right:
            assert made.ids == right.ids
            assert all(np.array_equal(made[image].features, right[image].features) for image in right.ids)


def test_a_store_that_is_replaced_is_kept_until_the_new_one_is_whole(
    capbench: Callable[..., Ran], tmp_path: Path
) -> None:
    for name in "ab":
        np.save(tmp_path / f"{name}.npy", np.random.default_rng(1).normal(size=(50, 4, 32)).astype(np.float32))
        (tmp_path / f"{name}.txt").write_text("".join(f"{name}{i}\n" for i in range(50)))

    def put(name: str) -> Ran:
        ids = tmp_path / f"{name}.txt"
        source = tmp_path / f"{name}.npy"
        return capbench("import-features", source, "--format", "scan", "--ids", ids, "--out", out, "--replace")

    (tmp_path / "out").mkdir()
    out = tmp_path / "out" / "a.h5"
    assert put("a").code == 0
    before = out.read_bytes()
    for limit in (100, len(before) // 2, len(before) - 100):
        with room_for(limit):
            full = put("b")
        _is_one_line(full)
        assert _whole(out.parent) == {"a.h5": before}
    assert put("b").code == 0
    with open_store(out) as store:
        assert set(store.ids) == {f"b{i}" for i in range(50)}
    assert capbench("features", "verify", out).code == 0


@pytest.mark.parametrize("many", FEW)
def test_a_training(many: bool, capbench: Callable[..., Ran], tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    pytest.importorskip("torch")
    from tests.training.world import log_of, make_world, settings

    config = settings(make_world(tmp_path / "world"), epochs=2, checkpoint_every=2)
    file = tmp_path / "tiny.yaml"
    file.write_text(yaml.safe_dump(config.to_dict()))
    assert capbench("train", "scan", file, "--out", tmp_path / "calm").code == 0
    right = _whole(tmp_path / "calm")
    sizes = [len(content) for name, content in right.items() if many or name in ("log.jsonl", "checkpoint.pt")]
    for limit in _limits(sizes, many):
        run = tmp_path / f"run{limit}"
        with room_for(limit):
            full = capbench("train", "scan", file, "--out", run)
        _is_one_line(full)
        whole = _whole(run) if run.exists() else {}
        for name in ("run.json", "model.safetensors"):
            assert whole.get(name, right[name]) == right[name], (limit, name)
        again = capbench("train", "scan", file, "--out", run)
        assert again.code == 0, (limit, again.err)
        assert (run / "model.safetensors").read_bytes() == right["model.safetensors"]
        assert log_of(run) == log_of(tmp_path / "calm")
        assert _whole(run).keys() == right.keys()
        assert not list(run.glob("*.part"))


def test_setup_of_the_parser(capbench: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from capbench.text.spice import parser

    stick = tmp_path / "stick"
    stick.mkdir()
    contents = {f"{name}-1.jar": np.random.default_rng(1).bytes(size) for name, size in (("a", 3000), ("b", 9000))}
    pinned = []
    for name, content in contents.items():
        (stick / name).write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        pinned.append(parser.PinnedFile("org.example", name[0], "1", "", len(content), digest))
    monkeypatch.setattr(parser, "SPICE_FILES", tuple(pinned))
    for limit, there in ((0, set()), (2999, set()), (3000, {"a-1.jar"}), (8999, {"a-1.jar"})):
        cache = tmp_path / f"cache{limit}"
        cache.mkdir()
        monkeypatch.setenv("CAPBENCH_CACHE", str(cache))
        with room_for(limit):
            full = capbench("setup", "spice", "--from", stick)
        _is_one_line(full)
        folder = cache / "spice-parser"
        assert _whole(folder) == {name: contents[name] for name in there}
        assert not list(folder.glob(".part-*"))
        again = capbench("setup", "spice", "--from", stick)
        assert again.code == 0, again.err
        assert _whole(folder) == contents


CANDIDATES = [{"image_id": number, "caption": f"a dog runs over {number} stones"} for number in range(300)]
REFERENCES = {str(number): [f"one dog runs over {number} rocks", "a stone"] for number in range(300)}


@pytest.fixture
def own_captions(tmp_path: Path) -> tuple[object, ...]:
    (tmp_path / "candidates.json").write_text(json.dumps(CANDIDATES))
    (tmp_path / "references.json").write_text(json.dumps(REFERENCES))
    return "--candidates", tmp_path / "candidates.json", "--references", tmp_path / "references.json", "--json"


@pytest.mark.parametrize("many", FEW)
def test_scores_without_room_to_keep_them(
    many: bool,
    own_captions: tuple[object, ...],
    capbench: Callable[..., Ran],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    command = ("score", "-m", "bleu-4", "-m", "rouge-l", *own_captions)
    monkeypatch.setenv("CAPBENCH_CACHE", str(tmp_path / "calm"))
    calm = capbench(*command)
    size = (tmp_path / "calm" / "scores.sqlite").stat().st_size
    for limit in _limits([size], many):
        monkeypatch.setenv("CAPBENCH_CACHE", str(tmp_path / f"cache{limit}"))
        with room_for(limit), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            full = capbench(*command)
        assert (full.code, full.out) == (0, calm.out), full.err
        lines = [str(warning.message) for warning in caught] + full.err.splitlines()
        assert sum("'scores' cannot be used" in line for line in lines) == 1, lines
        again = capbench(*command)
        assert (again.code, again.out) == (0, calm.out), again.err
        cached = capbench(*command)
        assert cached.out == calm.out
        assert "600 scores came from the cache" in cached.err


@pytest.mark.filterwarnings("ignore:the cache 'parses' cannot be used")
@pytest.mark.parametrize("limit", [0, 5000, 40_000])
def test_parses_without_room_to_keep_them(limit: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPBENCH_CACHE", str(tmp_path))
    batches = [[(b"%d %d" % (batch, i), b"parse" * 40) for i in range(50)] for batch in range(8)]
    with room_for(limit), Cache("parses") as cache:
        for batch in batches:
            cache.put("parser", batch)
        assert cache.path is None
    with Cache("parses") as cache:
        for batch in batches:  # a batch is there whole, or not at all
            kept = cache.get("parser", [key for key, _ in batch])
            assert kept == dict(batch) or not kept
            cache.put("parser", batch)
        assert dict(cache.entries("parser")) == dict(entry for batch in batches for entry in batch)


def test_meteors_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from capbench.text.meteor import paraphrases

    (tmp_path / "jar" / "data").mkdir(parents=True)
    with gzip.open(tmp_path / "jar" / "data" / "paraphrase-en.gz", "wt", encoding="utf-8") as stream:
        stream.write("".join(f"0.5\nthe phrase {number}\nword {number}\n" for number in range(500)))
    monkeypatch.setattr(paraphrases, "meteor_jar", lambda: SimpleNamespace(path=tmp_path / "jar" / "meteor.jar"))
    paraphrases.paraphrase_table.cache_clear()
    try:
        for limit in (0, 1000):
            monkeypatch.setenv("CAPBENCH_CACHE", str(tmp_path / f"cache{limit}"))
            with room_for(limit), raises(UsageError, "unwritable"):
                paraphrases.paraphrase_table()
            assert _whole(tmp_path / f"cache{limit}" / "meteor") == {}
            assert not list((tmp_path / f"cache{limit}" / "meteor").glob("*.part"))
            assert "499" in paraphrases.paraphrase_table().words
            paraphrases.paraphrase_table.cache_clear()
    finally:
        paraphrases.paraphrase_table.cache_clear()
