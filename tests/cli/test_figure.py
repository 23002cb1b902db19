"""``capbench figure``, ``references`` and ``examples`` on the embedded sample."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from capbench.cli.options import parse_size
from capbench.cli.references import parse_counts
from capbench.core.errors import UsageError
from tests.conftest import Ran

Run = Callable[..., Ran]


def test_references_prints_writes_and_its_json_is_drawn_again(capbench: Run, tmp_path: Path) -> None:
    out = tmp_path / "curves"
    ran = capbench(
        *(
            "correlate",
            "--references-curve",
            "-m",
            "bleu-1",
            "-m",
            "cider",
            "--counts",
            "1-2,50",
            "--draws",
            "2",
            "--group",
            "MM",
        ),
        *("--out", out),
    )
    assert ran.code == 0, ran.err
    assert "embedded synthetic sample" in ran.out.splitlines()[0]
    assert "of 2 random orders of the references, seed 0" in ran.out
    assert "accuracy, MM" in ran.out
    rows = list(csv.DictReader((out / "curves.csv").read_text(encoding="utf-8").splitlines()))
    assert len(rows) == 2 * 3 * 5  # columns, counts, all and four groups
    assert {row["references"] for row in rows} == {"1", "2", "50"}
    assert all(len(row["values"].split()) == (1 if row["references"] == "50" else 2) for row in rows)
    drawn = tmp_path / "again.svg"
    ran = capbench("figure", "curves", out / "curves.json", "--group", "MM", "-o", drawn)
    assert ran.code == 0, ran.err
    assert drawn.read_bytes() == (out / "curves.svg").read_bytes()


def test_counts_are_lists_and_ranges() -> None:
    assert parse_counts("1,2,5-8, 3") == (1, 2, 3, 5, 6, 7, 8)
    for text in ("", "a", "1,", "5-2", "-3", "1-", "1.5", "1-999999999"):
        with pytest.raises(UsageError, match="--counts"):
            parse_counts(text)


def test_forest_and_significance_from_metrics_and_from_saved_json(capbench: Run, tmp_path: Path) -> None:
    ran = capbench("compare", "bleu-4", "rouge-l", "cider", "--bootstrap", "200", "--json")
    saved = tmp_path / "compare.json"
    saved.write_text(ran.out, encoding="utf-8")
    for kind in ("forest", "significance"):
        direct, again = tmp_path / f"{kind}.svg", tmp_path / f"{kind}-again.png"
        ran = capbench("figure", kind, "bleu-4", "rouge-l", "cider", "--bootstrap", "200", "-o", direct)
        assert ran.code == 0, ran.err
        assert direct.read_bytes().startswith(b"<?xml")
        ran = capbench("figure", kind, "--from", saved, "-o", again)
        assert ran.code == 0, ran.err
        assert again.read_bytes().startswith(b"\x89PNG")


def test_score_groups_prints_shares_that_add_up(capbench: Run, tmp_path: Path) -> None:
    out = tmp_path / "groups.svg"
    ran = capbench("figure", "score-groups", "cider", "rouge-l", "-o", out, "--json")
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    assert found["differences"] == [-3, -2, -1, 0, 1, 2, 3]
    for shares in (*found["shares"].values(), found["chance"]):
        assert sum(shares) == pytest.approx(1)
    assert found["shares"]["CIDEr"][3] > found["chance"][3]
    ran = capbench("figure", "score-groups", "cider", "-o", out)
    assert "mean distance" in ran.out


def test_examples_in_every_form(capbench: Run, tmp_path: Path) -> None:
    arguments = ("explore", "examples", "-m", "rouge-l", "--number", "1")
    ran = capbench(*arguments)
    assert ran.code == 0, ran.err
    for part in ("ROUGE-L higher than human ratings", "human ratings higher than ROUGE-L", "equal:", "by their median"):
        assert part in ran.out
    found = json.loads(capbench(*arguments, "--json").out)
    assert [e["kind"] for e in found["examples"]] == ["metric-higher", "human-higher", "equal"]
    assert found["n"] == sum(found["counts"].values()) == 300
    for ending in ("md", "html", "json"):
        out = tmp_path / f"examples.{ending}"
        assert capbench(*arguments, "--out", out).code == 0
        text = out.read_text(encoding="utf-8")
        assert found["examples"][0]["image"].replace("_", "\\_" if ending == "md" else "_") in text
    assert json.loads((tmp_path / "examples.json").read_text(encoding="utf-8")) == found
    page = (tmp_path / "examples.html").read_text(encoding="utf-8")
    assert "embedded synthetic sample" in page
    assert "<script" not in page
    table = [line for line in (tmp_path / "examples.md").read_text(encoding="utf-8").splitlines() if line[:1] == "|"]
    assert len({line.replace("\\|", "").count("|") for line in table}) == 1


def test_markup_in_captions_stays_text() -> None:
    from capbench.reports.examples import examples_document, examples_page
    from capbench.reports.markup import markdown
    from capbench.studies.examples import Example, Examples

    nasty = "<b>a | *dog*</b>"
    example = Example(kind="equal", image="i_1", candidate=nasty, references=(nasty,), human=1.0, group=1.0, score=0.5)
    about = {"protocol": "p", "dataset_title": "D", "metric": "M", "signature": "s|x", "aggregation": "unaggregated"}
    counts = {"n": 1, "counts": {"equal": 1}, "seed": 0, "sample": False}
    found = Examples.model_validate({**about, **counts, "examples": [example]})
    assert "<b>" not in examples_page(found).split("<body>")[1]
    assert "\\<b\\>a \\| \\*dog\\*" in markdown(examples_document(found))


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("correlate", "--references-curve", "-m", "cider", "--counts", "60"), "60"),
        (("correlate", "--references-curve", "-m", "cider", "--counts", "1,x"), "'x'"),
        (("correlate", "--references-curve", "-m", "cider", "--counts", "1", "--group", "XX"), "group 'XX'"),
        (("correlate", "--references-curve", "-m", "cider", "-p", "random-1-ref"), "random-1-ref"),
        (("figure", "forest", "cider"), "two"),
        (("figure", "forest", "cider", "meteor", "-o", "x.gif"), "x.gif"),
        (("figure", "forest", "cider", "--from", "compare.json"), "--from"),
        (("figure", "significance", "--from", "gone.json"), "gone.json"),
        (("figure", "ratings"), "metric"),
        (("figure", "ratings", "cider", "-d", "pascal-50s"), "pascal-50s"),
        (("figure", "curves", "gone.json"), "gone.json"),
        (("figure", "training-log", "gone.jsonl"), "gone.jsonl"),
        (("explore", "examples", "-m", "bleu"), "bleu"),
        (("explore", "examples", "-m", "cider", "--number", "500"), "500"),
        (("explore", "examples", "-m", "cider", "--out", "x.txt"), "x.txt"),
    ],
)
def test_what_does_not_fit_is_said_in_one_line(
    arguments: tuple[str, ...], named: str, capbench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = capbench(*arguments)
    assert ran.code == 2
    (line,) = [text for text in ran.err.splitlines() if text.startswith("error: ")]
    assert named in line


def test_a_figures_type_and_size_are_options(capbench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.image import imread

    monkeypatch.chdir(tmp_path)
    ran = capbench("figure", "ratings", "cider", "--size", "10x8cm", "--font-size", "6", "--title", "CIDEr by rating")
    assert ran.code == 0, ran.err
    assert imread("ratings.png").shape[:2] == (int(8 / 2.54 * 160), int(10 / 2.54 * 160))
    assert capbench("figure", "ratings", "cider", "--format", "svg").code == 0
    assert Path("ratings.svg").read_text(encoding="utf-8").startswith("<?xml")
    assert capbench("figure", "ratings", "cider", "--format", "pdf", "--out", "by-rating").code == 0
    assert Path("by-rating.pdf").read_bytes().startswith(b"%PDF")
    assert Path("by-rating.txt").is_file()  # the caption


def test_a_caption_is_below_the_figure_or_in_a_file_next_to_it(capbench: Run, tmp_path: Path) -> None:
    with_caption, without = tmp_path / "with.svg", tmp_path / "without.svg"
    call = ("figure", "forest", "bleu-4", "rouge-l", "--bootstrap", "100", "--out")
    assert capbench(*call, with_caption).code == 0
    assert not with_caption.with_suffix(".txt").exists()
    ran = capbench(*call, without, "--no-caption", "--title", "Two metrics")
    assert ran.code == 0
    assert "without.txt" in ran.err
    text = without.with_suffix(".txt").read_text(encoding="utf-8")
    assert text.startswith("Two metrics. Flickr8k Expert, Kendall's τ-c. embedded synthetic sample")
    for fact in ("no-own-captions/unaggregated-tau-c", "100 resamples", "permutation test", "α = 0.05"):
        assert fact in text
    assert without.stat().st_size < with_caption.stat().st_size


def test_sizes_have_units() -> None:
    assert parse_size("6x4") == (6.0, 4.0)
    assert parse_size("6×4 in") == (6.0, 4.0)
    assert parse_size("25.4x50.8cm") == pytest.approx((10.0, 20.0))
    assert parse_size("254x127mm") == pytest.approx((10.0, 5.0))
