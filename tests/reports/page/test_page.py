"""The text of a report: its policy, its data, what it says where something is lacking."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import replace
from html import escape, unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from capbench import correlate
from capbench.core.errors import UsageError
from capbench.reports.page import report_page, write_report
from capbench.reports.page.elements import Html, ReportSource, data_block, tag
from capbench.reports.page.items import (
    MAX_ITEMS,
    MAX_PICTURES,
    MAX_REFERENCES,
    MAX_THUMBNAIL_BYTES,
    images_listed_first,
    panels,
    thumbnails,
)
from capbench.reports.page.overview import choices, entries, statistic_words
from tests.errors import raises
from tests.reports.page.world import HOSTILE, hostile_source, make_items, make_result, make_source

VENDOR = Path(__file__).parents[3] / "capbench" / "reports" / "page" / "vendor"


class _Reader(HTMLParser):
    """Every element's name and attributes, and the texts of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.codes: list[tuple[str, str]] = []
        self._in = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._in = tag if tag in ("script", "style") else ""

    def handle_endtag(self, tag: str) -> None:
        self._in = ""

    def handle_data(self, data: str) -> None:
        if self._in:
            self.codes.append((self._in, data))


def data_of(page: str) -> dict[str, Any]:
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert match is not None
    read: dict[str, Any] = json.loads(match[1])
    return read


