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


def test_readme_shows_what_the_demo_prints(capbench: Callable[..., Ran], tmp_path: Path) -> None:
    printed = capbench("correlate", "demo", "--data", "sample", "--out", tmp_path / "out").out
    (shown,) = re.findall(
        r"```text\n(data: embedded.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL
    )
    numbers = [line.split() for line in shown.splitlines() if re.match(r" (BLEU|ROUGE|METEOR|CIDEr)", line)]
    assert len(numbers) == 5
    lines = [line.split() for line in printed.splitlines()]
    assert all(row in lines for row in numbers)


@pytest.mark.parametrize(
    "page", ["README.md", "CONTRIBUTING.md", *(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md"))]
)
def test_links_within_the_project_lead_somewhere(page: str) -> None:
    path = ROOT / page
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (path.parent / target).exists(), target
