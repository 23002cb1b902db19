"""Warnings of metrics on tokens about captions that their tokeniser or resources do not cover."""

from __future__ import annotations

import pytest

from capbench.core.records import Item
from capbench.metrics.requests import resolve_metrics
from capbench.metrics.scoring import score
from tests.text.test_language import CHINESE, ENGLISH, GERMAN


def warned(metric: str, texts: list[str]) -> tuple[str, ...]:
    items = [Item(str(place), text, (texts[place - 1],)) for place, text in enumerate(texts)]
    table = score(items, resolve_metrics([metric]), dataset="mine", cache=False)
    return table.cautions.get(metric, ())


@pytest.mark.parametrize("metric", ["cider", "rouge-l", "bleu", "meteor"])
def test_captions_without_spaces_are_counted(metric: str) -> None:
    lines = warned(metric, [*ENGLISH, *CHINESE[:2]])
    assert [line.partition(" candidates")[0] for line in lines] == ["4 of 14"]


@pytest.mark.parametrize(
    ("metric", "texts", "lines"), [("meteor", GERMAN, 1), ("cider", GERMAN, 0), ("meteor", ENGLISH, 0)]
)
def test_only_metrics_with_english_resources_warn_of_other_languages(metric: str, texts: list[str], lines: int) -> None:
    assert len(warned(metric, texts)) == lines
