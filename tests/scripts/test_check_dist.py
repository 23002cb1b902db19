from __future__ import annotations

import hashlib
import io
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

import pytest

from scripts.check_dist import MAX_BYTES, check, published_checksums, sdist_paths, wheel_paths

TRACKED = ["capbench/__init__.py", "configs/tasks/default.yaml", "data/sample/scenes.json", "docs/a.md", ".ci/run"]
_RATINGS = b"ratings of others"
_PUBLISHED = {hashlib.sha256(_RATINGS).hexdigest(): "set/ratings.csv"}


def _build(folder: Path, wheel: Iterable[str], sdist: Iterable[str], content: bytes = b"x") -> list[str]:
    """Problems of archives with these paths."""
    name = min(sdist).partition("/")[0]
    with zipfile.ZipFile(folder / f"{name}-py3-none-any.whl", "w") as built:
        for path in wheel:
            built.writestr(path, content)
    with tarfile.open(folder / f"{name}.tar.gz", "w:gz") as archive:
        for path in sdist:
            member = tarfile.TarInfo(path)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return check(folder, TRACKED, _PUBLISHED)


@pytest.fixture
def dist(tmp_path: Path) -> Path:
    folder = tmp_path / "dist"
    folder.mkdir()
    return folder


def test_configs_and_sample_are_in_the_package_and_repository_files_are_not_distributed(dist: Path) -> None:
    wheel, sdist = wheel_paths(TRACKED), sdist_paths(TRACKED)
    assert {path for path in wheel if ".dist-info/" not in path} == {
        "capbench/__init__.py",
        "capbench/_configs/tasks/default.yaml",
        "capbench/_sample/scenes.json",
    }
    assert {path.partition("/")[2] for path in sdist} == {*TRACKED, "PKG-INFO"} - {".ci/run"}
    assert _build(dist, wheel, sdist) == []


def test_each_missing_untracked_published_or_large_file_is_a_problem(dist: Path) -> None:
    wheel, sdist = wheel_paths(TRACKED), sdist_paths(TRACKED)
    (missing,) = _build(dist, wheel - {"capbench/_sample/scenes.json"}, sdist)
    assert "capbench/_sample/scenes.json is missing" in missing
    (untracked,) = _build(dist, wheel | {"capbench/_sample/images/mine.jpg"}, sdist)
    assert "capbench/_sample/images/mine.jpg is not tracked" in untracked
    published = _build(dist, wheel, sdist, _RATINGS)
    assert len(published) == len(wheel) + len(sdist)
    assert all("set/ratings.csv" in line for line in published)
    assert _build(dist, wheel, sdist) == []
    (archive,) = dist.glob("*.tar.gz")
    with archive.open("ab") as file:
        file.write(bytes(MAX_BYTES[".gz"]))  # tarfile stops before the padding
    (large,) = check(dist, TRACKED, _PUBLISHED)
    assert large.startswith(archive.name)


def test_the_catalog_has_checksums_of_published_judgements() -> None:
    assert "flickr8k/ExpertAnnotations.txt" in published_checksums().values()
