"""A data set's version: accepted behind a colon, left out it means the newest, printed with every result."""

from __future__ import annotations

import pytest

from capbench.datasets.opening import open_dataset
from capbench.datasets.root import find_root

LENGTH = "tests.studies.toys:Length"


@pytest.mark.parametrize(
    ("given", "name", "version"),
    [
        ("composite", "composite", "1"),
        ("composite:1", "composite", "1"),
        ("composite:1@8k", "composite@8k", "1"),
        ("nebula", "nebula", "spica"),
        ("nebula:spica", "nebula", "spica"),
        ("nebula:1", "nebula:1", "1"),
    ],
)
def test_a_version_is_part_of_the_name_only_where_another_is_meant_without_it(
    given: str, name: str, version: str
) -> None:
    opened = open_dataset(given, find_root("sample"))
    assert (opened.name, opened.version) == (name, version)


@pytest.mark.parametrize(
    "text", ["composite:1/any-candidate-out/correctness-tau-c", "composite/any-candidate-out/correctness-tau-c"]
)
def test_an_id_is_accepted_with_and_without_the_version(text: str) -> None:
    protocol = open_dataset("composite", find_root("sample")).protocol(text)
    assert str(protocol) == "composite/any-candidate-out/correctness-tau-c"
    assert protocol.versioned == "composite:1/any-candidate-out/correctness-tau-c"
