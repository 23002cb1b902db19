"""The sentence and the BibTeX entries for a paper agree with the result and with capbench's own citations."""

from __future__ import annotations

import re
import unicodedata

import pytest

import capbench
from capbench.core import plugins
from capbench.core.built_in import BUILT_IN
from capbench.datasets.catalog import catalog
from capbench.reports.cite import bibtex, entries


def plain(text: str) -> str:
    """A text in lower case, without LaTeX's braces and without accents."""
    bare = re.sub(r'\\["\'`^~]|[{}]', "", text)
    return "".join(c for c in unicodedata.normalize("NFKD", bare) if not unicodedata.combining(c)).lower()


def field(entry: str, name: str) -> str:
    found = re.search(rf"^  {name} = {{(.*)}},$", entry, flags=re.MULTILINE)
    assert found is not None, (name, entry)
    return plain(found[1])


@pytest.mark.parametrize("name", sorted(BUILT_IN["capbench.metrics"]))
def test_every_metric_has_the_entry_of_its_citation(name: str) -> None:
    (entry,) = entries("metrics", name).values()
    citation = plain(plugins.load("capbench.metrics", name).citation)
    assert field(entry, "year") in citation
    assert field(entry, "author").partition(",")[0] in citation


@pytest.mark.parametrize("name", sorted(catalog().datasets))
def test_every_data_set_has_entries_of_its_citation(name: str) -> None:
    found = entries("datasets", name)
    citation = plain(catalog().dataset(name).citation)
    assert found
    for entry in found.values():
        assert field(entry, "author").partition(",")[0] in citation
        assert "capbench-" not in entry


def test_groups_versions_and_the_users_own_metrics() -> None:
    text = bibtex({"Composite, 8k": "composite@8k", "mine": "no-such-data"}, {"CIDEr": "cider", "my metric": "mine"})
    assert "@article{aditya2018image," in text
    assert "% mine: " in text
    assert "% my metric: " in text


def test_a_study_has_one_sentence_for_each_protocol_with_size_interval_and_test() -> None:
    result = capbench.compare("flickr8k-expert", ["bleu-4", "rouge-l"], resamples=100)
    text = result.cite()
    for part in (
        "is measured with Kendall's τ-c on Flickr8k Expert (900 ratings of 300 captions; protocol flickr8k-expert:1/no",
        "95 % bootstrap intervals (percentile) over images, 100 resamples, seed 0; differences between metrics: perm",
        "Holm's correction over 1 pair, α = 0.05.",
        "{papineni2002bleu,",
    ):
        assert part in text
    lines = capbench.correlate(["flickr8k-expert", "composite"], "cider", bootstrap=100).cite().splitlines()
    assert ["differences" in line for line in lines if line.startswith("Agreement with")] == [False, False]
