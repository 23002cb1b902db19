"""What the documentation shows works as it stands there."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from capbench.studies.config import load_study
from tests.conftest import Ran

ROOT = Path(__file__).resolve().parent.parent


def test_the_example_metric_runs(tmp_path: Path, capbench: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch) -> None:
    code = re.findall(r"```python\n(.*?)```", (ROOT / "docs/extend.md").read_text(encoding="utf-8"), re.DOTALL)[0]
    (tmp_path / "length_metric.py").write_text(code, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    ran = capbench("correlate", "--dataset", "flickr8k-expert", "--metric", "length_metric:LengthRatio", "-m", "cider")
    assert ran.code == 0, ran.err
    assert "Length ratio" in ran.out
    capped = capbench(
        *("score", "--metric", "length_metric:LengthRatio", "--option", "length-ratio.cap=2", "--dataset", "composite")
    )
    assert capped.code == 0, capped.err
    assert "length-ratio|capbench:0.1.0|cap:2" in capped.out


def test_readmes_study_is_a_study(tmp_path: Path) -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "my-study.yaml").write_text(example, encoding="utf-8")
    assert load_study(tmp_path / "my-study.yaml").options == {"cider": {"df": "coco-val"}}


def test_readme_shows_what_the_demo_prints(
    capbench: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where features/sample.h5 is looked for
    assert capbench("extract-features", "--data", "sample", "--out", "features/sample.h5").code == 0
    ran = capbench("correlate", "demo", "--data", "sample", "--out", tmp_path / "out")
    assert ran.code == 0, ran.err
    (shown,) = re.findall(
        r"```text\n(data: embedded.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL
    )
    text = re.compile(r" (BLEU|ROUGE|METEOR|CIDEr)")
    lines = [line.split() for line in ran.out.splitlines()]
    rows = [line.split() for line in shown.splitlines() if text.match(line)]
    assert len(rows) == 5
    assert all(row in lines for row in rows)
    # Other processors and libraries round a network's sums otherwise, which may exchange neighbours.
    networks = [line.rsplit(maxsplit=3) for line in shown.splitlines() if re.match(r" (TIGEr|RRS|WDS|Mean|REO)", line)]
    assert len(networks) == 7
    for title, *numbers in networks:
        (found,) = (line.rsplit(maxsplit=3) for line in ran.out.splitlines()[:25] if line.startswith(title + " "))
        assert [float(x) for x in found[1:]] == pytest.approx([float(x) for x in numbers], abs=0.01)


@pytest.mark.parametrize(
    "page", ["README.md", "CONTRIBUTING.md", *(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md"))]
)
def test_links_within_the_project_lead_somewhere(page: str) -> None:
    path = ROOT / page
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (path.parent / target).exists(), target