def test_the_policy_names_the_pages_own_scripts_and_style_and_nothing_else() -> None:
    page = _Reader(report_page([make_source()]))
    (policy,) = [a["content"] for name, a in page.elements if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["img-src"] == "data:"

    def digest(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    styles = [text for name, text in page.codes if name == "style"]
    scripts = [text for name, text in page.codes if name == "script" and not text.startswith("{")]
    assert [rules["style-src"]] == [digest(text) for text in styles]
    assert rules["script-src"].split() == [digest(text) for text in scripts]
    assert "unsafe" not in policy


@pytest.mark.parametrize("source", [make_source(), hostile_source()], ids=["usual", "hostile"])
def test_no_element_loads_anything_or_carries_a_style_or_a_handler(source: ReportSource) -> None:
    for name, attributes in _Reader(report_page([source])).elements:
        assert not any(key == "style" or key.startswith("on") for key in attributes), (name, attributes)
        for key in ("src", "href", "action", "data", "srcset"):
            value = attributes.get(key)
            assert value is None or value.startswith(("#", "data:")), (name, value)
        assert name not in ("iframe", "object", "embed", "form", "base")


def test_a_hostile_study_has_the_elements_of_a_harmless_one() -> None:
    harmless = {name for name, _ in _Reader(report_page([make_source()])).elements}
    assert {name for name, _ in _Reader(report_page([hostile_source()])).elements} <= harmless
    assert HOSTILE[0] in data_of(report_page([hostile_source()]))["panels"][0]["caption"]  # the very text, as data


def test_the_same_sources_give_the_same_page() -> None:
    assert report_page([make_source()]) == report_page([make_source()])


def test_studies_of_one_name_are_told_apart() -> None:
    data = data_of(report_page([make_source(), make_source(seed=1)]))
    assert {row["t"][-1] for row in data["numbers"]} == {"toy", "toy (2)"}
    assert len({panel["title"] for panel in data["panels"]}) == 2


def test_the_list_of_best_metrics_names_the_study_where_there_are_several() -> None:
    one = report_page([make_source()])
    two = report_page([make_source(), make_source(seed=1, name="another")])
    lists = [re.findall(r"Which metric agrees best.*?</table>", page, re.DOTALL)[0] for page in (one, two)]
    assert ["<td>another</td>" in text for text in lists] == [False, True]
    assert [len(set(re.findall(r"<tr>.*?</tr>", text, re.DOTALL))) for text in lists] == [3, 5]  # a head, two each


def _tables(page: str, kind: str) -> list[list[list[list[str]]]]:
    """The words of the cells of all tables of one class, row by row."""
    found = re.findall(rf'<table class="[^"]*\b{kind}\b[^"]*".*?</table>', page, re.DOTALL)
    rows = [re.findall(r"<tr.*?</tr>", table, re.DOTALL) for table in found]
    cells = [[re.findall(r"<t[hd].*?</t[hd]>", row, re.DOTALL) for row in table] for table in rows]
    return [[[unescape(re.sub(r"<[^>]+>", " ", cell)).split() for cell in row] for row in table] for table in cells]


def test_all_tables_of_the_overview_begin_with_the_best_metric() -> None:
    # The first protocol's order is that of the study, the second one's is not: 0.39, 0.38, 0.40.
    source = make_source()
    turned = dict(reversed(source.result.columns.items()))
    source = replace(source, result=source.result.model_copy(update={"columns": turned}))
    page = report_page([source])
    first, second = _tables(page, "forest")
    assert [row[0][0] for row in first] == ["CIDEr", "METEOR", "BLEU-4", "human"]
    assert [row[0][0] for row in second] == ["BLEU-4", "CIDEr", "METEOR"]
    assert [row[2][0] for row in second] == ["0.4000", "0.3900", "0.3800"]
    assert second[0][3] == ["[0.340,", "0.420]"]
    (matrix,) = _tables(page, "matrix")
    assert [row[0][0] for row in matrix[1:]] == ["CIDEr", "METEOR", "BLEU-4", "TIGEr", "human"]
    rows = data_of(page)["numbers"]
    by_place: dict[tuple[str, ...], list[float]] = {}
    for row in rows:
        by_place.setdefault((row["t"][10], row["t"][2]), []).append(row["s"][4])
    assert len(by_place) == 3
    assert all(values == sorted(values, reverse=True) for values in by_place.values())
    assert re.findall(r"<summary><b>(.*?)</b>", page)[:4] == ["CIDEr", "METEOR", "BLEU-4", "TIGEr"]


def test_a_forest_plot_draws_each_value_in_its_interval_on_one_scale() -> None:
    plot = re.findall(r'<table class="forest".*?</table>', report_page([make_source()]), re.DOTALL)[0]
    at = [float(x) for x in re.findall(r'<circle cx="([\d.]+)"', plot)]
    bars = [tuple(map(float, bar)) for bar in re.findall(r'x1="([\d.]+)"[^>]*x2="([\d.]+)"[^>]*class="interval"', plot)]
    lines = [float(x) for x in re.findall(r'x1="([\d.]+)"[^>]*class="reference"', plot)]
    values, scale = [0.44, 0.42, 0.31, 0.74], (0.25, 0.74)  # the lowest end, 0.31 - 0.06, to the human ceiling
    expected = [4 + 232 * (value - scale[0]) / (scale[1] - scale[0]) for value in values]
    assert at == pytest.approx(expected, abs=0.06)
    assert len(bars) == 3  # the ceiling has no interval
    assert all(low < point < high for point, (low, high) in zip(at, bars, strict=False))
    assert lines == pytest.approx([expected[0]] * 4, abs=0.06)


def test_heads_are_words_and_ids_only_where_the_words_are_equal() -> None:
    source = make_source()
    page = report_page([source])
    (matrix,) = _tables(page, "matrix")
    heads = [" ".join(head) for head in matrix[0]]
    assert heads == ["metric", "Flickr8k Expert Kendall's τ-c", "Flickr8k Expert Kendall's τ-b"]
    assert "Flickr8k Expert, Kendall&#x27;s τ-c" in page
    alike = tuple(info.model_copy(update={"statistic": "τ-c"}) for info in source.result.protocols)
    page = report_page([replace(source, result=source.result.model_copy(update={"protocols": alike}))])
    (matrix,) = _tables(page, "matrix")
    assert [head[-1] for head in matrix[0][1:]] == ["unaggregated-tau-c", "mean-tau-b"]


@pytest.mark.parametrize(
    ("statistic", "level", "kind", "words"),
    [
        ("ρ", "captions", "correlation", "Spearman's ρ"),
        ("acc-eq", "captions", "correlation", "pairwise accuracy acc*_eq"),
        ("within-image τ-b", "images", "correlation", "Kendall's τ-b within images"),
        ("within-image difference r", "images", "correlation", "Pearson's r of differences within images"),
        ("system soft accuracy", "systems", "correlation", "soft accuracy over systems"),
        ("accuracy", "captions", "accuracy", "accuracy, %"),
        ("mean", "captions", "mean", "mean"),
    ],
)
def test_statistics_have_words(statistic: str, level: str, kind: str, words: str) -> None:
    (info, *_) = make_source().result.protocols
    info = info.model_copy(update={"statistic": statistic, "level": level, "kind": kind})
    assert statistic_words(info) == words


def test_numbers_are_those_of_the_study_with_ranks_of_the_tests() -> None:
    source = make_source()
    by_key = {(e.info.id, e.cell.group, e.cell.column): e for e in entries([source])}
    tested, untested = source.result.protocols[0].id, source.result.protocols[1].id
    assert [by_key[tested, "", name].rank for name in ("cider", "meteor", "bleu-4")] == [1, 1, 2]
    assert [by_key[untested, "", name].rank for name in ("cider", "meteor", "bleu-4")] == [2, 3, 1]
    assert by_key[tested, "", "meteor"].top
    assert not by_key[untested, "", "meteor"].top
    assert "(by value, untested)" in by_key[untested, "", "cider"].tip
    rows = data_of(report_page([source]))["numbers"]
    assert len(rows) == len(source.result.cells)
    assert rows[0]["t"][:8] == ["CIDEr", "Flickr8k Expert", "all", "τ-c", "0.4400", "0.3800", "0.4600", "1"]
    assert rows[0]["s"][4] == source.result.cells[0].value


def test_what_is_missing_is_said_with_the_reason_and_items_with_the_command_that_adds_them() -> None:
    page = report_page([make_source(items=False)])
    assert "region features" in page
    assert "capbench correlate toy --out results/toy --items" in page
    assert 'id="items"' not in page


def test_provenance_names_files_signatures_and_the_command(tmp_path: Path) -> None:
    from capbench.reports.page import read_source
    from capbench.studies.item_scores import write_items

    source = make_source()
    (tmp_path / "results.json").write_text(source.result.model_dump_json(), encoding="utf-8")
    write_items(source.items, tmp_path / "items.json.gz")
    read = read_source(tmp_path)
    assert read.result == source.result
    assert read.items == source.items
    page = report_page([read], command="capbench figure report 'a b'")
    for name in ("results.json", "items.json.gz"):
        assert hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() in page
    assert "capbench figure report &#x27;a b&#x27;" in page
    assert "cider|capbench:0.1.0|tok:ptb" in page


def test_protocols_say_what_changes_with_another_one_on_the_same_judgements() -> None:
    page = report_page([make_source()])
    # 0.44 0.42 0.31 against 0.39 0.38 0.40: one pair of three is in one order, two are in another.
    assert "the rankings of 3 metrics agree with τ-b -0.33; BLEU-4 comes first in place of CIDEr" in page


def test_every_part_of_an_id_that_is_known_is_explained_once() -> None:
    info = make_result().protocols[0].model_copy(update={"id": "x/no-own-captions/within-image-tau-b"})
    first = [means.split(" ")[0] for means, _ in choices(info)]
    assert len(first) == len(set(first)) == 3
    assert choices(info.model_copy(update={"id": "tau-b/mine/own"})) == []  # the data set's name is not a choice


def test_a_large_study_keeps_the_captions_on_which_metrics_and_people_part_most() -> None:
    from capbench.studies.item_scores import disagreement

    items = make_items(MAX_ITEMS + 500, ["cider", "meteor"])
    (panel,) = panels([ReportSource(make_result(), (items,))])
    assert panel["all"] == MAX_ITEMS + 500
    assert len(panel["caption"]) == MAX_ITEMS
    distance = disagreement(items)
    kept = {int(text.split()[2]) for text in panel["caption"]}
    left = [value for place, value in enumerate(distance) if place not in kept]
    assert max(left) <= min(distance[place] for place in kept)


def test_references_are_cut_and_counted() -> None:
    items = make_items(8, ["cider"]).model_copy(update={"reference_lists": [["a"] * 9, ["b"]]})
    (panel,) = panels([ReportSource(make_result(), (items,))])
    assert panel["refLists"] == [["a"] * MAX_REFERENCES, ["b"]]
    assert panel["refCounts"] == [9, 1]


def test_a_metric_without_a_score_of_a_caption_leaves_a_gap() -> None:
    items = make_items(8, ["cider"])
    items = items.model_copy(update={"scores": {"cider": [None, *items.scores["cider"][1:]]}})
    page = report_page([ReportSource(make_result(), (items,))])
    (metric,) = data_of(page)["panels"][0]["metrics"]
    assert metric["pct"][0] is None
    assert metric["score"][0] is None
    assert None not in metric["pct"][1:]


def test_pictures_are_small_and_few_and_those_that_cannot_be_read_are_listed(tmp_path: Path) -> None:
    items = make_items(4 * (MAX_PICTURES + 30), ["cider", "meteor"])
    wanted = images_listed_first([items])
    assert len(wanted) == len(set(wanted)) == MAX_PICTURES
    noise = tmp_path / "noise.png"  # what JPEG makes the least of
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (600, 800, 3), dtype=np.uint8)).save(noise)
    broken = tmp_path / "broken.jpg"
    broken.write_bytes(b"no picture")
    urls, problems = thumbnails(wanted[:3], {wanted[0]: noise, wanted[1]: broken})
    assert list(urls) == wanted[:1]
    data = base64.b64decode(urls[wanted[0]].removeprefix("data:image/jpeg;base64,"))
    assert len(data) <= MAX_THUMBNAIL_BYTES
    assert len(problems) == 1
    assert "broken.jpg" in problems[0]


