"""The head of a number says which protocol it is wherever another one would have the same head."""

from __future__ import annotations

import io

from rich.console import Console

from capbench.datasets.base import load_dataset
from capbench.reports.markup import to_latex, to_markdown
from capbench.reports.tables import details, tables
from capbench.reports.terminal import print_result
from capbench.studies.results import Cell, ProtocolInfo, StudyResult


def info(protocol_id: str, groups: tuple[str, ...] = ()) -> ProtocolInfo:
    dataset = load_dataset(protocol_id.split("/")[0])
    spec = dataset.protocol(protocol_id).statistic
    return ProtocolInfo(
        id=protocol_id,
        dataset=dataset.name,
        dataset_title=dataset.title,
        statistic=spec.label,
        kind=spec.kind,
        description="rules",
        groups=groups,
        n_items=6,
    )


def result_of(*infos: ProtocolInfo) -> StudyResult:
    cells = [
        Cell(protocol=p.id, metric="cider", column="cider", title="CIDEr", group=group, value=0.5, n=6)
        for p in infos
        for group in ("", *p.groups)
    ]
    return StudyResult(
        capbench="0.1.0",
        name="toy",
        title="Toy study",
        created="2020-01-01T00:00:00+00:00",
        sample=False,
        protocols=infos,
        columns={"cider": "CIDEr"},
        signatures={},
        cells=tuple(cells),
        seconds={"total": 1.0},
    )


SAME_TEXT = "composite/same-text-out/correctness-tau-c"
ANY = "composite/any-candidate-out/correctness-tau-c"
THOROUGH = "composite/same-text-out/thoroughness-tau-c"
SPEARMAN = "composite/same-text-out/correctness-spearman"
EXPERT = "flickr8k-expert/no-own-captions/unaggregated-tau-c"


def names(result: StudyResult, table: int = 0) -> list[str]:
    return [column.name for column in tables(result)[table].columns]


def test_heads_that_are_distinct_stay_as_they_are() -> None:
    assert set(details([info(SAME_TEXT), info(SPEARMAN), info(EXPERT)]).values()) == {""}
    assert names(result_of(info(SAME_TEXT), info(SPEARMAN), info(EXPERT))) == [
        "Composite τ-c",
        "Composite ρ",
        "Flickr8k Expert τ-c",
    ]


def test_equal_heads_get_the_items_that_tell_them_apart() -> None:
    assert names(result_of(info(SAME_TEXT), info(SPEARMAN), info(ANY))) == [
        "Composite, same-text-out τ-c",
        "Composite ρ",
        "Composite, any-candidate-out τ-c",
    ]


def test_equal_heads_get_the_statistic_that_tells_them_apart() -> None:
    assert names(result_of(info(SAME_TEXT), info(THOROUGH))) == [
        "Composite, correctness-tau-c τ-c",
        "Composite, thoroughness-tau-c τ-c",
    ]


def test_equal_heads_that_differ_in_both_get_both() -> None:
    assert names(result_of(info(ANY), info(THOROUGH))) == [
        "Composite, any-candidate-out, correctness-tau-c τ-c",
        "Composite, same-text-out, thoroughness-tau-c τ-c",
    ]


def test_tables_by_source_and_of_accuracies_have_titles_of_their_own() -> None:
    strict, half = (f"foil/one-reference/right-{ties}" for ties in ("strict", "ties-half"))
    result = result_of(info(SAME_TEXT, ("8k",)), info(ANY, ("8k",)), info(strict), info(half))
    titles = [table.title for table in tables(result)]
    assert titles == [
        "Toy study",
        "FOIL, right-strict, accuracy",
        "FOIL, right-ties-half, accuracy",
        "Composite, same-text-out by source, τ-c",
        "Composite, any-candidate-out by source, τ-c",
    ]
    assert names(result, 1) == ["FOIL, right-strict all"]
    assert names(result, 3) == ["Composite 8k", "Composite pooled"]


def test_terminal_markdown_and_latex_say_it() -> None:
    result = result_of(info(SAME_TEXT), info(ANY), info(EXPERT))
    stream = io.StringIO()
    print_result(result, Console(file=stream, width=160, no_color=True))
    title, _, outer, detail, inner, *_ = stream.getvalue().splitlines()
    assert title == "Toy study"
    assert outer.split() == ["Composite", "Composite"]
    assert detail.split() == ["same-text-out", "any-candidate-out", "Flickr8k", "Expert"]
    assert inner.split() == ["metric", "τ-c", "τ-c", "τ-c"]
    heads = ("Composite, same-text-out", "Composite, any-candidate-out", "Flickr8k Expert")
    assert " | ".join(f"{head}, Kendall's τ-c" for head in heads) in to_markdown(result)
    assert r"\multicolumn{1}{c}{Composite, same-text-out} & \multicolumn{1}{c}{Composite, any-cand" in to_latex(result)
