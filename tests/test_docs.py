"""What the documentation shows works as it stands there, and what CONTRIBUTING.md names exists."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from capbench import __version__
from scripts import make_docs, readme
from tests.conftest import Ran
from tests.plugged import on_path

ROOT = Path(__file__).resolve().parent.parent


def installed_example(heading: str, name: str, folder: Path) -> Path:
    """Install the package that a section of docs/extend.md shows; the folder it is installed into."""
    page = (ROOT / "docs/extend.md").read_text(encoding="utf-8")
    section = page.partition(f"## {heading}\n")[2].split("\n## ")[0]
    (project,) = re.findall(r"```toml\n(.*?)```", section, re.DOTALL)
    (code,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    assert project.count("\n") + code.count("\n") < 120
    package, target = folder / f"{name}-source", folder / "installed"
    package.mkdir()
    (package / "pyproject.toml").write_text(project, encoding="utf-8")
    (package / f"{name}.py").write_text(code, encoding="utf-8")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*install, "--disable-pip-version-check", "--target", target, package], check=True, timeout=300)
    return target


def test_the_example_data_set_is_installed_and_runs(
    tmp_path: Path, capbench: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = installed_example("A data set", "album", tmp_path)
    album = tmp_path / "my-data" / "album"
    album.mkdir(parents=True)
    captions = ["beach.jpg\ta boat on the beach", "beach.jpg\ttwo people by the sea", "hill.jpg\ta green hill"]
    (album / "captions.tsv").write_text("\n".join([*captions, "hill.jpg\tgrass on a hill", ""]), encoding="utf-8")
    stars = ["beach.jpg\tA boat on the beach.\t5", "beach.jpg\ta boat by the sea\t4", "beach.jpg\ta dog\t1"]
    stars += ["hill.jpg\ta green hill with grass\t5", "hill.jpg\ta hill\t3", "hill.jpg\tthe inside of a car\t1"]
    (album / "stars.tsv").write_text("\n".join([*stars, ""]), encoding="utf-8")
    data = ("--data", tmp_path / "my-data")
    with on_path(target, monkeypatch):
        monkeypatch.delitem(sys.modules, "album", raising=False)
        listed = capbench("data", "info", "--protocols", "album")
        assert listed.code == 0, listed.err
        assert "album/others/tau-c" in listed.out
        assert "as all, but a reference with the candidate's text is left out" in listed.out
        described = json.loads(capbench("data", "info", "album", "--json").out)
        assert (described["title"], described["captions"]["licence"]) == ("Album", "unknown")
        ran = capbench("correlate", "-d", "album", "-m", "cider", "-m", "rouge-l", *data, "--json")
        assert ran.code == 0, ran.err
        (protocol,) = {cell["protocol"] for cell in json.loads(ran.out)["cells"]}
        assert protocol == "album/others/tau-c"
        compared = capbench("compare", "cider", "rouge-l", "-d", "album", "-p", "all/spearman", *data)
        assert compared.code == 0, compared.err
        (album / "stars.tsv").write_text("\n".join([*stars, "hill.jpg\ta tree\t6", ""]), encoding="utf-8")
        refused = capbench("correlate", "-d", "album", "-m", "cider", *data)
        assert refused.code == 2
        assert "stars.tsv, row 7: 'stars':" in refused.err


def test_the_site_has_all_pages_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="the extra 'docs' is not installed")
    script = [sys.executable, str(ROOT / "scripts" / "make_docs.py"), "--out", str(tmp_path)]
    built = subprocess.run(script, capture_output=True, text=True, timeout=300)
    assert built.returncode == 0, built.stdout + built.stderr
    site = tmp_path / "site"
    for page in make_docs.pages():
        written = site / ("index.html" if page == "README.md" else page.replace(".md", ".html"))
        assert re.search(r"<h1[^>]*>", written.read_text(encoding="utf-8")), page
    for path in [*site.rglob("*.html"), *site.rglob("*.css")]:
        text = path.read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|link|img|iframe)\b[^>]*(?:src|href)=[\"'](?:https?:)?//[^>]*>", text)
        loaded += re.findall(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//[^;)]*", text)
        assert loaded == [], path.name


def test_the_citation_names_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == __version__
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert citation["license"] == project["license"]
    assert [author["name"] for author in citation["authors"]] == [author["name"] for author in project["authors"]]
    assert citation["keywords"] == project["keywords"]


def test_readmes_table_is_that_of_the_results() -> None:
    assert readme.readme() == (ROOT / "README.md").read_text(encoding="utf-8"), "run scripts/readme.py"


def test_the_demos_page_shows_its_output(
    capbench: Callable[..., Ran], sample_store: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "features").symlink_to(sample_store.parent)
    monkeypatch.chdir(tmp_path)  # where features/sample.h5 is looked for
    ran = capbench("correlate", "demo", "--data", "sample", "--out", tmp_path / "out")
    assert ran.code == 0, ran.err
    page = (ROOT / "docs" / "tutorials" / "demo.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"```text\n(data: embedded.*?)```", page, re.DOTALL)
    # Other processors and libraries round a network's sums otherwise, which may exchange neighbours.
    row = re.compile(r"(\S.*?)((?: +\d+\.\d)+)$")
    printed, found = (
        {m[1]: m[2].split() for line in text.splitlines() if (m := row.match(line))} for text in (shown, ran.out)
    )
    assert len(printed) == 15
    assert printed.keys() == found.keys()
    for title, numbers in printed.items():
        near = 0.0 if title in ("BLEU-1", "BLEU-4", "ROUGE-L", "METEOR", "CIDEr") else 1.0
        assert [*map(float, found[title])] == pytest.approx([*map(float, numbers)], abs=near)
    ends = [line for line in shown.splitlines() if "human ceiling" in line or "--details" in line]
    assert all(line in ran.out for line in ends)


@pytest.mark.parametrize(
    "page", ["README.md", "CONTRIBUTING.md", *(p.relative_to(ROOT).as_posix() for p in (ROOT / "docs").rglob("*.md"))]
)
def test_links_within_the_project_lead_somewhere(page: str) -> None:
    path = ROOT / page
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (path.parent / target).exists(), target


TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
CODE = re.compile(r"`([^`\n]+)`")
GENERATED = {"docs/cli/", "build/site", "dist/", "build/"}
PATHS = sorted({word for word in CODE.findall(TEXT) if re.fullmatch(r"[\w./-]*/[\w./-]*", word)} - GENERATED)
CALLS = sorted({word for word in CODE.findall(TEXT) if re.fullmatch(r"[A-Za-z_]\w*(\.\w+)*(\([\w, ]*\))?", word)})


@pytest.mark.parametrize("path", PATHS)
def test_every_path_exists(path: str) -> None:
    assert (ROOT / path).exists() or (ROOT / "capbench" / path).exists(), path


def test_every_name_occurs_in_the_code() -> None:
    places = [*ROOT.glob("capbench/**/*.py"), *ROOT.glob("scripts/**/*.py"), *ROOT.glob("tests/*.py")]
    places += [ROOT / name for name in ("pyproject.toml", "Makefile", ".github/workflows/ci.yml", "tests/faults.yaml")]
    code = "\n".join(path.read_text(encoding="utf-8") for path in places)
    words = set(re.findall(r"\w+", code)) | {path.name for path in ROOT.glob("capbench/*")}
    named = {word.partition("(")[0] for word in CALLS} - {"vX.Y.Z"}
    assert [word for word in named if not set(word.split(".")) <= words] == []


def test_public_methods_have_a_docstring_or_inherit_one() -> None:
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in ROOT.glob("capbench/**/*.py")]
    classes = [node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)]
    bases: dict[str, set[str]] = {}
    said: dict[str, set[str]] = {}
    for cls in classes:
        names = {ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in cls.bases}
        bases.setdefault(cls.name, set()).update(names)
        methods = [node for node in cls.body if isinstance(node, ast.FunctionDef)]
        said.setdefault(cls.name, set()).update(method.name for method in methods if ast.get_docstring(method))

    def inherited(name: str) -> set[str]:
        return said.get(name, set()).union(*(inherited(base) for base in bases.get(name, set()) - {name}))

    missing = [
        f"{cls.name}.{node.name}"
        for cls in classes
        if not cls.name.startswith("_") and "Protocol" not in bases[cls.name]
        for node in cls.body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
        if node.name not in inherited(cls.name)
    ]
    assert not missing, missing