def test_images_of_one_name_in_two_data_sets_keep_their_own_pictures(tmp_path: Path) -> None:
    for name in ("one", "other"):
        Image.new("RGB", (8, 8), "red" if name == "one" else "blue").save(tmp_path / f"{name}.png")
    first = make_items(8, ["cider"])
    second, third = (first.model_copy(update={"items": f"{name}/as-given"}) for name in ("other", "none"))
    image = first.images[0]

    def pictures(dataset: str, images: Iterable[str]) -> dict[str, Path]:
        names = {first.items.split("/")[0]: "one", "other": "other"}
        return {image: tmp_path / f"{names[dataset]}.png"} if dataset in names and image in images else {}

    data = data_of(report_page([ReportSource(make_result(), (first, second, third))], pictures=pictures))
    of_panels = [panel["picture"][panel["images"].index(image)] for panel in data["panels"]]
    assert of_panels[0] == image
    assert of_panels[1] not in (None, image)
    assert of_panels[2] is None
    assert len({data["pictures"][name] for name in of_panels[:2]}) == 2


def test_nothing_to_report_is_refused(tmp_path: Path) -> None:
    with raises(UsageError, "missing-option"):
        write_report([], tmp_path / "a.html")


def test_texts_are_escaped_and_pieces_of_html_are_not() -> None:
    assert tag("p", "<b>", Html("<i>x</i>"), title='"') == '<p title="&quot;">&lt;b&gt;<i>x</i></p>'
    with pytest.raises(ValueError, match="policy"):
        tag("p", onclick="x")
    block = data_block("d", ["</script>", "\u2028", "<!--"])
    assert block.count("<") == 2  # of the element itself
    assert json.loads(block.partition(">")[2].removesuffix("</script>")) == ["</script>", "\u2028", "<!--"]


