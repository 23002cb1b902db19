"""Tables for papers: the user's choice of columns, digits, scale and marks is the same for all kinds of results."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import capbench
from capbench.api.agreement import CorrelationResult
from capbench.api.ranking import RankingResult
from capbench.core.errors import UsageError
from capbench.reports.table import TableStyle
from capbench.studies.published.tables import rescaled
from tests.reports.latex import assert_compiles, assert_well_formed, needs_pdflatex

TASKS = """\
schema: 1
name: two
tasks:
  - {name: expert, protocol: flickr8k-expert/no-own-captions/unaggregated-tau-c}
  - {name: pairs, protocol: pascal-50s/json-5-refs/direct-strict}
"""
METRICS = ["bleu-4", "rouge-l"]


@pytest.fixture(scope="module")
def correlated() -> CorrelationResult:
    return capbench.correlate(
        metrics=METRICS,
        protocol=["flickr8k-expert/no-own-captions/unaggregated-tau-c", "pascal-50s/json-5-refs/direct-strict"],
        bootstrap=100,
        compare="permutation",
        permutations=100,
    )


@pytest.fixture(scope="module")
def ranked(tmp_path_factory: pytest.TempPathFactory) -> RankingResult:
    path = tmp_path_factory.mktemp("tasks") / "tasks.yaml"
    path.write_text(TASKS, encoding="utf-8")
    return capbench.rank(METRICS, tasks=path, permutations=100)


def row(text: str, title: str) -> list[str]:
    """The cells of a Markdown row after its title."""
    (line,) = (line for line in text.splitlines() if line.startswith(f"| {title} |"))
    return [cell.strip() for cell in line.split("|")[2:-1]]


def test_heads_name_data_set_and_statistic(correlated: CorrelationResult) -> None:
    assert "| metric | Flickr8k Expert, Kendall's τ-c |" in correlated.to_markdown()
    assert r"Metric & Kendall's $\tau$-c \\" in correlated.to_latex()


def test_columns_digits_and_scale_of_correlations(correlated: CorrelationResult) -> None:
    value = correlated.value("bleu-4", "flickr8k-expert/no-own-captions/unaggregated-tau-c")
    plain = {"bold": False, "daggers": False, "intervals": False}
    assert row(correlated.to_markdown(columns="flickr8k-expert", digits=2, **plain), "BLEU-4") == [f"{value:.2f}"]
    text = correlated.to_markdown(columns="flickr8k-expert", digits=1, percent=True, **plain)
    assert row(text, "BLEU-4") == [f"{100 * value:.1f}"]
    assert "Kendall's τ-c ×100" in text
    assert "†" not in text
    assert "[low, high]" not in text
    share = correlated.value("bleu-4", "pascal-50s/json-5-refs/direct-strict")
    text = correlated.to_markdown(columns=["mean", "MM"], percent=False, digits=3, **plain)
    of_groups = correlated.value("bleu-4", "pascal-50s/json-5-refs/direct-strict", "MM")
    assert row(text, "BLEU-4") == [f"{share:.3f}", f"{of_groups:.3f}"]


def test_bold_and_daggers_can_be_omitted_separately(correlated: CorrelationResult) -> None:
    assert "**" in correlated.to_markdown()
    assert r"\textbf" in correlated.to_latex()
    assert "**" not in correlated.to_markdown(bold=False)
    assert "†" in correlated.to_markdown(bold=False)
    assert r"\dagger" not in correlated.to_latex(daggers=False)


def test_value_and_interval_have_the_same_digits_and_scale(correlated: CorrelationResult) -> None:
    for digits, percent, scale in ((1, True, 100), (2, None, 1), (0, True, 100)):
        style: dict[str, Any] = {"digits": digits, "percent": percent}

        def shown(value: float | None, digits: int = digits, scale: int = scale) -> str:
            assert value is not None
            return f"{scale * value:z.{digits}f}"

        for cell in correlated.cells:
            if cell.protocol.startswith("flickr8k"):
                ends = f"[{shown(cell.low)}, {shown(cell.high)}]"
                text = correlated.to_markdown(columns="flickr8k-expert", **style)
                assert row(text, cell.title)[0].split(" ", 1)[1] == ends
        low = -0.4 * 10**-digits / scale
        assert TableStyle(**style).interval(low, 1.0, scale == 100) == f"[{shown(0)}, {shown(1)}]"


def test_a_ranking_has_the_values_of_its_frame(ranked: RankingResult) -> None:
    frame = ranked.to_frame(columns=["pairs", "overall"], digits=4)
    assert [*frame.columns] == ["metric", "pairs", "overall"]
    text = ranked.to_markdown(columns=["overall", "pairs"], bold=False)
    for metric, title in (("bleu-4", "BLEU-4"), ("rouge-l", "ROUGE-L")):
        (of_metric,) = (one for one in ranked.ranking.metrics if one.column == metric)
        overall, pairs = row(text, title)
        assert overall == f"{of_metric.overall:.4f}"
        assert pairs.split()[0] == f"{100 * of_metric.values['pairs']:.2f}"
    assert "**" in ranked.to_markdown()


def test_chosen_columns_of_a_frame_of_correlations(correlated: CorrelationResult) -> None:
    frame = correlated.to_frame(columns="MM")
    assert {*frame["group"]} == {"MM"}
    assert len(frame) == len(METRICS)
    assert len(correlated.to_frame()) == 6 * len(METRICS)


@pytest.mark.parametrize("kind", ["correlated", "ranked"])
def test_an_unknown_column_or_number_of_digits_is_an_error(kind: str, request: pytest.FixtureRequest) -> None:
    result = request.getfixturevalue(kind)
    for method in (result.to_latex, result.to_markdown, result.to_frame):
        with pytest.raises(UsageError) as caught:
            method(columns=["gone"])
        assert (caught.value.code, caught.value.value) == ("unknown-name", "gone")
        for digits in (-1, True, 2.5):
            with pytest.raises(UsageError, match="digits"):
                method(digits=digits)


@pytest.mark.parametrize("kind", ["correlated", "ranked"])
def test_latex_is_well_formed(kind: str, request: pytest.FixtureRequest) -> None:
    result = request.getfixturevalue(kind)
    assert_well_formed(result.to_latex())
    assert_well_formed(result.to_latex(digits=1, percent=True, bold=False))


@needs_pdflatex
@pytest.mark.parametrize("kind", ["correlated", "ranked"])
def test_latex_compiles(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    assert_compiles(request.getfixturevalue(kind).to_latex(digits=3), tmp_path)


def test_published_numbers_follow_the_scale() -> None:
    assert rescaled(".323", 2) == "32.3"
    assert rescaled("50.9 ±0.70", -2) == "0.509 ±0.0070"
    assert rescaled(".323*", 0) == ".323*"
    assert rescaled("7.08e-13", 2) == "0.0000000000708"
    assert not re.search(r"\d", rescaled("", 2))
