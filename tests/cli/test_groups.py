"""One group of a data set (``composite@8k``) in every command, and what commands on one protocol say first."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import scipy.stats

from capbench.datasets.opening import open_dataset
from capbench.datasets.root import find_root
from tests.conftest import Ran

ID = "composite@8k/any-candidate-out/correctness-tau-c"
PRINTED = "composite:1@8k/any-candidate-out/correctness-tau-c"
LENGTH = "tests.studies.toys:Length"
KEPT = "Composite, 8k: 75 of 210 items of Composite, 25 of 70 images"


def test_its_number_is_the_statistic_of_its_ratings_alone(found: Callable[..., Any]) -> None:
    both = ("-p", ID, "-p", ID.replace("@8k", ""))
    cells = found("correlate", *both, "-m", LENGTH, "-m", "cider")["cells"]
    values = {(c["protocol"].partition("/")[0], c["group"], c["column"]): c["value"] for c in cells}
    (judgements,) = (dataset := open_dataset("composite", find_root("sample"))).load(dataset.protocol().items)
    rated = judgements.ratings["correctness"]
    own = [k for k, i in enumerate(rated.item.tolist()) if judgements.items[i].group == "8k"]
    lengths = [len(judgements.items[rated.item[k]].candidate.split()) for k in own]
    expected = scipy.stats.kendalltau(lengths, rated.value[own], variant="c").statistic
    assert values["composite@8k", "", "length"] == pytest.approx(expected, abs=1e-12)
    for column in ("length", "cider"):  # document frequencies are those of the whole data set
        assert values["composite@8k", "", column] == pytest.approx(values["composite", "8k", column], abs=1e-12)


@pytest.mark.parametrize("named", [("-d", "composite@8k"), ("-d", "composite", "-p", ID)])
def test_every_command_on_one_protocol_takes_a_group_and_says_what_is_kept(
    named: tuple[str, ...], capbench: Callable[..., Ran], found: Callable[..., Any]
) -> None:
    for flags in (("--permutations", "100"), ("--power",)):
        arguments = ("compare", *flags, "rouge-l", "bleu-1", *named, "--bootstrap", "100")
        ran = capbench(*arguments, "--details")
        assert ran.code == 0, ran.err
        assert f"{PRINTED}: 75 " in ran.out
        assert KEPT in ran.out
        result = found(*arguments)
        assert KEPT in result.get("notes", ()) or KEPT in result["protocols"][0]["notes"]
    for command in (
        ("explore", "examples", "-m", "rouge-l"),
        ("figure", "ratings", "rouge-l"),
        ("figure", "score-groups", "rouge-l"),
    ):
        assert found(*command, *named)["protocol"] == ID
        assert KEPT in capbench(*command, *named).err
    curves = ("correlate", "--references-curve", "-m", "rouge-l", "--counts", "1,2", "--draws", "2")
    assert found(*curves, *named)["protocol"] == ID
    assert found("score", "-d", "composite@8k", "-m", "rouge-l")["n"] == 75
    ran = capbench("figure", "forest", "rouge-l", "bleu-1", *named, "--bootstrap", "100", "-o", "g.svg")
    assert KEPT in ran.err
    assert PRINTED in Path("g.svg").read_text(encoding="utf-8")