def test_what_comes_from_elsewhere_is_unchanged_and_licensed() -> None:
    text = (VENDOR / "README.md").read_text(encoding="utf-8")
    for file in VENDOR.glob("*.js"):
        assert f"`{file.name}`" in text
        assert hashlib.sha256(file.read_bytes()).hexdigest() in text
    assert "MIT License" in (VENDOR / "LICENSE-DataTables.txt").read_text(encoding="utf-8")


def test_the_overview_answers_the_question_with_the_test_of_each_pair(tmp_path: Path) -> None:
    words = ["a", "red", "kite", "flies", "over", "the", "green", "hill", "near", "two", "boats"]
    lines = ["image,candidate,reference_1,rating"]
    for image in range(30):
        for shared in (2, 6, 10):
            text = " ".join([*words[:shared], f"w{image % 3}", *words[: image % 2]])
            lines.append(f"{image}.jpg,{text},{' '.join(words)},{1 + shared // 3 + (image * shared) % 2}")
    (tmp_path / "mine.csv").write_text("\n".join(lines) + "\n")
    result = correlate(tmp_path / "mine.csv", ["bleu-1", "rouge-l", "meteor"])
    page = report_page([ReportSource(result)])
    (answer,) = result.answers
    assert all(escape(line) in page for line in answer.text)
    (table,) = _tables(page, "plain pairs")
    (tests,) = result.comparisons
    assert len(table) == 1 + len(tests.pairs)
    for row, pair in zip(table[1:], tests.pairs, strict=True):
        texts = [" ".join(cell) for cell in row]
        assert texts[:2] == [result.columns[pair.better], result.columns[pair.worse]]
        assert texts[2] == f"{pair.difference:.4f}"
        assert texts[-1] == ("significant" if pair.significant else "not significant")
    assert "permutation test" in page
    assert "human ceiling" not in page
    assert "mine.csv (mine.csv)" not in page
    assert {len(row["t"]) for row in data_of(page)["numbers"]} == {10}
