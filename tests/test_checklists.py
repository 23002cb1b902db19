"""CONTRIBUTING's checklists of a metric and of a data set are complete: a copy of the package works after them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

SOURCE = """  album:
    title: Album
    licence: free
    page: https://example.org/album
    terms: an example
    manual: Write the files
"""
ENTRY = """  album:
    title: Album
    citation: A. Author, Album, 2026
    what: one rating (1 to 5) of each caption
    judgements: 6 ratings
    needs:
      - {role: captions and ratings, any_of: [[album/captions.tsv, album/stars.tsv]]}
"""
FILES = """  album/captions.tsv: {what: captions, source: album, counts: [{of: captions, how: lines, expected: 4}]}
  album/stars.tsv: {what: ratings, source: album, counts: [{of: ratings, how: lines, expected: 6}]}
"""
PAPERS = """
@misc{author2026length,
  author = {Author, A.},
  title = {Length},
  year = {2026},
  capbench-metrics = {length-ratio},
}

@misc{author2026album,
  author = {Author, A.},
  title = {Album},
  year = {2026},
  capbench-datasets = {album},
}
"""


def insert(path: Path, after: str, text: str) -> None:
    content = path.read_text("utf-8")
    assert content.count(after) == 1, (path, after)
    path.write_text(content.replace(after, after + text), "utf-8")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of package and tests with the metric and the data set that docs/extend.md shows, by the checklists."""
    for name in ("capbench", "tests", "data", "docs", "scripts", "configs"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("*.h5"))
    package = tmp_path / "capbench"
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/extend.md").read_text("utf-8"), re.DOTALL)
    metric, album = (next(code for code in blocks if f"class {name}(" in code) for name in ("LengthRatio", "Album"))
    metric = metric.replace('citation = "an example"', 'citation = "A. Author, Length, 2026"')
    album = album.replace('citation = "an example"', 'citation = "A. Author, Album, 2026"')
    album = album.replace("    groups = ()\n", '    groups = ()\n    version, versions = "1", {"1": "as published"}\n')
    (package / "metrics" / "length_ratio.py").write_text(metric, "utf-8")
    (package / "datasets" / "album.py").write_text(album, "utf-8")
    built_in = package / "core" / "built_in.py"
    insert(
        built_in, '"capbench.metrics": {\n', '        "length-ratio": "capbench.metrics.length_ratio:LengthRatio",\n'
    )
    insert(built_in, '"capbench.datasets": {\n', '        "album": "capbench.datasets.album:Album",\n')
    catalog = package / "datasets" / "catalog.yaml"
    terms = "  album: {licence: MIT, derived: true}\n"
    for key, text in (("sources", SOURCE), ("datasets", ENTRY), ("captions", terms), ("files", FILES)):
        insert(catalog, f"\n{key}:\n", text)
    bibliography = package / "reports" / "bibliography.bib"
    bibliography.write_text(bibliography.read_text("utf-8") + PAPERS, "utf-8")
    folder = tmp_path / "data-folder" / "album"
    folder.mkdir(parents=True)
    (folder / "captions.tsv").write_text("a\ta boat\na\ta ship\nb\ta hill\nb\tgrass\n", "utf-8")
    stars = ["a\ta big boat\t5", "a\ta dog\t1", "a\tsea\t3", "b\ta green hill\t5", "b\ta car\t1", "b\tsome grass\t4"]
    (folder / "stars.tsv").write_text("\n".join([*stars, ""]), "utf-8")
    return tmp_path


def run(checkout: Path, *words: str, data: str = "data-folder") -> str:
    environment = {**os.environ, "PYTHONPATH": str(checkout), "CAPBENCH_DATA": data and str(checkout / data)}
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=checkout, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_a_metric_and_a_data_set_are_added_by_the_checklists(checkout: Path) -> None:
    result = json.loads(run(checkout, "capbench", "correlate", "-d", "album", "-m", "length-ratio", "--json"))
    assert {(cell["protocol"], cell["column"]) for cell in result["cells"]} == {("album/others/tau-c", "length-ratio")}
    described = json.loads(run(checkout, "capbench", "data", "info", "album", "--json"))
    assert (described["captions"]["licence"], described["needs"][0]["met"]) == ("MIT", True)
    assert "length-ratio: " in run(checkout, "capbench", "metrics", "--check", "length-ratio")
    tests = ("tests/datasets/test_catalog.py", "tests/datasets/test_versions.py", "tests/reports/test_cite.py")
    names = ("data_set", "metric", "catalog", "version", "entr")
    run(checkout, "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", *tests, "-k", " or ".join(names), data="")
