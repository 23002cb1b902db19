"""What can be scored where candidates come without references."""

from __future__ import annotations

import pytest

from capbench.core.errors import UsageError
from capbench.metrics.from_file import without_references
from capbench.metrics.requests import resolve_metrics


def test_a_metric_asked_for_as_a_whole_keeps_the_columns_that_need_none() -> None:
    requests, said = without_references(resolve_metrics(["clipscore", "vifidel"]), "--references FILE")
    assert [request.columns for request in requests] == [("clipscore",), ("vifidel",)]
    assert said == [
        "clipscore: refclipscore left out, for want of references (--references FILE)",
        "vifidel: vifidel-ref left out, for want of references (--references FILE)",
    ]


def test_columns_that_need_none_are_asked_for_in_silence() -> None:
    asked = resolve_metrics(["clipscore.clipscore", "pac-s.pac-s"])
    assert without_references(asked, "") == (asked, [])


@pytest.mark.parametrize("names", [["cider"], ["refclipscore"], ["refclipscore", "clipscore.clipscore", "bleu"]])
def test_what_was_asked_for_by_name_is_refused_and_not_dropped(names: list[str]) -> None:
    with pytest.raises(UsageError, match=r"references are needed \(references=…\)"):
        without_references(resolve_metrics(names), "references=…")
