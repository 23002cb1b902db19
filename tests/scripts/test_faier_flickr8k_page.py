"""The results page about FAIEr on Flickr8k against the numbers behind it."""

from __future__ import annotations

import pytest

from capbench.core.files import read_json, read_text
from scripts.result_tables import ROOT
from scripts.result_tables import faier as tables

PAGE = ROOT / "docs" / "results" / "faier-flickr8k.md"
FOLDER = ROOT / "results" / "faier-flickr8k"


@pytest.mark.parametrize(
    ("name", "begins", "ends"),
    [
        ("results-paper.json", "## The paper's own form", "\n### "),
        ("results-paper-long.json", "### The same form, four times as long", "\n## "),
    ],
)
def test_the_paper_s_own_form_stands_as_its_results_say(name: str, begins: str, ends: str) -> None:
    page = read_text(PAGE).partition(f"{begins}\n")[2].partition(ends)[0]
    rows = tables(read_json(FOLDER / name)).splitlines()
    ours = [row for row in rows if row.startswith("| faier")]
    assert len(ours) == 12
    assert [row for row in page.splitlines() if row.startswith("| faier")] == ours


def test_the_reference_free_rows_are_those_that_are_kept() -> None:
    page = read_text(PAGE).partition("## Without references")[2].partition("\n## ")[0]
    for name, title in (("faier", "FIEr"), ("faier, ensemble", "FIEr, ensemble")):
        rows = [
            [cell.strip() for cell in row.strip("|").split("|")]
            for row in tables(read_json(FOLDER / "results-fier.json")).splitlines()
            if row.startswith(f"| {name} |")
        ]
        cells = [row[place] for row in rows for place in (3, 6)]
        assert f"| {title} | {' | '.join(cells)} |" in page


def test_the_row_without_the_image_is_the_one_that_is_kept() -> None:
    results = read_json(FOLDER / "results-aier-4-ref.json")
    (expert,), (composite,) = (results[name]["faier"][""] for name in ("expert", "composite-8k"))
    cells = [found[way]["faier"]["tau-c"] for found in (expert, composite) for way in ("all", "one")]
    assert f"| AIEr | {' | '.join(f'{value:.4f}' for value in cells)} |" in read_text(PAGE)


def test_every_look_on_dev_stands_on_the_page() -> None:
    page = read_text(PAGE)
    for look in read_json(FOLDER / "dev.json"):
        recalls = " / ".join(f"{value:.1f}" for value in look["recall sum by references"].values())
        row = next(line for line in page.splitlines() if line.startswith(f"| {look['look']} |"))
        assert recalls in row
        assert f"{look['tau-c with made-up judgements']['no references']:.3f}" in row


def test_what_word_vectors_gave_and_the_curves_stand_as_they_are_kept() -> None:
    page = read_text(PAGE)
    for cell in read_json(FOLDER / "results-vectors.json")["expert"]["tau-c"].values():
        assert f"{cell['value']:.4f} [{cell['low']:.4f}, {cell['high']:.4f}]" in page
    for name in ("composite-all-references", "composite-same-text-out", "expert"):
        rows: dict[str, dict[int, float]] = {}
        for point in read_json(FOLDER / f"figure4-{name}.json")["points"]:
            rows.setdefault(point["title"], {})[point["count"]] = point["mean"]
        for title, means in rows.items():
            cells = [f"{means[count]:.3f}" if count in means else "" for count in range(6)]
            assert f"| {title} | {' | '.join(cells)} |" in page


def test_image_and_references_beside_each_other_stand_as_they_are_kept() -> None:
    results = read_json(FOLDER / "results-fier-aier-4-ref.json")
    page = read_text(PAGE).partition("## Image and references beside each other")[2].partition("\n## ")[0]
    ours = [row for row in tables(results).splitlines() if row.startswith("| faier")]
    assert len(ours) == 12
    assert [row for row in page.splitlines() if row.startswith("| faier")] == ours
    for key in ("expert", "composite-8k"):
        for pair in results[key]["comparison"]["pairs"]:
            if {pair["better"], pair["worse"]} == {"faier, all references, ensemble", "reo-relevance, mean of 3"}:
                sign = 1 if pair["better"].startswith("faier") else -1
                low, high = sorted((sign * pair["low"], sign * pair["high"]))
                shown = [f"{value:.4f}".replace("0.", ".", 1) for value in (sign * pair["difference"], low, high)]
                assert f"{shown[0]} [{shown[1]}, {shown[2]}]" in page
